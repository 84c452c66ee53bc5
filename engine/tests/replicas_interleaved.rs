//! Every interleaving of a replica's calls of its journal with another thread's that give up what was taken
//! for the journal and find the next one: between the engine's look at whether the journal was compared and
//! the journal's first step, too.
//!
//! What the engine knows of its journal it knows by calls. So the other journal is put in the place of the
//! first one before the nth of these, and after it, for each n.

mod common;

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use common::{come_to_rest, is_there, scratch, stepped};
use parking_lot::Mutex;
use plinth_engine::{At, Engine, Failure, Options, Proposal, ReadBarrier, Replica, Stepper, Transaction};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::simulated::{SimulatedClient, SimulatedJournal};
use plinth_journal::{Entry, Error as JournalError, Journal, Position, Reader};

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");
const LARGE: usize = 1 << 20;

/// A journal that is given up, and another one found, at some moments of its calls.
#[derive(Clone)]
struct Switching(Arc<State>);

struct State {
    /// What is taken for the journal, one after the other.
    journals: Mutex<Vec<SimulatedClient>>,
    /// The moments at which the next one is taken.
    switches: Mutex<Vec<usize>>,
    /// Moments that have passed.
    moments: AtomicUsize,
}

impl Switching {
    fn new(first: SimulatedClient) -> Switching {
        let moments = AtomicUsize::new(0);
        Switching(Arc::new(State { journals: Mutex::new(vec![first]), switches: Mutex::default(), moments }))
    }

    /// Counts moments from now on.
    fn begin(&self, others: Vec<SimulatedClient>, switches: &[usize]) {
        self.0.moments.store(0, Ordering::Relaxed);
        self.0.journals.lock().extend(others);
        *self.0.switches.lock() = switches.to_vec();
    }

    /// How many were given up before now.
    fn given_up_now(&self) -> usize {
        let moments = self.0.moments.load(Ordering::Relaxed);
        self.0.switches.lock().iter().filter(|switch| **switch < moments).count()
    }

    fn current(&self) -> SimulatedClient {
        self.0.journals.lock()[self.given_up_now()].clone()
    }

    /// Another thread may be faster here.
    fn moment(&self) {
        self.0.moments.fetch_add(1, Ordering::Relaxed);
    }

    /// A call of what is taken for the journal when it begins; others may overtake it before and after that.
    fn call<T>(&self, call: impl FnOnce(&SimulatedClient) -> T) -> T {
        self.moment();
        let outcome = call(&self.current());
        self.moment();
        outcome
    }
}

impl Journal for Switching {
    fn append(&self, record: Bytes) -> Result<Position, JournalError> {
        self.call(|journal| journal.append(record))
    }
    fn read(&self, from: Position) -> Result<Box<dyn Reader>, JournalError> {
        self.moment();
        let opened = self.given_up_now();
        let reader = self.current().read(from)?;
        self.moment();
        Ok(Box::new(SwitchingReader { journal: self.clone(), opened, reader }))
    }
    fn end(&self) -> Result<Position, JournalError> {
        self.call(SimulatedClient::end)
    }
    fn trim(&self, before: Position) -> Result<(), JournalError> {
        self.call(|journal| journal.trim(before))
    }
    fn given_up(&self) -> u64 {
        self.moment();
        self.given_up_now() as u64
    }
    fn max_record_bytes(&self) -> usize {
        LARGE
    }
}

/// Ends with the journal that it reads.
struct SwitchingReader {
    journal: Switching,
    opened: usize,
    reader: Box<dyn Reader>,
}

impl Reader for SwitchingReader {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>, JournalError> {
        self.journal.moment();
        if self.journal.given_up_now() != self.opened {
            return Err(JournalError::Unavailable { message: "it was given up".to_owned() });
        }
        self.reader.next(timeout)
    }
}

fn copy(journal: &SimulatedJournal) -> SimulatedJournal {
    let copied = SimulatedJournal::new(1);
    for record in journal.records() {
        copied.push(record);
    }
    copied
}

fn write(engine: &Engine, key: &str) -> Proposal {
    engine.transact(Transaction::new().put(key.to_owned(), vec![b'x'; 1000]))
}

fn replica(journal: Arc<dyn Journal>, id: u16) -> Replica {
    Replica { journal, cluster: CLUSTER, id: ReplicaId(id) }
}

/// A replica whose journal is given up at some moments.
struct Run {
    engine: Engine,
    stepper: Stepper,
    journal: Switching,
    /// Readers of the most recent state.
    barriers: Vec<ReadBarrier>,
    last: usize,
    failure: Option<Failure>,
}

