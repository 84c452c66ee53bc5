//! Compaction: removing history that is below the floor.
//!
//! It works from the log: each entry names the versions that its revision superseded, so removing history up
//! to a floor reads the log entries up to the floor and removes what they name; keys that did not change are
//! never read. In order:
//!
//! 1. The floor is stored, synced, and then raised in memory: from then on no read below it starts.
//! 2. In steps: superseded versions leave `history`; then tombstones that are still the newest version of
//!    their key leave `current` (through the committer, the only writer of that column family); then the
//!    position reached is stored.
//! 3. At the floor: the log entries up to it are removed, whole files at once where possible.
//!
//! Killed at any point, it continues from the stored position: what was removed before is unreadable either
//! way, because the floor was stored first.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::{CompactOptions, ReadOptions, WriteBatch};

use crate::commit::proposal::Proposal;
use crate::commit::queue::{CommitQueue, Task};
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::feed::hub::Hub;
use crate::floor::Floor;
use crate::layout::{self, meta};
use crate::log::{decode_entry, LogEntry};
use crate::revision::Revision;
use crate::stats::Metrics;
use crate::store::{Family, Store};
use crate::stored::Kind;

/// Log operations that one step processes.
const STEP: usize = 1024;
/// Removed versions after which the files of `history` are compacted to reclaim their space.
const RECLAIM_VERSIONS: u64 = 20_000;

/// Raises the floor and sweeps what lies below it.
pub(crate) struct Compactor {
    store: Arc<Store>,
    hub: Arc<Hub>,
    queue: Arc<CommitQueue>,
    floor: Arc<Floor>,
    metrics: Arc<Metrics>,
    /// The floor is raised by one caller at a time: of two, the lower one could be stored last.
    raising: Mutex<()>,
    /// One sweep at a time; the versions removed since the files were last merged.
    sweep: Mutex<u64>,
}

impl Compactor {
    pub(crate) fn new(
        store: Arc<Store>,
        hub: Arc<Hub>,
        queue: Arc<CommitQueue>,
        floor: Arc<Floor>,
        metrics: Arc<Metrics>,
    ) -> Compactor {
        Compactor { store, hub, queue, floor, metrics, raising: Mutex::new(()), sweep: Mutex::new(0) }
    }

    /// Raises the floor to `revision`. A no-op when the floor is there already.
    pub(crate) fn raise_floor(&self, revision: Revision) -> Result<()> {
        self.store.health().check()?;
        let current = self.hub.latest();
        if revision > current {
            return Err(Error::Future { requested: revision, current });
        }
        let _raising = self.raising.lock();
        if revision <= self.floor.get() {
            return Ok(());
        }
        failpoint!("compact-before-floor");
        self.commit_task(Task::SetFloor(revision), 0)?;
        failpoint!("compact-after-floor");
        self.floor.raise(revision);
        Ok(())
    }

    /// The newest revision.
    pub(crate) fn latest(&self) -> Revision {
        self.hub.latest()
    }

    /// Number of revisions below the floor that are not swept yet.
    pub(crate) fn debt(&self) -> Result<u64> {
        let swept = self.store.number(meta::SWEPT)?.unwrap_or(0);
        Ok(self.floor.get().get().saturating_sub(swept))
    }

    /// Sweeps a bounded chunk; returns whether there is more.
    pub(crate) fn step(&self) -> Result<bool> {
        self.step_with(|tombstones| {
            let size = tombstones.iter().map(|(key, _)| key.len()).sum();
            self.commit_task(Task::Purge(tombstones), size)
        })
    }

    /// The same, with a way to have the only writer of `current` remove tombstones.
    pub(crate) fn step_with(&self, purge: impl FnOnce(Vec<(Bytes, Revision)>) -> Result<()>) -> Result<bool> {
        let mut removed_before = self.sweep.lock();
        let floor = self.floor.get();
        let swept = Revision::new(self.store.number(meta::SWEPT)?.unwrap_or(0));
        if swept >= floor {
            return Ok(false);
        }
        let chunk = self.read_chunk(swept, floor)?;
        let removed = self.remove_superseded(&chunk.superseded)?;
        failpoint!("compact-after-history");
        // Only after that: if the tombstone of a key were removed before the versions below it, and the key
        // created again, a read at the floor would see those versions.
        if !chunk.tombstones.is_empty() {
            purge(chunk.tombstones)?;
        }
        failpoint!("compact-after-purge");
        let mut batch = WriteBatch::default();
        let done = chunk.through >= floor;
        if chunk.newest_ms > 0 {
            // When the log is empty, this is the only record of the newest time.
            let newest_ms = self.store.number(meta::TIME)?.unwrap_or(0).max(chunk.newest_ms);
            self.store.put_number(&mut batch, meta::TIME, newest_ms);
        }
        if done {
            // The log entries up to the floor are removed with the last chunk: until then they are needed to
            // continue after a crash.
            let log = self.store.family(Family::Log);
            batch.delete_range_cf(log, layout::log_key(Revision::ZERO), layout::log_key(floor.next()));
        }
        self.store.put_number(&mut batch, meta::SWEPT, chunk.through.get());
        self.store.write(batch, false)?;
        failpoint!("compact-after-step");
        self.metrics.swept_versions.add(removed);
        *removed_before += removed;
        if done && *removed_before >= RECLAIM_VERSIONS {
            *removed_before = 0;
            self.reclaim();
        }
        Ok(!done)
    }

