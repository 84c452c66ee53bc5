//! What every [`Journal`] promises, as assertions: for the tests of its implementations.
//!
//! Each check takes a way to make one more client of a journal. They may run one after the other on the same
//! journal, in any order: none expects it to be empty. The journal is healthy while they run, so whatever
//! fails panics.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::Error;
use crate::journal::{Entry, Journal, Reader};
use crate::position::Position;

/// Longest time until what was appended is read.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes one more client of the journal under test.
pub type Connect<'a> = &'a (dyn Fn() -> Box<dyn Journal> + Sync);

/// A record that no other one is equal to, of `length` bytes where that is longer.
fn distinct(length: usize) -> Bytes {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut text = format!("record {} ", NUMBER.fetch_add(1, Ordering::Relaxed)).into_bytes();
    while text.len() < length {
        text.push(text[text.len() % 8].wrapping_add(1));
    }
    text.into()
}

/// The next record, waited for.
fn due(reader: &mut dyn Reader) -> Entry {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match reader.next(Duration::from_millis(100)).expect("the journal is healthy") {
            Some(entry) => return entry,
            None => assert!(Instant::now() < deadline, "nothing was read"),
        }
    }
}

/// The records from `from` up to `last`.
fn all(journal: &dyn Journal, from: Position, last: Position) -> Vec<Entry> {
    let mut reader = journal.read(from).expect("the journal is healthy");
    let mut entries = Vec::new();
    while entries.last().is_none_or(|entry: &Entry| entry.position < last) {
        entries.push(due(&mut *reader));
    }
    entries
}

/// Runs all checks.
pub fn check(connect: Connect<'_>) {
    positions_follow_each_other(connect);
    readers_get_what_was_appended(connect);
    a_reader_waits_no_longer_than_its_timeout(connect);
    sizes_are_kept_to(connect);
    appenders_do_not_disturb_each_other(connect);
    trimmed_records_are_refused_or_read(connect);
}

/// Positions have no gaps, and the end is that of the last answered append, whoever asks.
pub fn positions_follow_each_other(connect: Connect<'_>) {
    let (one, other) = (connect(), connect());
    let mut last = one.end().unwrap();
    for round in 0..6 {
        let position = if round % 2 == 0 { &one } else { &other }.append(distinct(0)).unwrap();
        assert_eq!(position, last.next());
        last = position;
        assert_eq!(other.end(), Ok(last));
        assert_eq!(one.end(), Ok(last));
    }
}

/// A reader gets each record with its position, from wherever it begins, and those that come later.
pub fn readers_get_what_was_appended(connect: Connect<'_>) {
    let (writer, reading) = (connect(), connect());
    let records: Vec<Bytes> = (0..5).map(|n| distinct(n * 1000)).collect();
    let positions: Vec<_> = records.iter().map(|record| writer.append(record.clone()).unwrap()).collect();
    let expected: Vec<Entry> = positions
        .iter()
        .zip(&records)
        .map(|(position, bytes)| Entry { position: *position, bytes: bytes.clone() })
        .collect();
    for first in 0..expected.len() {
        assert_eq!(all(&*reading, positions[first], positions[4]), expected[first..]);
    }
    let mut reader = reading.read(positions[4].next()).unwrap();
    let later = distinct(0);
    thread::scope(|scope| {
        let appended = scope.spawn(|| {
            #[allow(clippy::disallowed_methods)] // a plain thread; what must not come cannot be waited for
            thread::sleep(Duration::from_millis(300));
            writer.append(later.clone()).unwrap()
        });
        let found = due(&mut *reader);
        assert_eq!(found, Entry { position: appended.join().unwrap(), bytes: later.clone() });
    });
}

/// A reader at the end returns nothing, and soon.
pub fn a_reader_waits_no_longer_than_its_timeout(connect: Connect<'_>) {
    let journal = connect();
    let mut reader = journal.read(journal.end().unwrap().next()).unwrap();
    for wait in [0, 50, 2500] {
        assert_eq!(reader.next(Duration::from_millis(wait)), Ok(None));
    }
}

/// The largest record is taken, one byte more is not.
pub fn sizes_are_kept_to(connect: Connect<'_>) {
    let journal = connect();
    let limit = journal.max_record_bytes();
    let largest = distinct(limit);
    let position = journal.append(largest.clone()).unwrap();
    let refused = journal.append(distinct(limit + 1));
    assert_eq!(refused, Err(Error::TooLarge { size: limit + 1, limit }));
    let last = journal.append(distinct(0)).unwrap();
    assert_eq!(last, position.next());
    assert!(all(&*journal, position, last)[0].bytes == largest, "the largest record is read as it was");
}

/// Appends of several clients at once: each has a position of its own, and all readers see one order.
pub fn appenders_do_not_disturb_each_other(connect: Connect<'_>) {
    const CLIENTS: usize = 3;
    const RECORDS: usize = 40;
    let before = connect().end().unwrap();
    let appended: HashMap<Position, Bytes> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let journal = connect();
                    let append = |record: Bytes| (journal.append(record.clone()).unwrap(), record);
                    (0..RECORDS).map(|_| append(distinct(100))).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(appended.len(), CLIENTS * RECORDS, "each has a position of its own");
    let last = Position::new(before.get() + (CLIENTS * RECORDS) as u64);
    let seen = all(&*connect(), before.next(), last);
    assert_eq!(seen.len(), CLIENTS * RECORDS);
    assert!(seen.iter().all(|entry| appended.get(&entry.position) == Some(&entry.bytes)));
    assert_eq!(all(&*connect(), before.next(), last), seen);
}

/// Records from the trimmed position on stay; those before are read as they were, or refused as trimmed.
pub fn trimmed_records_are_refused_or_read(connect: Connect<'_>) {
    let journal = connect();
    let records: Vec<Bytes> = (0..10).map(|_| distinct(50)).collect();
    let positions: Vec<_> = records.iter().map(|record| journal.append(record.clone()).unwrap()).collect();
    let kept = positions[6];
    journal.trim(kept).unwrap();
    let entries = all(&*connect(), kept, positions[9]);
    assert!(entries.iter().map(|entry| &entry.bytes).eq(&records[6..]), "what was not trimmed is there");
    let mut reader = match connect().read(positions[0]) {
        Err(error) => return assert_trimmed(error, positions[0], kept),
        Ok(reader) => reader,
    };
    let deadline = Instant::now() + PATIENCE;
    for (position, bytes) in positions.iter().zip(&records) {
        loop {
            match reader.next(Duration::from_millis(100)) {
                Ok(None) => assert!(Instant::now() < deadline, "nothing was read"),
                Ok(Some(entry)) => {
                    assert_eq!(entry, Entry { position: *position, bytes: bytes.clone() });
                    break;
                }
                Err(error) => return assert_trimmed(error, *position, kept),
            }
        }
    }
}

fn assert_trimmed(error: Error, first: Position, kept: Position) {
    let Error::Trimmed { requested, oldest } = error else { panic!("{error}") };
    assert!(requested >= first && requested < oldest && oldest <= kept, "{requested} {oldest} {kept}");
}
