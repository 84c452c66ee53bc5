//! Replicas over a simulated journal, with their threads: what callers are promised, and what is refused.
//! Schedules of failures are in `replicas_simulated`.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{dump, eventually, is_there, put, replay, scratch, wait_until_equal, Clocks};
use plinth_engine::{
    At, Clock, Condition, Continuation, Engine, Error, Failure, KeyRange, Options, Replica, Revision,
    Transaction,
};
use plinth_journal::record::{Anchor, Body, ClusterId, Record, ReplicaId, Session, VERSION};
use plinth_journal::simulated::{FailureRates, SimulatedJournal};
use plinth_journal::{Error as JournalError, Journal, Position, Reader};

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

fn replica(journal: &SimulatedJournal, id: u16) -> Replica {
    Replica { journal: Arc::new(journal.client(id)), cluster: CLUSTER, id: ReplicaId(id) }
}

fn open(dir: &tempfile::TempDir, journal: &SimulatedJournal, id: u16) -> Engine {
    Engine::open_replicated(Options::new(dir.path()), replica(journal, id)).unwrap()
}

fn barrier(engine: &Engine) -> Revision {
    engine.read_barrier().wait_until(Instant::now() + Duration::from_secs(60)).expect("in time").unwrap()
}

/// A record that only a test appends.
fn record(cluster: ClusterId, anchor: Anchor, body: Body) -> Bytes {
    let sequence = u64::from(!matches!(body, Body::Session { .. }));
    let (replica, session) = (ReplicaId(77), Session(5));
    Record { cluster, replica, session, sequence, clock_ms: 1, anchor, body }.encode()
}

fn session(cluster: ClusterId) -> Bytes {
    record(cluster, Anchor::default(), Body::Session { replaces: None })
}

#[test]
fn what_one_replica_commits_all_have() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch(), scratch()]);
    let engines = [1, 2, 3].map(|id| open(&dirs[usize::from(id) - 1], &journal, id));
    let first = put(&engines[0], "a", b"1");
    barrier(&engines[1]);
    let record = engines[1].get(b"a", At::Latest).unwrap().unwrap();
    assert_eq!((record.mod_revision, &record.value[..]), (first, &b"1"[..]));
    let change = |engine: &Engine, value: &'static str| {
        let condition = Condition::ModRevision { key: "a".into(), revision: first };
        engine.transact(Transaction::new().require(condition).put("a", value)).wait()
    };
    let second = change(&engines[1], "2").unwrap();
    let refused = change(&engines[2], "3").unwrap_err();
    assert!(matches!(refused, Error::Conflict { current: Some(current), .. } if current.value == "2"));
    engines[0].transact(Transaction::new().delete("a")).wait().unwrap();
    for engine in &engines {
        barrier(engine);
        assert!(!is_there(engine, "a"));
        assert_eq!(engine.get(b"a", At::Exact(second.revision)).unwrap().unwrap().value, "2");
        assert_eq!(replay(engine, &KeyRange::all(), 0), replay(&engines[0], &KeyRange::all(), 0));
        wait_until_equal(engine, &engines[0]);
    }
}

