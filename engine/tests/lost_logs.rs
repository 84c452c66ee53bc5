//! Files of the database that are missing, truncated, zeroed or longer: the loss is detected when the store
//! is opened, and nothing is removed; a torn last group is dropped; `repair` recovers the store.

mod common;
#[path = "common/database.rs"]
mod database;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{assert_sound, copy, copy_dir, dump, noise, options, put, scratch, table_files, wal_files};
use database::delete_log_entries;
use plinth_engine::{
    repair, verify, At, Engine, Error, Feed, KeyRange, Options, Revision, Subscribe, Transaction,
};

/// A directory as SIGKILL leaves it, with logs that are needed, and its latest revision.
fn killed() -> (tempfile::TempDir, Revision) {
    let live = scratch();
    let engine = Engine::open(options(live.path())).unwrap();
    let mut latest = Revision::ZERO;
    let kept = Transaction::new().put_expiring("deadline", "x", std::time::Duration::from_secs(3600));
    engine.transact(kept).wait().unwrap();
    for n in 0..60 {
        latest = put(&engine, &format!("key/{n:02}"), &noise(n, 6000));
    }
    let image = scratch();
    // Obsolete files may be removed while they are copied, and a table may be created that only the copy of
    // the MANIFEST names: a copy counts only when nothing has changed meanwhile.
    let sizes = || -> Vec<_> {
        let files = database_files(live.path()).into_iter();
        files.map(|path| (path.metadata().map(|metadata| metadata.len()).ok(), path)).collect()
    };
    for _ in 0..50 {
        fs::remove_dir_all(image.path()).unwrap();
        let before = sizes();
        let copied = std::panic::catch_unwind(|| copy_dir(live.path(), image.path())).is_ok();
        if copied && sizes() == before {
            return (image, latest);
        }
        std::thread::yield_now();
    }
    panic!("the store never rested for as long as a copy takes");
}

/// A closed directory.
fn closed() -> (tempfile::TempDir, Revision) {
    let dir = scratch();
    let engine = Engine::open(options(dir.path())).unwrap();
    let mut latest = Revision::ZERO;
    for n in 0..30 {
        latest = put(&engine, &format!("key/{n:02}"), &noise(n, 3000));
    }
    engine.close().unwrap();
    (dir, latest)
}

fn database_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Opens `dir`; the store must be complete if it opens.
fn open_complete(dir: &Path, latest: Revision, what: &str) -> Option<Error> {
    match Engine::open(options(dir)) {
        Ok(engine) => {
            assert_eq!(engine.current_revision(), latest, "{what}: opened, and revisions are gone");
            let state = dump(&engine, &KeyRange::prefix("key/"), At::Latest);
            for (key, version) in state {
                let n = std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
                assert_eq!(version.value, noise(n, version.value.len()), "{what}");
            }
            None
        }
        Err(error) => Some(error),
    }
}

#[test]
fn every_lost_file_of_a_closed_store_is_found() {
    let (image, latest) = closed();
    for file in database_files(image.path()) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let content = fs::read(&file).unwrap();
        let cuts = [0, content.len() / 2, content.len().saturating_sub(1)].map(|at| content[..at].to_vec());
        let mut zeros = content.clone();
        zeros.fill(0);
        for (what, changed) in [
            ("removed", None),
            ("empty", Some(cuts[0].clone())),
            ("half", Some(cuts[1].clone())),
            ("a byte less", Some(cuts[2].clone())),
            ("zeros", Some(zeros)),
            ("longer", Some([&content[..], &[0; 700]].concat())),
        ] {
            if changed.as_ref() == Some(&content) {
                continue;
            }
            let dir = scratch();
            copy_dir(image.path(), dir.path());
            let path = dir.path().join("db").join(&name);
            match changed {
                Some(changed) => fs::write(&path, changed).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let what = format!("{name} {what}");
            let tables = table_files(dir.path()).len();
            let is_table = name.ends_with(".sst");
            let refused = if is_table && what.ends_with("zeros") {
                // Read when it is needed; then it is an error.
                let mut findings = 0;
                assert!(verify(dir.path(), |_| {}, |_| findings += 1).is_err() || findings > 0, "{what}");
                continue;
            } else {
                open_complete(dir.path(), latest, &what)
            };
            let must_be_refused = match &*name {
                "CURRENT" => !what.ends_with("longer"),
                name if name.starts_with("MANIFEST") => !what.ends_with("longer"),
                name if name.ends_with(".sst") => true,
                name if name.ends_with(".log") => what.ends_with("removed"),
                _ => false,
            };
            if must_be_refused {
                assert!(refused.is_some(), "{what}: opened");
            }
            if refused.is_some() && !what.ends_with("removed") {
                assert_eq!(table_files(dir.path()).len(), tables, "{what}: a refused start removed tables");
            }
        }
    }
}

