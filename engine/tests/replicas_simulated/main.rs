//! Replicas over a simulated journal, step by step, each decided by a seed. A failure names its seed;
//! `PLINTH_SEED=N` runs that one alone. The long form has 25 seeds times the argument:
//!
//!     scripts/campaign replicas 100
//!
//! Engines, watches and clients' answers are compared with `specification`, an interpreter of the journal's
//! records that shares no code with the engine.

#[path = "../common/mod.rs"]
mod common;
mod node;
mod specification;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{change, drain, dump, replay, scaled, scratch, Change, Random};
use node::{FakeClock, Node};
use parking_lot::Mutex;
use plinth_engine::{
    At, Condition, Engine, Error, Feed, KeyRange, Proposal, ReadBarrier, Revision, Subscribe, Subscription,
    Transaction,
};
use plinth_journal::simulated::{FailureRates, SimulatedJournal};
use plinth_journal::{Journal, Position};
use specification::Specification;

const REPLICAS: usize = 3;
const CLIENTS: usize = 6;
const KEYS: u64 = 8;

/// A request that a client waits for.
enum Call {
    Write { proposal: Proposal, key: String },
    Read { barrier: ReadBarrier, key: String },
}

struct Client {
    replica: usize,
    call: Option<Call>,
    /// The newest revision that anybody knew of when the call was made.
    known: u64,
}

/// What a client has learned.
enum Fact {
    /// A transaction has this revision, and these operations.
    Committed { revision: u64, operations: Vec<(Vec<u8>, Option<Vec<u8>>)>, known: u64 },
    /// A condition on this key did not hold at some revision of this range, when this was the mod revision of
    /// the key.
    Conflict { key: Vec<u8>, modified: u64, known: u64, at_most: u64 },
    /// The most recent state had this revision at least, and the key this mod revision in it.
    Read { revision: u64, key: Vec<u8>, modified: u64, known: u64 },
}

struct Watcher {
    replica: usize,
    subscription: Option<Subscription>,
    position: u64,
    /// Events by revision, and ranges of revisions that compaction has cut off.
    events: Vec<(u64, Change)>,
    skipped: Vec<(u64, u64)>,
}

struct World {
    random: Random,
    journal: SimulatedJournal,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    facts: Vec<Fact>,
    /// The newest revision that any client was told.
    known: u64,
    next_value: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let journal = SimulatedJournal::new(random.next());
        let nodes = (0..REPLICAS)
            .map(|n| Node {
                id: n as u16 + 1,
                dir: scratch(),
                clock: Arc::new(FakeClock(Mutex::new((0, 1_000_000_000 + random.below(100_000))))),
                stepper: None,
                engine: None,
                paused: false,
                durable: (Position::ZERO, None),
            })
            .collect();
        let clients = (0..CLIENTS).map(|n| Client { replica: n % REPLICAS, call: None, known: 0 }).collect();
        let watchers = (0..2)
            .map(|n| Watcher { replica: n, subscription: None, position: 0, events: vec![], skipped: vec![] })
            .collect();
        let mut world = World {
            random,
            journal,
            nodes,
            clients,
            watchers,
            facts: Vec::new(),
            known: 0,
            next_value: 0,
            counts: BTreeMap::new(),
        };
        for node in &mut world.nodes {
            node.open(&world.journal);
        }
        world.journal.set_failures(FailureRates::all());
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn any_node(&mut self) -> usize {
        self.random.below(REPLICAS as u64) as usize
    }

