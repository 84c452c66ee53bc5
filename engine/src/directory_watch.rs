//! Stops an engine whose data directory was moved away or replaced.
//!
//! RocksDB creates and removes files by their paths. Once another store is there (a copy that was started, an archive that was restored), its
//! flushes and merges would go into that one, and ruin both. The logs that are open are written where they are, so what was
//! acknowledged until then is in the directory that was moved. The database is not closed then either (`Store`'s `Drop`): to close it,
//! RocksDB removes files that it does not know.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::health::Failure;
use crate::store::Store;

/// How often is looked. What RocksDB creates within that time after another store has taken the place is not prevented.
const INTERVAL: Duration = Duration::from_millis(200);

/// Ends the thread of [`DirectoryWatch::run`].
#[derive(Default)]
pub(crate) struct DirectoryWatch {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl DirectoryWatch {
    /// Checks until stopped, or until the directory is not in its place: then the engine has failed.
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
