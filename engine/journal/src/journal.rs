//! [`Journal`]: what a replica needs of a replicated log.

use std::time::Duration;

use bytes::Bytes;

use crate::error::Result;
use crate::position::Position;
use crate::problem::Problem;

/// A record as the journal returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where the record is in the journal.
    pub position: Position,
    /// What was appended.
    pub bytes: Bytes,
}

/// A totally ordered, durable, replicated log of opaque records.
///
/// Calls block the thread, each for a time that the implementation bounds. What it promises:
///
/// - A record whose append was answered is durable on a majority, keeps its position, and is returned by
///   every read that reaches it, the same bytes on every replica.
/// - Positions have no gaps. Where two appends do not overlap, the later one has the higher position.
/// - It does not promise that a record is stored once: after an unknown outcome it may be there twice.
pub trait Journal: Send + Sync {
    /// Appends a record and returns its position once it is durable.
    ///
    /// # Errors
    /// [`Unavailable`], [`Denied`], [`Refused`] and [`TooLarge`] when it was not and will not be appended,
    /// [`OutcomeUnknown`] and [`Full`] when nothing is known.
    ///
    /// [`Full`]: crate::Error::Full
    /// [`Denied`]: crate::Error::Denied
    /// [`Refused`]: crate::Error::Refused
    /// [`Unavailable`]: crate::Error::Unavailable
    /// [`TooLarge`]: crate::Error::TooLarge
    /// [`OutcomeUnknown`]: crate::Error::OutcomeUnknown
    fn append(&self, record: Bytes) -> Result<Position>;

    /// Reads records from `from` on, those that are appended later included.
    ///
    /// # Errors
    /// [`Trimmed`](crate::Error::Trimmed), [`Unavailable`](crate::Error::Unavailable).
    fn read(&self, from: Position) -> Result<Box<dyn Reader>>;

    /// The position of the newest record, zero when there is none: at least that of each append that was
    /// answered before the call.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable).
    fn end(&self) -> Result<Position>;

    /// Allows the journal to remove records before `before`. It may keep them for longer.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable).
    fn trim(&self, before: Position) -> Result<()>;

    /// Of how many members readers read: each of these reads one. One where that is not the journal's way.
    fn members(&self) -> usize {
        1
    }

    /// How often it has given up what it had taken for the journal, as its members contradict by now: what it
    /// answers from then on may be another journal's. It is counted before any call is answered by that one,
    /// whichever call has found it out. Zero where that is not the journal's way.
    fn given_up(&self) -> u64 {
        0
    }

    /// Bytes of the largest record that it takes.
    fn max_record_bytes(&self) -> usize;

    /// What is wrong with its settings, which others may change while replicas run, or with single members,
    /// which are not read then: each problem in words, with what to do. The next start may be refused for
    /// it.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable), and [`Refused`](crate::Error::Refused) where it is another
    /// journal by now.
    fn problems(&self) -> Result<Vec<Problem>> {
        Ok(Vec::new())
    }

    /// Ends the calls that wait for an answer, of readers too, with an error that may pass, and fails every
    /// later one in the same way: the replica ends, and waits for nobody. May be called more than once. Calls
    /// that wait for nobody need not fail.
    fn close(&self) {}
}

/// Reads a journal in order. Returned by [`Journal::read`].
pub trait Reader: Send {
    /// The next record; none when there was none for `timeout`.
    ///
    /// # Errors
    /// Those of [`Journal::read`]; after one, the journal is read again from the next position that is due.
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>>;

    /// Leaves the member that this reader reads, which has returned a record that is damaged, or lacks one:
    /// the next reader reads another one, if there is one. Returns the member's address, none where readers
    /// do not read single members.
    fn distrust(&mut self) -> Option<String> {
        None
    }

    /// Whether records, or parts of one, have come since this was asked last, and more may come: what would
    /// have to come once more if it was read by another reader. False where the connection has ended: then
    /// what has come and was not returned may be of before the journal was put back to an old copy.
    fn is_busy(&mut self) -> bool {
        false
    }
}
