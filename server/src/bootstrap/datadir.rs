//! The data directory: what lies where, whether it is ours, and what a start may make in it.
//!
//! ```text
//! DIR/plinth            marker: this directory is Plinth's, and what may still be made in it
//! DIR/store/            the storage engine
//! DIR/pki/              certificates and keys
//! DIR/continue.key      secret of continue tokens, mode 0600
//! DIR/admin.kubeconfig  for kubectl, mode 0600
//! ```
//!
//! A start makes a store and an authority only where there has never been one: the marker says so ([`Stage`]). In a directory whose
//! first start was complete, a missing store or key is a loss, and the start is refused. Only "not found" counts as absence; whatever
//! else keeps a file from being seen is an error.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{create_durably, exists};
use super::pki::{self, PkiError};

const MARKER: &str = "plinth";
const STORE: &str = "store";
const CONTINUE_KEY: &str = "continue.key";
/// First line of the marker, and all of it in a directory whose first start was complete.
const TITLE: &str = "This directory holds the data of a plinth server.\n";
/// Names in a directory that is none of ours yet: a mount point brings the first with it, a first start that was killed leaves
/// the second.
const HARMLESS: [&str; 2] = ["lost+found", "plinth.new"];

/// What a start may make in a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its first start has not finished: what is missing is made.
    New,
    /// A backup was restored into it: certificates and keys are made unless some were put there; the store must be there.
    Restored,
    /// Certificates and keys for a restored store are being made.
    Keys,
    /// Its first start was complete: store, certificates and keys must be there.
    Complete,
}

impl Stage {
    const ALL: [Stage; 4] = [Stage::New, Stage::Restored, Stage::Keys, Stage::Complete];

    /// The second line of the marker.
    fn line(self) -> &'static str {
        match self {
            Stage::New => "stage: first start\n",
            Stage::Restored => "stage: restored\n",
            Stage::Keys => "stage: restored, making certificates and keys\n",
            Stage::Complete => "",
        }
    }
}

/// A data directory that was found to be ours or empty.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
    stage: Stage,
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
    /// There is no data directory.
    #[error("{path} holds no plinth data")]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// A part of it is missing or damaged. Nothing was changed.
    #[error("cannot use data directory: {path} {problem}\n{remedy}")]
    Incomplete {
        /// The file or directory that does not fit.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
        /// What to do.
        remedy: String,
    },
    /// A restore into it was not finished.
    #[error(
        "cannot use data directory: the restore into {path} did not finish\nRun plinth restore again with the same --data-dir, or \
         remove the directory"
    )]
    UnfinishedRestore {
        /// The directory.
        path: PathBuf,
    },
    /// A secret that cannot be written.
    #[error(transparent)]
    Secret(#[from] PkiError),
}

