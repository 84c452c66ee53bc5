//! Tokens of one signing method, which a configuration names together with its keys, as etcd's `--auth-token`
//! does. Beside the methods of [`JwtAlgorithm`](super::JwtAlgorithm) these are EdDSA and shared secrets.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header};
use plinth_codec::pem::{self, Block};
use serde::de::DeserializeOwned;
use serde::Serialize;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::SubjectPublicKeyInfo;

use super::keys::{public_of, Private, Public, VerifyingKey};
use super::{jwt_header, ring, sign_with, verify_with, JwtError, LONGEST_JWT};
use crate::files::CERTIFICATE_LABEL;
use crate::{p521, pkcs8};

/// The kind of key that a signing method takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names are those of the methods
pub enum MethodKind {
    Rsa,
    Ecdsa,
    Ed25519,
    Hmac,
}

/// An unusable signing method or key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// No such method.
    #[error("unknown signing method")]
    Unknown,
    /// There is no key, or for a shared secret no private one.
    #[error("missing key")]
    Missing,
    /// A key file is not PEM.
    #[error("key is not PEM")]
    Pem(MethodKind),
    /// The private key is of another kind.
    #[error("private key cannot be used with the signing method")]
    Private(MethodKind),
    /// The public key is of another kind.
    #[error("public key cannot be used with the signing method")]
    Public(MethodKind),
    /// The public key is not that of the private key.
    #[error("public and private keys do not match")]
    Mismatch,
}

/// A signing method with the keys that verify tokens, and sign them if the private one is there.
pub struct SigningMethod {
    name: &'static str,
    verifying: Public,
    signing: Option<Private>,
}

impl std::fmt::Debug for SigningMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningMethod").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Names, kinds of keys, and bytes of a point on the curve that belongs to the method.
const METHODS: [(&str, MethodKind, usize); 13] = [
    ("RS256", MethodKind::Rsa, 0),
    ("RS384", MethodKind::Rsa, 0),
    ("RS512", MethodKind::Rsa, 0),
    ("PS256", MethodKind::Rsa, 0),
    ("PS384", MethodKind::Rsa, 0),
    ("PS512", MethodKind::Rsa, 0),
    ("ES256", MethodKind::Ecdsa, 65),
    ("ES384", MethodKind::Ecdsa, 97),
    ("ES512", MethodKind::Ecdsa, 133),
    ("EdDSA", MethodKind::Ed25519, 32),
    ("HS256", MethodKind::Hmac, 0),
    ("HS384", MethodKind::Hmac, 0),
    ("HS512", MethodKind::Hmac, 0),
];

impl SigningMethod {
    /// The method of this name with keys in PEM; of a shared secret, which is the private key, as it is. With
    /// a public key alone it verifies tokens and signs none.
    ///
    /// # Errors
    /// [`MethodError`].
    pub fn new(
        name: &str,
        public: Option<&[u8]>,
        private: Option<&[u8]>,
    ) -> Result<SigningMethod, MethodError> {
        let method = METHODS.iter().find(|(own, ..)| *own == name).ok_or(MethodError::Unknown)?;
        let (name, kind, point) = *method;
        if kind == MethodKind::Hmac {
            let secret = private.filter(|secret| !secret.is_empty()).ok_or(MethodError::Missing)?;
            let signing = Some(Private::Library(EncodingKey::from_secret(secret)));
            let verifying = Public::Library(DecodingKey::from_secret(secret));
            return Ok(SigningMethod { name, verifying, signing });
        }
        let private = private.map(|text| private_key(text, kind)).transpose()?;
        let public = public.map(|text| public_key(text, kind)).transpose()?;
        let of_private = private.as_deref().map(public_of).transpose();
        let of_private = of_private.map_err(|_| MethodError::Private(kind))?;
        let spki = match (of_private, public) {
            (Some(own), Some(given)) if own != given => return Err(MethodError::Mismatch),
            (Some(own), _) => own,
            (None, Some(given)) => given,
            (None, None) => return Err(MethodError::Missing),
        };
        let unusable = match private {
            Some(_) => MethodError::Private(kind),
            None => MethodError::Public(kind),
        };
        let Some(verifying) = verifying_key(&spki, kind, point) else { return Err(unusable) };
        let signing = match private {
            None => None,
            Some(der) => Some(signing_key(&der, kind, point).ok_or(MethodError::Private(kind))?),
        };
        let method = SigningMethod { name, verifying, signing };
        // ring takes no RSA keys below 2048 bits.
        match method.signing.is_none() || method.is_usable() {
            true => Ok(method),
            false => Err(MethodError::Private(kind)),
        }
    }

    /// Whether it verifies what it signs.
    fn is_usable(&self) -> bool {
        let token = self.sign(&serde_json::json!({}));
        token.is_ok_and(|token| self.verify::<serde_json::Value>(&token).is_ok())
    }

    /// Whether it has a key that signs.
    pub fn can_sign(&self) -> bool {
        self.signing.is_some()
    }

