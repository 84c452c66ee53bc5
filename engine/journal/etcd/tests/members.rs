//! The journal on real members of etcd, where the environment has them: `PLINTH_ETCD` names the program.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

mod common;
#[path = "../../tests/slow_link/mod.rs"]
mod slow_link;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{program, Members, CLUSTER};
use plinth_journal::record::ClusterId;
use plinth_journal::{conformance, Error, Founding, Journal, Position};
use plinth_journal_etcd::{EtcdJournal, EtcdOptions};
use slow_link::SlowLink;

#[test]
fn it_is_a_journal() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 3);
    conformance::check(&|| Box::new(members.connect()));
}

#[test]
fn trimmed_positions_are_known() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 1);
    let journal = members.connect();
    for n in 0..20 {
        journal.append(Bytes::from(format!("{n}"))).unwrap();
    }
    journal.trim(Position::new(15)).unwrap();
    let other = members.connect();
    let trimmed = |from| match other.read(Position::new(from)) {
        Ok(mut reader) => reader.next(Duration::from_secs(5)).unwrap_err(),
        Err(error) => error,
    };
    for from in [1, 7, 14] {
        match trimmed(from) {
            Error::Trimmed { requested, oldest } => {
                assert_eq!(requested, Position::new(from));
                assert!(oldest > requested && oldest <= Position::new(15), "{oldest}");
            }
            error => panic!("{error}"),
        }
    }
    let mut reader = other.read(Position::new(15)).unwrap();
    assert_eq!(reader.next(Duration::from_secs(5)).unwrap().unwrap().bytes, "14");
}