#[test]
fn every_lost_log_of_a_killed_store_is_found() {
    let (image, latest) = killed();
    let logs = wal_files(image.path());
    // Families are flushed together, so there is more than one log only during a flush; `many_logs` has
    // three.
    assert!(!logs.is_empty());
    assert_eq!(open_complete(&copy(image.path()).1, latest, "nothing is lost").map(|e| e.to_string()), None);
    for (index, log) in logs.iter().enumerate() {
        let content = fs::read(log).unwrap();
        let newest = index + 1 == logs.len();
        for (what, length) in [("removed", None), ("empty", Some(0)), ("half", Some(content.len() / 2))] {
            let (_dir, dir) = copy(image.path());
            let path = dir.join("db").join(log.file_name().unwrap());
            match length {
                Some(length) => fs::write(&path, &content[..length]).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let what = format!("log {index} of {}, {what}", logs.len());
            let before = database_files(&dir);
            if newest && what.ends_with("half") {
                // Its end may not have been acknowledged: what the watermark covers is there.
                if let Ok(engine) = Engine::open(options(&dir)) {
                    assert!(engine.current_revision() <= latest);
                }
                continue;
            }
            // An obsolete log is not missed.
            match open_complete(&dir, latest, &what) {
                None => assert!(!newest, "{what}: opened"),
                Some(_) => {
                    let gone = before.iter().filter(|path| !path.exists());
                    // RocksDB keeps few of its own logs of messages.
                    let is_message_log = |path: &Path| {
                        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG"))
                    };
                    let gone = gone.filter(|path| path.extension().is_some() && !is_message_log(path));
                    let gone: Vec<_> = gone.collect();
                    assert!(gone.is_empty(), "{what}: removed {gone:?}");
                    let mut findings = 0;
                    assert!(verify(&dir, |_| {}, |_| findings += 1).is_err() || findings > 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_log_is_not_empty_once_something_in_it_was_acknowledged() {
    let (image, latest) = closed();
    let engine = Engine::open(options(image.path())).unwrap();
    assert_eq!(put(&engine, "key/99", &noise(99, 100)), latest.next());
    // Immediately, before the watermark's interval has passed.
    let (_dir, killed) = copy(image.path());
    drop(engine);
    let newest = wal_files(&killed).pop().unwrap();
    fs::write(&newest, b"").unwrap();
    let refused = open_complete(&killed, latest.next(), "the only log is empty").unwrap().to_string();
    assert!(refused.contains("was truncated"), "{refused}");
}

/// A directory whose last group was being written: its log, where that group begins, and the latest revision
/// before it.
fn with_last_group() -> (tempfile::TempDir, PathBuf, usize, Revision) {
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    let before = put(&engine, "before", &noise(1, 500));
    let log = wal_files(live.path()).pop().unwrap();
    let begin = fs::metadata(&log).unwrap().len() as usize;
    let mark = fs::read(live.path().join("WATERMARK")).unwrap();
    put(&engine, "last", &noise(2, 90_000));
    let image = scratch();
    copy_dir(live.path(), image.path());
    // As it was before the last group was acknowledged.
    fs::write(image.path().join("WATERMARK"), mark).unwrap();
    let log = image.path().join("db").join(log.file_name().unwrap());
    (image, log, begin, before)
}

#[test]
fn a_torn_last_group_is_dropped_and_reported() {
    let (image, log, begin, before) = with_last_group();
    let sound = fs::read(&log).unwrap();
    let sectors = begin.div_ceil(512)..sound.len() / 512;
    for lost in [sectors.start, sectors.start + 1, 64, 65, 100, 128, sectors.end - 1] {
        let dir = scratch();
        copy_dir(image.path(), dir.path());
        let path = dir.path().join("db").join(log.file_name().unwrap());
        let mut torn = sound.clone();
        torn[lost * 512..(lost + 1) * 512].fill(0);
        fs::write(&path, &torn).unwrap();
        assert_sound(dir.path());
        assert_eq!(fs::read(&path).unwrap(), torn, "to verify changes nothing");
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        assert_eq!(engine.current_revision(), before, "sector {lost}");
        let [dropped] = engine.dropped() else { panic!("{:?}", engine.dropped()) };
        assert_eq!((&dropped.path, dropped.bytes as usize), (&path, sound.len() - begin));
        assert_eq!(put(&engine, "next", b"x"), before.next());
        drop(engine);
        assert_sound(dir.path());
    }
}

/// A power cut while a value is written that holds the logs of this store and of another one.
#[test]
fn a_torn_value_that_holds_logs_is_dropped() {
    let other = scratch();
    let engine = Engine::open(Options::new(other.path())).unwrap();
    for n in 0..20 {
        put(&engine, &format!("key/{n}"), &noise(n, 300));
    }
    let foreign = fs::read(wal_files(other.path()).pop().unwrap()).unwrap();
    drop(engine);
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 0..3 {
        put(&engine, &format!("key/{n}"), &noise(n, 300));
    }
    let before = engine.current_revision();
    let log = wal_files(live.path()).pop().unwrap();
    let own = fs::read(&log).unwrap();
    let mark = fs::read(live.path().join("WATERMARK")).unwrap();
    put(&engine, "last", &[&noise(9, 800)[..], &own, &foreign, &noise(10, 900)].concat());
    let image = scratch();
    copy_dir(live.path(), image.path());
    fs::write(image.path().join("WATERMARK"), mark).unwrap();
    let log = image.path().join("db").join(log.file_name().unwrap());
    let whole = fs::read(&log).unwrap();
    for sector in (own.len().div_ceil(512)..whole.len() / 512).step_by(3) {
        let mut lost = whole.clone();
        lost[sector * 512..(sector + 1) * 512].fill(0);
        for torn in [lost, whole[..sector * 512].to_vec()] {
            let dir = scratch();
            copy_dir(image.path(), dir.path());
            fs::write(dir.path().join("db").join(log.file_name().unwrap()), &torn).unwrap();
            let engine = Engine::open(Options::new(dir.path())).unwrap();
            assert_eq!(engine.current_revision(), before, "sector {sector}, {} bytes", torn.len());
        }
    }
}

/// `WATERMARK` is an older copy of itself, and the log may be shorter than it was.
#[test]
fn a_watermark_that_is_older_than_the_logs_is_refused() {
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    put(&engine, "key/0", &noise(0, 300));
    let older = fs::read(live.path().join("WATERMARK")).unwrap();
    put(&engine, "key/1", &noise(1, 300));
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Options::new(live.path())).unwrap();
    let mut lengths = Vec::new();
    for n in 0..4 {
        put(&engine, &format!("key/{n}"), &noise(n, 300));
        lengths.push(fs::metadata(wal_files(live.path()).pop().unwrap()).unwrap().len() as usize);
    }
    let (image, latest) = (scratch(), engine.current_revision());
    copy_dir(live.path(), image.path());
    drop(engine);
    for length in lengths {
        let (_dir, dir) = copy(image.path());
        let newest = wal_files(&dir).pop().unwrap();
        let log = fs::read(&newest).unwrap();
        fs::write(&newest, &log[..length]).unwrap();
        fs::write(dir.join("WATERMARK"), &older).unwrap();
        let refused = Engine::open(Options::new(&dir)).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|refused| refused.contains("it is older than")), "{length} bytes");
        let mut findings = 0;
        assert!(verify(&dir, |_| {}, |_| findings += 1).is_err() || findings > 0);
        let done = repair(&dir, true, |_| {}, |_| {}).unwrap();
        assert!(done.needed && done.revision > latest, "no revision is given out twice");
        drop(Engine::open(Options::new(&dir)).unwrap());
    }
    // One slot is damaged: the other one is as old as it has to be. A lost sector may read as zeros.
    for (slot, is_zeros) in [(0, false), (4096, false), (0, true), (4096, true)] {
        let (_dir, dir) = copy(image.path());
        let mut mark = fs::read(dir.join("WATERMARK")).unwrap();
        if is_zeros {
            mark[slot..slot + 4096].fill(0);
        } else {
            mark[slot + 33] ^= 1;
        }
        fs::write(dir.join("WATERMARK"), mark).unwrap();
        assert_eq!(Engine::open(Options::new(&dir)).unwrap().current_revision(), latest);
    }
}

/// The watermark goes on while a checkpoint is made, and what is in its logs notes that.
#[test]
fn checkpoints_that_are_made_while_there_are_writes_open() {
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                put(&engine, &format!("key/{}", n % 50), &noise(n, 300));
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..25 {
            let (dir, before) = (scratch(), engine.current_revision());
            engine.checkpoint(dir.path()).unwrap();
            let copy = Engine::open(Options::new(dir.path())).unwrap();
            assert!(copy.current_revision() >= before);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A write that was not synced is torn, and the log that was begun after it is blank.
#[test]
fn a_torn_end_before_a_blank_log_is_dropped() {
    let (image, log, begin, before) = with_last_group();
    let sound = fs::read(&log).unwrap();
    let number: u64 = log.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    for length in [0, 170, 1488] {
        let dir = scratch();
        copy_dir(image.path(), dir.path());
        let path = dir.path().join("db").join(log.file_name().unwrap());
        let mut torn = sound.clone();
        let lost = begin.next_multiple_of(512) + 512;
        torn[lost..lost + 512].fill(0);
        fs::write(&path, &torn).unwrap();
        fs::write(dir.path().join("db").join(format!("{:06}.log", number + 20)), vec![0; length]).unwrap();
        assert_sound(dir.path());
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        assert_eq!(engine.current_revision(), before, "{length} bytes");
        assert_eq!(engine.dropped().len(), if length == 0 { 1 } else { 2 });
        assert_eq!(put(&engine, "next", b"x"), before.next());
        drop(engine);
        assert_sound(dir.path());
    }
}

#[test]
fn repair_opens_what_was_refused() {
    let live = scratch();
    let engine = Engine::open(Options::new(live.path())).unwrap();
    for n in 0..10 {
        put(&engine, &format!("key/{n}"), &noise(n, 400));
    }
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(Options::new(live.path())).unwrap();
    let mut latest = Revision::ZERO;
    for n in 0..10 {
        latest = put(&engine, &format!("key/{n}"), &noise(n + 100, 400));
    }
    let image = scratch();
    copy_dir(live.path(), image.path());
    drop(engine);
    let dir = image.path();
    let log = wal_files(dir).pop().unwrap();
    let mut damaged = fs::read(&log).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 8;
    fs::write(&log, &damaged).unwrap();
    assert!(Engine::open(Options::new(dir)).is_err());

    let before = database_files(dir);
    let mut notes = Vec::new();
    let planned = repair(dir, false, |_| {}, |note| notes.push(note)).unwrap();
    assert!(planned.needed && planned.kept_in.is_none() && planned.log_bytes > 0, "{planned:?}");
    assert_eq!(planned.log_revisions.unwrap().1, latest);
    assert!(notes.iter().any(|note| note.contains(".log")), "{notes:?}");
    assert_eq!(
        (database_files(dir), fs::read(&log).unwrap()),
        (before, damaged.clone()),
        "nothing is changed"
    );

    let done = repair(dir, true, |_| {}, |_| {}).unwrap();
    assert_eq!((done.kept, done.lost, done.log_bytes), (10, 0, planned.log_bytes));
    let kept = done.kept_in.unwrap().join("db").join(log.file_name().unwrap());
    assert_eq!(fs::read(kept).unwrap(), damaged, "the old database is kept as it was");
    assert_sound(dir);
    assert!(!repair(dir, true, |_| {}, |_| {}).unwrap().needed);

    let engine = Engine::open(Options::new(dir)).unwrap();
    assert!(engine.current_revision() > latest, "no revision is given out twice");
    for after in [Revision::ZERO, Revision::new(5), latest, latest.next()] {
        let feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(after));
        assert!(matches!(feed, Err(Error::Compacted { .. })), "after {after}");
    }
    for n in 0..10 {
        let value = engine.get(format!("key/{n}").as_bytes(), At::Latest).unwrap().unwrap().value;
        assert!(value == noise(n, 400) || value == noise(n + 100, 400));
    }
    let mut feed = engine.subscribe(Subscribe::new(KeyRange::all())).unwrap();
    let next = put(&engine, "key/0", b"new");
    assert!(next > latest);
    let Feed::Events(events) = feed.next_timeout(std::time::Duration::from_secs(60)).unwrap().unwrap() else {
        panic!("no event")
    };
    assert_eq!(events[0].revision, next);
    drop(feed);
    drop(engine);
    assert_sound(dir);
}

#[test]
fn repair_of_a_missing_log_and_of_lost_records() {
    let (image, latest) = killed();
    // The newest log.
    let (_dir, dir) = copy(image.path());
    fs::remove_file(wal_files(&dir).pop().unwrap()).unwrap();
    assert!(Engine::open(options(&dir)).is_err());
    let done = repair(&dir, true, |_| {}, |_| {}).unwrap();
    assert!(done.needed && done.revision > latest);
    assert_sound(&dir);
    assert!(Engine::open(options(&dir)).unwrap().current_revision() > latest);
    // A record in a table.
    let (closed, _) = closed();
    let dir = closed.path();
    let table = table_files(dir).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).unwrap();
    let done = repair(dir, true, |_| {}, |_| {}).unwrap();
    assert!(done.needed && done.lost + done.reverted <= 5 && done.kept >= 25, "{done:?}");
    assert_sound(dir);
}

#[test]
fn a_gap_in_the_log_is_an_error_of_the_feed() {
    let (dir, latest) = closed();
    for missing in [Revision::new(1), Revision::new(12)] {
        delete_log_entries(dir.path(), missing.get()..=missing.get());
        let engine = Engine::open(options(dir.path())).unwrap();
        let mut feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(Revision::ZERO)).unwrap();
        let error = loop {
            match feed.next_timeout(std::time::Duration::from_secs(60)) {
                Ok(Some(Feed::Events(events))) => {
                    assert!(events.iter().all(|event| event.revision < missing), "past the gap")
                }
                Ok(Some(Feed::Progress(at))) => assert!(at < missing, "past the gap"),
                Ok(None) => panic!("the feed is stuck"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(&error, Error::Corrupt { revision, .. } if revision.get() <= missing.get()),
            "{error}"
        );
        let mut behind = engine.subscribe(Subscribe::new(KeyRange::all()).after(Revision::new(12))).unwrap();
        assert_eq!(common::drain(&mut behind, latest).len(), 18);
        drop((feed, behind, engine));
        let mut findings = 0;
        verify(dir.path(), |_| {}, |_| findings += 1).unwrap();
        assert!(findings > 0);
    }
}

/// A database and a watermark that are relative links are moved like others.
#[test]
fn a_repair_moves_links_so_that_they_lead_where_they_did() {
    let parent = scratch();
    let (dir, volume) = (parent.path().join("data"), parent.path().join("volume"));
    let (image, _) = closed();
    copy_dir(image.path(), &dir);
    fs::create_dir(&volume).unwrap();
    for name in ["db", "WATERMARK"] {
        fs::rename(dir.join(name), volume.join(name)).unwrap();
        std::os::unix::fs::symlink(Path::new("../volume").join(name), dir.join(name)).unwrap();
    }
    let table = table_files(&dir).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).unwrap();
    assert!(repair(&dir, false, |_| {}, |_| {}).unwrap().needed);
    assert_eq!(fs::read_link(dir.join("db")).unwrap(), Path::new("../volume/db"), "nothing was changed");
    let aside = repair(&dir, true, |_| {}, |_| {}).unwrap().kept_in.unwrap();
    for name in ["db", "WATERMARK"] {
        let (kept, moved) = (aside.join(name).canonicalize().unwrap(), volume.join(name));
        assert_eq!(kept, moved.canonicalize().unwrap());
    }
    let leftover = fs::read_dir(&dir).unwrap().any(|entry| {
        let name = entry.unwrap().file_name();
        name.to_string_lossy().ends_with(".link")
    });
    assert!(!leftover);
    assert_sound(&dir);

    // Killed before the watermark is moved; and by a version that left a dangling link.
    for link in [volume.join("db"), "../volume/db".into()] {
        fs::rename(dir.join("db"), dir.join("db.repaired")).unwrap();
        let _ = fs::remove_file(dir.join("WATERMARK"));
        fs::rename(aside.join("WATERMARK"), dir.join("WATERMARK")).unwrap();
        fs::remove_file(aside.join("db")).unwrap();
        std::os::unix::fs::symlink(link, aside.join("db")).unwrap();
        let done = repair(&dir, true, |_| {}, |_| {}).unwrap();
        assert_eq!((done.continued, done.kept_in.as_ref()), (true, Some(&aside)));
        assert_sound(&dir);
        drop(Engine::open(options(&dir)).unwrap());
    }
}

/// A repair that was killed before each of its last steps is completed by the next one.
#[test]
fn a_repair_that_was_killed_is_done_by_the_next() {
    let (image, _) = closed();
    let table =
        table_files(image.path()).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).unwrap();
    let repaired = scratch();
    copy_dir(image.path(), repaired.path());
    assert!(repair(repaired.path(), true, |_| {}, |_| {}).unwrap().needed);
    for moved in [&[][..], &["db"], &["db", "WATERMARK"]] {
        let dir = scratch();
        copy_dir(image.path(), dir.path());
        copy_dir(&repaired.path().join("db"), &dir.path().join("db.repaired"));
        fs::create_dir(dir.path().join("repair-1")).unwrap();
        for name in moved {
            fs::rename(dir.path().join(name), dir.path().join("repair-1").join(name)).unwrap();
        }
        if !moved.is_empty() {
            let refused = Engine::open(options(dir.path())).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains("repair"), "{moved:?}: {refused}");
        }
        let done = repair(dir.path(), true, |_| {}, |_| {}).unwrap();
        assert_eq!((done.needed, done.continued), (true, !moved.is_empty()), "{moved:?}");
        if done.continued {
            let aside = done.kept_in.unwrap();
            assert_eq!(aside, dir.path().join("repair-1"));
            assert!(aside.join("db/CURRENT").exists() && aside.join("WATERMARK").exists(), "{moved:?}");
        }
        assert_sound(dir.path());
        drop(Engine::open(options(dir.path())).unwrap());
        assert!(!repair(dir.path(), true, |_| {}, |_| {}).unwrap().needed, "{moved:?}");
    }
}
