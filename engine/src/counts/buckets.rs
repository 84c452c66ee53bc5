//! Buckets of keys with their numbers, and the recent changes of those.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::counts::scan::Scanned;
use crate::feed::event::{Event, EventKind};
use crate::range::KeyRange;
use crate::revision::Revision;

/// Buckets at most, and bytes of the keys that they begin with.
const MOST_BUCKETS: usize = 1 << 16;
const MOST_BYTES: usize = 8 << 20;
/// A range that begins or ends with a longer key is not kept.
const LONGEST_START: usize = 1 << 10;
/// Changes at most, and bytes of their keys.
const MOST_CHANGES: usize = 1 << 15;
const MOST_CHANGED_BYTES: usize = 4 << 20;
/// A bucket that has grown to so many times its keys is counted again, in several.
const GROWTH: u64 = 4;

/// Numbers of keys by bucket, as of a position in the change feed.
pub(super) struct Buckets {
    /// The first key that a bucket may have, and how many it has; none where that is not known. A bucket ends
    /// where the next one begins. The first begins with the empty key.
    buckets: BTreeMap<Bytes, Option<u64>>,
    /// Bytes of those first keys.
    bytes: usize,
    /// Keys of a bucket when it is made.
    step: u64,
    /// Keys that were created or deleted after `complete_from`, in order.
    changes: VecDeque<Change>,
    changed_bytes: usize,
    complete_from: Revision,
    /// All changes up to it are in the numbers.
    position: Revision,
}

struct Change {
    revision: Revision,
    key: Box<[u8]>,
    is_created: bool,
}

impl Change {
    fn sign(&self) -> i64 {
        if self.is_created {
            1
        } else {
            -1
        }
    }
}

/// How a range is counted.
pub(super) struct CountPlan {
    /// Keys that need not be read.
    pub(super) known: u64,
    pub(super) parts: Vec<CountPart>,
}

/// A part of a range that has to be read.
pub(super) struct CountPart {
    pub(super) range: KeyRange,
    /// Whether it is in a bucket whose number is not known.
    pub(super) is_unknown: bool,
}

impl CountPlan {
    /// All of it is read.
    pub(super) fn scan_all(range: KeyRange) -> CountPlan {
        CountPlan { known: 0, parts: vec![CountPart { range, is_unknown: true }] }
    }
}

fn range_of(start: Bytes, end: Option<Bytes>) -> KeyRange {
    match end {
        Some(end) => KeyRange::between(start, end),
        None => KeyRange::from(start),
    }
}

/// Whether a range that ends at `end` is within one that ends at `limit`.
fn ends_within(end: Option<&Bytes>, limit: Option<&Bytes>) -> bool {
    match (end, limit) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(end), Some(limit)) => end <= limit,
    }
}

impl Buckets {
    /// Nothing is known, at `position`.
    pub(super) fn new(position: Revision, step: u64) -> Buckets {
        Buckets {
            buckets: BTreeMap::from([(Bytes::new(), None)]),
            bytes: 0,
            step,
            changes: VecDeque::new(),
            changed_bytes: 0,
            complete_from: position,
            position,
        }
    }

    pub(super) fn position(&self) -> Revision {
        self.position
    }

    /// Nothing has changed up to `position`.
    pub(super) fn reach(&mut self, position: Revision) {
        self.position = self.position.max(position);
    }

    /// Applies the events of whole revisions up to `position`.
    pub(super) fn apply(&mut self, events: &[Arc<Event>], position: Revision) {
        for event in events {
            let is_created = match &event.kind {
                EventKind::Put { create_revision, .. } if *create_revision == event.revision => true,
                EventKind::Put { .. } => continue,
                EventKind::Delete => false,
            };
            self.change(Change { revision: event.revision, key: event.key.as_ref().into(), is_created });
        }
        self.reach(position);
    }

    fn change(&mut self, change: Change) {
        let (start, _, count) = self.bucket_of(&change.key);
        if let Some(count) = count {
            let changed = count.checked_add_signed(change.sign());
            debug_assert!(changed.is_some(), "a key was deleted that was not counted");
            // Counted again where it has grown.
            let changed = changed.filter(|count| *count <= self.step * GROWTH);
            self.buckets.insert(start.clone(), changed);
            if !change.is_created && changed.is_some_and(|count| count <= self.step / 2) {
                self.merge_around(&start);
            }
        }
        self.changed_bytes += change.key.len();
        self.changes.push_back(change);
        while self.changes.len() > MOST_CHANGES || self.changed_bytes > MOST_CHANGED_BYTES {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.changed_bytes -= oldest.key.len();
            self.complete_from = oldest.revision;
        }
    }

