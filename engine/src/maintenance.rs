//! The maintenance thread: expiry of keys, retention of history, sweeping.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::ReadOptions;

use crate::clock::Timeline;
use crate::commit::proposal::Proposal;
use crate::commit::queue::{CommitQueue, Task};
use crate::compact::Compactor;
use crate::error::{Error, Result};
use crate::health::{Warning, WarningHandler};
use crate::layout;
use crate::maintenance_control::MaintenanceControl;
use crate::revision::Revision;
use crate::stats::Metrics;
use crate::store::{Family, Store};
use crate::transaction::{Condition, Transaction};

/// Expired keys that are deleted before other tasks run.
const EXPIRE_STEP: usize = 256;
/// While callers write, each sweep step is followed by a pause of this many times its duration: their synced
/// writes share the disk, the write-ahead log and the processors with the deletions of a sweep, and are
/// delayed by its flushes. Without other writes a sweep does not pause.
const PAUSE_FACTOR: u32 = 20;
/// The same for a large compaction debt: history must not grow faster than it is removed.
const PAUSE_FACTOR_LARGE_DEBT: u32 = 4;
/// Revisions that count as a large compaction debt.
const LARGE_DEBT: u64 = 1 << 20;
/// Maximum pause.
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of damaged expiry entries that are remembered. With more of them, expiry fails.
const MAX_SKIPPED: usize = 10_000;
/// Delay of the retry after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The tasks of the thread, with what they need.
pub(crate) struct MaintenanceTasks {
    pub store: Arc<Store>,
    pub queue: Arc<CommitQueue>,
    pub compactor: Arc<Compactor>,
    pub metrics: Arc<Metrics>,
    pub history_retention: Option<Duration>,
    pub compaction_interval: Duration,
    pub expire: bool,
    pub time: Arc<Timeline>,
    pub warn: WarningHandler,
    /// Damaged expiry entries; each was reported when it was first read.
    pub skipped: Mutex<HashSet<Bytes>>,
}

impl MaintenanceTasks {
    /// Runs until stopped.
    pub(crate) fn run(&self, control: &MaintenanceControl) {
        let mut schedule = Schedule::new(self);
        // Left over from the last run: an unfinished sweep.
        control.state.lock().sweep = true;
        // The last failure reported, so that it is reported once.
        let mut reported: Option<String> = None;
        // The latest revision at the last run, to detect concurrent writes.
        let mut swept_at = self.compactor.latest();
        while let Some(sweep) = self.wait_due(control, &mut schedule) {
            let (started, latest) = (Instant::now(), self.compactor.latest());
            let outcome = schedule.run_due(self, sweep);
            if sweep && latest != swept_at {
                schedule.pause_sweeping(self, started.elapsed());
            }
            swept_at = latest;
            match &outcome {
                Ok(_) => reported = None,
                Err(Error::Closed) => {}
                Err(error) => {
                    schedule.retry = Some(Instant::now() + RETRY_DELAY);
                    let text = error.to_string();
                    // Of an engine that has failed, which is reported with its own reason.
                    let is_consequence =
                        matches!(error, Error::Poisoned { .. } | Error::OutcomeUnknown { .. });
                    if !is_consequence && reported.as_ref() != Some(&text) {
                        self.warn.warn(&Warning::Maintenance { error: error.clone() });
                        reported = Some(text);
                    }
                }
            }
            if !Self::finish(control, sweep, outcome) {
                return;
            }
        }
    }

    /// Waits until a task is due; returns whether to sweep, or `None` when the thread is to stop.
    fn wait_due(&self, control: &MaintenanceControl, schedule: &mut Schedule) -> Option<bool> {
        let mut state = control.state.lock();
        loop {
            if state.stop {
                return None;
            }
            schedule.expiry_ms = earlier(schedule.expiry_ms, state.deadline_ms.take());
            let (now, now_ms) = (Instant::now(), self.time.now_ms());
            if schedule.is_due(state.sweep, now, now_ms) {
                state.sweeping = schedule.sweeps(state.sweep, now);
                state.sweep &= !state.sweeping;
                return Some(state.sweeping);
            }
            match schedule.timeout(state.sweep, now, now_ms) {
                Some(timeout) => {
                    control.changed.wait_for(&mut state, timeout.max(Duration::from_millis(1)));
                }
                None => control.changed.wait(&mut state),
            }
        }
    }