/// What was appended under kills and pauses is there, in one order; an append that failed is there only when
/// its outcome was unknown.
#[test]
fn nothing_is_lost_while_members_fail() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 3);
    let journals: Vec<EtcdJournal> = (0..3).map(|_| members.connect()).collect();
    let is_done = AtomicBool::new(false);
    let outcomes: Vec<(Bytes, Result<Position, Error>)> = std::thread::scope(|scope| {
        let appenders: Vec<_> = journals
            .iter()
            .enumerate()
            .map(|(client, journal)| {
                let is_done = &is_done;
                scope.spawn(move || {
                    let mut outcomes = Vec::new();
                    while !is_done.load(Ordering::Relaxed) {
                        let record = Bytes::from(format!("{client} {}", outcomes.len()));
                        outcomes.push((record.clone(), journal.append(record)));
                    }
                    outcomes
                })
            })
            .collect();
        for round in 0..6 {
            let member = round % 3;
            std::thread::sleep(Duration::from_millis(700));
            if round < 3 {
                members.kill(member);
                std::thread::sleep(Duration::from_secs(2));
                members.restart(member);
            } else {
                members.signal(member, "-STOP");
                std::thread::sleep(Duration::from_secs(3));
                members.signal(member, "-CONT");
            }
            std::thread::sleep(Duration::from_secs(2));
        }
        is_done.store(true, Ordering::Relaxed);
        appenders.into_iter().flat_map(|appender| appender.join().unwrap()).collect()
    });
    let end = members.connect().end().unwrap();
    let orders: Vec<Vec<Bytes>> = (0..2).map(|_| read_all(&members.connect(), end)).collect();
    assert!(orders[0] == orders[1], "one order for all readers");
    let mut counts: HashMap<&Bytes, usize> = HashMap::new();
    for record in &orders[0] {
        *counts.entry(record).or_default() += 1;
    }
    let mut answered = 0;
    for (record, outcome) in &outcomes {
        let count = counts.get(record).copied().unwrap_or(0);
        match outcome {
            Ok(position) => {
                answered += 1;
                assert_eq!(count, 1, "{record:?}");
                assert_eq!(&orders[0][position.get() as usize - 1], record);
            }
            Err(Error::OutcomeUnknown { .. }) => assert!(count <= 1, "{record:?}"),
            Err(Error::Unavailable { .. }) => assert_eq!(count, 0, "{record:?}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(answered > 100, "{answered} of {} appends were answered", outcomes.len());
}

fn read_all(journal: &EtcdJournal, end: Position) -> Vec<Bytes> {
    let mut records = Vec::new();
    let mut reader = journal.read(Position::new(1)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while (records.len() as u64) < end.get() {
        match reader.next(Duration::from_millis(200)).unwrap() {
            Some(entry) => records.push(entry.bytes),
            None => assert!(Instant::now() < deadline, "{} of {end} were read", records.len()),
        }
    }
    records
}

#[test]
fn a_place_of_another_cluster_or_program_is_refused() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 1);
    let journal = members.connect();
    journal.append("mine".into()).unwrap();
    let refused = |options: &EtcdOptions, cluster: ClusterId| match EtcdJournal::connect(
        options,
        cluster,
        Founding::Allowed,
    ) {
        Err(Error::Refused { message }) => message,
        other => panic!("{:?}", other.map(|_| ())),
    };
    let message = refused(&members.options(), ClusterId([9; 16]));
    assert!(message.contains(&CLUSTER.to_string()), "{message}");
    let other = EtcdOptions { prefix: "other".to_owned(), ..members.options() };
    let message = refused(&other, CLUSTER);
    assert!(message.contains("plinth/journal") && message.contains("of its own"), "{message}");
    assert_eq!(journal.end(), Ok(Position::new(1)), "nothing was written");
}

#[test]
fn without_any_member_calls_fail_in_bounded_time_and_go_on_later() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 1);
    let journal = members.connect();
    journal.append("before".into()).unwrap();
    members.kill(0);
    assert!(journal.append("lost".into()).is_err_and(|error| error.is_transient()));
    assert!(journal.end().is_err_and(|error| error.is_transient()));
    let unreached = EtcdJournal::connect(&members.options(), CLUSTER, Founding::Allowed).unwrap();
    members.restart(0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while unreached.end() != Ok(Position::new(1)) {
        assert!(Instant::now() < deadline, "etcd does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(journal.append("after".into()), Ok(Position::new(2)));
}

/// etcd answers above its quota that there is no space, before a record is in its log and after it has
/// applied it. Nobody may be told that the record is not there.
#[test]
fn what_is_refused_for_space_may_be_there() {
    let Some(program) = program() else { return };
    let members = Members::with_flags(program, 1, &["--quota-backend-bytes=8388608"]);
    let journal = members.connect();
    let outcomes: Vec<(Bytes, Result<Position, Error>)> = std::thread::scope(|scope| {
        let appenders = (0..8).map(|client| {
            let journal = &journal;
            scope.spawn(move || {
                let mut outcomes = Vec::new();
                while outcomes.last().is_none_or(|(_, outcome): &(_, Result<_, _>)| outcome.is_ok()) {
                    let mut record = format!("{client} {} ", outcomes.len()).into_bytes();
                    record.resize(300_000, b'.');
                    let record = Bytes::from(record);
                    outcomes.push((record.clone(), journal.append(record)));
                }
                outcomes
            })
        });
        let appenders: Vec<_> = appenders.collect();
        appenders.into_iter().flat_map(|appender| appender.join().unwrap()).collect()
    });
    let (mut reader, end) = (journal.read(Position::new(1)).unwrap(), journal.end().unwrap());
    let mut found = Vec::new();
    while (found.len() as u64) < end.get() {
        found.extend(reader.next(Duration::from_secs(5)).unwrap().map(|entry| entry.bytes));
    }
    let mut refused = 0;
    for (record, outcome) in outcomes {
        match outcome {
            Ok(position) => assert_eq!(found[position.get() as usize - 1], record),
            Err(Error::Full { message }) => {
                assert!(message.contains("space exceeded"), "{message}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 8, "each appender has met the quota");
}

#[test]
fn an_etcd_without_the_journal_of_a_replica_is_refused_and_stays_empty() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 1);
    members.wait();
    let connect = |founding| EtcdJournal::connect(&members.options(), CLUSTER, founding);
    let refused = connect(Founding::Forbidden).map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { message } if message.contains("plinth/journal")),
        "{refused}"
    );
    let everything = members.call("kv/range", r#"{"key":"AA==","range_end":"AA=="}"#, None);
    assert!(!everything.contains("kvs"), "{everything}");
    connect(Founding::Allowed).unwrap().append("a record".into()).unwrap();
    assert_eq!(connect(Founding::Forbidden).unwrap().end(), Ok(Position::new(1)));
}

/// A new etcd gives the keys of its first journal the revisions that they had in the one before.
#[test]
fn nothing_is_appended_to_the_journal_of_another_cluster_in_a_new_etcd() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 1);
    let paused = members.connect();
    paused.append("of the first".into()).unwrap();
    members.wipe();
    // The one before makes no call meanwhile.
    let other = EtcdJournal::connect(&members.options(), ClusterId([9; 16]), Founding::Allowed).unwrap();
    for n in 1..=3 {
        assert_eq!(other.append("of the second".into()), Ok(Position::new(n)));
    }
    let refused = failure_for_good(|| paused.append("of the first".into()).map(drop));
    assert!(refused.contains("another cluster's"), "{refused}");
    assert!(matches!(paused.end(), Err(Error::Refused { .. })));
    assert!(matches!(paused.read(Position::new(1)).err(), Some(Error::Refused { .. })));
    assert_eq!(other.end(), Ok(Position::new(3)), "nothing was written");

    // Nor where the end is asked for first.
    let paused = other;
    members.wipe();
    let other = members.connect();
    other.append("of the third".into()).unwrap();
    failure_for_good(|| paused.end().map(drop));
    assert_eq!(other.end(), Ok(Position::new(1)));
}

/// One of the addresses is nobody's any more.
#[test]
fn an_etcd_that_was_replaced_is_noticed_without_one_of_its_members() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 3);
    let journal = members.connect();
    journal.append("of the first".into()).unwrap();
    members.replace(2, Some("--initial-cluster-token=another"));
    let other = EtcdJournal::connect(&members.options(), ClusterId([9; 16]), Founding::Allowed).unwrap();
    assert_eq!(other.append("of the second".into()), Ok(Position::new(1)));
    let refused = failure_for_good(|| journal.append("of the first".into()).map(drop));
    assert!(refused.contains("etcd was replaced"), "{refused}");
    assert_eq!(other.end(), Ok(Position::new(1)), "nothing was written");
}

