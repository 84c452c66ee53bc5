//! Records whose appends were answered, until they are applied: the journal that has answered may be given up
//! before that.
//!
//! It was the wrong one, as most of its members say by now (`plinth_journal::Review`), or it was put back to
//! an older copy that has all that was applied here. Then the journal that is followed lacks records that
//! were answered. Nobody else would notice: a replica that has applied none of them is not behind. But the
//! next record of this one has a later sequence than is due, so it would be void, and so would all that
//! follow.
//!
//! So each record is kept until it was applied, and those that the journal lacks are appended once more, the
//! same bytes in the same order, as after an unknown outcome. That is safe wherever the first ones are: each
//! record is applied once, where its sequence is due. Two signs, neither of which is a time, show that one is
//! missing:
//!
//! - The journal was applied up to the position that the answer has named, and the record was not there.
//! - The journal was lost since, was found again and compared with what was applied, and ends before that
//!   position.
//!
//! A record that follows a missing one was not applied either, wherever it is. So as soon as one is missing
//! all are appended once more.

use std::collections::VecDeque;

use bytes::Bytes;
use plinth_journal::Position;

use crate::replica::shared::Shared;

/// Bytes that are kept at most before another record is appended.
const MAX_BYTES: usize = 32 << 20;

/// A record whose append was answered.
pub(crate) struct Unapplied {
    pub sequence: u64,
    pub bytes: Bytes,
    /// What the last answer has named.
    position: Position,
    is_missing: bool,
}

/// The records of a session that were answered and not applied yet, in their order.
#[derive(Default)]
pub(crate) struct UnappliedRecords {
    records: VecDeque<Unapplied>,
    bytes: usize,
    /// How often the journal was lost before the oldest answer, or before its end was compared.
    losses: u64,
}

impl UnappliedRecords {
    /// Notes the answer to an append that began after so many losses.
    pub(crate) fn add(&mut self, sequence: u64, bytes: Bytes, position: Position, losses: u64) {
        if self.records.is_empty() {
            self.losses = losses;
        }
        self.bytes += bytes.len();
        self.records.push_back(Unapplied { sequence, bytes, position, is_missing: false });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES
    }

    /// Takes the oldest record.
    pub(crate) fn take_first(&mut self) -> Option<Unapplied> {
        let first = self.records.pop_front()?;
        self.bytes -= first.bytes.len();
        Some(first)
    }

    /// Drops what was applied, and finds out whether the journal lacks something of the rest. `end_since`
    /// returns the end of the journal if it was lost and checked after so many losses.
    pub(crate) fn compare(&mut self, shared: &Shared, end_since: impl FnOnce(&mut u64) -> Option<Position>) {
        while self.records.front().is_some_and(|first| !shared.is_pending(first.sequence)) {
            self.take_first();
        }
        let Some(newest) = self.records.iter().map(|record| record.position).max() else { return };
        if self.records.iter().any(|record| record.is_missing) {
            return;
        }
        let is_missing = shared.lacks(self.records.iter().map(|record| (record.sequence, record.position)))
            || end_since(&mut self.losses).is_some_and(|end| end < newest);
        self.records.iter_mut().for_each(|record| record.is_missing = is_missing);
    }

    /// The first record that is to be appended once more.
    pub(crate) fn first_missing(&self) -> Option<&Unapplied> {
        self.records.iter().find(|record| record.is_missing)
    }

    /// The first missing record was appended once more.
    pub(crate) fn found(&mut self, position: Position) {
        if let Some(record) = self.records.iter_mut().find(|record| record.is_missing) {
            (record.position, record.is_missing) = (position, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a replica whose store is slow stays bounded.
    #[test]
    fn records_are_kept_up_to_a_size() {
        let mut records = UnappliedRecords::default();
        let half = Bytes::from(vec![0; MAX_BYTES / 2]);
        for sequence in 1..=2 {
            assert!(records.has_room());
            records.add(sequence, half.clone(), Position::new(sequence), 0);
        }
        assert!(!records.has_room());
        assert_eq!(records.take_first().map(|record| record.sequence), Some(1));
        assert!(records.has_room());
    }
}
