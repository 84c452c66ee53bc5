//! `repair` of stores that RocksDB cannot open, or whose logs are damaged: what the sound files hold is kept
//! in its newest version, and what is lost is counted.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{assert_sound, copy_dir, dump, scratch, wal_files};
use plinth_engine::{
    repair, restore, verify, At, Continuation, Engine, Error, KeyRange, Options, RepairReport, Revision,
    Transaction,
};

const KEYS: u64 = 200;

fn put(engine: &Engine, n: u64, value: &str) -> Revision {
    engine.transact(Transaction::new().put(key(n), value.to_owned())).wait().unwrap().revision
}

fn delete(engine: &Engine, n: u64) -> Revision {
    engine.transact(Transaction::new().delete(key(n))).wait().unwrap().revision
}

fn key(n: u64) -> String {
    format!("key/{n:03}")
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn state(engine: &Engine) -> State {
    let entries = dump(engine, &KeyRange::all(), At::Latest).into_iter();
    entries.map(|(key, version)| (key, version.value)).collect()
}

/// A store that was killed: in its tables the keys with one update each, in its log updates, deletions and
/// new keys. Its contents, and its latest revision.
fn killed(is_swept: bool) -> (tempfile::TempDir, State, Revision) {
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 0..KEYS {
        put(&engine, n, "first");
        put(&engine, n, "second");
    }
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 0..10 {
        put(&engine, n, "third");
    }
    for n in 20..25 {
        delete(&engine, n);
    }
    put(&engine, 500, "new");
    if is_swept {
        // What the sweep deletes is in the log, too.
        engine.compact(Revision::new(KEYS)).unwrap();
        engine.wait_compacted().unwrap();
    }
    let latest = put(&engine, 501, "new");
    let image = scratch();
    copy_dir(live.path(), image.path());
    (image, state(&engine), latest)
}

/// A copy of a store with a change to its files, repaired; and the notes.
fn repaired(
    image: &Path,
    change: impl FnOnce(&Path),
) -> (tempfile::TempDir, Result<RepairReport, Error>, Vec<String>) {
    let dir = scratch();
    copy_dir(image, dir.path());
    change(&dir.path().join("db"));
    let mut notes = Vec::new();
    let done = repair(dir.path(), true, |_| {}, |note| notes.push(note));
    (dir, done, notes)
}

fn opened(dir: &Path) -> (State, Revision) {
    assert_sound(dir);
    let engine = Engine::open(Options::new(dir)).unwrap();
    (state(&engine), engine.current_revision())
}

/// The tables of each column family; those without entries of it are not among them.
fn tables_of(dir: &Path, family: &str) -> Vec<PathBuf> {
    let families = ["current", "history", "log", "expiry"];
    let mut options = rocksdb::Options::default();
    options.create_if_missing(false);
    let copied = scratch();
    copy_dir(&dir.join("db"), copied.path());
    let names = families.iter().chain([&"default"]);
    let db = rocksdb::DB::open_cf_for_read_only(&options, copied.path(), names, false).unwrap();
    let files = db.live_files().unwrap().into_iter().filter(|file| file.column_family_name == family);
    files.map(|file| dir.join("db").join(file.name.trim_start_matches('/'))).collect()
}

fn truncated(path: &Path, bytes: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

/// A damaged or missing table of one family does not prevent the logs from being applied, whichever family it
/// is.
#[test]
fn the_logs_are_replayed_over_the_tables_that_are_left() {
    for is_swept in [false, true] {
        let (image, expected, latest) = killed(is_swept);
        replayed(&image, &expected, latest);
    }
}

fn replayed(image: &tempfile::TempDir, expected: &State, latest: Revision) {
    for family in ["history", "log", "default"] {
        let tables = tables_of(image.path(), family);
        assert!(!tables.is_empty(), "{family}");
        for is_removed in [false, true] {
            let what = format!("{family}, removed: {is_removed}");
            let (dir, done, notes) = repaired(image.path(), |db| {
                for table in &tables {
                    let table = db.join(table.file_name().unwrap());
                    match is_removed {
                        true => fs::remove_file(table).unwrap(),
                        false => truncated(&table, 10),
                    }
                }
            });
            let done = done.unwrap();
            assert_eq!((done.lost, done.reverted, done.log_bytes), (0, 0, 0), "{what}: {notes:?}");
            let (found, revision) = opened(dir.path());
            assert_eq!(found, *expected, "{what}");
            assert!(revision > latest, "{what}");
        }
    }
}

/// With all of `current` gone, history and logs have the newest versions of what they name.
#[test]
fn a_lost_newest_state_is_made_of_history_and_logs() {
    let (image, expected, _) = killed(false);
    let tables = tables_of(image.path(), "current");
    let (dir, done, _) = repaired(image.path(), |db| {
        tables.iter().for_each(|table| fs::remove_file(db.join(table.file_name().unwrap())).unwrap());
    });
    let done = done.unwrap();
    let (found, _) = opened(dir.path());
    for (key, value) in &expected {
        let is_logged = value == b"third" || value == b"new";
        match found.get(key) {
            Some(found) if is_logged => assert_eq!(found, value, "{}", key.escape_ascii()),
            Some(found) => assert_eq!(found, b"first", "{}", key.escape_ascii()),
            None => panic!("{} is lost: {done:?}", key.escape_ascii()),
        }
    }
    assert_eq!(done.kept, found.len() as u64);
    assert_eq!(found.len(), expected.len(), "what was deleted stays deleted");
}

/// A young store has everything in its log: whatever else is lost, no data is.
#[test]
fn a_store_whose_log_has_everything_survives_the_loss_of_all_else() {
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 0..20 {
        put(&engine, n, "first");
    }
    put(&engine, 3, "second");
    delete(&engine, 4);
    let image = scratch();
    copy_dir(live.path(), image.path());
    let expected = state(&engine);
    drop(engine);
    let remove = |db: &Path, chosen: &dyn Fn(&str) -> bool| {
        for entry in fs::read_dir(db).unwrap() {
            let path = entry.unwrap().path();
            if chosen(path.file_name().unwrap().to_str().unwrap()) {
                fs::remove_file(path).unwrap();
            }
        }
    };
    let changes: [(&str, &dyn Fn(&Path)); 5] = [
        ("CURRENT", &|db| remove(db, &|name| name == "CURRENT")),
        ("MANIFEST", &|db| remove(db, &|name| name.starts_with("MANIFEST"))),
        ("MANIFEST and tables", &|db| {
            remove(db, &|name| name.starts_with("MANIFEST") || name.ends_with(".sst"))
        }),
        ("an empty MANIFEST", &|db| {
            let mut names = fs::read_dir(db).unwrap().map(|entry| entry.unwrap().path());
            let manifest =
                names.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("MANIFEST"));
            fs::write(manifest.unwrap(), b"").unwrap();
        }),
        ("all but logs", &|db| remove(db, &|name| !name.ends_with(".log"))),
    ];
    for (what, change) in changes {
        let (dir, done, notes) = repaired(image.path(), change);
        let done = done.unwrap_or_else(|error| panic!("{what}: {error}: {notes:?}"));
        assert_eq!((done.kept, done.lost, done.reverted), (19, 0, 0), "{what}: {done:?}");
        assert_eq!(opened(dir.path()).0, expected, "{what}");
    }
}

/// An obsolete log, which a crash between the MANIFEST's sync and the log's removal leaves, does no harm:
/// neither where the MANIFEST records it, nor where the MANIFEST is lost and the tables have to.
#[test]
fn a_log_that_is_needed_no_longer_is_left_out() {
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 0..KEYS {
        put(&engine, n, "first");
    }
    let stale = wal_files(live.path()).pop().unwrap();
    let stale = (stale.file_name().unwrap().to_owned(), fs::read(&stale).unwrap());
    for n in 0..KEYS {
        put(&engine, n, "second");
    }
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Options::new(live.path())).unwrap();
    put(&engine, 0, "third");
    let image = scratch();
    copy_dir(live.path(), image.path());
    let expected = state(&engine);
    drop(engine);
    let log_tables = tables_of(image.path(), "log");
    let changes: [(&str, &dyn Fn(&Path)); 3] = [
        ("a damaged table", &|db| truncated(&db.join(log_tables[0].file_name().unwrap()), 10)),
        ("a missing table", &|db| fs::remove_file(db.join(log_tables[0].file_name().unwrap())).unwrap()),
        ("no CURRENT", &|db| fs::remove_file(db.join("CURRENT")).unwrap()),
    ];
    for (what, change) in changes {
        for is_torn in [false, true] {
            let (dir, done, notes) = repaired(image.path(), |db| {
                assert!(!db.join(&stale.0).exists(), "it is gone from the live store");
                let end = if is_torn { stale.1.len() - 10 } else { stale.1.len() };
                fs::write(db.join(&stale.0), &stale.1[..end]).unwrap();
                change(db);
            });
            let done = done.unwrap_or_else(|error| panic!("{what}: {error}: {notes:?}"));
            assert_eq!((done.log_bytes, done.lost, done.reverted), (0, 0, 0), "{what}: {done:?}: {notes:?}");
            assert_eq!(opened(dir.path()).0, expected, "{what}, torn: {is_torn}");
        }
    }
}

