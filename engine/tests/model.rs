//! Random histories against the model: transactions, reads at random revisions, compactions, reopenings,
//! feeds, backups. A failing history is shrunk to a short one.
//!
//! `PROPTEST_CASES` sets the number of histories for long runs.

#![allow(clippy::too_many_lines, reason = "one arm for each step")]

mod common;

use common::{assert_sound, change, drain, dump, replay, scratch, Change, Model};
use plinth_engine::{
    restore, At, Condition, Continuation, Engine, Error, Feed, KeyRange, Options, Revision, Subscribe,
    Subscription, Transaction,
};
use proptest::prelude::*;

/// Keys that are prefixes of each other and hold the bytes that the format treats specially.
const KEYS: [&[u8]; 8] = [b"a", b"a\0", b"a/", b"a/x", b"a/y", b"a\xff", b"b", b""];

#[derive(Debug, Clone)]
enum Step {
    Transact { conditions: Vec<(usize, Want)>, operations: Vec<(usize, Option<Vec<u8>>)>, hint: bool },
    Burst(Vec<(usize, Option<Vec<u8>>)>),
    Get { key: usize, back: u64 },
    Range { range: usize, back: u64 },
    Compact { back: u64, finish: bool },
    Reopen { close: bool },
    Subscribe { range: usize, back: u64 },
    Follow { feed: usize },
    Unsubscribe { feed: usize },
    Restore,
    Verify,
}

#[derive(Debug, Clone)]
enum Want {
    Exists,
    Absent,
    Current,
    Stale,
}

fn range(index: usize) -> KeyRange {
    match index {
        0 => KeyRange::all(),
        1 => KeyRange::prefix("a"),
        2 => KeyRange::prefix("a/"),
        3 => KeyRange::key("a"),
        4 => KeyRange::between("a\0", "a/y"),
        5 => KeyRange::from("a/x"),
        _ => KeyRange::all().after(b"a"),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Some),
        1 => (20usize..3000).prop_map(|n| Some(vec![7; n])),
        2 => Just(None),
    ];
    let want = prop_oneof![Just(Want::Exists), Just(Want::Absent), Just(Want::Current), Just(Want::Stale)];
    let operations = prop::collection::btree_map(key.clone(), value, 1..5)
        .prop_map(|map| map.into_iter().collect::<Vec<_>>());
    prop_oneof![
        12 => (prop::collection::vec((key.clone(), want), 0..2), operations.clone(), any::<bool>())
            .prop_map(|(conditions, operations, hint)| Step::Transact { conditions, operations, hint }),
        4 => operations.prop_map(Step::Burst),
        4 => (key, 0u64..30).prop_map(|(key, back)| Step::Get { key, back }),
        4 => (0usize..7, 0u64..30).prop_map(|(range, back)| Step::Range { range, back }),
        2 => (0u64..20, any::<bool>()).prop_map(|(back, finish)| Step::Compact { back, finish }),
        1 => any::<bool>().prop_map(|close| Step::Reopen { close }),
        2 => (0usize..7, 0u64..30).prop_map(|(range, back)| Step::Subscribe { range, back }),
        4 => (0usize..4).prop_map(|feed| Step::Follow { feed }),
        1 => (0usize..4).prop_map(|feed| Step::Unsubscribe { feed }),
        1 => Just(Step::Restore),
        1 => Just(Step::Verify),
    ]
}

struct Open {
    feed: Subscription,
    range: KeyRange,
    /// The model's changes up to here were delivered.
    seen: u64,
}

struct World {
    dir: tempfile::TempDir,
    engine: Option<Engine>,
    model: Model,
    floor: u64,
    feeds: Vec<Open>,
}

impl World {
    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    fn open(&mut self) {
        // Small buffers, so that short histories reach the disk, the ring's end and the queue's limit.
        let options = Options::new(self.dir.path()).event_ring_bytes(4000).write_buffer_bytes(64 << 10);
        self.engine = Some(Engine::open(options).unwrap());
        assert_eq!(self.engine().current_revision().get(), self.model.latest_revision());
        assert_eq!(self.engine().compacted_revision().get(), self.floor);
    }

    fn close(&mut self, close: bool) {
        self.feeds.clear();
        let engine = self.engine.take().unwrap();
        if close {
            engine.close().unwrap();
        }
    }

