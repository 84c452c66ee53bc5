//! Of Secrets with a certificate and its key: text that is none, and halves that do not belong together (Go's
//! `crypto/tls.X509KeyPair`).

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use plinth_codec::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::text;
use crate::authn::jwt::keys;
use crate::certificates::pem::blocks;

const CERTIFICATE: &str = "CERTIFICATE";

/// Of a Secret.
pub fn secret(new: &Value, _: Option<&Value>) -> Vec<String> {
    if text(new, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let part = |key: &str| {
        new.str_at(&["data", key]).and_then(|data| STANDARD.decode(data).ok()).unwrap_or_default()
    };
    pair_fault(&part("tls.crt"), &part("tls.key")).into_iter().collect()
}

fn is_key(label: &str) -> bool {
    label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY")
}

/// Why the two are no pair that a server can use.
fn pair_fault(certificates: &[u8], key: &[u8]) -> Option<String> {
    let skipped = |text: &[u8], wanted: fn(&str) -> bool| -> Vec<String> {
        blocks(text).map(|block| block.label).take_while(|label| !wanted(label)).collect()
    };
    let Some(certificate) = blocks(certificates).find(|block| block.label == CERTIFICATE) else {
        return Some(match skipped(certificates, |label| label == CERTIFICATE).as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [label] if label.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
            labels => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", labels.join(" ")),
        });
    };
    let Some(private) = blocks(key).find(|block| is_key(&block.label)) else {
        return Some(match skipped(key, is_key).as_slice() {
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
