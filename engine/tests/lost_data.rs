//! What a power failure or a bad disk leaves: truncated logs, lost unsynced writes, flipped bits.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{assert_sound, copy_dir, dump, replay, scaled, scratch, table_files, wal_files, Model, Random};
use plinth_engine::{
    restore, verify, At, Continuation, Engine, Error, KeyRange, Options, Revision, Transaction,
};

type Operations = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Small buffers: a log file is preallocated by their size, which is costly in memory.
fn small(dir: &Path) -> Options {
    Options::new(dir).write_buffer_bytes(128 << 10)
}

fn commit(engine: &Engine, model: &mut Model, operations: Operations) {
    let transaction = operations.iter().fold(Transaction::new(), |transaction, (key, value)| match value {
        Some(value) => transaction.put(key.clone(), value.clone()),
        None => transaction.delete(key.clone()),
    });
    let revision = engine.transact(transaction).wait().unwrap().revision;
    assert_eq!(revision.get(), model.apply(&operations));
}

fn put(key: &str, value: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    (key.as_bytes().to_vec(), Some(value.to_vec()))
}

/// Whether everything readable equals the model, up to the engine's latest revision.
fn assert_prefix(engine: &Engine, model: &Model) {
    let latest = engine.current_revision().get();
    for at in engine.compacted_revision().get()..=latest {
        let state = dump(engine, &KeyRange::all(), At::Exact(Revision::new(at)));
        assert_eq!(state, model.states[at as usize], "state at {at}");
    }
    let mut prefix = model.clone();
    prefix.truncate(latest);
    let delivered = replay(engine, &KeyRange::all(), engine.compacted_revision().get());
    assert_eq!(delivered, prefix.feed(&KeyRange::all(), engine.compacted_revision().get()));
}

fn wal_len(dir: &Path) -> u64 {
    wal_files(dir).iter().map(|path| path.metadata().unwrap().len()).sum()
}

/// A directory as a crash leaves it, the model of it, and the length of its log after each revision.
fn crashed() -> (tempfile::TempDir, Model, Vec<u64>) {
    let live = scratch();
    let image = scratch();
    let engine = Engine::open(small(live.path())).unwrap();
    let mut model = Model::default();
    let mut lengths = vec![wal_len(live.path())];
    for n in 0..12u8 {
        let mut operations = vec![put("counter", &[n]), put(&format!("key/{}", n % 3), &[n; 20])];
        if n % 4 == 3 {
            operations.push((b"key/1".to_vec(), None));
            operations.retain(|(key, value)| value.is_none() || key != b"key/1");
        }
        commit(&engine, &mut model, operations);
        lengths.push(wal_len(live.path()));
    }
    // Everything acknowledged is in the files now, synced; nothing else happens meanwhile.
    copy_dir(live.path(), image.path());
    // The tests cut off acknowledged writes as if they had not been acknowledged, so the watermark is
    // removed.
    std::fs::remove_file(image.path().join("WATERMARK")).unwrap();
    (image, model, lengths)
}

#[test]
fn a_log_cut_anywhere_recovers_to_a_whole_revision() {
    let (image, model, lengths) = crashed();
    let from = lengths[lengths.len() - 3];
    let to = *lengths.last().unwrap();
    for cut in from..=to {
        let dir = scratch();
        copy_dir(image.path(), dir.path());
        let wal = wal_files(dir.path()).pop().unwrap();
        std::fs::File::options().write(true).open(&wal).unwrap().set_len(cut).unwrap();
        let expected = lengths.iter().rposition(|length| *length <= cut).unwrap() as u64;
        let engine = Engine::open(small(dir.path())).unwrap();
        assert_eq!(engine.current_revision().get(), expected, "cut at {cut} of {from}..{to}");
        let state = dump(&engine, &KeyRange::all(), At::Latest);
        assert_eq!(state, model.states[expected as usize]);
        if cut % 16 == 0 {
            assert_prefix(&engine, &model);
            let next = engine.transact(Transaction::new().put("after", "x")).wait().unwrap();
            assert_eq!(next.revision.get(), expected + 1);
            drop(engine);
            assert_sound(dir.path());
        }
    }
}

