//! [`Source`]: the keys and values of an etcd at one revision.

use std::time::Duration;

use plinth_bolt::BoltError;

/// A key at the revision of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceEntry {
    /// With the prefix, as etcd has it.
    pub key: Vec<u8>,
    /// As kube-apiserver stored it, encrypted where it encrypts.
    pub value: Vec<u8>,
    /// The time after which etcd would have deleted it.
    pub ttl: Option<Duration>,
}

/// A failed source.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each error names its fields")]
pub enum SourceError {
    /// The file is no snapshot, or was damaged.
    #[error("{path}: {reason}")]
    File {
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A record of a file is damaged.
    #[error("{path}: the record of revision {revision} is damaged: {reason}")]
    Record {
        path: String,
        /// The revision, as main and sub revision.
        revision: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A row of a database is damaged.
    #[error("{path}: row {id} of the table kine, {key}: {reason}")]
    Row {
        path: String,
        /// Its number, which is a revision.
        id: i64,
        /// Its key, as far as it can be read.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A part of a file is damaged.
    #[error("{path}: {source}")]
    Bolt {
        path: String,
        /// The part, and what is wrong with it.
        source: BoltError,
    },
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
}

/// Visits an entry.
pub type Visit<'v, E> = &'v mut dyn FnMut(SourceEntry) -> Result<(), E>;

/// The keys and values of an etcd at one revision. Can be read any number of times.
pub trait Source {
    /// The revision of etcd at which all values are read.
    fn revision(&self) -> u64;

    /// Number of keys.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the keys that begin with `prefix`, in order.
    ///
    /// # Errors
    /// When they cannot be read, or the first error of `visit`.
    fn visit<E: From<SourceError>>(&self, prefix: &[u8], visit: Visit<'_, E>) -> Result<(), E>;
}