#[test]
fn what_a_damaged_log_costs_is_named() {
    let (image, _, latest) = killed(false);
    let (dir, done, notes) = repaired(image.path(), |db| {
        let log = wal_files(db.parent().unwrap()).pop().unwrap();
        let mut bytes = fs::read(&log).unwrap();
        // The first record: everything after it can be read, and does not continue the sound part.
        bytes[30] ^= 0x55;
        fs::write(log, bytes).unwrap();
    });
    let done = done.unwrap();
    assert_eq!(done.log_revisions.unwrap().1, latest);
    // The first of the ten updates is the damaged record itself: it is missing as a whole.
    assert_eq!((done.reverted, done.lost), (9 + 5, 2), "{done:?}: {notes:?}");
    let first = Revision::new(2 * KEYS + 1);
    assert_eq!(done.missing, [(first, first)], "{notes:?}");
    for n in (1..10).chain(20..25).chain([500, 501]) {
        assert!(notes.iter().any(|note| note.contains(&key(n))), "{n}: {notes:?}");
    }
    assert_eq!(opened(dir.path()).0.len() as u64, KEYS);
}

/// A truncated MANIFEST, also one that ends with a complete record, names obsolete tables: all tables are
/// read.
#[test]
fn a_manifest_without_its_end_hides_no_table() {
    let (image, expected, _) = killed(false);
    let name = fs::read_to_string(image.path().join("db/CURRENT")).unwrap();
    let manifest = image.path().join("db").join(name.trim_end());
    let bytes = fs::read(&manifest).unwrap();
    // A record is checksum, length, kind, payload.
    let mut ends = vec![0];
    while let Some(header) = bytes.get(*ends.last().unwrap()..).and_then(|rest| rest.get(..7)) {
        ends.push(ends.last().unwrap() + 7 + usize::from(u16::from_le_bytes([header[4], header[5]])));
    }
    assert_eq!(ends.pop(), Some(bytes.len()));
    let cuts: Vec<usize> = ends.iter().copied().chain(ends.iter().map(|end| end + 9)).collect();
    for cut in cuts.into_iter().filter(|cut| *cut > 0) {
        let (dir, done, notes) =
            repaired(image.path(), |db| fs::write(db.join(name.trim_end()), &bytes[..cut]).unwrap());
        let done = done.unwrap_or_else(|error| panic!("{cut}: {error}: {notes:?}"));
        assert_eq!((done.lost, done.reverted, &*done.missing), (0, 0, &[][..]), "{cut}: {notes:?}");
        assert_eq!(opened(dir.path()).0, expected, "{cut}: {notes:?}");
    }
}

