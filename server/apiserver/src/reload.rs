//! Reloads files when they change, without a restart: certificates, keys, configurations.
//!
//! One task polls `stat` once a second. That costs microseconds and, unlike inotify, also detects a directory
//! of links that is swapped as a whole (how Kubernetes updates mounted Secrets) and files on network mounts.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::{ReloadMetrics, ReloadedConfig};

/// Interval between polls.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reloads the files; on an error the loaded content stays in use.
type Apply = Box<dyn Fn() -> Result<(), Box<dyn Error + Send + Sync>> + Send>;

/// A group of files that are reloaded together.
pub struct WatchedFiles {
    name: &'static str,
    files: Vec<PathBuf>,
    fingerprints: Vec<Option<Fingerprint>>,
    apply: Apply,
    metrics: Option<(Arc<ReloadMetrics>, ReloadedConfig)>,
}

/// Identifies the content of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// That of a file; `None` for one that is not there.
pub(crate) fn fingerprint(file: &Path) -> Option<Fingerprint> {
    let stat = std::fs::metadata(file).ok()?;
    Some(Fingerprint { inode: stat.ino(), size: stat.size(), modified: (stat.mtime(), stat.mtime_nsec()) })
}

impl WatchedFiles {
    /// Files that have just been loaded, and the function that reloads them.
    pub fn new<E: Error + Send + Sync + 'static>(
        name: &'static str,
        files: Vec<PathBuf>,
        apply: impl Fn() -> Result<(), E> + Send + 'static,
    ) -> WatchedFiles {
        let fingerprints = files.iter().map(|file| fingerprint(file)).collect();
        WatchedFiles { name, files, fingerprints, apply: Box::new(move || Ok(apply()?)), metrics: None }
    }

    /// Counts the reloads, as those of this configuration.
    pub fn counted(self, metrics: &Arc<ReloadMetrics>, config: ReloadedConfig) -> WatchedFiles {
        WatchedFiles { metrics: Some((metrics.clone(), config)), ..self }
    }

    /// Reloads the files when they have changed. After an error they are tried again at the next
    /// change: a certificate is often written before its key.
    fn reload_if_changed(&mut self) {
        let now: Vec<_> = self.files.iter().map(|file| fingerprint(file)).collect();
        if now == self.fingerprints {
            return;
        }
        self.fingerprints = now;
        let outcome = (self.apply)();
        if let Some((metrics, config)) = &self.metrics {
            metrics.reloaded(*config, outcome.is_ok());
        }
        match outcome {
            Ok(()) => tracing::info!(name = self.name, "reloaded files"),
            Err(error) => {
                tracing::error!(
                    name = self.name, %error,
                    "files cannot be reloaded; the previous content stays in use"
                )
            }
        }
    }
}

/// Polls the files forever. `stat` and reloading block, so each poll runs on a thread of the
/// blocking pool.
pub async fn watch_files(mut watched: Vec<WatchedFiles>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let checked = tokio::task::spawn_blocking(move || {
            watched.iter_mut().for_each(WatchedFiles::reload_if_changed);
            watched
        });
        match checked.await {
            Ok(files) => watched = files,
            Err(error) => {
                tracing::error!(%error, "file reload task failed; files are no longer reloaded");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_change_is_applied_once_and_an_error_waits_for_the_next_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        std::fs::write(&file, "1").unwrap();
        let applied = Arc::new(AtomicUsize::new(0));
        let (count, path) = (applied.clone(), file.clone());
        let mut watched = WatchedFiles::new("a", vec![file.clone()], move || {
            count.fetch_add(1, Ordering::SeqCst);
            std::fs::read_to_string(&path).map(|_| ())
        });
        let mut look = |expected: usize| {
            watched.reload_if_changed();
            watched.reload_if_changed();
            assert_eq!(applied.load(Ordering::SeqCst), expected);
        };
        look(0);
        std::fs::write(&file, "22").unwrap();
        look(1);
        std::fs::remove_file(&file).unwrap();
        look(2);
        // Replaces the file, as an atomic update does.
        std::fs::write(dir.path().join("b"), "22").unwrap();
        std::fs::rename(dir.path().join("b"), &file).unwrap();
        look(3);
    }
}
