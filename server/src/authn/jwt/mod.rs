//! JSON Web Tokens: signatures by the `jsonwebtoken` crate on ring, claims checked by who knows what they mean.
//!
//! A token is read twice: once without trust, to find out who says to have issued it, and once with the keys of that
//! issuer. Only the key decides which algorithm is right, so a token cannot choose `none` or pass a public key off as
//! a shared secret.

pub mod keys;
mod ring;

use jsonwebtoken::{Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

pub use keys::{KeyError, SigningKey, VerifyingKey};

/// The longest token that is looked at, in bytes; a head of requests is no longer anyway.
pub const LONGEST: usize = 64 << 10;
/// How far clocks may differ, in seconds (go-jose `jwt.DefaultLeeway`).
pub const LEEWAY: i64 = 60;

/// What is wrong with a token.
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

/// The claims of RFC 7519 that every token may have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// Who may accept it.
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub aud: Vec<String>,
    /// Until when, in seconds since 1970.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// When it was issued.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    /// Who issued it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub iss: String,
    /// Its own name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    /// From when on.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    /// Who it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sub: String,
}

impl Registered {
    /// Whether the token is within its time. `now` in seconds since 1970.
    ///
    /// # Errors
    /// [`JwtError::Expired`], [`JwtError::NotYet`], [`JwtError::IssuedInFuture`].
    pub fn check_time(&self, now: i64) -> Result<(), JwtError> {
        if self.nbf.is_some_and(|nbf| now.saturating_add(LEEWAY) < nbf) {
            return Err(JwtError::NotYet);
        }
        if self.exp.is_some_and(|exp| now.saturating_sub(LEEWAY) > exp) {
            return Err(JwtError::Expired);
        }
        if self.iat.is_some_and(|iat| now.saturating_add(LEEWAY) < iat) {
            return Err(JwtError::IssuedInFuture);
        }
        Ok(())
    }
}

/// `aud` is a text or a list of texts.
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

/// A NumericDate may have a fraction, which does not matter here.
fn seconds<'de, D: Deserializer<'de>>(input: D) -> Result<Option<i64>, D::Error> {
    let number: serde_json::Number = Deserialize::deserialize(input)?;
    // The cast saturates; a time beyond the range of i64 is as far away as can be.
    Ok(number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64)))
}

/// Seconds since 1970.
pub fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}

/// The claims as they stand, nothing checked: to find out whose keys to check them with.
///
/// # Errors
/// [`JwtError::Malformed`].
pub fn unverified<T: DeserializeOwned>(token: &str) -> Result<T, JwtError> {
    if token.len() > LONGEST {
        return Err(JwtError::Malformed);
    }
    jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(|_| JwtError::Malformed)
}

/// The header of a token.
///
/// # Errors
/// [`JwtError::Malformed`]; [`JwtError::Critical`] when it asks for an extension.
pub fn header(token: &str) -> Result<Header, JwtError> {
    let header = jsonwebtoken::decode_header(token).map_err(|_| JwtError::Malformed)?;
    match header.crit {
        None => Ok(header),
        Some(_) => Err(JwtError::Critical),
    }
}

/// The claims of a token that one of these keys has signed. Nothing but the signature is checked: times and audiences
/// are the caller's. One signature check per key that fits.
///
/// # Errors
/// [`JwtError`].
pub fn verify<'k, T: DeserializeOwned>(
    token: &str,
    keys: impl Iterator<Item = &'k VerifyingKey>,
) -> Result<T, JwtError> {
    ring::install();
    let header = header(token)?;
    let mut outcome = Err(JwtError::NoKey);
    for key in keys {
        if !key.algorithms().contains(&header.alg) {
            outcome = Err(JwtError::Signature);
            continue;
        }
        let mut validation = Validation::new(header.alg);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        match jsonwebtoken::decode::<T>(token, key.decoding_key(), &validation) {
            Ok(data) => return Ok(data.claims),
            Err(fault) => {
                outcome = Err(match fault.kind() {
                    jsonwebtoken::errors::ErrorKind::Json(_) => JwtError::Malformed,
                    _ => JwtError::Signature,
                });
            }
        }
    }
    outcome
}

/// Signs claims.
///
/// # Errors
/// When the claims are no JSON or the key fails; a programming fault.
pub fn sign<T: Serialize>(key: &SigningKey, claims: &T) -> Result<String, jsonwebtoken::errors::Error> {
    ring::install();
    let mut header = Header::new(key.algorithm());
    // Upstream's tokens name the key and nothing else.
    header.typ = None;
    header.kid = Some(key.public().id().to_owned());
    jsonwebtoken::encode(&header, claims, key.encoding_key())
}

#[cfg(test)]
mod tests;
