//! File checks and directory creation that do not mistake errors or power cuts for absence.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Name of the file in a data directory that makes it one of a replica.
pub(crate) const IDENTITY: &str = "replica";
/// Name of the file in a data directory with the addresses of other replicas.
pub(crate) const PEERS: &str = "peers";

/// Whether something exists at `path`; a dangling link is an error, and so is every failure but "not found".
///
/// # Errors
/// When it cannot be determined.
pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => fs::metadata(path).map(|_| true),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a directory and its parents durably.
pub(crate) fn create_durably(path: &Path) -> io::Result<()> {
    if exists(path)? {
        return Ok(());
    }
    create_durably(parent(path))?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_parent(path)
}

/// Removes a file, unless it is absent; returns whether it was there.
pub(crate) fn remove_if_exists(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Syncs the directory entry of `path` to disk.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// The directory that `path` is in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether an open file or directory is the one at `path`.
///
/// # Errors
/// When it cannot be determined.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}
