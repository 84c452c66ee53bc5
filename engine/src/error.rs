//! [`Error`]: the one error type of the engine.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::record::Record;
use crate::revision::Revision;

/// Short form for results of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation of the engine failed. Cheap to clone, because all transactions of a failed group are answered
/// with the same error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the texts say it
pub enum Error {
    /// The requested revision has been compacted.
    #[error("revision {requested} is compacted, the oldest one available is {oldest}")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The oldest revision that can be read; a feed may start after it.
        oldest: Revision,
    },
    /// The requested revision is not committed yet.
    #[error("revision {requested} is in the future, the current one is {current}")]
    Future {
        /// The requested revision.
        requested: Revision,
        /// The newest durable revision.
        current: Revision,
    },
    /// A condition of a transaction did not hold; nothing was written.
    #[error("condition on key {} does not hold", crate::record::printable(.key))]
    Conflict {
        /// The key of the first condition that failed.
        key: Bytes,
        /// The current record of the key; none when the key is absent.
        current: Option<Box<Record>>,
    },
    /// A stored record does not match its checksum or cannot be decoded.
    #[error("record of key {} at revision {revision} is damaged: {reason}", crate::record::printable(.key))]
    Corrupt {
        /// The key, as far as it is known.
        key: Bytes,
        /// The revision, zero when unknown.
        revision: Revision,
        reason: &'static str,
    },
    /// The file system or the quota is full. Nothing of the transaction was written; reads continue, and
    /// writes work again once there is space. (RocksDB accepts no writes after an exceeded quota: then the
    /// engine has failed, and works once it is opened again.)
    #[error("no space left on the device: {message}")]
    OutOfSpace {
        /// The system's message.
        message: String,
    },
    /// Another process, or another engine in this one, has the directory open.
    #[error("data directory {} is in use by another process", .dir.display())]
    Locked { dir: PathBuf },
    /// The directory is not empty and was not made by this engine.
    #[error("directory {} holds files that are not a data directory of this engine", .dir.display())]
    Foreign { dir: PathBuf },
    /// The directory holds an incomplete store, which is left unchanged.
    #[error("data directory {} cannot be opened: {}: {reason}", .dir.display(), .path.display())]
    Incomplete {
        dir: PathBuf,
        /// The file or directory concerned.
        path: PathBuf,
        reason: &'static str,
    },
    /// Commits that were durable are missing from the store.
    #[error(
        "data directory {} has lost commits: its newest revision is {found}, but revision {durable} was durable",
        .dir.display()
    )]
    LostCommits {
        dir: PathBuf,
        /// The newest revision found.
        found: Revision,
        /// A revision that was durable.
        durable: Revision,
    },
    /// A restore into the directory did not finish.
    #[error("data directory {} holds a restore that did not finish", .dir.display())]
    UnfinishedRestore { dir: PathBuf },
    /// The directory holds the data of another application, see [`crate::Options::mark`].
    #[error("data directory {} is {}, and was opened as {}", .dir.display(), described(.found), described(.expected))]
    Mark {
        dir: PathBuf,
        /// The mark of the directory; empty for none.
        found: String,
        /// The mark that it was opened with; empty for none.
        expected: String,
    },
    /// The directory was written in another version of the on-disk format.
    #[error("data has format version {found}, this program reads version {expected}")]
    FormatVersion {
        /// Version of the directory.
        found: u32,
        /// Version of this program.
        expected: u32,
    },
    /// The directory is that of a replica, and follows its journal only.
    #[error("data directory {} is that of a replica and is opened with its journal only", .dir.display())]
    Replica { dir: PathBuf },
    /// The directory holds a store that is not of this cluster, and does not follow its journal.
    #[error("data directory {} is not that of a replica of this cluster: {reason}", .dir.display())]
    NotReplica { dir: PathBuf, reason: &'static str },
    /// The journal failed, or cannot be followed.
    #[error("{source}")]
    Journal {
        /// The journal's error.
        #[from]
        source: plinth_journal::Error,
    },
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
    /// A key, value or transaction is over its limit.
    #[error("{what} has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// What is too large: `key`, `value`, `transaction`, or a replica's record for the journal.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A transaction contradicts itself.
    #[error("invalid transaction: {reason}")]
    InvalidTransaction { reason: &'static str },
    /// A backup archive cannot be restored.
    #[error("invalid archive: {reason}")]
    InvalidArchive { reason: String },
    /// A write failed after it was submitted to the disk: whether it was written is known only when the
    /// directory is opened again. The engine takes no writes until then.
    #[error("the outcome of the write is unknown: {message}")]
    OutcomeUnknown {
        /// The failure that caused it.
        message: String,
    },
    /// The engine failed before (see [`crate::Engine::failed`]) and refuses writes until it is opened again.
    /// Nothing of this write was written.
    #[error("the storage engine has failed and refuses writes: {message}")]
    Poisoned {
        /// The failure that caused it.
        message: String,
    },
    /// RocksDB reported an error.
    #[error("storage: {source}")]
    Rocks {
        /// RocksDB's error.
        #[from]
        source: rocksdb::Error,
    },
    /// The operating system reported an error.
    #[error("{context}: {source}")]
    Io {
        /// The operation that failed.
        context: String,
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// An I/O error with the operation that failed.
    pub(crate) fn io(context: impl Into<String>, source: std::io::Error) -> Error {
        if matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) {
            return Error::OutOfSpace { message: source.to_string() };
        }
        Error::Io { context: context.into(), source: Arc::new(source) }
    }

    /// Whether the system failed or refused a file operation, including those of RocksDB. Such an error is
    /// not damage: the operation may succeed once disk, free space or permissions are corrected.
    pub fn is_system_failure(&self) -> bool {
        match self {
            Error::Io { .. } | Error::OutOfSpace { .. } => true,
            Error::Rocks { source } => system_failed(source.as_ref()),
            _ => false,
        }
    }

    /// Like [`Error::is_system_failure`], but only for operations that write, create or rename files: data of
    /// an unreadable file may be recovered from elsewhere.
    pub(crate) fn is_failure_to_write(&self) -> bool {
        match self {
            Error::Rocks { source } => system_failed(source.as_ref()) && !is_of_reading(source.as_ref()),
            error => error.is_system_failure(),
        }
    }

    /// Classifies a failed write of RocksDB. Its status has no error number, only the operation, the file and
    /// the system's message.
    pub(crate) fn from_write(source: rocksdb::Error) -> Error {
        let message: &str = source.as_ref();
        if is_out_of_space(message) && nothing_was_appended(message) {
            return Error::OutOfSpace { message: message.to_owned() };
        }
        Error::Rocks { source }
    }

    /// Whether it is for want of room on the disk or in the quota, also where the outcome is unknown for it.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Error::OutOfSpace { .. } => true,
            Error::OutcomeUnknown { message } => is_out_of_space(message),
            Error::Rocks { source } => is_out_of_space(source.as_ref()),
            _ => false,
        }
    }

    /// Converts the error to [`Error::OutcomeUnknown`].
    pub(crate) fn into_unknown_outcome(self) -> Error {
        match self {
            error @ (Error::OutcomeUnknown { .. } | Error::Poisoned { .. }) => error,
            other => Error::OutcomeUnknown { message: other.cause() },
        }
    }

    /// The message of the underlying error, without the text that this type adds.
    pub(crate) fn cause(&self) -> String {
        match self {
            Error::OutcomeUnknown { message }
            | Error::Poisoned { message }
            | Error::OutOfSpace { message } => message.clone(),
            Error::Rocks { source } => source.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether RocksDB accepts no more writes after this out-of-space error: it recovers from `ENOSPC` alone.
    pub(crate) fn is_quota_exceeded(&self) -> bool {
        matches!(self, Error::OutOfSpace { message } if message.contains(QUOTA_EXCEEDED))
    }
}

/// A store's mark, in an error message.
fn described(mark: &str) -> String {
    match mark {
        "" => "a store without a mark".to_owned(),
        mark => format!("a store of \"{mark}\""),
    }
}

/// The system's message for `EDQUOT`.
const QUOTA_EXCEEDED: &str = "quota exceeded";

/// System messages that are unrelated to the contents of files, as they appear at the end of RocksDB's
/// messages. "No such file or directory" is not among them: it means that a file of the database was lost.
const SYSTEM_FAILURES: [&str; 10] = [
    "Input/output error",
    "Read-only file system",
    "Permission denied",
    "Operation not permitted",
    "Too many open files",
    "Too many open files in system",
    "Cannot allocate memory",
    "Device or resource busy",
    "No such device or address",
    "Stale file handle",
];

fn system_failed(message: &str) -> bool {
    is_out_of_space(message) || SYSTEM_FAILURES.iter().any(|text| message.ends_with(text))
}

/// Whether RocksDB was reading a file or its metadata: `… While pread offset 0 len 53: PATH: …`.
fn is_of_reading(message: &str) -> bool {
    let what = message.split_once("hile ").and_then(|(_, what)| what.split(':').next());
    what.is_some_and(|what| what.contains("read") || what.contains("stat "))
}

fn is_out_of_space(message: &str) -> bool {
    message.contains("No space left") || message.contains("NoSpace") || message.contains(QUOTA_EXCEEDED)
}

/// Whether the failed write is certainly not in the write-ahead log. A failed append is incomplete and is
/// dropped as a torn tail; errors about tables are those of background work, which RocksDB reports before it
/// appends. But a write-ahead log that could not be synced holds the whole write, on disk or not: file
/// systems with delayed allocation report a lack of space there. And closed logs are recorded in the MANIFEST
/// after the write is in its log.
fn nothing_was_appended(message: &str) -> bool {
    let table = message.contains(".sst");
    let write_ahead_log = message.contains(".log");
    let before = message.contains("While appending to file") || message.contains("While open");
    table || (write_ahead_log && before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_is_a_refusal_only_where_nothing_was_appended() {
        for (refused, message) in [
            (true, "IO error: No space left on device: While appending to file: /d/db/000012.log: No space left on device"),
            (true, "IO error: While appending to file: /d/db/000012.log: Disk quota exceeded"),
            (true, "IO error: No space left on device: While open a file for appending: /d/db/000013.log: No space left on device"),
            (true, "IO error: No space left on device: While fdatasync: /d/db/000014.sst: No space left on device"),
            (false, "IO error: No space left on device: While fdatasync: /d/db/000012.log: No space left on device"),
            (false, "IO error: While fdatasync: /d/db/000012.log: Disk quota exceeded"),
            (false, "IO error: No space left on device: While fdatasync: /d/db/MANIFEST-000005: No space left on device"),
            (false, "IO error: No space left on device: While appending to file: /d/db/MANIFEST-000005: No space left on device"),
            (false, "IO error: While appending to file: /d/db/000012.log: Input/output error"),
        ] {
            assert_eq!(is_out_of_space(message) && nothing_was_appended(message), refused, "{message}");
        }
    }

    #[test]
    fn a_failure_of_the_system_is_no_damage() {
        for (failed, reading, message) in [
            (true, false, "IO error: While fsync a directory: /d/read/db: Input/output error"),
            (true, false, "IO error: No space left on device: While fdatasync: /d/db/1.sst: No space left on device"),
            (true, false, "IO error: While appending to file: /d/db/000012.log: Disk quota exceeded"),
            (true, false, "IO error: While renaming a file to /d/db/CURRENT: /d/db/000001.dbtmp: Input/output error"),
            (true, true, "IO error: While pread offset 0 len 53: /d/db/000014.sst: Input/output error"),
            (true, true, "IO error: While open a file for random read: /d/db/000014.sst: Permission denied"),
            (true, true, "IO error: while stat a file for size: /d/db/000014.sst: Input/output error"),
            (false, true, "IO error: No such file or directory: While open a file for random read: /d/db/000014.sst: No such file or directory"),
            (false, false, "Corruption: block checksum mismatch: stored = 1, computed = 2, type = 4 in /d/db/000014.sst"),
        ] {
            assert_eq!((system_failed(message), is_of_reading(message)), (failed, reading), "{message}");
        }
    }

    #[test]
    fn the_systems_codes_for_no_room() {
        for code in [28, 122] {
            let error = Error::io("writing", std::io::Error::from_raw_os_error(code));
            assert!(matches!(error, Error::OutOfSpace { .. }), "{error}");
        }
    }
}
