//! Keys of tokens: from PEM files in the formats that upstream supports, and from and to JSON Web Keys.

use std::path::{Path, PathBuf};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{DecodingKey, EncodingKey};
use plinth_codec::pem::{self, Block};
use rcgen::PublicKeyData as _;
use serde_json::json;
use sha2::{Digest, Sha256};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::algorithm::JwtAlgorithm;
use crate::files;
use crate::p521;
use crate::pkcs8;

/// An unusable key file.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read.
    #[error("cannot read key file {path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// It is not PEM.
    #[error("{path} is no PEM file")]
    Pem {
        /// Path of the file.
        path: PathBuf,
    },
    /// It contains no key.
    #[error("{path} does not contain a valid RSA or ECDSA key")]
    NoKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// The kind of key is not supported.
    #[error("a key is neither RSA of 2048 to 8192 bits nor ECDSA on P-256, P-384 or P-521")]
    Unsupported,
}

/// A public key that verifies tokens. Fully parsed, so verification is cheap.
#[derive(Clone, Debug)]
pub struct VerifyingKey {
    id: String,
    algorithms: &'static [JwtAlgorithm],
    key: Public,
    /// The public members of the JSON Web Key.
    members: serde_json::Value,
}

/// A public key by its implementation.
#[derive(Clone, Debug)]
pub(super) enum Public {
    /// `jsonwebtoken`.
    Library(DecodingKey),
    /// P-521, which that crate lacks.
    P521(p521::PublicKey),
}

/// A private key by its implementation.
pub(super) enum Private {
    /// `jsonwebtoken`.
    Library(EncodingKey),
    /// P-521, which that crate lacks.
    P521(p521::PrivateKey),
}

impl VerifyingKey {
    /// Decodes a SubjectPublicKeyInfo. The ID is upstream's: its hash (kubernetes
    /// `pkg/serviceaccount/jwt.go`).
    ///
    /// # Errors
    /// [`KeyError::Unsupported`].
    pub fn from_spki(der: &[u8]) -> Result<VerifyingKey, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Unsupported)?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(der));
        let base64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (algorithms, key, members): (&[JwtAlgorithm], _, _) = match info.parsed() {
            Ok(PublicKey::RSA(rsa)) => {
                let (n, e) = (without_leading_zeros(rsa.modulus), without_leading_zeros(rsa.exponent));
                let members = json!({ "kty": "RSA", "n": base64(n), "e": base64(e) });
                (&[JwtAlgorithm::RS256], Public::Library(DecodingKey::from_rsa_raw_components(n, e)), members)
            }
            Ok(PublicKey::EC(point)) => {
                let (algorithm, curve, key): (&[JwtAlgorithm], _, _) = match point.data().len() {
                    65 => (&[JwtAlgorithm::ES256], "P-256", None),
                    97 => (&[JwtAlgorithm::ES384], "P-384", None),
                    _ => match p521::PublicKey::from_point(point.data()) {
                        Some(key) => (&[JwtAlgorithm::ES512], "P-521", Some(Public::P521(key))),
                        None => return Err(KeyError::Unsupported),
                    },
                };
                let Some([4, coordinates @ ..]) = Some(point.data()) else {
                    return Err(KeyError::Unsupported);
                };
                let (x, y) = coordinates.split_at(coordinates.len() / 2);
                let members = json!({ "kty": "EC", "crv": curve, "x": base64(x), "y": base64(y) });
                let by_library = || Public::Library(DecodingKey::from_ec_der(point.data()));
                (algorithm, key.unwrap_or_else(by_library), members)
            }
            _ => return Err(KeyError::Unsupported),
        };
        Ok(VerifyingKey { id, algorithms, key, members })
    }

    /// Decodes a JSON Web Key of another issuer; `None` if it is not for signatures or of an unknown kind.
    pub fn from_jwk(jwk: &Jwk) -> Option<VerifyingKey> {
        use jsonwebtoken::jwk::PublicKeyUse;
        if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        let by_library = || DecodingKey::from_jwk(jwk).ok().map(Public::Library);
        let (algorithms, key): (&[JwtAlgorithm], _) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (RSA, by_library()?),
            AlgorithmParameters::EllipticCurve(ec) => match ec.curve {
                EllipticCurve::P256 => (&[JwtAlgorithm::ES256], by_library()?),
                EllipticCurve::P384 => (&[JwtAlgorithm::ES384], by_library()?),
                EllipticCurve::P521 => {
                    let coordinate = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
                    let point = [vec![4], coordinate(&ec.x)?, coordinate(&ec.y)?].concat();
                    (&[JwtAlgorithm::ES512], Public::P521(p521::PublicKey::from_point(&point)?))
                }
                _ => return None,
            },
            _ => return None,
        };
        let id = jwk.common.key_id.clone().unwrap_or_default();
        Some(VerifyingKey { id, algorithms, key, members: serde_json::Value::Null })
    }

    /// The ID of the key, `kid` in tokens.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The algorithms of the key.
    pub fn algorithms(&self) -> &'static [JwtAlgorithm] {
        self.algorithms
    }

    pub(super) fn public(&self) -> &Public {
        &self.key
    }

    /// The JSON Web Key, and the algorithm's name.
    pub fn to_jwk(&self) -> (serde_json::Value, &'static str) {
        // For an RSA key upstream publishes the first algorithm.
        let name = self.algorithms.first().map_or("", |algorithm| algorithm.name());
        let mut jwk = self.members.clone();
        if let Some(members) = jwk.as_object_mut() {
            members.insert("use".into(), "sig".into());
            members.insert("kid".into(), self.id.as_str().into());
            members.insert("alg".into(), name.into());
        }
        (jwk, name)
    }
}

