//! Why nothing was imported.

use std::path::PathBuf;

use plinth_migration::import::ImportError;
use plinth_migration::live::LiveError;
use plinth_migration::source::SourceError;
use plinth_storage::EncryptionConfigError;

use crate::bootstrap::DataDirError;
use crate::cli::serve::ServeError;

/// A failed import. No directory was created.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ImportCommandError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path} exists already; give --data-dir a new directory")]
    Exists { path: PathBuf },
    #[error("another import is writing to {path}")]
    Busy { path: PathBuf },
    #[error("{path} is where the new directory would be made, and it holds something else; move it away")]
    Obstructed { path: PathBuf },
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Encryption(#[from] EncryptionConfigError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Engine(#[from] plinth_engine::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Restore(plinth_etcd::RestoreError),
    #[error("--user needs the password in the environment variable ETCDCTL_PASSWORD")]
    Password,
}
