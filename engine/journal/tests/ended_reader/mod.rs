//! A reader from before a journal was lost, of real journals.

use std::time::{Duration, Instant};

use bytes::Bytes;
use plinth_journal::{Journal, Position};

/// A reader that something comes to is gone on with, and not once the only member has ended, which `restart`
/// does: what has come over it may be of before an old copy was put in its place.
pub(crate) fn is_not_busy(journal: &dyn Journal, restart: impl FnOnce()) {
    let wait = Duration::from_secs(60);
    let append = |record: &'static str| journal.append(Bytes::from_static(record.as_bytes())).unwrap();
    let first = append("first");
    let mut reader = journal.read(first).unwrap();
    assert_eq!(reader.next(wait).unwrap().unwrap().position, first);
    // As when the journal is lost.
    reader.is_busy();
    append("while it is compared");
    let deadline = Instant::now() + wait;
    while !reader.is_busy() {
        assert!(Instant::now() < deadline, "the record does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
    let newest: Position = append("before the end");
    // It is on its way, or has come.
    std::thread::sleep(Duration::from_millis(500));
    restart();
    assert!(!reader.is_busy());
    drop(reader);
    let deadline = Instant::now() + wait;
    let read = || journal.read(newest).and_then(|mut reader| reader.next(Duration::from_secs(1)));
    while !read().is_ok_and(|entry| entry.is_some_and(|entry| entry.position == newest)) {
        assert!(Instant::now() < deadline, "it is read on by another one");
        std::thread::sleep(Duration::from_millis(50));
    }
}
