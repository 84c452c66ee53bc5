//! The data directory: its layout, its ownership, and what a start may create in it.
//!
//! ```text
//! DIR/plinth            marker: this directory is Plinth's, and what may still be created in it
//! DIR/plinth.restoring  a restore is in progress; becomes the marker before the store gets its name
//! DIR/joining/          a replica is joining; its contents move up, the marker last
//! DIR/store/            the storage engine
//! DIR/store.replaced/   the one before, where a replica has taken a new checkpoint
//! DIR/pki/              certificates and keys
//! DIR/continue.key      secret of continue tokens, mode 0600
//! DIR/admin.kubeconfig  for kubectl, mode 0600
//! ```
//!
//! A start creates a store and an authority only where there has never been one, according to the marker
//! ([`Stage`]). If the first start was complete, a missing store or key is a loss, and the server does not
//! start. Only "not found" counts as absence; any other failure to stat a file is an error.
//!
//! Processes that write to the directory hold a lock on it (`flock`), from before the first check until the
//! [`DataDir`] is dropped, so that the result of the checks stays valid. A restore marks the directory before
//! it creates anything else in it, and creates an absent directory under the name `DIR.restoring`, including
//! the mark: wherever it is killed, a start finds no directory or the mark. The mark is removed before the
//! database gets its name: a database next to the mark was not created by a restore, and is not touched.

mod directory;
mod error;
mod joining;
mod replacement;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{self, create_durably, exists, is_at, remove_if_exists, sync_parent};
use super::pki;
use super::stage::{Stage, TITLE};
use directory::{check_beside_mark, io_error, lock, make_mark, make_marked, normalized, RESTORING, STORE};

pub use error::DataDirError;
pub use joining::JoiningDir;
pub use replacement::StoreReplacement;

const MARKER: &str = "plinth";
/// Directory in which a joining replica collects what it gets.
const JOINING: &str = "joining";
/// The administrator's kubeconfig.
pub(crate) const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
const CONTINUE_KEY: &str = "continue.key";
/// Names that may exist in an empty directory: a mount point contains the first, a first start that was
/// killed leaves the second.
const HARMLESS: [&str; 2] = ["lost+found", "plinth.new"];

/// A data directory that is Plinth's or was empty.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
    stage: Stage,
    /// The directory, open and locked; none when it is only read.
    lock: Option<Arc<File>>,
}

