//! SIGKILLs of the whole server under a mixed load, with watches that are resumed across each, and a checker
//! of everything that clients saw (`plinth_campaigns::history`).
//!
//! `PLINTH_KILLS` sets how often servers are killed, all together (24 when it is not set),
//! `PLINTH_KILL_SERVERS` how many run side by side, `PLINTH_KILL_SEED` the phases.
//! `scripts/campaign kills 10000` runs the long form.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_benches::api::objects::Rng;
use plinth_campaigns::history::events::History;
use plinth_campaigns::history::linear::Answer;
use plinth_campaigns::history::observations::{Piece, Scope};
use plinth_campaigns::server::{launch, setting, TestServer};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::clients::load::{Client, ClientLog, Rules, SharedState, NAMESPACES};
use crate::clients::watcher::{Begin, Watcher};

const CLIENTS: u64 = 6;
const RULES: Rules = Rules { names: 6, patience: None, unavailable_is_not_written: false };
/// How long clients work before the server is killed, in microseconds.
const LOAD: (u64, u64) = (20_000, 200_000);
/// How long a server lives that is killed while it starts, in microseconds.
const STARTING: u64 = 150_000;
/// One of so many kills hits the server while it starts.
const START_EVERY: u64 = 8;
/// Of so many starts one is followed by a check.
const CHECK_EVERY: u64 = 4;
/// How long watches may take to deliver what was written.
const DELIVERED_WITHIN: Duration = Duration::from_secs(60);

/// History is compacted while clients read it.
const SHORT_HISTORY: [&str; 2] = ["--history-retention=300ms", "--compaction-interval=40ms"];
/// History is kept: no watch may be answered with 410.
const LONG_HISTORY: [&str; 2] = ["--history-retention=1h", "--compaction-interval=40ms"];

/// Figures of all servers.
#[derive(Default)]
struct Figures {
    kills: AtomicU64,
    starting: AtomicU64,
    checks: AtomicU64,
    operations: AtomicU64,
    unknown: AtomicU64,
    lists: AtomicU64,
    seen: AtomicU64,
    changes: AtomicU64,
    expired: AtomicU64,
    refused: AtomicU64,
    incomplete: AtomicU64,
}

impl Figures {
    fn line(&self, began: Instant) -> String {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        format!(
            "kills: {} SIGKILLs ({} while starting) in {} s; {} requests with their answers, {} of unknown outcome, {} lists, \
             {} events seen of {} changes, {} times expired history, {} answers above 499, {} checks, {} of them with changes that \
             expired unseen",
            of(&self.kills),
            of(&self.starting),
            began.elapsed().as_secs(),
            of(&self.operations),
            of(&self.unknown),
            of(&self.lists),
            of(&self.seen),
            of(&self.changes),
            of(&self.expired),
            of(&self.refused),
            of(&self.checks),
            of(&self.incomplete),
        )
    }
}

/// One server, its clients, and everything that they saw.
struct Campaign {
    test: TestServer,
    rng: Rng,
    shared: Arc<SharedState>,
    watchers: Vec<Arc<Watcher>>,
    watching: Vec<JoinHandle<()>>,
    working: Vec<JoinHandle<ClientLog>>,
    piece: Piece,
    history: History,
    keeps_history: bool,
}

impl Campaign {
    async fn connect(&self, protocol: Protocol) -> Connection {
        self.test
            .server
            .endpoint()
            .expect("endpoint")
            .connect(protocol)
            .await
            .expect("connection to a ready server")
    }

    /// Begins or resumes the watches.
    async fn watch(&mut self) {
        let several = self.connect(Protocol::Http2).await;
        let endpoint = self.test.server.endpoint().expect("endpoint");
        for (number, watcher) in self.watchers.iter().enumerate() {
            let (protocol, connection) = match number % 2 {
                0 => (Protocol::Http2, several.share().expect("HTTP/2")),
                _ => (Protocol::Http1, self.connect(Protocol::Http1).await),
            };
            let (watcher, shared, endpoint) = (watcher.clone(), self.shared.clone(), endpoint.clone());
            let watching = async move { watcher.run(&shared, endpoint, protocol, connection).await };
            self.watching.push(tokio::spawn(watching));
        }
    }