impl DataDir {
    /// Makes the directory, or checks that it is ours and whole.
    ///
    /// # Errors
    /// See [`DataDirError`]; then nothing was changed.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        if let Some(dir) = DataDir::find(path)? {
            dir.check_store()?;
            return Ok(dir);
        }
        DataDir::make(path, Stage::New)
    }

    /// A data directory that is there and holds a store.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn existing(path: &Path) -> Result<DataDir, DataDirError> {
        let not_ours = || DataDirError::NotOurs { path: path.to_owned() };
        let dir = match DataDir::find(path) {
            Ok(dir) => dir.ok_or_else(not_ours)?,
            Err(DataDirError::Foreign { .. }) => return Err(not_ours()),
            Err(error) => return Err(error),
        };
        dir.check_store()?;
        Ok(dir)
    }

    /// A directory that a backup can be restored into: empty, absent, or without a store. Makes it; [`DataDir::restored`] makes
    /// it usable.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn for_restore(path: &Path) -> Result<DataDir, DataDirError> {
        let io = |source| DataDirError::Io { path: path.to_owned(), source };
        match DataDir::find(path) {
            Ok(Some(dir)) => Ok(dir),
            Ok(None) => {
                create_durably(path).map_err(io)?;
                Ok(DataDir { path: path.canonicalize().map_err(io)?, stage: Stage::New })
            }
            Err(DataDirError::UnfinishedRestore { path }) => Ok(DataDir { path, stage: Stage::New }),
            Err(error) => Err(error),
        }
    }

    /// A directory that a repair can be tried on, and what is wrong with its marker.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn for_repair(path: &Path) -> Result<(DataDir, Option<String>), DataDirError> {
        let marker_problem = match DataDir::existing(path) {
            Err(DataDirError::Incomplete { path: damaged, problem, .. }) if damaged.ends_with(MARKER) => {
                format!("{} {problem}", damaged.display())
            }
            found => return Ok((found?, None)),
        };
        let io = |source| DataDirError::Io { path: path.to_owned(), source };
        let dir = DataDir { path: path.canonicalize().map_err(io)?, stage: Stage::Complete };
        dir.check_store()?;
        Ok((dir, Some(marker_problem)))
    }

    /// Says that a backup was restored: the next start may make certificates and keys, but no store.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn restored(&mut self) -> Result<(), DataDirError> {
        match self.stage {
            // Its certificates and keys stay what they are.
            Stage::Complete => Ok(()),
            _ => self.enter(Stage::Restored),
        }
    }

    /// The directory, if it is ours; none if it is absent or empty.
    fn find(path: &Path) -> Result<Option<DataDir>, DataDirError> {
        let io = |source| DataDirError::Io { path: path.to_owned(), source };
        if !exists(path).map_err(io)? {
            return Ok(None);
        }
        let path = path.canonicalize().map_err(io)?;
        let io = |source| DataDirError::Io { path: path.clone(), source };
        let marker = path.join(MARKER);
        let marker_io = |source| DataDirError::Io { path: marker.clone(), source };
        if !exists(&marker).map_err(marker_io)? {
            let mut names = Vec::new();
            for entry in fs::read_dir(&path).map_err(io)? {
                names.push(entry.map_err(io)?.file_name());
            }
            if names.iter().all(|name| HARMLESS.iter().any(|harmless| name == harmless)) {
                return Ok(None);
            }
            let store = path.join(STORE);
            let has = |name: &str| exists(&store.join(name)).map_err(io);
            if has("db.restoring")? {
                return Err(DataDirError::UnfinishedRestore { path });
            }
            if has("db")? || has("PLINTH")? {
                return Err(DataDirError::Incomplete {
                    path: marker,
                    problem: "is missing beside a store",
                    remedy: format!(
                        "If this is a copy of a data directory, copy that file, too; its text is: {}",
                        TITLE.trim_end()
                    ),
                });
            }
            return Err(DataDirError::Foreign { path });
        }
        let text = fs::read(&marker).map_err(marker_io)?;
        let stage =
            Stage::ALL.into_iter().find(|stage| text == format!("{TITLE}{}", stage.line()).as_bytes());
        let stage = stage.ok_or_else(|| DataDirError::Incomplete {
            path: marker.clone(),
            problem: "is damaged",
            remedy: format!(
                "If the rest of the directory is whole, write this text to it: {}",
                TITLE.trim_end()
            ),
        })?;
        Ok(Some(DataDir { path, stage }))
    }

    /// Makes an empty or absent directory ours.
    fn make(path: &Path, stage: Stage) -> Result<DataDir, DataDirError> {
        let io = |source| DataDirError::Io { path: path.to_owned(), source };
        create_durably(path).map_err(io)?;
        let mut dir = DataDir { path: path.canonicalize().map_err(io)?, stage };
        dir.enter(stage)?;
        Ok(dir)
    }

    /// Writes the marker.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn enter(&mut self, stage: Stage) -> Result<(), DataDirError> {
        pki::write_secret(&self.path.join(MARKER), &format!("{TITLE}{}", stage.line()))?;
        self.stage = stage;
        Ok(())
    }

    /// Where a store must be, one is; whether it is whole is for the engine to say.
    fn check_store(&self) -> Result<(), DataDirError> {
        let store = self.store();
        let io = |source| DataDirError::Io { path: store.clone(), source };
        let there = exists(&store).map_err(io)?;
        if exists(&store.join("db.restoring")).map_err(io)? && !exists(&store.join("db")).map_err(io)? {
            return Err(DataDirError::UnfinishedRestore { path: self.path.clone() });
        }
        if !there && self.stage != Stage::New {
            return Err(DataDirError::Incomplete {
                path: store,
                problem: "is missing; nothing was changed",
                remedy: format!(
                    "Put it back, or restore a backup with plinth restore --data-dir {}; for an empty cluster give another directory",
                    self.path.display()
                ),
            });
        }
        Ok(())
    }

    /// What a start may make.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Says that certificates and keys are going to be made.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn making_keys(&mut self) -> Result<(), DataDirError> {
        match self.stage {
            Stage::Restored => self.enter(Stage::Keys),
            _ => Ok(()),
        }
    }

    /// Says that the first start was complete: from now on what is missing is a loss.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn complete(&mut self) -> Result<(), DataDirError> {
        match self.stage {
            Stage::Complete => Ok(()),
            _ => self.enter(Stage::Complete),
        }
    }

    /// The directory, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine lies.
    pub fn store(&self) -> PathBuf {
        self.path.join(STORE)
    }

    /// The administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.path.join("admin.kubeconfig")
    }

    /// The secret of continue tokens, made when there is none: lists that are under way then start over, and nothing else is
    /// lost with it.
    ///
    /// # Errors
    /// As [`DataDir::continue_key`], and when it cannot be written.
    pub fn continue_secret(&self) -> Result<[u8; 32], DataDirError> {
        if let Some(secret) = self.continue_key()? {
            return Ok(secret);
        }
        let path = self.path.join(CONTINUE_KEY);
        if self.stage == Stage::Complete {
            tracing::warn!(path = %path.display(), "the key of continue tokens was missing and is made again: lists under way start over");
        }
        let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        let text: String = random.iter().map(|u| u.simple().to_string()).collect();
        // Version bits of a UUID are no secret; three of them leave more than 256 bits.
        pki::write_secret(&path, &text)?;
        Ok(digest(text.as_bytes()))
    }

    /// The secret of continue tokens, when there is one.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged: what is left of it may be known to others.
    pub fn continue_key(&self) -> Result<Option<[u8; 32]>, DataDirError> {
        let path = self.path.join(CONTINUE_KEY);
        let io = |source| DataDirError::Io { path: path.clone(), source };
        if !exists(&path).map_err(io)? {
            return Ok(None);
        }
        let text = fs::read(&path).map_err(io)?;
        if text.len() < 64 || !text.trim_ascii().iter().all(u8::is_ascii_hexdigit) {
            return Err(DataDirError::Incomplete {
                path,
                problem: "is damaged",
                remedy:
                    "Put it back from a copy, or remove it: a new one is made, and lists under way start over"
                        .to_owned(),
            });
        }
        Ok(Some(digest(&text)))
    }
}

