//! What the engine guarantees, one test for each class of correctness bug that the robustness tests of
//! etcd have on record. The number is that of etcd's issue.
//!
//! | class | here |
//! |---|---|
//! | 13766 revision inconsistency after a crash under load | `crash.rs`: `nothing_acknowledged_is_lost_at_random_kills` |
//! | 14370 single-node lost write | [`an_acknowledged_write_is_in_the_files`], `crash.rs` |
//! | 14685 crash during defragmentation, 17780 decreasing revision | `crash.rs`: `nothing_acknowledged_is_lost_at_any_point`, [`revisions_never_decrease`] |
//! | 15220 progress ahead of events | [`progress_never_runs_ahead_of_events`] |
//! | 15271 watch going back in time | [`a_feed_never_goes_back_in_time`] |
//! | 17247 duplicated, 17529 lost events under starvation | [`starved_feeds_get_everything_once_or_an_error`] |
//! | 18089, 19179 missing delete at the compacted revision | [`the_delete_event_next_to_the_floor_is_there`] |
//! | 18667 read at a compacted revision | [`a_snapshot_outlives_compaction_and_no_new_one_is_below_it`] |
//! | 20221 watch on a future revision | [`a_future_feed_gets_nothing_early`] |
//! | 20418 stale read | [`histories_are_linearizable`] |

#![allow(clippy::too_many_lines, reason = "a history from its start to its end")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use common::{assert_sound, copy_dir, dump, replay, scaled, scratch, Random};
use plinth_engine::{
    At, Condition, Engine, Error, Feed, KeyRange, Options, Revision, Subscribe, Subscription, Transaction,
};

fn put(engine: &Engine, key: &str, value: &str) -> Revision {
    let transaction = Transaction::new().put(key.to_owned(), value.to_owned());
    engine.transact(transaction).wait().unwrap().revision
}

#[test]
fn an_acknowledged_write_is_in_the_files() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    for n in 1..=20u64 {
        let revision = put(&engine, "key", &n.to_string());
        // The files as a process killed here would leave them.
        let image = scratch();
        copy_dir(dir.path(), image.path());
        let survivor = Engine::open(Options::new(image.path())).unwrap();
        assert_eq!(survivor.current_revision(), revision);
        assert_eq!(survivor.get(b"key", At::Latest).unwrap().unwrap().value, n.to_string());
    }
}

#[test]
fn revisions_never_decrease() {
    let dir = scratch();
    let mut last = Revision::ZERO;
    for round in 0..6 {
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        assert_eq!(engine.current_revision(), last);
        last = put(&engine, "key", "value");
        if round % 2 == 0 {
            last = engine.transact(Transaction::new().delete("key")).wait().unwrap().revision;
        }
        // Nothing is left of the newest revisions but the floor.
        engine.compact(last).unwrap();
        engine.wait_compacted().unwrap();
    }
    assert_sound(dir.path());
}

#[test]
fn progress_never_runs_ahead_of_events() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path()).event_ring_bytes(8 << 10)).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let watchers: Vec<_> = (0..3)
        .map(|n| {
            let mut feed = engine.subscribe(Subscribe::new(KeyRange::prefix(format!("k{n}")))).unwrap();
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                let (mut progress, mut seen) = (Revision::ZERO, Vec::new());
                loop {
                    let finishing = done.load(Ordering::SeqCst);
                    feed.request_progress();
                    match feed.next_timeout(Duration::from_millis(50)).unwrap() {
                        Some(Feed::Progress(at)) => {
                            assert!(at >= progress);
                            progress = at;
                            if finishing {
                                return (seen, progress);
                            }
                        }
                        Some(Feed::Events(events)) => {
                            for event in events.iter() {
                                assert!(event.revision > progress, "an event behind its progress mark");
                                seen.push(event.revision.get());
                            }
                        }
                        None => {}
                    }
                }
            })
        })
        .collect();
    let mut expected: [Vec<u64>; 3] = Default::default();
    let mut random = Random(5);
    for _ in 0..scaled(1000) {
        let n = random.below(4) as usize;
        let revision = put(&engine, &format!("k{n}/{}", random.below(9)), "value");
        if let Some(expected) = expected.get_mut(n) {
            expected.push(revision.get());
        }
    }
    let latest = engine.current_revision();
    done.store(true, Ordering::SeqCst);
    for (watcher, expected) in watchers.into_iter().zip(expected) {
        let (seen, progress) = watcher.join().unwrap();
        assert_eq!(seen, expected);
        assert_eq!(progress, latest);
    }
}

