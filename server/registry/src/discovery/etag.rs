//! Entity tags of documents that clients cache.

use plinth_codec::hex;
use sha2::{Digest, Sha512};

/// The `ETag` of a document, quotes included: the SHA-512 of its JSON form in hexadecimal, which is also
/// the tag of its other encodings (`Vary: Accept` keeps them apart).
pub fn etag_of(json: &[u8]) -> String {
    format!("\"{}\"", hex::upper(&Sha512::digest(json)))
}

/// Whether an `If-None-Match` header lets the answer be 304 (RFC 9110, 13.1.2): `*`, or a list
/// with the tag in it, weak or not.
///
/// ```
/// use plinth_registry::etag_matches;
/// assert!(etag_matches(r#"W/"a", "b""#, r#""b""#));
/// assert!(!etag_matches(r#""ab""#, r#""b""#));
/// ```
pub fn etag_matches(if_none_match: &str, etag: &str) -> bool {
    if if_none_match.trim() == "*" {
        return true;
    }
    // The tags made here are hexadecimal, so a comma never is part of one.
    if_none_match.split(',').any(|tag| {
        let tag = tag.trim();
        tag.strip_prefix("W/").unwrap_or(tag) == etag
    })
}
