//! Engines as replicas over real brokers of Kafka that fail.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

mod common;
#[path = "../../tests/replicated/mod.rs"]
mod replicated;

use std::sync::Arc;
use std::time::Duration;

use common::{is_there, Brokers};
use plinth_journal::Journal;

fn connect(brokers: &Brokers) -> Arc<dyn Journal> {
    Arc::new(brokers.connect())
}

#[test]
fn three_replicas_stay_equal_while_brokers_fail() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(3);
    brokers.connect();
    replicated::replicas_stay_equal(brokers, connect, |brokers| {
        for broker in 0..3 {
            brokers.kill(broker);
            std::thread::sleep(Duration::from_millis(3500));
            brokers.restart();
            std::thread::sleep(Duration::from_millis(500));
            brokers.signal(broker, "-STOP");
            std::thread::sleep(Duration::from_millis(3500));
            brokers.signal(broker, "-CONT");
            std::thread::sleep(Duration::from_millis(500));
        }
    });
}

#[test]
fn a_closed_journal_stops_all_replicas() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(3);
    brokers.connect();
    replicated::a_closed_journal_stops_all(&brokers, connect);
}