#[test]
fn counters_of_many_clients_lose_nothing_in_a_bad_network() {
    const CLIENTS: usize = 12;
    const ROUNDS: u64 = 15;
    let (journal, dirs) = (SimulatedJournal::new(7), [scratch(), scratch(), scratch()]);
    let engines = [1, 2, 3].map(|id| open(&dirs[usize::from(id) - 1], &journal, id));
    journal.set_failures(FailureRates { latency: Duration::from_micros(300), ..FailureRates::all() });
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let engine = &engines[client % 3];
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    loop {
                        let found = engine.get(b"counter", At::Latest).unwrap();
                        let transaction = match &found {
                            None => Transaction::new().require(Condition::Absent("counter".into())),
                            Some(record) => Transaction::new().require(Condition::ModRevision {
                                key: "counter".into(),
                                revision: record.mod_revision,
                            }),
                        };
                        let count = found
                            .map_or(0, |record| u64::from_le_bytes(record.value[..].try_into().unwrap()));
                        match engine
                            .transact(transaction.put("counter", (count + 1).to_le_bytes().to_vec()))
                            .wait()
                        {
                            Ok(_) => break,
                            // Its record may have been there, and is void: it never counts.
                            Err(Error::Conflict { .. } | Error::TooLarge { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    journal.heal();
    for engine in &engines {
        barrier(engine);
        let record = engine.get(b"counter", At::Latest).unwrap().unwrap();
        assert_eq!(record.value[..], (CLIENTS as u64 * ROUNDS).to_le_bytes());
        wait_until_equal(engine, &engines[0]);
    }
}

#[test]
fn what_was_certainly_not_appended_can_be_withdrawn() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let engines = [open(&dirs[0], &journal, 1), open(&dirs[1], &journal, 2)];
    put(&engines[0], "before", b"");
    journal.set_reachable(1, false);
    // The first is tried again and again, the others wait behind it.
    let proposals: Vec<_> = ["a", "b", "c", "d"]
        .map(|key| engines[0].transact(Transaction::new().put(key, "")))
        .into_iter()
        .collect();
    eventually("the journal is missed", || engines[0].journal_silence().is_some());
    let mut kept = Vec::new();
    for (n, proposal) in proposals.into_iter().enumerate() {
        if n % 2 == 0 {
            // Not at a moment when an append is tried.
            let mut proposal = proposal;
            eventually("it can be withdrawn", || proposal.withdraw());
        } else {
            kept.push(proposal);
        }
    }
    journal.heal();
    kept.into_iter().for_each(|proposal| drop(proposal.wait().unwrap()));
    for engine in &engines {
        barrier(engine);
        assert_eq!(["a", "b", "c", "d"].map(|key| is_there(engine, key)), [false, true, false, true]);
    }
}

#[test]
fn what_may_have_been_appended_cannot_be_withdrawn() {
    let (journal, dir) = (SimulatedJournal::new(3), scratch());
    let engine = open(&dir, &journal, 1);
    put(&engine, "before", b"");
    // Every answer is lost.
    journal.set_failures(FailureRates { lost_answers: 1000, ..FailureRates::default() });
    let mut proposal = engine.transact(Transaction::new().put("key", ""));
    eventually("it is applied all the same", || is_there(&engine, "key"));
    assert!(!proposal.withdraw());
}

#[test]
fn a_replica_goes_on_where_it_was() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let (mut first, second) = (open(&dirs[0], &journal, 1), open(&dirs[1], &journal, 2));
    for round in 0..3u8 {
        put(&first, "key", &[round]);
        first.close().unwrap();
        drop(first);
        put(&second, "other", &[round]);
        first = open(&dirs[0], &journal, 1);
        barrier(&first);
        assert_eq!(first.get(b"other", At::Latest).unwrap().unwrap().value[..], [round]);
    }
    assert_eq!(first.current_revision(), Revision::new(6));
    let all = |engine: &Engine| dump(engine, &KeyRange::all(), At::Latest);
    assert_eq!(all(&first), all(&second));
    first.close().unwrap();
    drop(first);
    common::assert_sound(dirs[0].path());
}

#[test]
fn history_is_compacted_on_all_replicas() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let engines = [open(&dirs[0], &journal, 1), open(&dirs[1], &journal, 2)];
    for n in 0..20u8 {
        put(&engines[usize::from(n) % 2], "key", &[n]);
    }
    engines[0].transact(Transaction::new().delete("key")).wait().unwrap();
    let floor = engines[0].current_revision();
    engines[0].compact(floor).unwrap();
    put(&engines[1], "key", b"new");
    for engine in &engines {
        barrier(engine);
        engine.wait_compacted().unwrap();
        assert_eq!(engine.compacted_revision(), floor);
        assert!(matches!(engine.get(b"key", At::Exact(floor.previous())), Err(Error::Compacted { .. })));
        wait_until_equal(engine, &engines[0]);
    }
}

#[test]
fn keys_expire_once_whoever_notices() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let engines = [open(&dirs[0], &journal, 1), open(&dirs[1], &journal, 2)];
    let ttl = Duration::from_millis(30);
    engines[0].transact(Transaction::new().put_expiring("key", "value", ttl)).wait().unwrap();
    for engine in &engines {
        eventually("the key expires", || engine.current_revision() >= Revision::new(2));
        assert!(!is_there(engine, "key"));
    }
    put(&engines[1], "after", b"");
    assert_eq!(engines[1].current_revision(), Revision::new(3), "a second delete changes nothing");
}