    fn take(&mut self, step: Step) {
        let latest_revision = self.model.latest_revision();
        match step {
            Step::Transact { conditions, operations, hint } => self.transact(&conditions, &operations, hint),
            Step::Burst(operations) => {
                // One transaction for each operation, all in flight at once.
                let proposals: Vec<_> = operations
                    .iter()
                    .map(|(key, value)| self.engine().transact(transaction(&[(*key, value.clone())])))
                    .collect();
                for ((key, value), proposal) in operations.into_iter().zip(proposals) {
                    let revision = self.model.apply(&[(KEYS[key].to_vec(), value)]);
                    assert_eq!(proposal.wait().unwrap().revision.get(), revision);
                }
            }
            Step::Get { key, back } => {
                let at = latest_revision.saturating_sub(back);
                let found = self.engine().get(KEYS[key], At::Exact(Revision::new(at)));
                if at < self.floor {
                    assert!(matches!(found, Err(Error::Compacted { .. })));
                    return;
                }
                let expected = self.model.states[at as usize].get(KEYS[key]);
                assert_eq!(found.unwrap().map(|r| r.value.to_vec()), expected.map(|v| v.value.clone()));
                let latest = self.engine().get(KEYS[key], At::Latest).unwrap();
                let expected = self.model.latest().get(KEYS[key]);
                assert_eq!(
                    latest.map(|r| (r.version, r.mod_revision.get())),
                    expected.map(|v| (v.version, v.modified))
                );
            }
            Step::Range { range: index, back } => {
                let at = latest_revision.saturating_sub(back);
                let snapshot = self.engine().snapshot(At::Exact(Revision::new(at)));
                if at < self.floor {
                    assert!(matches!(snapshot, Err(Error::Compacted { .. })));
                    return;
                }
                let range = range(index);
                let expected: std::collections::BTreeMap<_, _> = self.model.states[at as usize]
                    .iter()
                    .filter(|(key, _)| range.contains(key))
                    .map(|(key, version)| (key.clone(), version.clone()))
                    .collect();
                assert_eq!(dump(self.engine(), &range, At::Exact(Revision::new(at))), expected);
                assert_eq!(snapshot.unwrap().count(&range).unwrap(), expected.len() as u64);
            }
            Step::Compact { back, finish } => {
                let at = latest_revision.saturating_sub(back);
                self.engine().compact(Revision::new(at)).unwrap();
                self.floor = self.floor.max(at);
                if finish {
                    self.engine().wait_compacted().unwrap();
                }
                self.feeds.retain(|open| open.seen >= at);
            }
            Step::Reopen { close } => {
                self.close(close);
                self.open();
            }
            Step::Subscribe { range: index, back } => {
                let (range, after) = (range(index), latest_revision.saturating_sub(back));
                let subscribe = Subscribe::new(range.clone()).after(Revision::new(after)).previous(true);
                match self.engine().subscribe(subscribe) {
                    Ok(feed) => self.feeds.push(Open { feed, range, seen: after }),
                    Err(Error::Compacted { .. }) => assert!(after < self.floor),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Follow { feed } => {
                let revision = self.engine().current_revision();
                if let Some(open) = self.feeds.get_mut(feed) {
                    assert_eq!(drain(&mut open.feed, revision), self.model.feed(&open.range, open.seen));
                    open.seen = latest_revision;
                }
            }
            Step::Unsubscribe { feed } => {
                if feed < self.feeds.len() {
                    self.feeds.remove(feed);
                }
            }
            Step::Restore => {
                let mut archive = Vec::new();
                let archived = self.engine().backup(&mut archive, |_| {}).unwrap();
                assert_eq!(archived.revision.get(), latest_revision);
                self.close(false);
                self.dir = scratch();
                assert_eq!(
                    restore(&mut archive.as_slice(), self.dir.path(), Continuation::Same, |_| {}).unwrap(),
                    archived
                );
                self.open();
            }
            Step::Verify => {
                self.close(true);
                assert_sound(self.dir.path());
                self.open();
            }
        }
    }

    fn transact(
        &mut self,
        conditions: &[(usize, Want)],
        operations: &[(usize, Option<Vec<u8>>)],
        hint: bool,
    ) {
        let mut transaction = transaction(&[]);
        let mut holds = true;
        for (key, want) in conditions {
            let current = self.model.latest().get(KEYS[*key]);
            let key = KEYS[*key].to_vec();
            let (condition, held) = match want {
                Want::Exists => (Condition::Exists(key.into()), current.is_some()),
                Want::Absent => (Condition::Absent(key.into()), current.is_none()),
                Want::Current => {
                    let revision = Revision::new(current.map_or(0, |v| v.modified));
                    (Condition::ModRevision { key: key.into(), revision }, current.is_some())
                }
                Want::Stale => {
                    let revision = Revision::new(current.map_or(1, |v| v.modified - 1));
                    (Condition::ModRevision { key: key.into(), revision }, false)
                }
            };
            transaction = transaction.require(condition);
            holds &= held;
        }
        for (key, value) in operations {
            transaction = match value {
                Some(value) => transaction.put(KEYS[*key], value.clone()),
                None => transaction.delete(KEYS[*key]),
            };
            if hint {
                // The record as of some earlier moment, which may have changed since.
                let at = Revision::new(self.model.latest_revision().saturating_sub(1).max(self.floor));
                if let Some(record) = self.engine().get(KEYS[*key], At::Exact(at)).unwrap() {
                    transaction = transaction.having_read(record);
                }
            }
        }
        let outcome = self.engine().transact(transaction).wait();
        if !holds {
            assert!(matches!(outcome, Err(Error::Conflict { .. })));
            return;
        }
        let operations: Vec<_> =
            operations.iter().map(|(key, value)| (KEYS[*key].to_vec(), value.clone())).collect();
        let before = self.model.latest_revision();
        let revision = self.model.apply(&operations);
        let committed = outcome.unwrap();
        assert_eq!(committed.revision.get(), revision);
        let changes: Vec<Change> =
            committed.commit.iter().flat_map(|commit| &commit.events).map(|event| change(event).1).collect();
        let expected = if revision > before { self.model.changes[revision as usize].clone() } else { vec![] };
        assert_eq!(changes, expected);
    }

    fn check_all(&self) {
        for at in self.floor..=self.model.latest_revision() {
            let state = dump(self.engine(), &KeyRange::all(), At::Exact(Revision::new(at)));
            assert_eq!(state, self.model.states[at as usize], "state at {at}");
        }
        let delivered = replay(self.engine(), &KeyRange::all(), self.floor);
        assert_eq!(delivered, self.model.feed(&KeyRange::all(), self.floor));
    }
}

fn transaction(operations: &[(usize, Option<Vec<u8>>)]) -> Transaction {
    operations.iter().fold(Transaction::new(), |transaction, (key, value)| match value {
        Some(value) => transaction.put(KEYS[*key], value.clone()),
        None => transaction.delete(KEYS[*key]),
    })
}

fn cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1500;
    }
    config.failure_persistence = None;
    config.max_shrink_iters = 2000;
    config
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_engine_matches_the_model(steps in prop::collection::vec(step(), 1..40)) {
        let mut world =
            World { dir: scratch(), engine: None, model: Model::default(), floor: 0, feeds: Vec::new() };
        world.open();
        for step in steps {
            world.take(step);
        }
        world.check_all();
        world.close(true);
        assert_sound(world.dir.path());
    }
}

