//! The key that a certificate of a pod is requested for: a PKCS#10 request, or the key itself with a proof of
//! possession.

use plinth_codec::{base64_text, Value};
use plinth_pki::{CertificateRequest, SubjectKey, SubjectKeyError};

use crate::path::text;

pub(super) const PUBLIC_KEY: &str = "spec.pkixPublicKey";
pub(super) const REQUEST: &str = "spec.stubPKCS10Request";

/// The bytes of a field; none where it is absent. Invalid base64 was refused when the body was decoded.
pub(super) fn bytes(request: &Value, field: &str) -> Vec<u8> {
    base64_text::decode(text(request, field)).unwrap_or_default()
}

/// The key of a request; `None` for a malformed one.
pub(super) fn key_of(request: &CertificateRequest) -> Option<SubjectKey> {
    match SubjectKey::from_spki(&request.public_key) {
        Ok(key) => Some(key),
        Err(SubjectKeyError::Unknown) => Some(SubjectKey::Other),
        Err(SubjectKeyError::Malformed) => None,
    }
}

/// The key that a certificate for a stored request has to have: the error, and its field, where it has none.
pub(super) fn requested_key(request: &Value) -> Result<SubjectKey, (&'static str, &'static str)> {
    if !text(request, REQUEST).is_empty() {
        let parsed = CertificateRequest::from_der(&bytes(request, REQUEST)).ok();
        let key = parsed.and_then(|parsed| key_of(&parsed));
        return key.ok_or((REQUEST, "must be a valid PKCS#10 CSR"));
    }
    let key = SubjectKey::from_spki(&bytes(request, PUBLIC_KEY));
    key.map_err(|_| (PUBLIC_KEY, "must be a valid PKIX-serialized public key"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use plinth_codec::tree;

    /// A request for a key of Ed25519, and the key.
    pub(in crate::certificates) fn request() -> (Value, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let stub = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
        let request = tree!({
            "metadata": tree!({ "name": "r", "namespace": "a" }),
            "spec": tree!({
                "signerName": "example.com/s",
                "podName": "web",
                "podUID": "uid",
                "serviceAccountName": "runner",
                "serviceAccountUID": "u2",
                "nodeName": "n1",
                "nodeUID": "u3",
                "maxExpirationSeconds": 86_400,
                "stubPKCS10Request": base64_text::encode(stub.der()),
            }),
        });
        (request, key)
    }
}