    /// How a range is counted at a revision; none where the changes since are not known.
    pub(super) fn plan(&self, range: &KeyRange, revision: Revision) -> Option<CountPlan> {
        if !self.covers(revision) {
            return None;
        }
        let (first, _, _) = self.bucket_of(range.start());
        let mut plan = CountPlan { known: 0, parts: Vec::new() };
        let mut known = 0_i64;
        let mut buckets = self.buckets.range::<Bytes, _>(first..).peekable();
        while let Some((start, count)) = buckets.next() {
            if range.end().is_some_and(|end| start >= end) {
                break;
            }
            let end = buckets.peek().map(|(end, _)| *end);
            match count {
                Some(count) if is_within(start, end, range) => {
                    known = known.saturating_add_unsigned(*count);
                }
                count => {
                    let end = if ends_within(end, range.end()) { end } else { range.end() };
                    let part = range_of(start.max(range.start()).clone(), end.cloned());
                    plan.parts.push(CountPart { range: part, is_unknown: count.is_none() });
                }
            }
        }
        for change in self.changes_after(revision).filter(|change| range.contains(&change.key)) {
            let (start, end, count) = self.bucket_of(&change.key);
            if count.is_some() && is_within(&start, end.as_ref(), range) {
                known -= change.sign();
            }
        }
        plan.known = u64::try_from(known).ok()?;
        Some(plan)
    }

    /// Keeps what was counted at a revision, where that is not known yet.
    pub(super) fn learn(&mut self, revision: Revision, mut scanned: Scanned) {
        let (start, limit) = (scanned.range.start().clone(), scanned.range.end().cloned());
        let (outer, outer_end, count) = self.bucket_of(&start);
        let is_long = |key: &Bytes| key.len() > LONGEST_START;
        if count.is_some()
            || !ends_within(limit.as_ref(), outer_end.as_ref())
            || is_long(&start)
            || limit.as_ref().is_some_and(is_long)
            || !self.covers(revision)
        {
            return;
        }
        for change in self.changes_after(revision).filter(|change| scanned.range.contains(&change.key)) {
            let behind = scanned.buckets.partition_point(|(start, _)| start.as_ref() <= &*change.key);
            let bucket = behind.checked_sub(1).and_then(|bucket| scanned.buckets.get_mut(bucket));
            let Some((_, keys)) = bucket else { return };
            let Some(changed) = keys.checked_add_signed(change.sign()) else { return };
            *keys = changed;
        }
        self.step = self.step.max(scanned.step);
        if let Some(limit) = limit.filter(|limit| Some(limit) != outer_end.as_ref()) {
            self.insert(limit, None);
        }
        let last = scanned.buckets.last().map(|(start, _)| start.clone());
        for (start, keys) in scanned.buckets {
            self.insert(start, Some(keys).filter(|keys| *keys <= self.step * GROWTH));
        }
        debug_assert!(self.buckets.contains_key(&outer));
        self.merge_around(&start);
        if let Some(last) = last {
            self.merge_around(&last);
        }
        self.bound();
    }

    /// Whether the numbers at a revision can be known.
    fn covers(&self, revision: Revision) -> bool {
        (self.complete_from..=self.position).contains(&revision)
    }

    fn changes_after(&self, revision: Revision) -> impl Iterator<Item = &Change> {
        self.changes.iter().rev().take_while(move |change| change.revision > revision)
    }

    /// The bucket that a key belongs to: where it begins, where it ends, and its number.
    fn bucket_of(&self, key: &[u8]) -> (Bytes, Option<Bytes>, Option<u64>) {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let found = self.buckets.range::<[u8], _>(up_to).next_back();
        let (start, count) = found.map_or((Bytes::new(), None), |(start, count)| (start.clone(), *count));
        let next = self.buckets.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
        (start, next.map(|(end, _)| end.clone()), count)
    }

    fn insert(&mut self, start: Bytes, count: Option<u64>) {
        let bytes = start.len();
        if self.buckets.insert(start, count).is_none() {
            self.bytes += bytes;
        }
    }

    /// Merges a bucket with its neighbors, where all keys fit into one.
    fn merge_around(&mut self, start: &Bytes) {
        let after = (Bound::Excluded(start.as_ref()), Bound::Unbounded);
        if let Some(next) = self.buckets.range::<[u8], _>(after).next().map(|(next, _)| next.clone()) {
            self.merge_down(&next);
        }
        self.merge_down(start);
    }

