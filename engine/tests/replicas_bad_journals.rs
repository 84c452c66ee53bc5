//! Replicas over journals that do not keep what they promise: that say a record was not appended which was,
//! and that lose records.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{come_to_rest, eventually, is_there, put, scratch, stepped, wait_until_equal};
use parking_lot::Mutex;
use plinth_engine::{Engine, Error, Failure, Options, Replica, Transaction};
use plinth_journal::record::{Body, ClusterId, Record, ReplicaId};
use plinth_journal::simulated::{FailureRates, SimulatedJournal};
use plinth_journal::{Error as JournalError, Journal, Position, Reader};

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

fn replica(journal: &SimulatedJournal, id: u16) -> Replica {
    Replica { journal: Arc::new(journal.client(id)), cluster: CLUSTER, id: ReplicaId(id) }
}

fn open(dir: &tempfile::TempDir, journal: &SimulatedJournal, id: u16) -> Engine {
    Engine::open_replicated(Options::new(dir.path()), replica(journal, id)).unwrap()
}

/// A journal that is altered while it is used.
struct Altered {
    journal: plinth_journal::simulated::SimulatedClient,
    /// It says of appends that they were not made, and makes them.
    lies: AtomicBool,
    /// Its end goes back.
    has_lost: AtomicBool,
    /// It says that it has so many records more than there are.
    ahead: AtomicU64,
    /// It says of appends that their outcome is unknown, and does not make them but for the test.
    drops: AtomicBool,
    dropped: Mutex<Vec<Bytes>>,
    /// It says of appends that it has no space.
    is_full: AtomicBool,
    /// It answers and refuses.
    refuses: AtomicBool,
    /// Bytes of the largest record that it takes, whatever it says.
    most_bytes: AtomicUsize,
}

impl Altered {
    fn new(journal: &SimulatedJournal) -> Arc<Altered> {
        Arc::new(Altered {
            journal: journal.client(1),
            lies: AtomicBool::new(false),
            has_lost: AtomicBool::new(false),
            ahead: AtomicU64::new(0),
            drops: AtomicBool::new(false),
            dropped: Mutex::default(),
            is_full: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            most_bytes: AtomicUsize::new(usize::MAX),
        })
    }

    fn replica(self: &Arc<Altered>) -> Replica {
        Replica { journal: Arc::clone(self) as _, cluster: CLUSTER, id: ReplicaId(1) }
    }
}

impl Journal for Altered {
    fn append(&self, record: Bytes) -> Result<Position, JournalError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(JournalError::Denied { message: "the user was revoked".to_owned() });
        }
        if self.drops.load(Ordering::Relaxed) {
            self.dropped.lock().push(record);
            return Err(JournalError::OutcomeUnknown { message: "dropped".to_owned() });
        }
        if self.is_full.load(Ordering::Relaxed) {
            return Err(JournalError::Full { message: "above its quota".to_owned() });
        }
        let (size, limit) = (record.len(), self.most_bytes.load(Ordering::Relaxed));
        if size > limit {
            return Err(JournalError::TooLarge { size, limit });
        }
        let position = self.journal.append(record)?;
        match self.lies.load(Ordering::Relaxed) {
            true => Err(JournalError::Unavailable { message: "a lie".to_owned() }),
            false => Ok(position),
        }
    }
    fn read(&self, from: Position) -> Result<Box<dyn Reader>, JournalError> {
        self.journal.read(from)
    }
    fn end(&self) -> Result<Position, JournalError> {
        match self.has_lost.load(Ordering::Relaxed) {
            true => Ok(Position::new(1)),
            false => {
                if self.refuses.load(Ordering::Relaxed) {
                    // Longer than the next append takes to be refused.
                    std::thread::park_timeout(Duration::from_millis(200));
                }
                let end = self.journal.end()?;
                Ok(Position::new(end.get() + self.ahead.load(Ordering::Relaxed)))
            }
        }
    }
    fn trim(&self, before: Position) -> Result<(), JournalError> {
        self.journal.trim(before)
    }
    fn max_record_bytes(&self) -> usize {
        self.journal.max_record_bytes()
    }
}

