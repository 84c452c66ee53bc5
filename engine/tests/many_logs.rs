//! A killed store with three write-ahead logs that are all needed: whichever of them is lost or damaged is
//! detected when the store is opened, nothing is removed, and `repair` recovers the store.
//!
//! The engine flushes its families together, so it has more than one log only during a flush. Here the logs
//! are written without the engine: an unused family is flushed alone, which begins a new log while the others
//! are still needed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{assert_sound, copy, copy_dir, dump, scratch, table_files, wal_files};
use plinth_engine::{repair, verify, At, Engine, Error, KeyRange, Options, Revision, Transaction};
use rocksdb::{IteratorMode, WriteBatch, WriteOptions, DB};

const FAMILIES: [&str; 5] = ["default", "current", "history", "log", "expiry"];
const LOGS: usize = 3;
/// Commits in each of the logs.
const COMMITS: usize = 8;

fn key(n: usize) -> String {
    format!("key/{n:02}")
}

fn value(n: usize) -> Vec<u8> {
    let mut random = common::Random(n as u64);
    (0..3000).map(|_| random.next() as u8 | 1).collect()
}

/// The contents of a family.
fn entries(db: &DB, family: &str) -> Vec<(Box<[u8]>, Box<[u8]>)> {
    let family = db.cf_handle(family).unwrap();
    db.iterator_cf(family, IteratorMode::Start).map(Result::unwrap).collect()
}

/// Overwrites the watermark: everything in the newest log and the MANIFEST is on disk, and so is `revision`.
fn write_watermark(dir: &Path, revision: u64) {
    let number = |path: &Path| -> u64 {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.trim_start_matches("MANIFEST-").trim_end_matches(".log").parse().unwrap()
    };
    let length = |path: &Path| path.metadata().unwrap().len();
    let log = wal_files(dir).pop().unwrap();
    let current = fs::read_to_string(dir.join("db/CURRENT")).unwrap();
    let manifest = dir.join("db").join(current.trim_end());
    let mut bytes = vec![0; 2 * 4096];
    for (counter, slot) in bytes.chunks_mut(4096).enumerate() {
        slot[..8].copy_from_slice(b"PLNTHWM1");
        let fields = [
            100 + counter as u64,
            number(&log),
            length(&log),
            revision,
            number(&manifest),
            length(&manifest),
        ];
        for (place, field) in slot[8..56].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let checksum = crc32fast::hash(&slot[..56]);
        slot[56..60].copy_from_slice(&checksum.to_le_bytes());
    }
    fs::write(dir.join("WATERMARK"), bytes).unwrap();
}

/// A directory as SIGKILL leaves it, with three logs, and its latest revision.
fn killed() -> (tempfile::TempDir, Revision) {
    // What the engine would have written.
    let source = scratch();
    let engine = Engine::open(Options::new(source.path())).unwrap();
    let mut latest = Revision::ZERO;
    for n in 0..LOGS * COMMITS {
        latest = engine.transact(Transaction::new().put(key(n), value(n))).wait().unwrap().revision;
    }
    engine.close().unwrap();
    drop(engine);
    let source =
        DB::open_cf_for_read_only(&rocksdb::Options::default(), source.path().join("db"), FAMILIES, false)
            .unwrap();
    let (records, logged) = (entries(&source, "current"), entries(&source, "log"));
    assert_eq!((records.len(), logged.len()), (LOGS * COMMITS, LOGS * COMMITS));

    let live = scratch();
    Engine::open(Options::new(live.path())).unwrap().close().unwrap();
    let mut options = rocksdb::Options::default();
    options.set_track_and_verify_wals_in_manifest(true);
    let db = DB::open_cf(&options, live.path().join("db"), FAMILIES).unwrap();
    let [default, current, log] = ["default", "current", "log"].map(|name| db.cf_handle(name).unwrap());
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    for (n, (record, logged)) in records.iter().zip(&logged).enumerate() {
        if n > 0 && n % COMMITS == 0 {
            // The format is one of the metadata numbers: writing it once more changes nothing.
            let format = db.get_cf(default, "format").unwrap().unwrap();
            db.put_cf_opt(default, "format", format, &synced).unwrap();
            db.flush_cf(default).unwrap();
        }
        let mut batch = WriteBatch::default();
        batch.put_cf(current, &record.0, &record.1);
        batch.put_cf(log, &logged.0, &logged.1);
        db.write_opt(batch, &synced).unwrap();
    }
    let image = scratch();
    copy_dir(live.path(), image.path());
    drop(db);
    assert_eq!(wal_files(image.path()).len(), LOGS);
    write_watermark(image.path(), latest.get());
    (image, latest)
}

