//! Failures of replicas, of the members of their journal and of the links between them, under a mixed load at
//! all replicas, with watches that go from one replica to another, and a checker of everything that clients
//! saw (`plinth_campaigns::history`).
//!
//! Beyond what the checker knows: a write that was answered 503 must never appear, a replica ends by itself
//! only where its disk is full, and in the end all say the same of one revision.
//!
//! `PLINTH_FAILURES` sets how many failures happen (16 when it is not set), `PLINTH_FAILURE_SEED` which,
//! `PLINTH_FAILURE_CLIENTS` how many clients work. `PLINTH_JOURNAL` is what the members are, etcd or kafka,
//! and `PLINTH_ETCD` or `PLINTH_KAFKA` names their program; without it nothing is tested. `scripts/campaign
//! replication 1000` runs the long form.

mod cluster;
mod failures;
mod network;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use plinth_benches::api::client::{Call, Connection, Endpoint, Protocol, JSON};
use plinth_benches::api::objects::Rng;
use plinth_campaigns::history::events::History;
use plinth_campaigns::history::linear::{Answer, Operation};
use plinth_campaigns::history::observations::{Piece, Scope};
use plinth_campaigns::server::setting;
use serde_json::{json, Value};
use tokio::task::JoinHandle;

use crate::clients::load::{collection, Client, ClientLog, Rules, SharedState, NAMESPACES};
use crate::clients::watcher::{Begin, Watcher};
use cluster::{Cluster, SIDE};
use failures::Failure;

const RULES: Rules =
    Rules { names: 16, patience: Some(Duration::from_secs(4)), unavailable_is_not_written: true };
/// Failures happen one or two at a time, for so many milliseconds at most, and as long apart.
const LASTING: u64 = 2_500;
/// Of so many rounds of failures one is followed by a check.
const CHECK_EVERY: u64 = 3;
/// How long replicas and watches may take, once all is well again, to have everything.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// A client that cannot connect waits as long.
const AWAY: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Figures {
    /// How often there was each kind, and the longest time without a write, with the failures of that time.
    failures: BTreeMap<&'static str, (u64, Duration, String)>,
    checks: u64,
    operations: usize,
    settled: usize,
    not_written: u64,
    lists: usize,
    changes: usize,
    seen: usize,
    full: u64,
}

impl Figures {
    fn print(&self, began: Instant) {
        let failures: u64 = self.failures.values().map(|(count, ..)| count).sum();
        println!(
            "replication: {failures} failures in {} s; {} requests with their answers, {} of unknown outcome before events showed it, {} \
             refused, {} lists, {} events seen of {} changes, {} checks; {} replicas ended on a full disk",
            began.elapsed().as_secs(),
            self.operations,
            self.settled,
            self.not_written,
            self.lists,
            self.seen,
            self.changes,
            self.checks,
            self.full
        );
        for (kind, (count, pause, which)) in &self.failures {
            println!(
                "  {count:4} times {kind}; longest time without a write {} ms, at {which}",
                pause.as_millis()
            );
        }
    }
}

/// The cluster, its clients, and everything that they saw.
struct Campaign {
    cluster: Cluster,
    rng: Rng,
    shared: Arc<SharedState>,
    watchers: Vec<Arc<Watcher>>,
    watching: Vec<JoinHandle<()>>,
    working: Vec<JoinHandle<ClientLog>>,
    piece: Piece,
    history: History,
    /// Writes of unknown outcome that no event showed.
    never: Vec<(String, Operation)>,
    /// A replica's disk was full at the last failure.
    disk_was_full: bool,
    figures: Figures,
}

/// Works at one replica after the other until it is stopped.
async fn roam(shared: Arc<SharedState>, endpoints: Vec<Endpoint>, mut rng: Rng) -> ClientLog {
    let mut all = ClientLog::default();
    while !shared.stop.load(Ordering::Acquire) {
        let endpoint = &endpoints[rng.below(endpoints.len() as u64) as usize];
        let protocol = if rng.below(2) == 0 { Protocol::Http1 } else { Protocol::Http2 };
        let connecting = tokio::time::timeout(Duration::from_secs(1), endpoint.connect(protocol));
        let Ok(Ok(connection)) = connecting.await else {
            tokio::time::sleep(AWAY).await;
            continue;
        };
        let client = Client::new(&shared, connection, Rng::new(rng.next_u64()));
        let done = client.work().await;
        all.operations.extend(done.operations);
        all.lists.extend(done.lists);
        all.wrong.extend(done.wrong);
    }
    all
}

impl Campaign {
    fn work(&mut self, clients: u64) {
        self.shared.stop.store(false, Ordering::Release);
        let endpoints = self.cluster.endpoints();
        for _ in 0..clients {
            let (shared, rng) = (self.shared.clone(), Rng::new(self.rng.next_u64()));
            self.working.push(tokio::spawn(roam(shared, endpoints.clone(), rng)));
        }
    }

