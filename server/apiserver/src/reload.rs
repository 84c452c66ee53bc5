//! Files that are read again when they change, without a restart: certificates, keys, configurations.
//!
//! One task looks at the files once a second. It compares what `stat` says, which costs microseconds and, unlike
//! inotify, also sees a directory of links that is swapped as a whole (how Kubernetes updates mounted Secrets) and
//! files on network mounts.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// What reads a file again; on an error what was read before stays.
type Apply = Box<dyn Fn() -> Result<(), Box<dyn Error + Send + Sync>> + Send>;

/// A group of files that are read together.
pub struct Watched {
    what: &'static str,
    files: Vec<PathBuf>,
    seen: Vec<Option<Fingerprint>>,
    apply: Apply,
}

/// What tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

fn fingerprint(file: &Path) -> Option<Fingerprint> {
    let stat = std::fs::metadata(file).ok()?;
    Some(Fingerprint { inode: stat.ino(), size: stat.size(), modified: (stat.mtime(), stat.mtime_nsec()) })
}

impl Watched {
    /// Files that were just read, and what reads them again.
    pub fn new<E: Error + Send + Sync + 'static>(
        what: &'static str,
        files: Vec<PathBuf>,
        apply: impl Fn() -> Result<(), E> + Send + 'static,
    ) -> Watched {
        let seen = files.iter().map(|file| fingerprint(file)).collect();
        Watched { what, files, seen, apply: Box::new(move || Ok(apply()?)) }
    }

    /// Reads the files again when they differ from what was seen. Files that cannot be used are tried again when they
    /// change again: a certificate is often written before its key.
    fn look(&mut self) {
        let now: Vec<_> = self.files.iter().map(|file| fingerprint(file)).collect();
        if now == self.seen {
            return;
        }
        self.seen = now;
        match (self.apply)() {
            Ok(()) => tracing::info!(what = self.what, "read again"),
            Err(error) => {
                tracing::error!(what = self.what, %error, "cannot be used; what was read before stays")
            }
        }
    }
}

/// Looks at the files for ever. Each look blocks for as long as `stat` and the reading of what changed takes, on a
/// thread that may block.
pub async fn follow(mut watched: Vec<Watched>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let looked = tokio::task::spawn_blocking(move || {
            watched.iter_mut().for_each(Watched::look);
            watched
        });
        match looked.await {
            Ok(back) => watched = back,
            Err(error) => {
                tracing::error!(%error, "files are no longer looked at");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_change_is_applied_once_and_a_error_waits_for_the_next_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        std::fs::write(&file, "1").unwrap();
        let applied = Arc::new(AtomicUsize::new(0));
        let (count, path) = (applied.clone(), file.clone());
        let mut watched = Watched::new("a", vec![file.clone()], move || {
            count.fetch_add(1, Ordering::SeqCst);
            std::fs::read_to_string(&path).map(|_| ())
        });
        let mut look = |expected: usize| {
            watched.look();
            watched.look();
            assert_eq!(applied.load(Ordering::SeqCst), expected);
        };
        look(0);
        std::fs::write(&file, "22").unwrap();
        look(1);
        std::fs::remove_file(&file).unwrap();
        look(2);
        // Another file in its place, as an atomic replacement does it.
        std::fs::write(dir.path().join("b"), "22").unwrap();
        std::fs::rename(dir.path().join("b"), &file).unwrap();
        look(3);
    }
}
