//! Topics that cannot hold a journal, on real brokers of Kafka: each is refused in words, and nothing is
//! written.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

mod common;

use std::time::{Duration, Instant};

use common::{admin, is_there, Brokers, CLUSTER};
use plinth_journal::record::{ClusterId, Record};
use plinth_journal::{Error, Founding, Journal, Position};
use plinth_journal_kafka::{KafkaJournal, KafkaOptions};

/// Why a topic is refused, once brokers know what they are asked about it.
fn refusal(options: &KafkaOptions, cluster: ClusterId) -> String {
    refusal_of(options, cluster, Founding::Allowed)
}

fn refusal_of(options: &KafkaOptions, cluster: ClusterId, founding: Founding) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match KafkaJournal::connect(options, cluster, founding).and_then(|journal| journal.end()) {
            Err(Error::Refused { message }) => return message,
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
            Ok(end) => panic!("{} is accepted, and ends at {end}", options.topic),
        }
    }
}

/// The end, once a leader is known that confirms it.
fn end(journal: &KafkaJournal) -> Result<Position, Error> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match journal.end() {
            Err(error) if error.is_transient() && Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

#[test]
fn a_topic_that_cannot_hold_a_journal_is_refused() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(3);
    let good: [(&str, &str); 3] =
        [("min.insync.replicas", "2"), ("retention.ms", "-1"), ("max.message.bytes", "9000000")];
    for (topic, partitions, replicas, setting, expected) in [
        ("partitions", 3, 3, None, "has 3 partitions"),
        ("copies", 1, 1, None, "replication factor of 3"),
        ("compacted", 1, 3, Some(("cleanup.policy", "compact")), "set it to delete"),
        ("short", 1, 3, Some(("retention.ms", "600000")), "set it to -1"),
        ("small", 1, 3, Some(("retention.bytes", "1000000")), "set it to -1"),
        ("unsafe", 1, 3, Some(("min.insync.replicas", "1")), "set it to 2"),
        ("unclean", 1, 3, Some(("unclean.leader.election.enable", "true")), "set it to false"),
        ("narrow", 1, 3, Some(("max.message.bytes", "1000000")), "maxRecordBytes"),
        ("packed", 1, 3, Some(("compression.type", "lz4")), "set it to producer"),
    ] {
        let options = brokers.topic(topic);
        let mut settings: Vec<(&str, &str)> =
            good.into_iter().filter(|(name, _)| setting.is_none_or(|(bad, _)| bad != *name)).collect();
        settings.extend(setting);
        admin::create(&options, partitions, replicas, &settings);
        let message = refusal(&options, CLUSTER);
        assert!(message.contains(topic) && message.contains(expected), "{message}");
        assert!(setting.is_none_or(|(name, _)| message.contains(name)), "{message}");
    }
    let accepted = brokers.topic("accepted");
    admin::create(&accepted, 1, 3, &good);
    assert_eq!(Brokers::append(&brokers.connect_with(&accepted), "a record"), Position::new(2));
    another_clusters_topic_is_refused(&accepted);
    records_of_other_programs_are_refused(&brokers);
    one_of_several_clusters_founds_the_journal(&brokers);
    another_clusters_record_ends_a_reader(&brokers);
    changes_of_a_topic_are_found(&brokers);
    a_topic_that_was_recreated_is_another_one(&brokers, &good);
    a_topic_that_was_recreated_is_not_trimmed(&brokers);
}

/// Where each broker has to have a record, no other one is asked whether the leader leads.
fn a_topic_that_was_recreated_is_not_trimmed(brokers: &Brokers) {
    let settings = [("min.insync.replicas", "3"), ("retention.ms", "-1"), ("max.message.bytes", "9000000")];
    // The new one may have another leader, and an earlier call finds it out then.
    for n in 0..4 {
        let options = brokers.topic(&format!("untrimmed-{n}"));
        admin::create(&options, 1, 3, &settings);
        let journal = brokers.connect_with(&options);
        Brokers::append(&journal, "old");
        admin::delete(&options);
        admin::create(&options, 1, 3, &settings);
        for _ in 0..5 {
            admin::append_to(&options, 0, b"a key", b"a value");
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match journal.trim(Position::new(2)) {
                Err(Error::Refused { message }) => {
                    assert!(message.contains("recreated"), "{message}");
                    break;
                }
                Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
                Ok(()) => panic!("another topic is trimmed"),
            }
        }
    }
}

