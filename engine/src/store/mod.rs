//! The RocksDB database below the engine: [`Store`] with its column families, snapshots and cursors. `open`
//! has the ways to open it, and its tuning.
//!
//! The `unsafe` code here detaches lifetimes: snapshots and iterators of the binding borrow the database, but
//! those of the engine live as long as their readers need them. [`Pinned`] and [`Cursor`] hold the database
//! by reference count instead.

mod family;
mod open;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::statistics::Ticker;
use rocksdb::{
    Cache, ColumnFamily, DBPinnableSlice, DBRawIterator, ErrorKind, ReadOptions, ReadTier, WriteBatch,
    WriteOptions, DB,
};

pub(crate) use self::family::Family;
pub(crate) use self::open::{create_at, flush, open_sound_tables, open_untracked, query_manifest, Changes};
use self::open::{create_database, open_database, Access, Opened};
use crate::directory::{self, DirectoryState, Lock, DATABASE, RESTORING, VIEWING};
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::health::{Failure, Health};
use crate::layout::{self, meta, FORMAT_VERSION, MARKED_FORMAT_VERSION, REPLICA_FORMAT_VERSION};
use crate::options::Options;
use crate::recovery::{self, DroppedTail};
use crate::reserve::Reserve;
use crate::revision::Revision;
use crate::view::{Logs, View};
use crate::watermark::{AskBackgroundWork, BackgroundWork, Watermark};

/// The open database. Shared by reference count; the directory stays locked until the last holder, a snapshot
/// or the engine, is dropped.
pub(crate) struct Store {
    current: &'static ColumnFamily,
    history: &'static ColumnFamily,
    log: &'static ColumnFamily,
    expiry: &'static ColumnFamily,
    meta: &'static ColumnFamily,
    pub(crate) cache: Cache,
    /// The options that the database was opened with: they hold its statistics.
    statistics: rocksdb::Options,
    /// Read options of reads without disk access.
    in_memory: ReadOptions,
    /// The failure state.
    health: Arc<Health>,
    db: Arc<DB>,
    dir: PathBuf,
    /// Number of writes, each counted before it starts.
    writes: AtomicU64,
    /// The tails of files that were dropped when it was opened.
    dropped: Vec<DroppedTail>,
    /// The view that is opened in place of the database, if any.
    _view: Option<View>,
    /// The room for deletions.
    reserve: Reserve,
    /// Released on drop, after the database.
    lock: Lock,
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.check_not_moved().is_err() {
            // On close, RocksDB removes and writes files by path, which is now another directory. It stays
            // open until the process ends; what was acknowledged is in the synced log.
            std::mem::forget(Arc::clone(&self.db));
        }
    }
}

impl Store {
    /// Opens the database in the directory of `options`, creating it if the options allow it.
    pub(crate) fn open(options: &Options) -> Result<Store> {
        let dir = &options.dir;
        // Before the lock, which would create a file in a directory that is not a data directory.
        let found = directory::inspect(dir)?;
        if found == DirectoryState::Empty {
            if !options.create {
                return Err(Error::Incomplete {
                    dir: dir.clone(),
                    path: dir.join(directory::MARKER),
                    reason: "it is missing",
                });
            }
            directory::create(dir)?;
        }
        let lock = directory::lock(dir)?;
        let cache = Cache::new_lru_cache(options.memory.block_cache);
        // Under the lock the state cannot change any more.
        if directory::inspect(dir)? == DirectoryState::Empty {
            create_database(dir, &options.memory, &cache)?;
        }
        // Before the logs are read, since a write in progress looks torn.
        let lock = lock.and_database(dir)?;
        directory::remove_unfinished(&dir.join(VIEWING))?;
        let plan = recovery::plan(dir, |logs, torn| query_manifest(dir, logs, torn, Changes::Allowed))?;
        let dropped = plan.apply(dir)?;
        let reserve = Reserve::open(dir);
        let opened = open_database(&dir.join(DATABASE), &options.memory, &cache, Access::Write)?;
        let mut store = Store::assemble(opened, cache, dir.clone(), lock)?;
        store.dropped = dropped;
        store.reserve = reserve;
        store.check_format()?;
        Ok(store)
    }

