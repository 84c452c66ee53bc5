//! Replicas whose path to the journal is slow: records come in parts, and appends are not answered in time.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{is_there, put, scratch};
use plinth_engine::{Engine, Options, Replica, Transaction};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::simulated::{SimulatedClient, SimulatedJournal};
use plinth_journal::{Entry, Error, Journal, Position, Reader};

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");
/// How often a reader has to be asked for a record, the first one apart.
const PARTS: u32 = 8;

/// A journal over a path that is slow.
struct Slow {
    journal: SimulatedClient,
    /// Appends that are not answered, and not made.
    failing: AtomicUsize,
}

struct SlowReader {
    reader: Box<dyn Reader>,
    is_first: bool,
    coming: Option<Entry>,
    parts: u32,
}

impl Journal for Slow {
    fn append(&self, record: Bytes) -> Result<Position, Error> {
        let take = |left: usize| left.checked_sub(1);
        match self.failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Err(Error::OutcomeUnknown { message: "no answer in time".to_owned() }),
            Err(_) => self.journal.append(record),
        }
    }

    fn read(&self, from: Position) -> Result<Box<dyn Reader>, Error> {
        let reader = self.journal.read(from)?;
        Ok(Box::new(SlowReader { reader, is_first: true, coming: None, parts: 0 }))
    }

    fn end(&self) -> Result<Position, Error> {
        self.journal.end()
    }

    fn trim(&self, before: Position) -> Result<(), Error> {
        self.journal.trim(before)
    }

    fn max_record_bytes(&self) -> usize {
        self.journal.max_record_bytes()
    }
}

impl Reader for SlowReader {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>, Error> {
        if self.coming.is_none() {
            self.coming = self.reader.next(timeout)?;
        }
        if self.coming.is_none() {
            return Ok(None);
        }
        self.parts += 1;
        if !self.is_first && self.parts < PARTS {
            return Ok(None);
        }
        (self.is_first, self.parts) = (false, 0);
        Ok(self.coming.take())
    }

    fn is_busy(&mut self) -> bool {
        self.parts > 0
    }
}

/// The reader is not begun again with each append, which would never have the next record whole.
#[test]
fn records_come_while_appends_are_not_answered() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let slow = Arc::new(Slow { journal: journal.client(1), failing: AtomicUsize::new(0) });
    let replica = Replica { journal: Arc::clone(&slow) as _, cluster: CLUSTER, id: ReplicaId(1) };
    let (engine, mut stepper) = Engine::open_stepped(Options::new(dirs[0].path()), replica).unwrap();
    for _ in 0..4 * PARTS {
        stepper.propose();
        stepper.apply().unwrap();
    }
    let replica = Replica { journal: Arc::new(journal.client(2)), cluster: CLUSTER, id: ReplicaId(2) };
    let other = Engine::open_replicated(Options::new(dirs[1].path()), replica).unwrap();
    put(&other, "of the other", b"");
    let written = engine.transact(Transaction::new().put("own", ""));
    slow.failing.store(usize::MAX, Ordering::Relaxed);
    for _ in 0..20 * PARTS {
        stepper.propose();
        // The record that was applied last, and a part of the next one.
        for _ in 0..3 {
            stepper.apply().unwrap();
        }
    }
    assert!(is_there(&engine, "of the other"));
    slow.failing.store(0, Ordering::Relaxed);
    for _ in 0..20 * PARTS {
        stepper.propose();
        stepper.apply().unwrap();
    }
    written.wait().unwrap();
}
