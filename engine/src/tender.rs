//! The thread that does what comes due: expired keys, history past its age, sweeping.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rocksdb::ReadOptions;

use crate::commit::desk::{Desk, Task, Work};
use crate::commit::proposal::{Proposal, Slot};
use crate::compact::Compactor;
use crate::error::{Error, Result};
use crate::layout;
use crate::record;
use crate::revision::Revision;
use crate::stats::Metrics;
use crate::store::{Family, Store};
use crate::transaction::{Condition, Transaction};

/// Expired keys that are deleted before other work gets its turn.
const EXPIRE_STEP: usize = 256;
/// While others write, each step of sweeping is followed by a rest of this many times its length: their synced
/// writes share the disk, the write-ahead log and two cores with what a sweep deletes, and each flush of that is a
/// pause for them. Alone, a sweep does not rest.
const REST: u32 = 20;
/// The same when much waits to be swept: history must not grow faster than it is let go.
const SHORT_REST: u32 = 4;
/// Revisions that count as much.
const MUCH: u64 = 1 << 20;
/// No rest is longer.
const MOST_REST: Duration = Duration::from_millis(100);
/// After a failure the thread waits this long before it tries again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What wakes the thread. Shared with whoever gives it work.
#[derive(Default)]
pub(crate) struct Tender {
    state: Mutex<State>,
    changed: Condvar,
    swept: Condvar,
}

#[derive(Default)]
struct State {
    stop: bool,
    /// Earliest deadline that was set since the thread looked last.
    deadline_ms: Option<u64>,
    /// The floor was raised.
    sweep: bool,
    sweeping: bool,
    last_failure: Option<Error>,
}

/// What the thread works with.
pub(crate) struct Duties {
    pub store: Arc<Store>,
    pub desk: Arc<Desk>,
    pub compactor: Arc<Compactor>,
    pub metrics: Arc<Metrics>,
    pub history_retention: Option<Duration>,
    pub compaction_interval: Duration,
    pub expire: bool,
}

