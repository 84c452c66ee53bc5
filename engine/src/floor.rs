//! The oldest revision that can be read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::revision::Revision;

/// The compaction floor. It only rises, and it is raised before anything is removed: a reader that pins a
/// state first and then finds the floor at or below the wanted revision has that revision pinned completely.
pub(crate) struct Floor(AtomicU64);

impl Floor {
    pub(crate) fn new(revision: Revision) -> Floor {
        Floor(AtomicU64::new(revision.get()))
    }

    pub(crate) fn get(&self) -> Revision {
        Revision::new(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn raise(&self, revision: Revision) {
        self.0.fetch_max(revision.get(), Ordering::SeqCst);
    }

    /// Refuses a revision below the floor.
    pub(crate) fn check(&self, requested: Revision) -> Result<()> {
        let oldest = self.get();
        if requested < oldest {
            return Err(Error::Compacted { requested, oldest });
        }
        Ok(())
    }
}
