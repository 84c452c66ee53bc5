//! A replica without threads of its own for proposing, applying and maintenance: a test makes each step, so
//! that a seed decides everything that happens. Not part of the public interface.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::commit::proposal::Proposal;
use crate::commit::queue::Task;
use crate::error::Error;
use crate::health::Failure;
use crate::maintenance::MaintenanceTasks;
use crate::replica::applier::Follower;
use crate::replica::barrier;
use crate::replica::proposer::{Proposer, Step};
use crate::revision::Revision;

/// Makes the steps of a replica that was opened with [`crate::Engine::open_stepped`].
#[doc(hidden)]
pub struct Stepper {
    pub(crate) proposer: Proposer,
    pub(crate) follower: Follower,
    pub(crate) tasks: Arc<MaintenanceTasks>,
}

impl Stepper {
    /// Makes one call of the journal to append what was submitted, or prepares one. Returns whether anything
    /// was done.
    pub fn propose(&mut self) -> bool {
        self.proposer.step(false) == Step::Done
    }

    /// Applies the next record, if the journal returns one. Returns whether it did.
    ///
    /// # Errors
    /// The failure for good, with which the engine fails as it does with threads.
    pub fn apply(&mut self) -> Result<bool, Failure> {
        match self.follower.step(Duration::ZERO) {
            Ok(Ok(applied)) => Ok(applied),
            Ok(Err(_transient)) => Ok(false),
            Err(failure) => {
                self.follower.applier.lock().store.health().fail(failure.clone());
                Err(failure)
            }
        }
    }

    /// Asks the journal for its end, for the readers that wait.
    pub fn confirm(&mut self) {
        if let Err(failure) = barrier::ask(&self.follower.shared, &*self.follower.journal, false) {
            self.follower.applier.lock().store.health().fail(failure);
        }
    }

    /// Proposes to delete the keys that have expired, without waiting for it. Returns the engine's time in
    /// milliseconds since 1970, and the keys with the revisions that set their deadlines.
    ///
    /// # Errors
    /// The error of the read.
    pub fn expire(&self) -> Result<(u64, Vec<(Bytes, Revision)>), Error> {
        self.tasks.propose_expiry()
    }

    /// Removes some of the history below the compaction floor. Returns whether there is more.
    ///
    /// # Errors
    /// The error of a read or a write.
    pub fn sweep(&self) -> Result<bool, Error> {
        let applier = &self.follower.applier;
        self.tasks.compactor.step_with(|tombstones| applier.lock().purge(tombstones).map(drop))
    }

    /// Ends the replica as a kill of its process would: nothing is written to its directory any more.
    pub fn kill(self) {
        let store = Arc::clone(&self.follower.applier.lock().store);
        store.health().fail(Failure::Write { message: "killed".to_owned() });
    }

    /// Proposes to raise the compaction floor, without waiting for it.
    pub fn raise_floor(&self, revision: Revision) {
        drop(Proposal::submit(&self.proposer.queue, Task::SetFloor(revision), 0));
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        // Nobody else answers what is queued or will be.
        self.proposer.queue.close();
        self.proposer.end();
    }
}