/// The contents of all tables of one flush are missing, and what is kept may be older than it was.
#[test]
fn a_lost_flush_is_noticed() {
    let live = scratch();
    let flushes = [0..20u64, 10..30, 15..35];
    let mut tables: Vec<Vec<PathBuf>> = Vec::new();
    for (round, keys) in flushes.iter().enumerate() {
        let engine = Engine::open(Options::new(live.path())).unwrap();
        for n in keys.clone() {
            put(&engine, n, &format!("round {round}"));
        }
        engine.close().unwrap();
        drop(engine);
        let known: Vec<_> = tables.iter().flatten().cloned().collect();
        let families = ["current", "history", "log"].into_iter();
        tables
            .push(families.flat_map(|f| tables_of(live.path(), f)).filter(|t| !known.contains(t)).collect());
    }
    // With a newer log, the watermark is not the only evidence.
    let engine = Engine::open(Options::new(live.path())).unwrap();
    put(&engine, 100, "last");
    let image = scratch();
    copy_dir(live.path(), image.path());
    drop(engine);
    let (dir, done, notes) = repaired(image.path(), |db| {
        tables[1].iter().for_each(|table| fs::remove_file(db.join(table.file_name().unwrap())).unwrap());
    });
    let done = done.unwrap();
    // What the third round superseded is in history.
    assert_eq!(done.missing, [(Revision::new(21), Revision::new(25))], "{done:?}: {notes:?}");
    // Those of the first round, of which 10 to 14 were updated in the second.
    assert_eq!(done.uncertain, 15, "{done:?}: {notes:?}");
    let (found, _) = opened(dir.path());
    assert_eq!(found.len(), 15 + 20 + 1);
}