#[test]
fn a_subscriber_that_falls_behind_gets_everything_once() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path()).event_ring_bytes(64 << 10)).unwrap();
    let mut slow = engine.subscribe(Subscribe::new(KeyRange::prefix("k")).previous(true)).unwrap();
    let mut model = Model::default();
    let mut proposals = Vec::new();
    for i in 0..20_000u32 {
        let key = format!("{}{}", if i % 4 == 0 { "other" } else { "k" }, i % 50);
        let value = i.to_le_bytes().to_vec();
        proposals.push(engine.transact(Transaction::new().put(key.clone(), value.clone())));
        // Only the newest states are compared: the model would keep 20,000 of them.
        model.apply(&[(key.into_bytes(), Some(value))]);
        if model.states.len() > 2 {
            let at = model.states.len() - 3;
            model.states[at].clear();
        }
    }
    for proposal in proposals {
        proposal.wait().unwrap();
    }
    assert!(engine.stats().ring_bytes < 128 << 10, "the ring is bounded whoever lags");
    let delivered = drain(&mut slow, engine.current_revision());
    assert_eq!(delivered.len(), 15_000);
    assert_eq!(delivered, model.feed(&KeyRange::prefix("k"), 0));
    // It has caught up: the next event comes from memory.
    engine.transact(Transaction::new().put("k", "live")).wait().unwrap();
    assert!(matches!(slow.try_next(), Ok(Some(Feed::Events(events))) if events.len() == 1));
}