impl Run {
    /// Makes each kind of step; `follows`: also those that read the journal.
    fn step(&mut self, follows: bool) {
        self.barriers.push(self.engine.read_barrier());
        while self.stepper.propose() {}
        while follows && self.failure.is_none() {
            match self.stepper.apply() {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) => self.failure = Some(failure),
            }
        }
        self.stepper.confirm();
        let (engine, mut context) = (&self.engine, Context::from_waker(Waker::noop()));
        self.barriers.retain_mut(|barrier| match Pin::new(barrier).poll(&mut context) {
            Poll::Pending => true,
            // What the others have acknowledged is in the right journal, which is the last one.
            Poll::Ready(Ok(_)) => {
                let is_last = self.journal.given_up_now() == self.last;
                assert!(!is_last || is_there(engine, "other"), "a stale read");
                false
            }
            Poll::Ready(Err(_)) => false,
        });
    }
}

/// Writes and reads while the journal is given up at these moments. The last one is what another replica has
/// written to; those between take records up to `limit`. Returns how many moments there were, and whether a
/// copy had an answer that was not used.
fn run(switches: &[usize], follows: bool, limit: usize) -> (usize, bool) {
    let (first, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let journal = Switching::new(first.client(1));
    let (engine, stepper) = stepped(Options::new(dirs[0].path()), replica(Arc::new(journal.clone()), 1));
    let last = switches.len();
    let mut run = Run { engine, stepper, journal, barriers: Vec::new(), last, failure: None };
    let before = write(&run.engine, "before");
    come_to_rest(&mut run.stepper);
    before.wait().unwrap();
    let copies: Vec<SimulatedJournal> = switches.iter().map(|_| copy(&first)).collect();
    let right = copies.last().unwrap_or(&first);
    if let Some((_, wrong)) = copies.split_last() {
        wrong.iter().for_each(|copy| copy.set_max_record_bytes(limit));
    }
    let (other, mut others) = stepped(Options::new(dirs[1].path()), replica(Arc::new(right.client(2)), 2));
    let written = write(&other, "other");
    come_to_rest(&mut others);
    written.wait().unwrap();

    let before = first.records().len();
    run.journal.begin(copies.iter().map(|copy| copy.client(1)).collect(), switches);
    let mut writes = Vec::new();
    for key in ["one", "two", "three"] {
        writes.push(write(&run.engine, key));
        run.step(follows);
    }
    let moments = run.journal.0.moments.swap(usize::MAX / 2, Ordering::Relaxed);
    for _ in 0..6 {
        run.step(true);
    }
    if let Some(failure) = &run.failure {
        // It has applied what the right journal lacks.
        let is_its = |error: &JournalError| {
            matches!(error, JournalError::Behind { .. } | JournalError::Replaced { .. })
        };
        assert!(follows && matches!(failure, Failure::Journal { error } if is_its(error)), "{failure}");
        return (moments, false);
    }
    for written in writes {
        written.wait().expect("an outcome");
    }
    come_to_rest(&mut others);
    let statuses = [&run.engine, &other].map(Engine::replica_status);
    assert_eq!(statuses[0], statuses[1]);
    for key in ["one", "two", "three"] {
        let found = [&run.engine, &other].map(|engine| engine.get(key.as_bytes(), At::Latest).unwrap());
        assert!(
            found.iter().all(|record| record.as_ref().is_some_and(|record| record.version == 1)),
            "{key}"
        );
    }
    let wrong = copies.iter().rev().skip(1).chain(copies.len().checked_sub(1).map(|_| &first));
    (moments, wrong.into_iter().any(|copy| copy.records().len() > before))
}

/// Nothing else is applied meanwhile, so that no replica stops: each write has its outcome, once, and no read
/// misses what was acknowledged.
#[test]
fn a_journal_that_is_given_up_between_two_steps_answers_nobody() {
    let (moments, _) = run(&[], false, LARGE);
    let mut misled = 0;
    for first in 0..=moments {
        misled += usize::from(run(&[first], false, LARGE).1);
        for second in first..=moments.min(first + 2) {
            misled += usize::from(run(&[first, second], false, LARGE).1);
            // Nor is their limit an answer: they were never compared.
            run(&[first, second], false, 1000);
        }
    }
    assert!(moments > 10 && misled > 10, "{moments} moments, {misled} answers of other journals");
}

/// The same where it is followed as well: what it has applied of another one alone stops it.
#[test]
fn a_replica_stops_or_goes_on_wherever_its_journal_is_given_up() {
    let (moments, _) = run(&[], true, LARGE);
    for first in 0..=moments {
        run(&[first], true, LARGE);
        run(&[first, first + 1], true, LARGE);
    }
    assert!(moments > 30, "{moments}");
}
