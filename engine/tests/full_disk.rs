//! A disk that is full, made by a failpoint. Alone in its file: failpoints are global to a process.

mod common;

use common::{assert_sound, replay, scratch};
use plinth_engine::{failpoint, At, Engine, Error, KeyRange, Options, Transaction};

/// A full disk refuses writes, lets reads go on, and is over when there is room.
#[test]
fn a_full_disk_refuses_writes_and_passes() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    let put = |key: &'static str| engine.transact(Transaction::new().put(key, "value")).wait();
    let before = put("a").unwrap().revision;
    failpoint::set("write-full", 1, failpoint::Action::OutOfSpace);
    let under_way: Vec<_> =
        (0..50u8).map(|n| engine.transact(Transaction::new().put(vec![n], "value"))).collect();
    let mut full = 0;
    for proposal in under_way {
        match proposal.wait() {
            Err(Error::OutOfSpace { .. }) => full += 1,
            // Queued before the failure was noticed, done after it.
            Ok(_) => panic!("the point fails every write from the first on"),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(full, 50);
    assert_eq!(engine.current_revision(), before);
    assert_eq!(engine.get(b"a", At::Latest).unwrap().unwrap().mod_revision, before);
    failpoint::clear_point("write-full");
    assert_eq!(put("b").unwrap().revision, before.next(), "no revision is skipped");
    let told = replay(&engine, &KeyRange::all(), 0);
    assert_eq!(told.len(), 2, "what failed is in no feed");
    drop(engine);
    assert_sound(dir.path());
}
