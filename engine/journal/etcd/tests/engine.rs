//! Engines as replicas over real members of etcd that fail.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

mod common;
#[path = "../../tests/replicated/mod.rs"]
mod replicated;

use std::sync::Arc;
use std::time::Duration;

use common::{program, Members};
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