impl Tender {
    /// A deadline was set; `u64::MAX` stands for none.
    pub(crate) fn deadline_set(&self, deadline_ms: u64) {
        if deadline_ms == u64::MAX {
            return;
        }
        let mut state = self.state.lock();
        if state.deadline_ms.is_none_or(|earliest| deadline_ms < earliest) {
            state.deadline_ms = Some(deadline_ms);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The floor was raised: sweep.
    pub(crate) fn sweep(&self) {
        self.state.lock().sweep = true;
        self.changed.notify_one();
    }

    /// Waits until everything below the floor is swept.
    pub(crate) fn wait_swept(&self) -> Result<()> {
        let mut state = self.state.lock();
        while (state.sweep || state.sweeping) && !state.stop {
            self.swept.wait(&mut state);
            if let Some(error) = state.last_failure.take() {
                return Err(error);
            }
        }
        if state.stop {
            return Err(Error::Closed);
        }
        Ok(())
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
        self.swept.notify_all();
    }

    /// Runs until stopped.
    pub(crate) fn run(&self, duties: &Duties) {
        let mut next_retention =
            duties.history_retention.map(|_| Instant::now() + duties.compaction_interval);
        // Work left over from before: an unfinished sweep, deadlines that passed.
        self.state.lock().sweep = true;
        let mut next_expiry = Some(0);
        let mut pause_until: Option<Instant> = None;
        let mut rest_until: Option<Instant> = None;
        // The newest revision when the thread worked last: whether others write.
        let mut swept_at = duties.compactor.head();
        loop {
            let sweep = {
                let mut state = self.state.lock();
                loop {
                    if state.stop {
                        return;
                    }
                    next_expiry = earlier(next_expiry, state.deadline_ms.take());
                    let now = Instant::now();
                    if pause_until.is_some_and(|until| now >= until) {
                        pause_until = None;
                    }
                    if rest_until.is_some_and(|until| now >= until) {
                        rest_until = None;
                    }
                    let sweep_due = state.sweep && rest_until.is_none();
                    let expiry_due = duties.expire && next_expiry.is_some_and(|ms| ms <= now_ms());
                    let retention_due = next_retention.is_some_and(|at| now >= at);
                    if pause_until.is_none() && (sweep_due || expiry_due || retention_due) {
                        break;
                    }
                    let mut timeout = duties.expire.then_some(next_expiry).flatten().map(|ms| {
                        // The clock of the machine may jump, so no wait is trusted for long.
                        Duration::from_millis(ms.saturating_sub(now_ms())).min(Duration::from_secs(60))
                    });
                    timeout = earlier(timeout, next_retention.map(|at| at.saturating_duration_since(now)));
                    if let Some(until) = rest_until.filter(|_| state.sweep) {
                        timeout = earlier(timeout, Some(until.saturating_duration_since(now)));
                    }
                    if let Some(until) = pause_until {
                        timeout = Some(until.saturating_duration_since(now));
                    }
                    match timeout {
                        Some(timeout) => {
                            self.changed.wait_for(&mut state, timeout.max(Duration::from_millis(1)));
                        }
                        None => self.changed.wait(&mut state),
                    }
                }
                state.sweeping = state.sweep && rest_until.is_none();
                state.sweep &= !state.sweeping;
                state.sweeping
            };
            let (started, head) = (Instant::now(), duties.compactor.head());
            let outcome = self.turn(duties, sweep, &mut next_expiry, &mut next_retention);
            if sweep && head != swept_at {
                let much = duties.compactor.debt().is_ok_and(|debt| debt > MUCH);
                let rest = started.elapsed() * if much { SHORT_REST } else { REST };
                rest_until = Some(Instant::now() + rest.min(MOST_REST));
            }
            swept_at = head;
            let mut state = self.state.lock();
            state.sweeping = false;
            match outcome {
                Ok(more) => state.sweep |= more,
                Err(Error::Closed) => return,
                Err(error) => {
                    state.sweep |= sweep;
                    state.last_failure = Some(error);
                    pause_until = Some(Instant::now() + PAUSE_AFTER_FAILURE);
                }
            }
            if !state.sweep || state.last_failure.is_some() {
                self.swept.notify_all();
            }
        }
    }

    /// A bounded piece of each kind of work that is due; answers whether sweeping is not finished.
    fn turn(
        &self,
        duties: &Duties,
        sweep: bool,
        next_expiry: &mut Option<u64>,
        next_retention: &mut Option<Instant>,
    ) -> Result<bool> {
        if duties.expire && next_expiry.is_some_and(|ms| ms <= now_ms()) {
            *next_expiry = duties.expire()?;
        }
        if next_retention.is_some_and(|at| Instant::now() >= at) {
            *next_retention = Some(Instant::now() + duties.compaction_interval);
            duties.retain()?;
            return Ok(true);
        }
        Ok(sweep && duties.compactor.step()?)
    }
}

impl Duties {
    /// Deletes keys whose time has passed, a bounded number; answers when the next one is due.
    fn expire(&self) -> Result<Option<u64>> {
        let mut cursor = self.store.cursor(Family::Expiry, ReadOptions::default());
        cursor.seek_to_first();
        let now = now_ms();
        let mut due: Vec<(Bytes, Revision)> = Vec::new();
        let mut next = None;
        while let Some((expiry_key, value)) = cursor.item() {
            let damaged = || Error::Corrupt {
                key: Bytes::copy_from_slice(expiry_key),
                revision: Revision::ZERO,
                reason: "not an expiry entry",
            };
            let (deadline, key) = layout::parse_expiry_key(expiry_key).ok_or_else(damaged)?;
            if deadline > now || due.len() == EXPIRE_STEP {
                next = Some(deadline);
                break;
            }
            let revision = Revision::new(record::read_u64(value, 0).ok_or_else(damaged)?);
            due.push((Bytes::copy_from_slice(key), revision));
            cursor.next();
        }
        cursor.status()?;
        drop(cursor);
        let proposals: Vec<Proposal> = due
            .into_iter()
            .map(|(key, revision)| {
                let condition = Condition::ModRevision { key: key.clone(), revision };
                let transaction = Transaction::new().require(condition).delete(key);
                let slot = Slot::new();
                let size = transaction.size();
                let work = Work { task: Task::Transact(transaction), slot: Arc::clone(&slot), size };
                Proposal::submit(&self.desk, work, slot)
            })
            .collect();
        for proposal in proposals {
            match proposal.wait() {
                Ok(_) => self.metrics.expired.add(1),
                // Somebody wrote or deleted the key meanwhile.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(next)
    }

    /// Raises the floor to what is past its age.
    fn retain(&self) -> Result<()> {
        let Some(age) = self.history_retention else { return Ok(()) };
        let age_ms = age.as_millis().try_into().unwrap_or(u64::MAX);
        let revision = self.compactor.revision_at(now_ms().saturating_sub(age_ms))?;
        self.compactor.raise_floor(revision)
    }
}

fn earlier<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_millis().try_into().unwrap_or(u64::MAX)
}