impl DataDir {
    /// Creates the directory, or checks that it is Plinth's and complete. It is locked until the value is
    /// dropped.
    ///
    /// # Errors
    /// See [`DataDirError`]; nothing was changed then.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let path = &normalized(path)?;
        create_durably(path).map_err(io_error(path))?;
        let lock = lock(path)?;
        match DataDir::find(path)? {
            Some(mut dir) => {
                dir.lock = Some(lock);
                dir.replacement().finish()?;
                dir.check_store()?;
                Ok(dir)
            }
            None => {
                let path = path.canonicalize().map_err(io_error(path))?;
                let mut dir = DataDir { path, stage: Stage::New, lock: Some(lock) };
                dir.enter(Stage::New)?;
                dir.check_place()?;
                Ok(dir)
            }
        }
    }

    /// An existing data directory with a store.
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

    /// A target for a restore: empty, absent, or without a store. It is marked as being restored, and locked
    /// until the value is dropped; [`DataDir::restored`] makes it usable.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn for_restore(path: &Path) -> Result<DataDir, DataDirError> {
        let path = &normalized(path)?;
        let lock = match exists(path).map_err(io_error(path))? {
            true => lock(path)?,
            false => make_marked(path)?,
        };
        let stage = match DataDir::find(path) {
            Ok(Some(dir)) => dir.stage,
            Ok(None) | Err(DataDirError::UnfinishedRestore { .. }) => Stage::New,
            Err(error) => return Err(error),
        };
        let path = path.canonicalize().map_err(io_error(path))?;
        let dir = DataDir { path, stage, lock: Some(lock) };
        let mark = dir.path.join(RESTORING);
        if exists(&mark).map_err(io_error(&mark))? {
            check_beside_mark(&dir.path)?;
        } else {
            let database = dir.store().join("db");
            let interrupted = dir.replacement().is_interrupted().map_err(io_error(&database))?;
            if interrupted || exists(&database).map_err(io_error(&database))? {
                return Err(DataDirError::HoldsStore { path: dir.path });
            }
            plinth_engine::check_restorable(dir.store())?;
            make_mark(&dir.path)?;
            dir.check_place()?;
        }
        Ok(dir)
    }

    /// A directory to be repaired, and the problem of its marker, if any.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn for_repair(path: &Path) -> Result<(DataDir, Option<String>), DataDirError> {
        if !exists(path).map_err(io_error(path))? {
            return Err(DataDirError::NotOurs { path: path.to_owned() });
        }
        let lock = Some(lock(path)?);
        let marker_problem = match DataDir::existing(path) {
            Err(DataDirError::Incomplete { path: damaged, problem, .. }) if damaged.ends_with(MARKER) => {
                format!("{} {problem}", damaged.display())
            }
            found => return Ok((DataDir { lock, ..found? }, None)),
        };
        let path = path.canonicalize().map_err(io_error(path))?;
        let dir = DataDir { path, stage: Stage::Complete, lock };
        dir.check_store()?;
        Ok((dir, Some(marker_problem)))
    }

    /// Records that a backup was restored: the next start may create certificates and keys, but no store.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn restored(&mut self) -> Result<(), DataDirError> {
        let stage = match self.stage {
            // The certificates and keys are kept.
            Stage::Complete => Stage::Complete,
            _ => Stage::Restored,
        };
        let (mark, marker) = (self.path.join(RESTORING), self.path.join(MARKER));
        let write = || -> io::Result<()> {
            // A restored store is of no replica: under its former identity it would be taken for the cluster
            // that the backup was made of, whose journal knows another history.
            for name in [files::IDENTITY, files::PEERS] {
                remove_if_exists(&self.path.join(name))?;
            }
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&mark)?;
            file.write_all(stage.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&mark, &marker)?;
            sync_parent(&marker)
        };
        write().map_err(io_error(&marker))?;
        self.stage = stage;
        Ok(())
    }

    /// Makes a directory that was filled by an import or a joining replica one whose store was restored.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn mark_restored(path: &Path) -> Result<(), DataDirError> {
        Ok(pki::write_secret(&path.join(MARKER), &Stage::Restored.text())?)
    }

    /// Removes what this start has made in a new directory before it was refused, so that the directory may
    /// be used as if it had not been given. Nothing happens where there is anything else.
    ///
    /// # Errors
    /// When it cannot be read, or a file cannot be removed.
    pub fn undo_first_start(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let is_own = name == MARKER || name == files::IDENTITY;
            if !is_own && HARMLESS.iter().all(|harmless| name != *harmless) {
                return Ok(());
            }
        }
        // The marker last: what is beside none would be another program's.
        for name in [files::IDENTITY, MARKER] {
            remove_if_exists(&self.path.join(name))?;
        }
        Ok(())
    }

    /// The directory, if it is Plinth's; none if it is absent or empty.
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
            if names.iter().any(|name| name == RESTORING) {
                check_beside_mark(&path)?;
                return Err(DataDirError::UnfinishedRestore { path });
            }
            if names.iter().any(|name| name == JOINING) {
                return Err(DataDirError::UnfinishedJoin { path });
            }
            if names.iter().all(|name| HARMLESS.iter().any(|harmless| name == harmless)) {
                return Ok(None);
            }
            let store = path.join(STORE);
            let has = |name: &str| exists(&store.join(name)).map_err(io);
            if has("db.restoring")? && !has("db")? {
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
        let stage = Stage::ALL.into_iter().find(|stage| text == stage.text().as_bytes());
        let stage = stage.ok_or_else(|| DataDirError::Incomplete {
            path: marker.clone(),
            problem: "is damaged",
            remedy: format!(
                "If the rest of the directory is whole, write this text to it: {}",
                TITLE.trim_end()
            ),
        })?;
        Ok(Some(DataDir { path, stage, lock: None }))
    }

    /// Fails if the locked directory was replaced by another one: a restore may do that while it is empty.
    fn check_place(&self) -> Result<(), DataDirError> {
        match &self.lock {
            Some(lock) if !is_at(lock, &self.path).map_err(io_error(&self.path))? => {
                Err(DataDirError::Locked { path: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Writes the marker.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn enter(&mut self, stage: Stage) -> Result<(), DataDirError> {
        pki::write_secret(&self.path.join(MARKER), &stage.text())?;
        self.stage = stage;
        Ok(())
    }

    /// Checks that a required store exists and no restore is unfinished; the engine checks its contents.
    fn check_store(&self) -> Result<(), DataDirError> {
        let mark = self.path.join(RESTORING);
        if exists(&mark).map_err(io_error(&mark))? {
            check_beside_mark(&self.path)?;
            return Err(DataDirError::UnfinishedRestore { path: self.path.clone() });
        }
        let store = self.store();
        let io = |source| DataDirError::Io { path: store.clone(), source };
        let there = exists(&store).map_err(io)?;
        if exists(&store.join("db.restoring")).map_err(io)? && !exists(&store.join("db")).map_err(io)? {
            return Err(DataDirError::UnfinishedRestore { path: self.path.clone() });
        }
        if !there && self.replacement().is_interrupted().map_err(io)? {
            return Err(DataDirError::Incomplete {
                path: store,
                problem: "is just being replaced by a new checkpoint",
                remedy: "Start the server, which completes that".to_owned(),
            });
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

    /// What a start may create.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Records that certificates and keys are about to be created.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn making_keys(&mut self) -> Result<(), DataDirError> {
        match self.stage {
            Stage::Restored => self.enter(Stage::Keys),
            _ => Ok(()),
        }
    }

    /// Records that the first start was complete: from now on a missing file is a loss.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn complete(&mut self) -> Result<(), DataDirError> {
        match self.stage {
            Stage::Complete => Ok(()),
            _ => self.enter(Stage::Complete),
        }
    }

    /// The absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the storage engine.
    pub fn store(&self) -> PathBuf {
        self.path.join(STORE)
    }

    /// The replacement of its store by another one.
    pub fn replacement(&self) -> StoreReplacement<'_> {
        StoreReplacement::new(&self.path)
    }

    /// Path of the administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.path.join(ADMIN_KUBECONFIG)
    }

    /// The secret of continue tokens, created if missing: continue tokens become invalid then, and clients
    /// start their lists over.
    ///
    /// # Errors
    /// As [`DataDir::continue_key`], and when it cannot be written.
    pub fn continue_secret(&self) -> Result<[u8; 32], DataDirError> {
        if let Some(secret) = self.continue_key()? {
            return Ok(secret);
        }
        let path = self.path.join(CONTINUE_KEY);
        if self.stage == Stage::Complete {
            tracing::warn!(path = %path.display(), "key of continue tokens was missing, created a new one: clients start lists in progress over");
        }
        let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        let text: String = random.iter().map(|u| u.simple().to_string()).collect();
        // The version bits of a UUID are not random; three UUIDs contain more than 256 random bits.
        pki::write_secret(&path, &text)?;
        Ok(digest(text.as_bytes()))
    }

    /// The secret of continue tokens, if it exists.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged: the rest of it may be known to others.
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
                    "Restore it from a copy, or remove it: a new one is created, and clients start lists in progress over"
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
        assert_eq!(DataDir::open(&path).unwrap().stage(), Stage::New);
        let mut dir = DataDir::open(&path).unwrap();
        assert_eq!(dir.stage(), Stage::New, "a first start that was killed");
        let store = dir.store();
        fs::create_dir(&store).unwrap();
        dir.complete().unwrap();
        drop(dir);
        assert_eq!(fs::read_to_string(path.join(MARKER)).unwrap(), TITLE, "as version 0.1 wrote it");
        assert_eq!(DataDir::open(&path).unwrap().stage(), Stage::Complete);
        fs::remove_dir(&store).unwrap();
        let lost = DataDir::open(&path).unwrap_err().to_string();
        assert!(lost.contains("b/store is missing") && lost.contains("plinth restore"), "{lost}");
        assert!(DataDir::existing(&path).is_err());
        let of_replica = ["replica", "peers"].map(|name| path.join(name));
        for file in &of_replica {
            fs::write(file, "").unwrap();
        }
        let mut dir = DataDir::for_restore(&path).unwrap();
        fs::create_dir_all(store.join("db.restoring")).unwrap();
        let unfinished = || matches!(DataDir::existing(&path), Err(DataDirError::UnfinishedRestore { .. }));
        assert!(unfinished());
        dir.restored().unwrap();
        assert!(!of_replica.iter().any(|file| file.exists()), "a restored store is of no replica");
        assert!(unfinished(), "until the store has its name");
        fs::rename(store.join("db.restoring"), store.join("db")).unwrap();
        assert_eq!(DataDir::existing(&path).unwrap().stage(), Stage::Complete, "its keys stay");
    }

    #[test]
    fn one_process_writes_to_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let mut dir = DataDir::open(&path).unwrap();
        fs::create_dir(dir.store()).unwrap();
        dir.complete().unwrap();
        let in_use = |found: Result<DataDir, DataDirError>| matches!(found, Err(DataDirError::Locked { .. }));
        assert!(in_use(DataDir::open(&path)));
        assert!(in_use(DataDir::for_restore(&path)));
        assert!(in_use(DataDir::for_repair(&path).map(|(dir, _)| dir)));
        assert!(DataDir::existing(&path).is_ok(), "others may read it");
        drop(dir);
        assert_eq!(DataDir::open(&path).unwrap().stage(), Stage::Complete);
        let restoring = DataDir::for_restore(&parent.path().join("restored")).unwrap();
        assert!(in_use(DataDir::open(restoring.path())), "a lock that was taken under another name");
    }

    #[test]
    fn a_store_that_is_in_use_is_never_marked_as_being_restored() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let mut dir = DataDir::open(&path).unwrap();
        fs::create_dir_all(dir.store().join("db")).unwrap();
        dir.complete().unwrap();
        drop(dir);
        let refusal = DataDir::for_restore(&path).unwrap_err();
        assert!(matches!(refusal, DataDirError::HoldsStore { .. }), "{refusal}");
        assert!(!path.join(RESTORING).exists() && path.join("store/db").exists());
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        fs::create_dir_all(path.with_file_name("data.restoring").join("thesis")).unwrap();
        assert!(matches!(DataDir::for_restore(&path), Err(DataDirError::Obstructed { .. })));
        assert!(!path.exists());
    }

    #[test]
    fn a_store_that_comes_back_beside_the_mark_of_a_restore_is_left_alone() {
        for marker in [true, false] {
            for part in ["db", "WATERMARK"] {
                let parent = tempfile::tempdir().unwrap();
                let path = parent.path().join("data");
                let dir = DataDir::for_restore(&path).unwrap();
                let store = dir.store();
                drop(dir);
                if marker {
                    fs::write(path.join(MARKER), TITLE).unwrap();
                }
                fs::create_dir_all(&store).unwrap();
                match part {
                    "db" => fs::create_dir(store.join(part)).unwrap(),
                    _ => fs::write(store.join(part), "").unwrap(),
                }
                let found = [
                    DataDir::open(&path).map(drop),
                    DataDir::existing(&path).map(drop),
                    DataDir::for_repair(&path).map(drop),
                    DataDir::for_restore(&path).map(drop),
                ];
                for found in found {
                    let refusal = found.unwrap_err().to_string();
                    assert!(refusal.contains("remove the file") && refusal.contains(part), "{refusal}");
                }
                assert!(store.join(part).exists() && path.join(RESTORING).exists());
                assert_eq!(fs::read_dir(&store).unwrap().count(), 1);
            }
        }
    }

    #[test]
    fn a_path_makes_one_directory() {
        let parent = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs::read_dir(parent.path()).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        for (path, expected) in [("a/.", "a"), ("absent/../b", "b"), ("a/../c/./", "c"), ("x/y/../../d", "d")]
        {
            let dir = DataDir::for_restore(&parent.path().join(path)).unwrap();
            assert_eq!(dir.path(), parent.path().canonicalize().unwrap().join(expected), "{path}");
        }
        assert_eq!(names(), ["a", "b", "c", "d"]);
        assert_eq!(DataDir::open(&parent.path().join("absent/../e/.")).unwrap().stage(), Stage::New);
        assert_eq!(names(), ["a", "b", "c", "d", "e"]);
        std::os::unix::fs::symlink(parent.path().join("a"), parent.path().join("link")).unwrap();
        let linked = normalized(&parent.path().join("link/../f")).unwrap();
        assert_eq!(linked, parent.path().join("link/../f"));
        assert_eq!(normalized(Path::new("absent/..")).unwrap(), Path::new("."));
    }

    #[test]
    fn a_restored_directory_may_get_keys_and_no_store() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let refused = || matches!(DataDir::open(&path), Err(DataDirError::UnfinishedRestore { .. }));
        let store = DataDir::for_restore(&path).unwrap().store();
        assert!(!path.join(MARKER).exists(), "without a marker until it is restored");
        assert!(!path.with_file_name("data.restoring").exists());
        assert!(refused(), "with nothing in it but the mark");
        fs::create_dir_all(store.join("db.restoring")).unwrap();
        assert!(refused());
        assert!(DataDir::for_restore(&path).is_ok(), "it can be restored again");
        let mut dir = DataDir::for_restore(&path).unwrap();
        dir.restored().unwrap();
        drop(dir);
        assert!(refused(), "the store lacks its name");
        let mut dir = DataDir::for_restore(&path).unwrap();
        dir.restored().unwrap();
        drop(dir);
        fs::rename(store.join("db.restoring"), store.join("db")).unwrap();
        let mut dir = DataDir::open(&path).unwrap();
        assert_eq!(dir.stage(), Stage::Restored);
        dir.making_keys().unwrap();
        drop(dir);
        let mut dir = DataDir::open(&path).unwrap();
        assert_eq!(dir.stage(), Stage::Keys);
        fs::rename(&store, path.join("elsewhere")).unwrap();
        assert!(DataDir::existing(&path).is_err());
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
