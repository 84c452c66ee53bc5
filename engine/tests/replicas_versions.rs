//! Replicas of two versions of the program over a simulated journal: what the level of the cluster decides.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{dump, eventually, is_there, put, scratch};
use plinth_engine::{At, Engine, Error, Failure, KeyRange, Options, Replica, Revision, Transaction};
use plinth_journal::record::{self, Anchor, Body, ClusterId, Record, ReplicaId, Session, VERSION};
use plinth_journal::simulated::SimulatedJournal;
use plinth_journal::{Error as JournalError, Journal};

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

fn replica(journal: &SimulatedJournal, id: u16) -> Replica {
    Replica { journal: Arc::new(journal.client(id)), cluster: CLUSTER, id: ReplicaId(id) }
}

fn barrier(engine: &Engine) -> Revision {
    engine.read_barrier().wait_until(Instant::now() + Duration::from_secs(60)).expect("in time").unwrap()
}

fn versions(journal: &SimulatedJournal) -> Vec<u8> {
    journal.records().iter().map(|bytes| plinth_journal::record::version(bytes).unwrap()).collect()
}

#[test]
fn replicas_of_two_versions_share_a_journal_until_the_level_is_raised() {
    const NEXT: u8 = VERSION + 1;
    let (journal, dirs) = (SimulatedJournal::new(5), [scratch(), scratch(), scratch()]);
    let open_as = |at: usize, newest: u8| {
        let options = Options::new(dirs[at].path());
        Engine::open_replicated_as(options, replica(&journal, at as u16 + 1), newest)
    };
    // Two of the old program, one of the new one, which writes as the others read.
    let [first, second] = [0, 1].map(|at| open_as(at, VERSION).unwrap());
    let third = open_as(2, NEXT).unwrap();
    for (key, engine) in [("a", &first), ("b", &second), ("c", &third)] {
        put(engine, key, b"1");
    }
    for engine in [&first, &second, &third] {
        barrier(engine);
        assert!(is_there(engine, "a") && is_there(engine, "c"));
        assert_eq!(engine.replica_status().unwrap().level, VERSION);
    }
    assert!(versions(&journal).iter().all(|version| *version == VERSION));
    // The old program does not raise the level to what it does not read, and nothing is appended.
    let before = journal.records().len();
    let refused = first.raise_level(NEXT).wait().unwrap_err();
    assert!(matches!(
        refused,
        Error::Journal { source: JournalError::Version { found: NEXT, newest: VERSION, .. } }
    ));
    assert_eq!(journal.records().len(), before);

    // One after the other is upgraded. The last one is left as it is, and stops when the level is raised.
    first.close().unwrap();
    drop(first);
    let first = open_as(0, NEXT).unwrap();
    put(&first, "d", b"1");
    assert!(versions(&journal).iter().all(|version| *version == VERSION));
    let revision = barrier(&second);
    let position = second.replica_status().unwrap().position;
    third.raise_level(NEXT).wait().unwrap();
    // The status follows the answer.
    eventually("it is raised", || third.replica_status().is_some_and(|status| status.level == NEXT));
    eventually("it stops", || second.failure().is_some());
    match second.failure().unwrap() {
        Failure::Journal { error: error @ JournalError::Version { found: NEXT, newest: VERSION, .. } } => {
            let text = error.to_string();
            assert!(text.contains("version 2"), "{text}");
        }
        other => panic!("{other}"),
    }
    // It reads, writes nothing, and has nothing of what it does not know.
    assert!(second.transact(Transaction::new().put("x", "1")).wait().is_err());
    assert!(is_there(&second, "a"));
    assert_eq!(second.current_revision(), revision);
    drop(second);
    let appended = journal.records().len();
    let refused = open_as(1, VERSION).err().unwrap();
    assert!(
        matches!(
            refused,
            Error::Journal { source: JournalError::Version { found: NEXT, newest: VERSION, .. } }
        ),
        "{refused}"
    );
    assert_eq!(journal.records().len(), appended, "its start has appended nothing");

    // From now on records have the new version, whoever proposes, and the upgraded one goes on where it was.
    put(&first, "e", b"1");
    put(&third, "f", b"1");
    let new = versions(&journal).iter().filter(|version| **version == NEXT).count();
    assert_eq!(new, 2);
    let second = open_as(1, NEXT).unwrap();
    assert!(second.replica_status().unwrap().position >= position);
    for engine in [&first, &second, &third] {
        barrier(engine);
        assert!(is_there(engine, "e") && is_there(engine, "f") && !is_there(engine, "x"));
        assert_eq!(dump(engine, &KeyRange::all(), At::Latest), dump(&first, &KeyRange::all(), At::Latest));
    }
    // A lower level changes nothing, and the way back is refused by the store itself.
    first.raise_level(VERSION).wait().unwrap();
    assert_eq!(first.replica_status().unwrap().level, NEXT);
    let end = journal.client(9).end().unwrap();
    eventually("it is applied", || third.replica_status().unwrap().position == end);
    third.close().unwrap();
    drop(third);
    let refused = open_as(2, VERSION).err().unwrap();
    assert!(
        matches!(refused, Error::Journal { source: JournalError::Version { found: NEXT, .. } }),
        "{refused}"
    );
}

