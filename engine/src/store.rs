//! The RocksDB database below the engine: opening it, its tuning, its column families.
//!
//! This is the only module with `unsafe` code: snapshots and iterators of the binding borrow the
//! database, but ours live as long as their readers want. [`Pinned`] and [`Cursor`] hold the database
//! by reference count instead, which is what the borrow stood for.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DBCompressionType, DBPinnableSlice,
    DBRawIterator, DBRecoveryMode, ErrorKind, ReadOptions, ReadTier, WriteBatch, WriteOptions, DB,
};

use crate::directory::{self, Lock, State, CREATING, DATABASE, RESTORING, VIEWING};
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::health::{Failure, Health};
use crate::layout::{self, meta, FORMAT_VERSION};
use crate::options::{Memory, Options};
use crate::recovery::{self, DroppedTail, FlushState, Log, TornManifest};
use crate::revision::Revision;
use crate::view::{Logs, View};
use crate::watermark::BackgroundErrors;

/// The open database. Shared by reference count; the directory stays locked until the last holder,
/// a snapshot or the engine, is gone.
pub(crate) struct Store {
    current: &'static ColumnFamily,
    history: &'static ColumnFamily,
    log: &'static ColumnFamily,
    expiry: &'static ColumnFamily,
    meta: &'static ColumnFamily,
    pub(crate) cache: Cache,
    /// The options that the database was opened with: they share its counters.
    statistics: rocksdb::Options,
    /// Reads what needs no disk.
    in_memory: ReadOptions,
    /// Whether writes have failed.
    health: Arc<Health>,
    db: Arc<DB>,
    dir: PathBuf,
    /// Writes so far, each counted before it is done.
    writes: AtomicU64,
    /// What was dropped when it was opened.
    dropped: Vec<DroppedTail>,
    /// Where the database is, when it is not opened in its place.
    _view: Option<View>,
    /// Released on drop, after the database.
    lock: Lock,
}

/// Names a column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Current,
    History,
    Log,
    Expiry,
    Meta,
}

impl Family {
    pub(crate) const ALL: [Family; 5] =
        [Family::Current, Family::History, Family::Log, Family::Expiry, Family::Meta];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Family::Current => layout::CURRENT,
            Family::History => layout::HISTORY,
            Family::Log => layout::LOG,
            Family::Expiry => layout::EXPIRY,
            Family::Meta => rocksdb::DEFAULT_COLUMN_FAMILY_NAME,
        }
    }

    /// The family that has this number in RocksDB: the default one is 0, the others are numbered as they are created, in the order of
    /// [`Family::ALL`].
    pub(crate) fn of_number(number: usize) -> Option<Family> {
        match number {
            0 => Some(Family::Meta),
            number => Family::ALL.get(number - 1).copied().filter(|family| *family != Family::Meta),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.check_not_moved().is_err() {
            // To close it, RocksDB removes files and writes others by their paths: in what is there now. It stays open until the
            // process ends; what was acknowledged is in the synced log.
            std::mem::forget(Arc::clone(&self.db));
        }
    }
}