/// The sequence of a record that was not appended is the next one's. A journal that did append it must not
/// make the outcome of the one the answer to the other.
#[test]
fn nobody_is_answered_with_the_outcome_of_another_record() {
    for is_applied_before in [false, true] {
        let (journal, dir) = (SimulatedJournal::new(1), scratch());
        let lying = Altered::new(&journal);
        let (engine, mut stepper) = stepped(Options::new(dir.path()), lying.replica());
        let write = |key: &'static str| engine.transact(Transaction::new().put(key, ""));
        let mut first = write("first");
        // Prepares the record, and appends it.
        assert!(stepper.propose());
        lying.lies.store(true, Ordering::Relaxed);
        stepper.propose();
        lying.lies.store(false, Ordering::Relaxed);
        assert!(first.withdraw(), "the journal said that it was not appended");
        if is_applied_before {
            assert!(stepper.apply().unwrap());
        }
        let second = write("second");
        come_to_rest(&mut stepper);
        let outcome = second.wait();
        assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
        // It goes on, with each outcome where it belongs.
        let third = write("third");
        come_to_rest(&mut stepper);
        let commit = third.wait().unwrap().commit.unwrap();
        assert_eq!(commit.events[0].key, "third");
        assert_eq!(["first", "second", "third"].map(|key| is_there(&engine, key)), [true, false, true]);
    }
}

/// Members that were restored from an old copy, or did not sync what they had acknowledged.
#[test]
fn a_journal_that_lost_records_and_went_on_is_refused() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let engine = open(&dir, &journal, 1);
    put(&engine, "key", b"acknowledged");
    engine.close().unwrap();
    // A write may be answered before the status shows its position.
    let applied = engine.replica_status().unwrap().position;
    drop(engine);
    let (other, elsewhere) = (SimulatedJournal::new(2), scratch());
    let engine = open(&elsewhere, &other, 2);
    while engine.replica_status().unwrap().position <= applied {
        put(&engine, "key", b"another");
    }
    let error = Engine::open_replicated(Options::new(dir.path()), replica(&other, 1)).err().expect("refused");
    let replaced = Error::Journal { source: JournalError::Replaced { position: applied } };
    assert_eq!(error.to_string(), replaced.to_string());
    // Where that record is trimmed, the next one has to do.
    other.client(2).trim(applied.next()).unwrap();
    drop(open(&dir, &other, 1));
}

#[test]
fn a_read_of_the_most_recent_state_notices_that_records_are_lost() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let losing = Altered::new(&journal);
    let engine = Engine::open_replicated(Options::new(dir.path()), losing.replica()).unwrap();
    put(&engine, "key", b"value");
    let in_time = || Instant::now() + Duration::from_secs(60);
    engine.read_barrier().wait_until(in_time()).expect("in time").unwrap();
    losing.has_lost.store(true, Ordering::Relaxed);
    let error = engine.read_barrier().wait_until(in_time()).expect("in time");
    assert!(matches!(error, Err(Error::Journal { source: JournalError::Behind { .. } })), "{error:?}");
    let stopped =
        || matches!(engine.failure(), Some(Failure::Journal { error: JournalError::Behind { .. } }));
    eventually("the replica stops", stopped);
}

