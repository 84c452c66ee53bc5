//! Engines as replicas over real members of etcd that fail.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

mod common;
#[path = "../../tests/replicated/mod.rs"]
mod replicated;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{program, Members, CLUSTER};
use parking_lot::Mutex;
use plinth_engine::{At, Engine, Options, Replica, Transaction};
use plinth_journal::record::ReplicaId;
use plinth_journal::Journal;

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
