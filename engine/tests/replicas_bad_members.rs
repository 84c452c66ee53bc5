//! Replicas over a journal some of whose members have damaged records, or lack one.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{eventually, is_there, put, scratch, stepped};
use parking_lot::Mutex;
use plinth_engine::{Engine, Error, Options, Replica};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::simulated::SimulatedJournal;
use plinth_journal::{Entry, Error as JournalError, Journal, Position, Reader};

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

fn open(dir: &tempfile::TempDir, journal: &SimulatedJournal, id: u16) -> Engine {
    let replica = Replica { journal: Arc::new(journal.client(id)), cluster: CLUSTER, id: ReplicaId(id) };
    Engine::open_replicated(Options::new(dir.path()), replica).unwrap()
}

/// A journal of five members, some of which have damaged records. Readers read one member.
struct Members {
    journal: plinth_journal::simulated::SimulatedClient,
    /// The position from which on each member has all records damaged.
    damaged: Arc<[AtomicU64; 5]>,
    current: Arc<AtomicUsize>,
    /// Only the first member answers readers.
    is_first_alone: AtomicBool,
    /// So many members lack a record: each one that follows is a position earlier.
    shifted: AtomicUsize,
}

struct MemberReader {
    reader: Box<dyn Reader>,
    member: usize,
    shift: u64,
    damaged: Arc<[AtomicU64; 5]>,
    current: Arc<AtomicUsize>,
}

impl Members {
    fn new(journal: &SimulatedJournal, id: u16) -> Members {
        let damaged = Arc::new(std::array::from_fn(|_| AtomicU64::new(u64::MAX)));
        let (current, is_first_alone) = (Arc::default(), AtomicBool::new(false));
        let shifted = AtomicUsize::new(0);
        Members { journal: journal.client(id), damaged, current, is_first_alone, shifted }
    }

    /// The first so many members have all records from a position on damaged.
    fn damage(&self, members: usize, from: Position) {
        self.damaged[..members].iter().for_each(|damaged| damaged.store(from.get(), Ordering::Relaxed));
    }
}

impl Journal for Members {
    fn append(&self, record: Bytes) -> Result<Position, JournalError> {
        self.journal.append(record)
    }
    fn read(&self, from: Position) -> Result<Box<dyn Reader>, JournalError> {
        let (damaged, current) = (Arc::clone(&self.damaged), Arc::clone(&self.current));
        let member = current.load(Ordering::Relaxed) % self.members();
        if member > 0 && self.is_first_alone.load(Ordering::Relaxed) {
            current.store(member + 1, Ordering::Relaxed);
            return Err(JournalError::Unavailable { message: format!("member-{member} is down") });
        }
        let shift = u64::from(member < self.shifted.load(Ordering::Relaxed));
        let reader = self.journal.read(Position::new(from.get() + shift))?;
        Ok(Box::new(MemberReader { reader, member, shift, damaged, current }))
    }
    fn end(&self) -> Result<Position, JournalError> {
        self.journal.end()
    }
    fn trim(&self, before: Position) -> Result<(), JournalError> {
        self.journal.trim(before)
    }
    fn members(&self) -> usize {
        self.damaged.len()
    }
    fn max_record_bytes(&self) -> usize {
        self.journal.max_record_bytes()
    }
}

impl Reader for MemberReader {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>, JournalError> {
        let entry = self.reader.next(timeout)?;
        Ok(entry.map(|Entry { position, bytes }| {
            let mut bytes = bytes.to_vec();
            if position.get() >= self.damaged[self.member].load(Ordering::Relaxed) {
                // Of its checksum.
                bytes[0] ^= 1;
            }
            Entry { position: Position::new(position.get() - self.shift), bytes: bytes.into() }
        }))
    }
    fn distrust(&mut self) -> Option<String> {
        self.current.store(self.member + 1, Ordering::Relaxed);
        Some(format!("member-{}", self.member))
    }
}

/// Options whose warnings are noted.
fn noting(dir: &tempfile::TempDir) -> (Options, Arc<Mutex<Vec<String>>>) {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&warnings);
    (Options::new(dir.path()).on_warning(move |warning| noted.lock().push(warning.to_string())), warnings)
}

