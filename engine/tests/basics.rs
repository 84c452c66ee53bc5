//! The engine's guarantees, one by one, through its public API.

use std::time::{Duration, Instant};

use plinth_engine::{
    At, Condition, Engine, Error, EventKind, Feed, KeyRange, Options, Revision, Subscribe, Transaction,
};

fn open(dir: &tempfile::TempDir) -> Engine {
    Engine::open(Options::new(dir.path())).unwrap()
}

fn put(engine: &Engine, key: &'static str, value: &'static str) -> Revision {
    engine.transact(Transaction::new().put(key, value)).wait().unwrap().revision
}

fn delete(engine: &Engine, key: &'static str) -> Revision {
    engine.transact(Transaction::new().delete(key)).wait().unwrap().revision
}

fn value(engine: &Engine, key: &str, at: At) -> Option<String> {
    let record = engine.get(key.as_bytes(), at).unwrap()?;
    Some(String::from_utf8(record.value.to_vec()).unwrap())
}

fn list(engine: &Engine, range: &KeyRange, at: At) -> Vec<(String, String)> {
    let mut range = engine.snapshot(at).unwrap().range(range);
    let mut found = Vec::new();
    while let Some(entry) = range.next().unwrap() {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        found.push((text(entry.key), text(entry.value)));
    }
    found
}

#[test]
fn a_range_goes_on_in_another_snapshot_of_the_same_revision() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    for key in ["a", "b", "c", "d"] {
        put(&engine, key, "1");
    }
    delete(&engine, "b");
    let keys = KeyRange::all();
    let snapshot = engine.snapshot(At::Latest).unwrap();
    let (revision, mut range) = (snapshot.revision(), snapshot.range(&keys));
    assert_eq!(range.last_key(), None, "nothing was read yet");
    range.next().unwrap();
    range.next().unwrap();
    assert_eq!(range.last_key(), Some(&b"c"[..]));
    let rest = keys.after(range.last_key().unwrap());
    drop((snapshot, range));
    put(&engine, "d", "2");
    put(&engine, "e", "1");
    assert_eq!(list(&engine, &rest, At::Exact(revision)), [("d".into(), "1".into())]);
    let mut range = engine.snapshot(At::Latest).unwrap().range(&rest);
    while range.next().unwrap().is_some() {}
    assert_eq!(range.last_key(), None, "it was read to its end");
}

#[test]
fn every_revision_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    assert_eq!(engine.current_revision(), Revision::ZERO);
    let r1 = put(&engine, "a", "1");
    let r2 = put(&engine, "b", "1");
    let r3 = put(&engine, "a", "2");
    let r4 = delete(&engine, "a");
    let r5 = put(&engine, "a", "");
    assert_eq!([r1, r2, r3, r4, r5].map(Revision::get), [1, 2, 3, 4, 5]);

    let a = |at| value(&engine, "a", at);
    assert_eq!(a(At::Exact(Revision::ZERO)), None);
    assert_eq!(a(At::Exact(r1)).as_deref(), Some("1"));
    assert_eq!(a(At::Exact(r2)).as_deref(), Some("1"));
    assert_eq!(a(At::Exact(r3)).as_deref(), Some("2"));
    assert_eq!(a(At::Exact(r4)), None);
    assert_eq!(a(At::Latest).as_deref(), Some(""), "an empty value is a value");

    let all = KeyRange::all();
    assert_eq!(list(&engine, &all, At::Exact(r4)), [("b".into(), "1".into())]);
    assert_eq!(list(&engine, &all, At::Exact(r3)), [("a".into(), "2".into()), ("b".into(), "1".into())]);
    let record = engine.get(b"a", At::Latest).unwrap().unwrap();
    assert_eq!((record.create_revision, record.mod_revision, record.version), (r5, r5, 1));
    let future = engine.get(b"a", At::Exact(Revision::new(6)));
    assert!(matches!(future, Err(Error::Future { current, .. }) if current == r5));
}