/// Calls until it is refused for good; no call succeeds before.
fn failure_for_good(call: impl Fn() -> Result<(), Error>) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match call() {
            Err(Error::Refused { message }) => return message,
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
            Ok(()) => panic!("it is another journal"),
        }
    }
}

#[test]
fn a_marker_that_was_removed_is_missed_and_taken_up_again() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 1);
    let journal = members.connect();
    journal.append("before".into()).unwrap();
    let mut reader = journal.read(Position::new(1)).unwrap();
    // plinth/journal
    let key = "cGxpbnRoL2pvdXJuYWw=";
    members.call("kv/deleterange", &format!(r#"{{"key":"{key}"}}"#), None);
    for _ in 0..2 {
        let refused = journal.append("meanwhile".into()).unwrap_err();
        assert!(
            matches!(&refused, Error::Denied { message } if message.contains("plinth/journal")),
            "{refused}"
        );
        assert!(refused.was_not_appended());
        assert!(matches!(journal.end(), Err(Error::Denied { .. })));
    }
    let refused = EtcdJournal::connect(&members.options(), CLUSTER, Founding::Forbidden).err().unwrap();
    assert!(matches!(&refused, Error::Refused { message } if message.contains("put it back")), "{refused}");
    let value = base64(format!("plinth journal, format 1, cluster {CLUSTER}").as_bytes());
    members.call("kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#), None);
    assert_eq!(journal.append("after".into()), Ok(Position::new(2)));
    assert_eq!(journal.end(), Ok(Position::new(2)));
    // Whoever follows it begins again, and compares: the marker may have been that of another journal.
    assert!(reader.next(Duration::from_secs(60)).is_err_and(|ended| ended.is_transient()));
    reader = journal.read(Position::new(1)).unwrap();
    for expected in ["before", "after"] {
        assert_eq!(reader.next(Duration::from_secs(60)).unwrap().unwrap().bytes, expected);
    }
}

/// The key that names the cluster is damaged at one member: it makes no append that the others make, and ends
/// where they go on.
#[test]
fn a_member_with_a_damaged_marker_stops_nobody() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 3);
    let running = members.connect();
    assert_eq!(running.append("before".into()), Ok(Position::new(1)));
    members.flip(0, format!("format 1, cluster {CLUSTER}").as_bytes());
    members.wait_for(0);
    // A client that asks it first, at the start, and one that has known the journal before.
    let started = EtcdJournal::connect(&members.options(), CLUSTER, Founding::Forbidden).unwrap();
    assert_eq!(started.end(), Ok(Position::new(1)));
    let founding = EtcdJournal::connect(&members.options(), CLUSTER, Founding::Allowed).unwrap();
    assert_eq!(founding.end(), Ok(Position::new(1)));
    for (journal, record) in [(&running, "running"), (&started, "started")] {
        let mut unknown = 0;
        let position = loop {
            match journal.append(record.into()) {
                Ok(position) => break position,
                Err(Error::OutcomeUnknown { .. }) if unknown < 3 => unknown += 1,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(journal.end() == Ok(position), "{:?} where {position} was answered", journal.end());
    }
    let records = read_all(&started, started.end().unwrap());
    assert!(records.contains(&Bytes::from("running")) && records.contains(&Bytes::from("started")));
    started.trim(Position::new(2)).unwrap();
    for journal in [&running, &started] {
        let problems = problems(journal);
        assert!(matches!(&problems[..], [text] if text.contains(&members.address(0))), "{problems:?}");
    }
}

/// What a journal says of its members, once each has answered it.
fn problems(journal: &EtcdJournal) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match journal.problems() {
            Ok(problems) if !problems.is_empty() => {
                return problems.iter().map(ToString::to_string).collect()
            }
            problems => assert!(Instant::now() < deadline, "{problems:?}"),
        }
    }
}