/// What a replica with a fast clock has set, and what was set while it led, passes after it has gone: by the
/// clocks of the others it would stand for as long as its clock was ahead.
#[test]
fn deadlines_pass_after_a_replica_with_a_fast_clock_has_gone() {
    const NOW: u64 = 1_700_000_000;
    const HOUR: u64 = 3600;
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let clocks = [Clocks::at(NOW), Clocks::at(NOW + 365 * 24 * HOUR)];
    let mut engines = [0, 1].map(|n| {
        let options = Options::new(dirs[n].path()).clock(Arc::clone(&clocks[n]) as Arc<dyn Clock>);
        Some(Engine::open_replicated(options, replica(&journal, n as u16 + 1)).unwrap())
    });
    let set = |engine: &Engine, key: &str, seconds| {
        let ttl = Duration::from_secs(seconds);
        engine.transact(Transaction::new().put_expiring(key.to_owned(), "", ttl)).wait().unwrap();
    };
    let fast = engines[1].take().unwrap();
    set(&fast, "of the fast one", HOUR);
    let right = engines[0].as_ref().unwrap();
    barrier(right);
    set(right, "of the right one", HOUR);
    fast.close().unwrap();
    for (seconds, remain) in [(HOUR * 9 / 10, true), (HOUR / 5, false)] {
        clocks[0].pass(seconds);
        // Wakes the thread that looks at deadlines, and shows that it has.
        set(right, "second", 1);
        clocks[0].pass(3);
        set(right, "wake", 1);
        eventually("what is due expires", || !is_there(right, "second"));
        for key in ["of the fast one", "of the right one"] {
            eventually("the deadline passes", || is_there(right, key) == remain);
        }
    }
}

#[test]
fn without_its_journal_a_replica_reads_and_writes_wait() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let engine = open(&dir, &journal, 1);
    put(&engine, "key", b"value");
    engine.close().unwrap();
    drop(engine);
    journal.set_reachable(1, false);
    let engine = open(&dir, &journal, 1);
    assert!(is_there(&engine, "key"));
    assert!(engine.read_barrier().wait_until(Instant::now() + Duration::from_millis(100)).is_none());
    let waiting = engine.transact(Transaction::new().put("key", "later"));
    journal.set_reachable(1, true);
    assert_eq!(waiting.wait().unwrap().revision, Revision::new(2));
    journal.set_reachable(1, false);
    let lost = engine.transact(Transaction::new().put("key", "never"));
    engine.close().unwrap();
    assert!(matches!(lost.wait(), Err(Error::OutcomeUnknown { .. } | Error::Closed)));
}

/// Counts how often the end is asked for.
struct Counting(Replica, AtomicU64);

impl Journal for Counting {
    fn append(&self, record: Bytes) -> plinth_journal::Result<Position> {
        self.0.journal.append(record)
    }
    fn read(&self, from: Position) -> plinth_journal::Result<Box<dyn Reader>> {
        self.0.journal.read(from)
    }
    fn end(&self) -> plinth_journal::Result<Position> {
        self.1.fetch_add(1, Ordering::SeqCst);
        std::thread::park_timeout(Duration::from_millis(20));
        self.0.journal.end()
    }
    fn trim(&self, before: Position) -> plinth_journal::Result<()> {
        self.0.journal.trim(before)
    }
    fn max_record_bytes(&self) -> usize {
        self.0.journal.max_record_bytes()
    }
}

#[test]
fn readers_of_the_most_recent_state_share_one_question() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let counting = Arc::new(Counting(replica(&journal, 1), AtomicU64::new(0)));
    let replica = Replica { journal: Arc::clone(&counting) as Arc<dyn Journal>, ..replica(&journal, 1) };
    let engine = Engine::open_replicated(Options::new(dir.path()), replica).unwrap();
    let before = counting.1.load(Ordering::SeqCst);
    let barriers: Vec<_> = (0..1000).map(|_| engine.read_barrier()).collect();
    for barrier in barriers {
        barrier.wait_until(Instant::now() + Duration::from_secs(60)).unwrap().unwrap();
    }
    let asked = counting.1.load(Ordering::SeqCst) - before;
    assert!(asked <= 3, "asked {asked} times for a thousand readers");
}

#[test]
fn groups_keep_to_the_size_that_the_journal_takes() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    journal.set_max_record_bytes(4000);
    let engine = open(&dir, &journal, 1);
    let proposals: Vec<_> = (0..100)
        .map(|n| engine.transact(Transaction::new().put(format!("key/{n}"), vec![0; 1000])))
        .collect();
    let too_large = engine.transact(Transaction::new().put("large", vec![0; 5000])).wait();
    assert!(matches!(too_large, Err(Error::TooLarge { what: "transaction", .. })));
    for proposal in proposals {
        proposal.wait().unwrap();
    }
    assert!(journal.records().iter().all(|record| record.len() <= 4000));
}