/// Every RSA signature algorithm of JOSE.
const RSA: &[JwtAlgorithm] = {
    use JwtAlgorithm::*;
    &[RS256, RS384, RS512, PS256, PS384, PS512]
};

/// DER integers of 2^n and more start with a zero byte, which JSON Web Keys leave out.
fn without_leading_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}

/// A private key that signs tokens.
pub struct SigningKey {
    key: Private,
    algorithm: JwtAlgorithm,
    public: VerifyingKey,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public.id).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The first private key of a PEM file: PKCS#8, PKCS#1 or SEC1.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<SigningKey, KeyError> {
        let keys = sections(path)?;
        let private = keys.iter().find_map(|block| pkcs8::from_pem(&block.label, &block.contents));
        SigningKey::from_pkcs8(&private.ok_or_else(|| KeyError::NoKey { path: path.to_owned() })?)
    }

    /// Decodes a PKCS#8 document.
    ///
    /// # Errors
    /// [`KeyError::Unsupported`].
    pub fn from_pkcs8(der: &[u8]) -> Result<SigningKey, KeyError> {
        let public = VerifyingKey::from_spki(&public_of(der)?)?;
        let [algorithm] = *public.algorithms else { return Err(KeyError::Unsupported) };
        let key = match algorithm {
            JwtAlgorithm::RS256 => Private::Library(EncodingKey::from_rsa_der(der)),
            JwtAlgorithm::ES512 => {
                Private::P521(p521::PrivateKey::from_pkcs8(der).ok_or(KeyError::Unsupported)?)
            }
            _ => Private::Library(EncodingKey::from_ec_der(der)),
        };
        Ok(SigningKey { key, algorithm, public })
    }

    /// The public key.
    pub fn public(&self) -> &VerifyingKey {
        &self.public
    }

    pub(super) fn algorithm(&self) -> JwtAlgorithm {
        self.algorithm
    }

    pub(super) fn private(&self) -> &Private {
        &self.key
    }
}

/// The public keys of a PEM file, which may contain public keys, certificates and private keys.
///
/// # Errors
/// [`KeyError`]; also for a file without a key.
pub fn read_public_keys(path: &Path) -> Result<Vec<VerifyingKey>, KeyError> {
    let mut keys = Vec::new();
    for Block { label, contents, .. } in sections(path)? {
        let spki = match label.as_str() {
            "PUBLIC KEY" => contents,
            files::CERTIFICATE_LABEL => {
                let parsed = x509_parser::prelude::X509Certificate::from_der(&contents);
                parsed.map_err(|_| KeyError::Unsupported)?.1.public_key().raw.to_vec()
            }
            label => match pkcs8::from_pem(label, &contents) {
                Some(private) => public_of(&private)?,
                None => continue,
            },
        };
        keys.push(VerifyingKey::from_spki(&spki)?);
    }
    match keys.is_empty() {
        true => Err(KeyError::NoKey { path: path.to_owned() }),
        false => Ok(keys),
    }
}

fn sections(path: &Path) -> Result<Vec<Block>, KeyError> {
    let text = std::fs::read(path).map_err(|source| KeyError::File { path: path.to_owned(), source })?;
    pem::parse(&text).map_err(|_| KeyError::Pem { path: path.to_owned() })
}

/// The SubjectPublicKeyInfo of a private key.
pub(super) fn public_of(pkcs8: &[u8]) -> Result<Vec<u8>, KeyError> {
    if let Some(key) = p521::PrivateKey::from_pkcs8(pkcs8) {
        return key.public_spki().ok_or(KeyError::Unsupported);
    }
    let der = rustls::pki_types::PrivatePkcs8KeyDer::from(pkcs8);
    let pair = rcgen::KeyPair::try_from(&der).map_err(|_| KeyError::Unsupported)?;
    Ok(pair.subject_public_key_info())
}

/// The SubjectPublicKeyInfo of a private key with the given PEM label; `None` for an unknown kind of key.
pub fn public_key_of_private(label: &str, der: &[u8]) -> Option<Vec<u8>> {
    public_of(&pkcs8::from_pem(label, der)?).ok()
}

/// The SubjectPublicKeyInfo of a private key; `None` for an unknown kind of key.
pub fn public_key_of(key: &rustls::pki_types::PrivateKeyDer<'_>) -> Option<Vec<u8>> {
    public_of(&pkcs8::pkcs8_from_key(key)?).ok()
}

/// The SubjectPublicKeyInfo of a certificate.
pub fn public_key_of_certificate(der: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::prelude::X509Certificate::from_der(der).ok()?;
    Some(parsed.public_key().raw.to_vec())
}

/// The algorithm of a SubjectPublicKeyInfo, as a dotted object identifier.
pub fn key_kind(spki: &[u8]) -> Option<String> {
    let (_, info) = SubjectPublicKeyInfo::from_der(spki).ok()?;
    Some(info.algorithm.algorithm.to_id_string())
}