    /// Whether the directory of `options` holds a store.
    pub(crate) fn exists(options: &Options) -> Result<bool> {
        Ok(directory::inspect(&options.dir)? != DirectoryState::Empty)
    }

    /// Opens the database read-only, for verification.
    pub(crate) fn open_read_only(options: &Options) -> Result<Store> {
        let dir = &options.dir;
        if directory::inspect(dir)? == DirectoryState::Empty {
            return Err(Error::Foreign { dir: dir.clone() });
        }
        let lock = directory::lock(dir)?.and_database(dir)?;
        let cache = Cache::new_lru_cache(options.memory.block_cache);
        let plan = recovery::plan(dir, |logs, torn| query_manifest(dir, logs, torn, Changes::Forbidden))?;
        let database = dir.join(DATABASE);
        if plan.is_empty() {
            let opened = open_database(&database, &options.memory, &cache, Access::Read)?;
            return Store::assemble(opened, cache, dir.clone(), lock);
        }
        // As a start would leave it, without modifying it.
        let logs = plan.remaining(recovery::read_logs(dir)?);
        let view = View::temporary(&database, &Logs::Cut(&logs), plan.manifest())?;
        let opened = open_database(view.path(), &options.memory, &cache, Access::Read)?;
        let mut store = Store::assemble(opened, cache, dir.clone(), lock)?;
        store._view = Some(view);
        Ok(store)
    }

    /// Creates an empty database for a restore. Until [`Store::end_restore`], and until the database is then
    /// renamed, the directory is refused by everything but another restore.
    pub(crate) fn begin_restore(options: &Options) -> Result<Store> {
        let dir = &options.dir;
        directory::check_restorable(dir)?;
        directory::create(dir)?;
        let lock = directory::lock(dir)?;
        directory::check_restorable(dir)?;
        let database = dir.join(RESTORING);
        directory::clear_unfinished(&database)?;
        directory::remove_marker(dir)?;
        let cache = Cache::new_lru_cache(options.memory.block_cache);
        let opened = open_database(&database, &options.memory, &cache, Access::Create)?;
        Store::assemble(opened, cache, dir.clone(), lock)
    }

    /// Closes a restored database, which is then complete but not yet renamed into place.
    pub(crate) fn end_restore(self) -> Result<Lock> {
        self.flush()?;
        self.check_format()?;
        let (dir, lock) = (self.dir.clone(), self.lock.clone());
        // RocksDB keeps the paths of its files, so the database is closed before it is renamed.
        drop(self);
        directory::write_marker(&dir)?;
        Ok(lock)
    }

    fn check_format(&self) -> Result<()> {
        match self.number(meta::FORMAT)? {
            Some(found)
                if [FORMAT_VERSION, REPLICA_FORMAT_VERSION, MARKED_FORMAT_VERSION]
                    .map(u64::from)
                    .contains(&found) =>
            {
                Ok(())
            }
            // The format is the first record that is written.
            None => Err(Error::Incomplete {
                dir: self.dir.clone(),
                path: self.dir.join(DATABASE),
                reason: "its format version is lost: files of it are missing",
            }),
            Some(found) => {
                let found = found.try_into().unwrap_or(u32::MAX);
                Err(Error::FormatVersion { found, expected: FORMAT_VERSION })
            }
        }
    }

    /// Writes a copy of the database, consistent at one moment, to the directory `to`, which becomes a data
    /// directory. Immutable files are linked, not copied, on the same file system. `revision` is one that the
    /// database holds.
    pub(crate) fn checkpoint(&self, to: &Path, revision: Revision) -> Result<()> {
        let io = |e| Error::io(format!("making {}", to.display()), e);
        directory::create(to)?;
        if fs::read_dir(to).map_err(io)?.next().is_some() {
            return Err(Error::Foreign { dir: to.to_owned() });
        }
        rocksdb::checkpoint::Checkpoint::new(&self.db)?
            .create_checkpoint(to.join(DATABASE))
            .map_err(Error::from_write)?;
        // What was written meanwhile is in the copy's logs, and notes what was durable when it was.
        let logs = recovery::read_logs(to)?;
        let noted = logs.iter().filter_map(|log| log.contents.note).map(|note| note.marked).max();
        // The copy has background errors of its own.
        Watermark::start(
            to,
            noted.map_or(revision, |noted| noted.max(revision)),
            Box::new(BackgroundWork::none),
        )?;
        failpoint!("checkpoint-before-marker");
        directory::write_marker(to)
    }