/// Opens a directory as a replica, which is refused; nothing may have been written.
fn refused(dir: &tempfile::TempDir, journal: &SimulatedJournal) -> Error {
    let records = journal.records();
    let before = std::fs::read_dir(dir.path()).unwrap().count();
    let refused = Engine::open_replicated(Options::new(dir.path()), replica(journal, 1));
    let error = refused.err().expect("it is refused");
    assert_eq!(journal.records(), records);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), before);
    error
}

#[test]
fn a_new_replica_refuses_a_journal_that_it_cannot_follow() {
    let other = ClusterId([9; 16]);
    let damaged = {
        let mut bytes = session(CLUSTER).to_vec();
        bytes[50] ^= 4;
        Bytes::from(bytes)
    };
    for (record, expected) in [
        (session(other), "of cluster 0909"),
        (damaged, "position 1 of the journal is damaged"),
        (Bytes::from("something else"), "is damaged"),
    ] {
        let (journal, dir) = (SimulatedJournal::new(1), scratch());
        journal.push(record);
        let error = refused(&dir, &journal).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    journal.push(session(CLUSTER));
    journal.push(session(CLUSTER));
    journal.lose(Position::new(1));
    let error = refused(&dir, &journal);
    assert!(matches!(error, Error::Journal { source: JournalError::Gap { .. } }), "{error}");
    journal.client(1).trim(Position::new(2)).unwrap();
    let error = refused(&dir, &journal);
    assert!(matches!(error, Error::Journal { source: JournalError::Trimmed { .. } }), "{error}");
}

#[test]
fn a_directory_is_opened_with_its_own_journal_only() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let engine = open(&dir, &journal, 1);
    put(&engine, "key", b"value");
    engine.close().unwrap();
    drop(engine);
    assert!(matches!(Engine::open(Options::new(dir.path())), Err(Error::Replica { .. })));
    let lost = SimulatedJournal::new(2);
    let error = refused(&dir, &lost);
    assert!(matches!(error, Error::Journal { source: JournalError::Behind { .. } }), "{error}");
    let elsewhere = Replica { cluster: ClusterId([9; 16]), ..replica(&journal, 1) };
    let error = Engine::open_replicated(Options::new(dir.path()), elsewhere).err().unwrap();
    assert!(matches!(error, Error::NotReplica { .. }), "{error}");
    let single = scratch();
    put(&Engine::open(Options::new(single.path())).unwrap(), "key", b"value");
    let error = Engine::open_replicated(Options::new(single.path()), replica(&journal, 1)).err().unwrap();
    assert!(matches!(error, Error::NotReplica { .. }), "{error}");
    assert!(is_there(&open(&dir, &journal, 1), "key"), "nothing of this has changed it");
}

#[test]
fn a_running_replica_stops_before_what_it_cannot_apply() {
    type Check = fn(&Failure) -> bool;
    let stops: [(Bytes, Check); 3] = [
        (Bytes::from("damage"), |f| matches!(f, Failure::Journal { error: JournalError::Damaged { .. } })),
        (session(ClusterId([9; 16])), |f| {
            matches!(f, Failure::Journal { error: JournalError::OtherCluster { .. } })
        }),
        (record(CLUSTER, Anchor::default(), Body::Level(VERSION + 1)), |f| {
            matches!(f, Failure::Journal { error: JournalError::Version { .. } })
        }),
    ];
    for (record, expected) in stops {
        let (journal, dir) = (SimulatedJournal::new(1), scratch());
        let engine = open(&dir, &journal, 1);
        let revision = put(&engine, "key", b"value");
        // The status follows the answer.
        eventually("it is noted", || {
            engine.replica_status().is_some_and(|status| status.revision == revision)
        });
        let before = engine.replica_status();
        journal.push(record);
        eventually("it stops", || engine.failure().is_some());
        let failure = engine.failure().unwrap();
        assert!(expected(&failure), "{failure}");
        assert_eq!((engine.replica_status(), engine.current_revision()), (before, revision));
        let refused = engine.transact(Transaction::new().put("key", "more")).wait();
        assert!(matches!(refused, Err(Error::Poisoned { .. } | Error::OutcomeUnknown { .. })));
        assert!(is_there(&engine, "key"), "reads go on");
        let barrier = engine.read_barrier().wait_until(Instant::now() + Duration::from_secs(60));
        assert!(matches!(barrier, Some(Err(Error::Poisoned { .. }))));
    }
}

