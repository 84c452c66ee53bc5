//! Engines as replicas over real members of etcd that fail.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

mod common;
#[path = "../../tests/ended_reader/mod.rs"]
mod ended_reader;
#[path = "../../tests/replicated/mod.rs"]
mod replicated;
#[path = "../../tests/slow_link/mod.rs"]
mod slow_link;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{program, Members, CLUSTER};
use parking_lot::Mutex;
use plinth_engine::{At, Engine, Error, Options, Replica, Transaction};
use plinth_journal::record::ReplicaId;
use plinth_journal::{Error as JournalError, Journal, Position, Reader};
use plinth_journal_etcd::EtcdOptions;
use slow_link::SlowLink;

fn connect(members: &Members) -> Arc<dyn Journal> {
    Arc::new(members.connect())
}

#[test]
fn three_replicas_stay_equal_while_members_fail() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 3);
    members.connect();
    replicated::replicas_stay_equal(members, connect, |members| {
        for member in 0..3 {
            members.kill(member);
            std::thread::sleep(Duration::from_millis(1500));
            members.restart(member);
            std::thread::sleep(Duration::from_millis(1500));
            members.signal(member, "-STOP");
            std::thread::sleep(Duration::from_millis(1500));
            members.signal(member, "-CONT");
            std::thread::sleep(Duration::from_millis(1000));
        }
    });
}

#[test]
fn a_closed_journal_stops_all_replicas() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 3);
    members.connect();
    replicated::a_closed_journal_stops_all(&members, connect);
}

#[test]
fn a_reader_whose_member_has_ended_is_not_gone_on_with() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 1);
    let journal = members.connect();
    ended_reader::is_not_busy(&journal, || {
        members.kill(0);
        members.restart(0);
        members.wait();
    });
}

/// etcd does not look for flipped bits by default. The replica finds them, and reads from another member.
#[test]
fn a_record_that_one_member_has_damaged_is_read_from_another() {
    const VALUE: &[u8] = b"a value that is nowhere else in the files of a member";
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 3);
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let open = |members: &Members, id: u16| {
        let journal = connect(members);
        let replica = Replica { journal, cluster: CLUSTER, id: ReplicaId(id) };
        let noted = Arc::clone(&warnings);
        let options = Options::new(dirs[usize::from(id)].path())
            .on_warning(move |warning| noted.lock().push(warning.to_string()));
        Engine::open_replicated(options, replica).unwrap()
    };
    let put = |engine: &Engine, key: &'static str, value: &'static [u8]| {
        engine.transact(Transaction::new().put(key, value)).wait().unwrap();
    };
    let away = open(&members, 0);
    put(&away, "before", b"");
    away.close().unwrap();
    drop(away);
    let other = open(&members, 1);
    put(&other, "missed", VALUE);
    put(&other, "later", b"");
    other.close().unwrap();
    drop(other);
    members.damage(0, VALUE);
    warnings.lock().clear();
    let back = open(&members, 0);
    back.read_barrier().wait_until(Instant::now() + Duration::from_secs(60)).expect("in time").unwrap();
    assert_eq!(back.get(b"missed", At::Latest).unwrap().unwrap().value, VALUE);
    assert!(back.get(b"later", At::Latest).unwrap().is_some());
    let warnings = warnings.lock();
    let named = format!("member {} of the journal", members.address(0));
    assert!(warnings.iter().any(|text| text.contains(&named) && text.contains("damaged")), "{warnings:?}");
}

/// Counts the readers that are opened.
struct Counting(Arc<dyn Journal>, AtomicUsize);

impl Journal for Counting {
    fn append(&self, record: Bytes) -> Result<Position, JournalError> {
        self.0.append(record)
    }
    fn read(&self, from: Position) -> Result<Box<dyn Reader>, JournalError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(from)
    }
    fn end(&self) -> Result<Position, JournalError> {
        self.0.end()
    }
    fn trim(&self, before: Position) -> Result<(), JournalError> {
        self.0.trim(before)
    }
    fn given_up(&self) -> u64 {
        self.0.given_up()
    }
    fn max_record_bytes(&self) -> usize {
        self.0.max_record_bytes()
    }
}

