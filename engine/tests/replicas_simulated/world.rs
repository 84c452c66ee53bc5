//! Replicas, clients and watches, and what happens to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_engine::{At, Failure, KeyRange, Revision};
use plinth_journal::record::{Anchor, Body, Hash, Record, ReplicaId, Session, VERSION};
use plinth_journal::simulated::{FailureRates, SimulatedJournal};
use plinth_journal::{Error as JournalError, Journal, Position};

use crate::clients::{Client, Observations};
use crate::common::{dump, replay, Random};
use crate::node::{new_store, FakeClock, Node, CLUSTER};
use crate::specification::Specification;
use crate::watcher::Watcher;
use crate::Counts;

const REPLICAS: usize = 3;
const CLIENTS: usize = 6;

/// Who raises the level of the cluster.
const OPERATOR: ReplicaId = ReplicaId(9);

pub(crate) struct World {
    random: Random,
    journal: SimulatedJournal,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    observations: Observations,
    /// Sequence of the operator's newest record.
    operator: u64,
    counts: Counts,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let journal = SimulatedJournal::new(random.next());
        let nodes = (0..REPLICAS)
            .map(|n| Node {
                id: n as u16 + 1,
                dir: new_store(),
                clock: Arc::new(FakeClock(Mutex::new((0, 1_000_000_000 + random.below(100_000))))),
                stepper: None,
                engine: None,
                paused: false,
                is_slow: false,
                durable: (Position::ZERO, None),
            })
            .collect();
        let clients = (0..CLIENTS).map(|n| Client::new(n % REPLICAS)).collect();
        let watchers = (0..2)
            .map(|n| Watcher { replica: n, subscription: None, position: 0, events: vec![], skipped: vec![] })
            .collect();
        let mut world = World {
            random,
            journal,
            nodes,
            clients,
            watchers,
            observations: Observations::default(),
            operator: 0,
            counts: Counts::new(),
        };
        for node in &mut world.nodes {
            node.open(&world.journal);
        }
        world.journal.set_failures(FailureRates { misled: 10, ..FailureRates::all() });
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn any_node(&mut self) -> usize {
        self.random.below(REPLICAS as u64) as usize
    }

    /// Makes the schedule's steps.
    pub(crate) fn live(&mut self) {
        for _ in 0..300 + self.random.below(900) {
            self.step();
        }
    }

    fn step(&mut self) {
        for node in &mut self.nodes {
            node.clock.pass(3);
        }
        let node = self.any_node();
        match self.random.below(1000) {
            0..340 => self.propose(node),
            340..590 => {
                for _ in 0..1 + self.random.below(4) {
                    // A slow disk: what is proposed meanwhile is judged against an old state.
                    if !self.nodes[node].is_slow || self.random.below(8) == 0 {
                        self.apply(node);
                    }
                }
            }
            590..670 => self.confirm(node),
            670..890 => {
                let client = self.random.below(CLIENTS as u64) as usize;
                self.serve(client);
            }
            890..935 => {
                let watcher = self.random.below(self.watchers.len() as u64) as usize;
                self.watch(watcher);
            }
            935..947 => {
                let reachable = self.random.below(3) > 0;
                self.journal.set_reachable(self.nodes[node].id, reachable);
                self.count("partitions");
            }
            947..953 => {
                self.nodes[node].paused = self.random.below(3) == 0;
                self.count("pauses");
            }
            953..957 => {
                self.nodes[node].is_slow = self.random.below(2) == 0;
                self.count("slow disks");
            }
            957..962 => {
                let jump = self.random.below(4_000_000_000);
                self.nodes[node].clock.0.lock().1 = jump;
                self.count("clock jumps");
            }
            962..965 => {
                // The process stood still, or the machine slept.
                let slept = self.random.below(5_000);
                self.nodes[node].clock.pass(slept);
                self.count("sleeps");
            }
            965..971 => drop(self.expire(node)),
            971..973 => self.raise_level(),
            973..979 => self.crash(node),
            979..982 => self.restart(node),
            982..988 => {
                self.nodes[node].sync();
                let trim = self.nodes.iter().map(|node| node.durable.0).min().unwrap();
                let _ = self.journal.client(self.nodes[node].id).trim(trim.next());
                self.count("trims");
            }
            988..994 => {
                self.nodes[node].stepper().sweep().unwrap();
                self.count("sweeps");
            }
            _ => {
                let latest = self.nodes[node].engine().current_revision().get();
                let floor = latest.saturating_sub(self.random.below(30));
                self.nodes[node].stepper().raise_floor(Revision::new(floor));
                self.count("compactions");
            }
        }
    }

    fn propose(&mut self, node: usize) {
        if !self.nodes[node].paused {
            self.nodes[node].stepper().propose();
        }
    }

    fn apply(&mut self, node: usize) -> bool {
        !self.nodes[node].paused && self.nodes[node].stepper().apply().unwrap()
    }

    fn confirm(&mut self, node: usize) {
        if !self.nodes[node].paused {
            self.nodes[node].stepper().confirm();
        }
    }