    /// Waits until all watches have begun, before anything is written.
    async fn watched(&mut self) {
        let positions = || self.watchers.iter().map(|watcher| watcher.position()).collect::<Option<Vec<_>>>();
        loop {
            if let Some(first) = positions().and_then(|positions| positions.into_iter().min()) {
                self.history = History::after(first);
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn work(&mut self) {
        self.shared.stop.store(false, Ordering::Release);
        let several = self.connect(Protocol::Http2).await;
        for number in 0..CLIENTS {
            let connection = match number % 3 {
                0 => self.connect(Protocol::Http1).await,
                _ => several.share().expect("HTTP/2"),
            };
            let (shared, rng) = (self.shared.clone(), Rng::new(self.rng.next_u64()));
            self.working
                .push(tokio::spawn(async move { Client::new(&shared, connection, rng).work().await }));
        }
    }

    async fn pause(&mut self, from: u64, to: u64) {
        tokio::time::sleep(Duration::from_micros(from + self.rng.below(to - from))).await;
    }

    /// Waits for the clients to end; requests without an answer count as over since nothing serves them any
    /// more.
    async fn collect(&mut self, killed: bool) {
        self.shared.stop.store(true, Ordering::Release);
        let all_done = join_all(self.working.drain(..)).await;
        // After the last call: the process is gone since then at the latest.
        let now = self.shared.now();
        for done in all_done {
            let done = done.expect("a client");
            assert!(done.wrong.is_empty(), "{:#?}", done.wrong);
            assert!(
                killed || done.broken.is_none(),
                "a connection was lost without a kill: {:?}",
                done.broken
            );
            self.piece.lists.extend(done.lists);
            for (object, mut operation) in done.operations {
                if operation.answer == Answer::Unknown && killed {
                    // What the server answered with an error before it was killed may be done until then,
                    // too.
                    operation.returned = now;
                }
                self.piece.operations.push((object, operation));
            }
        }
    }

    async fn kill(&mut self) {
        self.test.server.kill().expect("killed server");
        self.collect(true).await;
        for watching in self.watching.drain(..) {
            watching.await.expect("a watcher");
        }
        for watcher in &self.watchers {
            let seen = watcher.take();
            assert!(seen.wrong.is_empty(), "{:?}: {:#?}", watcher.scope, seen.wrong);
            self.piece.watches.extend(seen.watches);
            self.piece.lists.extend(seen.lists);
        }
        if self.rng.below(12) == 0 {
            let any = self.rng.below(self.watchers.len() as u64) as usize;
            self.watchers[any].forget();
        }
    }

    /// Stops the clients, writes a last object to each namespace, waits until the watches have it, and checks
    /// everything.
    async fn check(&mut self, figures: &Figures) {
        self.collect(false).await;
        let connection = self.connect(Protocol::Http1).await;
        let shared = self.shared.clone();
        let mut client = Client::new(&shared, connection, Rng::new(0));
        let mut versions = Vec::new();
        for namespace in NAMESPACES {
            versions.push(client.barrier(namespace).await.expect("a write to a ready server"));
        }
        self.piece.operations.extend(std::mem::take(&mut client.done.operations));
        let upto = versions[1];
        let there = client.everything().await.expect("a list of a ready server");
        let deadline = Instant::now() + DELIVERED_WITHIN;
        loop {
            let behind = self.watchers.iter().find(|watcher| {
                let wanted = match &watcher.scope {
                    Scope::All => upto,
                    Scope::Namespace(namespace) if namespace == NAMESPACES[0] => versions[0],
                    Scope::Namespace(_) => upto,
                    Scope::Object(_) => return false,
                };
                watcher.position().is_none_or(|position| position < wanted)
            });
            let Some(behind) = behind else { break };
            assert!(
                Instant::now() < deadline,
                "the watch of {:?} is at {:?} and does not go on to {upto}",
                behind.scope,
                behind.position()
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
        let before = self.history.changes();
        // Lists before the last check were checked against nothing: they are of revisions that nobody keeps
        // here.
        let checked = self.history.checked();
        piece.lists.retain(|list| list.most_recent || list.version >= checked);
        let complete = self.history.check(&piece, upto, &there);
        let complete = complete.unwrap_or_else(|violation| panic!("{violation}"));
        assert!(complete || !self.keeps_history, "history that is kept was not seen up to {upto}");
        figures.incomplete.fetch_add(u64::from(!complete), Ordering::Relaxed);
        self.shared.checked.store(upto, Ordering::Relaxed);
        let add = |to: &AtomicU64, n: usize| {
            to.fetch_add(n as u64, Ordering::Relaxed);
        };
        add(&figures.operations, piece.operations.len());
        add(&figures.unknown, piece.operations.iter().filter(|(_, o)| o.answer == Answer::Unknown).count());
        add(&figures.lists, piece.lists.len());
        add(&figures.changes, self.history.changes() - before);
        add(&figures.seen, piece.watches.iter().map(|watch| watch.events()).sum());
        add(&figures.checks, 1);
        let expired = self.shared.expired.swap(0, Ordering::Relaxed);
        assert!(expired == 0 || !self.keeps_history, "{expired} times history was gone that has to be kept");
        figures.expired.fetch_add(expired, Ordering::Relaxed);
        figures.refused.fetch_add(self.shared.refused.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Kills one server again and again until `left` is used up.
async fn campaign(number: u64, seed: u64, left: &AtomicU64, figures: &Figures, began: Instant, long: bool) {
    let keeps_history = number.is_multiple_of(2);
    let arguments = if keeps_history { LONG_HISTORY } else { SHORT_HISTORY };
    let server = TestServer::start(&arguments).await;
    let watchers = [
        Watcher::new(Scope::All, Begin::List, true),
        Watcher::new(Scope::All, Begin::InitialEvents, false),
        Watcher::new(Scope::Namespace(NAMESPACES[0].into()), Begin::InitialEvents, true),
        Watcher::new(Scope::Namespace(NAMESPACES[1].into()), Begin::List, false),
        Watcher::new(Scope::Object(format!("{}/o1", NAMESPACES[0])), Begin::List, true),
    ];
    let mut campaign = Campaign {
        test: server,
        rng: Rng::new(seed.wrapping_mul(1000).wrapping_add(number)),
        shared: Arc::new(SharedState::new(RULES)),
        watchers: watchers.map(Arc::new).into(),
        watching: Vec::new(),
        working: Vec::new(),
        piece: Piece::default(),
        history: History::default(),
        keeps_history,
    };
    let mut connection = campaign.connect(Protocol::Http1).await;
    for namespace in NAMESPACES {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let call = Call::new(http::Method::POST, "/api/v1/namespaces").body(JSON, object.to_string());
        connection.must(&call).await.expect("a namespace");
    }
    drop(connection);
    campaign.watch().await;
    campaign.watched().await;
    campaign.work().await;
    loop {
        campaign.pause(LOAD.0, LOAD.1).await;
        let over = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err();
        if over || campaign.rng.below(CHECK_EVERY) == 0 {
            campaign.check(figures).await;
            if over {
                break;
            }
            campaign.work().await;
            campaign.pause(LOAD.0 / 4, LOAD.1 / 4).await;
        }
        campaign.kill().await;
        let kills = figures.kills.fetch_add(1, Ordering::Relaxed) + 1;
        if long && kills.is_multiple_of(100) {
            println!("{}", figures.line(began));
        }
        // Killed while it starts, before it is ready or a moment later.
        while campaign.rng.below(START_EVERY) == 0
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
        {
            let after = Duration::from_micros(campaign.rng.below(STARTING));
            // Started in any case; what is broken off is the wait for it to be ready.
            if let Ok(started) = tokio::time::timeout(after, campaign.test.server.restart()).await {
                started.expect("the server starts after a kill");
            }
            campaign.test.server.kill().expect("killed server");
            figures.starting.fetch_add(1, Ordering::Relaxed);
            figures.kills.fetch_add(1, Ordering::Relaxed);
        }
        campaign.test.server.restart().await.expect("the server starts after a kill");
        campaign.watch().await;
        campaign.work().await;
    }
    for watching in campaign.watching.drain(..) {
        watching.abort();
    }
    campaign.test.server.terminate().await.expect("clean end");
    let panics = TestServer::panics(&campaign.test.server.log());
    assert!(panics.is_empty(), "{panics:#?}");
    let data = campaign.test.server.data();
    let mut verify: Command = launch().command(["verify".as_ref(), "--data-dir".as_ref(), data.as_os_str()]);
    let output = verify.output().expect("plinth verify");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_nothing_and_no_client_sees_what_cannot_be() {
    let kills = setting("PLINTH_KILLS", 24);
    let servers = setting("PLINTH_KILL_SERVERS", 2);
    let seed = setting("PLINTH_KILL_SEED", 1);
    let (left, figures, began) = (AtomicU64::new(kills), Figures::default(), Instant::now());
    let long = kills >= 200;
    join_all((0..servers).map(|number| campaign(number, seed, &left, &figures, began, long))).await;
    println!("{} (seed {seed}, {servers} servers)", figures.line(began));
    assert_eq!(figures.kills.load(Ordering::Relaxed), kills);
    // A load that is refused, or watches that see nothing, would check nothing.
    assert!(figures.operations.load(Ordering::Relaxed) > kills * 4, "{}", figures.line(began));
    assert!(figures.seen.load(Ordering::Relaxed) > figures.changes.load(Ordering::Relaxed));
}