/// Each append that is refused would have the journal read once more from what was applied last, for which
/// readers wait.
#[test]
fn an_etcd_without_space_is_read_on() {
    let Some(program) = program() else { return };
    let members = Members::with_flags(program, 1, &["--quota-backend-bytes=8388608"]);
    let (journal, dir) =
        (Arc::new(Counting(connect(&members), AtomicUsize::new(0))), tempfile::tempdir().unwrap());
    let replica = Replica { journal: Arc::clone(&journal) as _, cluster: CLUSTER, id: ReplicaId(1) };
    let engine = Engine::open_replicated(Options::new(dir.path()), replica).unwrap();
    let in_time = || Instant::now() + Duration::from_secs(60);
    let large = |n: usize| engine.transact(Transaction::new().put(format!("{n}"), vec![0; 300_000]));
    let (mut written, deadline) = (Vec::new(), in_time());
    while !engine.journal_refusal().is_some_and(|reason| reason.contains("space exceeded")) {
        assert!(Instant::now() < deadline, "etcd has no quota");
        // It looks at what was written out last.
        written.push(large(written.len()));
        std::thread::sleep(Duration::from_millis(10));
    }
    let opened = journal.1.load(Ordering::Relaxed);
    for _ in 0..100 {
        engine.read_barrier().wait_until(in_time()).expect("in time").unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(engine.journal_refusal().is_some());
    assert_eq!(journal.1.load(Ordering::Relaxed), opened);
}

/// The limit of all members was lowered while an append was on its way.
#[test]
fn a_record_that_no_member_takes_any_more_keeps_no_other_waiting() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 3);
    let dir = tempfile::tempdir().unwrap();
    let replica = Replica { journal: connect(&members), cluster: CLUSTER, id: ReplicaId(1) };
    let engine = Engine::open_replicated(Options::new(dir.path()), replica).unwrap();
    let put = |key: &'static str, bytes: usize| engine.transact(Transaction::new().put(key, vec![0; bytes]));
    put("before", 1).wait().unwrap();
    (0..3).for_each(|member| members.signal(member, "-STOP"));
    let large = put("large", 1_000_000);
    let deadline = Instant::now() + Duration::from_secs(60);
    while engine.journal_silence().is_none() {
        assert!(Instant::now() < deadline, "the append is answered");
        std::thread::sleep(Duration::from_millis(10));
    }
    let after = put("after", 1);
    members.restart_all_with("--max-request-bytes=100000");
    let outcome = large.wait();
    after.wait().unwrap();
    // What a member had taken it may have passed on.
    let is_there = engine.get(b"large", At::Latest).unwrap().is_some();
    match outcome {
        Ok(_) => assert!(is_there),
        Err(Error::TooLarge { .. }) => assert!(!is_there),
        Err(error) => panic!("{error}"),
    }
}

/// A replica writes while it gets what another one has written. An append is on its way for longer than a
/// member has to answer, and is answered behind the records that come: neither begins again.
#[test]
fn a_replica_writes_and_reads_over_a_slow_path() {
    const RECORDS: usize = 3;
    const RECORD_BYTES: usize = 1_000_000;
    /// How often the bytes of all records may pass.
    const TIMES: usize = 3;
    let Some(program) = program() else { return };
    let members = Members::start(program, 3);
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let open = |journal: Arc<dyn Journal>, id: u16| {
        let replica = Replica { journal, cluster: CLUSTER, id: ReplicaId(id) };
        Engine::open_replicated(Options::new(dirs[usize::from(id)].path()), replica).unwrap()
    };
    let near = open(connect(&members), 0);
    let link = SlowLink::both_ways(RECORD_BYTES as u64 / 4);
    let options = members.options();
    let addresses = options.members.iter().map(|member| link.to(member.clone())).collect();
    let far = members.connect_with(&EtcdOptions { members: addresses, ..options });
    let far = open(Arc::new(far), 1);
    let write =
        |engine: &Engine, key: String| engine.transact(Transaction::new().put(key, vec![0; RECORD_BYTES]));
    far.transact(Transaction::new().put("far", "")).wait().unwrap();
    let most = link.passed() + (TIMES * 2 * RECORDS * RECORD_BYTES) as u64;
    let written: Vec<_> = (0..RECORDS)
        .flat_map(|n| [write(&near, format!("near/{n}")), write(&far, format!("far/{n}"))])
        .collect();
    let deadline = Instant::now() + Duration::from_secs(300);
    for key in (0..RECORDS).flat_map(|n| [format!("near/{n}"), format!("far/{n}")]) {
        while far.get(key.as_bytes(), At::Latest).unwrap().is_none() {
            let passed = link.passed();
            assert!(passed <= most && Instant::now() < deadline, "{passed} of {most} bytes, and not {key}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    written.into_iter().for_each(|written| drop(written.wait().unwrap()));
}
