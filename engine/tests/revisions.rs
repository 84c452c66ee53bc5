//! Revisions out of range, in a store, a watermark or an archive that was forged or damaged without a
//! checksum mismatch: refused before any revision is assigned from there.

mod common;

use std::fs;
use std::path::Path;

use common::{assert_sound, scratch};
use plinth_engine::{restore, verify, Continuation, Engine, Error, Options, Transaction};

/// The highest revision that a store may hold.
const HIGHEST: u64 = i64::MAX as u64;
/// The highest one at which an archive may end.
const HIGHEST_RESTORED: u64 = 1 << 62;

/// A metadata number in its stored form.
fn number(name: &str, number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    let checksum = crc32fast::hash(&[name.as_bytes(), &bytes].concat());
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// A closed store with a few commits.
fn closed() -> tempfile::TempDir {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    for n in 0..3u8 {
        engine.transact(Transaction::new().put(vec![n], "value")).wait().unwrap();
    }
    engine.close().unwrap();
    dir
}

/// Writes to a family without the engine.
fn put(dir: &Path, family: &str, key: &[u8], value: &[u8]) {
    let families = ["default", "current", "history", "log", "expiry"];
    let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), dir.join("db"), families).unwrap();
    db.put_cf(db.cf_handle(family).unwrap(), key, value).unwrap();
}

/// One block of an archive.
fn block(kind: u8, payload: &[u8], checksums: &mut crc32fast::Hasher) -> Vec<u8> {
    let mut block = vec![kind];
    block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let checksum = crc32fast::hash(&[&block[..], payload].concat()).to_le_bytes();
    checksums.update(&checksum);
    block.extend_from_slice(&checksum);
    block.extend_from_slice(payload);
    block
}

/// A consistent archive of a store that holds nothing but metadata numbers.
fn archive(name: &str, value: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in [("format", 1), (name, value)] {
        let stored = number(name, value);
        payload.extend_from_slice(&(name.len() as u32).to_le_bytes());
        payload.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        payload.extend_from_slice(name.as_bytes());
        payload.extend_from_slice(&stored);
    }
    let mut checksums = crc32fast::Hasher::new();
    let mut archive = b"PLNTHAR1".to_vec();
    archive.extend(block(5, &payload, &mut checksums));
    archive.extend(block(0, &[value.to_le_bytes(), 2u64.to_le_bytes()].concat(), &mut checksums));
    archive.extend_from_slice(&checksums.finalize().to_le_bytes());
    archive
}

#[test]
fn an_archive_cannot_bring_a_store_to_the_end_of_its_revisions() {
    for name in ["reserved", "floor", "swept"] {
        for value in [HIGHEST_RESTORED + 1, HIGHEST, HIGHEST + 1, u64::MAX - 1, u64::MAX] {
            let parent = scratch();
            let dir = parent.path().join("restored");
            let refused = restore(&mut archive(name, value).as_slice(), &dir, Continuation::Beyond, |_| {});
            let is_damage = matches!(refused, Err(Error::Corrupt { .. }));
            let is_too_far = matches!(refused, Err(Error::InvalidArchive { .. }));
            assert!(if value > HIGHEST { is_damage } else { is_too_far }, "{name} {value}: {refused:?}");
            let opened = Engine::open(Options::new(&dir)).map(|_| ());
            assert!(matches!(opened, Err(Error::UnfinishedRestore { .. })), "{name} {value}: {opened:?}");
        }
    }
    let dir = scratch();
    let highest = archive("reserved", HIGHEST_RESTORED);
    restore(&mut highest.as_slice(), dir.path(), Continuation::Beyond, |_| {}).unwrap();
    for n in 0..2 {
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let next = engine.transact(Transaction::new().put("key", vec![n])).wait().unwrap().revision;
        assert!(next.get() > HIGHEST_RESTORED, "a store that was restored goes on");
        engine.close().unwrap();
    }
    assert_sound(dir.path());
}

#[test]
fn a_store_beyond_the_highest_revision_is_refused() {
    for (family, key, value) in [
        ("default", b"reserved".to_vec(), number("reserved", u64::MAX)),
        ("default", b"floor".to_vec(), number("floor", HIGHEST + 1)),
        ("log", u64::MAX.to_be_bytes().to_vec(), b"entry".to_vec()),
    ] {
        let dir = closed();
        put(dir.path(), family, &key, &value);
        // The watermark names another MANIFEST now; it is not under test.
        fs::remove_file(dir.path().join("WATERMARK")).unwrap();
        let opened = Engine::open(Options::new(dir.path())).map(|_| ());
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "{family}: {opened:?}");
        let mut findings = 0;
        let verified = verify(dir.path(), |_| {}, |_| findings += 1);
        assert!(verified.is_err() || findings > 0, "{family}");
    }
}

#[test]
fn a_watermark_beyond_the_highest_revision_is_damaged() {
    for (counter, revision) in [(u64::MAX, 3), (7, u64::MAX), (7, HIGHEST + 1)] {
        let dir = closed();
        let path = dir.path().join("WATERMARK");
        let mut bytes = fs::read(&path).unwrap();
        for slot in bytes.chunks_mut(4096) {
            slot[8..16].copy_from_slice(&counter.to_le_bytes());
            slot[32..40].copy_from_slice(&revision.to_le_bytes());
            let checksum = crc32fast::hash(&slot[..56]);
            slot[56..60].copy_from_slice(&checksum.to_le_bytes());
        }
        fs::write(&path, bytes).unwrap();
        let opened = Engine::open(Options::new(dir.path())).map(|_| ());
        assert!(matches!(opened, Err(Error::Incomplete { .. })), "{counter} {revision}: {opened:?}");
    }
    assert_sound(closed().path());
}