#[test]
fn a_feed_never_goes_back_in_time() {
    let dir = scratch();
    let mut position = Revision::ZERO;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for n in 0..50 {
            put(&engine, &format!("k{n}"), "value");
        }
        // A subscriber that resumes after a restart, in the middle of what it missed.
        let mut feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(position)).unwrap();
        let wanted = engine.current_revision().get() - 20;
        while position.get() < wanted {
            let Some(Feed::Events(events)) = feed.next_timeout(Duration::from_secs(60)).unwrap() else {
                panic!("stuck at {position}")
            };
            for event in events.iter() {
                assert!(event.revision > position);
                position = event.revision;
                seen.push(position.get());
            }
        }
    }
    assert_eq!(seen, (1..=position.get()).collect::<Vec<_>>());
}

#[test]
fn starved_feeds_get_everything_once_or_an_error() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path()).event_ring_bytes(4 << 10)).unwrap();
    let writer = {
        let engine = engine.clone();
        std::thread::spawn(move || {
            for n in 0..scaled(4000) {
                drop(engine.transact(Transaction::new().put(format!("k{}", n % 20), n.to_string())));
                if n % 500 == 499 {
                    let latest = engine.current_revision().get();
                    engine.compact(Revision::new(latest.saturating_sub(300))).unwrap();
                }
            }
            engine.transact(Transaction::new().put("last", "")).wait().unwrap().revision
        })
    };
    let follow = |mut feed: Subscription, mut position: u64, pause: bool| {
        std::thread::spawn(move || loop {
            match feed.next_timeout(Duration::from_secs(60)) {
                Ok(Some(Feed::Events(events))) => {
                    for event in events.iter() {
                        // Every revision has one event in this range: none missing, none twice.
                        assert_eq!(event.revision.get(), position + 1);
                        position += 1;
                        if event.key == "last" {
                            return true;
                        }
                    }
                    if pause {
                        std::thread::park_timeout(Duration::from_millis(3));
                    }
                }
                Ok(other) => panic!("{other:?} at {position}"),
                Err(Error::Compacted { requested, oldest }) => {
                    assert!(requested < oldest);
                    return false;
                }
                Err(error) => panic!("{error}"),
            }
        })
    };
    let followers: Vec<_> = (0..8)
        .map(|n| {
            let latest = engine.current_revision();
            let feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(latest).previous(n % 2 == 0));
            follow(feed.unwrap(), latest.get(), n % 4 != 0)
        })
        .collect();
    let last = writer.join().unwrap();
    for follower in followers {
        follower.join().unwrap();
    }
    // One that starts at the floor gets the rest, whatever the others did.
    let floor = engine.compacted_revision();
    assert_eq!(replay(&engine, &KeyRange::all(), floor.get()).len() as u64, last.get() - floor.get());
}

