//! The hub: where the committer publishes and subscribers read.
//!
//! Subscribers of the same key range share one [`RangeFeed`]. The committer finds the range feeds of a key by
//! those prefixes of the key that are subscribed to, so its cost depends on how many range feeds match, not
//! on how many exist; for each match it appends one shared segment of events, however many subscribers there
//! are.
//!
//! Locks, in the order in which they may be taken: `index`, then one range feed's `state` or `ring`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64 as Statistic, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use bytes::Bytes;

use crate::error::Error;
use crate::feed::event::{Commit, Event};
use crate::feed::ring::Ring;
use crate::range::KeyRange;
use crate::revision::Revision;
use crate::sync::{fence, AtomicBool, AtomicU64, AtomicUsize, Mutex, RwLock};

/// Events of whole revisions, in order, shared by their subscribers.
pub(crate) type Segment = Arc<[Arc<Event>]>;

/// The publishing side of all change feeds, and the current revision.
pub(crate) struct Hub {
    /// The newest revision that is durable and visible in every range feed.
    latest: AtomicU64,
    ring: RwLock<Ring>,
    index: Mutex<Index>,
    /// Tasks that wait for a revision.
    waiting: Mutex<BTreeMap<(Revision, u64), Waker>>,
    waiting_count: AtomicUsize,
    next_waiter: AtomicU64,
    closed: AtomicBool,
    /// The reason for closing.
    ending: Mutex<Option<Error>>,
    /// Subscriptions that exist, for statistics.
    pub(crate) subscribers: Statistic,
    /// Events handed to subscribers, for statistics.
    pub(crate) delivered: Statistic,
}

/// Range feeds by the prefix that all keys of their range share.
#[derive(Default)]
struct Index {
    feeds: HashMap<Bytes, Vec<Arc<RangeFeed>>>,
    /// How many prefixes of each length there are: the lengths worth looking up.
    lengths: BTreeMap<usize, usize>,
    /// Segments in the order in which they were appended, to release them with the ring.
    segments: VecDeque<(Revision, Weak<RangeFeed>)>,
}

/// The state shared by the subscribers of one key range.
pub(crate) struct RangeFeed {
    range: KeyRange,
    state: Mutex<FeedState>,
}

struct FeedState {
    segments: VecDeque<Segment>,
    /// The segments hold every event of the range after this revision.
    complete_from: Revision,
    /// One slot per subscriber: its waker while it waits.
    slots: Vec<Option<Waker>>,
    /// Places whose subscribers wait.
    parked: Vec<usize>,
    /// Places without a subscriber.
    free: Vec<usize>,
}

/// What a range feed has for a subscriber.
pub(crate) enum Next {
    /// The next events.
    Segment(Segment),
    /// There are none up to this revision, the latest; the waker is registered.
    Nothing(Revision),
    /// The subscriber is too far behind for the segments.
    Behind,
}

impl Hub {
    pub(crate) fn new(latest: Revision, ring_bytes: usize) -> Hub {
        Hub {
            latest: AtomicU64::new(latest.get()),
            ring: RwLock::new(Ring::new(latest, ring_bytes)),
            index: Mutex::default(),
            waiting: Mutex::default(),
            waiting_count: AtomicUsize::new(0),
            next_waiter: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ending: Mutex::new(None),
            subscribers: Statistic::new(0),
            delivered: Statistic::new(0),
        }
    }

