//! Continue tokens: where the next page of a list starts, and at which revision.
//!
//! A token is base64url (no padding) of JSON like upstream's, with a signature added:
//! `{"v":"meta.k8s.io/v1","rv":41,"start":"default/web\u0000","returned":500,"sig":"..."}`. The signature is
//! HMAC-SHA-256 over revision, count and start under a key that lies in the data directory, so that a client
//! can neither make up nor change a token. `start` is relative to the resource's prefix; a negative revision
//! means "the latest", which the token of an expired list carries.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use hmac::{Hmac, KeyInit, Mac};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContinueTokenError {
    /// Not a token.
    #[error("continue key is not valid")]
    Malformed,
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
        if token.len() > LONGEST {
            return Err(ContinueTokenError::Malformed);
        }
        let json = URL_SAFE_NO_PAD.decode(token).map_err(|_| ContinueTokenError::Malformed)?;
        let wire: Wire = serde_json::from_slice(&json).map_err(|_| ContinueTokenError::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(&wire.sig).map_err(|_| ContinueTokenError::Malformed)?;
        if wire.v != VERSION || signature.len() != SIGNATURE_BYTES {
            return Err(ContinueTokenError::Malformed);
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
            assert_eq!(tokens.decode(&changed), Err(ContinueTokenError::Malformed), "{to}");
        }
        for junk in ["", "x", "e30", &"A".repeat(10_000)] {
            assert_eq!(tokens.decode(junk), Err(ContinueTokenError::Malformed));
        }
    }
}
