//! Shared by the engine's tests: scratch directories, and a model of the engine made of plain data
//! structures.

#![allow(dead_code, unused_imports)] // Each test file uses a part of it.

mod clocks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plinth_engine::{
    At, Engine, Event, EventKind, Feed, KeyRange, Options, Replica, Revision, Stepper, Subscribe,
    Subscription, Transaction,
};

pub(crate) use clocks::Clocks;

/// A directory that is removed after the test; in memory where the system offers that, because most tests are
/// about logic and not about the disk.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// Scales the amount of work: `PLINTH_TEST_SCALE` multiplies the tests' own numbers, for long runs.
pub(crate) fn scaled(count: u64) -> u64 {
    let scale = std::env::var("PLINTH_TEST_SCALE").ok().and_then(|scale| scale.parse::<f64>().ok());
    (count as f64 * scale.unwrap_or(1.0)) as u64
}

/// Whether a key has a value.
pub(crate) fn is_there(engine: &Engine, key: &str) -> bool {
    engine.get(key.as_bytes(), At::Latest).unwrap().is_some()
}

/// A replica that is stepped, at rest.
pub(crate) fn stepped(options: Options, replica: Replica) -> (Engine, Stepper) {
    let (engine, mut stepper) = Engine::open_stepped(options, replica).unwrap();
    come_to_rest(&mut stepper);
    (engine, stepper)
}

/// Steps a replica until there is nothing left to do.
pub(crate) fn come_to_rest(stepper: &mut Stepper) {
    while stepper.propose() || stepper.apply().unwrap() {}
}

/// Waits until a condition holds that a thread of the engine brings about.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits until two replicas are equally far: position, revision, hash and level. Each publishes its status
/// after it has answered what waited, so that one may show the state before for a moment.
#[track_caller]
pub(crate) fn wait_until_equal(one: &Engine, other: &Engine) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let statuses = [one, other].map(Engine::replica_status);
        if statuses[0] == statuses[1] {
            return;
        }
        assert!(Instant::now() < deadline, "{statuses:?}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A small deterministic random number generator (splitmix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// A version of a key in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub value: Vec<u8>,
    pub create: u64,
    pub modified: u64,
    pub version: u64,
}

/// A change in the model: the key, the new version (none: deleted), the one before.
pub(crate) type Change = (Vec<u8>, Option<Version>, Option<Version>);

/// The whole history: state and changes of each revision. Revision 0 is the empty state.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub states: Vec<BTreeMap<Vec<u8>, Version>>,
    pub changes: Vec<Vec<Change>>,
}

impl Default for Model {
    fn default() -> Model {
        Model { states: vec![BTreeMap::new()], changes: vec![Vec::new()] }
    }
}

