//! The cryptography of `jsonwebtoken`: ring, which TLS uses as well.
//!
//! The crate's own backends are AWS-LC, which needs cmake, and the RustCrypto crates, whose RSA has a known
//! timing weakness (RUSTSEC-2023-0071). A shared secret (HS256 etc.) verifies nothing but the tokens of a
//! [`super::method::SigningMethod`] that names it: the algorithms of other keys are asymmetric ones.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{new_error, ErrorKind, Result};
use jsonwebtoken::signature::{Error as SignatureError, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    self as ring_signature, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair, RsaPublicKeyComponents,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs ring as the provider of the process, unless the embedding program has installed another one.
pub(super) fn install() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let _ = PROVIDER.install_default();
    });
}

fn error<E>(_: E) -> SignatureError {
    // ring gives no details either.
    SignatureError::new()
}

/// A key pair of ring.
enum Pair {
    Rsa(Box<RsaKeyPair>, &'static dyn ring_signature::RsaEncoding),
    Ecdsa(Box<EcdsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
    Secret(hmac::Key),
}

/// The hash of a shared secret's algorithm; `None` for another algorithm.
fn of_secret(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    Some(match algorithm {
        Algorithm::HS256 => hmac::HMAC_SHA256,
        Algorithm::HS384 => hmac::HMAC_SHA384,
        Algorithm::HS512 => hmac::HMAC_SHA512,
        _ => return None,
    })
}

struct RingSigner(Algorithm, Pair);

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    let bad = |_| new_error(ErrorKind::InvalidKeyFormat);
    let ecdsa = |kind| EcdsaKeyPair::from_pkcs8(kind, key.as_bytes(), &SystemRandom::new()).map_err(bad);
    let rsa = |encoding: &'static dyn ring_signature::RsaEncoding| -> Result<Pair> {
        Ok(Pair::Rsa(Box::new(RsaKeyPair::from_pkcs8(key.as_bytes()).map_err(bad)?), encoding))
    };
    let pair = match algorithm {
        Algorithm::RS256 => rsa(&ring_signature::RSA_PKCS1_SHA256)?,
        Algorithm::RS384 => rsa(&ring_signature::RSA_PKCS1_SHA384)?,
        Algorithm::RS512 => rsa(&ring_signature::RSA_PKCS1_SHA512)?,
        Algorithm::PS256 => rsa(&ring_signature::RSA_PSS_SHA256)?,
        Algorithm::PS384 => rsa(&ring_signature::RSA_PSS_SHA384)?,
        Algorithm::PS512 => rsa(&ring_signature::RSA_PSS_SHA512)?,
        Algorithm::ES256 => Pair::Ecdsa(Box::new(ecdsa(&ring_signature::ECDSA_P256_SHA256_FIXED_SIGNING)?)),
        Algorithm::ES384 => Pair::Ecdsa(Box::new(ecdsa(&ring_signature::ECDSA_P384_SHA384_FIXED_SIGNING)?)),
        Algorithm::EdDSA => {
            // The document has the public key or not: other programs write the first version of it.
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.as_bytes()).map_err(bad)?;
            Pair::Ed25519(Box::new(pair))
        }
        other => match of_secret(*other) {
            Some(hash) => Pair::Secret(hmac::Key::new(hash, key.as_bytes())),
            None => return Err(new_error(ErrorKind::UnsupportedAlgorithm)),
        },
    };
    Ok(Box::new(RingSigner(*algorithm, pair)))
}

impl Signer<Vec<u8>> for RingSigner {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, SignatureError> {
        let random = SystemRandom::new();
        match &self.1 {
            Pair::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature).map_err(error)?;
                Ok(signature)
            }
            Pair::Ecdsa(pair) => Ok(pair.sign(&random, message).map_err(error)?.as_ref().to_vec()),
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Pair::Secret(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
        }
    }
}

impl JwtSigner for RingSigner {
    fn algorithm(&self) -> Algorithm {
        self.0
    }
}

/// A verification algorithm of ring.
enum Check {
    Rsa(&'static ring_signature::RsaParameters),
    Point(&'static dyn ring_signature::VerificationAlgorithm),
    Secret(hmac::Algorithm),
}

struct RingVerifier(Algorithm, Check, DecodingKey);

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    use ring_signature as s;
    let check = match algorithm {
        Algorithm::RS256 => Check::Rsa(&s::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Check::Rsa(&s::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Check::Rsa(&s::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Check::Rsa(&s::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Check::Rsa(&s::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Check::Rsa(&s::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Check::Point(&s::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Check::Point(&s::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Check::Point(&s::ED25519),
        other => match of_secret(*other) {
            Some(hash) => Check::Secret(hash),
            None => return Err(new_error(ErrorKind::UnsupportedAlgorithm)),
        },
    };
    if key.family() != family(&check, *algorithm) {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    Ok(Box::new(RingVerifier(*algorithm, check, key.clone())))
}

fn family(check: &Check, algorithm: Algorithm) -> jsonwebtoken::AlgorithmFamily {
    use jsonwebtoken::AlgorithmFamily;
    match (check, algorithm) {
        (Check::Rsa(_), _) => AlgorithmFamily::Rsa,
        (Check::Secret(_), _) => AlgorithmFamily::Hmac,
        (_, Algorithm::EdDSA) => AlgorithmFamily::Ed,
        _ => AlgorithmFamily::Ec,
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), SignatureError> {
        match (&self.1, self.2.kind()) {
            (Check::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).map_err(error)
            }
            (Check::Rsa(parameters), DecodingKeyKind::SecretOrDer(der)) => {
                ring_signature::UnparsedPublicKey::new(*parameters, der)
                    .verify(message, signature)
                    .map_err(error)
            }
            (Check::Point(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                ring_signature::UnparsedPublicKey::new(*algorithm, point)
                    .verify(message, signature)
                    .map_err(error)
            }
            (Check::Secret(hash), DecodingKeyKind::SecretOrDer(secret)) => {
                hmac::verify(&hmac::Key::new(*hash, secret), message, signature).map_err(error)
            }
            (Check::Point(_) | Check::Secret(_), DecodingKeyKind::RsaModulusExponent { .. }) => {
                Err(SignatureError::new())
            }
        }
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.0
    }
}
