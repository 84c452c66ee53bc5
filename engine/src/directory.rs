//! The data directory: its layout, its states, and the steps that create it.
//!
//! ```text
//! DIR/PLINTH        marker: format version; written when creation or a restore is complete
//! DIR/RESERVE       room for deletions on a full disk (`reserve.rs`)
//! DIR/LOCK          locked by the process that uses the directory, like the directory itself and `db`
//! DIR/db/           the RocksDB database
//! DIR/db.creating/  a database whose creation has not finished; nothing in it was ever acknowledged
//! DIR/db.restoring/ a database that an archive is being restored into
//! DIR/db.viewing/   view of the database, where there is no directory for temporary files
//! ```
//!
//! A database is renamed to `db` by the last step of its creation or restore. So an unfinished one is
//! recognized by its name, and `db` without the marker, or the marker without `db`, is never the result of a
//! crash: it is refused, and nothing is removed. Only "not found" from the system counts as absence; any
//! other failure is an error.

use std::fs::{self, DirBuilder, File, FileType, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::layout::FORMAT_VERSION;

/// Marks a data directory; written when creation is complete.
pub(crate) const MARKER: &str = "PLINTH";
/// The marker while it is being written.
const MARKER_PART: &str = "PLINTH.part";
/// Locked by the process that has the directory open.
const LOCK: &str = "LOCK";
/// Version 0.1 wrote this while it restored an archive into `db` itself.
const OLD_RESTORING: &str = "RESTORING";
/// The durable watermark (`watermark.rs`).
pub(crate) const WATERMARK: &str = "WATERMARK";
/// The room for deletions on a full disk (`reserve.rs`).
pub(crate) const RESERVE: &str = "RESERVE";
/// The RocksDB database.
pub(crate) const DATABASE: &str = "db";
/// The database while it is being created.
pub(crate) const CREATING: &str = "db.creating";
/// The database while an archive is being restored into it.
pub(crate) const RESTORING: &str = "db.restoring";
/// The view of the database that a repair reads.
pub(crate) const REPAIRING: &str = "db.repairing";
/// A view of the database, for a start that cannot create it in the directory for temporary files. The next
/// start removes one that was left by a killed process.
pub(crate) const VIEWING: &str = "db.viewing";
/// The database that a repair has built, before it replaces the old one.
pub(crate) const REPAIRED: &str = "db.repaired";
/// A directory that file systems create at a mount point.
const LOST_FOUND: &str = "lost+found";

/// What a data directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryState {
    /// Nothing that was ever acknowledged: no files, or a creation that did not finish.
    Empty,
    /// Marker and database.
    Complete,
}

/// The file type of `path`, links followed; none when it does not exist. A dangling link is an error.
pub(crate) fn kind(path: &Path) -> Result<Option<FileType>> {
    let io = |e| Error::io(format!("reading metadata of {}", path.display()), e);
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Ok(Some(fs::metadata(path).map_err(io)?.file_type())),
        Ok(found) => Ok(Some(found.file_type())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(error)),
    }
}

/// Whether `path` exists, dangling links included.
pub(crate) fn has_entry(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(format!("reading metadata of {}", path.display()), error)),
    }
}

/// Suffix of a link that is about to replace another one.
const LINK_PART: &str = ".link";

/// Replaces `path`, if it is a relative link, by an absolute one, so that it can be moved. The link exists at
/// all times.
pub(crate) fn make_link_absolute(path: &Path) -> Result<()> {
    let io = |e| Error::io(format!("making the link {} absolute", path.display()), e);
    match fs::read_link(path) {
        Ok(target) if target.is_absolute() => return Ok(()),
        Ok(_) => {}
        // Not a link.
        Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(()),
        Err(error) => return Err(io(error)),
    }
    let mut part = path.as_os_str().to_owned();
    part.push(LINK_PART);
    let part = PathBuf::from(part);
    match fs::remove_file(&part) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    std::os::unix::fs::symlink(path.canonicalize().map_err(io)?, &part).map_err(io)?;
    rename(&part, path)
}