    /// Removes versions from `history`; returns how many.
    fn remove_superseded(&self, versions: &[(Bytes, Revision)]) -> Result<u64> {
        let mut batch = WriteBatch::default();
        let mut history_key = Vec::new();
        for (key, revision) in versions {
            layout::history_key_into(key, *revision, &mut history_key);
            // Each version is written once, as a single delete requires. After a crash it may be deleted once
            // more, which has no effect.
            batch.single_delete_cf(self.store.family(Family::History), &history_key);
        }
        self.store.write(batch, false)?;
        Ok(versions.len() as u64)
    }

    /// Finds the newest revision that was committed at or before `time_ms`; the floor if there is none.
    pub(crate) fn revision_at(&self, time_ms: u64) -> Result<Revision> {
        // Entries up to `low` are old enough, those from `high` on are not, those between are unknown.
        let (mut low, mut high) = (self.floor.get(), self.hub.latest().next());
        while low.next() < high {
            let middle = Revision::new(low.get() + (high.get() - low.get()) / 2);
            match self.first_entry(middle, high)? {
                Some(entry) if entry.time_ms <= time_ms => low = entry.revision,
                Some(_) | None => high = middle,
            }
        }
        Ok(low)
    }

    /// The first log entry from `from` on and before `end`.
    fn first_entry(&self, from: Revision, end: Revision) -> Result<Option<LogEntry>> {
        let mut read = ReadOptions::default();
        read.set_iterate_upper_bound(layout::log_key(end).to_vec());
        let mut cursor = self.store.cursor(Family::Log, read);
        cursor.seek(layout::log_key(from));
        match cursor.item() {
            Some((key, value)) => decode_entry(key, value).map(Some),
            None => {
                cursor.status()?;
                Ok(None)
            }
        }
    }

    fn read_chunk(&self, swept: Revision, floor: Revision) -> Result<SweepChunk> {
        let mut read = ReadOptions::default();
        read.set_iterate_lower_bound(layout::log_key(swept.next()).to_vec());
        read.set_iterate_upper_bound(layout::log_key(floor.next()).to_vec());
        read.fill_cache(false);
        let mut cursor = self.store.cursor(Family::Log, read);
        cursor.seek_to_first();
        let mut chunk =
            SweepChunk { tombstones: Vec::new(), superseded: Vec::new(), newest_ms: 0, through: swept };
        let mut operations = 0;
        while let Some((key, value)) = cursor.item() {
            let entry = decode_entry(key, value)?;
            operations += entry.operations.len();
            chunk.newest_ms = chunk.newest_ms.max(entry.time_ms);
            for operation in entry.operations {
                if operation.kind == Kind::Tombstone {
                    chunk.tombstones.push((operation.key.clone(), entry.revision));
                }
                if operation.superseded.is_set() {
                    chunk.superseded.push((operation.key, operation.superseded));
                }
            }
            chunk.through = entry.revision;
            if operations >= STEP {
                return Ok(chunk);
            }
            cursor.next();
        }
        cursor.status()?;
        chunk.through = floor;
        Ok(chunk)
    }

    /// Has RocksDB compact the files from which much was removed, on a thread of its own. `history` holds
    /// only superseded versions, so its size, too, follows what changed and not the number of keys.
    fn reclaim(&self) {
        let store = Arc::clone(&self.store);
        let merge = move || {
            let mut options = CompactOptions::default();
            options.set_exclusive_manual_compaction(false);
            let all: Option<&[u8]> = None;
            store.db().compact_range_cf_opt(store.family(Family::History), all, all, &options);
            store.db().compact_range_cf_opt(store.family(Family::Log), all, all, &options);
        };
        // Without the thread, RocksDB compacts the files later by itself.
        let health = Arc::clone(self.store.health());
        let _ = std::thread::Builder::new()
            .name("plinth-reclaim".into())
            .spawn(move || health.run_thread("plinth-reclaim", merge));
    }

    /// Has RocksDB rewrite all files, so that what was removed takes no space; the caller waits for it.
    pub(crate) fn rewrite(&self) -> Result<()> {
        self.store.flush()?;
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        let all: Option<&[u8]> = None;
        for family in [Family::Current, Family::History, Family::Log] {
            self.store.db().compact_range_cf_opt(self.store.family(family), all, all, &options);
        }
        Ok(())
    }

    /// Submits a task to the committer and waits for it.
    fn commit_task(&self, task: Task, size: usize) -> Result<()> {
        Proposal::submit(&self.queue, task, size).wait().map(|_| ())
    }
}

/// What one step of a sweep removes.
struct SweepChunk {
    tombstones: Vec<(Bytes, Revision)>,
    superseded: Vec<(Bytes, Revision)>,
    /// Time of the newest entry that was read.
    newest_ms: u64,
    through: Revision,
}