    fn step(&mut self) {
        for node in &mut self.nodes {
            let mut clock = node.clock.0.lock();
            clock.0 += 3;
            clock.1 += 3;
        }
        let node = self.any_node();
        match self.random.below(1000) {
            0..350 => self.propose(node),
            350..600 => {
                for _ in 0..1 + self.random.below(4) {
                    self.apply(node);
                }
            }
            600..680 => self.confirm(node),
            680..900 => {
                let client = self.random.below(CLIENTS as u64) as usize;
                self.serve(client);
            }
            900..950 => {
                let watcher = self.random.below(self.watchers.len() as u64) as usize;
                self.watch(watcher);
            }
            950..962 => {
                let reachable = self.random.below(3) > 0;
                self.journal.set_reachable(self.nodes[node].id, reachable);
                self.count("partitions");
            }
            962..970 => {
                self.nodes[node].paused = self.random.below(3) == 0;
                self.count("pauses");
            }
            970..976 => {
                let jump = self.random.below(4_000_000_000);
                self.nodes[node].clock.0.lock().1 = jump;
                self.count("clock jumps");
            }
            976..982 => self.crash(node),
            982..985 => self.restart(node),
            985..991 => {
                self.nodes[node].sync();
                let trim = self.nodes.iter().map(|node| node.durable.0).min().unwrap();
                let _ = self.journal.client(self.nodes[node].id).trim(trim.next());
                self.count("trims");
            }
            _ => {
                let latest = self.nodes[node].engine().current_revision().get();
                let floor = latest.saturating_sub(self.random.below(30));
                self.nodes[node].stepper.as_ref().unwrap().raise_floor(Revision::new(floor));
                self.count("compactions");
            }
        }
    }

    fn propose(&mut self, node: usize) {
        if !self.nodes[node].paused {
            self.nodes[node].stepper.as_mut().unwrap().propose();
        }
    }

    fn apply(&mut self, node: usize) -> bool {
        !self.nodes[node].paused && self.nodes[node].stepper.as_mut().unwrap().apply().unwrap()
    }

    fn confirm(&mut self, node: usize) {
        if !self.nodes[node].paused {
            self.nodes[node].stepper.as_mut().unwrap().confirm();
        }
    }

    /// Ends the calls that a replica that stops will not answer, and its subscriptions.
    fn disconnect(&mut self, node: usize) {
        for client in self.clients.iter_mut().filter(|client| client.replica == node) {
            client.call = None;
        }
        for watcher in self.watchers.iter_mut().filter(|watcher| watcher.replica == node) {
            watcher.subscription = None;
        }
    }

    fn crash(&mut self, node: usize) {
        self.disconnect(node);
        let (random, journal) = (&mut self.random, &self.journal);
        self.nodes[node].crash(random);
        self.nodes[node].open(journal);
        self.count("crashes");
    }

    fn restart(&mut self, node: usize) {
        self.disconnect(node);
        self.nodes[node].restart();
        self.nodes[node].open(&self.journal);
        self.count("restarts");
    }

    /// Makes a client's next call, or looks whether the one it waits for is answered.
    fn serve(&mut self, client: usize) {
        let Some(mut call) = self.clients[client].call.take() else { return self.call(client) };
        if !self.is_answered(client, &mut call) {
            self.clients[client].call = Some(call);
        }
    }