impl Store {
    /// Opens the database in the directory of `options`, creating it when that is asked for.
    pub(crate) fn open(options: &Options) -> Result<Store> {
        let dir = &options.dir;
        // Before the lock, which would leave a file in somebody else's directory.
        let found = directory::inspect(dir)?;
        if found == State::Empty {
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
        // Only now the answer cannot change any more.
        if directory::inspect(dir)? == State::Empty {
            create_database(dir, &options.memory, &cache)?;
        }
        // Before the logs are looked at, since what looks torn may be under way.
        let lock = lock.and_database(dir)?;
        directory::remove_unfinished(&dir.join(VIEWING))?;
        let plan = recovery::plan(dir, |logs, torn| query_manifest(dir, logs, torn, Changes::Allowed))?;
        let dropped = plan.apply(dir)?;
        let opened = open_database(&dir.join(DATABASE), &options.memory, &cache, Access::Write)?;
        let mut store = Store::assemble(opened, cache, dir.clone(), lock)?;
        store.dropped = dropped;
        store.check_format()?;
        Ok(store)
    }

    /// Opens the database to read it and change nothing, for verification.
    pub(crate) fn open_read_only(options: &Options) -> Result<Store> {
        let dir = &options.dir;
        if directory::inspect(dir)? == State::Empty {
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
        // As a start would leave it, without touching it.
        let logs = plan.remaining(recovery::read_logs(dir)?);
        let view = View::temporary(&database, &Logs::Cut(&logs), plan.manifest())?;
        let opened = open_database(view.path(), &options.memory, &cache, Access::Read)?;
        let mut store = Store::assemble(opened, cache, dir.clone(), lock)?;
        store._view = Some(view);
        Ok(store)
    }

    /// Makes an empty database for a restore. Until [`Store::end_restore`], and until the database then gets its name, the directory
    /// is refused by everything but another restore.
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

    /// Closes a restored database, which is whole then and lacks its name.
    pub(crate) fn end_restore(self) -> Result<Lock> {
        self.flush()?;
        self.check_format()?;
        let (dir, lock) = (self.dir.clone(), self.lock.clone());
        // RocksDB keeps the paths of its files, so the database is closed before it gets its name.
        drop(self);
        directory::write_marker(&dir)?;
        Ok(lock)
    }

    fn check_format(&self) -> Result<()> {
        match self.number(meta::FORMAT)? {
            Some(found) if found == u64::from(FORMAT_VERSION) => Ok(()),
            // The first thing that is written.
            None => Err(Error::Incomplete {
                dir: self.dir.clone(),
                path: self.dir.join(DATABASE),
                reason: "it has lost what was written to it first: files of it are missing",
            }),
            Some(found) => {
                let found = found.try_into().unwrap_or(u32::MAX);
                Err(Error::FormatVersion { found, expected: FORMAT_VERSION })
            }
        }
    }

    /// Writes a copy of the database, consistent at one moment, to the directory `to`, which becomes a
    /// data directory. Files that do not change any more are linked, not copied, on the same file
    /// system.
    pub(crate) fn checkpoint(&self, to: &Path) -> Result<()> {
        let io = |e| Error::io(format!("making {}", to.display()), e);
        directory::create(to)?;
        if fs::read_dir(to).map_err(io)?.next().is_some() {
            return Err(Error::Foreign { dir: to.to_owned() });
        }
        rocksdb::checkpoint::Checkpoint::new(&self.db)?
            .create_checkpoint(to.join(DATABASE))
            .map_err(Error::from_write)?;
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
            lock,
        })
    }

    /// Whether the directory is where it was opened, and not moved away or replaced.
    ///
    /// # Errors
    /// What was moved or replaced.
    pub(crate) fn check_not_moved(&self) -> std::result::Result<(), String> {
        self.lock.check_not_moved(&self.dir)
    }

    /// Whether writes have failed; shared by the threads of the engine.
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

    /// The same without reading from disk: none when that would take it.
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

    /// What was dropped when it was opened; nothing of it was ever acknowledged.
    pub(crate) fn dropped(&self) -> &[DroppedTail] {
        &self.dropped
    }

    /// The number of writes, each counted before it is done.
    pub(crate) fn writes(&self) -> &AtomicU64 {
        &self.writes
    }

    /// Writes a batch; with `sync` it is on disk when this returns. After a failure that leaves open what
    /// is on disk nothing is written any more: a sync that is tried again may report success for pages
    /// that the system has dropped.
    pub(crate) fn write(&self, batch: WriteBatch, sync: bool) -> Result<()> {
        self.health.check()?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.db.write_opt(batch, &options).map_err(|error| self.failed_write(error))
    }

