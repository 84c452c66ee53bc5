//! Transactions that are written and synced together.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rocksdb::WriteBatch;

use crate::commit::reply::{Committed, Reply};
use crate::error::{Error, Result};
use crate::feed::event::Commit;

/// A group on its way from the builder to the syncer.
pub(crate) struct Group {
    pub number: u64,
    pub batch: WriteBatch,
    pub commits: Vec<Arc<Commit>>,
    /// Sent when the group is durable. Refusals are among them: they may depend on writes of this group or of
    /// the one before it.
    pub answers: Vec<(Reply, Result<Committed>)>,
    /// Keys that the builder's overlay holds for this group.
    pub keys: Vec<Bytes>,
    /// Whether the group must be on disk before it is acknowledged.
    pub sync: bool,
    /// Bytes of the transactions in it.
    pub bytes: usize,
    /// Earliest deadline that the group sets, `u64::MAX` when there is none.
    pub deadline_ms: u64,
    /// When the first transaction was added.
    pub started: Instant,
}

impl Group {
    pub(crate) fn new(number: u64) -> Group {
        Group {
            number,
            batch: WriteBatch::default(),
            commits: Vec::new(),
            answers: Vec::new(),
            keys: Vec::new(),
            sync: false,
            bytes: 0,
            deadline_ms: u64::MAX,
            started: Instant::now(),
        }
    }

    /// Answers every caller in the group with the same error.
    pub(crate) fn fail(self, error: &Error) {
        for (reply, _) in self.answers {
            reply.send(Err(error.clone()));
        }
    }
}
