//! Changes of a closed store's database without the engine.

use std::ops::RangeInclusive;
use std::path::Path;

/// Deletes the log entries of revisions, without the engine.
pub(crate) fn delete_log_entries(dir: &Path, revisions: RangeInclusive<u64>) {
    let families = ["default", "current", "history", "log", "expiry"];
    let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), dir.join("db"), families).unwrap();
    let log = db.cf_handle("log").unwrap();
    for revision in revisions {
        db.delete_cf(log, revision.to_be_bytes()).unwrap();
    }
    db.flush_cf(log).unwrap();
}
