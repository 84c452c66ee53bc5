//! One subscriber's position and how it advances.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::block::ThreadWaker;
use crate::error::Result;
use crate::feed::event::Event;
use crate::feed::feeder::{CatchUp, Feeder};
use crate::feed::hub::{Hub, Next, RangeFeed, Segment};
use crate::range::KeyRange;
use crate::revision::Revision;

/// What to subscribe to.
///
/// ```
/// use plinth_engine::{KeyRange, Revision, Subscribe};
///
/// let everything_since = Subscribe::new(KeyRange::prefix("jobs/")).after(Revision::new(17)).previous(true);
/// # let _ = everything_since;
/// ```
#[derive(Debug, Clone)]
pub struct Subscribe {
    /// Keys whose changes are delivered.
    pub range: KeyRange,
    /// Deliver changes after this revision; none stands for the current one. For a revision in the future,
    /// nothing at or below it is delivered.
    pub after: Option<Revision>,
    /// Whether events carry the previous value also when they are read back from disk.
    pub previous: bool,
}

impl Subscribe {
    /// A subscription to changes of the keys in `range` from now on.
    pub fn new(range: KeyRange) -> Subscribe {
        Subscribe { range, after: None, previous: false }
    }

    /// Starts after `revision` instead of now.
    #[must_use]
    pub fn after(mut self, revision: Revision) -> Subscribe {
        self.after = Some(revision);
        self
    }

    /// Whether events carry the previous value also when they are read back from disk, which costs
    /// one more read each. Live events always carry it.
    #[must_use]
    pub fn previous(mut self, previous: bool) -> Subscribe {
        self.previous = previous;
        self
    }
}

/// What a subscription delivers.
#[derive(Debug, Clone)]
pub enum Feed {
    /// The next events, in order: one or more whole revisions, never empty.
    Events(Arc<[Arc<Event>]>),
    /// Everything up to this revision has been delivered. Delivered only after
    /// [`Subscription::request_progress`].
    Progress(Revision),
}

/// A change feed: delivers every change of a key range after a revision, once, in order.
///
/// It holds a slot of its key range (under 1 KiB) and is pulled: nothing is queued for it alone, so it may
/// stall for as long as history is retained. Owned by one task or thread; dropping it frees everything.
pub struct Subscription {
    hub: Arc<Hub>,
    feeder: Feeder,
    feed: Arc<RangeFeed>,
    slot: usize,
    /// All events at or below it have been delivered.
    position: Revision,
    previous: bool,
    progress_wanted: bool,
    /// A chunk of the log that is being read for this subscriber.
    catch_up: Option<Arc<CatchUp>>,
    range: KeyRange,
}

/// Maximum number of commits that one poll scans in the ring, so that a poll stays short.
const RING_STEP: usize = 1024;
/// Maximum number of events that one poll takes from the ring.
const RING_EVENTS: usize = 256;

impl Subscription {
    pub(crate) fn new(hub: Arc<Hub>, feeder: Feeder, subscribe: Subscribe) -> Subscription {
        // The position is read before the slot is taken: then the segments hold all that follows.
        let position = subscribe.after.unwrap_or_else(|| hub.latest());
        let (feed, slot) = hub.join(&subscribe.range);
        Subscription {
            feed,
            slot,
            position,
            previous: subscribe.previous,
            progress_wanted: false,
            catch_up: None,
            range: subscribe.range,
            hub,
            feeder,
        }
    }

    /// The revision up to which everything has been delivered.
    pub fn position(&self) -> Revision {
        self.position
    }

    /// How many revisions the subscriber is behind the current one.
    pub fn lag(&self) -> u64 {
        self.hub.latest().get().saturating_sub(self.position.get())
    }

    /// Asks for one [`Feed::Progress`] as soon as everything committed so far has been delivered. It is
    /// delivered in order with the events: none at or below its revision follows.
    pub fn request_progress(&mut self) {
        self.progress_wanted = true;
    }