/// A topic has the replicas for ever with which it is created.
#[test]
fn a_journal_that_is_founded_while_a_broker_is_down_has_a_replica_there() {
    if !is_there() {
        return;
    }
    let brokers = Brokers::start(3);
    brokers.kill(2);
    let mut options = brokers.options();
    options.brokers.truncate(1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while admin::brokers_up(&options) > 2 {
        assert!(Instant::now() < deadline, "a broker that is down is not missed");
        std::thread::sleep(Duration::from_millis(50));
    }
    let journal = brokers.connect_with(&options);
    assert_eq!(journal.members(), 3);
    assert_eq!(Brokers::append(&journal, "a record"), Position::new(2));
    // One that has fewer is no place for a new cluster.
    let fewer = KafkaOptions { topic: "fewer".to_owned(), ..options };
    admin::create(&fewer, 1, 2, &[("max.message.bytes", "9000000")]);
    let message = refusal(&fewer, CLUSTER);
    assert!(message.contains("replication factor of 3"), "{message}");
}

fn another_clusters_topic_is_refused(options: &KafkaOptions) {
    let other = ClusterId([9; 16]);
    let message = refusal(options, other);
    assert!(message.contains(&CLUSTER.to_string()) && message.contains(&other.to_string()), "{message}");
    let mine = KafkaJournal::connect(options, CLUSTER, Founding::Allowed).unwrap();
    assert_eq!(end(&mine), Ok(Position::new(2)), "nothing was written");
}

fn records_of_other_programs_are_refused(brokers: &Brokers) {
    let options = brokers.topic("foreign");
    let journal = brokers.connect_with(&options);
    Brokers::append(&journal, "mine");
    let leader = journal.leader().unwrap();
    let at_leader = KafkaOptions { brokers: vec![leader], ..options.clone() };
    admin::append(&at_leader, b"a key", b"a value");
    let mut reader = journal.read(Position::new(2)).unwrap();
    assert_eq!(reader.next(Duration::from_secs(5)).map(|entry| entry.unwrap().bytes), Ok("mine".into()));
    let error = reader.next(Duration::from_secs(5)).unwrap_err();
    assert!(
        matches!(error, Error::Damaged { position, reason } if position == Position::new(3) && reason.contains("another program")),
        "{error}"
    );
    let message = refusal(&options, CLUSTER);
    assert!(message.contains("foreign") && message.contains("a topic of its own"), "{message}");
}

/// Several clusters find in the same moment that the topic does not exist. Those that come too late leave
/// records behind, which readers pass over.
fn one_of_several_clusters_founds_the_journal(brokers: &Brokers) {
    const CLUSTERS: u8 = 6;
    let options = brokers.topic("founded");
    let message = refusal_of(&options, CLUSTER, Founding::Forbidden);
    assert!(message.contains("does not exist") && message.contains("Nothing was written"), "{message}");
    let together = std::sync::Barrier::new(CLUSTERS.into());
    let outcomes: Vec<Result<(ClusterId, KafkaJournal), String>> = std::thread::scope(|scope| {
        let clusters = (1..=CLUSTERS).map(|number| {
            let (options, together, cluster) = (&options, &together, ClusterId([number; 16]));
            scope.spawn(move || {
                together.wait();
                let deadline = Instant::now() + Duration::from_secs(60);
                loop {
                    let journal = KafkaJournal::connect(options, cluster, Founding::Allowed);
                    match journal.and_then(|journal| journal.end().map(|_| journal)) {
                        Ok(journal) => return Ok((cluster, journal)),
                        Err(Error::Refused { message }) => return Err(message),
                        Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
                    }
                }
            })
        });
        let clusters: Vec<_> = clusters.collect();
        clusters.into_iter().map(|cluster| cluster.join().unwrap()).collect()
    });
    let mut founded = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(founder) => founded.push(founder),
            Err(message) => assert!(message.contains("another cluster's"), "{message}"),
        }
    }
    let [(cluster, journal)] = &founded[..] else { panic!("{} have founded it", founded.len()) };
    let last = Brokers::append(journal, "a record");
    // One that comes even later: its record is the newest.
    let at_leader = KafkaOptions { brokers: vec![journal.leader().unwrap()], ..options.clone() };
    let late = ClusterId([99; 16]);
    admin::append(&at_leader, format!("plinth journal, format 1, founded by cluster {late}").as_bytes(), b"");
    let message = refusal(&options, late);
    assert!(message.contains("another cluster's"), "{message}");
    let again = KafkaJournal::connect(&options, *cluster, Founding::Forbidden).unwrap();
    assert_eq!(end(&again), Ok(last.next()));
    let mut reader = again.read(Position::new(1)).unwrap();
    let mut void = None;
    for position in 1..=last.get() + 1 {
        let entry = reader.next(Duration::from_secs(5)).unwrap().unwrap();
        assert_eq!(entry.position, Position::new(position));
        match position == last.get() {
            true => assert_eq!(entry.bytes, "a record"),
            false => assert_eq!(entry.bytes, *void.get_or_insert(entry.bytes.clone())),
        }
    }
    assert_eq!(Record::decode(void.unwrap()).unwrap().cluster, *cluster);
}