    fn assemble((db, statistics): Opened, cache: Cache, dir: PathBuf, lock: Lock) -> Result<Store> {
        let db = Arc::new(db);
        let family = |family: Family| -> Result<&'static ColumnFamily> {
            let handle = db.cf_handle(family.name()).ok_or(Error::Corrupt {
                key: family.name().into(),
                revision: Revision::ZERO,
                reason: "column family is missing",
            })?;
            // SAFETY: the handle lives in a heap node of the map of `db`, which never changes: no
            // column family is created or dropped after this point. `db` is dropped together with
            // the struct that holds the reference, and the reference is never handed out for
            // longer than a borrow of that struct.
            Ok(unsafe { &*std::ptr::from_ref(handle) })
        };
        let mut in_memory = ReadOptions::default();
        in_memory.set_read_tier(ReadTier::BlockCache);
        Ok(Store {
            in_memory,
            current: family(Family::Current)?,
            history: family(Family::History)?,
            log: family(Family::Log)?,
            expiry: family(Family::Expiry)?,
            meta: family(Family::Meta)?,
            cache,
            statistics,
            health: Arc::default(),
            db,
            dir,
            writes: AtomicU64::new(0),
            dropped: Vec::new(),
            _view: None,
            reserve: Reserve::none(),
            lock,
        })
    }

    /// Whether it is the store of a replica.
    pub(crate) fn is_replica(&self) -> Result<bool> {
        Ok(self.number(meta::FORMAT)? == Some(u64::from(REPLICA_FORMAT_VERSION)))
    }

    /// Whether the directory is still at its path, and was not moved away or replaced.
    ///
    /// # Errors
    /// A description of what was moved or replaced.
    pub(crate) fn check_not_moved(&self) -> std::result::Result<(), String> {
        self.lock.check_not_moved(&self.dir)
    }

    /// The failure state, shared by the threads of the engine.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    pub(crate) fn family(&self, family: Family) -> &ColumnFamily {
        match family {
            Family::Current => self.current,
            Family::History => self.history,
            Family::Log => self.log,
            Family::Expiry => self.expiry,
            Family::Meta => self.meta,
        }
    }

    /// The stored bytes of a key, without copying them.
    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>> {
        Ok(self.db.get_pinned_cf(self.family(family), key)?)
    }

    /// The same without disk access: none when the read would need it.
    pub(crate) fn get_in_memory(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<Option<DBPinnableSlice<'_>>>> {
        match self.db.get_pinned_cf_opt(self.family(family), key, &self.in_memory) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The tails of files that were dropped when it was opened; none of it was acknowledged.
    pub(crate) fn dropped(&self) -> &[DroppedTail] {
        &self.dropped
    }

    /// The number of writes, each counted before it starts.
    pub(crate) fn writes(&self) -> &AtomicU64 {
        &self.writes
    }

    /// Writes a batch; with `sync` it is on disk when this returns. After a failure that leaves the contents
    /// of the disk unknown nothing is written any more: a retried sync may report success for pages that the
    /// kernel has dropped.
    pub(crate) fn write(&self, batch: WriteBatch, sync: bool) -> Result<()> {
        self.health.check()?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.db.write_opt(batch, &options).map_err(|error| self.failed_write(error))?;
        self.health.set_out_of_space(self.reserve.is_released());
        Ok(())
    }

    /// Takes the room for deletions: the start does not need it any more.
    pub(crate) fn take_reserve(&self, bytes: u64) {
        self.reserve.take(bytes);
        self.health.set_out_of_space(self.reserve.is_released());
    }

    /// Whether only transactions that reclaim room are to be accepted.
    pub(crate) fn is_reserved(&self) -> bool {
        let was_released = self.reserve.is_released();
        let is_exclusive = self.reserve.is_exclusive();
        if was_released && !is_exclusive {
            self.health.set_out_of_space(false);
        }
        is_exclusive
    }

    /// Syncs unsynced writes.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.health.check()?;
        // Also when out of space: these writes are acknowledged already.
        self.db.flush_wal(true).map_err(|error| self.failed_write(error).into_unknown_outcome())
    }

    fn failed_write(&self, error: rocksdb::Error) -> Error {
        let error = match Error::from_write(error) {
            Error::OutOfSpace { message } => Error::OutOfSpace { message },
            error => error.into_unknown_outcome(),
        };
        let is_full = matches!(error, Error::OutOfSpace { .. });
        self.health.set_out_of_space(is_full);
        if is_full {
            self.reserve.release();
        }
        if !is_full || error.is_quota_exceeded() {
            self.health.fail(Failure::of_write(&error));
        }
        error
    }

    /// Flushes the memtables, which after a crash hold the contents of the logs.
    pub(crate) fn flush(&self) -> Result<()> {
        flush(&self.db)
    }

    /// Asks for RocksDB's background work, and counts its errors, from which it may recover by itself. An
    /// error is counted before the work that has it ceases to be running.
    pub(crate) fn background_work(&self) -> AskBackgroundWork {
        let db = Arc::downgrade(&self.db);
        let number = |db: &DB, name: &str| db.property_int_value(name).ok().flatten();
        // A closed database reports nothing more.
        Box::new(move || {
            let Some(db) = db.upgrade() else { return BackgroundWork::none() };
            let running = ["rocksdb.num-running-flushes", "rocksdb.num-running-compactions"];
            let is_idle = running.iter().all(|name| number(&db, name) == Some(0));
            BackgroundWork { is_idle, errors: number(&db, "rocksdb.background-errors").unwrap_or(0) }
        })
    }

    /// Blocks found and not found in the cache.
    pub(crate) fn cache_counts(&self) -> (u64, u64) {
        let count = |ticker| self.statistics.get_ticker_count(ticker);
        (count(Ticker::BlockCacheHit), count(Ticker::BlockCacheMiss))
    }

    /// Bytes of tables that were written by flushes and by merges.
    pub(crate) fn table_bytes(&self) -> (u64, u64) {
        let count = |ticker| self.statistics.get_ticker_count(ticker);
        (count(Ticker::FlushWriteBytes), count(Ticker::CompactWriteBytes))
    }

    /// A metadata number.
    pub(crate) fn number(&self, name: &[u8]) -> Result<Option<u64>> {
        self.get(Family::Meta, name)?.map(|bytes| decode_number(name, &bytes)).transpose()
    }

    /// A revision among the metadata numbers; zero while it has not been written.
    pub(crate) fn revision(&self, name: &[u8]) -> Result<Revision> {
        decode_revision(name, self.get(Family::Meta, name)?)
    }

    /// Sets a metadata number.
    pub(crate) fn put_number(&self, batch: &mut WriteBatch, name: &[u8], number: u64) {
        batch.put_cf(self.meta, name, layout::encode_number(name, number));
    }

    /// Sets or removes numbers of the application.
    pub(crate) fn put_application_numbers(&self, batch: &mut WriteBatch, numbers: &[(Bytes, Option<u64>)]) {
        for (name, number) in numbers {
            let name = [meta::APPLICATION, name].concat();
            match number {
                Some(number) => self.put_number(batch, &name, *number),
                None => batch.delete_cf(self.meta, &name),
            }
        }
    }

    /// The numbers of the application whose names begin with `prefix`, in order, from the first name on that
    /// is not below `from`, `limit` at most.
    pub(crate) fn application_numbers(
        self: &Arc<Self>,
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<(Bytes, u64)>> {
        let mut cursor = self.cursor(Family::Meta, ReadOptions::default());
        let prefix = [meta::APPLICATION, prefix].concat();
        cursor.seek([meta::APPLICATION, from].concat().max(prefix.clone()));
        let mut numbers = Vec::new();
        while let Some((key, value)) = cursor.item().filter(|(key, _)| key.starts_with(&prefix)) {
            if numbers.len() == limit {
                break;
            }
            let number = decode_number(key, value)?;
            let name = key.strip_prefix(meta::APPLICATION).unwrap_or_default();
            numbers.push((Bytes::copy_from_slice(name), number));
            cursor.next();
        }
        cursor.status()?;
        Ok(numbers)
    }

    /// A cursor over the newest state of a column family.
    pub(crate) fn cursor(self: &Arc<Self>, family: Family, read: ReadOptions) -> Cursor {
        let iterator = self.db.raw_iterator_cf_opt(self.family(family), read);
        Cursor { iterator: detach(iterator), _store: Arc::clone(self) }
    }

    /// Pins the current state.
    pub(crate) fn pin(self: &Arc<Self>) -> Pinned {
        let snapshot = self.db.snapshot();
        // SAFETY: the snapshot refers to the database through a pointer into the `Arc<DB>`, whose
        // content does not move. `store` keeps it alive and is dropped after the snapshot (fields
        // are dropped in the order of their declaration).
        let snapshot: rocksdb::Snapshot<'static> = unsafe { std::mem::transmute(snapshot) };
        Pinned { snapshot, store: Arc::clone(self) }
    }
}