#[test]
fn a_second_process_with_the_same_id_is_noticed() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let first = open(&dirs[0], &journal, 1);
    put(&first, "key", b"first");
    let second = open(&dirs[1], &journal, 1);
    put(&second, "key", b"second");
    eventually("the first stops", || first.failure().is_some());
    assert_eq!(first.failure(), Some(Failure::Superseded { replica: ReplicaId(1) }));
    put(&second, "key", b"third");
}

#[test]
fn a_replica_begins_from_a_checkpoint_of_another() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let first = open(&dirs[0], &journal, 1);
    for n in 0..10u8 {
        put(&first, "key", &[n]);
    }
    first.checkpoint(dirs[1].path().join("copy")).unwrap();
    let position = first.sync_applied().unwrap().unwrap();
    journal.client(1).trim(position.next()).unwrap();
    put(&first, "key", b"after the checkpoint");
    // It is whole: nothing is missing, and what it holds is marked.
    let copy = Options::new(dirs[1].path().join("copy")).on_warning(|warning| panic!("{warning}"));
    let second = Engine::open_replicated(copy, replica(&journal, 2)).unwrap();
    barrier(&first);
    barrier(&second);
    wait_until_equal(&second, &first);
    put(&second, "other", b"");
    barrier(&first);
    assert!(is_there(&first, "other"));
}

#[test]
fn a_single_store_becomes_the_first_replica() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let single = Engine::open(Options::new(dirs[0].path())).unwrap();
    let old = put(&single, "old", b"1");
    put(&single, "old", b"2");
    let refused = plinth_engine::replicate(Options::new(dirs[0].path()), CLUSTER).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    single.close().unwrap();
    drop(single);
    for _ in 0..2 {
        plinth_engine::replicate(Options::new(dirs[0].path()), CLUSTER).unwrap();
    }
    let other = ClusterId(*b"another of eight");
    let refused = plinth_engine::replicate(Options::new(dirs[0].path()), other).unwrap_err();
    assert!(matches!(refused, Error::NotReplica { .. }), "{refused}");
    let refused = Engine::open(Options::new(dirs[0].path())).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Replica { .. }), "{refused}");
    let first = open(&dirs[0], &journal, 1);
    assert_eq!(first.get(b"old", At::Exact(old)).unwrap().unwrap().value, "1");
    assert_eq!(put(&first, "new", b"3"), Revision::new(old.get() + 2));
    first.checkpoint(dirs[1].path().join("copy")).unwrap();
    let copy = Options::new(dirs[1].path().join("copy"));
    let second = Engine::open_replicated(copy, replica(&journal, 2)).unwrap();
    put(&second, "newer", b"4");
    barrier(&first);
    barrier(&second);
    wait_until_equal(&second, &first);
    assert_eq!(dump(&second, &KeyRange::all(), At::Latest), dump(&first, &KeyRange::all(), At::Latest));
    // A replica with an empty store is not one of theirs.
    let empty = scratch();
    let stranger = open(&empty, &journal, 3);
    eventually("it stops", || stranger.failure().is_some());
    assert!(matches!(stranger.failure(), Some(Failure::Diverged { .. })));
}

#[test]
fn a_closed_replica_is_read_and_not_written() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let engine = open(&dir, &journal, 1);
    put(&engine, "key", b"value");
    engine.close().unwrap();
    drop(engine);
    let reading = Engine::open(Options::new(dir.path()).read_replica()).unwrap();
    assert!(is_there(&reading, "key"));
    let refused = reading.transact(Transaction::new().put("key", "")).wait().unwrap_err();
    assert!(matches!(refused, Error::Replica { .. }), "{refused}");
    reading.backup(&mut Vec::new(), |_| {}).unwrap();
    reading.close().unwrap();
    drop(reading);
    put(&open(&dir, &journal, 1), "key", b"again");
}

#[test]
fn a_restored_archive_is_a_single_store() {
    let (journal, dir, to) = (SimulatedJournal::new(1), scratch(), scratch());
    let engine = open(&dir, &journal, 1);
    put(&engine, "key", b"value");
    let mut archive = Vec::new();
    engine.backup(&mut archive, |_| {}).unwrap();
    plinth_engine::restore(&mut archive.as_slice(), to.path(), Continuation::Beyond, |_| {}).unwrap();
    assert!(is_there(&Engine::open(Options::new(to.path())).unwrap(), "key"));
}
