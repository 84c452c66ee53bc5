//! [`Engine`]: the public handle of an open store.

mod assembly;
mod replicated;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::WriteBatch;

use assembly::{Assembly, Inner};

use crate::archive::{self, ArchiveSummary, Progress};
use crate::block::block_until;
use crate::commit::builder::{Builder, Relaxed, Settings};
use crate::commit::proposal::Proposal;
use crate::commit::queue::Task;
use crate::commit::state::StateMachine;
use crate::commit::syncer;
use crate::error::{Error, Result};
use crate::feed::subscription::{Subscribe, Subscription};
use crate::feed::wait::WaitFor;
use crate::health::{self, Failed, Failure};
use crate::layout::meta;
use crate::options::Options;
use crate::read::{self, InMemory, Snapshot};
use crate::record::Record;
use crate::recovery::DroppedTail;
use crate::replica::agreement::Agreement;
use crate::replica::applied::Applied;
use crate::replica::applier::{Applier, Follower};
use crate::replica::barrier::{self, ReadBarrier};
use crate::replica::proposer::Proposer;
use crate::replica::shared::Shared;
use crate::replica::stepped::Stepper;
use crate::replica::suspect::Suspects;
use crate::replica::{self, Replica};
use crate::revision::{At, Revision};
use crate::start::check_and_mark;
use crate::stats::{self, Stats};
use crate::store::Store;
use crate::transaction::Transaction;

/// An open store. Cheap to clone; usable from any thread. It is closed with [`Engine::close`] or when
/// the last clone is dropped.
///
/// It runs six threads: the builder checks conditions and assigns revisions, the syncer writes and publishes,
/// one wakes many subscribers, one reads the log for lagging subscribers, one does maintenance (expiry,
/// retention, sweeping), one watches the data directory. In a replica, three take the place of the first two:
/// one proposes, one applies, one asks for the end of the journal.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

impl Engine {
    /// Opens a data directory, creating it when [`Options`] say so.
    ///
    /// # Errors
    /// [`Error::Locked`] when the directory is in use, [`Error::Foreign`] when it holds something else,
    /// [`Error::Incomplete`] when a part of it is missing, [`Error::UnfinishedRestore`],
    /// [`Error::FormatVersion`] when another version wrote it, [`Error::Rocks`] or [`Error::Corrupt`] when it
    /// is damaged, [`Error::LostCommits`] when durable commits are missing, [`Error::Io`] when it cannot be
    /// read or created. In each case existing files are left in place.
    pub fn open(options: Options) -> Result<Engine> {
        let store = Arc::new(Store::open(&options)?);
        let replica = store.is_replica()?.then(|| Error::Replica { dir: options.dir.clone() });
        if let Some(refusal) = replica.clone().filter(|_| !options.reads_replica) {
            return Err(refusal);
        }
        let start = check_and_mark(&store, &options)?;
        let relaxed = Relaxed { prefixes: options.relaxed.clone(), reserved: start.reserved };
        let settings = Settings { group_limit: options.limits.group, relaxed, time: Arc::clone(&start.time) };
        let assembly = Assembly::new(store, options, start);
        let (store, hub, queue) = assembly.parts();
        let writer = Arc::clone(&assembly.writer);
        let metrics = Arc::clone(&assembly.metrics);
        if let Some(refusal) = replica {
            queue.poison(&refusal);
        }
        let builder = Builder::new(store, hub, Arc::clone(&queue), Arc::clone(&writer), metrics, settings);
        Engine::start(assembly, None, |engine| {
            engine.spawn("plinth-build", move || builder.run())?;
            engine.spawn("plinth-sync", move || syncer::run(&queue, &writer))
        })
    }

    /// Opens a data directory as a replica of a cluster: an engine that appends what callers submit to the
    /// journal, and applies what all replicas have appended. A transaction is answered when this replica has
    /// applied it. Reads, feeds and everything else work as in a single store; reads of the newest state see
    /// what this replica has applied, see [`Engine::read_barrier`].
    ///
    /// A journal that cannot be reached does not prevent the start: reads work, and writes wait for it.
    /// [`Options::relaxed_durability`] has no effect, since the journal decides about durability.
    ///
    /// # Errors
    /// Those of [`Engine::open`], and [`Error::NotReplica`] when the directory holds other data,
    /// [`Error::Journal`] when the journal does not continue what was applied. Nothing was written then.
    pub fn open_replicated(options: Options, replica: Replica) -> Result<Engine> {
        Engine::open_replicated_as(options, replica, plinth_journal::record::VERSION)
    }