#[test]
fn the_delete_event_next_to_the_floor_is_there() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    let created = put(&engine, "key", "value");
    let deleted = engine.transact(Transaction::new().delete("key")).wait().unwrap().revision;
    put(&engine, "other", "value");
    // The floor is the revision before the delete: the delete must be delivered, with the deleted record.
    engine.compact(created).unwrap();
    engine.wait_compacted().unwrap();
    let delivered = replay(&engine, &KeyRange::key("key"), created.get());
    assert_eq!(delivered.len(), 1);
    let (at, (_, new, old)) = &delivered[0];
    assert_eq!(
        (*at, new.is_none(), old.as_ref().unwrap().value.as_slice()),
        (deleted.get(), true, &b"value"[..])
    );
    // The floor is the delete itself: the key is gone, and no feed may start before it.
    engine.compact(deleted).unwrap();
    engine.wait_compacted().unwrap();
    assert_eq!(engine.get(b"key", At::Exact(deleted)).unwrap(), None);
    assert!(matches!(
        engine.subscribe(Subscribe::new(KeyRange::all()).after(created)),
        Err(Error::Compacted { .. })
    ));
    assert!(replay(&engine, &KeyRange::key("key"), deleted.get()).is_empty());
    // Created again, the key has a new create revision.
    put(&engine, "key", "again");
    assert_eq!(engine.get(b"key", At::Exact(deleted)).unwrap(), None);
    assert_eq!(engine.get(b"key", At::Latest).unwrap().unwrap().version, 1);
}

#[test]
fn a_snapshot_outlives_compaction_and_no_new_one_is_below_it() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    for n in 0..200 {
        put(&engine, &format!("k{}", n % 10), &n.to_string());
    }
    let old = Revision::new(100);
    let snapshot = engine.snapshot(At::Exact(old)).unwrap();
    let mut range = snapshot.range(&KeyRange::all());
    assert_eq!(range.next().unwrap().unwrap().value, b"90");
    engine.transact(Transaction::new().delete("k5")).wait().unwrap();
    engine.compact(engine.current_revision()).unwrap();
    engine.wait_compacted().unwrap();
    let mut values = vec![];
    while let Some(entry) = range.next().unwrap() {
        values.push(String::from_utf8(entry.value.to_vec()).unwrap());
    }
    assert_eq!(values, ["91", "92", "93", "94", "95", "96", "97", "98", "99"]);
    assert_eq!(snapshot.get(b"k5").unwrap().unwrap().value, "95");
    assert_eq!(snapshot.count(&KeyRange::all()).unwrap(), 10);
    assert!(matches!(engine.snapshot(At::Exact(old)), Err(Error::Compacted { .. })));
    assert!(matches!(engine.get(b"k1", At::Exact(old)), Err(Error::Compacted { .. })));
}

#[test]
fn a_future_feed_gets_nothing_early() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    put(&engine, "key", "1");
    let mut feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(Revision::new(4))).unwrap();
    feed.request_progress();
    for value in ["2", "3"] {
        put(&engine, "key", value);
        assert!(feed.try_next().unwrap().is_none(), "neither events nor progress below the start");
    }
    let fourth = put(&engine, "key", "4");
    assert!(matches!(feed.try_next(), Ok(Some(Feed::Progress(at))) if at == fourth));
    let fifth = put(&engine, "key", "5");
    assert_eq!(fifth.get(), 5);
    let Some(Feed::Events(events)) = feed.try_next().unwrap() else { panic!("no events") };
    assert_eq!((events.len(), events[0].revision), (1, fifth));
}

#[test]
fn of_many_creates_one_wins() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    for round in 0..50 {
        let key = format!("key{round}");
        let proposals: Vec<_> = (0..8)
            .map(|n: u32| {
                let create = Transaction::new().require(Condition::Absent(key.clone().into()));
                engine.transact(create.put(key.clone(), n.to_string()))
            })
            .collect();
        let outcomes: Vec<_> = proposals.into_iter().map(plinth_engine::Proposal::wait).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        for outcome in outcomes {
            if let Err(error) = outcome {
                assert!(
                    matches!(error, Error::Conflict { current: Some(current), .. } if current.value == "0")
                );
            }
        }
    }
}

#[test]
fn dropped_subscriptions_leave_nothing() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    let subscriptions: Vec<_> = (0..2000)
        .map(|n| engine.subscribe(Subscribe::new(KeyRange::prefix(format!("k{}/", n % 700)))).unwrap())
        .collect();
    assert_eq!(engine.stats().subscribers, 2000);
    drop(subscriptions);
    assert_eq!(engine.stats().subscribers, 0);
    assert_eq!(engine.stats().range_feeds, 0);
    put(&engine, "k1/x", "value");
}