    /// Merges a bucket into the one before it, where all keys fit into one.
    fn merge_down(&mut self, start: &Bytes) {
        let Some(Some(keys)) = self.buckets.get(start).copied() else { return };
        let Some((_, before)) = self
            .buckets
            .range_mut::<[u8], _>((Bound::Unbounded, Bound::Excluded(start.as_ref())))
            .next_back()
        else {
            return;
        };
        if let Some(sum) = before.map(|before| before + keys).filter(|sum| *sum <= self.step) {
            *before = Some(sum);
            self.buckets.remove(start);
            self.bytes -= start.len();
        }
    }

    fn is_too_large(&self) -> bool {
        self.buckets.len() > MOST_BUCKETS || self.bytes > MOST_BYTES
    }

    /// Makes room: larger buckets; and if that is not enough, none.
    fn bound(&mut self) {
        if !self.is_too_large() {
            return;
        }
        self.step = self.step.saturating_mul(2);
        let mut merged: BTreeMap<Bytes, Option<u64>> = BTreeMap::new();
        let mut last: Option<(Bytes, Option<u64>)> = None;
        for (start, count) in std::mem::take(&mut self.buckets) {
            last = match last {
                Some((first, Some(keys))) if count.is_some_and(|count| keys + count <= self.step) => {
                    Some((first, count.map(|count| keys + count)))
                }
                before => {
                    merged.extend(before);
                    Some((start, count))
                }
            };
        }
        merged.extend(last);
        self.bytes = merged.keys().map(Bytes::len).sum();
        self.buckets = merged;
        if self.is_too_large() {
            self.buckets = BTreeMap::from([(Bytes::new(), None)]);
            self.bytes = 0;
        }
    }
}