    /// Returns the keys that it has proposed to delete, in the order of their deadlines.
    fn expire(&mut self, node: usize) -> Vec<Bytes> {
        let (at_ms, due) = self.nodes[node].stepper().expire().unwrap();
        let keys = due.iter().map(|(key, _)| key.clone()).collect();
        *self.counts.entry("expiries").or_default() += due.len() as u64;
        self.observations.expired(at_ms, due);
        keys
    }

    /// Appends a record that raises the level to what all know, or one that is void.
    fn raise_level(&mut self) {
        if self.operator == 0 {
            self.journal.push(self.operators(0, Body::Session { replaces: None }));
        }
        let is_void = self.random.below(3) == 0;
        if !is_void {
            self.operator += 1;
        }
        let sequence = if is_void { self.operator + 7 } else { self.operator };
        self.journal.push(self.operators(sequence, Body::Level(VERSION)));
        self.count("levels");
    }

    /// A record of somebody who has applied nothing.
    fn operators(&self, sequence: u64, body: Body) -> Bytes {
        let anchor = Anchor { hash: Hash(CLUSTER.0), ..Anchor::default() };
        let (replica, session) = (OPERATOR, Session(1));
        Record { cluster: CLUSTER, replica, session, sequence, clock_ms: 0, anchor, body }.encode()
    }

    /// Ends the calls that a replica that stops will not answer, and its subscriptions.
    fn disconnect(&mut self, node: usize) {
        for client in self.clients.iter_mut().filter(|client| client.replica == node) {
            self.observations.disconnect(client);
        }
        for watcher in self.watchers.iter_mut().filter(|watcher| watcher.replica == node) {
            watcher.subscription = None;
        }
    }

    fn crash(&mut self, node: usize) {
        self.disconnect(node);
        let (random, journal) = (&mut self.random, &self.journal);
        let how = self.nodes[node].crash(random);
        self.nodes[node].open(journal);
        self.count(how);
    }

    fn restart(&mut self, node: usize) {
        self.disconnect(node);
        self.nodes[node].restart();
        self.nodes[node].open(&self.journal);
        self.count("restarts");
    }

    /// Makes a client's next call, or looks whether the one it waits for is answered.
    fn serve(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if client.call.is_none() {
            if self.random.below(5) == 0 {
                client.replica = self.random.below(REPLICAS as u64) as usize;
            }
            let engine = self.nodes[client.replica].engine();
            self.observations.call(client, engine, &mut self.random);
        } else if let Some(what) = self.observations.poll(client, self.nodes[client.replica].engine()) {
            self.count(what);
        }
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
    pub(crate) fn settle(&mut self) {
        self.journal.heal();
        for node in &mut self.nodes {
            (node.paused, node.is_slow) = (false, false);
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

    /// Lets all deadlines pass, at each replica alone: whoever has set them may be gone.
    pub(crate) fn expire_everything(&mut self) {
        for node in &mut self.nodes {
            node.clock.pass(60_000);
        }
        let due: Vec<_> = (0..REPLICAS).map(|node| self.expire(node)).collect();
        assert!(due.iter().all(|keys| *keys == due[0]), "a deadline has passed at some replicas: {due:?}");
        self.settle();
        for node in 0..REPLICAS {
            let due = self.expire(node);
            assert!(due.is_empty(), "{due:?} have expired and are still there");
        }
    }

    /// Compares everything with what the records of the journal mean.
    pub(crate) fn check(mut self) -> Counts {
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
            for (key, version) in model.latest() {
                let record = engine.get(key, At::Latest).unwrap().unwrap();
                let deadline = specification.deadlines.get(&(key.clone(), version.modified));
                assert_eq!(record.expires_at_ms, deadline.copied(), "replica {}", node.id);
                assert_eq!(record.expires_at_ms, None, "all deadlines have passed");
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
        *self.counts.entry("sessions").or_default() += specification.begun;
        *self.counts.entry("void records").or_default() += specification.void;
        std::mem::take(&mut self.observations).check(&specification);
        self.stop_before_what_is_unknown();
        self.counts
    }

    /// A level or a record that no replica knows: all stop at the same position, and change nothing.
    fn stop_before_what_is_unknown(&mut self) {
        let before = self.nodes[0].engine().replica_status();
        let mut record = match self.operator {
            0 => self.operators(0, Body::Session { replaces: None }),
            _ => self.operators(self.operator + 1, Body::Level(VERSION + 1)),
        }
        .to_vec();
        if self.operator == 0 {
            record[4] = VERSION + 1;
            let checksum = plinth_journal::crc32c(&record[4..]);
            record[..4].copy_from_slice(&checksum.to_le_bytes());
        }
        self.journal.push(record.into());
        for node in &mut self.nodes {
            let failure = node.stepper().apply().unwrap_err();
            assert!(matches!(failure, Failure::Journal { error: JournalError::Version { .. } }), "{failure}");
            assert_eq!(node.engine().replica_status(), before);
        }
    }
}