    /// Like [`Engine::open_replicated`], as a program would whose newest version of records is `newest`. For
    /// tests of upgrades.
    ///
    /// # Errors
    /// Those of [`Engine::open_replicated`].
    #[doc(hidden)]
    pub fn open_replicated_as(options: Options, replica: Replica, newest: u8) -> Result<Engine> {
        let (assembly, shared, proposer, follower) = Engine::assemble_replica(options, replica, newest)?;
        let (asker, journal) = (Arc::clone(&shared), Arc::clone(&follower.journal));
        Engine::start(assembly, Some(shared), move |engine| {
            engine.spawn("plinth-propose", move || proposer.run())?;
            engine.spawn("plinth-apply", move || follower.run())?;
            let health = Arc::clone(engine.0.store.health());
            engine.spawn("plinth-confirm", move || loop {
                match barrier::ask(&asker, &*journal, true) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(failure) => break health.fail(failure),
                }
            })
        })
    }

    /// Like [`Engine::open_replicated`], with a [`Stepper`] in the place of the threads that propose, apply
    /// and do maintenance. For simulations.
    ///
    /// # Errors
    /// Those of [`Engine::open_replicated`].
    #[doc(hidden)]
    pub fn open_stepped(options: Options, replica: Replica) -> Result<(Engine, Stepper)> {
        let newest = plinth_journal::record::VERSION;
        let (mut assembly, shared, proposer, follower) = Engine::assemble_replica(options, replica, newest)?;
        let stepper = Stepper { proposer, follower, tasks: Arc::clone(&assembly.tasks) };
        assembly.is_stepped = true;
        Ok((Engine::start(assembly, Some(shared), |_| Ok(()))?, stepper))
    }

    fn assemble_replica(
        options: Options,
        replica: Replica,
        newest: u8,
    ) -> Result<(Assembly, Arc<Shared>, Proposer, Follower)> {
        let (store, applied) = replica::open_store(&options, &replica, newest)?;
        let start = check_and_mark(&store, &options)?;
        let applied = applied.unwrap_or(Applied::nothing(replica.cluster));
        let (time, latest, group_limit) = (Arc::clone(&start.time), start.latest, options.limits.group);
        // The log entry of the newest commit may be compacted.
        time.reach(applied.time_ms);
        let (warn, agreement) = (options.warn.clone(), Agreement::new(replica.id, options.agreement_timeout));
        let assembly = Assembly::new(store, options, start);
        let (store, _, queue) = assembly.parts();
        let session = applied.sessions.get(&replica.id).map(|(session, _)| *session);
        let parts = (Arc::clone(&replica.journal), warn.clone());
        let shared = Arc::new(Shared::new(replica.id, applied.anchor, applied.level, session, parts));
        let applier = Arc::new(Mutex::new(Applier {
            state: StateMachine::new(Arc::clone(&store), Arc::clone(&assembly.metrics), latest),
            store,
            floor: Arc::clone(&assembly.floor),
            maintenance: Arc::clone(&assembly.maintenance),
            writer: Arc::clone(&assembly.writer),
            shared: Arc::clone(&shared),
            newest,
            applied,
            agreement,
            time: Arc::clone(&time),
            queue: Arc::clone(&queue),
            warn,
        }));
        let proposer = Proposer::new(
            Arc::clone(&shared),
            queue,
            Arc::clone(&replica.journal),
            Arc::clone(&applier),
            time,
            (replica.cluster, group_limit, newest),
        );
        let (journal, follows) = (replica.journal, Arc::clone(&shared));
        let suspects = Suspects::default();
        let (reader, kept, given_up) = (None, None, journal.given_up());
        let follower = Follower { applier, journal, shared: follows, reader, kept, suspects, given_up };
        Ok((assembly, shared, proposer, follower))
    }

    /// An engine of these parts. Starts the threads: those of `committer`, then the others.
    fn start(
        assembly: Assembly,
        replica: Option<Arc<Shared>>,
        committer: impl FnOnce(&Engine) -> Result<()>,
    ) -> Result<Engine> {
        let (inner, threads) = assembly.into_inner(replica);
        let engine = Engine(Arc::new(inner));
        engine.register_failure_hook();
        committer(&engine)?;
        engine.spawn("plinth-feed", threads.feed)?;
        if let Some(tasks) = threads.tasks {
            let maintenance = Arc::clone(&engine.0.maintenance);
            engine.spawn("plinth-maintain", move || tasks.run(&maintenance))?;
            let (watch, store) = (Arc::clone(&engine.0.directory_watch), Arc::clone(&engine.0.store));
            engine.spawn("plinth-dirwatch", move || watch.run(&store))?;
        }
        // Last: it is stopped once all threads that hand it wakers have ended.
        engine.spawn("plinth-wake", threads.wake)?;
        Ok(engine)
    }

    /// Makes a failure refuse every proposal, end every feed, and stop maintenance.
    fn register_failure_hook(&self) {
        let inner = &self.0;
        let (queue, hub, maintenance) = (inner.queue.clone(), inner.hub.clone(), inner.maintenance.clone());
        let replica = inner.replica.clone();
        inner.store.health().on_failure(move |failure| {
            let error = health::refusal(failure);
            queue.poison(&error);
            if let Some(replica) = &replica {
                replica.fail(error.clone());
            }
            hub.end(error);
            maintenance.stop();
        });
    }

    fn spawn(&self, name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let health = Arc::clone(self.0.store.health());
        let handle = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || health.run_thread(name, run))
            .map_err(|e| Error::io(format!("starting thread {name}"), e))?;
        self.0.threads.lock().push(handle);
        Ok(())
    }

    /// Torn writes at the end of write-ahead logs that were dropped when the directory was opened; none of
    /// them was acknowledged.
    pub fn dropped(&self) -> &[DroppedTail] {
        self.0.store.dropped()
    }

    /// The newest durable revision. Costs one atomic load.
    pub fn current_revision(&self) -> Revision {
        self.0.hub.latest()
    }

    /// The oldest revision that can be read. Costs one atomic load.
    pub fn compacted_revision(&self) -> Revision {
        self.0.floor.get()
    }

    /// Reads one key. The newest state costs one lookup and one copy of the value. May read from
    /// disk.
    ///
    /// # Errors
    /// [`Error::Compacted`] and [`Error::Future`] for a revision that cannot be read, [`Error::Corrupt`] when
    /// the record is damaged.
    pub fn get(&self, key: &[u8], at: At) -> Result<Option<Record>> {
        read::get(&self.0.store, &self.0.hub, &self.0.floor, key, at)
    }

    /// Reads the newest state of one key if that needs no disk access, so that an asynchronous task may call
    /// it: the key is in a write buffer or a cached block, or a bloom filter excludes it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the record is damaged.
    pub fn get_in_memory(&self, key: &[u8]) -> Result<InMemory> {
        read::get_in_memory(&self.0.store, &self.0.hub, key)
    }

    /// Pins the state at a revision for any number of reads.
    ///
    /// # Errors
    /// [`Error::Compacted`] and [`Error::Future`] for a revision that cannot be read.
    pub fn snapshot(&self, at: At) -> Result<Snapshot> {
        Snapshot::take(&self.0.store, &self.0.hub, &self.0.floor, at)
    }

    /// Queues a transaction and returns at once: await the proposal, or [`Proposal::wait`].
    pub fn transact(&self, transaction: Transaction) -> Proposal {
        if let Err(error) = transaction.check(&self.0.limits) {
            return Proposal::refused(error);
        }
        if self.0.replica.is_some() && !transaction.numbers.is_empty() {
            let reason = "numbers of the application are not replicated";
            return Proposal::refused(Error::InvalidTransaction { reason });
        }
        if !transaction.reclaims && self.0.store.is_reserved() {
            let message = "the room that is left is kept for deletions".to_owned();
            return Proposal::refused(Error::OutOfSpace { message });
        }
        let size = transaction.size();
        let task = Task::Transact(transaction);
        match &self.0.replica {
            None => Proposal::submit(&self.0.queue, task, size),
            Some(_) => Proposal::submit_withdrawable(&self.0.queue, task, size),
        }
    }

    /// The numbers of the application (see [`Transaction::set_number`]) whose names begin with `prefix`, in
    /// the order of their names, from the first name that is not below `from`, `limit` at most. May read from
    /// disk.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when one is damaged.
    pub fn numbers(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<(Bytes, u64)>> {
        self.0.store.application_numbers(prefix, from, limit)
    }

    /// The revision from which the store has continued since it was restored from an archive with
    /// [`crate::Continuation::Beyond`]: what was created up to it is the archive's. Zero when it was not. May
    /// read from disk.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the number is damaged.
    pub fn restored(&self) -> Result<Revision> {
        self.0.store.revision(meta::RESTORED)
    }

    /// Starts a change feed. Does not read from disk.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the feed would start below the compacted revision, [`Error::Closed`].
    pub fn subscribe(&self, subscribe: Subscribe) -> Result<Subscription> {
        if self.0.hub.is_closed() {
            return Err(self.0.hub.ending());
        }
        self.0.store.health().check()?;
        if let Some(after) = subscribe.after {
            self.0.floor.check(after)?;
        }
        Ok(Subscription::new(Arc::clone(&self.0.hub), self.0.feeder.clone(), subscribe))
    }

    /// Waits until the engine has failed for good: a write or a sync failed in a way that leaves the contents
    /// of the disk unknown, or one of its threads panicked. From then on it refuses writes with
    /// [`Error::Poisoned`] and ends feeds; what was acknowledged is on disk and can be read when the
    /// directory is opened again, preferably by a new process. Closing the engine is not a failure.
    pub fn failed(&self) -> Failed {
        Failed::new(Arc::clone(self.0.store.health()))
    }

    /// Whether the engine was closed or has failed for good.
    pub fn is_over(&self) -> bool {
        self.0.hub.is_closed() || self.failure().is_some()
    }

    /// The failure, if the engine has failed for good (see [`Engine::failed`]).
    pub fn failure(&self) -> Option<Failure> {
        self.0.store.health().failure()
    }

    /// Duration of the commit write or sync that is in progress; none when there is none. The only indication
    /// of a disk that hangs without an error. Costs one atomic load.
    pub fn disk_wait(&self) -> Option<Duration> {
        self.0.store.health().disk_wait()
    }

    /// Whether the last write was refused because the disk is full. Costs one atomic load.
    pub fn is_out_of_space(&self) -> bool {
        self.0.store.health().is_out_of_space()
    }

    /// Waits until `revision` is published, on any async runtime. Returns the current revision;
    /// [`Error::Closed`] when the engine was closed first, [`Error::Poisoned`] when it failed.
    pub fn wait_for(&self, revision: Revision) -> WaitFor {
        WaitFor::new(Arc::clone(&self.0.hub), revision)
    }

    /// Blocks the thread until `revision` is published.
    ///
    /// # Errors
    /// [`Error::Future`] when it is not published at `deadline`, [`Error::Closed`].
    pub fn wait_for_until(&self, revision: Revision, deadline: Instant) -> Result<Revision> {
        block_until(self.wait_for(revision), Some(deadline))
            .unwrap_or_else(|| Err(Error::Future { requested: revision, current: self.current_revision() }))
    }

    /// Waits until the newest state of this engine is at least as new as everything that was committed before
    /// the call, on whichever replica. Resolves at once in a single store. While the journal cannot be
    /// reached it waits; [`Error::Closed`] and [`Error::Poisoned`] as [`Engine::wait_for`].
    pub fn read_barrier(&self) -> ReadBarrier {
        match &self.0.replica {
            None => ReadBarrier::passed(self.current_revision()),
            Some(replica) => ReadBarrier::new(replica),
        }
    }

    /// Compacts history up to `revision`: when this returns, reads below it are refused, also after a crash.
    /// Space is reclaimed in the background, in bounded steps. A no-op for a revision at or below the
    /// compacted one.
    ///
    /// # Errors
    /// [`Error::Future`], or an error of the write.
    pub fn compact(&self, revision: Revision) -> Result<()> {
        self.0.compactor.raise_floor(revision)?;
        self.0.maintenance.sweep();
        Ok(())
    }

    /// Blocks until everything below the compacted revision has been removed.
    ///
    /// # Errors
    /// The error of the sweep, which is retried later, or that of an engine that has failed.
    pub fn wait_compacted(&self) -> Result<()> {
        // A failure is known a moment before the sweeps are stopped.
        self.0.store.health().check()?;
        self.0.maintenance.wait_swept()
    }

    /// Rewrites the files of the store without what was removed, and blocks until that is done. They shrink
    /// by themselves while there are writes; this is for who needs the space at once. Costs reading and
    /// writing all of the store.
    ///
    /// # Errors
    /// [`Error::Io`] when the write buffers cannot be flushed.
    pub fn defragment(&self) -> Result<()> {
        self.0.compactor.rewrite()
    }

    /// Writes the store, history and log included, to `out` as one archive for [`crate::restore`], consistent
    /// at one revision, while reads and writes continue. `progress` is called now and then.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when a record is damaged: damage is not copied into the archive. [`Error::Io`] when
    /// `out` fails.
    pub fn backup(&self, out: &mut impl Write, mut progress: impl FnMut(Progress)) -> Result<ArchiveSummary> {
        archive::write(&self.0.store, out, &mut progress)
    }

    /// Creates a data directory at `to`, which must be missing or empty, with the current state, while reads
    /// and writes continue. On the same file system most files are linked, not copied.
    ///
    /// # Errors
    /// [`Error::Foreign`] when `to` is not empty; [`Error::Io`], [`Error::Rocks`], [`Error::OutOfSpace`].
    pub fn checkpoint(&self, to: impl AsRef<Path>) -> Result<()> {
        self.0.store.checkpoint(to.as_ref(), self.current_revision())
    }

    /// Current statistics. Costs some microseconds.
    pub fn stats(&self) -> Stats {
        let inner = &self.0;
        let (queued, queued_bytes) = inner.queue.queued();
        let [group_size, sync_micros, commit_micros] = inner.metrics.distributions();
        let (cache_hits, cache_misses) = inner.store.cache_counts();
        let (flushed_bytes, merged_bytes) = inner.store.table_bytes();
        Stats {
            current_revision: inner.hub.latest().get(),
            compacted_revision: inner.floor.get().get(),
            compaction_debt: inner.compactor.debt().unwrap_or(0),
            commits: inner.metrics.commits.get(),
            conflicts: inner.metrics.conflicts.get(),
            failed_groups: inner.metrics.failed_groups.get(),
            written_bytes: inner.metrics.written_bytes.get(),
            flushed_bytes,
            merged_bytes,
            expired: inner.metrics.expired.get(),
            damaged_deadlines: inner.metrics.damaged_deadlines.get(),
            swept_versions: inner.metrics.swept_versions.get(),
            group_size,
            sync_micros,
            commit_micros,
            queued: queued as u64,
            queued_bytes: queued_bytes as u64,
            subscribers: inner.hub.subscribers.load(std::sync::atomic::Ordering::Relaxed),
            range_feeds: inner.hub.range_feeds() as u64,
            delivered_events: inner.hub.delivered.load(std::sync::atomic::Ordering::Relaxed),
            ring_bytes: inner.hub.ring_bytes() as u64,
            cache_hits,
            cache_misses,
            cache_bytes: inner.store.cache.get_usage() as u64,
            families: stats::families(&inner.store),
            journal: inner.replica.as_ref().map(|replica| replica.stats()),
        }
    }

    /// Commits what is queued, ends all feeds with [`Error::Closed`], stops the threads and flushes, so that
    /// the next start is quick. The directory is unlocked once every snapshot is dropped, too.
    ///
    /// # Errors
    /// [`Error::Rocks`] when the flush failed, [`Error::Poisoned`] when the engine had failed before, so that
    /// nothing was flushed; nothing acknowledged is lost in either case.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }
}