    /// Syncs what was written without.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.health.check()?;
        // Even for want of room: these writes are acknowledged.
        self.db.flush_wal(true).map_err(|error| self.failed_write(error).into_unknown_outcome())
    }

    fn failed_write(&self, error: rocksdb::Error) -> Error {
        let error = match Error::from_write(error) {
            Error::OutOfSpace { message } => Error::OutOfSpace { message },
            error => error.into_unknown_outcome(),
        };
        if !matches!(error, Error::OutOfSpace { .. }) || error.is_quota_exceeded() {
            self.health.fail(Failure::Write { message: error.cause() });
        }
        error
    }

    /// Writes out what is in memory, which after a crash is what the logs held.
    pub(crate) fn flush(&self) -> Result<()> {
        flush(&self.db)
    }

    /// Counts the errors of RocksDB's background work: those of flushes and compactions, from which it may recover by itself.
    pub(crate) fn background_errors(&self) -> BackgroundErrors {
        let db = Arc::downgrade(&self.db);
        // A database that is gone has met no more.
        Box::new(move || {
            let count = db.upgrade().and_then(|db| db.property_int_value("rocksdb.background-errors").ok());
            count.flatten().unwrap_or(0)
        })
    }

    /// Blocks found and not found in the cache.
    pub(crate) fn cache_counts(&self) -> (u64, u64) {
        let count = |ticker| self.statistics.get_ticker_count(ticker);
        (count(Ticker::BlockCacheHit), count(Ticker::BlockCacheMiss))
    }

    /// A number of the store itself.
    pub(crate) fn number(&self, name: &[u8]) -> Result<Option<u64>> {
        self.get(Family::Meta, name)?.map(|bytes| decode_number(name, &bytes)).transpose()
    }

    /// A revision among the numbers of the store itself; zero while it has not been written.
    pub(crate) fn revision(&self, name: &[u8]) -> Result<Revision> {
        decode_revision(name, self.get(Family::Meta, name)?)
    }

    /// Sets a number of the store itself.
    pub(crate) fn put_number(&self, batch: &mut WriteBatch, name: &[u8], number: u64) {
        batch.put_cf(self.meta, name, layout::encode_number(name, number));
    }

    /// A cursor over the newest state of a column family.
    pub(crate) fn cursor(self: &Arc<Self>, family: Family, read: ReadOptions) -> Cursor {
        let iterator = self.db.raw_iterator_cf_opt(self.family(family), read);
        Cursor { iterator: detach(iterator), _store: Arc::clone(self) }
    }

    /// Pins the state of this moment.
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
        reason: "a number of the store itself is damaged",
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
            reason: "no store has come as far as this revision",
        }),
    }
}

impl Pinned {
    /// The stored bytes of a key in the pinned state.
    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>> {
        Ok(self.snapshot.get_pinned_cf(self.store.family(family), key)?)
    }

    /// A revision among the numbers of the store itself; zero while it has not been written.
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

/// A database and the options that share its counters.
type Opened = (DB, rocksdb::Options);

/// What a database is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is made; there must be none.
    Create,
    Write,
    Read,
    /// To be asked what its MANIFEST knows, whatever is the matter with its tables.
    Manifest,
    /// To be written, whatever the MANIFEST says of the logs.
    Untracked,
    /// The same, with column families that have lost all their tables.
    SoundTables,
}

/// Writes out what is in memory.
pub(crate) fn flush(db: &DB) -> Result<()> {
    let families: Vec<&ColumnFamily> =
        Family::ALL.into_iter().filter_map(|family| db.cf_handle(family.name())).collect();
    let families: Vec<&&ColumnFamily> = families.iter().collect();
    db.flush_cfs_opt(&families, &rocksdb::FlushOptions::default()).map_err(Error::from_write)
}

/// Makes an empty database at `path`.
pub(crate) fn create_at(path: &Path, memory: &Memory) -> Result<DB> {
    directory::create(path)?;
    let cache = Cache::new_lru_cache(memory.block_cache);
    Ok(open_database(path, memory, &cache, Access::Create)?.0)
}

