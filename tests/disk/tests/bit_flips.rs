//! One bit is flipped in every region of every file of a data directory: `verify` must report it, and whoever
//! opens the directory all the same must get right answers or errors. `repair` must end, and leave a sound
//! store that holds nothing that was never written, and all keys but those that it calls lost.
//!
//! `PLINTH_FLIPS` is how many places of each file are tried, besides all of the bytes at its beginning and
//! end. `PLINTH_REPAIRS` is N where every Nth of these stores is repaired, too.

// No lock here outlives a panic that matters: the test fails with it. Threads that wait for another process
// sleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../../../engine/tests/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Mutex};
use std::time::Duration;

use common::{copy_dir, scratch, Model, Random};
use plinth_engine::{
    repair, verify, At, Engine, Feed, KeyRange, Options, RepairReport, Revision, Subscribe, Transaction,
};

/// Places in each file by default.
const FLIPS: u64 = 24;
/// By default, of how many stores with a flip one is repaired.
const REPAIRS: usize = 8;
/// A repair of a store of this size that takes longer than this does not end.
const ENDLESS: Duration = Duration::from_secs(300);
/// Flips between two progress lines.
const PROGRESS: usize = 1000;
/// Bytes at both ends of a file that are all tried.
const ENDS: u64 = 8;

fn options(dir: &Path) -> Options {
    Options::new(dir).write_buffer_bytes(64 << 10).block_cache_bytes(1 << 20).expire_keys(false)
}

/// A directory with everything in it: two generations of table files, a compacted past, deadlines, a log that
/// was not written out. As the last call of a sync left it. With it, the length of the newest log before its
/// last record: a damaged last record cannot be distinguished from one that a power cut tore, so it is left
/// out here.
fn populate() -> (tempfile::TempDir, Model, u64) {
    let live = scratch();
    let image = scratch();
    let mut model = Model::default();
    let engine = Engine::open(options(live.path())).unwrap();
    let mut random = Random(11);
    let mut before_last = 0;
    for n in 0..400u64 {
        before_last = newest_log(live.path()).metadata().unwrap().len();
        let mut operations = vec![(b"number".to_vec(), Some(n.to_le_bytes().to_vec()))];
        let key = format!("key/{}", random.below(60)).into_bytes();
        let value = (random.below(5) > 0).then(|| vec![n as u8; random.below(900) as usize]);
        operations.push((key, value));
        let mut transaction = Transaction::new();
        for (key, value) in &operations {
            transaction = match value {
                Some(value) if n.is_multiple_of(9) && key.starts_with(b"key") => {
                    let late = Duration::from_secs(1 << 30);
                    transaction.put_expiring(key.clone(), value.clone(), late)
                }
                Some(value) => transaction.put(key.clone(), value.clone()),
                None => transaction.delete(key.clone()),
            };
        }
        let revision = engine.transact(transaction).wait().unwrap().revision;
        assert_eq!(revision.get(), model.apply(&operations));
        if n == 150 {
            engine.compact(Revision::new(100)).unwrap();
            engine.wait_compacted().unwrap();
        }
    }
    copy_dir(live.path(), image.path());
    (image, model, before_last)
}

fn newest_log(dir: &Path) -> PathBuf {
    common::wal_files(dir).pop().unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// What kind of file it is.
fn kind(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_string_lossy();
    match name.as_ref() {
        "PLINTH" => "marker",
        "CURRENT" => "CURRENT",
        "IDENTITY" => "IDENTITY",
        "WATERMARK" => "WATERMARK",
        name if name.starts_with("MANIFEST-") => "MANIFEST",
        name if name.starts_with("OPTIONS-") => "OPTIONS",
        name if name.ends_with(".log") => "write-ahead log",
        name if name.ends_with(".sst") => "table",
        name => panic!("a file of which nothing is known: {name}"),
    }
}

/// The bits to flip in a file of this length: every byte at the ends, and places in equal parts between.
fn places(length: u64, parts: u64) -> Vec<u64> {
    let mut random = Random(length);
    let mut bytes: Vec<u64> = (0..length.min(ENDS)).chain(length.saturating_sub(ENDS)..length).collect();
    for part in 0..parts.min(length) {
        let (from, to) = (length * part / parts.min(length), length * (part + 1) / parts.min(length));
        bytes.push(from + random.below(to - from));
    }
    bytes.sort_unstable();
    bytes.dedup();
    bytes.into_iter().map(|byte| byte * 8 + random.below(8)).collect()
}

/// The last record of MANIFEST is no longer than this, in bytes.
const LAST_RECORD: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// `verify` reports it, and readers got right answers or errors.
    Reported,
    /// Nothing reports it, and everything reads as before.
    Harmless,
    /// `verify` reports it, but somebody who opens the directory gets a wrong answer.
    Served,
    /// `verify` does not report it, and something cannot be read or is wrong.
    Missed,
}

