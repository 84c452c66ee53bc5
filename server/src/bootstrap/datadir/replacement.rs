//! Replaces the store of a data directory by another one. Wherever that is killed, the next start finds the
//! old store or the new one, whole, and the old one is never removed.
//!
//! | name | what it is |
//! |---|---|
//! | `store.joining` | what a new store is made of; incomplete, removed by the next attempt |
//! | `store.joined` | the new store, whole and on disk |
//! | `store.replaced` | the old one |

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::directory::{io_error, STORE};
use super::error::DataDirError;
use crate::bootstrap::files::{exists, sync_parent};

const JOINING: &str = "store.joining";
const JOINED: &str = "store.joined";
const REPLACED: &str = "store.replaced";

/// Replaces the store of a data directory.
#[derive(Debug)]
pub struct StoreReplacement<'d> {
    dir: &'d Path,
}

impl<'d> StoreReplacement<'d> {
    pub(super) fn new(dir: &'d Path) -> StoreReplacement<'d> {
        StoreReplacement { dir }
    }

    fn store(&self) -> PathBuf {
        self.dir.join(STORE)
    }

    /// An empty directory for what a new store is made of. What an earlier attempt left is removed: it was a
    /// copy, and no store.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn begin(&self) -> Result<PathBuf, DataDirError> {
        for name in [JOINING, JOINED] {
            let path = self.dir.join(name);
            remove(&path).map_err(io_error(&path))?;
        }
        let path = self.dir.join(JOINING);
        DirBuilder::new().mode(0o700).create(&path).map_err(io_error(&path))?;
        Ok(path)
    }

    /// Removes what [`StoreReplacement::begin`] has made.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn end(&self) -> Result<(), DataDirError> {
        let path = self.dir.join(JOINING);
        remove(&path).map_err(io_error(&path))
    }

    /// Where the store that was replaced last is kept.
    pub fn replaced(&self) -> PathBuf {
        self.dir.join(REPLACED)
    }

    /// Makes `new`, a directory whose files are on disk, the store. The old one is kept as
    /// [`StoreReplacement::replaced`], in the place of one that was replaced before it.
    ///
    /// # Errors
    /// When files cannot be renamed. One of the two is the store then, or becomes it at the next start.
    pub fn replace(&self, new: &Path) -> Result<(), DataDirError> {
        let (store, joined, replaced) = (self.store(), self.dir.join(JOINED), self.replaced());
        let rename_all = || -> io::Result<()> {
            rename(new, &joined)?;
            // The new one is whole and on disk by now.
            remove(&replaced)?;
            rename(&store, &replaced)?;
            rename(&joined, &store)
        };
        rename_all().map_err(io_error(&store))
    }

    /// Whether a replacement was interrupted between its two renames: the next start of the server completes
    /// it.
    pub(super) fn is_interrupted(&self) -> io::Result<bool> {
        Ok(exists(&self.dir.join(JOINED))? && exists(&self.replaced())? && !exists(&self.store())?)
    }

    /// Completes a replacement that was interrupted between its two renames, and removes what was left of one
    /// that was interrupted before: keys among it.
    pub(super) fn finish(&self) -> Result<(), DataDirError> {
        let (store, joined) = (self.store(), self.dir.join(JOINED));
        let complete = || -> io::Result<()> {
            if self.is_interrupted()? {
                rename(&joined, &store)?;
            }
            remove(&self.dir.join(JOINING))
        };
        complete().map_err(io_error(&store))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Renames durably.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(from)?;
    sync_parent(to)
}

#[cfg(test)]
mod tests {
    use super::super::{DataDir, Stage};
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.starts_with("store"));
        names.sort();
        names
    }

    fn complete(path: &Path, text: &str) -> DataDir {
        let mut dir = DataDir::open(path).unwrap();
        fs::create_dir_all(dir.store()).unwrap();
        fs::write(dir.store().join("text"), text).unwrap();
        dir.complete().unwrap();
        dir
    }

    fn text(dir: &Path) -> String {
        fs::read_to_string(dir.join("text")).unwrap()
    }

    #[test]
    fn the_old_store_is_kept_until_it_is_the_last_but_one() {
        let parent = tempfile::tempdir().unwrap();
        let dir = complete(&parent.path().join("data"), "0");
        for n in 1..4 {
            let new = dir.replacement().begin().unwrap().join("store");
            fs::create_dir(&new).unwrap();
            fs::write(new.join("text"), n.to_string()).unwrap();
            dir.replacement().replace(&new).unwrap();
            dir.replacement().end().unwrap();
            assert_eq!(text(&dir.store()), n.to_string());
            assert_eq!(text(&dir.replacement().replaced()), (n - 1).to_string());
            assert_eq!(names(dir.path()), ["store", "store.replaced"]);
        }
    }

    #[test]
    fn an_interrupted_replacement_leaves_a_store() {
        let parent = tempfile::tempdir().unwrap();
        // Each state between two steps, and the store that the next start has.
        for (there, expected) in [
            (&["store", JOINING][..], "store"),
            (&["store", JOINED, REPLACED][..], "store"),
            (&["store", JOINED][..], "store"),
            (&[JOINED, REPLACED][..], JOINED),
        ] {
            let path = parent.path().join(there.join("-"));
            drop(complete(&path, "store"));
            fs::remove_dir_all(path.join("store")).unwrap();
            for name in there {
                fs::create_dir(path.join(name)).unwrap();
                fs::write(path.join(name).join("text"), name).unwrap();
            }
            let dir = DataDir::open(&path).unwrap();
            assert_eq!(dir.stage(), Stage::Complete);
            assert_eq!(text(&dir.store()), expected, "{there:?}");
            assert_eq!(there.contains(&REPLACED), path.join(REPLACED).exists());
            // The next attempt begins again, and leaves the stores alone.
            dir.replacement().begin().unwrap();
            assert_eq!(text(&dir.store()), expected, "{there:?}");
            assert!(!path.join(JOINED).exists());
        }
        // Without the old one beside it, a missing store is a loss as ever.
        let path = parent.path().join("lost");
        drop(complete(&path, "store"));
        fs::rename(path.join("store"), path.join(JOINED)).unwrap();
        assert!(matches!(DataDir::open(&path), Err(DataDirError::Incomplete { .. })));
        assert!(path.join(JOINED).exists());
    }
}
