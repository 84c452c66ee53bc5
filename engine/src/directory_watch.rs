//! Detects that the data directory was moved away or replaced, and stops the engine.
//!
//! RocksDB creates and removes files by path. Once another store is at that path (a copy that was started, an
//! archive that was restored), flushes and compactions would write into it, and ruin both. Open logs are
//! written by file descriptor, so what was acknowledged until then is in the directory that was moved. The
//! database is not closed then either (`Store`'s `Drop`): on close, RocksDB removes files that it does not
//! know.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::health::Failure;
use crate::store::Store;

/// Interval of the check. Files that RocksDB creates within this time after the directory was replaced are
/// not prevented.
const INTERVAL: Duration = Duration::from_millis(200);

/// Stops the thread of [`DirectoryWatch::run`].
#[derive(Default)]
pub(crate) struct DirectoryWatch {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl DirectoryWatch {
    /// Checks until stopped, or until the directory was moved or replaced, which fails the engine.
    pub(crate) fn run(&self, store: &Store) {
        let mut is_stopped = self.is_stopped.lock();
        while !*is_stopped {
            if let Err(message) = store.check_not_moved() {
                drop(is_stopped);
                store.health().fail(Failure::Moved { message });
                return;
            }
            self.changed.wait_for(&mut is_stopped, INTERVAL);
        }
    }

    pub(crate) fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.changed.notify_one();
    }
}