/// RocksDB would continue from this number, overflow, and overwrite tables.
#[test]
fn a_log_with_an_impossible_number_is_refused() {
    let (image, expected, _) = killed(false);
    for name in ["18446744073709551615.log", "18446744073709551000.log", "4611686018427387904.log"] {
        let dir = scratch();
        copy_dir(image.path(), dir.path());
        let stray = dir.path().join("db").join(name);
        fs::write(&stray, b"").unwrap();
        let tables = |dir: &Path| -> Vec<Vec<u8>> {
            common::table_files(dir).iter().map(|table| fs::read(table).unwrap()).collect()
        };
        let before = tables(dir.path());
        let errors = [
            Engine::open(Options::new(dir.path())).err().unwrap(),
            verify(dir.path(), |_| {}, |_| {}).unwrap_err(),
            repair(dir.path(), true, |_| {}, |_| {}).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(&error, Error::Incomplete { path, .. } if *path == stray), "{error}");
        }
        assert!(before == tables(dir.path()));
        fs::remove_file(&stray).unwrap();
        assert_eq!(opened(dir.path()).0, expected);
    }
}

/// Without the watermark the loss of a log cannot be detected: the start warns of it.
#[test]
fn a_lost_watermark_is_reported() {
    let (image, _, _) = killed(false);
    let warnings = |dir: &Path| {
        let reported = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let sink = std::sync::Arc::clone(&reported);
        let options = Options::new(dir).on_warning(move |warning| sink.lock().push(warning.to_string()));
        drop(Engine::open(options).unwrap());
        let reported = reported.lock().clone();
        reported
    };
    assert_eq!(warnings(image.path()), [""; 0]);
    fs::remove_file(image.path().join("WATERMARK")).unwrap();
    let reported = warnings(image.path());
    assert!(matches!(&reported[..], [text] if text.contains("WATERMARK")), "{reported:?}");
    assert_eq!(warnings(image.path()), [""; 0], "it is there again");
    let (mut archive, restored) = (Vec::new(), scratch());
    let engine = Engine::open(Options::new(image.path())).unwrap();
    engine.backup(&mut archive, |_| {}).unwrap();
    drop(engine);
    let into = restored.path().join("store");
    restore(&mut archive.as_slice(), &into, Continuation::Beyond, |_| {}).unwrap();
    assert_eq!(warnings(&into), [""; 0], "a restored store never had one");
}

#[test]
fn lost_revisions_are_reported_and_an_empty_store_takes_no_ones_place() {
    let (image, _, latest) = killed(false);
    let remove_logs = |db: &Path| {
        wal_files(db.parent().unwrap()).iter().for_each(|log| fs::remove_file(log).unwrap());
    };
    let (dir, done, _) = repaired(image.path(), remove_logs);
    let missing = done.unwrap().missing;
    // The watermark is that of the first write.
    let [(first, last)] = missing[..] else { panic!("{missing:?}") };
    assert!(first.get() == 2 * KEYS + 1 && last <= latest, "{first}..{last}");
    assert_eq!(opened(dir.path()).0.len() as u64, KEYS);

    let young = scratch();
    let engine = Engine::open(Options::new(young.path())).unwrap();
    put(&engine, 1, "first");
    let image = scratch();
    copy_dir(young.path(), image.path());
    let (dir, done, _) = repaired(image.path(), remove_logs);
    assert!(matches!(done, Err(Error::LostCommits { .. })), "{done:?}");
    assert!(dir.path().join("db/CURRENT").exists() && !dir.path().join("db.repaired.part").exists());
    assert!(Engine::open(Options::new(dir.path())).is_err());
}