/// Determines the state of `dir`, or why it must not be opened. Changes nothing.
pub(crate) fn inspect(dir: &Path) -> Result<DirectoryState> {
    let at = |name: &str| kind(&dir.join(name));
    let incomplete = |missing: &str, reason| {
        Err(Error::Incomplete { dir: dir.to_owned(), path: dir.join(missing), reason })
    };
    match kind(dir)? {
        None => return Ok(DirectoryState::Empty),
        Some(found) if !found.is_dir() => return incomplete("", "it is not a directory"),
        Some(_) => {}
    }
    let (marker, database) = (at(MARKER)?, at(DATABASE)?);
    match (marker, database) {
        (Some(marker), _) if !marker.is_file() => incomplete(MARKER, "it is not a file"),
        (_, Some(database)) if !database.is_dir() => incomplete(DATABASE, "it is not a directory"),
        (Some(_), Some(_)) => {
            check_format(dir)?;
            Ok(DirectoryState::Complete)
        }
        // The marker is written before the database is renamed.
        (_, None) if at(RESTORING)?.is_some() => Err(Error::UnfinishedRestore { dir: dir.to_owned() }),
        (_, None) if at(REPAIRED)?.is_some() => incomplete(DATABASE, "a repair did not finish"),
        (Some(_), None) if at(CREATING)?.is_some() => Ok(DirectoryState::Empty),
        (Some(_), None) => incomplete(DATABASE, "it is missing"),
        (None, Some(_)) if at(OLD_RESTORING)?.is_some() => {
            Err(Error::UnfinishedRestore { dir: dir.to_owned() })
        }
        (None, Some(_)) => incomplete(MARKER, "it is missing beside the database"),
        (None, None) => {
            at(CREATING)?;
            only(dir, &[LOCK, MARKER_PART, CREATING, LOST_FOUND])?;
            Ok(DirectoryState::Empty)
        }
    }
}

/// Refuses a directory that [`crate::restore`] would refuse: one that holds anything but an unfinished
/// restore. Changes nothing.
///
/// # Errors
/// [`Error::Incomplete`] when it holds part of a store, [`Error::Foreign`] when it holds something else, or
/// [`Error::Io`] when it cannot be read.
pub fn check_restorable(dir: impl AsRef<Path>) -> Result<()> {
    let dir = dir.as_ref();
    if kind(dir)?.is_none() {
        return Ok(());
    }
    // A restore creates none of these before its last step: those of another store would be mixed with the
    // restored one, or deleted.
    for name in [DATABASE, WATERMARK, REPAIRED] {
        let path = dir.join(name);
        if kind(&path)?.is_some() {
            let reason = "it belongs to another store; restore into an empty directory";
            return Err(Error::Incomplete { dir: dir.to_owned(), path, reason });
        }
    }
    match kind(&dir.join(RESTORING))? {
        Some(_) => only(dir, &[LOCK, MARKER, MARKER_PART, CREATING, RESTORING, LOST_FOUND]),
        None => only(dir, &[LOCK, MARKER_PART, LOST_FOUND]),
    }
}

/// Refuses a directory that holds anything but the given names.
fn only(dir: &Path, names: &[&str]) -> Result<()> {
    let io = |e| Error::io(format!("reading {}", dir.display()), e);
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if !names.iter().any(|known| name == *known) {
            return Err(Error::Foreign { dir: dir.to_owned() });
        }
    }
    Ok(())
}

/// Creates the directory and its parents, durably.
pub(crate) fn create(dir: &Path) -> Result<()> {
    if kind(dir)?.is_some() {
        return Ok(());
    }
    let io = |e| Error::io(format!("creating {}", dir.display()), e);
    if let Some(parent) = parent(dir) {
        create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(io(error)),
        _ => {}
    }
    sync_parent(dir)
}

fn parent(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Syncs a directory.
pub(crate) fn sync(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| Error::io(format!("syncing directory {}", dir.display()), e))
}

/// Syncs the parent directory of `path`.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    sync(parent(path).unwrap_or(Path::new(".")))
}

/// Renames a file or directory within its directory, durably.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to)
        .map_err(|e| Error::io(format!("renaming {} to {}", from.display(), to.display()), e))?;
    sync_parent(to)
}

/// Whether `dir` has a database that can be repaired.
pub(crate) fn repairable(dir: &Path) -> Result<bool> {
    match inspect(dir) {
        Ok(DirectoryState::Complete) => Ok(true),
        Ok(DirectoryState::Empty) => Ok(false),
        Err(Error::Incomplete { .. }) => {
            Ok(kind(&dir.join(DATABASE))?.is_some() || kind(&dir.join(REPAIRED))?.is_some())
        }
        Err(error) => Err(error),
    }
}

/// Creates the directory of an unfinished database, or empties it. The directory exists at all times: its
/// name keeps others from creating a store.
pub(crate) fn clear_unfinished(database: &Path) -> Result<()> {
    create(database)?;
    let io = |e| Error::io(format!("emptying {}", database.display()), e);
    for entry in fs::read_dir(database).map_err(io)? {
        let entry = entry.map_err(io)?;
        match entry.file_type().map_err(io)?.is_dir() {
            true => fs::remove_dir_all(entry.path()).map_err(io)?,
            false => fs::remove_file(entry.path()).map_err(io)?,
        }
    }
    Ok(())
}

