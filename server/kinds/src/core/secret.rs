//! Secret (`core`).

use plinth_codec::pem::{self, Block};
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;
use plinth_codec::{base64_text, Map, Value};
use plinth_pki::{key_kind, public_key_of_private, CERTIFICATE_LABEL};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::checks::Check::{self, By};
use crate::checks::Part;
use crate::core::config_data;
use crate::defaults::DefaultRule::{self, Computed, Field};
use crate::defaults::Literal::Str;
use crate::path::{is_empty, text};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    defaults: DEFAULTS,
    checks: CHECKS,
    validate: config_data::validate_data,
    warnings,
    validate_update: config_data::validate_update,
    columns: COLUMNS,
    selectable: Selectable::new(&[
        SelectableField::NAME,
        SelectableField::NAMESPACE,
        SelectableField::new("type"),
    ]),
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[Computed(encode_string_data), Field("type", Str("Opaque"))];

/// Moves `stringData` to `data`, base64-encoded.
fn encode_string_data(object: &mut Map) {
    let Some(Value::Object(texts)) = object.remove("stringData") else { return };
    if object.get("data").is_none_or(Value::is_null) {
        object.insert("data", Value::object());
    }
    let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) else { return };
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        data.insert(key, plinth_codec::base64_text::encode(text));
    }
}

const CHECKS: &[Check] = &[By(secret)];

/// Keys that Secrets of built-in types must have.
const REQUIRED_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

fn secret(secret: &Part<'_>) {
    let kind = secret.text("type");
    let data = |key: &str| secret.at("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    for key in REQUIRED_KEYS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, keys)| keys.iter()) {
        let path = format_args!("data[{key}]");
        let Some(encoded) = data(key) else {
            secret.required(path, "");
            continue;
        };
        if key.starts_with(".docker") {
            let decoded = plinth_codec::base64_text::decode(encoded).unwrap_or_default();
            if let Err(error) = plinth_codec::json::parse(&decoded) {
                secret.invalid(path, "<secret contents redacted>", &error.to_string());
            }
        }
    }
    let account = secret.value().at(&["metadata", "annotations", "kubernetes.io/service-account.name"]);
    if kind == "kubernetes.io/service-account-token" && is_empty(account) {
        secret.required("metadata.annotations[kubernetes.io/service-account.name]", "");
    }
    if kind == "kubernetes.io/basic-auth" && data("username").is_none() && data("password").is_none() {
        secret.required("data[username]", "");
        secret.required("data[password]", "");
    }
}

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    if text(new, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let part = |key: &str| {
        new.str_at(&["data", key]).and_then(|data| base64_text::decode(data).ok()).unwrap_or_default()
    };
    pair_error(&part("tls.crt"), &part("tls.key")).into_iter().collect()
}

fn is_key(label: &str) -> bool {
    label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY")
}

/// Why certificate and key are not a valid TLS pair, with the messages of Go's `crypto/tls`.
fn pair_error(certificates: &[u8], key: &[u8]) -> Option<String> {
    // In malformed PEM no block is used.
    let blocks = |text: &[u8]| pem::parse(text).unwrap_or_default();
    let (certificates, keys) = (blocks(certificates), blocks(key));
    let labels =
        |blocks: &[Block]| -> Vec<String> { blocks.iter().map(|block| block.label.clone()).collect() };
    let Some(certificate) = certificates.iter().find(|block| block.label == CERTIFICATE_LABEL) else {
        return Some(match labels(&certificates).as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [label] if label.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
            labels => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", labels.join(" ")),
        });
    };
    let Some(private) = keys.iter().find(|block| is_key(&block.label)) else {
        return Some(match labels(&keys).as_slice() {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [label] if label == CERTIFICATE_LABEL => {
                "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            labels => format!("tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]", labels.join(" ")),
        });
    };
    let Ok((_, parsed)) = X509Certificate::from_der(&certificate.contents) else {
        return Some("x509: malformed certificate".to_owned());
    };
    // A key of an unknown type may be valid for other implementations.
    let public = public_key_of_private(&private.label, &private.contents)?;
    let own = parsed.public_key();
    match key_kind(&public) == Some(own.algorithm.algorithm.to_id_string()) {
        false => Some("tls: private key type does not match public key type".to_owned()),
        true if public != own.raw => Some("tls: private key does not match public key".to_owned()),
        true => None,
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Type", "type", ""),
    Column::count("Data", "data").declared("string"),
    Column::AGE,
];
