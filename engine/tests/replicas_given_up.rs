//! Replicas that were answered by another journal, which is given up before they have applied what it has
//! answered: most members have the right one, as `plinth_journal::Review` finds out.

mod common;

use std::future::Future as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{come_to_rest, eventually, is_there, put, scratch, stepped, wait_until_equal};
use plinth_engine::{Engine, Error, Options, Proposal, ReadBarrier, Replica, Stepper, Transaction};
use plinth_journal::record::{Body, ClusterId, Record, ReplicaId};
use plinth_journal::simulated::{FailureRates, SimulatedClient, SimulatedJournal};
use plinth_journal::{Entry, Error as JournalError, Journal, Position, Reader};

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

fn replica(journal: Arc<dyn Journal>, id: u16) -> Replica {
    Replica { journal, cluster: CLUSTER, id: ReplicaId(id) }
}

/// How the engine learns that a copy was given up.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Seen {
    /// A call of it fails.
    Failing,
    /// A call fails that is not the engine's (`Journal::problems`), which the journal counts.
    Counted,
    /// It does not, before its reader ends: the journal was put back to an older copy.
    Not,
}

/// A journal of which another one is taken for it, a copy, that gets appends of its own.
struct Misled {
    journal: SimulatedClient,
    /// The copy is taken for it.
    is_misled: AtomicBool,
    /// Records that the copy has and the journal has not.
    answered: AtomicU64,
    /// How often the copy was given up, how often of these it is counted for the engine, and whether the call
    /// is still to fail that does so.
    given_up: Arc<AtomicU64>,
    counted: AtomicU64,
    fails: AtomicBool,
    /// The next call for the end is the one that another call overtakes which gives up the copy.
    is_overtaken: AtomicBool,
    /// The same for the next reader.
    is_refused: AtomicBool,
    /// It takes no record of so many bytes.
    is_low: AtomicBool,
}

impl Misled {
    fn new(journal: &SimulatedJournal) -> Arc<Misled> {
        Arc::new(Misled {
            journal: journal.client(1),
            is_misled: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            given_up: Arc::default(),
            counted: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            is_overtaken: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            is_low: AtomicBool::new(false),
        })
    }

    fn take_copy(&self) {
        self.is_misled.store(true, Ordering::Relaxed);
    }

    fn give_up(&self, seen: Seen) {
        self.is_misled.store(false, Ordering::Relaxed);
        self.given_up.fetch_add(1, Ordering::Relaxed);
        self.counted.fetch_add(u64::from(seen == Seen::Counted), Ordering::Relaxed);
        self.fails.store(seen == Seen::Failing, Ordering::Relaxed);
    }

    fn call(&self) -> Result<(), JournalError> {
        match self.fails.swap(false, Ordering::Relaxed) {
            true => Err(JournalError::Unavailable { message: "most members have another one".to_owned() }),
            false => Ok(()),
        }
    }
}

impl Journal for Misled {
    fn append(&self, record: Bytes) -> Result<Position, JournalError> {
        self.call()?;
        if self.is_low.load(Ordering::Relaxed) && record.len() > 1000 {
            return Err(JournalError::TooLarge { size: record.len(), limit: 1000 });
        }
        match self.is_misled.load(Ordering::Relaxed) {
            true => {
                let more = self.answered.fetch_add(1, Ordering::Relaxed) + 1;
                Ok(Position::new(self.journal.end()?.get() + more))
            }
            false => self.journal.append(record),
        }
    }
    fn read(&self, from: Position) -> Result<Box<dyn Reader>, JournalError> {
        self.call()?;
        if self.is_refused.swap(false, Ordering::Relaxed) {
            self.give_up(Seen::Counted);
            return Err(JournalError::Refused { message: "the copy was deleted".to_owned() });
        }
        let (reader, given_up) = (self.journal.read(from)?, Arc::clone(&self.given_up));
        let opened = given_up.load(Ordering::Relaxed);
        Ok(Box::new(MisledReader { reader, given_up, opened }))
    }
    fn end(&self) -> Result<Position, JournalError> {
        self.call()?;
        if self.is_overtaken.swap(false, Ordering::Relaxed) {
            // Of the copy.
            self.give_up(Seen::Counted);
            return Ok(Position::ZERO);
        }
        self.journal.end()
    }
    fn given_up(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }
    fn trim(&self, before: Position) -> Result<(), JournalError> {
        self.call()?;
        self.journal.trim(before)
    }
    fn max_record_bytes(&self) -> usize {
        self.journal.max_record_bytes()
    }
}

/// Ends with the journal that it reads.
struct MisledReader {
    reader: Box<dyn Reader>,
    given_up: Arc<AtomicU64>,
    opened: u64,
}

impl Reader for MisledReader {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>, JournalError> {
        if self.given_up.load(Ordering::Relaxed) != self.opened {
            return Err(JournalError::Unavailable { message: "it was given up".to_owned() });
        }
        self.reader.next(timeout)
    }
}

