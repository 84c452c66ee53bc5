//! RocksDB without our layer, set up like the engine's largest column family.

use std::path::Path;
use std::time::{Duration, Instant};

use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, WriteBatch, WriteOptions, DB};

use super::{key, Error, Options};

/// Opens a database at `dir`.
///
/// # Errors
/// When RocksDB cannot.
pub fn open(dir: &Path) -> Result<DB, Error> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(24 << 20));
    table.set_cache_index_and_filter_blocks(true);
    table.set_block_size(8 << 10);
    table.set_bloom_filter(10.0, false);
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(8 << 20);
    options.set_max_write_buffer_number(3);
    options.set_level_zero_file_num_compaction_trigger(8);
    options.set_compression_type(DBCompressionType::None);
    Ok(DB::open(&options, dir)?)
}

/// Puts per second in synced groups of `group`, over `time`, with new keys from `first` on.
///
/// # Errors
/// When RocksDB cannot write.
pub fn put_rate(db: &DB, options: &Options, group: u64, first: u64, time: Duration) -> Result<f64, Error> {
    let value = options.value(1);
    let mut sync = WriteOptions::default();
    sync.set_sync(true);
    let started = Instant::now();
    let mut next = first;
    while started.elapsed() < time {
        let mut batch = WriteBatch::default();
        for n in next..next + group {
            batch.put(key(n), &value);
        }
        db.write_opt(batch, &sync)?;
        next += group;
    }
    Ok((next - first) as f64 / started.elapsed().as_secs_f64())
}

/// Fills keys 0 to `count` without syncing and writes them out.
///
/// # Errors
/// When RocksDB cannot write.
pub fn fill(db: &DB, options: &Options, count: u64) -> Result<(), Error> {
    for n in 0..count {
        db.put(key(n), options.value(n))?;
    }
    Ok(db.flush()?)
}
