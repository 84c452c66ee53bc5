//! Public keys that certificates of pods may have, as Go's `crypto/x509` reads them, and signatures that
//! prove possession of the private key.

use ring::signature::{self as r, UnparsedPublicKey, VerificationAlgorithm};
use sha2::{Digest, Sha256};
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::p521;

const RSA: &str = "1.2.840.113549.1.1.1";
const EC: &str = "1.2.840.10045.2.1";
const ED25519: &str = "1.3.101.112";
const X25519: &str = "1.3.101.110";
const DSA: &str = "1.2.840.10040.4.1";
const ED25519_LENGTH: usize = 32;
/// Curves by object identifier: Go's name, and the length of an uncompressed point.
const CURVES: [(&str, &str, usize); 4] = [
    ("1.3.132.0.33", "P-224", 57),
    ("1.2.840.10045.3.1.7", "P-256", 65),
    ("1.3.132.0.34", "P-384", 97),
    ("1.3.132.0.35", "P-521", 133),
];

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectKey {
    /// The 32 bytes of an Ed25519 key.
    Ed25519(Vec<u8>),
    /// ECDSA: Go's name of the curve, and the point.
    Ecdsa(&'static str, Vec<u8>),
    /// RSA: modulus and exponent.
    Rsa(BigUint, BigUint),
    /// Of an algorithm that does not sign, or that certificates no longer have: X25519, DSA.
    Other,
}

/// An invalid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectKeyError {
    /// Not the DER of a key.
    #[error("malformed public key")]
    Malformed,
    /// The algorithm is not known.
    #[error("x509: unknown public key algorithm")]
    Unknown,
}

impl SubjectKey {
    /// Decodes a SubjectPublicKeyInfo. Points of the curves that ring verifies are not checked to be on them;
    /// no signature is theirs.
    ///
    /// # Errors
    /// [`SubjectKeyError`].
    pub fn from_spki(der: &[u8]) -> Result<SubjectKey, SubjectKeyError> {
        const MALFORMED: SubjectKeyError = SubjectKeyError::Malformed;
        let Ok(([], info)) = SubjectPublicKeyInfo::from_der(der) else { return Err(MALFORMED) };
        let bytes = &*info.subject_public_key.data;
        match info.algorithm.algorithm.to_id_string().as_str() {
            RSA => match info.parsed() {
                Ok(PublicKey::RSA(rsa)) => {
                    let positive = |bytes: &[u8]| {
                        let is_negative = bytes.first().is_some_and(|first| *first >= 0x80);
                        let number = BigUint::from_bytes_be(bytes);
                        (!is_negative && number > BigUint::from(0u8)).then_some(number)
                    };
                    let modulus = positive(rsa.modulus).ok_or(MALFORMED)?;
                    Ok(SubjectKey::Rsa(modulus, positive(rsa.exponent).ok_or(MALFORMED)?))
                }
                _ => Err(MALFORMED),
            },
            EC => {
                let named = info.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
                let named = named.map(|name| name.to_id_string()).ok_or(MALFORMED)?;
                let curve = CURVES.iter().find(|(id, ..)| *id == named).ok_or(MALFORMED)?;
                let is_on_p521 = || p521::PublicKey::from_point(bytes).is_some();
                let is_point = bytes.len() == curve.2
                    && bytes.first() == Some(&4)
                    && (curve.1 != "P-521" || is_on_p521());
                match is_point {
                    true => Ok(SubjectKey::Ecdsa(curve.1, bytes.to_vec())),
                    false => Err(MALFORMED),
                }
            }
            ED25519 if bytes.len() == ED25519_LENGTH => Ok(SubjectKey::Ed25519(bytes.to_vec())),
            ED25519 => Err(MALFORMED),
            X25519 | DSA => Ok(SubjectKey::Other),
            _ => Err(SubjectKeyError::Unknown),
        }
    }

    /// The size of an RSA key in bits, in whole bytes; 0 for other keys.
    pub fn rsa_bits(&self) -> u64 {
        match self {
            SubjectKey::Rsa(modulus, _) => modulus.bits().div_ceil(8) * 8,
            _ => 0,
        }
    }

    /// Whether a signature is the key's: Ed25519, ECDSA with SHA-256, or RSASSA-PSS with SHA-256 and a salt
    /// of any length.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let by = |key: &[u8], by: &'static dyn VerificationAlgorithm| {
            UnparsedPublicKey::new(by, key).verify(message, signature).is_ok()
        };
        match self {
            SubjectKey::Ed25519(key) => by(key, &r::ED25519),
            SubjectKey::Ecdsa("P-256", point) => by(point, &r::ECDSA_P256_SHA256_ASN1),
            SubjectKey::Ecdsa("P-384", point) => by(point, &r::ECDSA_P384_SHA256_ASN1),
            SubjectKey::Ecdsa("P-521", point) => p521::verifies_x509(point, 256, message, signature),
            SubjectKey::Rsa(modulus, exponent) => pss(modulus, exponent, message, signature),
            SubjectKey::Ecdsa(..) | SubjectKey::Other => false,
        }
    }
}

