//! The temporary file of a backup or checkpoint.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::bootstrap::files::{is_at, parent, sync_parent};
use plinth_apiserver::private_files;

/// A file next to the archive, with a unique name. Locked while it is written; removed when it is dropped
/// unfinished.
pub(crate) struct UnfinishedArchive {
    path: PathBuf,
    file: File,
}

/// Maximum number of unfinished archives per archive name.
const MOST: u32 = 1000;

impl UnfinishedArchive {
    /// Suffix of unfinished archives, before the process ID and a counter.
    pub(crate) const SUFFIX: &str = ".unfinished-";

    /// Creates the temporary file of the archive `to`. Files of killed backups are removed.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub(crate) fn create(to: &Path) -> io::Result<UnfinishedArchive> {
        remove_abandoned(to);
        for number in 0..MOST {
            let mut path = to.to_owned().into_os_string();
            path.push(format!("{}{}-{number}", UnfinishedArchive::SUFFIX, std::process::id()));
            let path = PathBuf::from(path);
            match private_files::create_new(&path) {
                Ok(file) => {
                    // Without support for locks, files of killed backups are not removed.
                    let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
                    // Another backup may have checked before it was locked, and removes it then.
                    if !is_taken && is_at(&file, &path).unwrap_or(false) {
                        return Ok(UnfinishedArchive { path, file });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(io::Error::new(error.kind(), format!("creating {}: {error}", path.display())))
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The file to write to.
    ///
    /// # Errors
    /// When the process has too many open files.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Its path while it is unfinished.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the synced file to the archive's name, durably. An archive that was created meanwhile is kept.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], or the error of the file system.
    pub(crate) fn finish(self, to: &Path) -> io::Result<()> {
        match fs::hard_link(&self.path, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // The file system has no hard links.
            Err(_) => fs::rename(&self.path, to)?,
            Ok(()) => fs::remove_file(&self.path)?,
        }
        sync_parent(to)
    }
}

impl Drop for UnfinishedArchive {
    fn drop(&mut self) {
        // After `finish` the file does not exist any more; otherwise another error is reported.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes unfinished archives of that name that are not locked. Failures are ignored.
fn remove_abandoned(to: &Path) {
    let Some(prefix) =
        to.file_name().map(|name| format!("{}{}", name.to_string_lossy(), UnfinishedArchive::SUFFIX))
    else {
        return;
    };
    let Ok(entries) = fs::read_dir(parent(to)) else { return };
    let is_ours = |name: &str| {
        let numbers = name.strip_prefix(&prefix).and_then(|numbers| numbers.split_once('-'));
        numbers
            .is_some_and(|(process, number)| process.parse::<u32>().is_ok() && number.parse::<u32>().is_ok())
    };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_ours)) {
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        // Held until it is removed: a backup that has just created it uses another name then.
        if file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn backups_at_once_do_not_share_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("x.backup");
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let first = UnfinishedArchive::create(&to).unwrap();
        first.file().unwrap().write_all(b"first").unwrap();
        let second = UnfinishedArchive::create(&to).unwrap();
        second.file().unwrap().write_all(b"second, longer").unwrap();
        assert_eq!(names().len(), 2, "one does not remove the other's: it is locked");
        first.finish(&to).unwrap();
        assert_eq!(second.finish(&to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&to).unwrap(), b"first");
        // The leftover of a killed backup.
        let left = dir.path().join("x.backup.unfinished-1-0");
        fs::write(&left, b"rest").unwrap();
        let others = ["x.backup.unfinished-1-notes", "x.backup.unfinished-copy", "y.backup.unfinished-1-0"];
        for other in others {
            fs::write(dir.path().join(other), b"of another").unwrap();
        }
        drop(UnfinishedArchive::create(&to).unwrap());
        assert_eq!(names(), ["x.backup", others[0], others[1], others[2]]);
    }
}
