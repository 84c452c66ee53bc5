//! A view of a database: a directory in which table files are links, logs are truncated or blank, and a torn
//! end of the MANIFEST is cut off. RocksDB can open it without touching the real database.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{symlink, DirBuilderExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::directory;
use crate::error::{Error, Result};
use crate::recovery::TornManifest;
use crate::watermark;

/// The logs of a view.
pub(crate) enum Logs<'a> {
    /// These, each truncated to so many bytes.
    Cut(&'a [(PathBuf, u64)]),
    /// Blank logs of the same names and lengths.
    Blank(&'a [(PathBuf, u64)]),
}

/// A view. Removed when it is dropped.
pub(crate) struct View(PathBuf);

impl View {
    /// A view of `database` in the system's directory for temporary files.
    pub(crate) fn temporary(database: &Path, logs: &Logs<'_>, torn: Option<&TornManifest>) -> Result<View> {
        let parent = std::env::temp_dir();
        View::numbered(&parent, database, logs, torn).map_err(|error| {
            let advice =
                format!("{} is the directory for temporary files; set TMPDIR for another", parent.display());
            match error {
                Error::Io { context, source } => {
                    Error::Io { context: format!("{context} ({advice})"), source }
                }
                Error::OutOfSpace { message } => {
                    Error::OutOfSpace { message: format!("{message} ({advice})") }
                }
                error => error,
            }
        })
    }

    /// The same, or at `instead` if that fails.
    pub(crate) fn temporary_or_at(
        instead: PathBuf,
        database: &Path,
        logs: &Logs<'_>,
        torn: Option<&TornManifest>,
    ) -> Result<View> {
        View::temporary(database, logs, torn).or_else(|_| {
            // A container may have no such directory, or one that is full or read-only.
            directory::remove_unfinished(&instead)?;
            View::at(instead, database, logs, torn)
        })
    }

    /// A view in `parent`. Names left over by killed processes are skipped: in a container, the next process
    /// may have the same id.
    fn numbered(
        parent: &Path,
        database: &Path,
        logs: &Logs<'_>,
        torn: Option<&TornManifest>,
    ) -> Result<View> {
        /// Maximum number of leftover names that are skipped.
        const ATTEMPTS: u32 = 10_000;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let name = format!("plinth-view-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            match View::at(parent.join(name), database, logs, torn) {
                Err(Error::Io { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
                made => return made,
            }
        }
    }

    /// A view of `database` at `path`, which must not exist.
    pub(crate) fn at(
        path: PathBuf,
        database: &Path,
        logs: &Logs<'_>,
        torn: Option<&TornManifest>,
    ) -> Result<View> {
        let io = |e| Error::io(format!("making a view of {} at {}", database.display(), path.display()), e);
        DirBuilder::new().mode(0o700).create(&path).map_err(io)?;
        let view = View(path.clone());
        view.fill(database, logs).map_err(io)?;
        if let Some(torn) = torn {
            let path = view.0.join(torn.path.file_name().unwrap_or_default());
            File::options().write(true).open(path).and_then(|file| file.set_len(torn.sound)).map_err(io)?;
        }
        Ok(view)
    }

    fn fill(&self, database: &Path, logs: &Logs<'_>) -> io::Result<()> {
        let database = database.canonicalize()?;
        for entry in fs::read_dir(&database)? {
            let name = entry?.file_name();
            let (from, to) = (database.join(&name), self.0.join(&name));
            match Path::new(&name).extension().and_then(|extension| extension.to_str()) {
                Some("log") => {}
                // RocksDB would continue from this number, overflow, and write through a link.
                Some("sst" | "blob") if is_beyond(&name) => {}
                Some("sst" | "blob") => symlink(&from, &to)?,
                // RocksDB locks one file and appends to others.
                _ if name == "LOCK" || !from.is_file() => {}
                _ => {
                    fs::copy(&from, &to)?;
                }
            }
        }
        let (Logs::Cut(shown) | Logs::Blank(shown)) = logs;
        for (from, bytes) in *shown {
            let mut to = directory::create_file(&self.0.join(from.file_name().unwrap_or_default()))?;
            match logs {
                Logs::Cut(_) => {
                    io::copy(&mut File::open(from)?.take(*bytes), &mut to)?;
                }
                Logs::Blank(_) => to.set_len(*bytes)?,
            }
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Whether the number of a table cannot have been assigned by RocksDB.
fn is_beyond(name: &OsStr) -> bool {
    let stem = Path::new(name).file_stem().and_then(OsStr::to_str).unwrap_or_default();
    watermark::number(stem).is_none_or(|number| number > watermark::HIGHEST_FILE)
}

impl Drop for View {
    fn drop(&mut self) {
        // A view that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn names_that_a_kill_has_left_over_are_passed_over() {
        let (parent, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Other tests share the counter, so that some of these names are tried.
        for number in 0..1000 {
            let name = format!("plinth-view-{}-{number}", std::process::id());
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let view = View::numbered(parent.path(), database.path(), &Logs::Cut(&[]), None).unwrap();
        assert_eq!(view.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let path = view.path().to_owned();
        drop(view);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1000);
    }
}