/// A replica that was cut off, or stood still, while the members were put back to an old copy and went on.
#[test]
fn a_replica_that_was_away_from_a_journal_that_lost_records_stops_before_it_uses_it() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let first = open(&dirs[0], &journal, 1);
    let second = open(&dirs[1], &journal, 2);
    put(&second, "common", b"");
    let copied = journal.client(9).end().unwrap();
    let is_there_too = || second.replica_status().is_some_and(|status| status.position >= copied);
    eventually("the second has what is copied", is_there_too);
    second.close().unwrap();
    drop(second);
    for key in ["lost-1", "lost-2"] {
        put(&first, key, b"");
    }
    journal.set_reachable(1, false);
    eventually("it is missed", || first.journal_silence().is_some());
    journal.truncate(copied);
    let second = open(&dirs[1], &journal, 2);
    for n in 0..8 {
        put(&second, &format!("later-{n}"), b"");
    }
    let waiting = first.read_barrier();
    let written = first.transact(Transaction::new().put("both", ""));
    let appended = journal.records().len();
    journal.set_reachable(1, true);
    let replaced =
        || matches!(first.failure(), Some(Failure::Journal { error: JournalError::Replaced { .. } }));
    eventually("it stops", replaced);
    assert!(written.wait().is_err());
    let read = waiting.wait_until(Instant::now() + Duration::from_secs(60)).expect("in time");
    assert!(read.is_err(), "{read:?}");
    // The other one may have more to say; nothing is from the first.
    let of_first = |bytes: &Bytes| Record::decode(bytes.clone()).unwrap().replica == ReplicaId(1);
    assert!(!journal.records()[appended..].iter().any(of_first));
    put(&second, "goes on", b"");
}

/// An old copy has the positions that are to be trimmed, with other records.
#[test]
fn a_journal_that_was_not_compared_since_it_was_lost_is_not_trimmed() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let altered = Altered::new(&journal);
    let (engine, mut stepper) = stepped(Options::new(dirs[0].path()), altered.replica());
    let other = open(&dirs[1], &journal, 2);
    put(&other, "first", b"");
    while stepper.apply().unwrap() {}
    let before = engine.replica_status().unwrap().position;
    engine.trim_journal(before).unwrap();
    let oldest = || journal.client(9).read(Position::new(1)).map(drop).unwrap_err();
    let trimmed = oldest();
    for n in 0..4 {
        put(&other, &format!("{n}"), b"");
    }
    // An append fails, so the journal may be another one.
    journal.set_reachable(1, false);
    let written = engine.transact(Transaction::new().put("key", ""));
    while stepper.propose() {}
    journal.set_reachable(1, true);
    let refused = engine.trim_journal(before.next()).unwrap_err();
    assert!(refused.is_transient() && oldest() == trimmed, "{refused}, {}", oldest());
    come_to_rest(&mut stepper);
    written.wait().unwrap();
    engine.trim_journal(before.next()).unwrap();
    assert_ne!(oldest(), trimmed);
}

#[test]
fn a_journal_that_refuses_is_named_once_and_used_again() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let refusing = Altered::new(&journal);
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&warnings);
    let options = Options::new(dir.path()).on_warning(move |warning| noted.lock().push(warning.to_string()));
    let engine = Engine::open_replicated(options, refusing.replica()).unwrap();
    put(&engine, "before", b"");
    refusing.refuses.store(true, Ordering::Relaxed);
    let mut refused = engine.transact(Transaction::new().put("refused", ""));
    eventually("the reason is known", || {
        engine.journal_refusal().is_some_and(|reason| reason.contains("revoked"))
    });
    // Reads go on, and do not make it one that takes records.
    engine.read_barrier().wait_until(Instant::now() + Duration::from_secs(60)).expect("in time").unwrap();
    assert!(engine.journal_refusal().is_some() && engine.journal_silence().is_some());
    eventually("nothing was written of it", || refused.withdraw());
    refusing.refuses.store(false, Ordering::Relaxed);
    put(&engine, "after", b"");
    // The write was answered as soon as it was applied; the answer of its append may come later.
    eventually("it takes records", || {
        engine.journal_refusal().is_none() && engine.journal_silence().is_none()
    });
    assert!(!is_there(&engine, "refused"));
    let warnings = warnings.lock();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings.iter().all(|warning| warning.contains("the user was revoked")), "{warnings:?}");
}