/// Whether a bucket is in a range, to its end.
fn is_within(start: &Bytes, end: Option<&Bytes>, range: &KeyRange) -> bool {
    start >= range.start() && ends_within(end, range.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::scan::scan;
    use crate::{At, Engine, Options, Transaction};

    fn filled(keys: u64) -> (tempfile::TempDir, Engine) {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let fill = (0..keys).fold(Transaction::new(), |t, n| t.put(format!("k/{n:05}"), "value"));
        engine.transact(fill).wait().unwrap();
        (dir, engine)
    }

    fn counted(engine: &Engine, range: &KeyRange) -> Buckets {
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let mut buckets = Buckets::new(snapshot.revision(), 10);
        buckets.learn(snapshot.revision(), scan(&snapshot, range.clone(), 10).unwrap());
        buckets
    }

    fn change(revision: u64, key: &str, is_created: bool) -> Change {
        Change { revision: Revision::new(revision), key: key.as_bytes().into(), is_created }
    }

    /// Keys that are known, and how many parts have to be read.
    fn plan(buckets: &Buckets, range: &KeyRange, revision: u64) -> Option<(u64, usize)> {
        let plan = buckets.plan(range, Revision::new(revision))?;
        Some((plan.known, plan.parts.len()))
    }

    fn assert_sound(buckets: &Buckets) {
        assert_eq!(buckets.buckets.keys().next().map(AsRef::as_ref), Some(&b""[..]));
        assert_eq!(buckets.bytes, buckets.buckets.keys().map(Bytes::len).sum::<usize>());
        assert_eq!(
            buckets.changed_bytes,
            buckets.changes.iter().map(|change| change.key.len()).sum::<usize>()
        );
    }

    #[test]
    fn what_was_counted_is_not_read_again() {
        let (_dir, engine) = filled(100);
        let all = KeyRange::prefix("k/");
        let mut buckets = counted(&engine, &all);
        assert_eq!(plan(&buckets, &all, 1), Some((100, 0)));
        assert_eq!(plan(&buckets, &KeyRange::all(), 1), Some((100, 2)), "what is before and after");
        assert_eq!(plan(&buckets, &KeyRange::between("k/00035", "k/00062"), 1), Some((20, 2)), "two ends");
        buckets.change(change(2, "k/00035a", true));
        buckets.change(change(3, "k/00036", false));
        buckets.change(change(4, "l", true));
        buckets.reach(Revision::new(9));
        for (revision, known) in [(1, 100), (2, 101), (3, 100), (4, 100), (9, 100)] {
            assert_eq!(plan(&buckets, &all, revision), Some((known, 0)), "at {revision}");
        }
        assert_eq!(plan(&buckets, &all, 0), None, "before the first count");
        assert_eq!(plan(&buckets, &all, 10), None, "not there yet");
        assert_sound(&buckets);
    }

    #[test]
    fn buckets_that_grow_are_counted_again_and_small_ones_merge() {
        let (_dir, engine) = filled(100);
        let all = KeyRange::prefix("k/");
        let mut buckets = counted(&engine, &all);
        for n in 0..10 * GROWTH {
            buckets.change(change(2 + n, &format!("k/00035-{n}"), true));
        }
        buckets.reach(Revision::new(100));
        assert_eq!(plan(&buckets, &all, 100), Some((90, 1)));
        let before = buckets.buckets.len();
        for n in 0..80 {
            buckets.change(change(101 + n, &format!("k/{:05}", if n < 30 { n } else { n + 20 }), false));
        }
        assert!(buckets.buckets.len() < before / 2, "{:?}", buckets.buckets);
        assert_eq!(plan(&buckets, &all, 180), None);
        buckets.reach(Revision::new(180));
        assert_eq!(plan(&buckets, &all, 180), Some((10, 1)));
        assert_eq!(plan(&buckets, &all, 100), Some((90, 1)), "as it was");
        assert_sound(&buckets);
    }

    #[test]
    fn changes_and_buckets_are_bounded() {
        let (_dir, engine) = filled(100);
        let all = KeyRange::prefix("k/");
        let mut buckets = counted(&engine, &all);
        for n in 0..2 * MOST_CHANGES as u64 {
            buckets.change(change(2 + n, "k/00035-a", n % 2 == 0));
        }
        let newest = 1 + 2 * MOST_CHANGES as u64;
        buckets.reach(Revision::new(newest));
        assert_eq!(buckets.changes.len(), MOST_CHANGES);
        assert_eq!(plan(&buckets, &all, newest), Some((100, 0)));
        assert_eq!(plan(&buckets, &all, newest - 1), Some((101, 0)));
        assert_eq!(plan(&buckets, &all, newest / 2 - 1), None);
        buckets.change(change(newest + 1, &"l".repeat(MOST_CHANGED_BYTES + 1), true));
        assert_eq!((buckets.changes.len(), buckets.changed_bytes), (0, 0));
        // Ranges that end in the middle of nowhere, more than there is room for.
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let mut buckets = Buckets::new(snapshot.revision(), 1);
        for n in 0..MOST_BUCKETS + 2 {
            let start = format!("x/{n:08}");
            let range = KeyRange::between(start.clone(), format!("x/{n:08}a"));
            let scanned = Scanned { range, total: 1, buckets: vec![(start.into(), 1)], step: 1 };
            buckets.learn(snapshot.revision(), scanned);
            assert!(buckets.buckets.len() <= MOST_BUCKETS);
        }
        assert_sound(&buckets);
        let mut buckets = Buckets::new(snapshot.revision(), 10);
        let long = "y".repeat(LONGEST_START + 1);
        buckets
            .learn(snapshot.revision(), scan(&snapshot, KeyRange::between("k/", long.clone()), 10).unwrap());
        buckets.learn(snapshot.revision(), scan(&snapshot, KeyRange::from(long), 10).unwrap());
        assert_eq!(buckets.buckets.len(), 1);
        assert_sound(&buckets);
    }

    #[test]
    fn what_was_counted_of_an_older_revision_is_brought_up_to_date() {
        let (_dir, engine) = filled(100);
        let all = KeyRange::prefix("k/");
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let scanned = || scan(&snapshot, all.clone(), 10).unwrap();
        let mut buckets = Buckets::new(snapshot.revision(), 10);
        buckets.change(change(2, "k/00050", false));
        buckets.change(change(3, "k/00099a", true));
        buckets.change(change(4, "k/00099b", true));
        buckets.reach(Revision::new(4));
        buckets.learn(snapshot.revision(), scanned());
        assert_eq!(plan(&buckets, &all, 4), Some((101, 0)));
        assert_eq!(plan(&buckets, &all, 1), Some((100, 0)));
        // Again: it is known already, and whatever was counted of another time is not.
        buckets.learn(snapshot.revision(), scanned());
        assert_eq!(plan(&buckets, &all, 4), Some((101, 0)));
        let mut later = Buckets::new(Revision::new(3), 10);
        later.reach(Revision::new(4));
        later.learn(snapshot.revision(), scanned());
        assert_eq!(plan(&later, &all, 4), Some((0, 1)));
        assert_sound(&buckets);
    }
}