/// Reads everything in every way: whether all of it could be read.
fn read_everything(dir: &Path, model: &Model) -> Result<bool, String> {
    let Ok(engine) = Engine::open(options(dir).create(false)) else { return Ok(false) };
    let (latest, floor) = (engine.current_revision().get(), engine.compacted_revision().get());
    if latest != model.latest_revision() || floor != 100 {
        return Err(format!("opened at {floor}..{latest}"));
    }
    let mut whole = true;
    for at in [floor, floor + 1, (floor + latest) / 2, latest - 1, latest] {
        let expected = &model.states[at as usize];
        let mut cursor = match engine.snapshot(At::Exact(Revision::new(at))) {
            Ok(snapshot) => snapshot.range(&KeyRange::all()),
            Err(_) => return Ok(false),
        };
        let mut found = 0;
        loop {
            match cursor.next() {
                Ok(Some(entry))
                    if expected.get(entry.key).is_some_and(|known| known.value == entry.value) =>
                {
                    found += 1;
                }
                Ok(Some(entry)) => return Err(format!("{} at {at}", entry.key.escape_ascii())),
                Ok(None) if found == expected.len() => break,
                Ok(None) => return Err(format!("{found} of {} keys at {at}", expected.len())),
                Err(_) => {
                    whole = false;
                    break;
                }
            }
        }
    }
    for n in 0..60 {
        let key = format!("key/{n}").into_bytes();
        match engine.get(&key, At::Latest) {
            Ok(found) => {
                let expected = model.latest().get(&key).map(|version| version.value.clone());
                if found.map(|record| record.value.to_vec()) != expected {
                    return Err(format!("key/{n}"));
                }
            }
            Err(_) => whole = false,
        }
    }
    let expected = model.feed(&KeyRange::all(), floor);
    let subscribe = Subscribe::new(KeyRange::all()).after(Revision::new(floor)).previous(true);
    let mut subscription = engine.subscribe(subscribe).map_err(|error| error.to_string())?;
    let mut delivered = Vec::new();
    while delivered.len() < expected.len() {
        match subscription.next_timeout(Duration::from_secs(60)) {
            Ok(Some(Feed::Events(events))) => {
                delivered.extend(events.iter().map(|event| common::change(event)))
            }
            Ok(Some(Feed::Progress(_))) => {}
            Ok(None) => return Err("the feed is stuck".to_owned()),
            Err(_) => break,
        }
    }
    if delivered[..] != expected[..delivered.len().min(expected.len())] {
        return Err("the feed delivers something else".to_owned());
    }
    Ok(whole && delivered.len() == expected.len())
}

