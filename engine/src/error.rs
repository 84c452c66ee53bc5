//! Everything that can go wrong, as one enum.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::record::Record;
use crate::revision::Revision;

/// Short form for results of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation of the engine failed. Cheap to clone, because one failed group of transactions
/// answers each of its members with the same error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The revision asked for is older than the history that is kept.
    #[error("revision {requested} is compacted, the oldest one available is {oldest}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that can be read; a feed may start after it.
        oldest: Revision,
    },
    /// The revision asked for is not committed yet.
    #[error("revision {requested} is in the future, the current one is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest durable revision.
        current: Revision,
    },
    /// A condition of a transaction did not hold; nothing was written.
    #[error("condition on key {} does not hold", crate::record::printable(.key))]
    Conflict {
        /// The key of the first condition that failed.
        key: Bytes,
        /// What is stored under the key instead; none when the key is absent.
        current: Option<Box<Record>>,
    },
    /// A stored record does not match its checksum or cannot be decoded.
    #[error("record of key {} at revision {revision} is damaged: {reason}", crate::record::printable(.key))]
    Corrupt {
        /// The key, as far as it is known.
        key: Bytes,
        /// The revision, zero when it cannot be told.
        revision: Revision,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file system is full. Nothing of the transaction was acknowledged; reads go on, and
    /// writes work again once there is room.
    #[error("no space left on the device: {message}")]
    OutOfSpace {
        /// The system's message.
        message: String,
    },
    /// Another process, or another engine in this one, has the directory open.
    #[error("data directory {} is in use by another process", .dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory is not empty and was not made by this engine.
    #[error("directory {} holds files that are not a data directory of this engine", .dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// A restore into the directory did not finish.
    #[error("directory {} holds a restore that did not finish; restore again", .dir.display())]
    UnfinishedRestore {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory was written in another version of the on-disk format.
    #[error("data has format version {found}, this program reads version {expected}")]
    FormatVersion {
        /// Version of the directory.
        found: u32,
        /// Version of this program.
        expected: u32,
    },
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
    /// A key, value or transaction is over its limit.
    #[error("{what} has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// Which thing: `key`, `value` or `transaction`.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A transaction contradicts itself.
    #[error("invalid transaction: {reason}")]
    InvalidTransaction {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A backup archive cannot be restored.
    #[error("invalid archive: {reason}")]
    InvalidArchive {
        /// What is wrong with it.
        reason: String,
    },
    /// A write failed in a way that leaves its outcome unknown; the engine refuses writes until it
    /// is opened again.
    #[error("writes are refused after a failed one: {message}")]
    Poisoned {
        /// The failure that caused it.
        message: String,
    },
    /// RocksDB reported an error.
    #[error("storage: {source}")]
    Rocks {
        /// The error as RocksDB tells it.
        #[from]
        source: rocksdb::Error,
    },
    /// The operating system reported an error.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: String,
        /// The error.
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// An I/O error with what was being done.
    pub(crate) fn io(context: impl Into<String>, source: std::io::Error) -> Error {
        if source.kind() == std::io::ErrorKind::StorageFull {
            return Error::OutOfSpace { message: source.to_string() };
        }
        Error::Io { context: context.into(), source: Arc::new(source) }
    }

    /// What a failed write of RocksDB means. Its status names no error number, only the system's
    /// message.
    pub(crate) fn from_write(source: rocksdb::Error) -> Error {
        let message: &str = source.as_ref();
        if message.contains("No space left")
            || message.contains("NoSpace")
            || message.contains("quota exceeded")
        {
            return Error::OutOfSpace { message: message.to_owned() };
        }
        Error::Rocks { source }
    }
}