    fn watch(&mut self) {
        let endpoints = self.cluster.endpoints();
        for watcher in &self.watchers {
            let (watcher, shared, endpoints) = (watcher.clone(), self.shared.clone(), endpoints.clone());
            let rng = Rng::new(self.rng.next_u64());
            self.watching.push(tokio::spawn(async move { watcher.roam(&shared, &endpoints, rng).await }));
        }
    }

    /// Waits until all watches have begun, before anything is written.
    async fn watched(&mut self) {
        loop {
            let positions: Option<Vec<u64>> =
                self.watchers.iter().map(|watcher| watcher.position()).collect();
            // Between the first and the last of them nothing of the load was written.
            if let Some(first) = positions.and_then(|positions| positions.into_iter().max()) {
                self.history = History::after(first);
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// One or two failures at a time.
    async fn failures(&mut self, most: u64) -> u64 {
        let count = if most > 1 && self.rng.below(3) == 0 { 2 } else { 1 };
        let network = self.cluster.network.is_some();
        let failures: Vec<Failure> = (0..count).map(|_| Failure::any(&mut self.rng, network)).collect();
        self.shared.longest_pause();
        for failure in &failures {
            let lasting = Duration::from_millis(100 + self.rng.below(LASTING));
            failure.happen(&mut self.cluster, lasting).await;
        }
        failures.iter().for_each(|failure| failure.end(&self.cluster));
        let ended = self.cluster.revive().await;
        let full = failures.iter().any(|failure| matches!(failure, Failure::FullDisk(node) if *node < SIDE));
        // One whose disk was full answers for two seconds before it ends.
        let was_full = std::mem::replace(&mut self.disk_was_full, full);
        assert!(full || was_full || ended.is_empty(), "replicas ended at {failures:?}: {ended:#?}");
        self.figures.full += ended.len() as u64;
        tokio::time::sleep(Duration::from_millis(self.rng.below(LASTING))).await;
        let pause = self.shared.longest_pause();
        let kind = if count == 1 { failures[0].kind() } else { "two at a time" };
        let (times, longest, which) = self.figures.failures.entry(kind).or_default();
        *times += count;
        if pause > *longest {
            (*longest, *which) = (pause, format!("{failures:?}"));
        }
        count
    }

    /// Waits for the clients to end.
    async fn collect(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for done in join_all(self.working.drain(..)).await {
            let done = done.expect("a client");
            assert!(done.wrong.is_empty(), "{:#?}", done.wrong);
            self.piece.lists.extend(done.lists);
            self.piece.operations.extend(done.operations);
        }
    }

    async fn client(&self, replica: usize) -> Connection {
        let deadline = Instant::now() + SETTLED_WITHIN;
        loop {
            let endpoint = self.cluster.replica(replica).endpoint().expect("endpoint");
            match endpoint.connect(Protocol::Http1).await {
                Ok(connection) => return connection,
                Err(error) => assert!(Instant::now() < deadline, "replica {replica}: {error}"),
            }
            tokio::time::sleep(AWAY).await;
        }
    }

    /// Writes the last object of each namespace through each replica, so that what it had under way is over;
    /// the versions of the last ones.
    async fn barrier(&mut self) -> [u64; 2] {
        let deadline = Instant::now() + SETTLED_WITHIN;
        let mut versions = [0; 2];
        for (namespace, version) in NAMESPACES.iter().zip(&mut versions) {
            for replica in 0..SIDE {
                let shared = self.shared.clone();
                *version = loop {
                    let mut client = Client::new(&shared, self.client(replica).await, Rng::new(0));
                    let written = client.barrier(namespace).await;
                    self.piece.operations.extend(std::mem::take(&mut client.done.operations));
                    if let Some(version) = written {
                        break version;
                    }
                    assert!(Instant::now() < deadline, "replica {replica} writes nothing");
                    tokio::time::sleep(AWAY).await;
                };
            }
        }
        versions
    }

    /// Waits until the watches have everything, and checks it.
    async fn check(&mut self) {
        self.collect().await;
        self.cluster.ready().await;
        let versions = self.barrier().await;
        let upto = versions[1];
        let shared = self.shared.clone();
        let deadline = Instant::now() + SETTLED_WITHIN;
        let there = loop {
            let mut client = Client::new(&shared, self.client(0).await, Rng::new(0));
            if let Some(there) = client.everything().await {
                break there;
            }
            assert!(Instant::now() < deadline, "replica 0 lists nothing");
        };
        loop {
            let behind = self.watchers.iter().find(|watcher| {
                let wanted = match &watcher.scope {
                    Scope::Object(_) => return false,
                    Scope::Namespace(namespace) if namespace == NAMESPACES[0] => versions[0],
                    _ => upto,
                };
                watcher.position().is_none_or(|position| position < wanted)
            });
            let Some(behind) = behind else { break };
            let (scope, position) = (&behind.scope, behind.position());
            let is_late = Instant::now() > deadline;
            assert!(
                !is_late,
                "the watch of {scope:?} stays at {position:?} of {upto}: {:?}",
                behind.take().wrong
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for watcher in &self.watchers {
            let seen = watcher.take();
            assert!(seen.wrong.is_empty(), "{:?}: {:#?}", watcher.scope, seen.wrong);
            self.piece.watches.extend(seen.watches);
            self.piece.lists.extend(seen.lists);
        }
        let mut piece = std::mem::take(&mut self.piece);
        let unknown = piece.operations.iter().filter(|(_, o)| o.answer == Answer::Unknown).count();
        self.never.extend(piece.settle(self.shared.now()));
        let checked = self.history.checked();
        piece.lists.retain(|list| list.most_recent || list.version >= checked);
        let before = self.history.changes();
        let complete = self.history.check(&piece, upto, &there);
        let complete = complete.unwrap_or_else(|violation| {
            panic!("{violation}\nof unknown outcome, and taken for never made: {:#?}", self.never)
        });
        assert!(complete, "history that is kept was not seen up to {upto}");
        self.shared.checked.store(upto, Ordering::Relaxed);
        let figures = &mut self.figures;
        figures.checks += 1;
        figures.operations += piece.operations.len();
        figures.settled += unknown;
        figures.lists += piece.lists.len();
        figures.changes += self.history.changes() - before;
        figures.seen += piece.watches.iter().map(|watch| watch.events()).sum::<usize>();
        figures.not_written += self.shared.refused.swap(0, Ordering::Relaxed);
        assert_eq!(self.shared.expired.swap(0, Ordering::Relaxed), 0, "history was gone that has to be kept");
    }

    /// All replicas say the same of one revision, to the byte, and have compared hashes beyond it: each stops
    /// at a record that carries another hash than its own.
    async fn agree(&self) {
        let version = self.history.checked();
        let path =
            format!("{}?resourceVersion={version}&resourceVersionMatch=Exact", collection(&Scope::All));
        let mut said = Vec::new();
        for replica in 0..SIDE {
            let reply = self.client(replica).await.must(&Call::get(&path)).await.expect("a list");
            said.push(reply.text());
        }
        assert!(said.iter().all(|list| *list == said[0]), "replicas differ at {version}: {said:#?}");
        let deadline = Instant::now() + SETTLED_WITHIN;
        loop {
            let reply = self.client(0).await.call(&Call::get("/plinth/replicas")).await.expect("an answer");
            let listed: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let rows = listed.as_array().cloned().unwrap_or_default();
            for (one, other) in rows.iter().flat_map(|one| rows.iter().map(move |other| (one, other))) {
                assert!(one["position"] != other["position"] || one["hash"] == other["hash"], "{listed}");
            }
            let is_beyond = |row: &Value| row["revision"].as_u64().is_some_and(|revision| revision > version);
            if rows.len() == SIDE && rows.iter().all(is_beyond) {
                return;
            }
            assert!(Instant::now() < deadline, "{listed}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_agree_with_what_every_client_saw_whatever_happens() {
    let failures = setting("PLINTH_FAILURES", 16);
    let seed = setting("PLINTH_FAILURE_SEED", 1);
    let clients = setting("PLINTH_FAILURE_CLIENTS", 16);
    let Some(cluster) = Cluster::start(clients).await else { return };
    let watchers = [
        Watcher::new(Scope::All, Begin::List, true),
        Watcher::new(Scope::All, Begin::InitialEvents, false),
        Watcher::new(Scope::Namespace(NAMESPACES[0].into()), Begin::InitialEvents, true),
        Watcher::new(Scope::Namespace(NAMESPACES[1].into()), Begin::List, false),
        Watcher::new(Scope::Object(format!("{}/o1", NAMESPACES[0])), Begin::List, true),
    ];
    let mut campaign = Campaign {
        cluster,
        rng: Rng::new(seed),
        shared: Arc::new(SharedState::new(RULES)),
        watchers: watchers.map(Arc::new).into(),
        watching: Vec::new(),
        working: Vec::new(),
        piece: Piece::default(),
        history: History::default(),
        never: Vec::new(),
        disk_was_full: false,
        figures: Figures::default(),
    };
    let mut connection = campaign.client(0).await;
    for namespace in NAMESPACES {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let call = Call::new(http::Method::POST, "/api/v1/namespaces").body(JSON, object.to_string());
        connection.must(&call).await.expect("a namespace");
    }
    drop(connection);
    campaign.watch();
    campaign.watched().await;
    let began = Instant::now();
    let mut left = failures;
    campaign.work(clients);
    while left > 0 {
        left -= campaign.failures(left).await;
        if left == 0 || campaign.rng.below(CHECK_EVERY) == 0 {
            campaign.check().await;
            if failures >= 100 {
                campaign.figures.print(began);
            }
            if left > 0 {
                campaign.work(clients);
            }
        }
    }
    campaign.agree().await;
    campaign.figures.print(began);
    for watching in campaign.watching.drain(..) {
        watching.abort();
    }
    assert!(
        campaign.figures.operations as u64 > failures * 10
            && campaign.figures.seen > campaign.figures.changes
    );
    let panics = campaign.cluster.stop().await;
    assert!(panics.is_empty(), "{panics:#?}");
}
