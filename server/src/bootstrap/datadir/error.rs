//! Reasons why a data directory cannot be used.

use std::io;
use std::path::PathBuf;

use crate::bootstrap::pki::PkiError;

/// The directory cannot be used; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// It cannot be created, read or written.
    #[error("cannot use data directory {path}: {source}; give --data-dir a directory that this user may read and write, or may create")]
    Io {
        /// Path of the directory or a file in it.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// Another process uses it.
    #[error("data directory {path} is in use by another process; stop the server that uses it first")]
    Locked {
        /// Path of the directory.
        path: PathBuf,
    },
    /// It contains other files.
    #[error("{path} is not empty and holds no plinth data; give --data-dir an empty or new directory")]
    Foreign {
        /// Path of the directory.
        path: PathBuf,
    },
    /// It was to be filled, and holds something, which may be the data of a server.
    #[error("{path} is not empty; give --data-dir an empty or new directory")]
    NotEmpty {
        /// Path of the directory.
        path: PathBuf,
    },
    /// It is not a data directory.
    #[error("{path} holds no plinth data")]
    NotOurs {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A part of it is missing or damaged. Nothing was changed.
    #[error("cannot use data directory: {path} {problem}\n{remedy}")]
    Incomplete {
        /// Path of the file or directory concerned.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
        /// Advice for the operator.
        remedy: String,
    },
    /// The target of a restore has a store.
    #[error("{path} holds a store already, and a backup is never restored over one; give --data-dir a new or empty directory")]
    HoldsStore {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The temporary name of a restore's directory exists.
    #[error("{path} contains other files: a restore creates its directory under that name first\nMove it away, or set another --data-dir")]
    Obstructed {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A restore into it was not finished.
    #[error(
        "cannot use data directory: the restore into {path} did not finish\nRun plinth restore again with the same --data-dir; \
         if its store is temporarily missing, put that back first"
    )]
    UnfinishedRestore {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A replica did not finish to join.
    #[error(
        "cannot use data directory: plinth join did not finish in {path}\nRemove what is in it, and run plinth join \
         again, with another token: the first one may be used up"
    )]
    UnfinishedJoin {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A restore into it was not finished, but it contains a store: one that was temporarily missing.
    #[error(
        "cannot use data directory: {mark} marks an unfinished restore, but {part} belongs to a store that the restore did not create; \
         nothing was changed\nIf the store is yours, remove the file {mark}. To restore a backup, run plinth restore with a new or empty --data-dir"
    )]
    StoreBesideMark {
        /// Path of the mark of the restore.
        mark: PathBuf,
        /// Path of the store's part that was found.
        part: PathBuf,
    },
    /// The store cannot be restored.
    #[error(transparent)]
    Store(#[from] plinth_engine::Error),
    /// A secret cannot be written.
    #[error(transparent)]
    Secret(#[from] PkiError),
}
