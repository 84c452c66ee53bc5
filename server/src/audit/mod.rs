//! Audit: who did what, when, and what came of it.
//!
//! Every request has an audit ID, the client's own when it sends one.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries a request's audit ID, both ways.
pub const HEADER: HeaderName = HeaderName::from_static("audit-id");

/// The ID of a request: what the client sent, else a new one.
pub fn id(headers: &HeaderMap) -> HeaderValue {
    /// Upstream cuts IDs in its logs here; one that is longer is not taken over.
    const LONGEST: usize = 64;
    match headers.get(HEADER) {
        Some(given) if (1..=LONGEST).contains(&given.len()) && given.to_str().is_ok() => given.clone(),
        _ => {
            let mut text = [0u8; uuid::fmt::Hyphenated::LENGTH];
            let text = uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text);
            HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
        }
    }
}