#[test]
fn a_transaction_happens_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    let r1 = put(&engine, "a", "1");
    let refused = engine
        .transact(Transaction::new().require(Condition::Absent("a".into())).put("a", "2").put("b", "2"))
        .wait();
    let Err(Error::Conflict { key, current }) = refused else { panic!("{refused:?}") };
    assert_eq!(key, "a");
    assert_eq!(current.unwrap().mod_revision, r1);
    assert_eq!(value(&engine, "b", At::Latest), None);
    assert_eq!(engine.current_revision(), r1, "a refused transaction takes no revision");

    for condition in [
        Condition::Exists("b".into()),
        Condition::ModRevision { key: "a".into(), revision: Revision::new(7) },
        Condition::ModRevision { key: "b".into(), revision: Revision::ZERO },
    ] {
        let refused = engine.transact(Transaction::new().require(condition).put("a", "3")).wait();
        assert!(matches!(refused, Err(Error::Conflict { .. })));
    }
    let done = engine
        .transact(
            Transaction::new()
                .require(Condition::ModRevision { key: "a".into(), revision: r1 })
                .require(Condition::Absent("c".into()))
                .delete("a")
                .put("b", "4"),
        )
        .wait()
        .unwrap();
    assert_eq!(list(&engine, &KeyRange::all(), At::Latest), [("b".into(), "4".into())]);
    let commit = done.commit.unwrap();
    assert_eq!(commit.events.len(), 2);
    assert_eq!(commit.events[0].previous.as_ref().unwrap().value, "1");
}

#[test]
fn what_changes_nothing_takes_no_revision() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    let r1 = put(&engine, "a", "1");
    for transaction in [
        Transaction::new(),
        Transaction::new().delete("missing"),
        Transaction::new().require(Condition::Exists("a".into())),
    ] {
        let committed = engine.transact(transaction).wait().unwrap();
        assert_eq!(committed.revision, r1);
        assert!(committed.commit.is_none());
    }
    let twice = engine.transact(Transaction::new().put("a", "1").delete("a")).wait();
    assert!(matches!(twice, Err(Error::InvalidTransaction { .. })));
    let large = engine.transact(Transaction::new().put(vec![0; 5000], "")).wait();
    assert!(matches!(large, Err(Error::TooLarge { what: "key", .. })));
}

#[test]
fn ranges_are_exact_about_odd_keys() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    let keys: Vec<Vec<u8>> =
        [&b""[..], b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"a\0\xff", b"a\x01", b"\xff", b"\xff\xff"]
            .iter()
            .map(|key| key.to_vec())
            .collect();
    for round in 0..3u8 {
        let mut transaction = Transaction::new();
        for key in &keys {
            transaction = transaction.put(key.clone(), vec![round]);
        }
        engine.transact(transaction).wait().unwrap();
    }
    for round in 0..3u8 {
        let snapshot = engine.snapshot(At::Exact(Revision::new(u64::from(round) + 1))).unwrap();
        let mut range = snapshot.range(&KeyRange::all());
        let mut found = Vec::new();
        while let Some(entry) = range.next().unwrap() {
            assert_eq!(entry.value, [round]);
            assert_eq!(entry.version, u64::from(round) + 1);
            found.push(entry.key.to_vec());
        }
        let mut expected = keys.clone();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(snapshot.count(&KeyRange::prefix(&b"a"[..])).unwrap(), 4);
        assert_eq!(snapshot.count(&KeyRange::key(&b"a"[..])).unwrap(), 1);
        assert_eq!(snapshot.count(&KeyRange::all().after(b"a\0")).unwrap(), 4);
        assert_eq!(snapshot.count(&KeyRange::between("b", "a")).unwrap(), 0);
    }
}

#[test]
fn a_restart_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    let r1 = put(&engine, "a", "1");
    let r2 = put(&engine, "a", "2");
    engine.close().unwrap();
    assert!(matches!(engine.transact(Transaction::new().put("a", "3")).wait(), Err(Error::Closed)));
    drop(engine);
    let engine = open(&dir);
    assert_eq!(engine.current_revision(), r2);
    assert_eq!(value(&engine, "a", At::Exact(r1)).as_deref(), Some("1"));
    assert_eq!(put(&engine, "b", "1"), r2.next());
    // Dropping without close keeps it as well.
    drop(engine);
    assert_eq!(value(&open(&dir), "b", At::Latest).as_deref(), Some("1"));
}

#[test]
fn a_directory_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    let snapshot = engine.snapshot(At::Latest).unwrap();
    assert!(matches!(Engine::open(Options::new(dir.path())), Err(Error::Locked { .. })));
    drop(engine);
    assert!(
        matches!(Engine::open(Options::new(dir.path())), Err(Error::Locked { .. })),
        "a snapshot holds it"
    );
    drop(snapshot);
    open(&dir);
}