#[test]
fn damage_in_the_middle_of_the_log_is_an_error() {
    let (image, _, lengths) = crashed();
    let last_record = lengths[lengths.len() - 2];
    let dir = scratch();
    copy_dir(image.path(), dir.path());
    let wal = wal_files(dir.path()).pop().unwrap();
    let sound = std::fs::read(&wal).unwrap();
    let mut random = Random(3);
    let mut places: Vec<u64> = (0..scaled(80)).map(|_| random.below(last_record * 8)).collect();
    // The length of the first record, which decides where the next one is expected.
    places.extend(32..48);
    for bit in places {
        let mut damaged = sound.clone();
        damaged[(bit / 8) as usize] ^= 1 << (bit % 8);
        std::fs::write(&wal, &damaged).unwrap();
        let opened = Engine::open(small(dir.path()));
        assert!(matches!(opened, Err(Error::Corrupt { .. } | Error::Rocks { .. })), "bit {bit}");
        let mut findings = 0;
        verify(dir.path(), |_| {}, |_| findings += 1).unwrap();
        assert!(findings > 0, "bit {bit}");
    }
    std::fs::write(&wal, &sound).unwrap();
    assert!(Engine::open(small(dir.path())).is_ok());
}

/// What was written after the last sync is dropped: only relaxed transactions may be lost, and their
/// revisions are not assigned again.
#[test]
fn lost_unsynced_data_takes_only_relaxed_transactions() {
    let live = scratch();
    let options = |dir: &Path| {
        let never = Duration::from_secs(3600);
        Options::new(dir).relaxed_durability("relaxed/").relaxed_sync_interval(never)
    };
    let engine = Engine::open(options(live.path())).unwrap();
    let mut model = Model::default();
    commit(&engine, &mut model, vec![put("strict", b"1"), put("relaxed/a", b"1")]);
    commit(&engine, &mut model, vec![put("relaxed/a", b"2")]);
    commit(&engine, &mut model, vec![put("relaxed/b", b"1")]);
    commit(&engine, &mut model, vec![put("strict", b"2")]);
    // A strict transaction syncs all that came before it.
    let synced = wal_len(live.path());
    let synced_latest = model.latest_revision();
    for n in 0..5 {
        commit(&engine, &mut model, vec![put("relaxed/c", &[n])]);
    }
    let given_out = engine.current_revision();
    let image = scratch();
    copy_dir(live.path(), image.path());
    let wal = wal_files(image.path()).pop().unwrap();
    std::fs::File::options().write(true).open(wal).unwrap().set_len(synced).unwrap();

    let engine = Engine::open(options(image.path())).unwrap();
    let state = dump(&engine, &KeyRange::all(), At::Latest);
    assert_eq!(state, model.states[synced_latest as usize]);
    assert!(engine.current_revision() >= given_out, "no revision is given out twice");
    let next = engine.transact(Transaction::new().put("strict", "3")).wait().unwrap().revision;
    assert!(next > given_out);
    assert_eq!(replay(&engine, &KeyRange::all(), synced_latest).len(), 1);
    drop(engine);
    assert_sound(image.path());

    // A regular close syncs everything and skips nothing.
    let image = scratch();
    let engine = Engine::open(options(image.path())).unwrap();
    let revision = engine.transact(Transaction::new().put("relaxed/a", "1")).wait().unwrap().revision;
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(options(image.path())).unwrap();
    assert_eq!(engine.current_revision(), revision);
}

/// Flips bits in table files: reads return correct data or an error, and `verify` reports what they report.
#[test]
fn flipped_bits_in_tables_are_never_served() {
    let live = scratch();
    let engine = Engine::open(small(live.path())).unwrap();
    let mut model = Model::default();
    for n in 0..60u8 {
        let key = format!("key/{:03}", n % 25);
        let value = if n % 7 == 6 { None } else { Some(vec![n; 300]) };
        commit(&engine, &mut model, vec![(key.into_bytes(), value), put("counter", &[n])]);
    }
    engine.close().unwrap();
    drop(engine);
    let tables = table_files(live.path());
    let sizes: Vec<u64> = tables.iter().map(|path| path.metadata().unwrap().len()).collect();
    let total: u64 = sizes.iter().sum();

    let (mut harmless, mut seen) = (0, 0);
    let mut random = Random(9);
    for _ in 0..scaled(120) {
        let bit = random.below(total * 8);
        let (mut byte, mut file) = (bit / 8, 0);
        while byte >= sizes[file] {
            byte -= sizes[file];
            file += 1;
        }
        let sound = std::fs::read(&tables[file]).unwrap();
        let mut damaged = sound.clone();
        damaged[byte as usize] ^= 1 << (bit % 8);
        std::fs::write(&tables[file], &damaged).unwrap();

        let mut findings = Vec::new();
        verify(live.path(), |_| {}, |finding| findings.push(finding)).unwrap();
        let readable = reads_are_right(live.path(), &model);
        if findings.is_empty() {
            assert!(readable, "byte {byte} of {:?}: verify sees nothing", tables[file]);
            harmless += 1;
        } else {
            seen += 1;
        }
        // Opening may have added files; what was there before is put back.
        std::fs::write(&tables[file], &sound).unwrap();
    }
    assert!(seen > harmless * 3, "{seen} findings seen, {harmless} bits mattered to nobody");
}