    /// Signs claims.
    ///
    /// # Errors
    /// [`JwtError::NoKey`] without a private key; [`JwtError::Signature`] when the claims cannot be encoded
    /// or the key fails.
    pub fn sign<T: Serialize>(&self, claims: &T) -> Result<String, JwtError> {
        ring::install();
        let key = self.signing.as_ref().ok_or(JwtError::NoKey)?;
        let header = Header::new(self.algorithm().unwrap_or(Algorithm::ES256));
        sign_with(key, header, self.name, claims).map_err(|_| JwtError::Signature)
    }

    /// The claims of a token that was signed by this method. Only the signature is verified.
    ///
    /// # Errors
    /// [`JwtError`].
    pub fn verify<T: DeserializeOwned>(&self, token: &str) -> Result<T, JwtError> {
        ring::install();
        if token.len() > LONGEST_JWT {
            return Err(JwtError::Malformed);
        }
        match jwt_header(token)?.alg == self.name {
            true => verify_with(token, &self.verifying, self.algorithm()),
            false => Err(JwtError::Signature),
        }
    }

    /// The method in `jsonwebtoken`, which lacks ES512.
    fn algorithm(&self) -> Option<Algorithm> {
        self.name.parse().ok()
    }
}

/// The PKCS#8 document of a private key: the first block, as Go has it.
fn private_key(text: &[u8], kind: MethodKind) -> Result<Vec<u8>, MethodError> {
    let Block { label, contents, .. } = first_block(text, kind)?;
    let is_of_kind = match label.as_str() {
        "RSA PRIVATE KEY" => kind == MethodKind::Rsa,
        "EC PRIVATE KEY" => kind == MethodKind::Ecdsa,
        _ => true,
    };
    let key = pkcs8::from_pem(&label, &contents).filter(|_| is_of_kind);
    key.ok_or(MethodError::Private(kind))
}

/// The SubjectPublicKeyInfo of a public key or a certificate: the first block, as Go has it.
fn public_key(text: &[u8], kind: MethodKind) -> Result<Vec<u8>, MethodError> {
    let Block { label, contents, .. } = first_block(text, kind)?;
    match label.as_str() {
        "PUBLIC KEY" => Ok(contents),
        "RSA PUBLIC KEY" => Ok(pkcs8::spki_of_rsa(&contents)),
        CERTIFICATE_LABEL => {
            let parsed = X509Certificate::from_der(&contents).map_err(|_| MethodError::Public(kind))?;
            Ok(parsed.1.public_key().raw.to_vec())
        }
        _ => Err(MethodError::Public(kind)),
    }
}

fn first_block(text: &[u8], kind: MethodKind) -> Result<Block, MethodError> {
    let blocks = pem::parse(text).map_err(|_| MethodError::Pem(kind))?;
    // Parameters of a curve come before the key where openssl has written both.
    let mut blocks = blocks.into_iter().filter(|block| block.label != "EC PARAMETERS");
    blocks.next().ok_or(MethodError::Pem(kind))
}

/// The key of a SubjectPublicKeyInfo, if it is of this kind and curve.
fn verifying_key(spki: &[u8], kind: MethodKind, point: usize) -> Option<Public> {
    /// id-Ed25519 (RFC 8410, 3).
    const ED25519: &str = "1.3.101.112";
    let (_, info) = SubjectPublicKeyInfo::from_der(spki).ok()?;
    let key = &info.subject_public_key.data;
    match kind {
        MethodKind::Ed25519 => {
            let is_ed25519 = info.algorithm.algorithm.to_id_string() == ED25519 && key.len() == point;
            is_ed25519.then(|| Public::Library(DecodingKey::from_ed_der(key)))
        }
        MethodKind::Rsa | MethodKind::Ecdsa => {
            let is_rsa =
                info.parsed().is_ok_and(|key| matches!(key, x509_parser::public_key::PublicKey::RSA(_)));
            let is_of_kind = is_rsa == (kind == MethodKind::Rsa) && (is_rsa || key.len() == point);
            let verifying = VerifyingKey::from_spki(spki).ok().filter(|_| is_of_kind)?;
            Some(verifying.public().clone())
        }
        MethodKind::Hmac => None,
    }
}