impl Model {
    pub(crate) fn latest_revision(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    pub(crate) fn latest(&self) -> &BTreeMap<Vec<u8>, Version> {
        self.states.last().unwrap()
    }

    /// Applies puts (with a value) and deletes; returns the revision, the old one when nothing changed.
    pub(crate) fn apply(&mut self, operations: &[(Vec<u8>, Option<Vec<u8>>)]) -> u64 {
        let mut state = self.latest().clone();
        let revision = self.latest_revision() + 1;
        let mut changes = Vec::new();
        for (key, value) in operations {
            let old = state.get(key).cloned();
            match value {
                Some(value) => {
                    let new = Version {
                        value: value.clone(),
                        create: old.as_ref().map_or(revision, |old| old.create),
                        modified: revision,
                        version: old.as_ref().map_or(1, |old| old.version + 1),
                    };
                    state.insert(key.clone(), new.clone());
                    changes.push((key.clone(), Some(new), old));
                }
                None if old.is_some() => {
                    state.remove(key);
                    changes.push((key.clone(), None, old));
                }
                None => {}
            }
        }
        if changes.is_empty() {
            return self.latest_revision();
        }
        self.states.push(state);
        self.changes.push(changes);
        revision
    }

    /// Drops everything after a revision, as a crash may do to unacknowledged transactions.
    pub(crate) fn truncate(&mut self, latest: u64) {
        self.states.truncate(latest as usize + 1);
        self.changes.truncate(latest as usize + 1);
    }

    /// The changes in `range` after `after`, as a feed should deliver them.
    pub(crate) fn feed(&self, range: &KeyRange, after: u64) -> Vec<(u64, Change)> {
        let mut out = Vec::new();
        for (revision, changes) in self.changes.iter().enumerate().skip(after as usize + 1) {
            for change in changes.iter().filter(|change| range.contains(&change.0)) {
                out.push((revision as u64, change.clone()));
            }
        }
        out
    }
}

/// The state of the engine at a revision, in the model's terms.
pub(crate) fn dump(engine: &Engine, range: &KeyRange, at: At) -> BTreeMap<Vec<u8>, Version> {
    let mut cursor = engine.snapshot(at).unwrap().range(range);
    let mut state = BTreeMap::new();
    let mut last: Option<Vec<u8>> = None;
    while let Some(entry) = cursor.next().unwrap() {
        assert!(last.as_deref().is_none_or(|last| last < entry.key), "keys must ascend");
        last = Some(entry.key.to_vec());
        let version = Version {
            value: entry.value.to_vec(),
            create: entry.create_revision.get(),
            modified: entry.mod_revision.get(),
            version: entry.version,
        };
        state.insert(entry.key.to_vec(), version);
    }
    state
}

/// An event in the model's terms.
pub(crate) fn change(event: &Event) -> (u64, Change) {
    let revision = event.revision.get();
    let new = match &event.kind {
        EventKind::Put { value, create_revision, version, .. } => Some(Version {
            value: value.to_vec(),
            create: create_revision.get(),
            modified: revision,
            version: *version,
        }),
        EventKind::Delete => None,
    };
    let old = event.previous.as_ref().map(|record| Version {
        value: record.value.to_vec(),
        create: record.create_revision.get(),
        modified: record.mod_revision.get(),
        version: record.version,
    });
    (revision, (event.key.to_vec(), new, old))
}

/// Everything that a subscription delivers up to the latest revision. Checks the guarantees: ascending
/// revisions, whole revisions, nothing at or below the start.
pub(crate) fn drain(subscription: &mut Subscription, latest: Revision) -> Vec<(u64, Change)> {
    let mut out: Vec<(u64, Change)> = Vec::new();
    subscription.request_progress();
    loop {
        let position = subscription.position();
        match subscription.next_timeout(Duration::from_secs(60)).unwrap() {
            None => panic!("the feed is stuck at {position} of {latest}"),
            Some(Feed::Progress(at)) => {
                assert!(at >= position);
                if at >= latest {
                    return out;
                }
                subscription.request_progress();
            }
            Some(Feed::Events(events)) => {
                assert!(!events.is_empty());
                for event in events.iter() {
                    assert!(event.revision > position, "went back in time");
                    assert!(out.last().is_none_or(|(last, _)| *last <= event.revision.get()));
                    out.push(change(event));
                }
            }
        }
    }
}

/// Subscribes and reads everything up to now.
pub(crate) fn replay(engine: &Engine, range: &KeyRange, after: u64) -> Vec<(u64, Change)> {
    let subscribe = Subscribe::new(range.clone()).after(Revision::new(after)).previous(true);
    drain(&mut engine.subscribe(subscribe).unwrap(), engine.current_revision())
}

/// A copy of a store in a directory of its own.
pub(crate) fn copy(image: &Path) -> (tempfile::TempDir, PathBuf) {
    let dir = scratch();
    copy_dir(image, dir.path());
    let path = dir.path().to_owned();
    (dir, path)
}

/// Copies a directory as a power failure would leave it, given that everything written was synced.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            match std::fs::copy(entry.path(), target) {
                // The store is open, and has deleted a file that it needs no longer.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

/// The write-ahead log files of a data directory, oldest first.
pub(crate) fn wal_files(dir: &Path) -> Vec<PathBuf> {
    files_with(dir, "log")
}

/// The table files of a data directory.
pub(crate) fn table_files(dir: &Path) -> Vec<PathBuf> {
    files_with(dir, "sst")
}

fn files_with(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir.join("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// Asserts that a data directory that is not open has no finding.
pub(crate) fn assert_sound(dir: &Path) {
    let mut findings = Vec::new();
    plinth_engine::verify(dir, |_| {}, |finding| findings.push(finding.to_string())).unwrap();
    assert_eq!(findings, Vec::<String>::new());
}

/// Options with small buffers, so that new logs are begun often.
pub(crate) fn options(dir: &Path) -> Options {
    Options::new(dir).write_buffer_bytes(64 << 10)
}

/// Pseudo-random bytes without runs of zeros.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length).map(|_| random.next() as u8 | 1).collect()
}

/// Puts one key, and returns the revision.
pub(crate) fn put(engine: &Engine, key: &str, value: &[u8]) -> Revision {
    engine.transact(Transaction::new().put(key.to_owned(), value.to_vec())).wait().unwrap().revision
}
