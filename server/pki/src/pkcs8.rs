//! Private keys in PKCS#8, the one form that ring and `p521` read.

use rustls::pki_types::PrivateKeyDer;

/// Converts a private key to PKCS#8; `None` for an unknown format.
pub fn pkcs8_from_key(key: &PrivateKeyDer<'_>) -> Option<Vec<u8>> {
    let label = match key {
        PrivateKeyDer::Pkcs8(_) => "PRIVATE KEY",
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => return None,
    };
    from_pem(label, key.secret_der())
}

/// AlgorithmIdentifier { rsaEncryption, NULL }
const RSA: &[u8] = &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1, 5, 0];

/// The SubjectPublicKeyInfo of an RSA public key in PKCS#1.
pub(crate) fn spki_of_rsa(pkcs1: &[u8]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(RSA);
            writer.next().write_bitvec_bytes(pkcs1, pkcs1.len() * 8);
        });
    })
}

/// Converts a private key to PKCS#8, which ring and `p521` read: the older formats, by their PEM labels, are
/// wrapped.
pub(crate) fn from_pem(label: &str, der: &[u8]) -> Option<Vec<u8>> {
    /// AlgorithmIdentifier { id-ecPublicKey, prime256v1 }
    const P256: &[u8] =
        &[0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    /// AlgorithmIdentifier { id-ecPublicKey, secp384r1 }
    const P384: &[u8] = &[0x30, 0x10, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 5, 0x2b, 0x81, 4, 0, 0x22];
    /// AlgorithmIdentifier { id-ecPublicKey, secp521r1 }
    const P521: &[u8] = &[0x30, 0x10, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 5, 0x2b, 0x81, 4, 0, 0x23];
    let algorithm = match label {
        "PRIVATE KEY" => return Some(der.to_vec()),
        "RSA PRIVATE KEY" => RSA,
        // The scalar comes first, after a length of one or two bytes: 32 bytes, 48 or 66.
        "EC PRIVATE KEY" => {
            let scalar = |bytes: u8| [5, 6].into_iter().any(|at| der.get(at..at + 2) == Some(&[4, bytes]));
            match (scalar(32), scalar(66)) {
                (true, _) => P256,
                (_, true) => P521,
                _ => P384,
            }
        }
        _ => return None,
    };
    Some(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(0);
            writer.next().write_der(algorithm);
            writer.next().write_bytes(der);
        });
    }))
}
