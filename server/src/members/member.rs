//! A replica as it records itself.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A replica as it last recorded itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Number of the replica.
    pub id: u16,
    /// Where clients reach it.
    pub address: SocketAddr,
    /// Version of its program.
    pub version: String,
    /// The newest version of records that its program reads.
    #[serde(default = "first_version")]
    pub record_version: u8,
    /// The position of the journal up to which it has everything on disk.
    pub position: u64,
    /// Newest revision of its store.
    pub revision: u64,
    /// The position up to which it had applied the journal, and its hash there: equal on all replicas.
    pub applied: u64,
    /// See `applied`.
    pub hash: String,
    /// When it was recorded, in milliseconds since 1970.
    pub renewed_ms: u64,
    /// It has stopped by itself, and has not started since.
    #[serde(default)]
    pub stopped: bool,
}

/// That of programs that did not record theirs.
fn first_version() -> u8 {
    1
}

impl Member {
    /// Time since it was recorded.
    pub fn age_now(&self) -> Duration {
        Duration::from_millis(now_ms().saturating_sub(self.renewed_ms))
    }
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
