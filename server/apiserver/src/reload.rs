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
    /// The files after a reload, where they are named in one of them.
    named: Option<Box<dyn Fn() -> Vec<PathBuf> + Send>>,
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
        let apply: Apply = Box::new(move || Ok(apply()?));
        WatchedFiles { name, files, fingerprints, apply, named: None, metrics: None }
    }

    /// Follows what this returns after each change, when one of the files names the others.
    pub fn naming(self, files: impl Fn() -> Vec<PathBuf> + Send + 'static) -> WatchedFiles {
        WatchedFiles { named: Some(Box::new(files)), ..self }
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
        if let Some(named) = &self.named {
            self.follow(named());
        }
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

impl WatchedFiles {
    /// Those that are new may have changed since they were loaded: they are loaded once more.
    fn follow(&mut self, files: Vec<PathBuf>) {
        let before = |file: &PathBuf| self.files.iter().position(|known| known == file);
        let known = |file: &PathBuf| before(file).and_then(|at| self.fingerprints.get(at).copied().flatten());
        self.fingerprints = files.iter().map(known).collect();
        self.files = files;
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
    fn files_that_a_changed_file_names_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write("list", "one");
        write("one", "1");
        let loaded = Arc::new(parking_lot::Mutex::new(String::new()));
        let (into, list, root) = (loaded.clone(), path("list"), dir.path().to_owned());
        let named = move || {
            let name = std::fs::read_to_string(&list).unwrap();
            vec![list.clone(), root.join(name)]
        };
        let files = named();
        let load = named.clone();
        let mut watched = WatchedFiles::new("a", files, move || {
            std::fs::read_to_string(&load()[1]).map(|text| *into.lock() = text)
        })
        .naming(named);
        let mut look = |expected: &str| {
            watched.reload_if_changed();
            watched.reload_if_changed();
            assert_eq!(*loaded.lock(), expected);
        };
        write("one", "11");
        look("11");
        write("list", "second");
        look("11");
        // It was missing when it was named.
        write("second", "2");
        look("2");
        write("second", "22");
        look("22");
        write("one", "111");
        look("22");
    }

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