/// Opens `dir`, which must be complete.
fn assert_complete(dir: &Path, latest: Revision) {
    let engine = Engine::open(Options::new(dir)).unwrap();
    assert_eq!(engine.current_revision(), latest);
    let state = dump(&engine, &KeyRange::all(), At::Latest);
    assert_eq!(state.len(), LOGS * COMMITS);
    for n in 0..LOGS * COMMITS {
        assert_eq!(state[key(n).as_bytes()].value, value(n));
    }
    drop(engine);
    assert_sound(dir);
}

/// The contents of a log after a change; none when it is removed.
type Change = fn(&[u8]) -> Option<Vec<u8>>;

/// Changes of a log.
const CHANGES: [(&str, Change); 5] = [
    ("removed", |_| None),
    ("empty", |_| Some(Vec::new())),
    ("half", |log| Some(log[..log.len() / 2].to_vec())),
    ("zeros in the middle", |log| {
        let mut log = log.to_vec();
        let middle = log.len() / 2;
        log[middle..middle + 600].fill(0);
        Some(log)
    }),
    ("a flipped bit", |log| {
        let mut log = log.to_vec();
        let middle = log.len() / 2;
        log[middle] ^= 1;
        Some(log)
    }),
];

#[test]
fn each_of_three_logs_is_missed() {
    let (image, latest) = killed();
    let (_whole, dir) = copy(image.path());
    assert_complete(&dir, latest);
    for (at, log) in wal_files(image.path()).iter().enumerate() {
        for (what, change) in CHANGES {
            let what = format!("log {at}, {what}");
            let (_dir, dir) = copy(image.path());
            let path = dir.join("db").join(log.file_name().unwrap());
            match change(&fs::read(log).unwrap()) {
                Some(changed) => fs::write(&path, changed).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let [logs, tables] = [wal_files(&dir), table_files(&dir)];
            assert!(Engine::open(Options::new(&dir)).is_err(), "{what}: opened");
            let mut findings = 0;
            assert!(verify(&dir, |_| {}, |_| findings += 1).is_err() || findings > 0, "{what}: no finding");
            assert!(logs.iter().all(|log| log.exists()), "{what}: a refused start removed a log");
            assert_eq!(table_files(&dir), tables, "{what}: a refused start changed tables");

            let is_gone = fs::metadata(&path).map_or(true, |file| file.len() == 0);
            let mut notes = Vec::new();
            let done = repair(&dir, true, |_| {}, |note| notes.push(note)).unwrap();
            assert!(done.needed && done.revision > latest, "{what}: {done:?}");
            // Everything before the damage is kept.
            assert!(done.kept as usize >= at * COMMITS, "{what}: {done:?}");
            // Every lost commit is either dropped by key or missing by revision.
            let (first, last) = (at * COMMITS + 1, (at + 1) * COMMITS);
            let dropped = done.log_revisions.is_some() || done.log_bytes > 0;
            let is_told = |n: usize| {
                let n = Revision::new(n as u64);
                done.missing.iter().any(|(first, last)| (*first..=*last).contains(&n))
            };
            if is_gone {
                assert!((first..=last).all(is_told), "{what}: {done:?}: {notes:?}");
            }
            assert!(dropped || !done.missing.is_empty(), "{what}: {done:?}: {notes:?}");
            assert_sound(&dir);
            assert!(Engine::open(Options::new(&dir)).unwrap().current_revision() > latest, "{what}");
        }
    }
}

/// Lost commits are detected only when the logs have been read: nothing of them is in the tables.
#[test]
fn a_start_that_is_refused_late_writes_nothing_into_tables() {
    let (image, latest) = killed();
    write_watermark(image.path(), latest.get() + 1);
    let dir = image.path();
    let (tables, logs) = (table_files(dir), wal_files(dir));
    let content = |logs: &[PathBuf]| logs.iter().map(|log| fs::read(log).unwrap()).collect::<Vec<_>>();
    let before = content(&logs);
    for _ in 0..2 {
        let refused = Engine::open(Options::new(dir)).map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::LostCommits { .. }), "{refused}");
        assert_eq!(table_files(dir), tables);
        assert_eq!(content(&logs), before);
    }
    write_watermark(dir, latest.get());
    assert_complete(dir, latest);
}

#[test]
fn a_log_that_is_damaged_at_its_beginning_is_refused_as_it_is() {
    let (image, _) = killed();
    for at in 0..LOGS {
        let (_dir, dir) = copy(image.path());
        let log = wal_files(&dir)[at].clone();
        let mut bytes = fs::read(&log).unwrap();
        // A sector that the disk has lost: the sound part of the log is empty.
        bytes[..512].fill(0);
        fs::write(&log, &bytes).unwrap();
        assert!(Engine::open(Options::new(&dir)).is_err(), "log {at}: opened");
        assert_eq!(fs::read(&log).unwrap(), bytes, "log {at}: changed by a start that was refused");
    }
}