impl Inner {
    /// Accepts no further writes.
    fn stop_writes(&self) {
        self.queue.close();
        if let Some(replica) = &self.replica {
            replica.stop();
        }
    }

    /// Waits for the journal no longer than a replica that stops does. One that is stepped has no threads to
    /// wait for.
    fn leave_journal(&self) {
        if let Some(replica) = self.replica.as_ref().filter(|_| !self.is_stepped) {
            replica.leave_journal();
        }
    }

    fn close(&self) -> Result<()> {
        let mut threads = std::mem::take(&mut *self.threads.lock());
        let Some(last) = threads.pop() else { return Ok(()) };
        self.maintenance.stop();
        self.stop_writes();
        self.hub.end(Error::Closed);
        self.feeder.stop();
        self.directory_watch.stop();
        self.leave_journal();
        for thread in threads {
            // A panic is caught in the thread and recorded as the engine's failure.
            let _ = thread.join();
        }
        self.wakeup.stop();
        let _ = last.join();
        if let Err(message) = self.store.check_not_moved() {
            self.store.health().fail(Failure::Moved { message });
        }
        self.store.health().check()?;
        let latest = self.hub.latest();
        if self.store.number(meta::RESERVED)?.is_some_and(|reserved| reserved > latest.get()) {
            // All relaxed commits are synced: no revision needs to be skipped.
            let mut batch = WriteBatch::default();
            self.store.put_number(&mut batch, meta::RESERVED, latest.get());
            self.store.write(batch, true)?;
        }
        self.store.flush()?;
        self.writer.lock().watermark.close(latest)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // An error here only makes the next start slower.
        let _ = self.close();
    }
}