    /// Notes the outcome of a run, and wakes those who wait for the end of sweeping; returns whether to go
    /// on.
    fn finish(control: &MaintenanceControl, sweep: bool, outcome: Result<bool>) -> bool {
        let mut state = control.state.lock();
        state.sweeping = false;
        match outcome {
            Ok(more) => state.sweep |= more,
            Err(Error::Closed) => return false,
            Err(error) => {
                state.sweep |= sweep;
                state.last_failure = Some(error);
            }
        }
        if !state.sweep || state.last_failure.is_some() {
            control.swept.notify_all();
        }
        true
    }
}

/// Expired keys.
struct Due {
    /// The engine's time when they were found.
    now_ms: u64,
    entries: Vec<DueEntry>,
    /// When the next one is due.
    next: Option<u64>,
    /// Whether all entries could be read.
    read: Result<()>,
}

/// A key that has expired.
struct DueEntry {
    expiry_key: Bytes,
    key: Bytes,
    /// The revision that set the deadline.
    revision: Revision,
}

/// When each task is due. Of the thread alone.
struct Schedule {
    /// The earliest known deadline of a key, in the engine's time; none where keys do not expire.
    expiry_ms: Option<u64>,
    expires: bool,
    /// The next time the floor is raised by age.
    retention: Option<Instant>,
    /// After a failure nothing runs before this.
    retry: Option<Instant>,
    /// No sweeping before this.
    sweep_pause: Option<Instant>,
}

impl Schedule {
    fn new(tasks: &MaintenanceTasks) -> Schedule {
        let retention = tasks.history_retention.map(|_| Instant::now() + tasks.compaction_interval);
        // Keys may have expired since the last run.
        Schedule { expiry_ms: Some(0), expires: tasks.expire, retention, retry: None, sweep_pause: None }
    }

    fn sweeps(&self, wanted: bool, now: Instant) -> bool {
        wanted && self.sweep_pause.is_none_or(|until| now >= until)
    }

    fn expiry_is_due(&self, now_ms: u64) -> bool {
        self.expires && self.expiry_ms.is_some_and(|ms| ms <= now_ms)
    }

    fn is_due(&self, sweep: bool, now: Instant, now_ms: u64) -> bool {
        let is_past = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        let due = self.sweeps(sweep, now) || self.expiry_is_due(now_ms) || is_past(self.retention);
        due && self.retry.is_none_or(|until| now >= until)
    }

    /// How long nothing is due, if nothing else happens; `None` is forever.
    fn timeout(&self, sweep: bool, now: Instant, now_ms: u64) -> Option<Duration> {
        /// The engine's time may run faster than the condition variable's, so waits are bounded.
        const MAX_WAIT: Duration = Duration::from_secs(60);
        let until = |at: Instant| at.saturating_duration_since(now);
        if let Some(retry) = self.retry.filter(|retry| now < *retry) {
            return Some(until(retry));
        }
        let expiry = self.expiry_ms.filter(|_| self.expires);
        let expiry = expiry.map(|ms| Duration::from_millis(ms.saturating_sub(now_ms)).min(MAX_WAIT));
        let pause = self.sweep_pause.filter(|_| sweep).map(until);
        earlier(earlier(expiry, self.retention.map(until)), pause)
    }

    /// Leaves the disk to the writes that arrived while a step of sweeping took `took`.
    fn pause_sweeping(&mut self, tasks: &MaintenanceTasks, took: Duration) {
        let is_large = tasks.compactor.debt().is_ok_and(|debt| debt > LARGE_DEBT);
        let pause = took * if is_large { PAUSE_FACTOR_LARGE_DEBT } else { PAUSE_FACTOR };
        self.sweep_pause = Some(Instant::now() + pause.min(MAX_PAUSE));
    }

    /// Runs a bounded step of each task that is due; returns whether sweeping is unfinished. A failed task
    /// does not prevent the others.
    fn run_due(&mut self, tasks: &MaintenanceTasks, sweep: bool) -> Result<bool> {
        let mut expired = Ok(());
        if self.expiry_is_due(tasks.time.now_ms()) {
            expired = tasks.expire().map(|next| self.expiry_ms = next);
        }
        let swept = if self.retention.is_some_and(|at| Instant::now() >= at) {
            self.retention = Some(Instant::now() + tasks.compaction_interval);
            tasks.raise_floor_by_age().map(|()| true)
        } else if sweep {
            tasks.compactor.step()
        } else {
            Ok(false)
        };
        expired.and(swept)
    }
}

