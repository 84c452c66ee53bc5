//! Continue tokens: where the next page of a list starts, and at which revision.
//!
//! A token is base64url (no padding) of JSON like upstream's, with a signature added:
//! `{"v":"meta.k8s.io/v1","rv":41,"start":"default/web\u0000","returned":500,"sig":"..."}`. The signature is
//! HMAC-SHA-256 over revision, count and start under a key that lies in the data directory, so that a client
//! can neither make up nor change a token. `start` is relative to the resource's prefix; a negative revision
//! means "the latest", which the token of an expired list carries.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, NO_PAD, URL_SAFE_NO_PAD};
use base64::Engine as _;
use hmac::{Hmac, KeyInit, Mac};
use plinth_codec::{json, Value};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Encodes and verifies continue tokens. Immutable.
pub struct ContinueTokens {
    mac: Hmac<Sha256>,
}

/// The position in a list that a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinuePosition {
    /// The revision of all pages; `None` for the latest.
    pub revision: Option<u64>,
    /// First key of the next page, without the resource's prefix.
    pub start: String,
    /// Number of items on the pages before.
    pub returned: u64,
}

/// A token that this server's key did not sign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContinueTokenError {
    /// Not a token; with upstream's reason after a colon, if it has one.
    #[error("continue key is not valid{0}")]
    Malformed(Box<str>),
    /// A well-formed token with another signature: signed with a key that was lost, or forged. The two cannot
    /// be distinguished; in both cases the client is asked to list again.
    #[error("continue token is signed with another key")]
    OtherKey,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
    returned: u64,
    sig: String,
}

const VERSION: &str = "meta.k8s.io/v1";
/// Length of an HMAC-SHA-256.
const SIGNATURE_BYTES: usize = 32;
/// Maximum length: tokens hold one key of at most a few hundred bytes.
const LONGEST: usize = 4096;

impl ContinueTokens {
    /// Tokens signed with that secret.
    pub fn new(secret: &[u8; 32]) -> ContinueTokens {
        // HMAC pads a key that is shorter than a block with zeros (RFC 2104).
        let mut block = [0u8; 64];
        block[..secret.len()].copy_from_slice(secret);
        ContinueTokens { mac: Hmac::new(&block.into()) }
    }

    /// The token for a position.
    pub fn encode(&self, position: &ContinuePosition) -> String {
        let rv = position.revision.and_then(|r| i64::try_from(r).ok()).unwrap_or(-1);
        let sig =
            URL_SAFE_NO_PAD.encode(self.sign(rv, position.returned, &position.start).finalize().into_bytes());
        let (start, returned) = (position.start.clone(), position.returned);
        let wire = Wire { v: VERSION.into(), rv, start, returned, sig };
        let json = serde_json::to_vec(&wire).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Verifies and decodes a token.
    ///
    /// # Errors
    /// [`ContinueTokenError`] for everything that [`ContinueTokens::encode`] did not produce.
    pub fn decode(&self, token: &str) -> Result<ContinuePosition, ContinueTokenError> {
        let malformed = || ContinueTokenError::Malformed(reason(token));
        if token.len() > LONGEST {
            return Err(ContinueTokenError::Malformed(Box::default()));
        }
        let json = URL_SAFE_NO_PAD.decode(token).map_err(|_| malformed())?;
        let wire: Wire = serde_json::from_slice(&json).map_err(|_| malformed())?;
        let signature = URL_SAFE_NO_PAD.decode(&wire.sig).map_err(|_| malformed())?;
        if wire.v != VERSION || signature.len() != SIGNATURE_BYTES {
            return Err(malformed());
        }
        self.sign(wire.rv, wire.returned, &wire.start)
            .verify_slice(&signature)
            .map_err(|_| ContinueTokenError::OtherKey)?;
        Ok(ContinuePosition {
            revision: u64::try_from(wire.rv).ok(),
            start: wire.start,
            returned: wire.returned,
        })
    }

    fn sign(&self, rv: i64, returned: u64, start: &str) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&rv.to_be_bytes());
        mac.update(&returned.to_be_bytes());
        mac.update(start.as_bytes());
        mac
    }
}

/// Why upstream refuses a token, after a colon (k8s.io/apiserver `pkg/storage/continue.go`); empty where it
/// does not.
fn reason(token: &str) -> Box<str> {
    let words = match decode_base64(token) {
        Err(place) => Some(format!("illegal base64 data at input byte {place}")),
        Ok(text) => match json::parse(&text) {
            Err(error) => Some(error.to_string()),
            Ok(value) => refusal(&value),
        },
    };
    words.map_or_else(Box::default, |words| format!(": {words}").into())
}

/// As Go's `base64.RawURLEncoding`: the bytes, or the place of the error.
fn decode_base64(token: &str) -> Result<Vec<u8>, usize> {
    const LENIENT: GeneralPurposeConfig = NO_PAD.with_decode_allow_trailing_bits(true);
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if let Some(place) = token.bytes().position(|byte| !is_known(&byte)) {
        return Err(place);
    }
    let decoded = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT).decode(token);
    decoded.map_err(|_| token.len().saturating_sub(1))
}

