//! Sets of revisions, and which revisions a repair cannot account for.

use std::collections::BTreeMap;

use rocksdb::DB;

use super::salvage::{number, user_key, Reader};
use crate::error::Result;
use crate::layout::meta;
use crate::log::decode_entry;
use crate::revision::Revision;
use crate::store::Family;
use crate::stored;

/// A set of revisions; takes a few words per contiguous range.
#[derive(Debug, Clone, Default)]
pub(super) struct Revisions {
    /// The first of each range, and the one after its last.
    runs: BTreeMap<u64, u64>,
}

impl Revisions {
    pub(super) fn add(&mut self, revision: Revision) {
        let (mut first, mut end) = (revision.get(), revision.get().saturating_add(1));
        if let Some((&before, &before_end)) = self.runs.range(..=first).next_back() {
            if before_end >= end {
                return;
            }
            if before_end == first {
                first = before;
            }
        }
        if let Some(behind) = self.runs.remove(&end) {
            end = behind;
        }
        self.runs.insert(first, end);
    }

    /// The ranges of revisions after `after`, up to `last`, that are not in the set: the first and the last
    /// of each.
    fn missing(&self, after: Revision, last: Revision) -> Vec<(Revision, Revision)> {
        let mut missing = Vec::new();
        let mut next = after.next().get();
        for (&first, &end) in &self.runs {
            if first > last.get() {
                break;
            }
            if first > next {
                missing.push((Revision::new(next), Revision::new(first - 1)));
            }
            next = next.max(end);
        }
        if next <= last.get() {
            missing.push((Revision::new(next), last));
        }
        missing
    }

    fn first(&self) -> Option<Revision> {
        self.runs.first_key_value().map(|(first, _)| Revision::new(*first))
    }
}

/// The revisions that are missing from a database.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Ranges of revisions of which nothing is left: no log entry, no version, nothing in a dropped log.
    pub all: Vec<(Revision, Revision)>,
    /// The last revision without a log entry; only after it is the last logged change of a key certainly its
    /// last change.
    pub last_unlogged: Revision,
}

/// Finds the revisions up to `last` that are missing in `db`; those in `dropped` are readable in logs that
/// are not replayed.
///
/// Revisions have no gaps above the floor, unless relaxed transactions were used: then gaps mean nothing, and
/// only revisions after all that were found count. Costs a scan of the log, and if that has gaps a scan of
/// everything.
pub(super) fn missing(db: &DB, dropped: &Revisions, last: Revision) -> Result<Missing> {
    // A store that was never compacted has none; one that has lost its numbers has no format either.
    let floor = number(db, meta::FLOOR).or(number(db, meta::FORMAT).map(|_| Revision::ZERO));
    let is_dense = number(db, meta::RESERVED) <= floor;
    let mut logged = dropped.clone();
    let mut log = Reader::new(db, Family::Log)?;
    while let Some((key, value)) = log.item() {
        if let Ok(entry) = decode_entry(key, value) {
            logged.add(entry.revision);
        }
        log.next();
    }
    // The log reaches back to the floor. If the floor is lost, it is taken to begin at its first entry.
    let after = floor.or_else(|| logged.first().map(Revision::previous)).unwrap_or(Revision::ZERO);
    let unlogged = logged.missing(after, last);
    let Some(&(_, last_unlogged)) = unlogged.last() else { return Ok(Missing::default()) };
    let mut known = logged;
    for family in [Family::Current, Family::History] {
        let mut versions = Reader::new(db, family)?;
        while let Some((stored, value)) = versions.item() {
            if let Some((header, _)) =
                user_key(family, stored).and_then(|key| stored::check(&key, value).ok())
            {
                known.add(header.mod_revision);
            }
            versions.next();
        }
    }
    let mut all = known.missing(after, last);
    if !is_dense {
        // Revisions that were reserved and not used are not lost.
        let highest = known.runs.last_key_value().map_or(after.get(), |(_, end)| *end - 1);
        all.retain(|(first, _)| first.get() > highest);
    }
    Ok(Missing { all, last_unlogged })
}

impl FromIterator<Revision> for Revisions {
    fn from_iter<T: IntoIterator<Item = Revision>>(revisions: T) -> Revisions {
        let mut set = Revisions::default();
        revisions.into_iter().for_each(|revision| set.add(revision));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_and_gaps_are_found() {
        let set: Revisions = [5, 6, 9, 7, 20, 8, 5, 21].into_iter().map(Revision::new).collect();
        assert_eq!(set.runs.iter().map(|(a, b)| (*a, *b)).collect::<Vec<_>>(), [(5, 10), (20, 22)]);
        let missing = |after, last| {
            let runs = set.missing(Revision::new(after), Revision::new(last));
            runs.iter().map(|(first, last)| (first.get(), last.get())).collect::<Vec<_>>()
        };
        assert_eq!(missing(4, 9), []);
        assert_eq!(missing(2, 9), [(3, 4)]);
        assert_eq!(missing(6, 25), [(10, 19), (22, 25)]);
        assert_eq!(missing(30, 31), [(31, 31)]);
        assert_eq!(missing(21, 21), []);
        assert_eq!(missing(0, 0), []);
    }
}