#[test]
fn a_removed_lock_file_lets_nobody_else_in() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    for name in ["LOCK", "db/LOCK"] {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert!(matches!(Engine::open(Options::new(dir.path())), Err(Error::Locked { .. })));
    assert!(matches!(plinth_engine::verify(dir.path(), |_| {}, |_| {}), Err(Error::Locked { .. })));
    assert!(matches!(plinth_engine::repair(dir.path(), true, |_| {}, |_| {}), Err(Error::Locked { .. })));
    drop(engine);
    open(&dir);
}

#[test]
fn foreign_and_newer_directories_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("photo.jpg"), "x").unwrap();
    assert!(matches!(Engine::open(Options::new(dir.path())), Err(Error::Foreign { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was added");

    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    std::fs::write(dir.path().join("PLINTH"), "plinth-engine format 9\n").unwrap();
    let newer = Engine::open(Options::new(dir.path()));
    assert!(matches!(newer, Err(Error::FormatVersion { found: 9, expected: 1 })));

    let dir = tempfile::tempdir().unwrap();
    let missing = Engine::open(Options::new(dir.path().join("none")).create(false));
    assert!(matches!(missing, Err(Error::Incomplete { .. })));
}

#[test]
fn a_lost_database_is_not_replaced_by_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    put(&engine, "a", "1");
    drop(engine);
    std::fs::remove_dir_all(dir.path().join("db")).unwrap();
    assert!(Engine::open(Options::new(dir.path())).is_err());
}

#[test]
fn feeds_deliver_live_and_past_events() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    let mut live = engine.subscribe(Subscribe::new(KeyRange::prefix("a/"))).unwrap();
    assert!(live.try_next().unwrap().is_none());
    put(&engine, "a/1", "x");
    put(&engine, "b/1", "x");
    let r3 = put(&engine, "a/1", "y");
    let r4 = delete(&engine, "a/1");

    let mut past = engine.subscribe(Subscribe::new(KeyRange::prefix("a/")).after(Revision::ZERO)).unwrap();
    for subscription in [&mut live, &mut past] {
        let mut events = Vec::new();
        while events.len() < 3 {
            match subscription.next_timeout(Duration::from_secs(10)).unwrap().unwrap() {
                Feed::Events(batch) => events.extend(batch.iter().cloned()),
                Feed::Progress(_) => panic!("progress was not asked for"),
            }
        }
        let revisions: Vec<u64> = events.iter().map(|event| event.revision.get()).collect();
        assert_eq!(revisions, [1, 3, 4]);
        assert!(matches!(&events[1].kind, EventKind::Put { value, version: 2, .. } if value == "y"));
        assert_eq!(events[1].previous.as_ref().unwrap().value, "x");
        assert!(events[2].is_delete());
        assert_eq!(events[2].previous.as_ref().unwrap().mod_revision, r3);
        subscription.request_progress();
        assert!(matches!(subscription.try_next(), Ok(Some(Feed::Progress(at))) if at == r4));
        assert!(subscription.try_next().unwrap().is_none());
    }
    engine.close().unwrap();
    assert!(matches!(live.try_next(), Err(Error::Closed)));
}

#[test]
fn feeds_read_back_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    put(&engine, "a", "1");
    put(&engine, "b", "1");
    put(&engine, "a", "2");
    delete(&engine, "a");
    drop(engine);
    // After a restart the memory is empty.
    let engine = open(&dir);
    for previous in [true, false] {
        let key = if previous { "b" } else { "c" };
        let subscribe = Subscribe::new(KeyRange::key("a")).after(Revision::ZERO).previous(previous);
        let mut subscription = engine.subscribe(subscribe).unwrap();
        let Some(Feed::Events(events)) = subscription.next_timeout(Duration::from_secs(10)).unwrap() else {
            panic!("no events")
        };
        let seen: Vec<_> = events
            .iter()
            .map(|event| {
                (event.revision.get(), event.is_delete(), event.previous.as_ref().map(|r| r.value.clone()))
            })
            .collect();
        let old = |value: &'static str| previous.then(|| value.into());
        assert_eq!(seen, [(1, false, None), (3, false, old("1")), (4, true, old("2"))]);
        assert!(subscription.try_next().unwrap().is_none());
        let mut caught_up = engine.subscribe(Subscribe::new(KeyRange::key(key))).unwrap();
        put(&engine, key, "3");
        assert!(matches!(caught_up.try_next(), Ok(Some(Feed::Events(_)))));
    }
}