/// Removes the marker of a directory whose database is unfinished.
pub(crate) fn remove_marker(dir: &Path) -> Result<()> {
    let marker = dir.join(MARKER);
    match fs::remove_file(&marker) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", marker.display()), error))
        }
        _ => Ok(()),
    }
}

/// Removes an unfinished database, which is recognized by its name.
pub(crate) fn remove_unfinished(database: &Path) -> Result<()> {
    debug_assert!(database.file_name().is_some_and(|name| name != DATABASE));
    match fs::remove_dir_all(database) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", database.display()), error))
        }
        _ => Ok(()),
    }
}

/// Attempts to take the lock before the directory counts as in use, and the pause between them.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// The exclusive lock on a data directory, held until the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    /// The directory itself.
    directory: Arc<File>,
    /// The database in it, once it exists.
    database: Option<Arc<File>>,
    _file: Arc<File>,
}

/// Takes the exclusive lock on the directory: on the directory itself, so that a replaced directory is
/// detected, and on the file `LOCK` in it, which is all that versions up to 0.1 lock.
pub(crate) fn lock(dir: &Path) -> Result<Lock> {
    let directory = lock_directory(dir, dir)?;
    let path = dir.join(LOCK);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| Error::io(format!("opening {}", path.display()), e))?;
    match try_lock(&file) {
        Ok(()) => Ok(Lock { directory: Arc::new(directory), database: None, _file: Arc::new(file) }),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(Error::io(format!("locking {}", path.display()), e)),
    }
}

impl Lock {
    /// Also locks the database in `dir`: links in two data directories may lead to one database.
    pub(crate) fn and_database(self, dir: &Path) -> Result<Lock> {
        let database = lock_directory(&dir.join(DATABASE), dir)?;
        Ok(Lock { database: Some(Arc::new(database)), ..self })
    }

    /// Whether `dir` and the database in it are still the directories that were locked.
    ///
    /// # Errors
    /// A description of what was moved or replaced.
    pub(crate) fn check_not_moved(&self, dir: &Path) -> std::result::Result<(), String> {
        let is_in_place = |held: &File, path: &Path| -> std::io::Result<bool> {
            let (held, found) = (held.metadata()?, fs::metadata(path)?);
            Ok((held.dev(), held.ino()) == (found.dev(), found.ino()))
        };
        let database = self.database.as_ref().map(|database| (database, dir.join(DATABASE)));
        for (held, path) in [(&self.directory, dir.to_owned())].into_iter().chain(database) {
            match is_in_place(held, &path) {
                Ok(true) => {}
                Ok(false) => return Err(format!("{} was replaced by another directory", path.display())),
                Err(error) => return Err(format!("{} could not be found: {error}", path.display())),
            }
        }
        Ok(())
    }
}

/// Locks a directory, which belongs to the data directory `dir`.
fn lock_directory(path: &Path, dir: &Path) -> Result<File> {
    let directory = File::open(path).map_err(|e| Error::io(format!("opening {}", path.display()), e))?;
    match try_lock(&directory) {
        Err(TryLockError::WouldBlock) => Err(Error::Locked { dir: dir.to_owned() }),
        // Not every file system locks directories (NFS does not): then the file `LOCK` alone decides.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(directory),
    }
}

/// Locks a file or directory unless another process holds the lock. A process that another thread is just
/// starting inherits all open files for a moment, and with them a lock that was released meanwhile; so it is
/// tried several times.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::park_timeout(LOCK_PAUSE),
            decided => return decided,
        }
    }
    file.try_lock()
}

/// Creates a file that only its owner can read.
pub(crate) fn create_file(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(true).write(true).mode(0o600).open(path)
}

/// Writes the marker, durably.
pub(crate) fn write_marker(dir: &Path) -> Result<()> {
    let write = || -> std::io::Result<PathBuf> {
        let part = dir.join(MARKER_PART);
        let mut file = create_file(&part)?;
        writeln!(file, "{MARKER_TEXT}{FORMAT_VERSION}")?;
        file.sync_all()?;
        Ok(part)
    };
    let part = write().map_err(|e| Error::io(format!("writing the marker of {}", dir.display()), e))?;
    rename(&part, &dir.join(MARKER))
}

const MARKER_TEXT: &str = "plinth-engine format ";

