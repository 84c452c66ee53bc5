//! [`Error`]: why a journal or a record in it cannot be used.

use crate::identity::{ClusterId, ReplicaId};
use crate::position::Position;

/// Short form for results of a journal.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A journal failed, or what it holds cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the texts say it
pub enum Error {
    /// The journal cannot be reached. An append with this error was not made and never will be.
    #[error("the journal is unavailable: {message}")]
    Unavailable { message: String },
    /// The journal cannot be used as it is, and nothing was written: it wants other credentials, belongs to
    /// another cluster, holds what is not a journal's, or is configured to lose records.
    #[error("the journal cannot be used: {message}")]
    Refused {
        /// The cause, and what to do.
        message: String,
    },
    /// The journal answers and refuses, until somebody mends what the message names: its rights, a
    /// certificate, a key that was removed. Nothing was written.
    #[error("the journal refuses: {message}")]
    Denied { message: String },
    /// It is unknown whether the record was appended: it may be in the journal, once or more than once, or
    /// appear there at any later time. To append the same bytes again is always safe.
    #[error("the outcome of the append is unknown: {message}")]
    OutcomeUnknown { message: String },
    /// The journal answers, and takes no record before it has space again. Whether it has taken this one is
    /// unknown, as for [`Error::OutcomeUnknown`]. No connection has failed, so what is answered next is the
    /// same journal's as after an append that was made.
    #[error("the journal is full: {message}")]
    Full {
        /// Who reports it, and what to do.
        message: String,
    },
    /// Records that are needed have been trimmed. A replica that needs them starts from a checkpoint.
    #[error("position {requested} of the journal is trimmed, the oldest one available is {oldest}")]
    Trimmed {
        /// The requested position.
        requested: Position,
        /// The oldest position that can be read.
        oldest: Position,
    },
    /// The record exceeds the limit of the journal, and was not appended.
    #[error("the record has {size} bytes, the journal's limit is {limit}")]
    TooLarge {
        /// Size of the record in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Records are missing between two that can be read.
    #[error("position {found} follows in the journal where position {expected} is due: records are missing")]
    Gap {
        /// The position that is due.
        expected: Position,
        /// The position found.
        found: Position,
    },
    /// The journal ends before records that were applied: it is another one, or has lost them.
    #[error("the journal ends at position {end}, but the record at position {applied} was applied")]
    Behind {
        /// The last position that was applied.
        applied: Position,
        /// The journal's end.
        end: Position,
    },
    /// A record is another one than was applied: the journal was replaced, or has lost records and gone on.
    #[error("the record at position {position} of the journal is another one than was applied")]
    Replaced { position: Position },
    /// A record is damaged.
    #[error("the record at position {position} of the journal is damaged: {reason}")]
    Damaged { position: Position, reason: &'static str },
    /// A record belongs to another cluster.
    #[error(
        "the record at position {position} of the journal is of cluster {found}, this is cluster {expected}"
    )]
    OtherCluster {
        position: Position,
        /// The record's cluster.
        found: ClusterId,
        /// The cluster of the reader.
        expected: ClusterId,
    },
    /// A replica has closed the journal: it is a single store since, and nobody applies what follows.
    #[error("the journal was closed at position {position}: replica {replica} is a single server since")]
    Closed { position: Position, replica: ReplicaId },
    /// A record, or the level of the cluster that it raises, is of a later version of this program.
    #[error(
        "the record at position {position} of the journal needs version {found}, this program has {newest}"
    )]
    Version {
        position: Position,
        /// The version that it needs.
        found: u8,
        /// The newest version that this program has.
        newest: u8,
    },
}

impl Error {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Error::Unavailable { .. }
                | Error::OutcomeUnknown { .. }
                | Error::Denied { .. }
                | Error::Full { .. }
        )
    }

    /// Whether an append with this error was not made and never will be, and may be made again.
    pub fn was_not_appended(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::Denied { .. } | Error::Refused { .. })
    }

    /// Why the journal refuses, where it answers and does.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Error::Denied { message } | Error::Refused { message } | Error::Full { message } => Some(message),
            _ => None,
        }
    }
}