/// What a client did, and when: start and end by a clock that all clients share.
struct Observation {
    called: u64,
    returned: u64,
    what: Seen,
}

enum Seen {
    /// The transaction took this revision and wrote this key.
    Wrote(usize, u64),
    /// The key was last written at this revision (0: absent).
    Read(usize, u64),
    /// The whole state was that of this revision.
    Listed(u64),
}

/// Checks concurrent histories. Each write has its place in the one order of all writes, so linearizability
/// comes down to this: the order agrees with real time, and what a read saw lies between the states when it
/// was called and when it returned.
#[test]
fn histories_are_linearizable() {
    const KEYS: [&str; 3] = ["x", "y", "z"];
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..6u64)
        .map(|client| {
            let (engine, clock) = (engine.clone(), Arc::clone(&clock));
            std::thread::spawn(move || {
                let mut random = Random(client);
                let mut observations = Vec::new();
                for _ in 0..scaled(400) {
                    let key = random.below(3) as usize;
                    let called = clock.fetch_add(1, Ordering::SeqCst);
                    let what = match random.below(5) {
                        0 | 1 => {
                            let written = engine.transact(Transaction::new().put(KEYS[key], "blind")).wait();
                            Seen::Wrote(key, written.unwrap().revision.get())
                        }
                        2 => {
                            let current = engine.get(KEYS[key].as_bytes(), At::Latest).unwrap();
                            let mut swap = Transaction::new().put(KEYS[key], "swapped");
                            swap = swap.require(match &current {
                                None => Condition::Absent(KEYS[key].into()),
                                Some(record) => Condition::ModRevision {
                                    key: KEYS[key].into(),
                                    revision: record.mod_revision,
                                },
                            });
                            match engine.transact(swap).wait() {
                                Ok(written) => {
                                    let commit = written.commit.unwrap();
                                    let previous = commit.events[0].previous.as_ref();
                                    assert_eq!(
                                        previous.map(|p| p.mod_revision),
                                        current.map(|c| c.mod_revision),
                                        "a swap replaces what it was based on"
                                    );
                                    Seen::Wrote(key, written.revision.get())
                                }
                                Err(Error::Conflict { current, .. }) => {
                                    Seen::Read(key, current.map_or(0, |record| record.mod_revision.get()))
                                }
                                Err(error) => panic!("{error}"),
                            }
                        }
                        3 => {
                            let read = engine.get(KEYS[key].as_bytes(), At::Latest).unwrap();
                            Seen::Read(key, read.map_or(0, |record| record.mod_revision.get()))
                        }
                        _ => Seen::Listed(engine.snapshot(At::Latest).unwrap().revision().get()),
                    };
                    let returned = clock.fetch_add(1, Ordering::SeqCst);
                    observations.push(Observation { called, returned, what });
                }
                observations
            })
        })
        .collect();
    let observations: Vec<Observation> =
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect();

    // Which key each revision wrote, and the last write of a key at or before a revision.
    let mut written: BTreeMap<u64, usize> = BTreeMap::new();
    for observation in &observations {
        if let Seen::Wrote(key, revision) = observation.what {
            assert!(written.insert(revision, key).is_none(), "two writes at revision {revision}");
        }
    }
    assert_eq!(written.len() as u64, engine.current_revision().get());
    let next_of_key = |key: usize, after: u64| {
        written.range(after + 1..).find(|(_, k)| **k == key).map_or(u64::MAX, |(revision, _)| *revision)
    };
    // In the order of their calls: the newest revision that must be visible to a call is the newest
    // that any observation which returned before it proves.
    let mut by_call: Vec<&Observation> = observations.iter().collect();
    by_call.sort_by_key(|observation| observation.called);
    let mut by_return: Vec<&Observation> = observations.iter().collect();
    by_return.sort_by_key(|observation| observation.returned);
    let mut returned = by_return.into_iter().peekable();
    let mut proven = 0;
    for observation in by_call {
        while let Some(before) = returned.next_if(|before| before.returned < observation.called) {
            let (Seen::Wrote(_, at) | Seen::Read(_, at) | Seen::Listed(at)) = before.what;
            proven = proven.max(at);
        }
        match observation.what {
            Seen::Wrote(_, at) => assert!(at > proven, "write {at} after {proven} was seen"),
            Seen::Listed(at) => assert!(at >= proven, "list at {at} after {proven} was seen"),
            Seen::Read(key, at) => {
                assert!(next_of_key(key, at) > proven, "read {at} of {} after {proven} was seen", KEYS[key]);
            }
        }
    }
    // Nothing was seen before it was proposed.
    for observation in &observations {
        let (Seen::Read(_, at) | Seen::Listed(at)) = observation.what else { continue };
        let wrote = observations.iter().find(|o| matches!(o.what, Seen::Wrote(_, r) if r == at));
        assert!(at == 0 || wrote.is_some_and(|wrote| wrote.called < observation.returned));
    }
    assert_eq!(dump(&engine, &KeyRange::all(), At::Latest).len(), 3);
}

