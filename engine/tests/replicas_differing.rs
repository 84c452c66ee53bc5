//! Replicas whose stores differ: the one that is alone stops, whoever proposes first, and the others go on.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{copy_dir, dump, eventually, put, scratch, wait_until_equal};
use plinth_engine::{replicate, At, Engine, Failure, KeyRange, Options, Replica, Revision, Transaction};
use plinth_journal::record::{Anchor, Body, ClusterId, Hash, Record, ReplicaId, Session};
use plinth_journal::simulated::SimulatedJournal;

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

fn open_for(dir: &tempfile::TempDir, journal: &SimulatedJournal, id: u16, timeout: Duration) -> Engine {
    let replica = Replica { journal: Arc::new(journal.client(id)), cluster: CLUSTER, id: ReplicaId(id) };
    Engine::open_replicated(Options::new(dir.path()).agreement_timeout(timeout), replica).unwrap()
}

/// Undecided differences stay so for longer than the test waits.
fn open(dir: &tempfile::TempDir, journal: &SimulatedJournal, id: u16) -> Engine {
    open_for(dir, journal, id, Duration::from_secs(3600))
}

fn barrier(engine: &Engine) -> Revision {
    engine.read_barrier().wait_until(Instant::now() + Duration::from_secs(60)).expect("in time").unwrap()
}

/// Directories of replicas of one cluster, of which the last one holds something else.
fn directories<const N: usize>() -> [tempfile::TempDir; N] {
    let found = |key| {
        let dir = scratch();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        put(&engine, key, b"1");
        engine.close().unwrap();
        drop(engine);
        replicate(Options::new(dir.path()), CLUSTER).unwrap();
        dir
    };
    let sound = found("right");
    let copies = (2..N).map(|_| {
        let dir = scratch();
        copy_dir(sound.path(), dir.path());
        dir
    });
    let mut all: Vec<_> = copies.collect();
    all.push(found("wrong"));
    all.insert(0, sound);
    all.try_into().unwrap()
}

fn is_diverged(engine: &Engine) -> bool {
    matches!(engine.failure(), Some(Failure::Diverged { .. }))
}

/// The first two go on and are equal.
fn check_right(engines: &[Engine]) {
    for (n, engine) in engines.iter().enumerate() {
        put(engine, &format!("after/{n}"), b"2");
    }
    for engine in engines {
        barrier(engine);
    }
    wait_until_equal(&engines[0], &engines[1]);
    let [first, second] = [0, 1].map(|n| dump(&engines[n], &KeyRange::all(), At::Latest));
    assert_eq!(first, second);
    assert!(engines.iter().all(|engine| engine.failure().is_none()));
}

#[test]
fn the_one_that_is_alone_stops_whoever_proposes_first() {
    for proposer in 0..3 {
        let (journal, dirs) = (SimulatedJournal::new(1), directories::<3>());
        let open = |n: usize| open(&dirs[n], &journal, n as u16 + 1);
        let mut engines: Vec<Engine> = (0..3).map(open).collect();
        // It may stop before it has answered: others may have found the difference by then.
        let first = engines[proposer].transact(Transaction::new().put("key", "1")).wait();
        assert!(first.is_ok() || proposer == 2, "{first:?}");
        // That there is a difference is in the second record of a replica whose first has begun its session.
        eventually("it stops", || {
            drop(engines[proposer].transact(Transaction::new().put("key", "2")));
            is_diverged(&engines[2])
        });
        check_right(&engines[..2]);
        // Started again, it begins with what it has, and so does one of the others.
        drop(engines.pop());
        drop(engines.remove(0));
        engines.insert(0, open(0));
        let again = open(2);
        eventually("it stops again", || {
            // A quiet cluster: somebody has to propose.
            drop(again.transact(Transaction::new().put("key", "3")));
            is_diverged(&again)
        });
        check_right(&engines);
    }
}

#[test]
fn a_replica_that_is_wrong_does_not_stop_one_that_starts() {
    let (journal, dirs) = (SimulatedJournal::new(1), directories::<3>());
    let wrong = open(&dirs[2], &journal, 3);
    put(&wrong, "key", b"1");
    put(&wrong, "key", b"2");
    wrong.close().unwrap();
    drop(wrong);
    // Its records are in the journal before anybody else has said anything.
    let engines: Vec<Engine> = (0..2).map(|n| open(&dirs[n], &journal, n as u16 + 1)).collect();
    check_right(&engines);
}

#[test]
fn of_two_both_stop() {
    let (journal, dirs) = (SimulatedJournal::new(1), directories::<2>());
    let engines = [0, 1].map(|n| open_for(&dirs[n], &journal, n as u16 + 1, Duration::from_millis(200)));
    put(&engines[0], "key", b"1");
    for engine in &engines {
        eventually("it stops", || {
            drop(engine.transact(Transaction::new().put("key", "2")));
            is_diverged(engine)
        });
    }
}

#[test]
fn a_single_replica_stops_at_the_record_of_one_that_has_another_hash() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let engine = open_for(&dir, &journal, 1, Duration::ZERO);
    put(&engine, "key", b"1");
    let anchor = Anchor { hash: Hash([1; 16]), ..Anchor::default() };
    let (replica, session) = (ReplicaId(77), Session(5));
    let body = Body::Level(1);
    journal
        .push(Record { cluster: CLUSTER, replica, session, sequence: 1, clock_ms: 1, anchor, body }.encode());
    eventually("it stops", || engine.failure().is_some());
    let failure = engine.failure().unwrap();
    assert!(matches!(failure, Failure::Diverged { replica: ReplicaId(77), .. }), "{failure}");
    assert_eq!(engine.get(b"key", At::Latest).unwrap().unwrap().value, "1", "reads go on");
}