/// Each append that is refused for space would have the journal compared, and the readers wait for that.
#[test]
fn reads_of_a_full_journal_take_one_question_each() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let full = Altered::new(&journal);
    let (engine, mut stepper) = stepped(Options::new(dir.path()), full.replica());
    full.is_full.store(true, Ordering::Relaxed);
    let mut written = engine.transact(Transaction::new().put("key", ""));
    assert!(stepper.propose(), "it is prepared");
    for _ in 0..3 {
        assert!(!stepper.propose());
        let read = engine.read_barrier();
        stepper.confirm();
        assert!(read.wait_until(Instant::now()).is_some(), "without another step");
    }
    assert!(engine.journal_refusal().is_some_and(|reason| reason.contains("quota")));
    assert!(engine.journal_silence().is_some() && !written.withdraw(), "it may be there");
    full.is_full.store(false, Ordering::Relaxed);
    come_to_rest(&mut stepper);
    written.wait().unwrap();
    assert!(engine.journal_refusal().is_none() && engine.journal_silence().is_none());
}

/// Its limit was lowered, or something between has a lower one: what fits is written, whoever it is in a
/// record with.
#[test]
fn what_a_journal_finds_too_large_keeps_nobody_else() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let lowered = Altered::new(&journal);
    let (engine, mut stepper) = stepped(Options::new(dir.path()), lowered.replica());
    lowered.most_bytes.store(1000, Ordering::Relaxed);
    let put =
        |key: &'static str, bytes: usize| engine.transact(Transaction::new().put(key, vec![b'x'; bytes]));
    let fits = [put("a", 1), put("b", 600), put("c", 600), put("d", 1)];
    let too_large = put("too large", 2000);
    let last = put("last", 1);
    come_to_rest(&mut stepper);
    for fitting in fits.into_iter().chain([last]) {
        fitting.wait().unwrap();
    }
    let refused = too_large.wait();
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    assert!(!is_there(&engine, "too large"));
}

/// When a record is appended after all whose outcome was unknown, and which is too large since.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Appended {
    Never,
    /// Before the session that replaces that of the record.
    Before,
    /// Behind it.
    Behind,
}

/// A limit that was lowered while an append was on its way.
#[test]
fn a_record_that_may_be_there_and_is_too_large_now_is_void_in_a_new_session() {
    for appended in [Appended::Never, Appended::Before, Appended::Behind] {
        let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
        let lowered = Altered::new(&journal);
        let (engine, mut stepper) = stepped(Options::new(dirs[0].path()), lowered.replica());
        let put = |key: &str, bytes: usize| {
            engine.transact(Transaction::new().put(key.to_owned(), vec![b'x'; bytes]))
        };
        let (large, small) = (put("large", 2000), put("small", 1));
        lowered.drops.store(true, Ordering::Relaxed);
        while stepper.propose() {}
        lowered.drops.store(false, Ordering::Relaxed);
        lowered.most_bytes.store(1000, Ordering::Relaxed);
        let doubtful = || lowered.dropped.lock()[0].clone();
        if appended == Appended::Before {
            journal.push(doubtful());
        }
        // The journal is compared; what follows was not read yet when the record is found too large.
        assert!(stepper.apply().unwrap());
        while stepper.propose() {}
        let other = put("other", 1);
        come_to_rest(&mut stepper);
        if appended == Appended::Behind {
            journal.push(doubtful());
            come_to_rest(&mut stepper);
        }

        let is_applied = appended == Appended::Before;
        match large.wait() {
            Ok(_) => assert!(is_applied),
            Err(Error::TooLarge { .. }) => assert!(!is_applied, "{appended:?}"),
            Err(error) => panic!("{appended:?}: {error}"),
        }
        // Which was in a record with it.
        small.wait().unwrap();
        other.wait().unwrap();
        assert_eq!(is_there(&engine, "large"), is_applied, "{appended:?}");
        assert!(["small", "other"].iter().all(|key| is_there(&engine, key)));
        assert!(engine.journal_silence().is_none() && engine.failure().is_none());
        // For all replicas.
        let (another, _stepper) = stepped(Options::new(dirs[1].path()), replica(&journal, 2));
        come_to_rest(&mut stepper);
        wait_until_equal(&engine, &another);
        assert_eq!(is_there(&another, "large"), is_applied);
    }
}