    /// Whether a call is answered; notes what the client has learned then.
    fn is_answered(&mut self, client: usize, call: &mut Call) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let known = self.clients[client].known;
        let engine = self.nodes[self.clients[client].replica].engine();
        match call {
            Call::Write { proposal, key } => {
                let Poll::Ready(outcome) = Pin::new(proposal).poll(&mut context) else { return false };
                match outcome {
                    Ok(committed) => {
                        let revision = committed.revision.get();
                        let operations = committed.commit.iter().flat_map(|commit| &commit.events);
                        let operations = operations
                            .map(|event| {
                                let (_, (key, new, _)) = change(event);
                                (key, new.map(|version| version.value))
                            })
                            .collect();
                        self.facts.push(Fact::Committed { revision, operations, known });
                        self.known = self.known.max(revision);
                        self.count("committed");
                    }
                    Err(Error::Conflict { key: conflicting, current }) => {
                        let modified = current.map_or(0, |record| record.mod_revision.get());
                        let at_most = engine.current_revision().get();
                        self.facts.push(Fact::Conflict {
                            key: conflicting.to_vec(),
                            modified,
                            known,
                            at_most,
                        });
                        self.count("conflicts");
                    }
                    Err(error) => panic!("{key}: {error}"),
                }
            }
            Call::Read { barrier, key } => {
                let Poll::Ready(outcome) = Pin::new(barrier).poll(&mut context) else { return false };
                outcome.unwrap();
                let snapshot = engine.snapshot(At::Latest).unwrap();
                let found = snapshot.get(key.as_bytes()).unwrap();
                let modified = found.map_or(0, |record| record.mod_revision.get());
                let (revision, key) = (snapshot.revision().get(), key.clone().into_bytes());
                self.facts.push(Fact::Read { revision, key, modified, known });
                self.known = self.known.max(revision);
                self.count("reads");
            }
        }
        true
    }

    fn call(&mut self, client: usize) {
        if self.random.below(5) == 0 {
            self.clients[client].replica = self.any_node();
        }
        let key = format!("key/{}", self.random.below(KEYS));
        self.next_value += 1;
        let value = format!("value {}", self.next_value);
        let engine = self.nodes[self.clients[client].replica].engine();
        let current = engine.get(key.as_bytes(), At::Latest).unwrap();
        let at = |record: &plinth_engine::Record| Condition::ModRevision {
            key: record.key.clone(),
            revision: record.mod_revision,
        };
        let new = Transaction::new();
        let transaction = match (self.random.below(10), &current) {
            (0..2, _) => {
                let barrier = engine.read_barrier();
                let call = Call::Read { barrier, key };
                (self.clients[client].call, self.clients[client].known) = (Some(call), self.known);
                return;
            }
            (2, Some(record)) => new.require(at(record)).delete(key.clone()),
            (3, _) => new.require(Condition::Exists(key.clone().into())).delete(key.clone()),
            (4, _) => new.put_expiring(key.clone(), value, Duration::from_millis(self.random.below(10_000))),
            (5, Some(record)) => {
                let other = format!("key/{}", KEYS + self.random.below(2));
                new.require(at(record)).put(key.clone(), value.clone()).put(other, value)
            }
            (6, _) => new.delete(key.clone()),
            (_, Some(record)) => new.require(at(record)).put(key.clone(), value).having_read(record.clone()),
            (_, None) => new.require(Condition::Absent(key.clone().into())).put(key.clone(), value),
        };
        let call = Call::Write { proposal: engine.transact(transaction), key };
        (self.clients[client].call, self.clients[client].known) = (Some(call), self.known);
    }

    /// Takes a watcher's events; now and then it goes on at another replica.
    fn watch(&mut self, at: usize) {
        if self.random.below(8) == 0 {
            self.watchers[at].subscription = None;
            self.watchers[at].replica = self.any_node();
        }
        let engine = self.nodes[self.watchers[at].replica].engine().clone();
        self.watchers[at].follow(&engine, false);
    }

    /// Ends all failures, and lets every replica apply everything.
    fn settle(&mut self) {
        self.journal.heal();
        for node in &mut self.nodes {
            node.paused = false;
        }
        for round in 0.. {
            assert!(round < 20_000, "the replicas do not come to an end");
            for node in 0..REPLICAS {
                self.propose(node);
                self.confirm(node);
                while self.apply(node) {}
            }
            for client in 0..CLIENTS {
                if self.clients[client].call.is_some() {
                    self.serve(client);
                }
            }
            let end = Position::new(self.journal.records().len() as u64);
            let caught_up = |node: &Node| node.engine().replica_status().unwrap().position == end;
            let answered = self.clients.iter().all(|client| client.call.is_none());
            // One more round than needed: a floor may still be queued.
            if round > 50 && answered && self.nodes.iter().all(caught_up) {
                return;
            }
        }
    }

    fn check(&mut self) {
        let specification = Specification::of(&self.journal.records());
        let model = &specification.model;
        let latest = model.latest_revision();
        let first = self.nodes[0].engine().replica_status().unwrap();
        assert_eq!(first.revision.get(), latest);
        for node in &self.nodes {
            let engine = node.engine();
            assert_eq!(engine.replica_status().unwrap(), first, "replica {}", node.id);
            assert_eq!(engine.compacted_revision().get(), specification.floor);
            for at in specification.floor..=latest {
                let state = dump(engine, &KeyRange::all(), At::Exact(Revision::new(at)));
                assert_eq!(state, model.states[at as usize], "replica {} at {at}", node.id);
            }
            let delivered = replay(engine, &KeyRange::all(), specification.floor);
            assert_eq!(delivered, model.feed(&KeyRange::all(), specification.floor), "replica {}", node.id);
        }
        for watcher in &mut self.watchers {
            let engine = self.nodes[watcher.replica].engine();
            watcher.follow(engine, true);
            let skipped = |revision: u64| {
                watcher.skipped.iter().any(|(after, until)| revision > *after && revision <= *until)
            };
            let expected: Vec<_> = model
                .feed(&KeyRange::all(), 0)
                .into_iter()
                .filter(|(revision, _)| !skipped(*revision))
                .collect();
            assert_eq!(watcher.events, expected, "events of a watch");
        }
        for fact in &self.facts {
            check_fact(fact, &specification);
        }
        // Each value was written once, however often its record was appended.
        let mut values = BTreeMap::new();
        for (revision, changes) in model.changes.iter().enumerate() {
            for version in changes.iter().filter_map(|(_, new, _)| new.as_ref()) {
                let before = values.insert(version.value.clone(), revision);
                assert!(before.is_none_or(|before| before == revision), "a value was written twice");
            }
        }
        *self.counts.entry("revisions").or_default() += latest;
        *self.counts.entry("groups").or_default() += specification.groups;
        *self.counts.entry("void records").or_default() += specification.void;
    }
}

