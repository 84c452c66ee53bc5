//! The fuzz targets of the engine, shared with `engine/tests/fuzz_smoke.rs`.
//!
//! A target must return for every input: with an error, or with something that is consistent.

use std::path::{Path, PathBuf};

use plinth_engine::{
    fuzzing, restore, verify, At, Continuation, Engine, KeyRange, Options, Revision, Subscribe, Transaction,
};
use plinth_journal::record::Record;

/// The decoders of versions, log entries and the entries of every column family.
pub(crate) fn decode(input: &[u8]) {
    let (key, value) = input.split_at(input.first().map_or(0, |n| usize::from(*n).min(input.len())));
    fuzzing::record(key, value);
    fuzzing::log_entry(key.len() as u64, value);
    fuzzing::entry(key, value);
}

/// Records of a journal: what decodes has one encoding.
pub(crate) fn journal_record(input: &[u8]) {
    let bytes = bytes::Bytes::copy_from_slice(input);
    if let Ok(record) = Record::decode(bytes.clone()) {
        assert_eq!(record.encode(), bytes);
    }
    // Without the checksum, so that the fuzzer reaches the decoder.
    if let Ok(record) = Record::decode_unchecked(bytes) {
        assert_eq!(record.encode().get(4..), input.get(4..));
    }
}

/// A small history with everything: old versions, tombstones, deadlines, a floor.
fn fill(dir: &Path) -> Engine {
    let engine = Engine::open(Options::new(dir).write_buffer_bytes(64 << 10)).expect("a new directory opens");
    for n in 0..30u8 {
        let key = vec![b'k', n % 7];
        let transaction = match n % 5 {
            0 => Transaction::new().delete(key),
            1 => Transaction::new().put_expiring(key, vec![n; 50], std::time::Duration::from_secs(9999)),
            _ => Transaction::new().put(key, vec![n; usize::from(n) * 20]),
        };
        engine.transact(transaction).wait().expect("an empty store takes writes");
    }
    engine.compact(Revision::new(5)).expect("there are more than five revisions");
    engine
}

/// A sound archive.
pub(crate) fn archive() -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut archive = Vec::new();
    fill(dir.path()).backup(&mut archive, |_| {}).expect("a sound store is archived");
    archive
}

/// Restores an archive; the restored store must be sound.
pub(crate) fn restore_archive(input: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    if restore(&mut &*input, dir.path(), Continuation::Same, |_| {}).is_ok() {
        drain(dir.path());
    }
}

/// Damages a data directory as the input says (which file, where, what) and opens it.
pub(crate) fn open_directory(input: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let engine = fill(dir.path());
    if input.first().is_some_and(|byte| byte % 2 == 0) {
        engine.close().expect("a sound store closes");
    }
    drop(engine);
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir.path().join("db"))
        .expect("the database is there")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.push(dir.path().join("PLINTH"));
    files.sort();
    for change in input.chunks_exact(4) {
        let file = &files[usize::from(change[0]) % files.len()];
        let Ok(mut bytes) = std::fs::read(file) else { continue };
        let at = usize::from(change[1]) << 8 | usize::from(change[2]);
        match change[3] {
            0 => bytes.truncate(at),
            1 => bytes.clear(),
            flip if !bytes.is_empty() => {
                let at = at % bytes.len();
                bytes[at] ^= flip;
            }
            _ => {}
        }
        std::fs::write(file, bytes).expect("the file can be written");
    }
    drain(dir.path());
}

/// A write-ahead log: torn, damaged or sound.
pub(crate) fn wal(input: &[u8]) {
    fuzzing::wal(input);
}

/// Files that a data directory may have.
const NAMES: [&str; 12] = [
    "PLINTH",
    "RESTORING",
    "LOCK",
    "db/CURRENT",
    "db/IDENTITY",
    "db/MANIFEST-000001",
    "db/MANIFEST-000005",
    "db/000004.log",
    "db/000008.log",
    "db/000010.sst",
    "db/OPTIONS-000007",
    "restoring/db/CURRENT",
];

/// Fills a directory with files of any content (a byte that selects the file, one for its length in units of
/// sixteen bytes, the content) and opens it. A directory that cannot be opened must be left unchanged.
pub(crate) fn directory(input: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut rest = input;
    let mut written = std::collections::BTreeMap::new();
    while let [name, length, content @ ..] = rest {
        let (content, after) = content.split_at((usize::from(*length) * 16).min(content.len()));
        let path = dir.path().join(NAMES[usize::from(*name) % NAMES.len()]);
        std::fs::create_dir_all(path.parent().unwrap_or(dir.path())).expect("a directory");
        std::fs::write(&path, content).expect("the file can be written");
        written.insert(path, content);
        rest = after;
    }
    let _ = verify(dir.path(), |_| {}, |error| drop(error.to_string()));
    let opened = Engine::open(Options::new(dir.path()).expire_keys(false));
    if opened.is_err() {
        for (path, content) in
            written.iter().filter(|(path, content)| !path.ends_with("LOCK") && !content.is_empty())
        {
            let there = std::fs::read(path).ok();
            assert_eq!(there.as_deref(), Some(*content), "{} was not left as it was", path.display());
        }
    }
}

/// Verifies, opens and reads everything.
fn drain(dir: &Path) {
    let _ = verify(dir, |_| {}, |error| drop(error.to_string()));
    let Ok(engine) = Engine::open(Options::new(dir).create(false).expire_keys(false)) else { return };
    for at in [engine.compacted_revision(), engine.current_revision()] {
        let Ok(snapshot) = engine.snapshot(At::Exact(at)) else { continue };
        let mut range = snapshot.range(&KeyRange::all());
        // A damaged block ends a range; a damaged record is skipped.
        for _ in 0..1000 {
            match range.next() {
                Ok(None) => break,
                Ok(Some(entry)) => drop(entry.to_record()),
                Err(error) => drop(error.to_string()),
            }
        }
    }
    let after = engine.compacted_revision();
    if let Ok(mut feed) = engine.subscribe(Subscribe::new(KeyRange::all()).after(after).previous(true)) {
        feed.request_progress();
        while let Ok(Some(plinth_engine::Feed::Events(_))) =
            feed.next_timeout(std::time::Duration::from_secs(20))
        {}
    }
}
