//! The data directory: what lies where, whether it is ours, and what a start may make in it.
//!
//! ```text
//! DIR/plinth            marker: this directory is Plinth's, and what may still be made in it
//! DIR/plinth.restoring  a backup is being restored; becomes the marker when all of it is, before the store gets its name
//! DIR/store/            the storage engine
//! DIR/pki/              certificates and keys
//! DIR/continue.key      secret of continue tokens, mode 0600
//! DIR/admin.kubeconfig  for kubectl, mode 0600
//! ```
//!
//! A start makes a store and an authority only where there has never been one: the marker says so ([`Stage`]). In a directory whose
//! first start was complete, a missing store or key is a loss, and the start is refused. Only "not found" counts as absence; whatever
//! else keeps a file from being seen is an error.
//!
//! Whoever writes to the directory holds a lock on it (`flock`), taken before the first look and kept until the [`DataDir`] is dropped:
//! what was found stays true. A restore marks the directory before it makes anything else in it, and makes one that was absent
//! under the name `DIR.restoring`, mark included: so wherever it is killed, a start finds no directory or the mark. The mark is gone
//! before there is a database with its name: one beside the mark is none that a restore made, and is left alone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::files::{create_durably, exists, is_at, sync_parent};
use super::pki::{self, PkiError};

const MARKER: &str = "plinth";
/// Marks a directory whose restore has not finished.
const RESTORING: &str = "plinth.restoring";
const STORE: &str = "store";
const CONTINUE_KEY: &str = "continue.key";
/// First line of the marker, and all of it in a directory whose first start was complete.
const TITLE: &str = "This directory holds the data of a plinth server.\n";
/// Names in a directory that is none of ours yet: a mount point brings the first with it, a first start that was killed leaves
/// the second.
const HARMLESS: [&str; 2] = ["lost+found", "plinth.new"];

/// How often a lock is tried before the directory counts as in use, and how far apart: a process that is just being started elsewhere in
/// this program holds copies of all open files for a moment, and with them a lock that was released meanwhile.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

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

    /// The text of the marker.
    fn text(self) -> String {
        format!("{TITLE}{}", self.line())
    }
}