/// Opens a database of which logs may be missing, for repair.
pub(crate) fn open_untracked(path: &Path, memory: &Memory) -> Result<DB> {
    let cache = Cache::new_lru_cache(memory.block_cache);
    Ok(open_database(path, memory, &cache, Access::Untracked)?.0)
}

/// Opens what RocksDB can read of a damaged database: tables in which anything is damaged are left out as a whole, whatever the
/// MANIFEST says. Changes the database, which has to be a view without logs.
pub(crate) fn open_sound_tables(path: &Path, memory: &Memory) -> Result<DB> {
    let io = |error| Error::io(format!("reading {}", path.display()), error);
    let mut has_tables = false;
    for entry in fs::read_dir(path).map_err(io)? {
        has_tables |= Path::new(&entry.map_err(io)?.file_name()).extension().is_some_and(|end| end == "sst");
    }
    if !has_tables {
        // RocksDB makes nothing of a directory without tables and logs.
        return create_at(&path.join("empty"), memory);
    }
    DB::repair(&database_options(memory, false), path)?;
    let cache = Cache::new_lru_cache(memory.block_cache);
    Ok(open_database(path, memory, &cache, Access::SoundTables)?.0)
}

/// Whether a data directory may be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changes {
    Allowed,
    Forbidden,
}

/// What the MANIFEST of a data directory knows of the logs. RocksDB is asked about a view of the database in which the logs are
/// blank, and does not mind tables that are damaged or missing.
pub(crate) fn query_manifest(
    dir: &Path,
    logs: &[Log],
    torn: Option<&TornManifest>,
    changes: Changes,
) -> Result<FlushState> {
    let logs: Vec<(PathBuf, u64)> = logs.iter().map(|log| (log.path.clone(), log.bytes)).collect();
    let (database, logs) = (dir.join(DATABASE), Logs::Blank(&logs));
    let view = match changes {
        Changes::Allowed => View::temporary_or_at(dir.join(VIEWING), &database, &logs, torn)?,
        Changes::Forbidden => View::temporary(&database, &logs, torn)?,
    };
    let memory = Options::new(dir).memory;
    let cache = Cache::new_lru_cache(memory.block_cache);
    let (db, _) = open_database(view.path(), &memory, &cache, Access::Manifest)?;
    let oldest_log = db.property_int_value("rocksdb.min-log-number-to-keep")?.unwrap_or(0);
    Ok(FlushState { oldest_log, sequence: db.latest_sequence_number() })
}

/// Makes an empty database in the locked directory `dir`.
fn create_database(dir: &Path, memory: &Memory, cache: &Cache) -> Result<()> {
    let unfinished = dir.join(CREATING);
    directory::remove_unfinished(&unfinished)?;
    directory::create(&unfinished)?;
    let (db, _) = open_database(&unfinished, memory, cache, Access::Create)?;
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    let format = layout::encode_number(meta::FORMAT, FORMAT_VERSION.into());
    db.put_opt(meta::FORMAT, format, &synced).map_err(Error::from_write)?;
    drop(db);
    failpoint!("create-before-marker");
    directory::write_marker(dir)?;
    failpoint!("create-before-rename");
    directory::rename(&unfinished, &dir.join(DATABASE))
}

