//! The data directory of a replica that is joining: filled below `DIR/joining`, so that it may be a mount
//! point, and moved up when it is whole. Wherever that is interrupted, a start finds no marker beside
//! `joining` and refuses.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::directory::{io_error, normalized};
use super::{DataDir, DataDirError, HARMLESS, JOINING, MARKER};
use crate::bootstrap::files::{create_durably, exists, sync_parent};

/// A directory that is being filled. What was made is removed with it, unless [`JoiningDir::finish`] has
/// begun.
pub struct JoiningDir {
    path: PathBuf,
    /// Where it is filled.
    unfinished: PathBuf,
    /// The directory was not there before.
    is_new: bool,
    is_finishing: bool,
}

impl JoiningDir {
    /// Begins to fill an absent or empty directory.
    ///
    /// # Errors
    /// [`DataDirError::NotEmpty`] where it is not empty, [`DataDirError::UnfinishedJoin`] where another join
    /// has not finished, and when it cannot be made.
    pub fn create(path: &Path) -> Result<JoiningDir, DataDirError> {
        let path = &normalized(path)?;
        let is_new = !exists(path).map_err(io_error(path))?;
        create_durably(path).map_err(io_error(path))?;
        let path = path.canonicalize().map_err(io_error(path))?;
        match claim(&path) {
            Ok(unfinished) => Ok(JoiningDir { path, unfinished, is_new, is_finishing: false }),
            Err(error) => {
                if is_new {
                    // What is in it by now is another's.
                    let _ = fs::remove_dir(&path);
                }
                Err(error)
            }
        }
    }

    /// Where it is filled.
    pub fn unfinished(&self) -> &Path {
        &self.unfinished
    }

    /// Makes what is in it a data directory whose store was restored: certificates and keys may still be
    /// made. Returns its path.
    ///
    /// # Errors
    /// When it cannot be written: it is left as it is then, and no start takes it for whole.
    pub fn finish(mut self) -> Result<PathBuf, DataDirError> {
        DataDir::mark_restored(&self.unfinished)?;
        self.is_finishing = true;
        let moved = || -> io::Result<()> {
            for entry in fs::read_dir(&self.unfinished)? {
                let name = entry?.file_name();
                if name != MARKER {
                    fs::rename(self.unfinished.join(&name), self.path.join(&name))?;
                }
            }
            sync_parent(&self.unfinished)?;
            fs::rename(self.unfinished.join(MARKER), self.path.join(MARKER))?;
            fs::remove_dir(&self.unfinished)?;
            sync_parent(&self.unfinished)
        };
        moved().map_err(io_error(&self.path))?;
        Ok(self.path.clone())
    }
}

/// Makes the directory below an empty one that is filled; of two joins one does.
fn claim(path: &Path) -> Result<PathBuf, DataDirError> {
    for entry in fs::read_dir(path).map_err(io_error(path))? {
        let name = entry.map_err(io_error(path))?.file_name();
        if name == JOINING && !exists(&path.join(MARKER)).map_err(io_error(path))? {
            return Err(DataDirError::UnfinishedJoin { path: path.to_owned() });
        }
        if HARMLESS.iter().all(|harmless| name != *harmless) {
            return Err(DataDirError::NotEmpty { path: path.to_owned() });
        }
    }
    let unfinished = path.join(JOINING);
    match fs::DirBuilder::new().mode(0o700).create(&unfinished) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(DataDirError::UnfinishedJoin { path: path.to_owned() });
        }
        created => created.and_then(|()| sync_parent(&unfinished)).map_err(io_error(&unfinished))?,
    }
    Ok(unfinished)
}

impl Drop for JoiningDir {
    fn drop(&mut self) {
        if self.is_finishing {
            return;
        }
        // It was made here.
        let _ = fs::remove_dir_all(&self.unfinished);
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::stage::Stage;

    fn fill(dir: &JoiningDir) {
        for name in ["store", "pki"] {
            fs::create_dir(dir.unfinished().join(name)).unwrap();
        }
        fs::write(dir.unfinished().join("store/db"), "").unwrap();
        fs::write(dir.unfinished().join("replica"), "").unwrap();
    }

    #[test]
    fn a_directory_is_filled_where_it_is() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("real")).unwrap();
        fs::create_dir(parent.path().join("real/lost+found")).unwrap();
        std::os::unix::fs::symlink("real", parent.path().join("link")).unwrap();
        for (name, expected) in [("absent/below", "absent/below"), ("link", "real"), ("dot/.", "dot")] {
            let dir = JoiningDir::create(&parent.path().join(name)).unwrap();
            fill(&dir);
            let path = dir.finish().unwrap();
            assert_eq!(path, parent.path().canonicalize().unwrap().join(expected), "{name}");
            assert_eq!(DataDir::open(&path).unwrap().stage(), Stage::Restored);
            assert!(!path.join(JOINING).exists() && path.join("store/db").exists());
            assert!(matches!(JoiningDir::create(&path), Err(DataDirError::NotEmpty { .. })));
        }
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 4, "nothing beside them");
    }

    /// A path that is just short enough, and that of what is below it is not.
    #[test]
    fn a_directory_that_was_made_in_vain_is_removed() {
        const LONGEST_PATH: usize = 4095;
        let parent = tempfile::tempdir().unwrap();
        let mut path = parent.path().canonicalize().unwrap();
        let left = |path: &Path| LONGEST_PATH - path.as_os_str().len();
        while left(&path) > 250 {
            path.push("a".repeat(100));
        }
        path.push("a".repeat(left(&path) - 1 - JOINING.len()));
        assert!(matches!(JoiningDir::create(&path), Err(DataDirError::Io { .. })));
        assert!(!path.exists() && path.parent().unwrap().exists());
        fs::create_dir(&path).unwrap();
        assert!(JoiningDir::create(&path).is_err() && path.exists(), "it was there before");
    }

    #[test]
    fn what_did_not_finish_is_removed_or_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let dir = JoiningDir::create(&path).unwrap();
        fill(&dir);
        let refused = || {
            let found = [
                DataDir::open(&path).map(drop),
                DataDir::existing(&path).map(drop),
                DataDir::for_restore(&path).map(drop),
                DataDir::for_repair(&path).map(drop),
                JoiningDir::create(&path).map(drop),
            ];
            found.into_iter().all(|found| matches!(found, Err(DataDirError::UnfinishedJoin { .. })))
        };
        assert!(refused());
        drop(dir);
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        drop(JoiningDir::create(&path).unwrap());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "it was there before");
        // Killed while its parts move.
        let dir = JoiningDir::create(&path).unwrap();
        fill(&dir);
        std::mem::forget(dir);
        for name in ["replica", "store", "pki"] {
            assert!(refused(), "{name}");
            fs::rename(path.join(JOINING).join(name), path.join(name)).unwrap();
        }
        assert!(refused());
    }
}