/// A copy of the directory with one bit of a file flipped.
fn flipped(image: &Path, file: &Path, bit: u64) -> tempfile::TempDir {
    let dir = scratch();
    copy_dir(image, dir.path());
    let path = dir.path().join(file.strip_prefix(image).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    std::fs::write(&path, &bytes).unwrap();
    dir
}

/// Repairs on a thread of its own, which is left behind where it does not end.
fn repair_in_time(dir: &Path) -> Result<RepairReport, String> {
    let (sender, receiver) = mpsc::channel();
    let dir = dir.to_owned();
    std::thread::spawn(move || {
        let done = repair(&dir, true, |_| {}, |_| {}).map_err(|error| error.to_string());
        // Nobody waits any more.
        let _ = sender.send(done);
    });
    match receiver.recv_timeout(ENDLESS) {
        Ok(done) => done,
        Err(mpsc::RecvTimeoutError::Timeout) => Err("the repair does not end".to_owned()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("the repair panics".to_owned()),
    }
}

/// Repairs a store with a flipped bit. `written` is every value that a key ever had.
fn try_repair(dir: &Path, model: &Model, written: &BTreeSet<(&[u8], &[u8])>) -> Result<RepairReport, String> {
    let done = repair_in_time(dir)?;
    let mut findings = Vec::new();
    verify(dir, |_| {}, |finding| findings.push(finding.to_string())).map_err(|error| error.to_string())?;
    if !findings.is_empty() {
        return Err(format!("after the repair: {findings:?}"));
    }
    let engine = Engine::open(options(dir).create(false)).map_err(|error| error.to_string())?;
    if done.needed && engine.current_revision() <= Revision::new(model.latest_revision()) {
        return Err(format!("revisions are given out again: {done:?}"));
    }
    let snapshot = engine.snapshot(At::Latest).map_err(|error| error.to_string())?;
    let mut cursor = snapshot.range(&KeyRange::all());
    let (mut found, mut older) = (BTreeSet::new(), 0);
    while let Some(entry) = cursor.next().map_err(|error| error.to_string())? {
        if !written.contains(&(entry.key, entry.value)) {
            return Err(format!("{} has a value that was never written", entry.key.escape_ascii()));
        }
        let newest = model.latest().get(entry.key);
        older += u64::from(newest.is_none_or(|version| version.value != entry.value));
        found.insert(entry.key.to_vec());
    }
    let lost = model.latest().keys().filter(|key| !found.contains(*key)).count() as u64;
    // The record that the flip damaged is missing, and its two keys are not known.
    let unknown: u64 = done.missing.iter().map(|(first, last)| 2 * (last.get() - first.get() + 1)).sum();
    if lost > done.lost + unknown || older > done.reverted + done.uncertain + unknown {
        return Err(format!("{lost} keys are lost, {older} are older: {done:?}"));
    }
    Ok(done)
}

fn try_flip(dir: &Path, model: &Model) -> (Outcome, String) {
    let mut reported = false;
    let verified = verify(dir, |_| {}, |_| reported = true);
    reported |= verified.is_err();
    let read = catch_unwind(AssertUnwindSafe(|| read_everything(dir, model)))
        .unwrap_or_else(|_| Err("a panic".to_owned()));
    match (reported, read) {
        (true, Ok(_)) => (Outcome::Reported, String::new()),
        (true, Err(what)) => (Outcome::Served, what),
        (false, Ok(true)) => (Outcome::Harmless, String::new()),
        (false, Ok(false)) => (Outcome::Missed, "it cannot be read".to_owned()),
        (false, Err(what)) => (Outcome::Missed, what),
    }
}

#[test]
fn every_flipped_bit_is_reported() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let parts = number("PLINTH_FLIPS").unwrap_or(FLIPS);
    let every = number("PLINTH_REPAIRS").map_or(REPAIRS, |every| every.max(1) as usize);
    let (image, model, before_last) = populate();
    let newest_log = newest_log(image.path());
    let sound = scratch();
    copy_dir(image.path(), sound.path());
    assert_eq!(read_everything(sound.path(), &model), Ok(true));
    let mut flips: Vec<(PathBuf, u64)> = Vec::new();
    for file in files(image.path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        // Empty, or messages for people that nothing reads.
        if name == "LOCK" || name.starts_with("LOG") {
            continue;
        }
        let length = if file == newest_log { before_last } else { file.metadata().unwrap().len() };
        flips.extend(places(length, parts).into_iter().map(|bit| (file.clone(), bit)));
    }
    let written =
        model.states.iter().flatten().map(|(key, version)| (&key[..], &version.value[..])).collect();
    let (next, repaired) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Mutex<BTreeMap<(&str, Outcome), u64>> = Mutex::default();
    let failures: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let tried = next.fetch_add(1, Ordering::Relaxed);
                    let Some((file, bit)) = flips.get(tried) else { break };
                    if tried > 0 && tried.is_multiple_of(PROGRESS) {
                        println!("bit flips: {tried} of {} tried", flips.len());
                    }
                    let (outcome, why) = try_flip(flipped(image.path(), file, *bit).path(), &model);
                    let kind = kind(file);
                    if outcome == Outcome::Reported && tried.is_multiple_of(every) {
                        let dir = flipped(image.path(), file, *bit);
                        repaired.fetch_add(1, Ordering::Relaxed);
                        if let Err(why) = try_repair(dir.path(), &model, &written) {
                            let name = file.file_name().unwrap().to_string_lossy();
                            failures.lock().unwrap().push(format!("{name}, byte {}: {why}", bit / 8));
                        }
                    }
                    *outcomes.lock().unwrap().entry((kind, outcome)).or_default() += 1;
                    // Then the other one of the watermark's two slots is used, which is only a lower bound.
                    let unread = matches!(kind, "OPTIONS" | "IDENTITY" | "WATERMARK");
                    let length = file.metadata().unwrap().len();
                    // A flip in the length of the last record looks like a write that a power cut tore.
                    let torn = kind == "MANIFEST" && bit / 8 + LAST_RECORD >= length;
                    if matches!(outcome, Outcome::Missed | Outcome::Served)
                        || outcome == Outcome::Harmless && !unread && !torn
                    {
                        let name = file.file_name().unwrap().to_string_lossy();
                        let failure = format!("{name}, byte {} of {length}: {outcome:?}: {why}", bit / 8);
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    println!("bit flips: {} in all, {} repaired", flips.len(), repaired.into_inner());
    for ((kind, outcome), count) in outcomes.into_inner().unwrap() {
        println!("  {kind}: {outcome:?} {count}");
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {}: {failures:#?}", failures.len(), flips.len());
}
