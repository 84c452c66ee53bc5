//! Which revisions something is left of.

use std::collections::BTreeMap;

use rocksdb::DB;

use super::salvage::{number, user_key, Reader};
use crate::compact::decode_entry;
use crate::error::Result;
use crate::layout::meta;
use crate::record;
use crate::revision::Revision;
use crate::store::Family;

/// A set of revisions; costs a few words for each run without a gap.
#[derive(Debug, Clone, Default)]
pub(super) struct Revisions {
    /// The first of each run, and the one behind its last.
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

    /// The runs of revisions behind `after`, up to `last`, that are not in the set: the first and the last of each.
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

/// What is missing of a database's revisions.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Runs of revisions of which nothing is left: no entry of the change log, no version, nothing in a dropped log.
    pub all: Vec<(Revision, Revision)>,
    /// The last revision that the change log does not tell of; what it says last of a key is the last that happened to it only
    /// from there on.
    pub last_unlogged: Revision,
}

/// Looks for the revisions up to `last` that are missing in `db`; `dropped` can be read in logs that are not replayed.
///
/// Revisions have no gaps above the floor, unless relaxed transactions were used: then nothing can be logged, and only what is behind
/// everything that was found counts. Costs a walk over the change log, and where that has gaps one over everything.
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
    // The change log goes back to the floor. Where that is lost, to wherever it begins.
    let after = floor.or_else(|| logged.first().map(Revision::previous)).unwrap_or(Revision::ZERO);
    let unlogged = logged.missing(after, last);
    let Some(&(_, last_unlogged)) = unlogged.last() else { return Ok(Missing::default()) };
    let mut known = logged;
    for family in [Family::Current, Family::History] {
        let mut versions = Reader::new(db, family)?;
        while let Some((stored, value)) = versions.item() {
            if let Some((header, _)) =
                user_key(family, stored).and_then(|key| record::check(&key, value).ok())
            {
                known.add(header.mod_revision);
            }
            versions.next();
        }
    }
    let mut all = known.missing(after, last);
    if !is_dense {
        // What was reserved and not used is no loss.
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
