//! Engines as replicas over real members of a journal: the same for each of its implementations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_engine::{At, Condition, Engine, Error, Failure, Options, Replica, Transaction};
use plinth_journal::record::ReplicaId;
use plinth_journal::{Error as JournalError, Journal};

use crate::common::CLUSTER;

/// Adds one to a counter, however often others come first.
fn increment(engine: &Engine) {
    loop {
        let found = engine.get(b"counter", At::Latest).unwrap();
        let (count, condition) = match &found {
            None => (0, Condition::Absent("counter".into())),
            Some(record) => (
                u64::from_le_bytes(record.value[..].try_into().unwrap()),
                Condition::ModRevision { key: "counter".into(), revision: record.mod_revision },
            ),
        };
        let value = (count + 1).to_le_bytes().to_vec();
        match engine.transact(Transaction::new().require(condition).put("counter", value)).wait() {
            Ok(_) => return,
            Err(Error::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Three replicas count while `fail` stops members and lets them go on.
pub(crate) fn replicas_stay_equal<T>(mut nodes: T, connect: fn(&T) -> Arc<dyn Journal>, fail: fn(&mut T)) {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let open = |id: u16| {
        let replica = Replica { journal: connect(&nodes), cluster: CLUSTER, id: ReplicaId(id) };
        Engine::open_replicated(Options::new(dirs[usize::from(id)].path()), replica).unwrap()
    };
    let mut engines: Vec<Engine> = (0..3).map(open).collect();
    let is_done = AtomicBool::new(false);
    let count: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12)
            .map(|client| {
                let (engine, is_done) = (&engines[client % 3], &is_done);
                scope.spawn(move || {
                    let mut count = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        increment(engine);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        fail(&mut nodes);
        is_done.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    // One of them starts again.
    let last = engines.pop().unwrap();
    last.close().unwrap();
    drop(last);
    let journal = connect(&nodes);
    let replica = Replica { journal, cluster: CLUSTER, id: ReplicaId(2) };
    engines.push(Engine::open_replicated(Options::new(dirs[2].path()), replica).unwrap());
    for engine in &engines {
        let barrier = engine.read_barrier().wait_until(Instant::now() + Duration::from_secs(60));
        barrier.expect("the journal answers").unwrap();
        let record = engine.get(b"counter", At::Latest).unwrap().unwrap();
        assert_eq!(record.value[..], count.to_le_bytes());
    }
    // A session that began last may be applied by one before the other.
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = |n: usize| engines[n].replica_status().unwrap();
    while !(status(0) == status(1) && status(1) == status(2)) {
        assert!(Instant::now() < deadline, "{:?} {:?} {:?}", status(0), status(1), status(2));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One of two replicas closes the journal.
pub(crate) fn a_closed_journal_stops_all<T>(nodes: &T, connect: fn(&T) -> Arc<dyn Journal>) {
    let dirs: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let open = |id: u16| {
        let replica = Replica { journal: connect(nodes), cluster: CLUSTER, id: ReplicaId(id) };
        Engine::open_replicated(Options::new(dirs[usize::from(id)].path()), replica)
    };
    let engines = [open(0).unwrap(), open(1).unwrap()];
    engines.iter().for_each(increment);
    engines[1].close_journal().wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while engines.iter().any(|engine| engine.failure().is_none()) {
        assert!(Instant::now() < deadline, "a replica follows a journal that was closed");
        std::thread::sleep(Duration::from_millis(20));
    }
    for engine in engines {
        let failure = engine.failure().unwrap();
        assert!(
            matches!(
                &failure,
                Failure::Journal { error: JournalError::Closed { replica: ReplicaId(1), .. } }
            ),
            "{failure}"
        );
        let refused = engine.transact(Transaction::new().put("late", "")).wait();
        assert!(refused.is_err());
        assert!(engine.close().is_err());
    }
    for id in 0..2 {
        let refused = open(id).err().unwrap();
        assert!(matches!(refused, Error::Journal { source: JournalError::Closed { .. } }), "{refused}");
    }
}
