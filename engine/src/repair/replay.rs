//! Replays the logs over the sound tables of a database that RocksDB cannot open.
//!
//! RocksDB's own repair knows a column family only by its tables: from a batch in a log it drops everything
//! after the first operation on any other family. So it gets a view without logs, and they are replayed here.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rocksdb::{WriteBatch, DB};

use super::salvage;
use crate::error::{Error, Result};
use crate::recovery::damaged;
use crate::store::Family;
use crate::wal::{self, Change};

/// The logs up to their first inconsistency.
pub(super) struct SoundLogs {
    /// Each log, and how many bytes of it are sound.
    pub logs: Vec<(PathBuf, u64)>,
    /// The sequence number after their last operation; none when they hold nothing.
    pub end: Option<u64>,
}

/// Applies the logs to what the sound tables hold.
///
/// Every key that they touch then has the state of its last operation, whatever the tables held, since
/// nothing is newer than the logs. If the tables are newer than the end of the logs (because damaged logs
/// were dropped), nothing is applied: it would revert what the tables hold.
///
/// # Errors
/// When a log cannot be read or holds what the engine does not write, or the database cannot be written.
pub(super) fn replay(db: &DB, sound: &SoundLogs) -> Result<()> {
    if sound.end.is_none_or(|end| end <= db.latest_sequence_number()) {
        return Ok(());
    }
    for (path, sound) in &sound.logs {
        let io = |error| Error::io(format!("reading {}", path.display()), error);
        let mut bytes = Vec::new();
        File::open(path).map_err(io)?.take(*sound).read_to_end(&mut bytes).map_err(io)?;
        let mut applied = Ok(());
        wal::read(&bytes, |batch| {
            if applied.is_ok() {
                applied = apply(db, batch, path);
            }
        });
        applied?;
    }
    Ok(())
}

fn apply(db: &DB, batch: &[u8], log: &Path) -> Result<()> {
    let unknown = || damaged(log, "the write-ahead log holds an operation that the engine does not write");
    let mut applied = WriteBatch::default();
    for operation in wal::operations(batch).ok_or_else(unknown)? {
        let family = Family::of_number(operation.family).ok_or_else(unknown)?;
        let family = salvage::handle(db, family)?;
        match operation.change {
            Change::Put(value) => applied.put_cf(family, operation.key, value),
            // The tables that held the one put may be lost, and a repaired table may hold it twice.
            Change::Delete | Change::SingleDelete => applied.delete_cf(family, operation.key),
            Change::DeleteRange(end) => applied.delete_range_cf(family, operation.key, end),
        }
    }
    db.write_without_wal(applied).map_err(Error::from_write)
}
