//! Damaged blocks of table files: `repair` keeps everything outside of them, and counts what is lost.

mod common;
#[path = "common/database.rs"]
mod database;

use std::fs;

use common::{assert_sound, copy_dir, noise, put, scaled, scratch, table_files};
use database::delete_log_entries;
use plinth_engine::{repair, verify, At, Engine, Options, Revision, Transaction};

/// A damaged block of a table loses its contents, and the report counts that: nothing else is lost, and
/// nothing that was deleted reappears.
#[test]
fn repair_steps_over_damaged_blocks() {
    const KEYS: u64 = 400;
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 0..KEYS {
        put(&engine, &format!("key/{n:03}"), &noise(n, 300));
    }
    engine.close().unwrap();
    drop(engine);
    // In newer tables.
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 100..200 {
        put(&engine, &format!("key/{n:03}"), &noise(n + KEYS, 300));
    }
    let mut latest = Revision::ZERO;
    for n in 200..250 {
        latest = engine.transact(Transaction::new().delete(format!("key/{n:03}"))).wait().unwrap().revision;
    }
    engine.close().unwrap();
    drop(engine);
    let (mut stepped_over, mut reverted, mut unopened) = (0, 0, 0);
    let parts = scaled(16) as usize;
    for table in table_files(live.path()) {
        let content = fs::read(&table).unwrap();
        for part in 0..parts {
            let dir = scratch();
            copy_dir(live.path(), dir.path());
            let mut bytes = content.clone();
            bytes[part * content.len() / parts] ^= 0x55;
            fs::write(dir.path().join("db").join(table.file_name().unwrap()), bytes).unwrap();
            let what = format!("{table:?}, part {part}");
            let mut notes = Vec::new();
            let done = repair(dir.path(), true, |_| {}, |note| notes.push(note)).unwrap();
            // A table that RocksDB cannot open at all is lost as a whole.
            let is_left_out = notes.iter().any(|note| note.contains("left out"));
            unopened += u64::from(is_left_out);
            assert!(done.needed && done.revision > latest, "{what}: {done:?}");
            assert_sound(dir.path());
            let engine = Engine::open(Options::new(dir.path())).unwrap();
            let (mut kept, mut older) = (0, 0);
            for n in 0..KEYS {
                let found = engine.get(format!("key/{n:03}").as_bytes(), At::Latest).unwrap();
                let Some(found) = found else { continue };
                kept += 1;
                assert!(!(200..250).contains(&n), "{what}: {n} was deleted");
                let newest = if (100..200).contains(&n) { n + KEYS } else { n };
                if found.value != noise(newest, 300) {
                    assert_eq!(found.value, noise(n, 300), "{what}: {n}");
                    older += 1;
                }
            }
            // The log names every key.
            assert_eq!((kept, older), (done.kept, done.reverted), "{what}: {done:?}");
            assert_eq!(done.kept + done.lost, KEYS - 50, "{what}: {done:?}");
            // A block has 8 KiB.
            assert!(is_left_out || done.lost + done.reverted <= 30, "{what}: {done:?}");
            stepped_over += done.gaps;
            reverted += done.reverted;
        }
    }
    assert!(
        stepped_over > 0 && reverted > 0 && unopened > 0,
        "{stepped_over} gaps, {reverted} reverted, {unopened} unopened"
    );
}

/// A few writes across the keys make a small table whose one damaged block hides everything in older tables.
#[test]
fn a_damaged_block_hides_nothing_of_other_tables() {
    const KEYS: u64 = 400;
    let key = |n: u64| format!("key/{n:03}");
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 0..KEYS {
        put(&engine, &key(n), &noise(n, 300));
    }
    let first = engine.current_revision();
    engine.compact(first).unwrap();
    engine.close().unwrap();
    drop(engine);
    // After the sweep, which runs in the background, nothing names the keys any more.
    delete_log_entries(live.path(), 1..=first.get());
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in (0..KEYS).step_by(50) {
        put(&engine, &key(n), &noise(n + KEYS, 300));
    }
    engine.close().unwrap();
    drop(engine);
    let mut hidden = 0;
    for table in table_files(live.path()).iter().filter(|table| table.metadata().unwrap().len() < 8 << 10) {
        let dir = scratch();
        copy_dir(live.path(), dir.path());
        let mut bytes = fs::read(table).unwrap();
        bytes[20] ^= 0x55;
        fs::write(dir.path().join("db").join(table.file_name().unwrap()), bytes).unwrap();
        let mut blocks = Vec::new();
        verify(dir.path(), |_| {}, |finding| blocks.extend(finding.key.is_none().then_some(finding.reason)))
            .unwrap();
        assert_eq!(blocks.len(), 1, "a line for a damaged block: {blocks:#?}");
        let mut notes = Vec::new();
        let done = repair(dir.path(), true, |_| {}, |note| notes.push(note)).unwrap();
        assert_eq!((done.kept, done.lost), (KEYS, 0), "{table:?}: {done:?}");
        assert!(done.reverted <= KEYS / 50, "{table:?}: {done:?}");
        // The filter of the damaged table excludes keys that it does not have, but for one in a hundred.
        // A table of a range deletion alone, which a sweep of the log leaves, begins with its block, and
        // RocksDB cannot open a table without that: then nothing tells which keys were in it.
        let is_left_out = notes.iter().any(|note| note.contains("left out"));
        assert!(is_left_out || done.uncertain <= KEYS / 50, "{table:?}: {done:?}");
        assert_sound(dir.path());
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for n in 0..KEYS {
            let found = engine.get(key(n).as_bytes(), At::Latest).unwrap().unwrap().value;
            let is_older = n % 50 == 0 && done.reverted > 0 && found == noise(n, 300);
            let newest = if n % 50 == 0 { n + KEYS } else { n };
            assert!(found == noise(newest, 300) || is_older, "{table:?}: {n}");
        }
        hidden += done.gaps;
    }
    assert!(hidden > 0, "no keys were hidden");
}