/// Verifies RSASSA-PSS with SHA-256 (RFC 8017, 8.1.2 and 9.1.2), whatever the length of the salt, which ring
/// requires to be that of the hash.
fn pss(modulus: &BigUint, exponent: &BigUint, message: &[u8], signature: &[u8]) -> bool {
    const HASH: usize = 32;
    const TRAILER: u8 = 0xbc;
    const LONGEST_EXPONENT: u64 = 32;
    let signed = BigUint::from_bytes_be(signature);
    let length = modulus.bits().div_ceil(8);
    if length != signature.len() as u64 || signed >= *modulus || exponent.bits() > LONGEST_EXPONENT {
        return false;
    }
    let encoded_bits = modulus.bits() - 1;
    let encoded = signed.modpow(exponent, modulus).to_bytes_be();
    let encoded_length = usize::try_from(encoded_bits.div_ceil(8)).unwrap_or(usize::MAX);
    let Some(missing) = encoded_length.checked_sub(encoded.len()) else { return false };
    let encoded = [vec![0; missing], encoded].concat();
    let Some((TRAILER, rest)) = encoded.split_last().map(|(last, rest)| (*last, rest)) else { return false };
    let Some(masked_length) = rest.len().checked_sub(HASH) else { return false };
    let (masked, hash) = rest.split_at(masked_length);
    let mut data: Vec<u8> = masked.iter().zip(mask(hash)).map(|(byte, mask)| byte ^ mask).collect();
    // The bits above those of the encoded message are zero.
    let unused = encoded_length as u64 * 8 - encoded_bits;
    let used = u8::MAX.checked_shr(u32::try_from(unused).unwrap_or(u32::MAX)).unwrap_or(0);
    if masked.first().is_some_and(|first| first & !used != 0) {
        return false;
    }
    if let Some(first) = data.first_mut() {
        *first &= used;
    }
    let Some(start) = data.iter().position(|byte| *byte != 0).filter(|at| data.get(*at) == Some(&1)) else {
        return false;
    };
    let salt = data.get(start + 1..).unwrap_or_default();
    let mut whole = Sha256::new();
    whole.update([0; 8]);
    whole.update(Sha256::digest(message));
    whole.update(salt);
    whole.finalize().as_slice() == hash
}

/// MGF1 with SHA-256 (RFC 8017, B.2.1).
fn mask(seed: &[u8]) -> impl Iterator<Item = u8> + '_ {
    (0u32..).flat_map(move |counter| {
        let block = Sha256::new().chain_update(seed).chain_update(counter.to_be_bytes());
        <[u8; 32]>::from(block.finalize())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn file(name: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testdata/possession").join(name);
        std::fs::read(path).unwrap()
    }

    /// Keys and signatures of the message `uid` that OpenSSL made.
    #[test]
    fn signatures_prove_possession() {
        let mut other = None;
        for name in ["ed25519", "p256", "p384", "p521", "rsa3072", "rsa3072-long-salt"] {
            let key = SubjectKey::from_spki(&file(&format!("{name}.der"))).unwrap();
            let mut signature = file(&format!("{name}.sig"));
            assert!(key.has_signed(b"uid", &signature), "{name}");
            assert!(!key.has_signed(b"uie", &signature), "{name}");
            let others = other.replace(key.clone());
            assert!(
                others.is_none_or(|other| other == key || !other.has_signed(b"uid", &signature)),
                "{name}"
            );
            *signature.last_mut().unwrap() ^= 1;
            assert!(!key.has_signed(b"uid", &signature), "{name}");
            assert!(!key.has_signed(b"uid", b""), "{name}");
        }
        assert_eq!(other.unwrap().rsa_bits(), 3072);
    }

    #[test]
    fn keys_of_other_algorithms_sign_nothing() {
        let p224 = SubjectKey::from_spki(&file("p224.der")).unwrap();
        assert!(matches!(p224, SubjectKey::Ecdsa("P-224", _)));
        let x25519 = SubjectKey::from_spki(&file("x25519.der")).unwrap();
        assert_eq!((x25519.has_signed(b"", b""), x25519), (false, SubjectKey::Other));
        assert_eq!(SubjectKey::from_spki(&file("x448.der")), Err(SubjectKeyError::Unknown));
        let mut extended = file("p256.der");
        extended.push(0);
        for der in [&extended[..], b"", b"\x30\x00"] {
            assert_eq!(SubjectKey::from_spki(der), Err(SubjectKeyError::Malformed));
        }
    }
}
