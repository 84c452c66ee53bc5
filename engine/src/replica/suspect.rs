//! Records that are missing or damaged: a member of the journal may have them so where others do not.

use std::collections::BTreeSet;
use std::time::Duration;

use plinth_journal::{Entry, Error as JournalError, Journal, Position};

use crate::health::{Warning, WarningHandler};

/// A record that is missing or damaged is read so often at least before it is taken for the journal's: what
/// is wrong may be the path from the member.
const LEAST_READS: u32 = 3;
/// How long a record is waited for, which exists.
const RECORD_WAIT: Duration = Duration::from_millis(500);

/// Who has served what is due missing or damaged.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Addresses of members: one that is read again, as the others are down, is one.
    members: BTreeSet<String>,
    reads: u32,
}

impl Suspects {
    /// Whether an error is that of the journal, and not of some of its members: each has a record missing or
    /// damaged, or most have another one than was applied.
    pub(crate) fn agree(&self, error: &JournalError, journal: &dyn Journal) -> bool {
        let served = match self.members.len() {
            // Readers do not read single members.
            0 => usize::try_from(self.reads).unwrap_or(usize::MAX),
            members => members,
        };
        let needed = match error {
            JournalError::Replaced { .. } => journal.members() / 2 + 1,
            _ => journal.members(),
        };
        self.reads >= LEAST_READS && served >= needed
    }

    /// Notes an error of a read, and the member that was read. See [`plinth_journal::Reader::distrust`].
    pub(crate) fn add(&mut self, member: Option<String>, error: &JournalError, warn: &WarningHandler) {
        self.reads = self.reads.saturating_add(1);
        let Some(member) = member else { return };
        if self.members.insert(member.clone()) {
            warn.warn(&Warning::SuspectMember { member, error: error.clone() });
        }
    }
}

/// How often a start reads a record that is missing or damaged, at most.
pub(crate) fn most_reads(journal: &dyn Journal) -> u32 {
    LEAST_READS.saturating_mul(u32::try_from(journal.members()).unwrap_or(u32::MAX))
}

/// Whether another member may have it otherwise.
pub(crate) fn may_pass(error: &JournalError) -> bool {
    matches!(error, JournalError::Gap { .. } | JournalError::Damaged { .. } | JournalError::Replaced { .. })
}

/// Judges the record at a position, if it comes in time. A member that has it damaged, or lacks it, is left.
pub(crate) fn judge(
    journal: &dyn Journal,
    position: Position,
    (suspects, warn): (&mut Suspects, &WarningHandler),
    judge: impl FnOnce(Entry) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let mut reader = journal.read(position)?;
    let judged = reader.next(RECORD_WAIT).and_then(|entry| entry.map_or(Ok(()), judge));
    judged.inspect_err(|error| {
        if may_pass(error) {
            suspects.add(reader.distrust(), error, warn);
        }
    })
}
