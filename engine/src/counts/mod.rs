//! [`KeyCounts`]: numbers of keys in ranges, without reading them.
//!
//! The keys of the store lie in *buckets*, ranges of about a hundred keys. The number of keys of a bucket is
//! known once a count has scanned it, and follows the change feed from then on. A later count adds what is
//! known and scans what is left: the two ends of its range, and what nobody has counted yet. See
//! `docs/design/0042-counts-follow-the-feed.md`.

mod buckets;
mod scan;

use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::error::Result;
use crate::feed::subscription::{Feed, Subscribe, Subscription};
use crate::range::KeyRange;
use crate::read::Snapshot;
use crate::revision::Revision;
use crate::sync::Mutex;
use buckets::{Buckets, CountPlan};
use scan::{scan, Scanned};

/// Keys of a bucket when it is made. A count scans a part of two buckets, so this is what a count costs; and
/// what is kept for each is about 100 bytes.
const BUCKET: u64 = 128;
/// A count of fewer keys is not kept: it is as cheap the next time.
const WORTH_KEEPING: u64 = BUCKET;
/// Revisions that a first count may be behind: the feed begins there.
const BEHIND: u64 = 1024;
/// Without a count for so long, nothing is kept any more.
const UNUSED: Duration = Duration::from_secs(600);

/// Numbers of keys in ranges, for readers that ask for them again and again: pages of a long list with the
/// number of what is left. Exact at the revision of a snapshot, whatever is written meanwhile.
///
/// Bounded in memory: 65,536 buckets or 8 MiB, and the last 32,768 creations and deletions. A snapshot that
/// is older than those is counted by reading it.
///
/// ```
/// # fn main() -> Result<(), plinth_engine::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let engine = plinth_engine::Engine::open(plinth_engine::Options::new(dir.path()))?;
/// use plinth_engine::{At, KeyCounts, KeyRange, Transaction};
///
/// let counts = KeyCounts::new(&engine);
/// engine.transact(Transaction::new().put("pods/a", "…").put("pods/b", "…")).wait()?;
/// assert_eq!(counts.count(&engine.snapshot(At::Latest)?, &KeyRange::prefix("pods/"))?, 2);
/// # Ok(())
/// # }
/// ```
pub struct KeyCounts {
    engine: Engine,
    state: Mutex<Option<State>>,
}

/// What is kept once something was counted.
struct State {
    buckets: Buckets,
    /// The changes of all keys.
    feed: Subscription,
    /// The time of the last count that has used it.
    used: Instant,
}

impl KeyCounts {
    /// Numbers of keys of a store. Costs nothing before the first long range is counted.
    pub fn new(engine: &Engine) -> KeyCounts {
        KeyCounts { engine: engine.clone(), state: Mutex::new(None) }
    }

    /// The number of keys of `range` in `snapshot`. May read from disk.
    ///
    /// # Errors
    /// As [`Snapshot::count`].
    pub fn count(&self, snapshot: &Snapshot, range: &KeyRange) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let revision = snapshot.revision();
        let plan = match &mut *self.state.lock() {
            None => CountPlan::scan_all(range.clone()),
            Some(state) => {
                state.used = Instant::now();
                state.advance();
                state.buckets.plan(range, revision).unwrap_or_else(|| CountPlan::scan_all(range.clone()))
            }
        };
        let mut total = plan.known;
        let mut learned = Vec::new();
        for part in plan.parts {
            let scanned = scan(snapshot, part.range, BUCKET)?;
            total += scanned.total;
            if part.is_unknown {
                learned.push(scanned);
            }
        }
        if total >= WORTH_KEEPING && !learned.is_empty() {
            self.learn(revision, learned);
        }
        Ok(total)
    }

    /// The revision up to which changes are applied, or that need not be.
    pub fn position(&self) -> Revision {
        match &*self.state.lock() {
            Some(state) => state.buckets.position(),
            None => self.engine.current_revision(),
        }
    }

    /// Applies what was committed since. A count does this, too; who calls it now and then keeps the feed
    /// in memory, so that the next count does not wait for a long catch-up. Does not read from disk.
    pub fn advance(&self) {
        let mut state = self.state.lock();
        let Some(current) = &mut *state else { return };
        if !current.advance() || current.used.elapsed() > UNUSED {
            *state = None;
        }
    }

    /// Keeps what was counted at a revision.
    fn learn(&self, revision: Revision, learned: Vec<Scanned>) {
        let mut state = self.state.lock();
        if state.is_none() {
            let lag = self.engine.current_revision().get().saturating_sub(revision.get());
            if lag > BEHIND {
                return;
            }
            // Compacted meanwhile, or closed: it is counted again the next time.
            let Ok(feed) = self.engine.subscribe(Subscribe::new(KeyRange::all()).after(revision)) else {
                return;
            };
            *state = Some(State { buckets: Buckets::new(revision, BUCKET), feed, used: Instant::now() });
        }
        let Some(current) = &mut *state else { return };
        for scanned in learned {
            current.buckets.learn(revision, scanned);
        }
        if !current.advance() {
            *state = None;
        }
    }
}

impl State {
    /// Applies what the feed has in memory. False when the feed has ended: what is kept is then useless.
    fn advance(&mut self) -> bool {
        loop {
            match self.feed.try_next() {
                Ok(Some(Feed::Events(events))) => self.buckets.apply(&events, self.feed.position()),
                Ok(Some(Feed::Progress(_))) => {}
                Ok(None) => {
                    self.buckets.reach(self.feed.position());
                    return true;
                }
                Err(_) => return false,
            }
        }
    }
}

impl std::fmt::Debug for KeyCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyCounts").field("position", &self.position()).finish_non_exhaustive()
    }
}