/// A data directory that was found to be ours or empty.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
    stage: Stage,
    /// The directory, open and locked; none when it is only read.
    lock: Option<Arc<File>>,
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
    /// Another process writes to it.
    #[error("data directory {path} is in use by another process; stop the server that uses it first")]
    Locked {
        /// The directory.
        path: PathBuf,
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
    /// A backup is to be restored where a store is.
    #[error("{path} holds a store already, and a backup is never restored over one; give --data-dir a new or empty directory")]
    HoldsStore {
        /// The directory.
        path: PathBuf,
    },
    /// The name under which a restore makes its directory is taken.
    #[error("{path} is in the way: a restore makes its directory under that name first, and there are other files in it\nMove it away, or give another --data-dir")]
    Obstructed {
        /// The directory.
        path: PathBuf,
    },
    /// A restore into it was not finished.
    #[error(
        "cannot use data directory: the restore into {path} did not finish\nRun plinth restore again with the same --data-dir; \
         if a store belongs into it that is away, put that back first"
    )]
    UnfinishedRestore {
        /// The directory.
        path: PathBuf,
    },
    /// A restore into it was not finished, and a store is there: one that was away meanwhile.
    #[error(
        "cannot use data directory: {mark} says that a restore did not finish, and {part} belongs to a store that it did not make; nothing \
         was changed\nIf the store is yours, remove the file {mark}. To restore a backup, run plinth restore with a new or empty --data-dir"
    )]
    StoreBesideMark {
        /// The mark of the restore.
        mark: PathBuf,
        /// What is there of the store.
        part: PathBuf,
    },
    /// A backup cannot be restored over its store.
    #[error(transparent)]
    Store(#[from] plinth_engine::Error),
    /// A secret that cannot be written.
    #[error(transparent)]
    Secret(#[from] PkiError),
}

impl DataDir {
    /// Makes the directory, or checks that it is ours and whole. It is locked until the value is dropped.
    ///
    /// # Errors
    /// See [`DataDirError`]; then nothing was changed.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let path = &normalized(path)?;
        create_durably(path).map_err(io_error(path))?;
        let lock = lock(path)?;
        match DataDir::find(path)? {
            Some(mut dir) => {
                dir.lock = Some(lock);
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

    /// A directory that a backup can be restored into: empty, absent, or without a store. It is marked as being restored, and
    /// locked until the value is dropped; [`DataDir::restored`] makes it usable.
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
            if exists(&database).map_err(io_error(&database))? {
                return Err(DataDirError::HoldsStore { path: dir.path });
            }
            plinth_engine::check_restorable(dir.store())?;
            make_mark(&dir.path)?;
            dir.check_place()?;
        }
        Ok(dir)
    }

    /// A directory that a repair can be tried on, and what is wrong with its marker.
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

    /// Says that a backup was restored: the next start may make certificates and keys, but no store.
    ///
    /// # Errors
    /// When the marker cannot be written.
    pub fn restored(&mut self) -> Result<(), DataDirError> {
        let stage = match self.stage {
            // Its certificates and keys stay what they are.
            Stage::Complete => Stage::Complete,
            _ => Stage::Restored,
        };
        let (mark, marker) = (self.path.join(RESTORING), self.path.join(MARKER));
        let write = || -> io::Result<()> {
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
            if names.iter().any(|name| name == RESTORING) {
                check_beside_mark(&path)?;
                return Err(DataDirError::UnfinishedRestore { path });
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

    /// Refuses to go on in a directory that took the place of the locked one: a restore may have done so as long as there was
    /// nothing in it.
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

    /// Where a store must be, one is, and no restore is unfinished; whether it is whole is for the engine to say.
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

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> DataDirError + '_ {
    |source| DataDirError::Io { path: path.to_owned(), source }
}

/// A path without `.`, and without `NAME/..` where there is no NAME: to make the directory that it leads to takes nothing else. A
/// NAME that is there may be a link, and `..` then leads out of where that leads.
fn normalized(path: &Path) -> Result<PathBuf, DataDirError> {
    let mut out = PathBuf::new();
    for component in path.components() {
        let is_below_nothing = matches!(component, Component::ParentDir)
            && matches!(out.components().next_back(), Some(Component::Normal(_)))
            && !exists(&out).map_err(io_error(&out))?;
        match is_below_nothing {
            true => drop(out.pop()),
            false => out.push(component),
        }
    }
    match out.as_os_str().is_empty() {
        true => Ok(PathBuf::from(".")),
        false => Ok(out),
    }
}

/// Locks the directory that is at `path`. Nothing is made in it for that, so it can be somebody else's.
fn lock(path: &Path) -> Result<Arc<File>, DataDirError> {
    for attempt in 1.. {
        let dir = File::open(path).map_err(io_error(path))?;
        match dir.try_lock() {
            // Not every file system locks directories (NFS does not). There the engine's lock on a file has to do.
            Ok(()) | Err(TryLockError::Error(_)) if is_at(&dir, path).map_err(io_error(path))? => {
                return Ok(Arc::new(dir));
            }
            _ if attempt < LOCK_ATTEMPTS => std::thread::park_timeout(LOCK_PAUSE),
            _ => break,
        }
    }
    Err(DataDirError::Locked { path: path.to_owned() })
}

/// Makes an absent directory, marked as being restored: under a name of its own, so that at no time there is an unmarked one.
fn make_marked(path: &Path) -> Result<Arc<File>, DataDirError> {
    let Some(name) = path.file_name() else {
        create_durably(path).map_err(io_error(path))?;
        return lock(path);
    };
    let mut unfinished = name.to_owned();
    unfinished.push(".restoring");
    let unfinished = path.with_file_name(unfinished);
    create_durably(&unfinished).map_err(io_error(&unfinished))?;
    let lock = lock(&unfinished)?;
    for entry in fs::read_dir(&unfinished).map_err(io_error(&unfinished))? {
        if entry.map_err(io_error(&unfinished))?.file_name() != RESTORING {
            return Err(DataDirError::Obstructed { path: unfinished });
        }
    }
    make_mark(&unfinished)?;
    fs::rename(&unfinished, path).and_then(|()| sync_parent(path)).map_err(io_error(path))?;
    Ok(lock)
}

/// Refuses a directory that is marked as being restored and in which a store is: what a restore leaves until the mark is gone is none
/// that another one would refuse.
fn check_beside_mark(dir: &Path) -> Result<(), DataDirError> {
    match plinth_engine::check_restorable(dir.join(STORE)) {
        Err(plinth_engine::Error::Incomplete { path: part, .. }) => {
            Err(DataDirError::StoreBesideMark { mark: dir.join(RESTORING), part })
        }
        checked => Ok(checked?),
    }
}

/// Marks a directory as being restored. The name is all that counts, so there is nothing between with it and without.
fn make_mark(dir: &Path) -> Result<(), DataDirError> {
    let mark = dir.join(RESTORING);
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&mark)
        .and_then(|_| sync_parent(&mark))
        .map_err(io_error(&mark))
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
        let mut dir = DataDir::for_restore(&path).unwrap();
        fs::create_dir_all(store.join("db.restoring")).unwrap();
        let unfinished = || matches!(DataDir::existing(&path), Err(DataDirError::UnfinishedRestore { .. }));
        assert!(unfinished());
        dir.restored().unwrap();
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
        assert!(!path.join(MARKER).exists(), "until it is restored it is nobody's");
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
