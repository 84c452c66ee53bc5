//! What the engine of a replica has beside that of a single store: its journal, and how far it has applied
//! it.

use std::time::Duration;

use plinth_journal::record::Hash;
use plinth_journal::Position;

use super::Engine;
use crate::commit::proposal::Proposal;
use crate::commit::queue::Task;
use crate::error::Result;
use crate::replica::ReplicaStatus;

impl Engine {
    /// Whether this is a replica, which follows a journal.
    pub fn is_replica(&self) -> bool {
        self.0.replica.is_some()
    }

    /// How long the journal has not answered; none when it answered last, and in a single store.
    pub fn journal_silence(&self) -> Option<Duration> {
        self.0.replica.as_ref()?.silence()
    }

    /// The error of the last call of the journal that failed, while it does not answer as it should; none in
    /// a single store.
    pub fn journal_error(&self) -> Option<String> {
        self.0.replica.as_ref()?.last_error()
    }

    /// Allows the journal to remove records before `before`. A journal that has not answered, and was not
    /// compared since with what this replica has applied, may be an old copy of it, or another one: its
    /// records are kept. Nothing happens in a single store.
    ///
    /// # Errors
    /// Those of [`plinth_journal::Journal::trim`], and [`plinth_journal::Error::Unavailable`] where it was
    /// not compared in time.
    pub fn trim_journal(&self, before: Position) -> plinth_journal::Result<()> {
        self.0.replica.as_ref().map_or(Ok(()), |replica| replica.trim(before))
    }

    /// Why the journal refuses what it is asked for, where it answers and does.
    pub fn journal_refusal(&self) -> Option<String> {
        self.0.replica.as_ref()?.refusal_of_journal()
    }

    /// How far this replica has applied the journal; none for a single store. A caller that was just answered
    /// may see the state before its commit for a moment: the status is published after the answers.
    pub fn replica_status(&self) -> Option<ReplicaStatus> {
        let replica = self.0.replica.as_ref()?;
        Some(ReplicaStatus::new(replica.anchor(), replica.level()))
    }

    /// The hash of this replica at a position: equal on all. None for one that it has not applied, or not
    /// lately, and for a single store.
    pub fn hash_at(&self, position: Position) -> Option<Hash> {
        self.0.replica.as_ref()?.hash_at(position)
    }

    /// Raises the level of the cluster: from that record on, records of version `level` may be appended, and
    /// a program that does not read them stops. For whoever knows that all replicas do. A lower level changes
    /// nothing, and neither does a level in a single store. Answered with
    /// [`Error::Journal`](crate::Error::Journal) for a level that this program does not read itself, and when
    /// the journal is away.
    pub fn raise_level(&self, level: u8) -> Proposal {
        Proposal::submit(&self.0.queue, Task::RaiseLevel(level), 0)
    }

    /// Closes the journal with a last record: every replica that applies it stops with
    /// [`Failure::Journal`](crate::Failure::Journal), this one, too, and is opened no more. What follows it
    /// in the journal is applied by nobody. Nothing happens in a single store. Answered with
    /// [`Error::Journal`](crate::Error::Journal) when the journal is away.
    pub fn close_journal(&self) -> Proposal {
        Proposal::submit(&self.0.queue, Task::CloseJournal, 0)
    }

    /// Makes what was applied durable here, and returns how far that is: this replica needs no record of the
    /// journal up to there any more, whatever happens to the machine short of losing its disk. None for a
    /// single store.
    ///
    /// # Errors
    /// The error of the write.
    pub fn sync_applied(&self) -> Result<Option<Position>> {
        let Some(replica) = &self.0.replica else { return Ok(None) };
        let position = replica.anchor().position;
        self.0.store.sync_log()?;
        Ok(Some(position))
    }

    /// Refuses further writes, and ends those of a replica that its journal does not answer: within two
    /// seconds their callers have an error, [`Error::Closed`](crate::Error::Closed) or
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown), and no call of the journal goes on
    /// ([`Journal::close`](plinth_journal::Journal::close)). Feeds and reads of what was applied go on until
    /// [`Engine::close`]. Blocks the thread; a no-op for a single store.
    pub fn leave_journal(&self) {
        if self.0.replica.is_some() {
            self.0.stop_writes();
            self.0.leave_journal();
        }
    }
}
