//! Records that are missing or damaged: a member of the journal may have them so where others do not.

use std::time::Duration;

use plinth_journal::{Entry, Error as JournalError, Journal, Position, Reader};

use crate::health::{Warning, WarningHandler};

/// A record that is missing or damaged is read so often at least before it is taken for the journal's: what
/// is wrong may be the path from the member.
const LEAST_READS: u32 = 3;
/// How long a record is waited for, which exists.
const RECORD_WAIT: Duration = Duration::from_millis(500);

/// How often a record that is missing or damaged is read before the replica gives up: at each member once.
pub(crate) fn reads(journal: &dyn Journal) -> u32 {
    u32::try_from(journal.members()).unwrap_or(u32::MAX).max(LEAST_READS)
}

/// Whether another member may have it otherwise.
pub(crate) fn may_pass(error: &JournalError) -> bool {
    matches!(error, JournalError::Gap { .. } | JournalError::Damaged { .. })
}

/// Has what is read next come from another member than what has led to an error.
pub(crate) fn leave(reader: &mut dyn Reader, error: &JournalError, warn: &WarningHandler) {
    if let Some(member) = reader.distrust() {
        warn.warn(&Warning::SuspectMember { member, error: error.clone() });
    }
}

/// Judges the record at a position, if it comes in time. A member that has it damaged, or lacks it, is left.
pub(crate) fn judge(
    journal: &dyn Journal,
    position: Position,
    warn: &WarningHandler,
    judge: impl FnOnce(Entry) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let mut reader = journal.read(position)?;
    let judged = reader.next(RECORD_WAIT).and_then(|entry| entry.map_or(Ok(()), judge));
    judged.inspect_err(|error| {
        if may_pass(error) {
            leave(&mut *reader, error, warn);
        }
    })
}