/// Stores that are made of one archive, or of one damaged store, do not assign the same revisions.
#[test]
fn two_restores_of_one_archive_go_on_at_different_revisions() {
    let (image, ..) = killed(false);
    let engine = Engine::open(Options::new(image.path())).unwrap();
    let mut archive = Vec::new();
    engine.backup(&mut archive, |_| {}).unwrap();
    let mut given_out = Revision::ZERO;
    for _ in 0..3 {
        let dir = scratch();
        restore(&mut archive.as_slice(), dir.path(), Continuation::Beyond, |_| {}).unwrap();
        let restored = Engine::open(Options::new(dir.path())).unwrap();
        assert!(restored.compacted_revision() > given_out, "what the one before gave out is 410");
        for n in 0..5 {
            given_out = put(&restored, n, "restored");
        }
    }
}

/// A second data directory whose database is a link to the first one's.
#[test]
fn two_directories_with_one_database_are_not_open_at_once() {
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    put(&engine, 1, "first");
    let second = scratch();
    fs::copy(live.path().join("PLINTH"), second.path().join("PLINTH")).unwrap();
    fs::copy(live.path().join("WATERMARK"), second.path().join("WATERMARK")).unwrap();
    std::os::unix::fs::symlink(live.path().join("db"), second.path().join("db")).unwrap();
    // As while a group is being written: a torn end, which a start would cut off. RocksDB's own lock is gone.
    let log = wal_files(live.path()).pop().unwrap();
    let mut torn = fs::read(&log).unwrap();
    torn.extend_from_slice(&[1, 2, 3]);
    fs::write(&log, &torn).unwrap();
    fs::remove_file(live.path().join("db/LOCK")).unwrap();
    assert!(matches!(Engine::open(Options::new(second.path())), Err(Error::Locked { .. })));
    assert!(matches!(verify(second.path(), |_| {}, |_| {}), Err(Error::Locked { .. })));
    assert!(matches!(repair(second.path(), true, |_| {}, |_| {}), Err(Error::Locked { .. })));
    assert_eq!(fs::read(&log).unwrap(), torn);
}

/// The engine does not write into a directory that has replaced its own.
#[test]
fn a_directory_that_is_moved_ends_the_engine() {
    let parent = scratch();
    for replaced in [None, Some("data"), Some("db")] {
        let parent = parent.path().join(replaced.unwrap_or("none"));
        fs::create_dir(&parent).unwrap();
        let (dir, moved) = (parent.join("data"), parent.join("moved"));
        let engine = Engine::open(Options::new(&dir)).unwrap();
        put(&engine, 1, "first");
        let acknowledged = engine.current_revision();
        let place = if replaced == Some("db") { dir.join("db") } else { dir.clone() };
        fs::rename(&place, &moved).unwrap();
        if replaced.is_some() {
            copy_dir(&moved, &place);
        }
        let files = || -> BTreeMap<PathBuf, Vec<u8>> {
            let Ok(entries) = fs::read_dir(dir.join("db")) else { return BTreeMap::new() };
            let paths = entries.map(|entry| entry.unwrap().path());
            let is_log = |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG"))
            };
            paths.filter(|path| !is_log(path)).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
        };
        let before = files();
        common::eventually("the engine has failed", || engine.failure().is_some());
        let failure = engine.failure().unwrap().to_string();
        assert!(failure.contains("moved or replaced"), "{failure}");
        assert!(engine.close().is_err());
        drop(engine);
        assert!(files() == before, "nothing is written or removed there");
        if place.exists() {
            fs::remove_dir_all(&place).unwrap();
        }
        fs::rename(&moved, &place).unwrap();
        // A copy: for RocksDB this one is open until the process ends.
        let copied = scratch();
        copy_dir(&dir, copied.path());
        assert_sound(copied.path());
        assert!(Engine::open(Options::new(copied.path())).unwrap().current_revision() >= acknowledged);
    }
}