fn closed(failure: Option<Failure>) -> Option<ReplicaId> {
    match failure? {
        Failure::Journal { error: JournalError::Closed { replica, .. } } => Some(replica),
        other => panic!("{other}"),
    }
}

#[test]
fn a_closed_journal_stops_those_that_are_up_and_those_that_start_later() {
    let (journal, dirs) = (SimulatedJournal::new(7), [scratch(), scratch(), scratch()]);
    let open =
        |at: usize| Engine::open_replicated(Options::new(dirs[at].path()), replica(&journal, at as u16 + 1));
    let [first, second, third] = [0, 1, 2].map(|at| open(at).unwrap());
    for (key, engine) in [("a", &first), ("b", &second), ("c", &third)] {
        put(engine, key, b"1");
    }
    // One is down meanwhile.
    third.close().unwrap();
    drop(third);
    // A closing record of a session that has ended closes nothing.
    let (cluster, anchor) = (CLUSTER, Anchor::default());
    let body = Body::Level(record::CLOSED);
    let late = Record {
        cluster,
        replica: ReplicaId(1),
        session: Session(1),
        sequence: 9,
        clock_ms: 1,
        anchor,
        body,
    };
    journal.push(late.encode());
    put(&first, "d", b"1");
    let revision = barrier(&second);

    first.close_journal().wait().unwrap();
    let bytes = journal.records().pop().unwrap();
    // Programs that do not know it take it for the level of a later version, and stop before it.
    assert_eq!(record::version(&bytes), Some(1));
    assert!(matches!(Record::decode(bytes).unwrap().body, Body::Level(u8::MAX)));
    eventually("both stop", || first.failure().is_some() && second.failure().is_some());
    for engine in [&first, &second] {
        assert_eq!(closed(engine.failure()), Some(ReplicaId(1)));
        assert!(engine.transact(Transaction::new().put("x", "1")).wait().is_err());
        assert!(is_there(engine, "a") && is_there(engine, "d"));
        assert_eq!(engine.current_revision(), revision);
        assert!(engine.close().is_err());
    }
    drop((first, second));
    // What follows in the journal is applied by nobody, also where it is the next of a session.
    let appended = journal.records().len();
    let third = open(2).unwrap();
    eventually("it stops", || third.failure().is_some());
    assert_eq!(closed(third.failure()), Some(ReplicaId(1)));
    assert!(is_there(&third, "d"));
    assert_eq!(third.current_revision(), revision);
    drop(third);
    let begun = journal.records().len();
    assert!(begun <= appended + 1, "it has begun a session at most");
    for (at, dir) in dirs.iter().enumerate() {
        let refused = open(at).err().unwrap();
        assert!(
            matches!(refused, Error::Journal { source: JournalError::Closed { replica: ReplicaId(1), .. } }),
            "{refused}"
        );
        let (position, by) = plinth_engine::applied_position(dir.path()).unwrap().unwrap();
        assert_eq!((position.get() as usize, by), (appended, Some(ReplicaId(1))));
    }
    assert_eq!(journal.records().len(), begun);
    // As a single store it goes on.
    plinth_engine::unreplicate(Options::new(dirs[0].path())).unwrap();
    assert_eq!(plinth_engine::applied_position(dirs[0].path()).unwrap(), None);
    let single = Engine::open(Options::new(dirs[0].path())).unwrap();
    put(&single, "e", b"1");
    assert!(is_there(&single, "d") && single.current_revision() > revision);
    single.close().unwrap();
}

#[test]
fn a_record_above_the_level_is_applied_by_nobody() {
    let (journal, dir) = (SimulatedJournal::new(6), scratch());
    let engine =
        Engine::open_replicated_as(Options::new(dir.path()), replica(&journal, 1), VERSION + 1).unwrap();
    put(&engine, "a", b"1");
    let body = Body::Session { replaces: None };
    let (replica, session) = (ReplicaId(77), Session(5));
    let anchor = Anchor::default();
    let early = Record { cluster: CLUSTER, replica, session, sequence: 0, clock_ms: 1, anchor, body };
    journal.push(early.encode_as(VERSION + 1));
    eventually("it stops", || engine.failure().is_some());
    let failure = engine.failure().unwrap().to_string();
    assert!(failure.contains("above the level"), "{failure}");
}
