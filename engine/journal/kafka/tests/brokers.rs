//! The journal on real brokers of Kafka, where the environment has them: `PLINTH_KAFKA` names their archives.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

mod common;
#[path = "../../tests/ended_reader/mod.rs"]
mod ended_reader;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{is_there, Brokers};
use plinth_journal::{conformance, Error, Founding, Journal, Position};
use plinth_journal_kafka::{KafkaJournal, KafkaOptions};

#[test]
fn it_is_a_journal() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(3);
    Brokers::append(&brokers.connect(), "the first of all");
    conformance::check(&|| Box::new(brokers.connect()));
    trimmed_positions_are_known(&brokers);
    a_broker_that_refuses_is_passed_over(&brokers);
    without_any_broker_calls_fail_in_bounded_time_and_go_on_later(&brokers);
    a_record_that_the_leader_has_damaged_is_read_from_another(&brokers);
}

/// A bit has flipped in the leader's file. Kafka serves the batch as it is.
fn a_record_that_the_leader_has_damaged_is_read_from_another(brokers: &Brokers) {
    let options = brokers.topic("damaged");
    let journal = brokers.connect_with(&options);
    Brokers::append(&journal, "before");
    let damaged = Brokers::append(&journal, "of which the leader has a bit flipped");
    let leader = journal.leader().unwrap();
    brokers.damage(brokers.leading(&journal), "damaged-0", b"has a bit flipped");
    // It is the newest one, by which a start knows whose the topic is.
    let other = KafkaJournal::connect(&options, common::CLUSTER, Founding::Forbidden).unwrap();
    Brokers::append(&other, "after");
    assert_eq!(other.members(), 3);
    let mut reader = other.read(damaged).unwrap();
    let error = reader.next(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, Error::Damaged { position, .. } if position == damaged), "{error}");
    assert_eq!(reader.distrust(), Some(leader));
    let mut reader = other.read(damaged).unwrap();
    for expected in ["of which the leader has a bit flipped", "after"] {
        assert_eq!(reader.next(Duration::from_secs(60)).unwrap().unwrap().bytes, expected);
    }
}

fn trimmed_positions_are_known(brokers: &Brokers) {
    let options = brokers.topic("trimmed");
    let journal = brokers.connect_with(&options);
    Brokers::append(&journal, "0");
    for n in 1..20 {
        journal.append(Bytes::from(format!("{n}"))).unwrap();
    }
    journal.trim(Position::new(16)).unwrap();
    let other = brokers.connect_with(&options);
    for from in [1, 7, 15] {
        let mut reader = other.read(Position::new(from)).unwrap();
        match reader.next(Duration::from_secs(5)).unwrap_err() {
            Error::Trimmed { requested, oldest } => {
                assert_eq!((requested, oldest), (Position::new(from), Position::new(16)));
            }
            error => panic!("{error}"),
        }
    }
    let mut reader = other.read(Position::new(16)).unwrap();
    assert_eq!(reader.next(Duration::from_secs(5)).unwrap().unwrap().bytes, "14");
    // One that is ahead of the journal has seen what is no more.
    let mut reader = other.read(Position::new(30)).unwrap();
    let ahead = reader.next(Duration::from_secs(5)).unwrap_err();
    assert_eq!(ahead, Error::Behind { applied: Position::new(29), end: Position::new(21) });
}

/// Addresses at which no call succeeds, each in its own way, before those of the brokers.
fn a_broker_that_refuses_is_passed_over(brokers: &Brokers) {
    let answering = |answer: &'static [u8]| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let _ = std::io::Write::write_all(&mut connection.unwrap(), answer);
            }
        });
        address
    };
    // An alert of TLS, an end of the connection, an answer of another program, nobody.
    let refusing = [
        answering(b"\x15\x03\x03\x00\x02\x02\x28"),
        answering(b""),
        answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        "127.0.0.1:1".to_owned(),
    ];
    let mut options = brokers.topic("passed-over");
    options.brokers.splice(0..0, refusing.clone());
    let journal = brokers.connect_with(&options);
    assert_eq!(Brokers::append(&journal, "a record"), Position::new(2));
    let again = KafkaJournal::connect(&options, common::CLUSTER, Founding::Forbidden).unwrap();
    assert_eq!(again.end(), Ok(Position::new(2)));
    // Where none serves, the one that says what to do is heard.
    let alone = KafkaOptions { brokers: refusing.into(), ..options };
    let refused = KafkaJournal::connect(&alone, common::CLUSTER, Founding::Allowed).map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { message } if message.contains("certificateAuthorityFile")),
        "{refused}"
    );
}