#[test]
fn waiting_for_a_revision() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    let wanted = Revision::new(2);
    let late = engine.wait_for_until(wanted, Instant::now());
    assert!(matches!(late, Err(Error::Future { .. })));
    let waiting = {
        let engine = engine.clone();
        std::thread::spawn(move || engine.wait_for_until(wanted, Instant::now() + Duration::from_secs(30)))
    };
    put(&engine, "a", "1");
    put(&engine, "a", "2");
    assert!(waiting.join().unwrap().unwrap() >= wanted);
}

#[test]
fn compaction_keeps_what_is_readable_and_removes_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    put(&engine, "a", "1");
    put(&engine, "b", "1");
    delete(&engine, "b");
    let floor = put(&engine, "a", "2");
    put(&engine, "a", "3");
    engine.compact(floor).unwrap();
    engine.wait_compacted().unwrap();
    assert_eq!(engine.compacted_revision(), floor);
    let old = engine.get(b"a", At::Exact(floor.previous()));
    assert!(matches!(old, Err(Error::Compacted { oldest, .. }) if oldest == floor));
    assert_eq!(value(&engine, "a", At::Exact(floor)).as_deref(), Some("2"));
    assert_eq!(value(&engine, "a", At::Latest).as_deref(), Some("3"));
    let past = engine.subscribe(Subscribe::new(KeyRange::all()).after(floor.previous()));
    assert!(matches!(past, Err(Error::Compacted { .. })));
    let mut feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(floor)).unwrap();
    assert!(matches!(feed.try_next(), Ok(Some(Feed::Events(events))) if events.len() == 1));
    let stats = engine.stats();
    assert_eq!(stats.compaction_debt, 0);
    assert_eq!(stats.swept_versions, 2, "a at 1 and b at 2");
    let future = engine.compact(Revision::new(99));
    assert!(matches!(future, Err(Error::Future { .. })));
    drop((feed, engine));
    let engine = open(&dir);
    assert_eq!(engine.compacted_revision(), floor);
    assert_eq!(engine.current_revision(), floor.next());
}

#[test]
fn the_head_survives_when_compaction_removes_the_whole_log() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    put(&engine, "a", "1");
    let latest = delete(&engine, "a");
    engine.compact(latest).unwrap();
    engine.wait_compacted().unwrap();
    drop(engine);
    let engine = open(&dir);
    assert_eq!(engine.current_revision(), latest);
    assert_eq!(put(&engine, "a", "2"), latest.next());
    let record = engine.get(b"a", At::Latest).unwrap().unwrap();
    assert_eq!((record.create_revision, record.version), (latest.next(), 1));
}

#[test]
fn keys_expire_by_an_ordinary_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir);
    let hour = Duration::from_secs(3600);
    let mut feed = engine.subscribe(Subscribe::new(KeyRange::all())).unwrap();
    engine.transact(Transaction::new().put_expiring("renewed", "x", hour)).wait().unwrap();
    assert!(engine.get(b"renewed", At::Latest).unwrap().unwrap().expires_at_ms.is_some());
    put(&engine, "renewed", "for good");
    let short = Transaction::new().put_expiring("short", "x", Duration::from_millis(30));
    let put_at = engine.transact(short).wait().unwrap().revision;
    let mut events = Vec::new();
    while events.len() < 4 {
        if let Some(Feed::Events(batch)) = feed.next_timeout(Duration::from_secs(60)).unwrap() {
            events.extend(batch.iter().cloned());
        }
    }
    let expired = &events[3];
    assert!(expired.is_delete());
    assert_eq!(expired.key, "short");
    assert_eq!(expired.revision, put_at.next());
    assert_eq!(value(&engine, "short", At::Latest), None);
    assert_eq!(value(&engine, "short", At::Exact(put_at)).as_deref(), Some("x"));
    let renewed = engine.get(b"renewed", At::Latest).unwrap().unwrap();
    assert_eq!((renewed.value.as_ref(), renewed.expires_at_ms), (&b"for good"[..], None));
    drop((feed, engine));
    // No deadline is left behind.
    let mut findings = 0;
    plinth_engine::verify(dir.path(), |_| {}, |_| findings += 1).unwrap();
    assert_eq!(findings, 0);
}
