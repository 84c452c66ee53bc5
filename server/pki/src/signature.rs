//! Signatures of certificate requests: those that Go's `crypto/x509` verifies.
//!
//! Verified by ring, and on P-521 by [`crate::p521`]. Unsupported ones are rejected by name: P-224,
//! RSASSA-PSS, and ECDSA on P-256 and P-384 with SHA-1 or SHA-512.

use ring::signature as r;
use ring::signature::{UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

use crate::p521;

/// Minimum size of RSA keys in Go, in bits.
const LEAST_RSA: usize = 1024;

/// An invalid signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The algorithm is not supported.
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    Unimplemented,
    /// The algorithm is insecure.
    #[error("x509: cannot verify signature: insecure algorithm {0}")]
    Insecure(&'static str),
    /// The RSA key is too short: its bits.
    #[error(
        "crypto/rsa: {0}-bit keys are insecure (see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
    )]
    ShortKey(usize),
    /// The curve is not supported.
    #[error("x509: unsupported elliptic curve")]
    Curve,
    /// The key is of another kind than the signature.
    #[error("x509: signature algorithm specifies an {0} public key, but have public key of another type")]
    OtherKey(&'static str),
    /// The signature is not the key's.
    #[error("{0}")]
    Wrong(&'static str),
}

/// A signature algorithm.
enum Scheme {
    Rsa(&'static dyn VerificationAlgorithm),
    /// The size of the hash: 1, 256, 384 or 512.
    Ecdsa(u16),
    Ed25519,
    Insecure(&'static str),
}

/// Algorithms by object identifier.
fn scheme(algorithm: &str) -> Option<Scheme> {
    Some(match algorithm {
        "1.2.840.113549.1.1.2" => Scheme::Insecure("MD2-RSA"),
        "1.2.840.113549.1.1.4" => Scheme::Insecure("MD5-RSA"),
        // SHA-1 is accepted for requests: only their sender could exploit collisions.
        "1.2.840.113549.1.1.5" => Scheme::Rsa(&r::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY),
        "1.2.840.113549.1.1.11" => Scheme::Rsa(&r::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        "1.2.840.113549.1.1.12" => Scheme::Rsa(&r::RSA_PKCS1_2048_8192_SHA384),
        "1.2.840.113549.1.1.13" => Scheme::Rsa(&r::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
        "1.2.840.10045.4.1" => Scheme::Ecdsa(1),
        "1.2.840.10045.4.3.2" => Scheme::Ecdsa(256),
        "1.2.840.10045.4.3.3" => Scheme::Ecdsa(384),
        "1.2.840.10045.4.3.4" => Scheme::Ecdsa(512),
        "1.3.101.112" => Scheme::Ed25519,
        _ => return None,
    })
}

/// Verifies that `message` was signed with the private key of `key`.
///
/// # Errors
/// [`SignatureError`].
pub fn check_signature(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    const RSA: &str = "1.2.840.113549.1.1.1";
    const EC: &str = "1.2.840.10045.2.1";
    const ED25519: &str = "1.3.101.112";
    let kind = key.algorithm.algorithm.to_id_string();
    let curve = match kind == EC {
        true => Some(curve(key)?),
        false => None,
    };
    let scheme = scheme(&algorithm.algorithm.to_id_string()).ok_or(SignatureError::Unimplemented)?;
    let public = &*key.subject_public_key.data;
    let verified = |by: &'static dyn VerificationAlgorithm| {
        UnparsedPublicKey::new(by, public).verify(message, signature).is_ok()
    };
    let (is_right, error) = match scheme {
        Scheme::Insecure(name) => return Err(SignatureError::Insecure(name)),
        Scheme::Rsa(_) if kind != RSA => return Err(SignatureError::OtherKey("RSA")),
        Scheme::Rsa(by) => {
            let bits = match key.parsed() {
                Ok(PublicKey::RSA(rsa)) => rsa.key_size(),
                _ => 0,
            };
            if bits < LEAST_RSA {
                return Err(SignatureError::ShortKey(bits));
            }
            (verified(by), "crypto/rsa: verification error")
        }
        Scheme::Ed25519 if kind != ED25519 => return Err(SignatureError::OtherKey("Ed25519")),
        Scheme::Ed25519 => (verified(&r::ED25519), "x509: Ed25519 verification failure"),
        Scheme::Ecdsa(hash) => {
            let is_right = match (curve, hash) {
                (None, _) => return Err(SignatureError::OtherKey("ECDSA")),
                (Some(256), 256) => verified(&r::ECDSA_P256_SHA256_ASN1),
                (Some(256), 384) => verified(&r::ECDSA_P256_SHA384_ASN1),
                (Some(384), 256) => verified(&r::ECDSA_P384_SHA256_ASN1),
                (Some(384), 384) => verified(&r::ECDSA_P384_SHA384_ASN1),
                (Some(521), 256 | 384 | 512) => p521::verifies_x509(public, hash, message, signature),
                _ => return Err(SignatureError::Unimplemented),
            };
            (is_right, "x509: ECDSA verification failure")
        }
    };
    match is_right {
        true => Ok(()),
        false => Err(SignatureError::Wrong(error)),
    }
}

/// The size of a key's curve, in bits.
fn curve(key: &SubjectPublicKeyInfo<'_>) -> Result<u16, SignatureError> {
    let named = key.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
    match named.map(|name| name.to_id_string()).as_deref() {
        Some("1.3.132.0.33") => Ok(224),
        Some("1.2.840.10045.3.1.7") => Ok(256),
        Some("1.3.132.0.34") => Ok(384),
        Some("1.3.132.0.35") => Ok(521),
        _ => Err(SignatureError::Curve),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::CertificateRequest;

    fn read(name: &str) -> Result<CertificateRequest, String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testdata").join(name);
        CertificateRequest::read(&std::fs::read(path).unwrap()).map_err(|error| error.to_string())
    }

    /// Requests that OpenSSL made, and what kube-apiserver reports of them; of the last three it reports
    /// nothing.
    #[test]
    fn requests_by_table() {
        const UNIMPLEMENTED: Result<(), &str> = Err("x509: cannot verify signature: algorithm unimplemented");
        let rows = [
            ("rsa2048.pem", Ok(())),
            ("rsa1024.pem", Ok(())),
            ("sha1.pem", Ok(())),
            ("sha512.pem", Ok(())),
            ("p384-sha256.pem", Ok(())),
            ("ed.pem", Ok(())),
            ("md5.pem", Err("x509: cannot verify signature: insecure algorithm MD5-RSA")),
            (
                "rsa512.pem",
                Err("crypto/rsa: 512-bit keys are insecure (see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"),
            ),
            ("k256.pem", Err("x509: unsupported elliptic curve")),
            ("pss.pem", UNIMPLEMENTED),
            ("p224.pem", UNIMPLEMENTED),
            ("p256-sha512.pem", UNIMPLEMENTED),
        ];
        for (name, expected) in rows {
            assert_eq!(read(name).map(|_| ()), expected.map_err(str::to_owned), "{name}");
        }
    }

    #[test]
    fn names_of_other_kinds_are_left_out() {
        for name in ["rid.pem", "other-name.pem"] {
            let request = read(name).unwrap();
            assert_eq!(request.names.to_der(), None, "{name}");
        }
        let request = read("node-uri.pem").unwrap();
        assert_eq!((&*request.names.dns[0], &*request.names.uris[0]), ("n1", "http://x"));
        let der = request.names.to_der().unwrap();
        assert_eq!(der, [&[0x30, 14, 0x82, 2][..], b"n1", &[0x86, 8], b"http://x"].concat());
    }
}