/// Flips bits of an archive, each bit of its header and trailer and one of every other byte: no restore
/// succeeds, and none leaves a directory that can be opened.
#[test]
fn every_flipped_bit_of_an_archive_is_refused() {
    /// Bytes at the beginning (magic and the header of the first block) and at the end (the trailer) of which
    /// each bit is flipped.
    const ENDS: usize = 32;
    let live = scratch();
    let engine = Engine::open(small(live.path())).unwrap();
    let mut model = Model::default();
    for n in 0..4u8 {
        commit(&engine, &mut model, vec![put(&format!("key/{}", n % 2), &[n; 10]), put("counter", &[n])]);
    }
    commit(&engine, &mut model, vec![(b"key/1".to_vec(), None)]);
    let expiring = Transaction::new().put_expiring("late", "value", Duration::from_secs(1 << 30));
    engine.transact(expiring).wait().unwrap();
    let mut archive = Vec::new();
    engine.backup(&mut archive, |_| {}).unwrap();
    let restored = scratch();
    restore(&mut archive.as_slice(), restored.path().join("sound"), Continuation::Same, |_| {}).unwrap();

    let is_end = |byte: usize| byte < ENDS || byte + ENDS >= archive.len();
    let bits: Vec<usize> =
        (0..archive.len() * 8).filter(|bit| is_end(bit / 8) || bit % 8 == bit / 8 % 8).collect();
    let next = AtomicUsize::new(0);
    let accepted: Vec<usize> = std::thread::scope(|scope| {
        let try_flips = || {
            let to = scratch();
            let mut accepted = Vec::new();
            while let Some(bit) = bits.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut damaged = archive.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                // The directory of the failed attempt is reused: a new one for each would take most of the
                // time.
                let is_restored =
                    restore(&mut damaged.as_slice(), to.path(), Continuation::Same, |_| {}).is_ok();
                let is_open = bit % 64 == 0 && Engine::open(small(to.path())).is_ok();
                if is_restored || is_open {
                    accepted.push(*bit);
                    break;
                }
            }
            accepted
        };
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(try_flips)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(accepted.is_empty(), "bits {accepted:?} of {} bytes", archive.len());
}

/// Reads everything in every way: false when something cannot be read; panics when it is wrong.
fn reads_are_right(dir: &Path, model: &Model) -> bool {
    let copy = scratch();
    copy_dir(dir, copy.path());
    let Ok(engine) = Engine::open(small(copy.path()).expire_keys(false)) else { return false };
    let mut readable = true;
    for (at, expected) in model.states.iter().enumerate() {
        let at = At::Exact(Revision::new(at as u64));
        let mut cursor = engine.snapshot(at).unwrap().range(&KeyRange::all());
        let mut found = 0;
        loop {
            match cursor.next() {
                Ok(Some(entry)) => {
                    assert_eq!(entry.value, expected[entry.key].value);
                    found += 1;
                }
                Ok(None) => break,
                Err(_) => {
                    readable = false;
                    break;
                }
            }
        }
        assert!(!readable || found == expected.len());
        for n in 0..25 {
            let key = format!("key/{n:03}");
            match engine.get(key.as_bytes(), at) {
                Ok(record) => assert_eq!(
                    record.map(|record| record.value.to_vec()),
                    expected.get(key.as_bytes()).map(|version| version.value.clone())
                ),
                Err(_) => readable = false,
            }
        }
    }
    readable
}