fn check_fact(fact: &Fact, specification: &Specification) {
    match fact {
        Fact::Committed { revision, operations, known } => {
            if operations.is_empty() {
                // Nothing was to be deleted.
                assert!(revision >= known, "answered from the past");
                return;
            }
            assert!(revision > known, "revision {revision} for a call that began after {known}");
            let changes = &specification.model.changes[*revision as usize];
            let changes: Vec<_> = changes
                .iter()
                .map(|(key, new, _)| (key.clone(), new.as_ref().map(|new| new.value.clone())))
                .collect();
            assert_eq!(&changes, operations);
        }
        Fact::Conflict { key, modified, known, at_most } => {
            let held = (*known..=*at_most).any(|at| specification.modified(key, at) == *modified);
            assert!(held, "a conflict with a state that was not there between call and answer");
        }
        Fact::Read { revision, key, modified, known } => {
            assert!(revision >= known, "a read of {revision} that began after {known} was known");
            assert_eq!(specification.modified(key, *revision), *modified);
        }
    }
}

impl Watcher {
    fn follow(&mut self, engine: &Engine, to_the_end: bool) {
        loop {
            let subscription = match &mut self.subscription {
                Some(subscription) => subscription,
                None => {
                    let subscribe =
                        Subscribe::new(KeyRange::all()).after(Revision::new(self.position)).previous(true);
                    match engine.subscribe(subscribe) {
                        Ok(subscription) => self.subscription.insert(subscription),
                        Err(Error::Compacted { oldest, .. }) => {
                            self.skip(oldest.get());
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            if to_the_end && self.position <= engine.compacted_revision().get() {
                // Cut off by a compaction before it could read on.
                if let Err(Error::Compacted { oldest, .. }) =
                    engine.snapshot(At::Exact(Revision::new(self.position)))
                {
                    self.subscription = None;
                    self.skip(oldest.get());
                    continue;
                }
            }
            if to_the_end {
                let events = drain(subscription, engine.current_revision());
                self.events.extend(events);
                return;
            }
            match subscription.try_next() {
                Ok(Some(Feed::Events(events))) => {
                    self.position = events.last().map_or(self.position, |event| event.revision.get());
                    self.events.extend(events.iter().map(|event| change(event)));
                }
                Ok(Some(Feed::Progress(_)) | None) => return,
                Err(Error::Compacted { oldest, .. }) => {
                    self.subscription = None;
                    self.skip(oldest.get());
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn skip(&mut self, oldest: u64) {
        self.skipped.push((self.position, oldest));
        self.position = oldest;
    }
}

fn run(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(seed);
    let steps = 300 + world.random.below(900);
    for _ in 0..steps {
        world.step();
    }
    world.settle();
    world.check();
    world.counts
}

#[test]
fn replicas_agree_whatever_fails() {
    let mut totals: BTreeMap<&'static str, u64> = BTreeMap::new();
    let seeds = match std::env::var("PLINTH_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => {
            let first =
                std::env::var("PLINTH_FIRST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
            first..first + scaled(25)
        }
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        let Ok(counts) = outcome else { panic!("the run with PLINTH_SEED={seed} has failed, see above") };
        for (what, count) in counts {
            *totals.entry(what).or_default() += count;
        }
        *totals.entry("seeds").or_default() += 1;
    }
    println!("{totals:?}");
}