#[test]
fn a_record_that_some_members_have_damaged_is_read_from_another() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let sound = open(&dirs[1], &journal, 2);
    let members = Arc::new(Members::new(&journal, 1));
    let replica = || Replica { journal: Arc::clone(&members) as _, cluster: CLUSTER, id: ReplicaId(1) };
    let named = |warnings: &Mutex<Vec<String>>| -> Vec<usize> {
        let is_named = |member: &usize| {
            let member = format!("member member-{member} of the journal");
            warnings.lock().iter().any(|warning| warning.contains(&member) && warning.contains("is damaged"))
        };
        (0..5).filter(is_named).collect()
    };

    let (options, warnings) = noting(&dirs[0]);
    let engine = Engine::open_replicated(options, replica()).unwrap();
    put(&engine, "before", b"");
    // While it runs.
    members.damage(4, journal.client(9).end().unwrap().next());
    put(&engine, "meanwhile", b"");
    assert_eq!(named(&warnings), [0, 1, 2, 3]);
    engine.close().unwrap();
    drop(engine);

    // At a start, the next record, and the one that was applied last.
    for is_missed in [true, false] {
        if is_missed {
            put(&sound, "missed", b"");
        }
        members.current.store(0, Ordering::Relaxed);
        let (options, warnings) = noting(&dirs[0]);
        let engine = Engine::open_replicated(options, replica()).unwrap();
        engine.read_barrier().wait_until(Instant::now() + Duration::from_secs(60)).expect("in time").unwrap();
        assert!(is_there(&engine, "missed"));
        assert_eq!(named(&warnings), [0, 1, 2, 3]);
        engine.close().unwrap();
    }

    // Where all have it so.
    put(&sound, "damaged", b"");
    members.damage(5, Position::new(1));
    let (options, warnings) = noting(&dirs[0]);
    let refused = Engine::open_replicated(options, replica()).err().expect("refused");
    assert!(matches!(refused, Error::Journal { source: JournalError::Damaged { .. } }), "{refused}");
    assert_eq!(named(&warnings), [0, 1, 2, 3, 4]);
}

#[test]
fn a_member_that_has_a_record_damaged_is_one_however_often_it_is_read() {
    let (journal, dirs) = (SimulatedJournal::new(1), [scratch(), scratch()]);
    let sound = open(&dirs[1], &journal, 2);
    let members = Arc::new(Members::new(&journal, 1));
    let replica = || Replica { journal: Arc::clone(&members) as _, cluster: CLUSTER, id: ReplicaId(1) };
    for is_at_start in [false, true] {
        members.is_first_alone.store(false, Ordering::Relaxed);
        members.damage(1, Position::new(u64::MAX));
        let (options, warnings) = noting(&dirs[0]);
        let running = (!is_at_start).then(|| stepped(options.clone(), replica()));
        members.current.store(0, Ordering::Relaxed);
        members.is_first_alone.store(true, Ordering::Relaxed);
        members.damage(1, journal.client(9).end().unwrap().next());
        let key = format!("at start {is_at_start}");
        put(&sound, &key, b"");
        let (engine, mut stepper) =
            running.unwrap_or_else(|| Engine::open_stepped(options, replica()).unwrap());
        for _ in 0..50 {
            assert!(!stepper.apply().unwrap(), "the others have not answered");
        }
        // Once by the check of the start, and once by whoever follows the journal.
        let warned = warnings.lock().clone();
        assert_eq!(warned.len(), 1 + usize::from(is_at_start), "{warned:?}");
        assert!(warned.iter().all(|warning| warning.contains("member-0")), "{warned:?}");
        members.is_first_alone.store(false, Ordering::Relaxed);
        eventually("it is read from another", || {
            stepper.apply().unwrap();
            is_there(&engine, &key)
        });
    }
}

#[test]
fn another_record_than_was_applied_is_believed_of_most_members() {
    let (journal, dir, elsewhere) = (SimulatedJournal::new(1), scratch(), scratch());
    let members = Arc::new(Members::new(&journal, 1));
    let replica = || Replica { journal: Arc::clone(&members) as _, cluster: CLUSTER, id: ReplicaId(1) };
    let engine = Engine::open_replicated(Options::new(dir.path()), replica()).unwrap();
    put(&engine, "before", b"");
    engine.close().unwrap();
    drop(engine);
    let other = open(&elsewhere, &journal, 2);
    put(&other, "behind it", b"");
    for (shifted, is_refused) in [(2, false), (3, true)] {
        members.shifted.store(shifted, Ordering::Relaxed);
        members.current.store(0, Ordering::Relaxed);
        let opened = Engine::open_replicated(Options::new(dir.path()), replica());
        match opened {
            Ok(engine) => {
                assert!(!is_refused);
                engine.read_barrier().wait_until(Instant::now() + Duration::from_secs(60)).unwrap().unwrap();
                assert!(is_there(&engine, "behind it"));
                engine.close().unwrap();
                put(&other, "and more", b"");
            }
            Err(error) => {
                let is_replaced = matches!(error, Error::Journal { source: JournalError::Replaced { .. } });
                assert!(is_refused && is_replaced, "{error}");
            }
        }
    }
}