/// Two compactions at once: the floor on disk is the higher one, or reads below it would find history
/// that is gone after the next start.
#[test]
fn the_stored_floor_does_not_go_back() {
    let dir = scratch();
    for _ in 0..scaled(25) {
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for n in 0..8u8 {
            engine.transact(Transaction::new().put("key", vec![n])).wait().unwrap();
        }
        let latest = engine.current_revision();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for back in 0..4 {
                let (engine, start) = (&engine, &start);
                scope.spawn(move || {
                    start.wait();
                    engine.compact(Revision::new(latest.get() - back)).unwrap();
                });
            }
        });
        engine.wait_compacted().unwrap();
        drop(engine);
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        assert_eq!(engine.compacted_revision(), latest);
    }
}

/// A subscriber reads the past from disk, slowly: here its own wake-up blocks the thread that reads. Live
/// subscribers, so many that the writer does not wake them itself, are woken nonetheless.
#[test]
fn a_slow_reader_of_the_past_delays_no_live_subscriber() {
    use parking_lot::Mutex;
    use std::sync::mpsc::{channel, Receiver, Sender};
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Blocks(Sender<()>, Mutex<Receiver<()>>);
    impl Wake for Blocks {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
            // An error: the test has ended.
            let _ = self.1.lock().recv();
        }
    }
    struct Counts(Sender<()>);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path()).event_ring_bytes(1)).unwrap();
    for n in 0..3u8 {
        engine.transact(Transaction::new().put("key", vec![n])).wait().unwrap();
    }
    let (reading, blocked) = channel();
    let (release, released) = channel();
    let slow = Waker::from(Arc::new(Blocks(reading, Mutex::new(released))));
    // A read that completes before its first poll returns wakes no one: then the next one is tried.
    let mut behind = Vec::new();
    loop {
        let mut feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(Revision::ZERO)).unwrap();
        let waits = feed.poll_next(&mut Context::from_waker(&slow)).is_pending();
        behind.push(feed);
        if waits {
            break;
        }
    }
    blocked.recv().unwrap();

    let (woken, wakes) = channel();
    let counts = Waker::from(Arc::new(Counts(woken)));
    let mut live: Vec<_> =
        (0..100).map(|_| engine.subscribe(Subscribe::new(KeyRange::all())).unwrap()).collect();
    for subscription in &mut live {
        assert!(matches!(subscription.poll_next(&mut Context::from_waker(&counts)), Poll::Pending));
    }
    engine.transact(Transaction::new().put("key", "now")).wait().unwrap();
    for _ in &live {
        wakes.recv_timeout(Duration::from_secs(60)).expect("a live subscriber is woken");
    }
    release.send(()).unwrap();
}