fn write(engine: &Engine, key: &str, bytes: usize) -> Proposal {
    engine.transact(Transaction::new().put(key.to_owned(), vec![b'x'; bytes]))
}

/// Steps a replica until there is nothing left to do, after calls that fail, too.
fn rest(stepper: &mut Stepper) {
    for _ in 0..5 {
        come_to_rest(stepper);
    }
}

/// Sessions that were begun by records of the journal.
fn sessions(journal: &SimulatedJournal) -> usize {
    let begins = |bytes| matches!(Record::decode(bytes).unwrap().body, Body::Session { .. });
    journal.records().into_iter().filter(|bytes| begins(bytes.clone())).count()
}

/// How it shows that the journal which is followed lacks a record.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sign {
    /// It ends before the position that the other one has named.
    End,
    /// Other records are at that position.
    OtherRecords,
    /// A later record of this replica is there, and is void.
    LaterRecord,
}

#[test]
fn what_was_answered_is_written_to_the_journal_that_is_followed() {
    for sign in [Sign::End, Sign::OtherRecords, Sign::LaterRecord] {
        let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
        let misled = Misled::new(&journal);
        let (engine, mut stepper) = stepped(Options::new(dirs[0].path()), replica(misled.clone(), 1));
        let client = Arc::new(journal.client(2));
        let (other, mut others) = stepped(Options::new(dirs[1].path()), replica(client, 2));
        rest(&mut stepper);
        misled.take_copy();
        let first = write(&engine, "first", 1);
        while stepper.propose() {}
        let second = write(&engine, "second", 1);
        while stepper.propose() {}
        let records = journal.records().len();
        assert_eq!(misled.answered.load(Ordering::Relaxed), 2, "each has a record");
        misled.give_up(if sign == Sign::End { Seen::Failing } else { Seen::Not });
        if sign == Sign::OtherRecords {
            for _ in 0..3 {
                let written = write(&other, "another", 1);
                rest(&mut others);
                written.wait().unwrap();
            }
        }
        let third = write(&engine, "third", 1);
        if sign == Sign::LaterRecord {
            while stepper.propose() {}
            assert_eq!(journal.records().len(), records + 1, "in front of those before it");
        }
        rest(&mut stepper);
        let written = [first, second, third].map(|written| written.wait().unwrap().revision.get());
        assert!(written.is_sorted(), "{sign:?}: {written:?}");
        assert!(["first", "second", "third"].iter().all(|key| is_there(&engine, key)));
        assert_eq!(sessions(&journal), 2, "one of each replica");
        let last = write(&engine, "last", 1);
        rest(&mut stepper);
        last.wait().unwrap();
        rest(&mut others);
        wait_until_equal(&engine, &other);
    }
}

#[test]
fn a_session_that_was_begun_in_another_journal_is_begun_again() {
    for others in [0, 5] {
        let (journal, dir) = (SimulatedJournal::new(1), scratch());
        let misled = Misled::new(&journal);
        misled.take_copy();
        let options = Options::new(dir.path());
        let (engine, mut stepper) = Engine::open_stepped(options, replica(misled.clone(), 1)).unwrap();
        let written = write(&engine, "key", 1);
        rest(&mut stepper);
        assert_eq!(misled.answered.load(Ordering::Relaxed), 1, "nothing is appended before it has begun");
        misled.give_up(Seen::Failing);
        for id in 0..others {
            let dir = scratch();
            drop(stepped(Options::new(dir.path()), replica(Arc::new(journal.client(7)), 7 + id)));
        }
        rest(&mut stepper);
        written.wait().unwrap();
    }
}

/// Its records become void by another session: they are proposed again, and one alone is too large.
#[test]
fn what_was_answered_and_is_too_large_now_keeps_nobody_else() {
    // Also where the record of that session is answered by a journal that is given up.
    for is_session_misled in [false, true] {
        let (journal, dir) = (SimulatedJournal::new(1), scratch());
        let misled = Misled::new(&journal);
        let (engine, mut stepper) = stepped(Options::new(dir.path()), replica(misled.clone(), 1));
        misled.take_copy();
        let writes = [("before", 1), ("large", 2000), ("behind", 1)].map(|(key, bytes)| {
            let written = write(&engine, key, bytes);
            while stepper.propose() {}
            written
        });
        assert_eq!(misled.answered.load(Ordering::Relaxed), 3);
        misled.give_up(Seen::Failing);
        misled.is_low.store(true, Ordering::Relaxed);
        let beside = write(&engine, "beside", 1);
        if is_session_misled {
            // Until the record is found too large, and the session is to be begun.
            let before = sessions(&journal);
            while journal.records().len() < 3 {
                stepper.propose();
                stepper.apply().unwrap();
            }
            assert_eq!(sessions(&journal), before);
            misled.take_copy();
            while stepper.propose() {}
            misled.give_up(Seen::Failing);
        }
        rest(&mut stepper);
        let [before, large, behind] = writes.map(Proposal::wait);
        assert!(matches!(large, Err(Error::TooLarge { .. })), "{large:?}");
        assert!(before.is_ok() && behind.is_ok() && beside.wait().is_ok());
        assert!(!is_there(&engine, "large") && is_there(&engine, "behind"));
        assert_eq!(sessions(&journal), 2);
        assert!(engine.journal_silence().is_none() && engine.failure().is_none());
    }
}