fn digest(text: &[u8]) -> [u8; 32] {
    <sha2::Sha256 as sha2::Digest>::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_says_what_may_be_made() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let mut dir = DataDir::open(&path).unwrap();
        assert_eq!(dir.stage(), Stage::New);
        assert_eq!(DataDir::open(&path).unwrap().stage(), Stage::New, "a first start that was killed");
        fs::create_dir(dir.store()).unwrap();
        dir.complete().unwrap();
        assert_eq!(fs::read_to_string(path.join(MARKER)).unwrap(), TITLE, "as version 0.1 wrote it");
        assert_eq!(DataDir::open(&path).unwrap().stage(), Stage::Complete);
        dir.restored().unwrap();
        assert_eq!(DataDir::open(&path).unwrap().stage(), Stage::Complete, "its keys stay");
        fs::remove_dir(dir.store()).unwrap();
        let lost = DataDir::open(&path).unwrap_err().to_string();
        assert!(lost.contains("b/store is missing") && lost.contains("plinth restore"), "{lost}");
        assert!(DataDir::existing(&path).is_err());
    }

    #[test]
    fn a_restored_directory_may_get_keys_and_no_store() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let mut dir = DataDir::for_restore(&path).unwrap();
        assert!(!path.join(MARKER).exists(), "until it is restored it is nobody's");
        fs::create_dir_all(dir.store().join("db.restoring")).unwrap();
        assert!(matches!(DataDir::open(&path), Err(DataDirError::UnfinishedRestore { .. })));
        assert!(DataDir::for_restore(&path).is_ok(), "it can be restored again");
        fs::rename(dir.store().join("db.restoring"), dir.store().join("db")).unwrap();
        let unmarked = DataDir::open(&path).unwrap_err().to_string();
        assert!(unmarked.contains("plinth is missing beside a store"), "{unmarked}");
        dir.restored().unwrap();
        let mut dir = DataDir::open(&path).unwrap();
        assert_eq!(dir.stage(), Stage::Restored);
        dir.making_keys().unwrap();
        let mut dir = DataDir::open(&path).unwrap();
        assert_eq!(dir.stage(), Stage::Keys);
        fs::remove_dir_all(dir.store()).unwrap();
        assert!(DataDir::open(&path).is_err());
        dir.complete().unwrap();
        assert_eq!(fs::read_to_string(path.join(MARKER)).unwrap(), TITLE);
    }

    #[test]
    fn a_damaged_key_of_continue_tokens_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&parent.path().join("data")).unwrap();
        let secret = dir.continue_secret().unwrap();
        assert_eq!(dir.continue_secret().unwrap(), secret);
        let path = dir.path().join("continue.key");
        for text in ["", "abc", &"x".repeat(96), &"\0".repeat(96)] {
            fs::write(&path, text).unwrap();
            assert!(dir.continue_secret().unwrap_err().to_string().contains("continue.key"), "{text:?}");
        }
        fs::remove_file(&path).unwrap();
        assert_ne!(dir.continue_secret().unwrap(), secret);
    }
}
