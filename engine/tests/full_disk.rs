//! A full disk, simulated by a failpoint. In a file of its own: failpoints are global to a process.

mod common;

use common::{assert_sound, replay, scratch};
use plinth_engine::{failpoint, At, Engine, Error, KeyRange, Options, Transaction};

/// On a full disk writes are refused and reads continue; writes work again once there is space.
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
    let delivered = replay(&engine, &KeyRange::all(), 0);
    assert_eq!(delivered.len(), 2, "what failed is in no feed");
    drop(engine);
    assert_sound(dir.path());
}

/// The same on a file system that is really full. Needs a small one: `mount -t tmpfs -o size=24m tmpfs DIR`
/// and `PLINTH_SMALL_DISK=DIR`.
#[test]
#[ignore = "needs a small file system, named by PLINTH_SMALL_DISK"]
fn a_really_full_disk_refuses_writes_and_passes() {
    let Some(small) = std::env::var_os("PLINTH_SMALL_DISK") else { return };
    let dir = tempfile::tempdir_in(&small).unwrap();
    let data = dir.path().join("data");
    let engine = Engine::open(Options::new(&data).write_buffer_bytes(1 << 20)).unwrap();
    let put =
        |n: u32| engine.transact(Transaction::new().put(n.to_be_bytes().to_vec(), vec![7; 10_000])).wait();
    let filler = dir.path().join("filler");
    std::fs::write(&filler, vec![1; 12 << 20]).unwrap();
    let mut acknowledged = 0;
    let error = loop {
        match put(acknowledged) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 10_000, "the disk is full by now");
    };
    assert!(matches!(error, Error::OutOfSpace { .. }), "{error}");
    for n in 0..acknowledged {
        assert!(engine.get(&n.to_be_bytes(), At::Latest).unwrap().is_some());
    }
    assert!(matches!(put(acknowledged), Err(Error::OutOfSpace { .. })));

    std::fs::remove_file(&filler).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while let Err(error) = put(acknowledged) {
        assert!(matches!(error, Error::OutOfSpace { .. }), "{error}");
        assert!(std::time::Instant::now() < deadline, "{error}");
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    }
    assert_eq!(engine.current_revision().get(), u64::from(acknowledged) + 1);
    let delivered = replay(&engine, &KeyRange::all(), 0);
    assert_eq!(delivered.len() as u32, acknowledged + 1);
    drop(engine);
    assert_sound(&data);
}