/// A member has counted records that are not there, as after it has applied one twice, and answers appends.
#[test]
fn a_member_that_counts_otherwise_is_outvoted() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 3);
    assert_eq!(members.connect().append("before".into()), Ok(Position::new(1)));
    // The key, the revisions that have created and put it, and how often it was put: once, and three times.
    let record = b"plinth/log\x10\x03\x18\x03\x20\x01";
    members.flip_bits(1, record, record.len() - 1, 2);
    members.wait_for(1);
    let only = |member: usize| EtcdOptions { members: vec![members.address(member)], ..members.options() };
    let alone = EtcdJournal::connect(&only(1), CLUSTER, Founding::Forbidden).unwrap();
    assert_eq!(alone.append("of a member that counts otherwise".into()), Ok(Position::new(4)));
    let journal = EtcdJournal::connect(&members.options(), CLUSTER, Founding::Forbidden).unwrap();
    // As one that has read there: most members know of no such record.
    drop(journal.read(Position::new(5)));
    members.signal(1, "-STOP");
    let deadline = Instant::now() + Duration::from_secs(60);
    while journal.end() != Ok(Position::new(2)) {
        assert!(Instant::now() < deadline, "{:?}", journal.end());
    }
    members.signal(1, "-CONT");
    members.wait_for(1);
    let found = problems(&journal);
    assert!(matches!(&found[..], [text] if text.contains(&members.address(1))), "{found:?}");
    assert_eq!(journal.end(), Ok(Position::new(2)));
    assert_eq!(journal.append("after".into()), Ok(Position::new(3)));
    let records = read_all(&journal, Position::new(3));
    assert_eq!(records, ["before", "of a member that counts otherwise", "after"]);
}

/// The revision is damaged that has created the key, with which appends are made: at that member alone.
#[test]
fn nothing_is_appended_at_a_member_alone_that_has_the_marker_otherwise() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 3);
    assert_eq!(members.connect().append("before".into()), Ok(Position::new(1)));
    let marker = b"plinth/journal\x10\x02\x18\x02";
    members.flip_bits(0, marker, b"plinth/journal\x10".len(), 1);
    members.wait_for(0);
    let started = EtcdJournal::connect(&members.options(), CLUSTER, Founding::Forbidden).unwrap();
    assert_eq!(started.append("after".into()), Ok(Position::new(2)));
    for member in 1..3 {
        let only = EtcdOptions { members: vec![members.address(member)], ..members.options() };
        assert_eq!(members.connect_with(&only).end(), Ok(Position::new(2)));
    }
}