/// Opens the RocksDB database at `path`.
fn open_database(path: &Path, memory: &Memory, cache: &Cache, access: Access) -> Result<Opened> {
    let mut options = database_options(memory, access == Access::Create);
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    // The newest log is not among those; see `watermark`.
    // A database that is opened to be read crashes without this when its MANIFEST names logs.
    options.set_track_and_verify_wals_in_manifest(!matches!(access, Access::Untracked | Access::SoundTables));
    if access == Access::Manifest {
        options.set_paranoid_checks(false);
    }
    if access == Access::SoundTables {
        options.create_missing_column_families(true);
    }
    if access == Access::Write {
        // What the logs hold stays in memory until the engine has found nothing wrong: a start that is refused leaves the
        // tables as they were. The binding has no function for this one.
        options = options.get_options_from_string("avoid_flush_during_recovery=true")?;
    }
    let families = Family::ALL
        .into_iter()
        .map(|family| ColumnFamilyDescriptor::new(family.name(), family_options(family, memory, cache)));
    let opened = match access {
        Access::Read | Access::Manifest => DB::open_cf_descriptors_read_only(&options, path, families, false),
        Access::Create | Access::Write | Access::Untracked | Access::SoundTables => {
            DB::open_cf_descriptors(&options, path, families)
        }
    };
    Ok((opened.map_err(Error::from_write)?, options))
}

fn database_options(memory: &Memory, create: bool) -> rocksdb::Options {
    let mut options = rocksdb::Options::default();
    options.create_if_missing(create);
    options.set_error_if_exists(create);
    options.create_missing_column_families(create);
    options.set_paranoid_checks(true);
    // A torn tail is what a crash leaves, and `recovery` has cut it off; damage before it is an error. The default
    // mode drops everything behind a damaged record without a word.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // Together, or not at all: after a failed sync for want of room RocksDB writes out what is in memory and goes on without the log
    // that the failed group is in. Family by family, a kill between two would leave that group in those that read the log
    // again, and not in the others.
    options.set_atomic_flush(true);
    options.set_max_total_wal_size(memory.max_wal);
    options.set_max_background_jobs(memory.background_jobs);
    options.set_max_open_files(memory.max_open_files);
    options.set_db_write_buffer_size(memory.write_buffer * 4);
    // RocksDB would start 16 threads for each column family to open a handful of files.
    options.set_max_file_opening_threads(1);
    options.set_max_manifest_file_size(1 << 20);
    options.set_skip_stats_update_on_db_open(true);
    options.set_bytes_per_sync(1 << 20);
    // The log of RocksDB itself, not the write-ahead log.
    options.set_log_level(rocksdb::LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

fn family_options(family: Family, memory: &Memory, cache: &Cache) -> rocksdb::Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_block_size(8 << 10);
    table.set_format_version(6);
    if family == Family::Current {
        table.set_bloom_filter(10.0, false);
    }

    let mut options = rocksdb::Options::default();
    options.set_block_based_table_factory(&table);
    let write_buffer = match family {
        Family::Current | Family::History => memory.write_buffer,
        Family::Log => memory.write_buffer / 4,
        Family::Expiry | Family::Meta => memory.write_buffer / 16,
    };
    options.set_write_buffer_size(write_buffer.max(64 << 10));
    options.set_max_write_buffer_number(3);
    options.set_target_file_size_base(32 << 20);
    options.set_max_bytes_for_level_base(128 << 20);
    options.set_level_compaction_dynamic_level_bytes(true);
    // Each unmerged file of `current` may hold an older copy of every key, which scans step over.
    options.set_level_zero_file_num_compaction_trigger(if family == Family::Current { 4 } else { 8 });
    options.set_level_zero_slowdown_writes_trigger(24);
    options.set_level_zero_stop_writes_trigger(48);
    // The newest files stay uncompressed, because they are read most and merged soon; log entries name
    // keys that resemble each other and are read rarely.
    options.set_compression_type(match family {
        Family::Log => DBCompressionType::Lz4,
        _ => DBCompressionType::None,
    });
    options.set_bottommost_compression_type(DBCompressionType::Lz4);
    if matches!(family, Family::History | Family::Current | Family::Expiry) {
        // Files in which deletions pile up are merged soon: that gives their space back and keeps
        // scans from stepping over them.
        options.add_compact_on_deletion_collector_factory(4096, 1024, 0.5);
    }
    options
}