fn without_any_broker_calls_fail_in_bounded_time_and_go_on_later(brokers: &Brokers) {
    let options = brokers.topic("away");
    let journal = brokers.connect_with(&options);
    Brokers::append(&journal, "before");
    for broker in 0..3 {
        brokers.kill(broker);
    }
    assert!(journal.append("lost".into()).is_err_and(|error| error.is_transient()));
    assert!(journal.end().is_err_and(|error| error.is_transient()));
    let unreached = KafkaJournal::connect(&options, common::CLUSTER, Founding::Allowed).unwrap();
    brokers.restart();
    let deadline = Instant::now() + Duration::from_secs(60);
    while unreached.end() != Ok(Position::new(2)) {
        assert!(Instant::now() < deadline, "Kafka does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The first append of all was certainly not made.
    while journal.append("after".into()) != Ok(Position::new(3)) {
        assert!(Instant::now() < deadline, "Kafka takes no records");
        assert_eq!(unreached.end(), Ok(Position::new(2)));
    }
}

type Outcomes = Vec<(Bytes, Result<Position, Error>)>;

/// What was appended under kills and pauses is there, in one order; an append that failed is there only when
/// its outcome was unknown. Meanwhile the end, whoever asks for it, is never below what was answered or read.
#[test]
fn nothing_is_lost_while_brokers_fail() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(3);
    let journals: Vec<KafkaJournal> = (0..3).map(|_| brokers.connect()).collect();
    let is_done = AtomicBool::new(false);
    let seen = AtomicU64::new(0);
    let outcomes: Outcomes = std::thread::scope(|scope| {
        let appenders: Vec<_> = journals
            .iter()
            .enumerate()
            .map(|(client, journal)| {
                let (is_done, seen) = (&is_done, &seen);
                scope.spawn(move || append_until(client, journal, is_done, seen))
            })
            .collect();
        let askers: Vec<_> = (0..2)
            .map(|_| {
                let journal = brokers.connect();
                let (is_done, seen) = (&is_done, &seen);
                scope.spawn(move || compare_ends(&journal, is_done, seen))
            })
            .collect();
        let reading = brokers.connect();
        let (done, read) = (&is_done, &seen);
        scope.spawn(move || read_until(&reading, done, read));
        for broker in 0..3 {
            std::thread::sleep(Duration::from_millis(500));
            brokers.kill(broker);
            std::thread::sleep(Duration::from_millis(2500));
            brokers.restart();
            brokers.signal((broker + 1) % 3, "-STOP");
            std::thread::sleep(Duration::from_millis(4000));
            brokers.signal((broker + 1) % 3, "-CONT");
            std::thread::sleep(Duration::from_millis(1000));
        }
        is_done.store(true, Ordering::Relaxed);
        let ends: u64 = askers.into_iter().map(|asker| asker.join().unwrap()).sum();
        assert!(ends > 100, "{ends} calls of end were answered");
        appenders.into_iter().flat_map(|appender| appender.join().unwrap()).collect()
    });
    let end = brokers.connect().end().unwrap();
    let orders: Vec<Vec<Bytes>> = (0..2).map(|_| read_all(&brokers.connect(), end)).collect();
    assert!(orders[0] == orders[1], "one order for all readers");
    compare(&orders[0], &outcomes);
}

fn append_until(client: usize, journal: &KafkaJournal, is_done: &AtomicBool, seen: &AtomicU64) -> Outcomes {
    let mut outcomes = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        let record = Bytes::from(format!("{client} {}", outcomes.len()));
        let outcome = journal.append(record.clone());
        match &outcome {
            Ok(position) => {
                seen.fetch_max(position.get(), Ordering::SeqCst);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
        outcomes.push((record, outcome));
    }
    outcomes
}

/// Asks for the end, again and again; how often it was answered.
fn compare_ends(journal: &KafkaJournal, is_done: &AtomicBool, seen: &AtomicU64) -> u64 {
    let mut answered = 0;
    while !is_done.load(Ordering::Relaxed) {
        let before = seen.load(Ordering::SeqCst);
        match journal.end() {
            Ok(end) => {
                assert!(end.get() >= before, "the end is {end}, and {before} was seen before");
                seen.fetch_max(end.get(), Ordering::SeqCst);
                answered += 1;
            }
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    answered
}

/// Reads what comes, as a replica does.
fn read_until(journal: &KafkaJournal, is_done: &AtomicBool, seen: &AtomicU64) {
    let mut due = Position::new(1);
    while !is_done.load(Ordering::Relaxed) {
        let Ok(mut reader) = journal.read(due) else { continue };
        loop {
            match reader.next(Duration::from_millis(100)) {
                Ok(Some(entry)) => {
                    assert_eq!(entry.position, due);
                    seen.fetch_max(due.get(), Ordering::SeqCst);
                    due = due.next();
                }
                Ok(None) if !is_done.load(Ordering::Relaxed) => {}
                Ok(None) => return,
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    break;
                }
            }
        }
    }
}

fn compare(order: &[Bytes], outcomes: &Outcomes) {
    let mut counts: HashMap<&Bytes, usize> = HashMap::new();
    for record in order {
        *counts.entry(record).or_default() += 1;
    }
    let mut answered = 0;
    for (record, outcome) in outcomes {
        let count = counts.get(record).copied().unwrap_or(0);
        match outcome {
            Ok(position) => {
                answered += 1;
                assert_eq!(count, 1, "{record:?}");
                assert_eq!(&order[position.get() as usize - 1], record);
            }
            Err(Error::OutcomeUnknown { .. }) => assert!(count <= 1, "{record:?}"),
            Err(Error::Unavailable { .. }) => assert_eq!(count, 0, "{record:?}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(answered > 100, "{answered} of {} appends were answered", outcomes.len());
}

fn read_all(journal: &KafkaJournal, end: Position) -> Vec<Bytes> {
    let mut records = Vec::new();
    let mut reader = journal.read(Position::new(1)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while (records.len() as u64) < end.get() {
        match reader.next(Duration::from_millis(200)) {
            Ok(Some(entry)) => records.push(entry.bytes),
            Ok(None) => {}
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                reader = journal.read(Position::new(records.len() as u64 + 1)).unwrap();
            }
        }
        assert!(Instant::now() < deadline, "{} of {end} were read", records.len());
    }
    records
}

/// A deposed leader that wakes up does not know yet that it is one; what it says of the end is not taken, not
/// even by a client that has heard nothing of the new leader.
#[test]
fn the_end_is_not_that_of_a_leader_that_was_deposed() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(3);
    let writer = brokers.connect();
    Brokers::append(&writer, "first");
    for _ in 0..2 {
        // This client knows the leader of now, and makes no call before that is one no more.
        let late = brokers.connect();
        let leader = brokers.leading(&late);
        brokers.signal(leader, "-STOP");
        let deadline = Instant::now() + Duration::from_secs(90);
        let mut last = Position::ZERO;
        for n in 0..5 {
            last = loop {
                match writer.append(Bytes::from(format!("under the next leader {n}"))) {
                    Ok(position) => break position,
                    Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
                }
            };
        }
        let ends: Vec<Position> = std::thread::scope(|scope| {
            let asking = scope.spawn(|| loop {
                if let Ok(end) = late.end() {
                    return end;
                }
            });
            // Its question is at the broker that stands still when that goes on.
            std::thread::sleep(Duration::from_millis(50));
            brokers.signal(leader, "-CONT");
            vec![asking.join().unwrap(), late.end().unwrap_or(last)]
        });
        assert!(ends.iter().all(|end| *end >= last), "{ends:?} where {last} was answered before");
    }
}

#[test]
fn a_journal_of_one_broker_is_one() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(1);
    let options = KafkaOptions { max_record_bytes: 100_000, ..brokers.options() };
    let journal = brokers.connect_with(&options);
    // The record that founds it.
    assert_eq!(journal.end(), Ok(Position::new(1)));
    assert_eq!(Brokers::append(&journal, "a record"), Position::new(2));
    assert_eq!(journal.end(), Ok(Position::new(2)));
}

#[test]
fn a_reader_whose_broker_has_ended_is_not_gone_on_with() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(1);
    let journal = brokers.connect();
    ended_reader::is_not_busy(&journal, || {
        brokers.kill(0);
        brokers.restart();
        brokers.connect();
    });
}