    /// The newest published revision.
    pub(crate) fn latest(&self) -> Revision {
        Revision::new(self.latest.load(Ordering::Acquire))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Makes durable commits visible, in order. Called under the writer's lock only. The caller wakes the
    /// returned wakers, after it has answered the transactions.
    pub(crate) fn publish(&self, commits: &[Arc<Commit>]) -> Vec<Waker> {
        let Some(last) = commits.last().map(|commit| commit.revision) else { return Vec::new() };
        let mut index = self.index.lock();
        let complete_from = {
            let mut ring = self.ring.write();
            for commit in commits {
                ring.push(Arc::clone(commit));
            }
            ring.complete_from()
        };
        let touched = index.append(commits);
        // Range feeds get the events first, then the latest revision advances: a subscriber that finds no
        // events may advance to it. Wakers are collected last: a subscriber that polls in between sees events
        // beyond the latest revision, leaves them, and is woken here.
        self.latest.store(last.get(), Ordering::Release);
        // After the latest revision: a subscriber that finds itself behind can catch up to it.
        index.release(complete_from);
        drop(index);
        let mut wakers = Vec::new();
        for feed in touched {
            feed.state.lock().unpark_into(&mut wakers);
        }
        self.take_waiting(last, &mut wakers);
        wakers
    }

    /// The error with which feeds and waits have ended.
    pub(crate) fn ending(&self) -> Error {
        self.ending.lock().clone().unwrap_or(Error::Closed)
    }

    /// Ends all feeds and waits with `error`, unless they have ended already.
    pub(crate) fn end(&self, error: Error) {
        self.ending.lock().get_or_insert(error);
        self.closed.store(true, Ordering::Release);
        let mut wakers = Vec::new();
        for feed in self.index.lock().feeds.values().flatten() {
            feed.state.lock().unpark_into(&mut wakers);
        }
        self.take_waiting(Revision::new(u64::MAX), &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Adds a subscriber of `range`, and returns its slot.
    pub(crate) fn join(&self, range: &KeyRange) -> (Arc<RangeFeed>, usize) {
        self.subscribers.fetch_add(1, Ordering::Relaxed);
        let mut index = self.index.lock();
        // The ring cannot advance while the index is locked.
        let last = self.ring.read().last();
        let feed = index.feed(range, last);
        let slot = feed.state.lock().take_slot();
        (feed, slot)
    }

    /// Frees a slot; the range feed is removed with its last subscriber.
    pub(crate) fn leave(&self, feed: &Arc<RangeFeed>, slot: usize) {
        self.subscribers.fetch_sub(1, Ordering::Relaxed);
        let mut index = self.index.lock();
        let empty = feed.state.lock().give_back(slot);
        if empty {
            index.remove(feed);
        }
    }

    /// Calls `visit` with the commits after `after`, up to the latest, until it returns false. Returns
    /// whether the ring reaches back that far.
    pub(crate) fn scan_ring(&self, after: Revision, mut visit: impl FnMut(&Arc<Commit>) -> bool) -> bool {
        let latest = self.latest();
        let ring = self.ring.read();
        let Some(commits) = ring.since(after) else { return false };
        for commit in commits.take_while(|commit| commit.revision <= latest) {
            if !visit(commit) {
                break;
            }
        }
        true
    }

    pub(crate) fn range_feeds(&self) -> usize {
        self.index.lock().feeds.values().map(Vec::len).sum()
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring.read().bytes()
    }

    /// A unique id of a waiter.
    pub(crate) fn waiter_id(&self) -> u64 {
        self.next_waiter.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers a waiter. Returns false, without registering, when the revision is published already or the
    /// hub is closed.
    pub(crate) fn wait(&self, revision: Revision, id: u64, waker: &Waker) -> bool {
        let mut waiting = self.waiting.lock();
        self.waiting_count.store(waiting.len() + 1, Ordering::SeqCst);
        // Checked again after the count was raised, or a publisher in between would see no waiter. The fence
        // pairs with that in `take_waiting`: of "count, then latest" here and "latest, then count" there, at
        // least one sees what the other has stored.
        fence(Ordering::SeqCst);
        if self.latest() >= revision || self.is_closed() {
            waiting.remove(&(revision, id));
            self.waiting_count.store(waiting.len(), Ordering::SeqCst);
            return false;
        }
        waiting.insert((revision, id), waker.clone());
        true
    }

    pub(crate) fn stop_waiting(&self, revision: Revision, id: u64) {
        let mut waiting = self.waiting.lock();
        waiting.remove(&(revision, id));
        self.waiting_count.store(waiting.len(), Ordering::SeqCst);
    }

    fn take_waiting(&self, up_to: Revision, wakers: &mut Vec<Waker>) {
        fence(Ordering::SeqCst);
        if self.waiting_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        while let Some(first) = waiting.first_entry() {
            if first.key().0 > up_to {
                break;
            }
            wakers.push(first.remove());
        }
        self.waiting_count.store(waiting.len(), Ordering::SeqCst);
    }
}

impl Index {
    /// The range feed of `range`, created if there is none.
    fn feed(&mut self, range: &KeyRange, last: Revision) -> Arc<RangeFeed> {
        let prefix = range.shared_prefix();
        if let Some(feed) =
            self.feeds.get(prefix).and_then(|feeds| feeds.iter().find(|feed| feed.range == *range))
        {
            return Arc::clone(feed);
        }
        let feed = Arc::new(RangeFeed {
            range: range.clone(),
            state: Mutex::new(FeedState {
                segments: VecDeque::new(),
                complete_from: last,
                slots: Vec::new(),
                parked: Vec::new(),
                free: Vec::new(),
            }),
        });
        let feeds = self.feeds.entry(prefix.clone()).or_default();
        if feeds.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        feeds.push(Arc::clone(&feed));
        feed
    }

    fn remove(&mut self, feed: &Arc<RangeFeed>) {
        let prefix = feed.range.shared_prefix();
        let Some(feeds) = self.feeds.get_mut(prefix) else { return };
        feeds.retain(|other| !Arc::ptr_eq(other, feed));
        if !feeds.is_empty() {
            return;
        }
        self.feeds.remove(prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    /// Appends the events of `commits` to the range feeds that they match: one segment for each.
    fn append(&mut self, commits: &[Arc<Commit>]) -> Vec<Arc<RangeFeed>> {
        if self.feeds.is_empty() {
            return Vec::new();
        }
        // In the order of their first event, so that the lock order does not depend on addresses.
        let mut matched: Vec<(Arc<RangeFeed>, Vec<Arc<Event>>)> = Vec::new();
        let mut indices: HashMap<*const RangeFeed, usize> = HashMap::new();
        for event in commits.iter().flat_map(|commit| &commit.events) {
            for length in self.lengths.keys() {
                let Some(prefix) = event.key.get(..*length) else { break };
                for feed in self.feeds.get(prefix).into_iter().flatten() {
                    if feed.range.contains(&event.key) {
                        let index = *indices.entry(Arc::as_ptr(feed)).or_insert_with(|| {
                            matched.push((Arc::clone(feed), Vec::new()));
                            matched.len() - 1
                        });
                        if let Some((_, events)) = matched.get_mut(index) {
                            events.push(Arc::clone(event));
                        }
                    }
                }
            }
        }
        let mut touched = Vec::with_capacity(matched.len());
        for (feed, events) in matched {
            let Some(last) = events.last().map(|event| event.revision) else { continue };
            feed.state.lock().segments.push_back(events.into());
            self.segments.push_back((last, Arc::downgrade(&feed)));
            touched.push(feed);
        }
        touched
    }

    /// Releases the segments that the ring no longer holds, so that a range feed that is not read keeps
    /// nothing in memory.
    fn release(&mut self, complete_from: Revision) {
        while let Some((last, feed)) = self.segments.front() {
            if *last > complete_from {
                break;
            }
            if let Some(feed) = feed.upgrade() {
                let mut state = feed.state.lock();
                state.complete_from = *last;
                // Each entry of the queue stands for the oldest segment of its range feed.
                state.segments.pop_front();
            }
            self.segments.pop_front();
        }
    }
}

impl RangeFeed {
    /// The next events after `position` and not beyond the hub's latest revision; registers the waker if
    /// there are none.
    ///
    /// `latest` is read under the lock. Read before, it could be older than a publication that has collected
    /// its wakers already: the subscriber would leave the events, park, and sleep until the next ones. Under
    /// the lock, either it is the revision of that publication, or its wakers are yet to be collected.
    pub(crate) fn next(
        &self,
        position: Revision,
        latest: impl FnOnce() -> Revision,
        slot: usize,
        waker: &Waker,
    ) -> Next {
        let mut state = self.state.lock();
        let latest = latest();
        if position < state.complete_from {
            return Next::Behind;
        }
        let passed = |segment: &Segment| segment.last().is_none_or(|event| event.revision <= position);
        // A subscriber that keeps up has passed all segments, or all but the last.
        let start = match (state.segments.back(), state.segments.len().checked_sub(2)) {
            (Some(last), _) if passed(last) => state.segments.len(),
            (Some(_), Some(before)) if state.segments.get(before).is_some_and(passed) => before + 1,
            _ => state.segments.partition_point(passed),
        };
        if let Some(segment) = state.segments.get(start) {
            let last = segment.last().map_or(Revision::ZERO, |event| event.revision);
            if last <= latest {
                let seen = segment.partition_point(|event| event.revision <= position);
                return Next::Segment(match segment.get(seen..) {
                    // The position is inside the segment: the subscriber has just caught up from the log.
                    Some(rest) if seen > 0 => rest.into(),
                    _ => Arc::clone(segment),
                });
            }
        }
        state.park(slot, waker);
        Next::Nothing(latest)
    }

    /// Whether the segments are complete after `position`.
    pub(crate) fn reaches(&self, position: Revision) -> bool {
        position >= self.state.lock().complete_from
    }
}

impl FeedState {
    fn take_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    /// Returns whether no slot is in use any more.
    fn give_back(&mut self, slot: usize) -> bool {
        if let Some(waker) = self.slots.get_mut(slot) {
            *waker = None;
            self.parked.retain(|other| *other != slot);
            self.free.push(slot);
        }
        self.free.len() == self.slots.len()
    }

    fn park(&mut self, slot: usize, waker: &Waker) {
        let Some(parked) = self.slots.get_mut(slot) else { return };
        match parked {
            Some(old) => old.clone_from(waker),
            None => {
                *parked = Some(waker.clone());
                self.parked.push(slot);
            }
        }
    }

    fn unpark_into(&mut self, wakers: &mut Vec<Waker>) {
        for slot in self.parked.drain(..) {
            wakers.extend(self.slots.get_mut(slot).and_then(Option::take));
        }
    }
}
