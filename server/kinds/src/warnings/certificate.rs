//! Of Secrets with a certificate and its key: text that is none, and halves that do not belong together (Go's
//! `crypto/tls.X509KeyPair`).

use plinth_codec::pem::Block;
use plinth_codec::{base64_text, pem, Value};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::text;
use plinth_pki::files::CERTIFICATE;
use plinth_pki::jwt::keys;

/// Of a Secret.
pub fn secret(new: &Value, _: Option<&Value>) -> Vec<String> {
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

/// Why the two are no pair that a server can use.
fn pair_error(certificates: &[u8], key: &[u8]) -> Option<String> {
    // Of a text that is not understood no block counts.
    let blocks = |text: &[u8]| pem::parse(text).unwrap_or_default();
    let (certificates, keys) = (blocks(certificates), blocks(key));
    let labels =
        |blocks: &[Block]| -> Vec<String> { blocks.iter().map(|block| block.label.clone()).collect() };
    let Some(certificate) = certificates.iter().find(|block| block.label == CERTIFICATE) else {
        return Some(match labels(&certificates).as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [label] if label.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
            labels => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", labels.join(" ")),
        });
    };
    let Some(private) = keys.iter().find(|block| is_key(&block.label)) else {
        return Some(match labels(&keys).as_slice() {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [label] if label == CERTIFICATE => {
                "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            labels => format!("tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]", labels.join(" ")),
        });
    };
    let Ok((_, parsed)) = X509Certificate::from_der(&certificate.contents) else {
        return Some("x509: malformed certificate".to_owned());
    };
    // A key of a kind that is not known here may well be one that others know.
    let public = keys::public_of_private(&private.label, &private.contents)?;
    let own = parsed.public_key();
    match keys::kind_of(&public) == Some(own.algorithm.algorithm.to_id_string()) {
        false => Some("tls: private key type does not match public key type".to_owned()),
        true if public != own.raw => Some("tls: private key does not match public key".to_owned()),
        true => None,
    }
}
