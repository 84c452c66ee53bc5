//! The workload of the tests of power cuts and disk errors, and the comparison of what is left of it.

#![allow(dead_code)] // Each test file uses a part of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plinth_disk_tests::campaign::Found;
use plinth_disk_tests::trace::{Event, Marks};
use plinth_engine::{
    verify, At, Engine, EventKind, Feed, KeyRange, Options, Revision, Subscribe, Transaction,
};

use crate::common::{dump, replay, Random, Version};

pub(crate) fn options(dir: &Path) -> Options {
    // Small buffers: files are written out and merged all the time.
    Options::new(dir).write_buffer_bytes(64 << 10).max_wal_bytes(256 << 10).block_cache_bytes(1 << 20)
}

pub(crate) fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A change of a key: the value, or none to delete it, and how long it stays.
pub(crate) type Operation = (String, Option<Vec<u8>>, Option<Duration>);

/// What transaction number `n` does. Every one writes a key with its number, so that each takes a revision
/// and can be identified.
pub(crate) fn operations(n: u64) -> Vec<Operation> {
    let mut random = Random(n.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let mut operations: Vec<Operation> = vec![("number".to_owned(), Some(n.to_le_bytes().to_vec()), None)];
    for _ in 0..random.below(4) {
        let name = format!("key/{}", random.below(40));
        if operations.iter().any(|(known, ..)| *known == name) {
            continue;
        }
        let value = match random.below(8) {
            0 | 1 => None,
            2 => Some(vec![n as u8; random.below(5000) as usize]),
            // Longer than a block of the write-ahead log.
            3 if n.is_multiple_of(7) => Some(vec![n as u8; 40_000]),
            _ => Some(n.to_le_bytes().to_vec()),
        };
        let ttl = random.below(4) == 0 && value.is_some();
        let ttl = ttl.then(|| Duration::from_millis(20 + random.below(100)));
        operations.push((name, value, ttl));
    }
    operations
}

/// Transaction number `n`.
pub(crate) fn transaction(n: u64) -> Transaction {
    operations(n).into_iter().fold(Transaction::new(), |transaction, operation| match operation {
        (key, Some(value), Some(ttl)) => transaction.put_expiring(key, value, ttl),
        (key, Some(value), None) => transaction.put(key, value),
        (key, None, _) => transaction.delete(key),
    })
}

/// What a subscriber was given, as bytes of a mark: the revision, then for each change the key's length, the
/// value's length (none: deleted), key and value.
pub(crate) fn encode_change(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&value.map_or(u32::MAX, |value| value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
}

pub(crate) type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

pub(crate) fn decode_changes(mut mark: &[u8]) -> Changes {
    let mut changes = Changes::new();
    while !mark.is_empty() {
        let number = |at: usize| u32::from_le_bytes(mark[at..at + 4].try_into().unwrap());
        let (key, value) = (number(0) as usize, number(4));
        let end = 8 + key + if value == u32::MAX { 0 } else { value as usize };
        let found = (value != u32::MAX).then(|| mark[8 + key..end].to_vec());
        changes.push((mark[8..8 + key].to_vec(), found));
        mark = &mark[end..];
    }
    changes
}

/// Marks what feeds deliver: the run's history, and a promise of the engine as much as an acknowledgement is.
pub(crate) fn follow(engine: &Engine, after: u64, marks: &Mutex<Marks>, followed: &AtomicU64) {
    let subscribe = Subscribe::new(KeyRange::all()).after(Revision::new(after));
    let mut subscription = engine.subscribe(subscribe).unwrap();
    while let Ok(feed) = subscription.next_timeout(Duration::from_secs(60)) {
        let Some(Feed::Events(events)) = feed else { continue };
        for of_one in events.chunk_by(|a, b| a.revision == b.revision) {
            let revision = of_one[0].revision.get();
            let mut mark = Vec::new();
            for event in of_one {
                let value = match &event.kind {
                    EventKind::Put { value, .. } => Some(value.as_ref()),
                    EventKind::Delete => None,
                };
                encode_change(&mut mark, &event.key, value);
            }
            marks.lock().unwrap().add(&format!("event {revision}"), &mark).unwrap();
            followed.store(revision, Ordering::Release);
        }
    }
}

pub(crate) fn number(mark: &str, name: &str) -> Option<u64> {
    mark.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()
}

pub(crate) fn last_event(events: &[Event]) -> u64 {
    let marks = events.iter().rev().filter_map(|event| match event {
        Event::Mark { name, .. } => number(name, "event"),
        _ => None,
    });
    marks.max().unwrap_or_default()
}

/// A change: the key, the new version, the one before.
type Change = (Vec<u8>, Option<Arc<Version>>, Option<Arc<Version>>);

/// The state and the changes of each revision. As the engine's model, but states share what did not change.
#[derive(Default)]
pub(crate) struct History {
    states: Vec<BTreeMap<Vec<u8>, Arc<Version>>>,
    changes: Vec<Vec<Change>>,
}

impl History {
    /// What the run's subscriber saw.
    pub(crate) fn of(events: &[Event]) -> History {
        let mut history = History { states: vec![BTreeMap::new()], changes: vec![Vec::new()] };
        for event in events {
            let Event::Mark { name, data } = event else { continue };
            let Some(revision) = number(name, "event") else { continue };
            assert_eq!(revision, history.latest() + 1, "the feed of the recorded run has no gap");
            history.add(decode_changes(data));
        }
        history
    }

    /// The newest revision.
    pub(crate) fn latest(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    /// Adds a revision.
    pub(crate) fn add(&mut self, changes: Changes) {
        let revision = self.latest() + 1;
        let mut state = self.states.last().cloned().unwrap_or_default();
        let mut done = Vec::new();
        for (key, value) in changes {
            let old = state.remove(&key);
            let new = value.map(|value| {
                Arc::new(Version {
                    value,
                    create: old.as_ref().map_or(revision, |old| old.create),
                    modified: revision,
                    version: old.as_ref().map_or(1, |old| old.version + 1),
                })
            });
            if let Some(new) = &new {
                state.insert(key.clone(), Arc::clone(new));
            }
            done.push((key, new, old));
        }
        self.states.push(state);
        self.changes.push(done);
    }

    /// Whether this is the state at a revision.
    pub(crate) fn is_state(&self, at: u64, found: &BTreeMap<Vec<u8>, Version>) -> bool {
        let known = &self.states[at as usize];
        known.len() == found.len()
            && known.iter().zip(found).all(|(known, found)| known.0 == found.0 && **known.1 == *found.1)
    }

    /// Whether a feed from one revision to another delivers this.
    pub(crate) fn is_feed(&self, after: u64, to: u64, found: &[(u64, crate::common::Change)]) -> bool {
        let revisions = (after + 1..=to).flat_map(|revision| {
            self.changes[revision as usize].iter().map(move |change| (revision, change))
        });
        let mut found = found.iter();
        for (revision, (key, new, old)) in revisions {
            let Some((found_at, found)) = found.next() else { return false };
            if *found_at != revision
                || found.0 != *key
                || found.1.as_ref() != new.as_deref()
                || found.2.as_ref() != old.as_deref()
            {
                return false;
            }
        }
        found.next().is_none()
    }
}

pub(crate) fn complaints(dir: &Path) -> Result<(), String> {
    let mut first = None;
    let outcome = verify(
        dir,
        |_| {},
        |found| {
            first.get_or_insert(found.to_string());
        },
    );
    match (outcome, first) {
        (Err(error), _) => Err(format!("verify: {error}")),
        (_, Some(found)) => Err(format!("verify: {found}")),
        _ => Ok(()),
    }
}

/// Whether the creation of the store has finished.
fn is_created(dir: &Path) -> bool {
    dir.join("PLINTH").exists() && dir.join("db").exists()
}

/// Opens a data directory and compares all of it with the history; then the engine must take a write.
pub(crate) fn check_store(dir: &Path, history: &History, create: bool) -> Result<Found, String> {
    let verified = if is_created(dir) { complaints(dir) } else { Ok(()) };
    let engine = Engine::open(options(dir).create(create).expire_keys(false));
    let engine = engine.map_err(|error| format!("open: {error}"))?;
    verified?;
    let (latest, floor) = (engine.current_revision().get(), engine.compacted_revision().get());
    if latest > history.latest() {
        return Err(format!("a revision that never was: {latest} of {}", history.latest()));
    }
    if !history.is_state(latest, &dump(&engine, &KeyRange::all(), At::Latest)) {
        return Err(format!("the state at {latest} is another one"));
    }
    if !history.is_feed(floor, latest, &replay(&engine, &KeyRange::all(), floor)) {
        return Err(format!("the feed after {floor} delivers something else"));
    }
    let next = engine.transact(Transaction::new().put("after", "the cut")).wait();
    let next = next.map_err(|error| format!("write: {error}"))?.revision.get();
    if next != latest + 1 {
        return Err(format!("revision {next} follows {latest}"));
    }
    engine.close().map_err(|error| format!("close: {error}"))?;
    drop(engine);
    complaints(dir).map_err(|found| format!("after the next write: {found}"))?;
    Ok(Found { latest, floor })
}

/// As [`check_store`], for a history whose last revisions nobody saw: those that the store has are added to
/// it when each is a whole transaction or an expiry.
pub(crate) fn check_survivor(
    dir: &Path,
    mut history: History,
    latest: u64,
    floor: u64,
) -> Result<(), String> {
    if is_created(dir) || latest > 0 {
        complaints(dir)?;
        let engine = Engine::open(options(dir).create(false).expire_keys(false));
        let engine = engine.map_err(|error| format!("open: {error}"))?;
        if engine.current_revision().get() > history.latest() {
            let known = history.latest();
            let behind = replay(&engine, &KeyRange::all(), known);
            for of_one in behind.chunk_by(|a, b| a.0 == b.0) {
                let changes = of_one.iter().map(|(_, (key, new, _))| {
                    (key.clone(), new.as_ref().map(|version| version.value.clone()))
                });
                let changes: Changes = changes.collect();
                is_whole(&changes).map_err(|error| format!("revision {}: {error}", of_one[0].0))?;
                history.add(changes);
            }
        }
        drop(engine);
    }
    let found = check_store(dir, &history, true)?;
    if found.latest < latest {
        return Err(format!("lost: {latest} acknowledged, {} there", found.latest));
    }
    if found.floor < floor {
        return Err(format!("the floor went back: {floor} acknowledged, {} there", found.floor));
    }
    Ok(())
}

/// Whether a transaction did all that it should have, or is an expiry.
fn is_whole(changes: &Changes) -> Result<(), String> {
    let Some((_, Some(number))) = changes.iter().find(|(key, _)| key == b"number") else {
        return match changes.iter().all(|(_, value)| value.is_none()) {
            true => Ok(()),
            false => Err("a put without its transaction".to_owned()),
        };
    };
    let n = u64::from_le_bytes(number[..].try_into().map_err(|_| "a damaged number")?);
    for (key, value, _) in operations(n) {
        let found = changes.iter().find(|(found, _)| found == key.as_bytes()).map(|(_, value)| value);
        match (value, found) {
            (Some(value), Some(Some(found))) if value == *found => {}
            // Deleting what is not there changes nothing.
            (None, Some(None) | None) => {}
            _ => return Err(format!("half of transaction {n}")),
        }
    }
    Ok(())
}
