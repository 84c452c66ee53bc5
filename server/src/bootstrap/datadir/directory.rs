//! Paths, locks and restore marks of data directories.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::error::DataDirError;
use crate::bootstrap::files::{create_durably, exists, is_at, sync_parent};

/// Marks a directory whose restore has not finished.
pub(super) const RESTORING: &str = "plinth.restoring";
pub(super) const STORE: &str = "store";

/// Attempts to lock before the directory counts as in use, and their interval: a child process that is just
/// being spawned by this program briefly holds copies of all open files, including a lock that was released
/// meanwhile.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> DataDirError + '_ {
    |source| DataDirError::Io { path: path.to_owned(), source }
}

/// Removes `.` from a path, and `NAME/..` where NAME does not exist: creating the result creates no other
/// directory. An existing NAME may be a link, and `..` is then relative to its target.
pub(super) fn normalized(path: &Path) -> Result<PathBuf, DataDirError> {
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

/// Locks the directory at `path`. Nothing is created in it, since it may belong to another program.
pub(super) fn lock(path: &Path) -> Result<Arc<File>, DataDirError> {
    for attempt in 1.. {
        let dir = File::open(path).map_err(io_error(path))?;
        match dir.try_lock() {
            // Not every file system can lock directories (NFS cannot). There the engine's lock on a file has
            // to suffice.
            Ok(()) | Err(TryLockError::Error(_)) if is_at(&dir, path).map_err(io_error(path))? => {
                return Ok(Arc::new(dir));
            }
            _ if attempt < LOCK_ATTEMPTS => std::thread::park_timeout(LOCK_PAUSE),
            _ => break,
        }
    }
    Err(DataDirError::Locked { path: path.to_owned() })
}

/// Creates an absent directory, marked as being restored: under a temporary name, so that there is never an
/// unmarked one.
pub(super) fn make_marked(path: &Path) -> Result<Arc<File>, DataDirError> {
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

/// Fails if a directory that is marked as being restored contains a store: an unfinished restore does not
/// leave one.
pub(super) fn check_beside_mark(dir: &Path) -> Result<(), DataDirError> {
    match plinth_engine::check_restorable(dir.join(STORE)) {
        Err(plinth_engine::Error::Incomplete { path: part, .. }) => {
            Err(DataDirError::StoreBesideMark { mark: dir.join(RESTORING), part })
        }
        checked => Ok(checked?),
    }
}

/// Marks a directory as being restored. Only the existence of the file matters, so its creation is atomic.
pub(super) fn make_mark(dir: &Path) -> Result<(), DataDirError> {
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
