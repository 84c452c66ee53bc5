//! JSON Web Tokens: signatures by the `jsonwebtoken` crate on ring, claims validated by the callers. ES512,
//! which that crate lacks, is implemented by [`crate::p521`].
//!
//! A token is decoded twice: first unverified, to find its issuer, and then with the keys of that issuer. The
//! key determines the algorithm, so a token cannot choose `none` or use a public key as a shared secret.

mod algorithm;
pub(crate) mod keys;
pub(crate) mod method;
mod ring;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use jsonwebtoken::errors::{new_error, ErrorKind};
use jsonwebtoken::{Algorithm, Header, Validation};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

pub use algorithm::JwtAlgorithm;
pub(crate) use keys::{SigningKey, VerifyingKey};

use keys::{Private, Public};

/// Maximum length of a token, in bytes; request headers are shorter anyway.
pub const LONGEST_JWT: usize = 64 << 10;
/// Maximum clock skew, in seconds (go-jose `jwt.DefaultLeeway`).
pub const JWT_LEEWAY: i64 = 60;

/// An invalid token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum JwtError {
    #[error("not a JSON web token")]
    Malformed,
    #[error("header field \"crit\" names what is not understood here")]
    Critical,
    #[error("invalid signature, no keys found")]
    NoKey,
    #[error("invalid signature")]
    Signature,
    #[error("token has expired")]
    Expired,
    #[error("token is not valid yet")]
    NotYet,
    #[error("token is issued in the future")]
    IssuedInFuture,
}

/// The header of a token. Other members are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct JwtHeader {
    alg: String,
    /// ID of the key.
    #[serde(default)]
    pub kid: Option<String>,
    #[serde(default)]
    crit: Option<IgnoredAny>,
}

impl JwtHeader {
    /// The algorithm; `None` for an unsupported one, including `none`.
    pub fn algorithm(&self) -> Option<JwtAlgorithm> {
        JwtAlgorithm::of(&self.alg)
    }
}

/// The registered claims (RFC 7519).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegisteredClaims {
    /// Whom the token is for; one or many in JSON.
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub aud: Vec<String>,
    /// Expiration time, in seconds since 1970.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// Issue time.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    /// Who has issued the token: a URL.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub iss: String,
    /// ID of the token.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    /// Start of the validity.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    /// Whom the token is about: the user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sub: String,
}

impl RegisteredClaims {
    /// Checks the validity at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// [`JwtError::Expired`], [`JwtError::NotYet`], [`JwtError::IssuedInFuture`].
    pub fn check_time(&self, now: i64) -> Result<(), JwtError> {
        if self.nbf.is_some_and(|nbf| now.saturating_add(JWT_LEEWAY) < nbf) {
            return Err(JwtError::NotYet);
        }
        if self.exp.is_some_and(|exp| now.saturating_sub(JWT_LEEWAY) > exp) {
            return Err(JwtError::Expired);
        }
        if self.iat.is_some_and(|iat| now.saturating_add(JWT_LEEWAY) < iat) {
            return Err(JwtError::IssuedInFuture);
        }
        Ok(())
    }
}

/// `aud` is a string or a list of strings.
fn one_or_many<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(input)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}

/// A NumericDate may have a fraction, which is ignored here.
fn seconds<'de, D: Deserializer<'de>>(input: D) -> Result<Option<i64>, D::Error> {
    let number: serde_json::Number = Deserialize::deserialize(input)?;
    // The cast saturates.
    Ok(number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64)))
}

/// Seconds since 1970.
pub fn unix_now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}

/// The claims, unverified: to find the issuer whose keys verify them.
///
/// # Errors
/// [`JwtError::Malformed`].
pub fn unverified_claims<T: DeserializeOwned>(token: &str) -> Result<T, JwtError> {
    if token.len() > LONGEST_JWT {
        return Err(JwtError::Malformed);
    }
    jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(|_| JwtError::Malformed)
}