/// The record of the new session may be appended, and not be answered, too.
#[test]
fn a_session_that_makes_a_record_void_is_begun_once_whatever_fails() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let lowered = Altered::new(&journal);
    let (engine, mut stepper) = stepped(Options::new(dir.path()), lowered.replica());
    let large = engine.transact(Transaction::new().put("large", vec![b'x'; 2000]));
    lowered.drops.store(true, Ordering::Relaxed);
    while stepper.propose() {}
    lowered.drops.store(false, Ordering::Relaxed);
    lowered.most_bytes.store(1000, Ordering::Relaxed);
    journal.set_failures(FailureRates { lost_answers: 1000, ..FailureRates::default() });
    come_to_rest(&mut stepper);
    assert!(matches!(large.wait(), Err(Error::TooLarge { .. })));
    let written = engine.transact(Transaction::new().put("key", ""));
    come_to_rest(&mut stepper);
    written.wait().unwrap();
    let records = journal.records();
    let begins = |bytes: &&Bytes| {
        let record = Record::decode((*bytes).clone()).unwrap();
        matches!(record.body, Body::Session { .. })
    };
    assert_eq!(records.iter().filter(begins).count(), 2, "that of the start, and the one after it");
}

/// Another process with the id of this replica has begun a session in the place of the one that this one
/// would replace.
#[test]
fn a_session_that_makes_a_record_void_ends_no_session_of_another_process() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let lowered = Altered::new(&journal);
    let (engine, mut stepper) = stepped(Options::new(dirs[0].path()), lowered.replica());
    let large = engine.transact(Transaction::new().put("large", vec![b'x'; 2000]));
    lowered.drops.store(true, Ordering::Relaxed);
    while stepper.propose() {}
    lowered.drops.store(false, Ordering::Relaxed);
    lowered.most_bytes.store(1000, Ordering::Relaxed);
    assert!(stepper.apply().unwrap());
    // Finds it too large, and prepares the record of another session.
    assert!(stepper.propose());
    let (another, mut other) = stepped(Options::new(dirs[1].path()), replica(&journal, 1));
    while stepper.propose() {}
    let superseded = loop {
        match stepper.apply() {
            Ok(true) => assert!(!stepper.propose()),
            outcome => break outcome.unwrap_err(),
        }
    };
    assert!(matches!(superseded, Failure::Superseded { .. }), "{superseded}");
    assert!(!stepper.propose());
    assert!(matches!(large.wait(), Err(Error::OutcomeUnknown { .. })));
    let written = another.transact(Transaction::new().put("key", ""));
    come_to_rest(&mut other);
    written.wait().unwrap();
}

/// What one member has counted is not waited for once that member was left.
#[test]
fn the_end_is_read_again_after_the_journal_was_lost() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let ahead = Altered::new(&journal);
    let (engine, mut stepper) = stepped(Options::new(dir.path()), ahead.replica());
    ahead.ahead.store(5, Ordering::Relaxed);
    let read = engine.read_barrier();
    stepper.confirm();
    ahead.ahead.store(0, Ordering::Relaxed);
    journal.set_reachable(1, false);
    assert!(!stepper.apply().unwrap());
    journal.set_reachable(1, true);
    stepper.apply().unwrap();
    stepper.confirm();
    read.wait_until(Instant::now() + Duration::from_secs(60)).expect("in time").unwrap();
}