    /// Waits for the next events, on any async runtime.
    ///
    /// # Errors
    /// `Compacted` when history was compacted beyond the position, `Closed` when the engine was closed,
    /// `Poisoned` when it failed, `Corrupt` when a record on the way is damaged (of [`crate::Error`]). Each
    /// of these ends the feed.
    pub async fn next(&mut self) -> Result<Feed> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next events if there are some in memory. A subscriber that reads from disk gets them from
    /// a later call.
    ///
    /// # Errors
    /// As [`Subscription::next`].
    pub fn try_next(&mut self) -> Result<Option<Feed>> {
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(feed) => feed.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Blocks the thread until the next events are available or the timeout has passed.
    ///
    /// # Errors
    /// As [`Subscription::next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Feed>> {
        let waker = ThreadWaker::current();
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Poll::Ready(feed) = self.poll_next(&mut Context::from_waker(&waker)) {
                return feed.map(Some);
            }
            if !ThreadWaker::park_until(deadline) {
                return Ok(None);
            }
        }
    }

    /// The poll form of [`Subscription::next`]. Does not block and does not read from disk: what a lagging
    /// subscriber needs from disk is read by a thread of the engine.
    ///
    /// # Errors
    /// As [`Subscription::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Feed>> {
        loop {
            if let Some(catch_up) = &self.catch_up {
                let Some(chunk) = catch_up.poll(cx.waker()) else {
                    return if self.hub.is_closed() {
                        Poll::Ready(Err(self.hub.ending()))
                    } else {
                        Poll::Pending
                    };
                };
                self.catch_up = None;
                let chunk = match chunk {
                    Ok(chunk) => chunk,
                    Err(error) => return Poll::Ready(Err(error)),
                };
                self.position = self.position.max(chunk.through);
                if chunk.events.is_empty() {
                    continue;
                }
                return Poll::Ready(Ok(self.deliver(chunk.events.into())));
            }
            match self.feed.next(self.position, || self.hub.latest(), self.slot, cx.waker()) {
                Next::Segment(segment) => {
                    if let Some(last) = segment.last() {
                        self.position = last.revision;
                    }
                    return Poll::Ready(Ok(self.deliver(segment)));
                }
                Next::Nothing(latest) => {
                    self.position = self.position.max(latest);
                    if self.progress_wanted && self.position == latest {
                        self.progress_wanted = false;
                        return Poll::Ready(Ok(Feed::Progress(latest)));
                    }
                    return if self.hub.is_closed() {
                        Poll::Ready(Err(self.hub.ending()))
                    } else {
                        Poll::Pending
                    };
                }
                Next::Behind => {
                    if self.hub.is_closed() {
                        return Poll::Ready(Err(self.hub.ending()));
                    }
                    match self.scan_ring() {
                        Some(events) if events.is_empty() => {}
                        Some(events) => return Poll::Ready(Ok(self.deliver(events.into()))),
                        None => {
                            self.catch_up =
                                Some(self.feeder.read(&self.range, self.position, self.previous, cx.waker()));
                        }
                    }
                }
            }
        }
    }

    /// Takes a bounded chunk from the ring and advances the position over it. None when the ring does not
    /// reach back to the position.
    fn scan_ring(&mut self) -> Option<Vec<Arc<Event>>> {
        let mut events = Vec::new();
        let mut seen = 0;
        let mut position = self.position;
        let reached = self.hub.scan_ring(self.position, |commit| {
            position = commit.revision;
            seen += 1;
            events.extend(commit.events.iter().filter(|event| self.range.contains(&event.key)).cloned());
            events.len() < RING_EVENTS
                && (seen < RING_STEP || events.is_empty() && !self.feed.reaches(position))
        });
        self.position = position;
        reached.then_some(events)
    }

    fn deliver(&self, events: Segment) -> Feed {
        self.hub.delivered.fetch_add(events.len() as u64, Ordering::Relaxed);
        Feed::Events(events)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.leave(&self.feed, self.slot);
    }
}