/// What upstream finds in the JSON of a token.
fn refusal(token: &Value) -> Option<String> {
    let kind = |value: &Value| match value {
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) | Value::Encoded(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Null => "object",
    };
    if !matches!(token, Value::Object(_) | Value::Null) {
        return Some(format!(
            "json: cannot unmarshal {} into Go value of type storage.continueToken",
            kind(token)
        ));
    }
    let member = |name: &str| token.get(name).filter(|value| !matches!(value, Value::Null));
    for (name, go_type) in [("v", "string"), ("rv", "int64"), ("start", "string")] {
        let is_right = |value: &Value| match go_type {
            "int64" => matches!(value, Value::Int(_)),
            _ => matches!(value, Value::String(_)),
        };
        if let Some(value) = member(name).filter(|value| !is_right(value)) {
            let kind = match value {
                Value::Float(number) => format!("number {number}"),
                value => kind(value).to_owned(),
            };
            return Some(format!(
                "json: cannot unmarshal {kind} into Go struct field continueToken.{name} of type {go_type}"
            ));
        }
    }
    let version = member("v").and_then(Value::as_str).unwrap_or_default();
    if version != VERSION {
        return Some(format!("server does not recognize this encoded version {version}"));
    }
    if !member("rv").is_some_and(|revision| *revision != Value::Int(0)) {
        return Some(format!("incorrect encoded start resourceVersion (version {VERSION})"));
    }
    let is_empty = member("start").and_then(Value::as_str).unwrap_or_default().is_empty();
    is_empty.then(|| format!("encoded start key empty (version {VERSION})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_tampering_shows() {
        let tokens = ContinueTokens::new(&[7; 32]);
        let position = ContinuePosition { revision: Some(41), start: "default/web\0".into(), returned: 500 };
        let token = tokens.encode(&position);
        assert_eq!(tokens.decode(&token), Ok(position));
        let latest = ContinuePosition { revision: None, start: "a".into(), returned: 0 };
        assert_eq!(tokens.decode(&tokens.encode(&latest)), Ok(latest));
        assert_eq!(ContinueTokens::new(&[8; 32]).decode(&token), Err(ContinueTokenError::OtherKey));
        let json = String::from_utf8(URL_SAFE_NO_PAD.decode(&token).unwrap()).unwrap();
        for (from, to) in [("41", "40"), ("500", "501"), ("web", "wed")] {
            assert!(json.contains(from));
            let forged = URL_SAFE_NO_PAD.encode(json.replacen(from, to, 1));
            assert_eq!(tokens.decode(&forged), Err(ContinueTokenError::OtherKey), "{to}");
        }
        for (from, to) in [("meta", "neta"), ("\"sig\":\"", "\"sig\":\"AAAA"), ("start", "stare")] {
            assert!(json.contains(from));
            let changed = URL_SAFE_NO_PAD.encode(json.replacen(from, to, 1));
            assert!(matches!(tokens.decode(&changed), Err(ContinueTokenError::Malformed(_))), "{to}");
        }
        for junk in ["", "x", "e30", &"A".repeat(10_000)] {
            assert!(matches!(tokens.decode(junk), Err(ContinueTokenError::Malformed(_))), "{junk}");
        }
    }

    /// The reasons are those of kube-apiserver v1.36.2.
    #[test]
    fn a_malformed_token_has_upstreams_reason() {
        let tokens = ContinueTokens::new(&[7; 32]);
        let type_error = "json: cannot unmarshal";
        let rows = [
            ("abc", "invalid character 'i' looking for beginning of value".to_owned()),
            ("a+b", "illegal base64 data at input byte 1".to_owned()),
            ("a", "illegal base64 data at input byte 0".to_owned()),
            ("e30", "server does not recognize this encoded version ".to_owned()),
            ("bnVsbA", "server does not recognize this encoded version ".to_owned()),
            ("eyJ2", "unexpected end of JSON input".to_owned()),
            ("e30gIHg", "invalid character 'x' after top-level value".to_owned()),
            ("W10", format!("{type_error} array into Go value of type storage.continueToken")),
            ("MQ", format!("{type_error} number into Go value of type storage.continueToken")),
            (
                "eyJ2IjoxfQ",
                format!("{type_error} number into Go struct field continueToken.v of type string"),
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Ii0xIn0",
                format!("{type_error} string into Go struct field continueToken.rv of type int64"),
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned(),
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ",
                "encoded start key empty (version meta.k8s.io/v1)".to_owned(),
            ),
        ];
        for (token, expected) in rows {
            let error = tokens.decode(token).unwrap_err().to_string();
            assert_eq!(error, format!("continue key is not valid: {expected}"), "{token}");
        }
        // Upstream would take it.
        let unsigned = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a"}"#);
        assert_eq!(tokens.decode(&unsigned).unwrap_err().to_string(), "continue key is not valid");
    }
}
