//! ECDSA on the curve P-521, which ring lacks: keys of tokens (ES512), of certificates and of TLS.
//!
//! Upstream supports keys of P-256, P-384 and P-521 alike, because Go does. The arithmetic is the `p521`
//! crate's; nonces are deterministic (RFC 6979). Everything else is ring's: [`crypto_provider`] adds the
//! curve to ring's provider.

use std::fmt;
use std::sync::{Arc, LazyLock};

use p521::ecdsa::signature::hazmat::PrehashVerifier as _;
use p521::ecdsa::signature::Signer as _;
use p521::ecdsa::{Signature, SigningKey, VerifyingKey};
use p521::pkcs8::{DecodePrivateKey as _, EncodePublicKey as _};
use rustls::crypto::{CryptoProvider, KeyProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{
    alg_id, AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer,
};
use rustls::sign::Signer;
use rustls::{SignatureAlgorithm, SignatureScheme};
use sha2::{Digest, Sha256, Sha384, Sha512};

/// Length of a coordinate and of each half of a signature, in bytes.
const FIELD: usize = 66;

/// A public key: a point on the curve.
#[derive(Clone, Debug)]
pub(crate) struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Decodes an uncompressed point (SEC 1, 2.3.3), the only form that Go accepts; `None` otherwise.
    pub(crate) fn from_point(point: &[u8]) -> Option<PublicKey> {
        let uncompressed = point.len() == 1 + 2 * FIELD && point.first() == Some(&4);
        uncompressed.then(|| VerifyingKey::from_sec1_bytes(point).ok().map(PublicKey)).flatten()
    }

    /// Verifies a signature over a message with SHA-512, `r` and `s` concatenated (RFC 7518, 3.4). Takes
    /// about a millisecond.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.0.verify_prehash(&Sha512::digest(message), &signature).is_ok())
    }

    fn to_spki(&self) -> Option<Vec<u8>> {
        self.0.to_public_key_der().ok().map(|document| document.as_bytes().to_vec())
    }
}

/// A private key.
#[derive(Clone)]
pub(crate) struct PrivateKey(SigningKey);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// Decodes a PKCS#8 document; `None` for another kind of key.
    pub(crate) fn from_pkcs8(der: &[u8]) -> Option<PrivateKey> {
        SigningKey::from_pkcs8_der(der).ok().map(PrivateKey)
    }

    /// The SubjectPublicKeyInfo of the public key.
    pub(crate) fn public_spki(&self) -> Option<Vec<u8>> {
        PublicKey(*self.0.verifying_key()).to_spki()
    }

    /// Signs with SHA-512: `r` and `s` concatenated. `None` if no nonce was usable, which does not happen in
    /// practice.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signature: Signature = self.0.try_sign(message).ok()?;
        Some(signature.to_bytes().to_vec())
    }

    /// As [`PrivateKey::sign`], in the encoding of X.509 and TLS.
    pub(crate) fn sign_der(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signature: Signature = self.0.try_sign(message).ok()?;
        Some(signature.to_der().as_bytes().to_vec())
    }
}

/// Signature algorithms of X.509 and TLS with this curve, one per hash.
#[derive(Debug)]
struct WithHash {
    hash: fn(&[u8]) -> [u8; 64],
    id: AlgorithmIdentifier,
}

/// Extends a hash to 64 bytes: the crate rejects hashes below half of the curve's size.
fn widened(hash: &[u8]) -> [u8; 64] {
    let mut wide = [0; 64];
    let start = wide.len().saturating_sub(hash.len());
    wide.iter_mut().skip(start).zip(hash).for_each(|(to, from)| *to = *from);
    wide
}

static WITH_SHA256: WithHash =
    WithHash { hash: |message| widened(&Sha256::digest(message)), id: alg_id::ECDSA_SHA256 };
static WITH_SHA384: WithHash =
    WithHash { hash: |message| widened(&Sha384::digest(message)), id: alg_id::ECDSA_SHA384 };
static WITH_SHA512: WithHash =
    WithHash { hash: |message| widened(&Sha512::digest(message)), id: alg_id::ECDSA_SHA512 };

type Algorithm = &'static dyn SignatureVerificationAlgorithm;

/// The algorithms by TLS signature scheme; before TLS 1.3 a scheme specifies only the hash.
static SCHEMES: [(SignatureScheme, Algorithm); 3] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, &WITH_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, &WITH_SHA384),
    (SignatureScheme::ECDSA_NISTP521_SHA512, &WITH_SHA512),
];

impl SignatureVerificationAlgorithm for WithHash {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let key = PublicKey::from_point(key).ok_or(InvalidSignature)?;
        let signature = Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        key.0.verify_prehash(&(self.hash)(message), &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.id
    }
}

/// Verifies an X.509 signature by a key of this curve: the key's point, and the size of the hash: 256, 384 or
/// 512.
pub(crate) fn verifies_x509(point: &[u8], hash: u16, message: &[u8], signature: &[u8]) -> bool {
    let with = match hash {
        256 => &WITH_SHA256,
        384 => &WITH_SHA384,
        512 => &WITH_SHA512,
        _ => return false,
    };
    with.verify_signature(point, message, signature).is_ok()
}

/// The crypto provider of the process: ring, and P-521.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    extend(&mut provider);
    Arc::new(provider)
}

/// Adds the curve to a provider: certificates signed with such keys, and own keys.
fn extend(provider: &mut CryptoProvider) {
    /// ring's algorithms and P-521. Leaked once: rustls needs it for the lifetime of the process.
    static ALL: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
        let ring = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let all = ring.all.iter().copied().chain(SCHEMES.map(|(_, with)| with));
        let of = |scheme| SCHEMES.iter().filter(move |(of, _)| *of == scheme).map(|(_, with)| *with);
        let known = ring.mapping.iter().map(|(scheme, list)| {
            let list: Vec<Algorithm> = list.iter().copied().chain(of(*scheme)).collect();
            (*scheme, &*list.leak())
        });
        let new = SignatureScheme::ECDSA_NISTP521_SHA512;
        let list: Vec<Algorithm> = of(new).collect();
        let mapping: Vec<_> = known.chain([(new, &*list.leak())]).collect();
        WebPkiSupportedAlgorithms { all: all.collect::<Vec<_>>().leak(), mapping: mapping.leak() }
    });
    provider.signature_verification_algorithms = *ALL;
    provider.key_provider = &Keys;
}

/// Loads keys of this curve, and ring's.
#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(
        &self,
        der: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn rustls::sign::SigningKey>, rustls::Error> {
        let own = crate::pkcs8::pkcs8_from_key(&der).and_then(|der| PrivateKey::from_pkcs8(&der));
        match own {
            Some(key) => {
                let public = key.public_spki();
                Ok(Arc::new(TlsKey { key, public }))
            }
            None => rustls::crypto::ring::default_provider().key_provider.load_private_key(der),
        }
    }
}

/// A private key for TLS.
#[derive(Clone, Debug)]
struct TlsKey {
    key: PrivateKey,
    public: Option<Vec<u8>>,
}

impl rustls::sign::SigningKey for TlsKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SignatureScheme::ECDSA_NISTP521_SHA512).then(|| Box::new(self.clone()) as _)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.public.as_deref().map(Into::into)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for TlsKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.key.sign_der(message).ok_or_else(|| rustls::Error::General("signing failed".to_owned()))
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP521_SHA512
    }
}

#[cfg(test)]
mod tests;