/// A member that was emptied, and is an etcd of its own now, is asked first.
#[test]
fn a_member_that_was_emptied_stops_nobody_and_founds_nothing() {
    let Some(program) = program() else { return };
    let mut members = Members::start(program, 3);
    let running = members.connect();
    running.append("before".into()).unwrap();
    members.empty(0);
    members.wait_for(0);
    for founding in [Founding::Forbidden, Founding::Allowed] {
        let started = EtcdJournal::connect(&members.options(), CLUSTER, founding).unwrap();
        assert_eq!(started.end(), Ok(Position::new(1)));
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = running.append("after".into()) {
        assert!(error.is_transient() && Instant::now() < deadline, "{error}");
    }
    let everything = members.call("kv/range", r#"{"key":"AA==","range_end":"AA=="}"#, None);
    assert!(!everything.contains("kvs"), "{everything}");
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number = (0..3).fold(0, |n, at| n << 8 | usize::from(group.get(at).copied().unwrap_or(0)));
        for digit in 0..4 {
            match digit <= group.len() {
                true => text.push(char::from(DIGITS[number >> (18 - 6 * digit) & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

/// One after the other would have its time.
#[test]
fn members_that_stand_still_delay_no_start() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 1);
    members.connect().append("a record".into()).unwrap();
    // The operating system takes connections for them.
    let frozen: Vec<std::net::TcpListener> =
        (0..12).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses = frozen.iter().map(|listener| listener.local_addr().unwrap().to_string());
    let options =
        EtcdOptions { members: addresses.chain([members.address(0)]).collect(), ..members.options() };
    let journal = EtcdJournal::connect(&options, CLUSTER, Founding::Forbidden).unwrap();
    assert_eq!(journal.end(), Ok(Position::new(1)));
}

/// etcd would send them all records, beside those of the next reader.
#[test]
fn readers_that_are_dropped_watch_no_more() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 1);
    let journal = members.connect();
    journal.append("a record".into()).unwrap();
    for _ in 0..5 {
        assert!(journal.read(Position::new(1)).unwrap().next(Duration::from_secs(5)).unwrap().is_some());
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while members.metric(0, "etcd_debugging_mvcc_watcher_total") > 0 {
        assert!(Instant::now() < deadline, "watches are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Several clusters find an empty etcd in the same moment, at one place and at several.
#[test]
fn one_of_several_clusters_founds_the_journal() {
    const CLUSTERS: u8 = 8;
    let Some(program) = program() else { return };
    for places in [1, CLUSTERS] {
        let members = Members::start(program.clone(), 1);
        members.wait();
        let together = std::sync::Barrier::new(CLUSTERS.into());
        let outcomes: Vec<Result<EtcdJournal, Error>> = std::thread::scope(|scope| {
            let clusters = (0..CLUSTERS).map(|number| {
                let prefix = format!("place{}", number % places);
                let options = EtcdOptions { prefix, ..members.options() };
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    EtcdJournal::connect(&options, ClusterId([number; 16]), Founding::Allowed)
                })
            });
            let clusters: Vec<_> = clusters.collect();
            clusters.into_iter().map(|cluster| cluster.join().unwrap()).collect()
        });
        let mut founded = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(journal) => founded.push(journal),
                Err(Error::Refused { message }) => {
                    let expected = if places == 1 { "another cluster's" } else { "an etcd of its own" };
                    assert!(message.contains(expected), "{message}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(founded.len(), 1);
        assert_eq!(founded[0].append("a record".into()), Ok(Position::new(1)));
        let everything = members.call("kv/range", r#"{"key":"AA==","range_end":"AA=="}"#, None);
        assert!(everything.contains(r#""count":"2""#), "a marker and a record: {everything}");
    }
}

/// What a member has passed on to a leader that died is lost. The append is given up when the member follows
/// another leader, and not when a member is given up that does not answer.
#[test]
fn an_append_that_the_leader_took_with_it_is_given_up() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 3);
    members.connect().append("before".into()).unwrap();
    let mut failures = Vec::new();
    for _ in 0..20 {
        let leader = members.leader();
        let mut options = members.options();
        options.members.remove(leader);
        options.members.truncate(1);
        let journal = members.connect_with(&options);
        journal.append("known".into()).unwrap();
        members.signal(leader, "-STOP");
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = journal.append("record".into()) {
            assert!(error.is_transient() && Instant::now() < deadline, "{error}");
            failures.push(error.to_string());
        }
        members.signal(leader, "-CONT");
        if failures.iter().any(|failure| failure.contains("follows another leader")) {
            return;
        }
    }
    panic!("{failures:?}");
}

/// A message of a watch that is on its way for longer than a member is given is not asked for again and
/// again.
#[test]
fn a_backlog_comes_over_a_slow_path() {
    const RECORDS: u64 = 5;
    const RECORD_BYTES: usize = 1_000_000;
    /// How often the bytes of the backlog may pass.
    const TIMES: u64 = 3;
    let Some(program) = program() else { return };
    let members = Members::start(program, 3);
    let journal = members.connect();
    for n in 0..RECORDS {
        journal.append(vec![n as u8; RECORD_BYTES].into()).unwrap();
    }
    // Each record takes twice as long as a member has for its first answer.
    let link = SlowLink::new(RECORD_BYTES as u64 / 2);
    let options = members.options();
    let addresses = options.members.iter().map(|member| link.to(member.clone())).collect();
    let far = members.connect_with(&EtcdOptions { members: addresses, ..options });
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut due = Position::new(1);
    let mut reader = None;
    while due.get() <= RECORDS {
        let passed = link.passed();
        assert!(
            passed <= TIMES * RECORDS * RECORD_BYTES as u64,
            "{passed} bytes have come, and {due} is due"
        );
        assert!(Instant::now() < deadline, "{passed} bytes have come, and {due} is due");
        let mut open = match reader.take().map_or_else(|| far.read(due), Ok) {
            Ok(open) => open,
            Err(error) if error.is_transient() => continue,
            Err(error) => panic!("{error}"),
        };
        match open.next(Duration::from_secs(1)) {
            Ok(Some(entry)) => {
                assert_eq!((entry.position, entry.bytes.len()), (due, RECORD_BYTES));
                due = due.next();
                reader = Some(open);
            }
            Ok(None) => reader = Some(open),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}