/// Nobody writes anything else meanwhile.
#[test]
fn callers_are_answered_when_the_journal_is_found_again() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let misled = Misled::new(&journal);
    let engine = Engine::open_replicated(Options::new(dir.path()), replica(misled.clone(), 1)).unwrap();
    put(&engine, "before", b"");
    for n in 1..=3 {
        misled.take_copy();
        let written = write(&engine, &format!("key/{n}"), 1);
        eventually("the record is answered", || misled.answered.load(Ordering::Relaxed) == n);
        misled.give_up(Seen::Failing);
        written.wait().unwrap();
        put(&engine, "behind", b"");
    }
    assert_eq!(sessions(&journal), 1);
}

/// As often as it happens.
#[test]
fn each_write_has_its_outcome_while_appends_are_answered_by_other_journals() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let engine = Engine::open_replicated(Options::new(dir.path()), replica(Arc::new(journal.client(1)), 1));
    let engine = engine.unwrap();
    journal.set_failures(FailureRates { misled: 300, ..FailureRates::default() });
    let writes: Vec<_> = (0..100).map(|n| write(&engine, &format!("key/{n}"), 1)).collect();
    writes.into_iter().for_each(|written| assert!(written.wait().is_ok()));
    for n in 0..10 {
        put(&engine, &format!("key/{n}"), b"");
    }
}

/// Reads of the most recent state that a journal answers which is given up, or that follows one, would miss
/// what was acknowledged; an append is not made to a journal that was not compared.
#[test]
fn nothing_is_answered_or_written_before_the_next_journal_was_compared() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let misled = Misled::new(&journal);
    let (engine, mut stepper) = stepped(Options::new(dir.path()), replica(misled.clone(), 1));
    let written = write(&engine, "before", 1);
    rest(&mut stepper);
    written.wait().unwrap();
    let is_answered = |barrier: &mut ReadBarrier| {
        let waker = std::task::Waker::noop();
        std::pin::Pin::new(barrier).poll(&mut std::task::Context::from_waker(waker)).is_ready()
    };
    for is_overtaken in [false, true] {
        let mut barrier = engine.read_barrier();
        match is_overtaken {
            true => misled.is_overtaken.store(true, Ordering::Relaxed),
            false => misled.give_up(Seen::Counted),
        }
        stepper.confirm();
        assert!(!is_answered(&mut barrier), "overtaken: {is_overtaken}");
        let (written, records) = (write(&engine, "key", 1), journal.records().len());
        while stepper.propose() {}
        assert_eq!(journal.records().len(), records, "overtaken: {is_overtaken}");
        assert!(engine.trim_journal(Position::new(1)).is_err_and(|error| error.is_transient()));
        rest(&mut stepper);
        written.wait().unwrap();
        stepper.confirm();
        assert!(is_answered(&mut barrier));
        engine.trim_journal(Position::new(1)).unwrap();
    }
    assert!(engine.failure().is_none());
}

/// What ends a replica that follows a journal ends none that follows it no more.
#[test]
fn an_error_of_a_journal_that_was_given_up_meanwhile_stops_nobody() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let (other, mut others) = stepped(Options::new(dirs[1].path()), replica(Arc::new(journal.client(2)), 2));
    let written = write(&other, "other", 1);
    rest(&mut others);
    written.wait().unwrap();
    let misled = Misled::new(&journal);
    misled.is_refused.store(true, Ordering::Relaxed);
    // The first reader is that of the start, which reads what follows.
    let (engine, mut stepper) = stepped(Options::new(dirs[0].path()), replica(misled.clone(), 1));
    assert!(!misled.is_refused.load(Ordering::Relaxed));
    misled.is_refused.store(true, Ordering::Relaxed);
    misled.give_up(Seen::Failing);
    let written = write(&engine, "key", 1);
    rest(&mut stepper);
    assert!(!misled.is_refused.load(Ordering::Relaxed));
    written.wait().unwrap();
    assert!(engine.failure().is_none());
}

/// Behind a call that has failed another journal may answer.
#[test]
fn a_trim_that_fails_has_the_journal_compared() {
    let (journal, dir) = (SimulatedJournal::new(1), scratch());
    let misled = Misled::new(&journal);
    let (engine, mut stepper) = stepped(Options::new(dir.path()), replica(misled.clone(), 1));
    rest(&mut stepper);
    misled.fails.store(true, Ordering::Relaxed);
    assert!(engine.trim_journal(Position::new(1)).is_err());
    let (written, records) = (write(&engine, "key", 1), journal.records().len());
    while stepper.propose() {}
    assert_eq!(journal.records().len(), records);
    rest(&mut stepper);
    written.wait().unwrap();
}
