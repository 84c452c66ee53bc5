//! Replicas that are closed while their journal answers no call.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::scratch;
use parking_lot::{Condvar, Mutex};
use plinth_engine::{At, Engine, Error, Options, Replica, Transaction};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::simulated::{SimulatedClient, SimulatedJournal};
use plinth_journal::{Entry, Error as JournalError, Journal, Position, Reader};

fn put(key: &'static str) -> Transaction {
    Transaction::new().put(key, "value")
}

/// What a call that nobody ends waits for, far longer than a replica that stops may.
const FOR_EVER: Duration = Duration::from_secs(120);

/// A journal that stands still from some time on.
struct Still {
    journal: SimulatedClient,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_still: AtomicBool,
    is_closed: Mutex<bool>,
    closed: Condvar,
    /// Calls that nobody has ended.
    was_left: AtomicBool,
}

impl State {
    fn call(&self) -> Result<(), JournalError> {
        if !self.is_still.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (mut is_closed, deadline) = (self.is_closed.lock(), Instant::now() + FOR_EVER);
        while !*is_closed {
            if self.closed.wait_until(&mut is_closed, deadline).timed_out() {
                self.was_left.store(true, Ordering::Relaxed);
                break;
            }
        }
        Err(JournalError::Unavailable { message: "nobody answers".to_owned() })
    }
}

impl Journal for Still {
    fn append(&self, record: Bytes) -> Result<Position, JournalError> {
        self.state.call()?;
        self.journal.append(record)
    }
    fn read(&self, from: Position) -> Result<Box<dyn Reader>, JournalError> {
        self.state.call()?;
        Ok(Box::new(StillReader(self.journal.read(from)?, Arc::clone(&self.state))))
    }
    fn end(&self) -> Result<Position, JournalError> {
        self.state.call()?;
        self.journal.end()
    }
    fn trim(&self, before: Position) -> Result<(), JournalError> {
        self.state.call()?;
        self.journal.trim(before)
    }
    fn max_record_bytes(&self) -> usize {
        self.journal.max_record_bytes()
    }
    fn close(&self) {
        *self.state.is_closed.lock() = true;
        self.state.closed.notify_all();
    }
}

struct StillReader(Box<dyn Reader>, Arc<State>);

impl Reader for StillReader {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>, JournalError> {
        self.1.call()?;
        self.0.next(timeout)
    }
}

fn open(dir: &std::path::Path) -> (Engine, Arc<State>) {
    let (simulated, state) = (SimulatedJournal::new(1), Arc::<State>::default());
    let journal = Arc::new(Still { journal: simulated.client(1), state: Arc::clone(&state) });
    let replica = Replica { journal, cluster: ClusterId([1; 16]), id: ReplicaId(1) };
    let engine = Engine::open_replicated(Options::new(dir), replica).unwrap();
    engine.transact(put("a")).wait().unwrap();
    state.is_still.store(true, Ordering::Relaxed);
    (engine, state)
}

#[test]
fn closing_waits_for_no_call_of_the_journal() {
    let dir = scratch();
    let (engine, state) = open(dir.path());
    let (write, read) = (engine.transact(put("b")), engine.read_barrier());
    engine.close().unwrap();
    assert!(!state.was_left.load(Ordering::Relaxed), "a call of the journal was waited for");
    assert!(matches!(write.wait(), Err(Error::OutcomeUnknown { .. } | Error::Closed)));
    assert!(matches!(read.wait_until(Instant::now() + FOR_EVER), Some(Err(Error::Closed))));
}

/// A server that stops finishes requests, of which some wait for the journal, and others read.
#[test]
fn leaving_the_journal_answers_writers_and_leaves_reads() {
    let dir = scratch();
    let (engine, state) = open(dir.path());
    let (write, read) = (engine.transact(put("b")), engine.read_barrier());
    engine.leave_journal();
    assert!(matches!(write.wait(), Err(Error::OutcomeUnknown { .. } | Error::Closed)));
    assert!(matches!(read.wait_until(Instant::now() + FOR_EVER), Some(Err(Error::Closed))));
    assert!(engine.get(b"a", At::Latest).unwrap().is_some());
    assert!(matches!(engine.transact(put("c")).wait(), Err(Error::Closed)));
    engine.close().unwrap();
    assert!(!state.was_left.load(Ordering::Relaxed));
}
