//! Opening RocksDB: access modes, tuning, and what is read of databases that are damaged.

use std::fs;
use std::path::{Path, PathBuf};

use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode,
    WriteOptions, DB,
};

use super::family::Family;
use crate::directory::{self, CREATING, DATABASE, VIEWING};
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::layout::{self, meta, FORMAT_VERSION};
use crate::options::{Memory, Options};
use crate::recovery::{FlushState, Log, TornManifest};
use crate::view::{Logs, View};

/// A database and the options that hold its statistics.
pub(super) type Opened = (DB, rocksdb::Options);

/// How a database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Created; it must not exist.
    Create,
    Write,
    Read,
    /// Read-only, for properties of its MANIFEST, even if tables are damaged.
    Manifest,
    /// For writing, without checking the logs against the MANIFEST.
    Untracked,
    /// The same, creating column families that have lost all their tables.
    SoundTables,
}

/// Flushes the memtables.
pub(crate) fn flush(db: &DB) -> Result<()> {
    let families: Vec<&ColumnFamily> =
        Family::ALL.into_iter().filter_map(|family| db.cf_handle(family.name())).collect();
    let families: Vec<&&ColumnFamily> = families.iter().collect();
    db.flush_cfs_opt(&families, &rocksdb::FlushOptions::default()).map_err(Error::from_write)
}

/// Creates an empty database at `path`.
pub(crate) fn create_at(path: &Path, memory: &Memory) -> Result<DB> {
    directory::create(path)?;
    let cache = Cache::new_lru_cache(memory.block_cache);
    Ok(open_database(path, memory, &cache, Access::Create)?.0)
}

/// Opens a database whose logs may be missing, for repair.
pub(crate) fn open_untracked(path: &Path, memory: &Memory) -> Result<DB> {
    let cache = Cache::new_lru_cache(memory.block_cache);
    Ok(open_database(path, memory, &cache, Access::Untracked)?.0)
}

/// Opens what RocksDB can read of a damaged database: damaged tables are left out as a whole, whatever the
/// MANIFEST records. Changes the database, which has to be a view without logs.
pub(crate) fn open_sound_tables(path: &Path, memory: &Memory) -> Result<DB> {
    let io = |error| Error::io(format!("reading {}", path.display()), error);
    let mut has_tables = false;
    for entry in fs::read_dir(path).map_err(io)? {
        has_tables |= Path::new(&entry.map_err(io)?.file_name()).extension().is_some_and(|end| end == "sst");
    }
    if !has_tables {
        // RocksDB cannot repair a directory without tables and logs.
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

/// The flush state that the MANIFEST of a data directory records. RocksDB opens a view of the database in
/// which the logs are blank, which works although tables are damaged or missing.
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

/// Creates an empty database in the locked directory `dir`.
pub(super) fn create_database(dir: &Path, memory: &Memory, cache: &Cache) -> Result<()> {
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
pub(super) fn open_database(path: &Path, memory: &Memory, cache: &Cache, access: Access) -> Result<Opened> {
    let mut options = database_options(memory, access == Access::Create);
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    // The newest log is not tracked; see `watermark`. A read-only open crashes without this when the MANIFEST
    // names logs.
    options.set_track_and_verify_wals_in_manifest(!matches!(access, Access::Untracked | Access::SoundTables));
    if access == Access::Manifest {
        options.set_paranoid_checks(false);
    }
    if access == Access::SoundTables {
        options.create_missing_column_families(true);
    }
    if access == Access::Write {
        // The contents of the logs stay in memory until the engine has finished its checks: a refused start
        // leaves the tables unchanged. The binding has no setter for this option.
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
    // A torn tail is the result of a crash, and `recovery` has cut it off; damage before it is an error. The
    // default mode silently drops everything after a damaged record.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // All column families together, or none: after a sync that failed for lack of space RocksDB flushes the
    // memtables and continues without the log that holds the failed group. With separate flushes, a kill
    // between two would leave that group in the families that replay the log, and not in the others.
    options.set_atomic_flush(true);
    options.set_max_total_wal_size(memory.max_wal);
    options.set_max_background_jobs(memory.background_jobs);
    options.set_max_open_files(memory.max_open_files);
    options.set_db_write_buffer_size(memory.write_buffer * 4);
    // The default is 16 threads for each column family to open a handful of files.
    options.set_max_file_opening_threads(1);
    options.set_max_manifest_file_size(1 << 20);
    // Allocated for each MANIFEST when it is begun; the default is 4 MiB.
    options.set_manifest_preallocation_size(64 << 10);
    options.set_skip_stats_update_on_db_open(true);
    options.set_bytes_per_sync(1 << 20);
    // RocksDB's info log, not the write-ahead log.
    options.set_log_level(rocksdb::LogLevel::Warn);
    options.set_keep_log_file_num(2);
    if memory.full_database_log {
        // A log that is not rotated leaves its header out at this level.
        options.set_max_log_file_size(1 << 20);
    }
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
    // Each level-0 file of `current` may hold an older copy of every key, which scans have to skip.
    options.set_level_zero_file_num_compaction_trigger(if family == Family::Current { 4 } else { 8 });
    options.set_level_zero_slowdown_writes_trigger(24);
    options.set_level_zero_stop_writes_trigger(48);
    // At every level: a flush writes 40% less of objects in JSON, and a file that overlaps no other moves
    // down a level without being rewritten.
    options.set_compression_type(DBCompressionType::Lz4);
    if matches!(family, Family::History | Family::Current | Family::Expiry) {
        // Files with many deletions are compacted soon: that reclaims their space and spares scans the
        // tombstones.
        options.add_compact_on_deletion_collector_factory(4096, 1024, 0.5);
    }
    options
}
