//! [`Record`]: one version of one key, as callers see it.

use bytes::Bytes;

use crate::revision::Revision;

/// One version of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Under which it is stored.
    pub key: Bytes,
    /// As it was put.
    pub value: Bytes,
    /// Revision at which the key was created, after its last deletion if there was one.
    pub create_revision: Revision,
    /// Revision that wrote this version.
    pub mod_revision: Revision,
    /// Number of puts since the key was created; 1 for the first.
    pub version: u64,
    /// When the key expires, in milliseconds since 1970; none for no expiry.
    pub expires_at_ms: Option<u64>,
}

/// A key for display: printable ASCII unchanged, other bytes escaped, cut at 256 bytes.
pub(crate) fn printable(key: &[u8]) -> String {
    let shown = key.get(..256).unwrap_or(key);
    let more = if shown.len() < key.len() { "…" } else { "" };
    format!("\"{}\"{more}", shown.escape_ascii())
}
