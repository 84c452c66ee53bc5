//! Damaged expiry entries: each is reported once and skipped, and the others expire.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{eventually, is_there, scratch};
use parking_lot::Mutex;
use plinth_engine::{Engine, Options, Transaction, Warning};

fn put_expiring(engine: &Engine, key: &str) {
    let transaction = Transaction::new().put_expiring(key.to_owned(), "value", Duration::from_millis(1));
    engine.transact(transaction).wait().unwrap();
}

/// Changes expiry entries without the engine.
fn tamper(dir: &Path, change: impl Fn(&rocksdb::DB, &rocksdb::ColumnFamily, &[u8], &[u8])) {
    let families = ["default", "current", "history", "log", "expiry"];
    let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), dir.join("db"), families).unwrap();
    let family = db.cf_handle("expiry").unwrap();
    let entries: Vec<_> = db.iterator_cf(family, rocksdb::IteratorMode::Start).map(Result::unwrap).collect();
    for (key, value) in entries {
        change(&db, family, &key, &value);
    }
}

#[test]
fn one_damaged_entry_keeps_no_other_from_expiring() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path()).expire_keys(false)).unwrap();
    for key in ["damaged", "old", "whole"] {
        put_expiring(&engine, key);
    }
    engine.close().unwrap();
    drop(engine);
    tamper(dir.path(), |db, family, key, value| match &key[8..] {
        b"damaged" => {
            let mut value = value.to_vec();
            value[0] ^= 1;
            db.put_cf(family, key, value).unwrap();
            // No entry at all, before all others; and 300 deadlines, more than one step, of a key without
            // one.
            db.put_cf(family, b"none", b"").unwrap();
            for deadline in 1..=300u64 {
                let key = [&deadline.to_be_bytes()[..], b"ghost"].concat();
                db.put_cf(family, key, 1u64.to_le_bytes()).unwrap();
            }
        }
        // As versions without a checksum wrote it.
        b"old" => db.put_cf(family, key, &value[..8]).unwrap(),
        _ => {}
    });

    let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&warnings);
    let options = Options::new(dir.path())
        .history_retention(Some(Duration::ZERO))
        .compaction_interval(Duration::from_millis(5))
        .on_warning(move |warning| {
            assert!(matches!(warning, Warning::DamagedDeadline { .. }), "{warning}");
            sink.lock().push(warning.to_string());
        });
    let engine = Engine::open(options).unwrap();
    eventually("the others expire", || !is_there(&engine, "old") && !is_there(&engine, "whole"));
    assert!(is_there(&engine, "damaged"), "nobody knows when it was to expire");
    put_expiring(&engine, "later");
    eventually("expiry goes on", || !is_there(&engine, "later"));
    let latest = engine.current_revision();
    eventually("retention goes on", || engine.compacted_revision() >= latest);
    assert_eq!(engine.stats().damaged_deadlines, 302);
    let warnings = warnings.lock();
    assert_eq!(warnings.len(), 302, "each is reported once");
    assert_eq!(warnings.iter().filter(|warning| warning.contains("checksum")).count(), 1);
    drop(warnings);
    drop(engine);
    let mut errors = 0;
    plinth_engine::verify(dir.path(), |_| {}, |_| errors += 1).unwrap();
    assert_eq!(errors, 302, "verify reports them, too");
}