/// Reads the marker and refuses other format versions.
fn check_format(dir: &Path) -> Result<()> {
    let marker = dir.join(MARKER);
    let text = fs::read(&marker).map_err(|e| Error::io(format!("reading {}", marker.display()), e))?;
    let found = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.strip_suffix('\n')?.strip_prefix(MARKER_TEXT)?.parse().ok());
    match found {
        Some(FORMAT_VERSION) => Ok(()),
        Some(found) => Err(Error::FormatVersion { found, expected: FORMAT_VERSION }),
        None => Err(Error::Incomplete {
            dir: dir.to_owned(),
            path: marker,
            reason: "it does not name a format version",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            match *name {
                MARKER => write_marker(dir.path()).unwrap(),
                DATABASE | CREATING | RESTORING | VIEWING => fs::create_dir(dir.path().join(name)).unwrap(),
                name => fs::write(dir.path().join(name), "").unwrap(),
            }
        }
        dir
    }

    #[test]
    fn only_what_was_never_acknowledged_counts_as_empty() {
        for (names, expected) in [
            (&[][..], "Ok(Empty)"),
            (&[LOCK, LOST_FOUND], "Ok(Empty)"),
            (&[LOCK, MARKER_PART, CREATING], "Ok(Empty)"),
            (&[LOCK, MARKER, CREATING], "Ok(Empty)"),
            (&[LOCK, MARKER, DATABASE], "Ok(Complete)"),
            (&[LOCK, MARKER, DATABASE, CREATING], "Ok(Complete)"),
            (&[LOCK, MARKER, DATABASE, VIEWING], "Ok(Complete)"),
            (&[LOCK, MARKER, VIEWING], "Err(Incomplete"),
            (&[LOCK, VIEWING], "Err(Foreign"),
            (&[LOCK, MARKER, DATABASE, OLD_RESTORING], "Ok(Complete)"),
            (&[LOCK, DATABASE], "Err(Incomplete"),
            (&[DATABASE, CREATING], "Err(Incomplete"),
            (&[LOCK, MARKER], "Err(Incomplete"),
            (&[LOCK, RESTORING], "Err(UnfinishedRestore"),
            (&[LOCK, MARKER, RESTORING], "Err(UnfinishedRestore"),
            (&[LOCK, MARKER, CREATING, RESTORING], "Err(UnfinishedRestore"),
            (&[LOCK, OLD_RESTORING, DATABASE], "Err(UnfinishedRestore"),
            (&[LOCK, OLD_RESTORING], "Err(Foreign"),
            (&["thesis.txt"], "Err(Foreign"),
        ] {
            let dir = with(names);
            let state = format!("{:?}", inspect(dir.path()));
            assert!(state.starts_with(expected), "{names:?}: {state}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), names.len(), "{names:?}");
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_absent() {
        for name in [MARKER, DATABASE, CREATING, RESTORING] {
            for rest in [&[MARKER, DATABASE][..], &[MARKER], &[DATABASE], &[]] {
                let rest: Vec<&str> = rest.iter().filter(|other| **other != name).copied().collect();
                let dir = with(&rest);
                // A link to itself: the error of the system is not "not found".
                std::os::unix::fs::symlink(name, dir.path().join(name)).unwrap();
                let state = inspect(dir.path());
                if rest == [MARKER, DATABASE] {
                    assert!(
                        matches!(state, Ok(DirectoryState::Complete)),
                        "{name} is of no interest: {state:?}"
                    );
                } else {
                    assert!(state.is_err(), "{name} beside {rest:?}: {state:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_of_a_store_is_restored_over() {
        for (names, expected) in [
            (&[][..], "Ok("),
            (&[LOCK, LOST_FOUND], "Ok("),
            (&[LOCK, RESTORING], "Ok("),
            (&[LOCK, MARKER, MARKER_PART, RESTORING], "Ok("),
            (&[LOCK, MARKER, DATABASE], "Err(Incomplete"),
            (&[LOCK, MARKER, DATABASE, RESTORING], "Err(Incomplete"),
            (&[LOCK, RESTORING, WATERMARK], "Err(Incomplete"),
            (&[LOCK, MARKER, WATERMARK], "Err(Incomplete"),
            (&[LOCK, MARKER], "Err(Foreign"),
            (&[RESTORING, "thesis.txt"], "Err(Foreign"),
        ] {
            let dir = with(names);
            let found = format!("{:?}", check_restorable(dir.path()));
            assert!(found.starts_with(expected), "{names:?}: {found}");
            if expected != "Ok(" {
                let options = crate::options::Options::new(dir.path());
                assert!(crate::store::Store::begin_restore(&options).is_err(), "{names:?}");
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), names.len(), "{names:?}");
            }
        }
    }

    #[test]
    fn a_damaged_marker_is_named() {
        for text in ["", "plinth-engine", "plinth-engine format ", "plinth-engine format 1", "\0\0\0"] {
            let dir = with(&[MARKER, DATABASE]);
            fs::write(dir.path().join(MARKER), text).unwrap();
            let error = inspect(dir.path()).unwrap_err().to_string();
            assert!(error.contains("PLINTH"), "{text:?}: {error}");
        }
    }
}
