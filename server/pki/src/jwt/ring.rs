//! The cryptography of `jsonwebtoken`: ring, which TLS uses as well.
//!
//! The crate's own backends are AWS-LC, which needs cmake, and the RustCrypto crates, whose RSA has a known
//! timing weakness (RUSTSEC-2023-0071). Shared secrets (HS256 etc.) are not supported: no issuer needs them,
//! and so no token can be verified with one.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{new_error, ErrorKind, Result};
use jsonwebtoken::signature::{Error as SignatureError, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::rand::SystemRandom;
use ring::signature::{self as ring_signature, EcdsaKeyPair, RsaKeyPair, RsaPublicKeyComponents};

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
}

struct RingSigner(Algorithm, Pair);

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    let bad = |_| new_error(ErrorKind::InvalidKeyFormat);
    let ecdsa = |kind| EcdsaKeyPair::from_pkcs8(kind, key.as_bytes(), &SystemRandom::new()).map_err(bad);
    let pair = match algorithm {
        Algorithm::RS256 => Pair::Rsa(
            Box::new(RsaKeyPair::from_pkcs8(key.as_bytes()).map_err(bad)?),
            &ring_signature::RSA_PKCS1_SHA256,
        ),
        Algorithm::ES256 => Pair::Ecdsa(Box::new(ecdsa(&ring_signature::ECDSA_P256_SHA256_FIXED_SIGNING)?)),
        Algorithm::ES384 => Pair::Ecdsa(Box::new(ecdsa(&ring_signature::ECDSA_P384_SHA384_FIXED_SIGNING)?)),
        _ => return Err(new_error(ErrorKind::UnsupportedAlgorithm)),
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
        _ => return Err(new_error(ErrorKind::UnsupportedAlgorithm)),
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
            (Check::Point(_), DecodingKeyKind::RsaModulusExponent { .. }) => Err(SignatureError::new()),
        }
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.0
    }
}