/// Another cluster's record, which nothing keeps from the topic that was checked at the start.
fn another_clusters_record_ends_a_reader(brokers: &Brokers) {
    let options = brokers.topic("both");
    let journal = brokers.connect_with(&options);
    Brokers::append(&journal, "mine");
    let other = ClusterId([2; 16]);
    let at_leader = KafkaOptions { brokers: vec![journal.leader().unwrap()], ..options };
    admin::append(&at_leader, format!("plinth journal, format 1, cluster {other}").as_bytes(), b"theirs");
    let error = journal.read(Position::new(3)).unwrap().next(Duration::from_secs(5)).unwrap_err();
    assert_eq!(error, Error::OtherCluster { position: Position::new(3), found: other, expected: CLUSTER });
}

/// Waits until a journal has these problems: each of them contains the text in its place.
fn has_problems(journal: &KafkaJournal, expected: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = journal.problems();
        match &found {
            Ok(found)
                if found.len() == expected.len()
                    && found
                        .iter()
                        .zip(expected)
                        .all(|(found, expected)| found.to_string().contains(expected)) =>
            {
                return;
            }
            Err(error) => assert!(error.is_transient(), "{error}"),
            Ok(_not_known_to_all) => {}
        }
        assert!(Instant::now() < deadline, "{expected:?}: {found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Settings that change while replicas run are found; partitions that were added and are empty keep nobody
/// from a start, as nobody can remove them.
fn changes_of_a_topic_are_found(brokers: &Brokers) {
    let options = brokers.topic("changed");
    let journal = brokers.connect_with(&options);
    let last = Brokers::append(&journal, "a record");
    has_problems(&journal, &[]);
    for (name, bad, good) in [
        ("min.insync.replicas", "1", "2"),
        ("cleanup.policy", "compact", "delete"),
        ("retention.ms", "600000", "-1"),
    ] {
        admin::set(&options, name, bad);
        has_problems(&journal, &[name]);
        admin::set(&options, name, good);
        has_problems(&journal, &[]);
    }
    admin::add_partitions(&options, 3);
    has_problems(&journal, &["has 3 partitions, of which the journal is partition 0 alone"]);
    let last_here = Brokers::append(&journal, "another one");
    assert_eq!(last_here, last.next());
    let started = KafkaJournal::connect(&options, CLUSTER, Founding::Forbidden).unwrap();
    assert_eq!(end(&started), Ok(last_here));
    has_problems(&started, &["has 3 partitions, of which the journal is partition 0 alone"]);
    let message = refusal_of(&options, CLUSTER, Founding::Allowed);
    assert!(message.contains("has 3 partitions") && message.contains("one log"), "{message}");
    admin::append_to(&options, 2, b"a key", b"a value");
    has_problems(&started, &["has 3 partitions", "partition 2 ends at offset 1: another program"]);
    let message = refusal_of(&options, CLUSTER, Founding::Forbidden);
    assert!(message.contains("partition 2") && message.contains("a topic of its own"), "{message}");
}

fn a_topic_that_was_recreated_is_another_one(brokers: &Brokers, settings: &[(&str, &str)]) {
    let options = brokers.topic("renewed");
    let journal = brokers.connect_with(&options);
    Brokers::append(&journal, "old");
    let mut reader = journal.read(Position::new(3)).unwrap();
    assert_eq!(reader.next(Duration::from_millis(100)), Ok(None));
    admin::delete(&options);
    admin::create(&options, 1, 3, settings);
    let deadline = Instant::now() + Duration::from_secs(60);
    let refusal = loop {
        match journal.append("new".into()) {
            Err(Error::Refused { message }) => break message,
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
            Ok(position) => panic!("appended at {position} to another topic"),
        }
    };
    assert!(refusal.contains("renewed") && refusal.contains("deleted"), "{refusal}");
    assert!(matches!(end(&journal), Err(Error::Refused { .. })));
    let read = loop {
        match reader.next(Duration::from_millis(100)) {
            Err(error) if error.is_transient() => match journal.read(Position::new(3)) {
                Ok(next) => reader = next,
                Err(error) => break error,
            },
            Err(error) => break error,
            Ok(entry) => assert_eq!(entry, None),
        }
        assert!(Instant::now() < deadline, "the reader notices nothing");
    };
    assert!(matches!(read, Error::Refused { .. }), "{read}");
    loop {
        let message = refusal_of(&options, CLUSTER, Founding::Forbidden);
        assert!(message.contains("Nothing was written"), "{message}");
        if message.contains("is empty") {
            break;
        }
        // Most brokers may not know the new one for a moment.
        assert!(message.contains("does not exist") && Instant::now() < deadline, "{message}");
    }
    assert_eq!(end(&brokers.connect_with(&options)), Ok(Position::new(1)), "it was empty");

    let gone = brokers.topic("gone");
    let journal = brokers.connect_with(&gone);
    Brokers::append(&journal, "old");
    admin::delete(&gone);
    loop {
        match journal.end() {
            Err(Error::Refused { message }) => {
                assert!(message.contains("was deleted"), "{message}");
                break;
            }
            Err(error) => assert!(error.is_transient(), "{error}"),
            Ok(_) => {}
        }
        assert!(Instant::now() < deadline, "a deleted topic is not noticed");
    }
}