impl MaintenanceTasks {
    /// Deletes expired keys, a bounded number; returns when the next one is due.
    fn expire(&self) -> Result<Option<u64>> {
        let Due { entries, next, read, .. } = self.due()?;
        let proposals: Vec<(DueEntry, Proposal)> = entries
            .into_iter()
            .map(|entry| {
                let proposal = self.propose_deletion(&entry);
                (entry, proposal)
            })
            .collect();
        for (DueEntry { expiry_key, revision, .. }, proposal) in proposals {
            match proposal.wait() {
                Ok(committed) if committed.commit.is_some() => self.metrics.expired.add(1),
                // The key was written or deleted meanwhile, and with it the entry.
                Ok(_) | Err(Error::Conflict { .. }) => {
                    let filed = self.store.get(Family::Expiry, &expiry_key)?;
                    if filed.and_then(|value| layout::decode_expiry(&expiry_key, &value)) == Some(revision) {
                        self.skip(&expiry_key, "the record has another deadline or none")?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        read?;
        Ok(next)
    }

    /// Proposes to delete expired keys without waiting for it. Returns the engine's time, and keys with the
    /// revisions that set their deadlines.
    pub(crate) fn propose_expiry(&self) -> Result<(u64, Vec<(Bytes, Revision)>)> {
        let due = self.due()?;
        due.entries.iter().for_each(|entry| drop(self.propose_deletion(entry)));
        due.read?;
        Ok((due.now_ms, due.entries.into_iter().map(|entry| (entry.key, entry.revision)).collect()))
    }

    fn propose_deletion(&self, entry: &DueEntry) -> Proposal {
        let condition = Condition::ModRevision { key: entry.key.clone(), revision: entry.revision };
        let transaction = Transaction::new().require(condition).delete(entry.key.clone());
        let size = transaction.size();
        Proposal::submit(&self.queue, Task::Transact(transaction), size)
    }

    /// Finds expired keys, a bounded number.
    fn due(&self) -> Result<Due> {
        let mut cursor = self.store.cursor(Family::Expiry, ReadOptions::default());
        cursor.seek_to_first();
        let now_ms = self.time.now_ms();
        let (mut entries, mut next) = (Vec::new(), None);
        while let Some((expiry_key, value)) = cursor.item() {
            let Some((deadline, key)) = layout::parse_expiry_key(expiry_key) else {
                self.skip(expiry_key, "not an expiry entry")?;
                cursor.next();
                continue;
            };
            if deadline > now_ms || entries.len() == EXPIRE_STEP {
                next = Some(deadline);
                break;
            }
            match layout::decode_expiry(expiry_key, value) {
                None => self.skip(expiry_key, "the checksum does not match")?,
                Some(_) if self.skipped.lock().contains(expiry_key) => {}
                Some(revision) => entries.push(DueEntry {
                    expiry_key: Bytes::copy_from_slice(expiry_key),
                    key: Bytes::copy_from_slice(key),
                    revision,
                }),
            }
            cursor.next();
        }
        // Entries after a damaged block are unknown; those before it expire nonetheless.
        Ok(Due { now_ms, entries, next, read: cursor.status().map_err(Error::from) })
    }

    /// Remembers and reports a damaged expiry entry. It is not removed, so that the damage can be
    /// investigated.
    fn skip(&self, expiry_key: &[u8], reason: &'static str) -> Result<()> {
        let mut skipped = self.skipped.lock();
        if skipped.contains(expiry_key) {
            return Ok(());
        }
        let entry = Bytes::copy_from_slice(expiry_key);
        if skipped.len() >= MAX_SKIPPED {
            return Err(Error::Corrupt {
                key: entry,
                revision: Revision::ZERO,
                reason: "too many expiry entries are damaged",
            });
        }
        skipped.insert(entry.clone());
        drop(skipped);
        self.metrics.damaged_deadlines.add(1);
        self.warn.warn(&Warning::DamagedDeadline { entry, reason });
        Ok(())
    }

    /// Raises the floor to the newest revision that is past the retention.
    fn raise_floor_by_age(&self) -> Result<()> {
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
