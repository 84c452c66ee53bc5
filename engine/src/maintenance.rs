//! The thread that does what comes due: expired keys, history past its age, sweeping.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rocksdb::ReadOptions;

use crate::clock::Timeline;
use crate::commit::proposal::Proposal;
use crate::commit::queue::{CommitQueue, Task};
use crate::compact::Compactor;
use crate::error::{Error, Result};
use crate::health::{Warn, Warning};
use crate::layout;
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
/// Most damaged entries of the deadlines that are remembered. With more of them, expiry fails.
const MOST_SKIPPED: usize = 10_000;
/// After a failure the thread waits this long before it tries again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What wakes the thread. Shared with whoever gives it work.
#[derive(Default)]
pub(crate) struct MaintenanceThread {
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
pub(crate) struct MaintenanceTasks {
    pub store: Arc<Store>,
    pub queue: Arc<CommitQueue>,
    pub compactor: Arc<Compactor>,
    pub metrics: Arc<Metrics>,
    pub history_retention: Option<Duration>,
    pub compaction_interval: Duration,
    pub expire: bool,
    pub time: Arc<Timeline>,
    pub warn: Warn,
    /// Entries of the deadlines that cannot be used; each was reported when it was met first.
    pub skipped: Mutex<HashSet<Bytes>>,
}

impl MaintenanceThread {
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
    pub(crate) fn run(&self, tasks: &MaintenanceTasks) {
        let mut next_retention = tasks.history_retention.map(|_| Instant::now() + tasks.compaction_interval);
        // Work left over from before: an unfinished sweep, deadlines that passed.
        self.state.lock().sweep = true;
        let mut next_expiry = Some(0);
        let mut pause_until: Option<Instant> = None;
        let mut rest_until: Option<Instant> = None;
        // What was reported last, so that the same failure is reported once.
        let mut reported: Option<String> = None;
        // The newest revision when the thread worked last: whether others write.
        let mut swept_at = tasks.compactor.latest();
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
                    let expiry_due = tasks.expire && next_expiry.is_some_and(|ms| ms <= tasks.time.now_ms());
                    let retention_due = next_retention.is_some_and(|at| now >= at);
                    if pause_until.is_none() && (sweep_due || expiry_due || retention_due) {
                        break;
                    }
                    let mut timeout = tasks.expire.then_some(next_expiry).flatten().map(|ms| {
                        // The engine's time may run faster than the condition's, so no wait is trusted for long.
                        Duration::from_millis(ms.saturating_sub(tasks.time.now_ms()))
                            .min(Duration::from_secs(60))
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
            let (started, latest) = (Instant::now(), tasks.compactor.latest());
            let outcome = self.turn(tasks, sweep, &mut next_expiry, &mut next_retention);
            if sweep && latest != swept_at {
                let much = tasks.compactor.debt().is_ok_and(|debt| debt > MUCH);
                let rest = started.elapsed() * if much { SHORT_REST } else { REST };
                rest_until = Some(Instant::now() + rest.min(MOST_REST));
            }
            swept_at = latest;
            if let Err(error) = &outcome {
                let text = error.to_string();
                if !matches!(error, Error::Closed | Error::Poisoned { .. })
                    && reported.as_ref() != Some(&text)
                {
                    tasks.warn.warn(&Warning::Maintenance { error: error.clone() });
                    reported = Some(text);
                }
            }
            let mut state = self.state.lock();
            state.sweeping = false;
            match outcome {
                Ok(more) => {
                    state.sweep |= more;
                    reported = None;
                }
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

    /// A bounded piece of each kind of work that is due; answers whether sweeping is not finished. What fails
    /// does not keep the others from being done.
    fn turn(
        &self,
        tasks: &MaintenanceTasks,
        sweep: bool,
        next_expiry: &mut Option<u64>,
        next_retention: &mut Option<Instant>,
    ) -> Result<bool> {
        let mut expired = Ok(());
        if tasks.expire && next_expiry.is_some_and(|ms| ms <= tasks.time.now_ms()) {
            expired = tasks.expire().map(|next| *next_expiry = next);
        }
        let swept = if next_retention.is_some_and(|at| Instant::now() >= at) {
            *next_retention = Some(Instant::now() + tasks.compaction_interval);
            tasks.retain().map(|()| true)
        } else if sweep {
            tasks.compactor.step()
        } else {
            Ok(false)
        };
        expired.and(swept)
    }
}

impl MaintenanceTasks {
    /// Deletes keys whose time has passed, a bounded number; answers when the next one is due.
    fn expire(&self) -> Result<Option<u64>> {
        let mut cursor = self.store.cursor(Family::Expiry, ReadOptions::default());
        cursor.seek_to_first();
        let now = self.time.now_ms();
        let mut due: Vec<(Bytes, Bytes, Revision)> = Vec::new();
        let mut next = None;
        while let Some((expiry_key, value)) = cursor.item() {
            let Some((deadline, key)) = layout::parse_expiry_key(expiry_key) else {
                self.skip(expiry_key, "not an expiry entry")?;
                cursor.next();
                continue;
            };
            if deadline > now || due.len() == EXPIRE_STEP {
                next = Some(deadline);
                break;
            }
            match layout::decode_expiry(expiry_key, value) {
                None => self.skip(expiry_key, "the checksum does not match")?,
                Some(_) if self.skipped.lock().contains(expiry_key) => {}
                Some(revision) => {
                    due.push((Bytes::copy_from_slice(expiry_key), Bytes::copy_from_slice(key), revision));
                }
            }
            cursor.next();
        }
        // Behind a damaged block nothing is known; what lies before it expires nonetheless.
        let read = cursor.status();
        drop(cursor);
        let proposals: Vec<(Bytes, Revision, Proposal)> = due
            .into_iter()
            .map(|(expiry_key, key, revision)| {
                let condition = Condition::ModRevision { key: key.clone(), revision };
                let transaction = Transaction::new().require(condition).delete(key);
                let size = transaction.size();
                (expiry_key, revision, Proposal::submit(&self.queue, Task::Transact(transaction), size))
            })
            .collect();
        for (expiry_key, revision, proposal) in proposals {
            match proposal.wait() {
                Ok(committed) if committed.commit.is_some() => self.metrics.expired.add(1),
                // Somebody wrote or deleted the key meanwhile, and with it the entry.
                Ok(_) | Err(Error::Conflict { .. }) => {
                    let filed = self.store.get(Family::Expiry, &expiry_key)?;
                    if filed.and_then(|value| layout::decode_expiry(&expiry_key, &value)) == Some(revision) {
                        self.skip(&expiry_key, "the record does not have this deadline")?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        read?;
        Ok(next)
    }

    /// Remembers and reports an entry of the deadlines that cannot be used. It stays where it is, for whoever
    /// looks for the cause of the damage.
    fn skip(&self, expiry_key: &[u8], reason: &'static str) -> Result<()> {
        let mut skipped = self.skipped.lock();
        if skipped.contains(expiry_key) {
            return Ok(());
        }
        let entry = Bytes::copy_from_slice(expiry_key);
        if skipped.len() >= MOST_SKIPPED {
            return Err(Error::Corrupt {
                key: entry,
                revision: Revision::ZERO,
                reason: "too many entries of the deadlines are damaged",
            });
        }
        skipped.insert(entry.clone());
        drop(skipped);
        self.metrics.damaged_deadlines.add(1);
        self.warn.warn(&Warning::DamagedDeadline { entry, reason });
        Ok(())
    }

    /// Raises the floor to what is past its age.
    fn retain(&self) -> Result<()> {
        let Some(age) = self.history_retention else { return Ok(()) };
        let age_ms = age.as_millis().try_into().unwrap_or(u64::MAX);
        let revision = self.compactor.revision_at(self.time.now_ms().saturating_sub(age_ms))?;
        self.compactor.raise_floor(revision)
    }
}

fn earlier<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