/// A state of the database that stays readable.
pub(crate) struct Pinned {
    snapshot: rocksdb::Snapshot<'static>,
    store: Arc<Store>,
}

fn decode_number(name: &[u8], found: &[u8]) -> Result<u64> {
    layout::decode_number(name, found).ok_or_else(|| Error::Corrupt {
        key: bytes::Bytes::copy_from_slice(name),
        revision: Revision::ZERO,
        reason: "the metadata number is damaged",
    })
}

fn decode_revision(name: &[u8], found: Option<DBPinnableSlice<'_>>) -> Result<Revision> {
    let Some(found) = found else { return Ok(Revision::ZERO) };
    let revision = Revision::new(decode_number(name, &found)?);
    match revision.is_plausible() {
        true => Ok(revision),
        false => Err(Error::Corrupt {
            key: bytes::Bytes::copy_from_slice(name),
            revision,
            reason: "the revision is out of range",
        }),
    }
}

impl Pinned {
    /// The stored bytes of a key in the pinned state.
    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>> {
        Ok(self.snapshot.get_pinned_cf(self.store.family(family), key)?)
    }

    /// A revision among the metadata numbers; zero while it has not been written.
    pub(crate) fn revision(&self, name: &[u8]) -> Result<Revision> {
        decode_revision(name, self.get(Family::Meta, name)?)
    }

    /// A cursor over a column family in the pinned state.
    pub(crate) fn cursor(&self, family: Family, mut read: ReadOptions) -> Cursor {
        read.set_snapshot(&self.snapshot);
        // The iterator holds the sequence number of the snapshot and the versions of the files it
        // needs; RocksDB does not ask the snapshot to outlive it.
        self.store.cursor(family, read)
    }
}

/// A RocksDB iterator that keeps its database alive.
pub(crate) struct Cursor {
    iterator: DBRawIterator<'static>,
    _store: Arc<Store>,
}

impl std::ops::Deref for Cursor {
    type Target = DBRawIterator<'static>;
    fn deref(&self) -> &Self::Target {
        &self.iterator
    }
}

impl std::ops::DerefMut for Cursor {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.iterator
    }
}

/// Frees an iterator from the borrow of its database.
fn detach(iterator: DBRawIterator<'_>) -> DBRawIterator<'static> {
    // SAFETY: the lifetime is a marker that the database outlives the iterator. The only caller
    // stores the iterator in a `Cursor` before the `Arc<Store>` that owns the database; fields are
    // dropped in the order of their declaration, so the iterator goes first.
    unsafe { std::mem::transmute(iterator) }
}