/// The header of a token.
///
/// # Errors
/// [`JwtError::Malformed`]; [`JwtError::Critical`] when it has critical extensions.
pub fn jwt_header(token: &str) -> Result<JwtHeader, JwtError> {
    let parts: Vec<&str> = token.splitn(4, '.').collect();
    let [header, _, _] = parts.as_slice() else { return Err(JwtError::Malformed) };
    let header: JwtHeader = part(header)?;
    match header.crit {
        None => Ok(header),
        Some(_) => Err(JwtError::Critical),
    }
}

/// Decodes a JSON part of a token.
fn part<T: DeserializeOwned>(text: &str) -> Result<T, JwtError> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| JwtError::Malformed)
}

/// The claims of a token that one of these keys has signed. Only the signature is verified: times and
/// audiences are up to the caller. One signature check per matching key.
///
/// # Errors
/// [`JwtError`].
pub fn verify_jwt<'k, T: DeserializeOwned>(
    token: &str,
    keys: impl Iterator<Item = &'k VerifyingKey>,
) -> Result<T, JwtError> {
    ring::install();
    let algorithm = jwt_header(token)?.algorithm();
    let mut outcome = Err(JwtError::NoKey);
    for key in keys {
        outcome = match algorithm.filter(|algorithm| key.algorithms().contains(algorithm)) {
            None => Err(JwtError::Signature),
            Some(algorithm) => verify_with(token, key.public(), algorithm.of_library()),
        };
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Verifies with a key, by an algorithm of the library; none for ES512, which that lacks.
fn verify_with<T: DeserializeOwned>(
    token: &str,
    key: &Public,
    algorithm: Option<Algorithm>,
) -> Result<T, JwtError> {
    match (key, algorithm) {
        (Public::Library(key), Some(algorithm)) => {
            let mut validation = Validation::new(algorithm);
            validation.required_spec_claims.clear();
            validation.validate_exp = false;
            validation.validate_aud = false;
            jsonwebtoken::decode(token, key, &validation).map(|data| data.claims).map_err(|error| match error
                .kind()
            {
                ErrorKind::Json(_) => JwtError::Malformed,
                _ => JwtError::Signature,
            })
        }
        (Public::P521(key), None) => {
            let (message, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
            let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Signature)?;
            if !key.verifies(message.as_bytes(), &signature) {
                return Err(JwtError::Signature);
            }
            part(message.split_once('.').ok_or(JwtError::Malformed)?.1)
        }
        _ => Err(JwtError::Signature),
    }
}

/// Signs claims.
///
/// # Errors
/// When the claims cannot be encoded or the key fails; a programming error.
pub fn sign_jwt<T: Serialize>(key: &SigningKey, claims: &T) -> Result<String, jsonwebtoken::errors::Error> {
    ring::install();
    let mut header = Header::new(key.algorithm().of_library().unwrap_or(Algorithm::ES256));
    // Upstream's tokens have `alg` and `kid` only.
    header.typ = None;
    header.kid = Some(key.public().id().to_owned());
    sign_with(key.private(), header, key.algorithm().name(), claims)
}

/// Signs claims with a key. The name of the algorithm is that of the header but for ES512, which the library
/// lacks.
fn sign_with<T: Serialize>(
    key: &Private,
    header: Header,
    algorithm: &str,
    claims: &T,
) -> Result<String, jsonwebtoken::errors::Error> {
    match key {
        Private::Library(key) => jsonwebtoken::encode(&header, claims, key),
        Private::P521(private) => {
            let mut header = serde_json::to_value(&header)?;
            if let Some(header) = header.as_object_mut() {
                header.insert("alg".to_owned(), algorithm.into());
            }
            let encode = |json: Vec<u8>| URL_SAFE_NO_PAD.encode(json);
            let message =
                format!("{}.{}", encode(serde_json::to_vec(&header)?), encode(serde_json::to_vec(claims)?));
            let signature = private.sign(message.as_bytes());
            let signature = signature.ok_or_else(|| new_error(ErrorKind::InvalidSignature))?;
            Ok(format!("{message}.{}", encode(signature)))
        }
    }
}

#[cfg(test)]
mod tests;
