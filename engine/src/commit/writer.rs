//! Writing a group: one synced write, then publication and answers.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use rocksdb::WriteBatch;

use crate::commit::group::Group;
use crate::commit::queue::CommitQueue;
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::feed::hub::Hub;
use crate::feed::wake::Wakeup;
use crate::health::Failure;
use crate::maintenance_control::MaintenanceControl;
use crate::stats::Metrics;
use crate::store::Store;
use crate::wal;
use crate::watermark::Watermark;

/// More subscribers than this are woken by the wake-up thread.
const WAKE_HERE: usize = 16;

/// Writes groups in the order of their numbers. Behind a lock that is held for a whole group, by the syncer's
/// thread or, for a few transactions when nothing else is in flight, by the builder's (see
/// [`CommitQueue::next_work`]); the queue hands out one group at a time, so that neither waits for the other.
pub(crate) struct Writer {
    pub store: Arc<Store>,
    pub hub: Arc<Hub>,
    pub queue: Arc<CommitQueue>,
    pub wakeup: Wakeup,
    pub maintenance: Arc<MaintenanceControl>,
    pub metrics: Arc<Metrics>,
    /// Longest time for which relaxed groups stay unsynced.
    pub relaxed_sync_interval: Duration,
    /// Since when there are unsynced writes.
    pub unsynced: Option<Instant>,
    /// The durable watermark.
    pub watermark: Watermark,
}

impl Writer {
    /// Time until [`Writer::catch_up`] is due: none when everything is on disk.
    pub(crate) fn due(&self) -> Option<Duration> {
        let sync = self.unsynced.map(|since| self.relaxed_sync_interval.saturating_sub(since.elapsed()));
        [sync, self.watermark.due()].into_iter().flatten().min()
    }

    /// Syncs relaxed groups and writes the watermark, where that is due.
    pub(crate) fn catch_up(&mut self) {
        if self.unsynced.is_some_and(|since| since.elapsed() >= self.relaxed_sync_interval) {
            self.sync();
        }
        if self.watermark.due() == Some(Duration::ZERO) {
            self.store.health().disk_wait_begins(Instant::now());
            let marked = self.watermark.mark();
            self.store.health().disk_wait_ends();
            if let Err(error) = marked {
                self.store.health().fail(Failure::of_write(&error));
            }
        }
    }

    /// Writes `group`, publishes its commits and answers its callers.
    pub(crate) fn write(&mut self, mut group: Group) {
        let number = group.number;
        let batch = std::mem::take(&mut group.batch);
        let started = Instant::now();
        self.store.health().disk_wait_begins(started);
        let written = self.write_batch(batch, group.sync).and_then(|()| self.note_synced(&group));
        self.store.health().disk_wait_ends();
        match written {
            Ok(()) => {
                let took = if group.sync { started.elapsed() } else { Duration::ZERO };
                if group.sync {
                    self.metrics.sync_time.record(took);
                    self.unsynced = None;
                } else {
                    self.unsynced.get_or_insert(started);
                }
                self.queue.group_written(number, group.answers.len(), took);
                self.publish(group);
                self.queue.group_answered();
                self.catch_up();
            }
            Err(error) => {
                self.metrics.failed_groups.add(1);
                if matches!(error, Error::OutcomeUnknown { .. }) {
                    // It is unknown how much of the group is on disk: no more writes on top of that.
                    self.store.health().fail(Failure::of_write(&error));
                }
                // The builder is notified first: a retry that follows the answer must not be built on the
                // group that failed.
                self.queue.group_failed(number, error.clone());
                group.fail(&error);
            }
        }
    }

    /// Writes a group that is durable in a journal, without a sync, publishes its commits and answers its
    /// callers. When it cannot be written, its callers wait for what a restart finds in the journal.
    pub(crate) fn write_applied(&mut self, mut group: Group) -> Result<()> {
        let batch = std::mem::take(&mut group.batch);
        let started = Instant::now();
        self.store.health().disk_wait_begins(started);
        let written = self.write_batch(batch, false);
        self.store.health().disk_wait_ends();
        if let Err(error) = written {
            self.metrics.failed_groups.add(1);
            group.fail(&error.clone().into_unknown_outcome());
            return Err(error);
        }
        self.unsynced.get_or_insert(started);
        self.publish(group);
        self.catch_up();
        Ok(())
    }

    fn write_batch(&self, mut batch: WriteBatch, sync: bool) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        batch.put_log_data(self.watermark.note().encode());
        if sync {
            let filler = wal::filler(self.watermark.seen_bytes(), batch.size_in_bytes());
            if !filler.is_empty() {
                batch.put_log_data(filler);
            }
        }
        failpoint!("write-before");
        failpoint!("write-full");
        self.metrics.written_bytes.add(batch.size_in_bytes() as u64);
        self.store.write(batch, sync)?;
        failpoint!("write-after");
        Ok(())
    }

    /// Before any caller is answered: the watermark must name the log that the group is in.
    fn note_synced(&mut self, group: &Group) -> Result<()> {
        if !group.sync {
            return Ok(());
        }
        let revision = group.commits.last().map_or(self.hub.latest(), |commit| commit.revision);
        // The group is on disk, and its log may be unknown: as if the sync had failed.
        self.watermark.synced(revision, self.store.writes()).map_err(Error::into_unknown_outcome)
    }

    fn publish(&self, group: Group) {
        let wakers = self.hub.publish(&group.commits);
        if !group.commits.is_empty() {
            self.metrics.group_size.record_count(group.commits.len() as u64);
            self.metrics.commits.add(group.commits.len() as u64);
        }
        self.metrics.commit_time.record(group.started.elapsed());
        for (reply, answer) in group.answers {
            reply.send(answer);
        }
        self.maintenance.deadline_set(group.deadline_ms);
        if wakers.len() > WAKE_HERE {
            self.wakeup.wake(wakers);
        } else {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Syncs the writes of relaxed groups.
    pub(crate) fn sync(&mut self) {
        if self.unsynced.take().is_some() {
            self.store.health().disk_wait_begins(Instant::now());
            let synced = self.sync_log();
            self.store.health().disk_wait_ends();
            if let Err(error @ Error::OutcomeUnknown { .. }) = synced {
                self.store.health().fail(Failure::of_write(&error));
            }
        }
    }

    fn sync_log(&self) -> Result<()> {
        failpoint!("sync-before");
        self.store.sync_log()
    }
}
