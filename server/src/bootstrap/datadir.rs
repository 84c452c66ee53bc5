//! The data directory: what lies where, and whether it is ours.
//!
//! ```text
//! DIR/plinth            a marker: this directory is Plinth's
//! DIR/store/            the storage engine
//! DIR/pki/              certificates and keys
//! DIR/continue.key      secret of continue tokens, mode 0600
//! DIR/admin.kubeconfig  for kubectl, mode 0600
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::pki::{self, PkiError};

const MARKER: &str = "plinth";

/// A data directory that was found to be ours or empty.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
}

/// Why a directory cannot be used; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Cannot be made, read or written.
    #[error("cannot use data directory {path}: {source}")]
    Io {
        /// The directory or a file in it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is something else in it.
    #[error("{path} is not empty and holds no plinth data; give --data-dir an empty or new directory")]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// A secret that cannot be written.
    #[error(transparent)]
    Secret(#[from] PkiError),
}

impl DataDir {
    /// Makes the directory, or checks that it is ours.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let fault = |source| DataDirError::Io { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(fault)?;
        let path = path.canonicalize().map_err(fault)?;
        let marker = path.join(MARKER);
        if !marker.exists() {
            // A mount point brings lost+found with it.
            let foreign = fs::read_dir(&path)
                .map_err(fault)?
                .filter_map(Result::ok)
                .any(|entry| entry.file_name() != "lost+found");
            if foreign {
                return Err(DataDirError::Foreign { path });
            }
            fs::write(&marker, "This directory holds the data of a plinth server.\n").map_err(fault)?;
        }
        Ok(DataDir { path })
    }

    /// The directory, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine lies.
    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// The administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.path.join("admin.kubeconfig")
    }

    /// The secret of continue tokens, made at the first start.
    ///
    /// # Errors
    /// When it cannot be read or written, or is not 32 bytes in hexadecimal.
    pub fn continue_secret(&self) -> Result<[u8; 32], DataDirError> {
        let path = self.path.join("continue.key");
        let fault = |source| DataDirError::Io { path: path.clone(), source };
        if !path.exists() {
            let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
            let text: String = random.iter().map(|u| u.simple().to_string()).collect();
            // Version bits of a UUID are no secret; three of them leave more than 256 bits.
            pki::write_secret(&path, &text)?;
        }
        let text = fs::read_to_string(&path).map_err(fault)?;
        Ok(sha2::Digest::finalize(sha2::Digest::chain_update(<sha2::Sha256 as sha2::Digest>::new(), text))
            .into())
    }
}
