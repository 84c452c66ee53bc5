//! ECDSA on the curve P-521, which ring does not have: keys of tokens (ES512), of certificates and of TLS.
//!
//! Upstream takes keys of P-256, P-384 and P-521 alike, because Go does. The arithmetic is the `p521` crate's; nonces are made of
//! key and message (RFC 6979). Everything else stays with ring: [`provider`] adds the curve to what it has.

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

/// Bytes of a coordinate and of each half of a signature.
const FIELD: usize = 66;

/// A public key; it is a point of the curve.
#[derive(Clone, Debug)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Of a point in its uncompressed form (SEC 1, 2.3.3), which is the only one that Go takes; `None` for anything else.
    pub fn from_point(point: &[u8]) -> Option<PublicKey> {
        let uncompressed = point.len() == 1 + 2 * FIELD && point.first() == Some(&4);
        uncompressed.then(|| VerifyingKey::from_sec1_bytes(point).ok().map(PublicKey)).flatten()
    }

    /// Whether the signature, `r` and `s` one after the other (RFC 7518, 3.4), is of this key and over this message with SHA-512.
    /// Takes about a millisecond.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.0.verify_prehash(&Sha512::digest(message), &signature).is_ok())
    }

    /// Its SubjectPublicKeyInfo.
    fn to_spki(&self) -> Option<Vec<u8>> {
        self.0.to_public_key_der().ok().map(|document| document.as_bytes().to_vec())
    }
}

/// A private key.
#[derive(Clone)]
pub struct PrivateKey(SigningKey);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// Of a PKCS#8 document; `None` for a key of another kind.
    pub fn from_pkcs8(der: &[u8]) -> Option<PrivateKey> {
        SigningKey::from_pkcs8_der(der).ok().map(PrivateKey)
    }

    /// The SubjectPublicKeyInfo of its public half.
    pub fn public_spki(&self) -> Option<Vec<u8>> {
        PublicKey(*self.0.verifying_key()).to_spki()
    }

    /// Signs with SHA-512: `r` and `s` one after the other. `None` never, in practice: no nonce was any good.
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signature: Signature = self.0.try_sign(message).ok()?;
        Some(signature.to_bytes().to_vec())
    }

    /// As [`PrivateKey::sign`], in the form of X.509 and TLS.
    pub fn sign_der(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signature: Signature = self.0.try_sign(message).ok()?;
        Some(signature.to_der().as_bytes().to_vec())
    }
}

/// Signatures of X.509 and TLS by keys of the curve, one for each hash.
#[derive(Debug)]
struct WithHash {
    hash: fn(&[u8]) -> [u8; 64],
    id: AlgorithmIdentifier,
}

/// A hash as a number of 64 bytes: the crate takes nothing below half of the curve's size.
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

/// Which scheme of TLS has which of them; before TLS 1.3 a scheme names the hash alone.
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

/// Whether a signature of X.509 by a key of this curve is right: the key's point, and the hash: 256, 384 or 512.
pub fn verifies_x509(point: &[u8], hash: u16, message: &[u8], signature: &[u8]) -> bool {
    let with = match hash {
        256 => &WITH_SHA256,
        384 => &WITH_SHA384,
        512 => &WITH_SHA512,
        _ => return false,
    };
    with.verify_signature(point, message, signature).is_ok()
}

/// The one crypto provider of the process: ring, and the curve.
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    extend(&mut provider);
    Arc::new(provider)
}

/// Teaches a provider the curve: certificates that are signed with such keys, and such keys of one's own.
fn extend(provider: &mut CryptoProvider) {
    /// What ring verifies and what is here. Leaked once: rustls wants it for as long as the process lives.
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

/// Keys of this curve, and ring's.
#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(
        &self,
        der: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn rustls::sign::SigningKey>, rustls::Error> {
        let own = crate::jwt::keys::pkcs8_of(&der).and_then(|der| PrivateKey::from_pkcs8(&der));
        match own {
            Some(key) => {
                let public = key.public_spki();
                Ok(Arc::new(TlsKey { key, public }))
            }
            None => rustls::crypto::ring::default_provider().key_provider.load_private_key(der),
        }
    }
}

/// A key of TLS.
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
