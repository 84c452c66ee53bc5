//! The engine fails for good: every waiting caller is answered, nothing is retried, the failure is reported,
//! and what was acknowledged is there when the directory is opened again. Needs the feature `failpoints`.

mod common;

use std::time::Duration;

use common::{assert_sound, scratch};
use parking_lot::{Mutex, MutexGuard};
use plinth_engine::failpoint::{self, Action};
use plinth_engine::{
    At, Committed, Engine, Error, Failure, KeyRange, Options, Proposal, Revision, Subscribe, Transaction,
};

/// Failpoints are global to a process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Taken by each test before it opens an engine.
fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock()
}

/// A failpoint that is cleared on drop, even if the test fails.
struct Set(&'static str);

fn set(name: &'static str, action: Action) -> Set {
    failpoint::set(name, 1, action);
    Set(name)
}

impl Drop for Set {
    fn drop(&mut self) {
        failpoint::clear_point(self.0);
    }
}

fn put(engine: &Engine, key: &str) -> Proposal {
    engine.transact(Transaction::new().put(key.to_owned(), "value"))
}

/// Waits on a thread of its own, so that a proposal that is never answered fails the test instead of hanging
/// it.
fn outcome(proposal: Proposal) -> Result<Committed, Error> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(proposal.wait()));
    receiver.recv_timeout(Duration::from_secs(60)).expect("an answer")
}

fn failure(engine: &Engine) -> Failure {
    let failed = engine.failed();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(block_on(failed)));
    receiver.recv_timeout(Duration::from_secs(60)).expect("the engine has failed")
}

fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Checks what holds for every failed engine; then opens the directory again.
fn assert_failed(engine: Engine, point: Set, acknowledged: &[&str]) -> Failure {
    let reported = failure(&engine);
    drop(point);
    assert_eq!(engine.failure().as_ref(), Some(&reported));
    let refused = outcome(put(&engine, "refused")).unwrap_err();
    assert!(matches!(refused, Error::Poisoned { .. }), "nothing is tried again: {refused}");
    assert!(engine.compact(engine.current_revision()).is_err());
    assert!(engine.wait_compacted().is_err());
    let subscribed = engine.subscribe(Subscribe::new(KeyRange::all())).map(|_| ());
    assert!(matches!(subscribed, Err(Error::Poisoned { .. })), "{subscribed:?}");
    for key in acknowledged {
        assert!(engine.get(key.as_bytes(), At::Latest).unwrap().is_some(), "reads go on");
    }
    assert!(matches!(engine.close(), Err(Error::Poisoned { .. })));
    reported
}

fn assert_there(dir: &std::path::Path, acknowledged: &[&str]) {
    assert_sound(dir);
    let engine = Engine::open(Options::new(dir)).unwrap();
    for key in acknowledged {
        assert!(engine.get(key.as_bytes(), At::Latest).unwrap().is_some(), "{key}");
    }
    assert!(engine.get(b"refused", At::Latest).unwrap().is_none());
    assert_eq!(engine.failure(), None);
}

#[test]
fn a_failed_write_answers_all_and_is_not_tried_again() {
    let _alone = alone();
    for point in ["write-before", "write-after"] {
        let dir = scratch();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        put(&engine, "a").wait().unwrap();
        let mut feed = engine.subscribe(Subscribe::new(KeyRange::all())).unwrap();
        let waiting = engine.wait_for(Revision::new(1000));
        let point = set(point, Action::Fail);
        let proposals: Vec<Proposal> = (0..50).map(|n| put(&engine, &format!("b{n}"))).collect();
        let mut unknown = 0;
        for proposal in proposals {
            match outcome(proposal) {
                Err(Error::OutcomeUnknown { .. }) => unknown += 1,
                Err(Error::Poisoned { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(unknown > 0, "the group that was handed to the disk");
        let ended = feed.next_timeout(Duration::from_secs(60));
        assert!(matches!(ended, Err(Error::Poisoned { .. })), "{ended:?}");
        assert!(matches!(block_on(waiting), Err(Error::Poisoned { .. })));
        let reported = assert_failed(engine, point, &["a"]);
        assert!(matches!(reported, Failure::Write { .. }), "{reported}");
        assert_there(dir.path(), &["a"]);
    }
}

/// Relaxed transactions are acknowledged before they are synced; their sync fails later.
#[test]
fn a_failed_sync_of_relaxed_transactions_is_noticed() {
    let _alone = alone();
    let dir = scratch();
    let options =
        || Options::new(dir.path()).relaxed_durability("r/").relaxed_sync_interval(Duration::from_millis(1));
    let engine = Engine::open(options()).unwrap();
    put(&engine, "a").wait().unwrap();
    let point = set("sync-before", Action::Fail);
    // The first of them reserves revisions, which is synced.
    put(&engine, "r/1").wait().unwrap();
    let _ = outcome(put(&engine, "r/2"));
    let reported = assert_failed(engine, point, &["a", "r/1"]);
    assert!(matches!(reported, Failure::Write { .. }), "{reported}");
    assert_there(dir.path(), &["a", "r/1"]);
}

#[test]
fn a_panic_of_the_thread_that_writes_answers_all() {
    let _alone = alone();
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    put(&engine, "a").wait().unwrap();
    let point = set("write-before", Action::Panic);
    // More than the builder writes itself, so that both threads hold groups.
    let proposals: Vec<Proposal> = (0..50).map(|n| put(&engine, &format!("b{n}"))).collect();
    for proposal in proposals {
        let error = outcome(proposal).unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. } | Error::Poisoned { .. }), "{error}");
    }
    let reported = assert_failed(engine, point, &["a"]);
    assert!(
        matches!(&reported, Failure::Panic { message, .. } if message.contains("write-before")),
        "{reported}"
    );
    assert_there(dir.path(), &["a"]);
}

#[test]
fn a_panic_of_the_maintenance_thread_fails_the_engine() {
    let _alone = alone();
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    put(&engine, "a").wait().unwrap();
    let last = put(&engine, "a").wait().unwrap().revision;
    let point = set("compact-after-history", Action::Panic);
    engine.compact(last).unwrap();
    let reported = assert_failed(engine, point, &["a"]);
    assert!(matches!(&reported, Failure::Panic { thread, .. } if thread == "plinth-maintain"), "{reported}");
    assert_there(dir.path(), &["a"]);
}

/// A write that was refused for lack of space has certainly not been written, and the engine has not failed.
#[test]
fn a_full_disk_is_no_failure() {
    let _alone = alone();
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    let point = set("write-full", Action::OutOfSpace);
    assert!(matches!(outcome(put(&engine, "a")), Err(Error::OutOfSpace { .. })));
    assert_eq!(engine.failure(), None);
    drop(point);
    outcome(put(&engine, "a")).unwrap();
}
