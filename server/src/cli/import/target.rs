//! The data directory that an import makes: absent or whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::error::ImportCommandError;
use crate::bootstrap::files::{create_durably, exists, remove_if_exists, sync_parent};
use crate::bootstrap::DataDir;
use plinth_apiserver::private_files;

/// Suffix of the directory while it is made, beside its place.
const SUFFIX: &str = ".importing";
/// Marks such a directory, so that the next import may remove it.
const MARK: &str = "plinth.importing";
/// Files for what was read from etcd.
const SPOOLS: [&str; 2] = ["etcd.spool", "etcd.last"];

/// A data directory under another name, removed when it is dropped unfinished.
pub(super) struct NewDataDir {
    path: PathBuf,
    unfinished: PathBuf,
    /// The directory, open and locked.
    _lock: File,
    is_finished: bool,
}

impl NewDataDir {
    /// Begins a directory for `path`, which must not exist. What a killed import left is removed.
    pub(super) fn new(path: &Path) -> Result<NewDataDir, ImportCommandError> {
        let io = |source| ImportCommandError::File { path: path.to_owned(), source };
        if exists(path).map_err(io)? {
            return Err(ImportCommandError::Exists { path: path.to_owned() });
        }
        let Some(name) = path.file_name() else {
            return Err(io(io::Error::from(ErrorKind::InvalidInput)));
        };
        let mut unfinished_name = name.to_owned();
        unfinished_name.push(SUFFIX);
        let unfinished = path.with_file_name(unfinished_name);
        let io = |source| ImportCommandError::File { path: unfinished.clone(), source };
        remove_abandoned(&unfinished)?;
        create_durably(&unfinished).map_err(io)?;
        let lock = File::open(&unfinished).map_err(io)?;
        if lock.try_lock().is_err() {
            return Err(ImportCommandError::Busy { path: unfinished });
        }
        new_file(&unfinished.join(MARK)).map_err(io)?;
        Ok(NewDataDir { path: path.to_owned(), unfinished, _lock: lock, is_finished: false })
    }

    /// Where the store is made.
    pub(super) fn store(&self) -> PathBuf {
        self.unfinished.join("store")
    }

    /// A new file for what is read from etcd: the first time, and at the end.
    pub(super) fn spool(&self, is_last: bool) -> Result<(File, PathBuf), ImportCommandError> {
        let path = self.unfinished.join(SPOOLS[usize::from(is_last)]);
        let file =
            new_file(&path).map_err(|source| ImportCommandError::File { path: path.clone(), source })?;
        Ok((file, path))
    }

    /// Where a copy of a source may be made, which is removed before the end.
    pub(super) fn scratch(&self) -> PathBuf {
        self.unfinished.join("scratch")
    }

    /// Gives the directory its name. The store is closed.
    pub(super) fn finish(mut self) -> Result<(), ImportCommandError> {
        for name in SPOOLS {
            remove_file(&self.unfinished.join(name))?;
        }
        DataDir::mark_restored(&self.unfinished)?;
        remove_file(&self.unfinished.join(MARK))?;
        let io = |source| ImportCommandError::File { path: self.path.clone(), source };
        private_files::narrow(&self.unfinished).map_err(io)?;
        if exists(&self.path).map_err(io)? {
            return Err(ImportCommandError::Exists { path: self.path.clone() });
        }
        fs::rename(&self.unfinished, &self.path).and_then(|()| sync_parent(&self.path)).map_err(io)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewDataDir {
    fn drop(&mut self) {
        if !self.is_finished {
            // What cannot be removed now is removed by the next import.
            let _ = fs::remove_dir_all(&self.unfinished);
        }
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

fn remove_file(path: &Path) -> Result<(), ImportCommandError> {
    let removed = remove_if_exists(path);
    removed.map(drop).map_err(|source| ImportCommandError::File { path: path.to_owned(), source })
}

/// Removes the directory of an import that was killed. One that another import has locked, or that has not
/// the mark, is left alone.
fn remove_abandoned(path: &Path) -> Result<(), ImportCommandError> {
    let io = |source| ImportCommandError::File { path: path.to_owned(), source };
    if !exists(path).map_err(io)? {
        return Ok(());
    }
    let lock = File::open(path).map_err(io)?;
    if lock.try_lock().is_err() {
        return Err(ImportCommandError::Busy { path: path.to_owned() });
    }
    let is_empty = fs::read_dir(path).map_err(io)?.next().is_none();
    if !is_empty && !exists(&path.join(MARK)).map_err(io)? {
        return Err(ImportCommandError::Obstructed { path: path.to_owned() });
    }
    fs::remove_dir_all(path).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_absent_or_whole() {
        let parent = tempfile::tempdir().unwrap();
        let (path, unfinished) = (parent.path().join("data"), parent.path().join("data.importing"));
        let target = NewDataDir::new(&path).unwrap();
        target.spool(false).unwrap();
        assert!(matches!(NewDataDir::new(&path), Err(ImportCommandError::Busy { .. })));
        drop(target);
        assert!(!path.exists() && !unfinished.exists());

        // What a killed import leaves.
        let target = NewDataDir::new(&path).unwrap();
        fs::create_dir(target.store()).unwrap();
        std::mem::forget(target.spool(true).unwrap());
        let kept = parent.path().join("copy");
        fs::rename(&unfinished, &kept).unwrap();
        drop(target);
        fs::rename(&kept, &unfinished).unwrap();
        let target = NewDataDir::new(&path).unwrap();
        fs::create_dir(target.store()).unwrap();
        target.finish().unwrap();
        assert!(path.join("store").exists() && !unfinished.exists());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2, "the store and the marker");
        assert!(matches!(NewDataDir::new(&path), Err(ImportCommandError::Exists { .. })));
    }

    #[test]
    fn what_is_not_of_an_import_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let (path, unfinished) = (parent.path().join("data"), parent.path().join("data.importing"));
        fs::create_dir_all(unfinished.join("thesis")).unwrap();
        assert!(matches!(NewDataDir::new(&path), Err(ImportCommandError::Obstructed { .. })));
        assert!(unfinished.join("thesis").exists());
    }
}
