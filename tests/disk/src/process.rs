//! Processes that run with the interposer.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared library, which cargo has built beside the running test.
///
/// # Panics
/// When it is not there.
pub fn interposer() -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    let library = test.with_file_name("libplinth_interposer.so");
    assert!(library.is_file(), "no interposer at {}", library.display());
    library
}

/// What the interposer does in a process.
#[derive(Debug, Clone, Default)]
pub struct Interposed {
    root: PathBuf,
    trace: Option<PathBuf>,
    error: Option<String>,
    hit: Option<PathBuf>,
}

impl Interposed {
    /// Watches calls below `root`, an existing directory.
    ///
    /// # Panics
    /// When the directory is not there.
    pub fn below(root: &Path) -> Interposed {
        Interposed { root: root.canonicalize().expect("a directory"), ..Interposed::default() }
    }

    /// Appends the trace to the file `trace`.
    #[must_use]
    pub fn trace(mut self, trace: &Path) -> Interposed {
        self.trace = Some(trace.to_owned());
        self
    }

    /// Calls `first` to `first + count - 1` of a kind end with `what`; `hit` is created when the first does.
    /// With `HOLD` they wait until it is gone again, with `KILL` the process ends there. The interposer
    /// documents kinds and errors.
    #[must_use]
    pub fn error(mut self, kind: &str, first: u64, count: u64, what: &str, hit: &Path) -> Interposed {
        self.error = Some(format!("{kind}:{first}:{count}:{what}"));
        self.hit = Some(hit.to_owned());
        self
    }

    /// Sets the environment of a process to be.
    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", interposer()).env("PLINTH_DISK_ROOT", &self.root);
        let optional = [("PLINTH_DISK_TRACE", &self.trace), ("PLINTH_DISK_HIT", &self.hit)];
        for (name, value) in optional {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        if let Some(error) = &self.error {
            command.env("PLINTH_DISK_ERROR", error);
        }
    }
}

/// A directory that goes with the test; in memory where the system offers that: the disk is modelled, not
/// used.
///
/// # Panics
/// When there is none.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    dir.expect("a temporary directory")
}