fn signing_key(pkcs8: &[u8], kind: MethodKind, point: usize) -> Option<Private> {
    const P521_POINT: usize = 133;
    Some(match (kind, point) {
        (MethodKind::Ecdsa, P521_POINT) => Private::P521(p521::PrivateKey::from_pkcs8(pkcs8)?),
        (MethodKind::Ecdsa, _) => Private::Library(EncodingKey::from_ec_der(pkcs8)),
        (MethodKind::Rsa, _) => Private::Library(EncodingKey::from_rsa_der(pkcs8)),
        (MethodKind::Ed25519, _) => Private::Library(EncodingKey::from_ed_der(pkcs8)),
        (MethodKind::Hmac, _) => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::super::tests::forms;
    use super::*;

    fn ed25519() -> (String, String) {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        (pair.serialize_pem(), pair.public_key_pem())
    }

    #[test]
    fn every_method_signs_what_it_verifies_and_nothing_else() {
        let (ed_private, ed_public) = ed25519();
        let keys = [
            ("RSA", forms::RSA_PKCS1, forms::RSA_PUBLIC),
            ("ES256", forms::P256_SEC1, forms::P256_PUBLIC),
            ("ES384", forms::P384_SEC1, ""),
            ("ES512", forms::P521_SEC1, forms::P521_PUBLIC),
            ("EdDSA", ed_private.as_str(), ed_public.as_str()),
            ("HMAC", "a secret of some length, in bytes", ""),
        ];
        let of = |name: &str| {
            let group = match &name[..2] {
                "RS" | "PS" => "RSA",
                "HS" => "HMAC",
                _ => name,
            };
            *keys.iter().find(|(own, ..)| *own == group).unwrap()
        };
        let claims = json!({ "username": "u", "revision": 7 });
        for (name, ..) in METHODS {
            let (_, private, public) = of(name);
            let given = Some(public.as_bytes()).filter(|public| !public.is_empty());
            let method = SigningMethod::new(name, given, Some(private.as_bytes())).unwrap();
            let token = method.sign(&claims).unwrap();
            assert_eq!(method.verify::<Value>(&token).unwrap(), claims, "{name}");
            if let Some(public) = given {
                let verifier = SigningMethod::new(name, Some(public), None).unwrap();
                assert_eq!(verifier.verify::<Value>(&token).unwrap(), claims, "{name}");
                assert!(!verifier.can_sign());
                assert_eq!(verifier.sign(&claims), Err(JwtError::NoKey));
            }
            for (other, ..) in METHODS.iter().filter(|(other, ..)| *other != name) {
                let (_, key, _) = of(other);
                let other = SigningMethod::new(other, None, Some(key.as_bytes())).unwrap();
                assert!(other.verify::<Value>(&token).is_err(), "{name} by {other:?}");
            }
            let mut forged = token.clone();
            forged.replace_range(forged.rfind('.').unwrap() + 1.., "AAAA");
            assert!(method.verify::<Value>(&forged).is_err(), "{name}");
        }
    }

    #[test]
    fn keys_of_other_methods_are_refused() {
        let (ed_private, ed_public) = ed25519();
        let (rsa, ec) = (MethodKind::Rsa, MethodKind::Ecdsa);
        let none = "";
        // method, public key, private key, error
        let rows = [
            ("none", none, forms::RSA_PKCS1, MethodError::Unknown),
            ("RS256", none, none, MethodError::Missing),
            ("HS256", "public", none, MethodError::Missing),
            ("RS256", none, "nothing", MethodError::Pem(rsa)),
            ("RS256", none, forms::P256_SEC1, MethodError::Private(rsa)),
            ("RS256", none, forms::P256_PKCS8, MethodError::Private(rsa)),
            ("RS256", forms::P256_PUBLIC, none, MethodError::Public(rsa)),
            ("RS256", forms::RSA_PKCS1, none, MethodError::Public(rsa)),
            ("ES256", none, forms::RSA_PKCS1, MethodError::Private(ec)),
            ("ES256", none, forms::P384_SEC1, MethodError::Private(ec)),
            ("ES256", forms::P521_PUBLIC, none, MethodError::Public(ec)),
            ("ES256", forms::RSA_PUBLIC, none, MethodError::Public(ec)),
            ("ES256", forms::RSA_PUBLIC, forms::P256_SEC1, MethodError::Mismatch),
            ("EdDSA", none, forms::P256_PKCS8, MethodError::Private(MethodKind::Ed25519)),
            ("EdDSA", forms::P256_PUBLIC, none, MethodError::Public(MethodKind::Ed25519)),
            ("EdDSA", forms::P256_PUBLIC, &ed_private, MethodError::Mismatch),
            ("ES256", &ed_public, none, MethodError::Public(ec)),
        ];
        for (name, public, private, error) in rows {
            let bytes = |text: &str| (!text.is_empty()).then(|| text.as_bytes().to_vec());
            let (public, private) = (bytes(public), bytes(private));
            let method = SigningMethod::new(name, public.as_deref(), private.as_deref());
            assert_eq!(method.unwrap_err(), error, "{name}");
        }
    }

    #[test]
    fn a_public_key_is_no_secret() {
        let method = SigningMethod::new("RS256", Some(forms::RSA_PUBLIC.as_bytes()), None).unwrap();
        let forger = SigningMethod::new("HS256", None, Some(forms::RSA_PUBLIC.as_bytes())).unwrap();
        let forged = forger.sign(&json!({ "username": "root" })).unwrap();
        assert_eq!(method.verify::<Value>(&forged), Err(JwtError::Signature));
    }
}
