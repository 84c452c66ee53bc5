//! Honest clients beside hostile ones: the same sessions three times.
//!
//! 1. `hostile-calm`: alone.
//! 2. `hostile-shared`: beside a thread that does nothing but compute at the priority that attackers have.
//! 3. `hostile`: while others attack.
//!
//! The attackers are a table ([`ATTACKS`]) and run on a thread of their own, so that no honest client waits
//! for one. They do share the machine's cores with server and clients, which remote attackers would not. So
//! their thread has a low priority, and the second row shows what sharing the cores costs without any attack.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::client::{Call, Endpoint, Identity, Protocol, JSON};
use super::drive::{measure, Target};
use super::report::Measurement;
use super::workloads::Prepare;
use super::{Error, Options};
use crate::output;

/// One kind of attack: how many attackers there are, and what each does again and again.
struct Attack {
    name: &'static str,
    attackers: usize,
    /// Done once before the measurement begins, and then over and over.
    round: for<'a> fn(&'a Endpoint, usize) -> Round<'a>,
    /// Whether the measurement waits until the first round of each attacker is under way.
    opens: bool,
}

type Round<'a> = Pin<Box<dyn Future<Output = Result<Holds, Error>> + Send + 'a>>;
/// What an attacker keeps open until the end: answers that are not read, requests that wait for theirs.
type Holds = (Vec<hyper::body::Incoming>, JoinSet<Result<hyper::body::Incoming, Error>>);

/// Streams of connections on which nothing is read.
const STREAMS: usize = 200;
/// Pause of an attacker between two rounds, or when it was shut out.
const PAUSE: Duration = Duration::from_millis(20);
/// How long an attacker waits for the answers that it will not read; flow control may not let all of them
/// begin.
const OPENING: Duration = Duration::from_secs(3);
/// How long half a request is held.
const HOLD: Duration = Duration::from_secs(30);

const ATTACKS: &[Attack] = &[
    Attack { name: "half of a TLS handshake", attackers: 150, round: half_handshake, opens: false },
    Attack { name: "half of a request's head", attackers: 150, round: half_header, opens: false },
    Attack { name: "one user asks for secrets, 50 at once", attackers: 8, round: flood, opens: false },
    Attack { name: "requests that are opened and reset", attackers: 4, round: rapid_reset, opens: false },
    Attack { name: "HTTP/2 settings without an end", attackers: 4, round: settings, opens: false },
    Attack { name: "heads of a megabyte", attackers: 2, round: large_head, opens: false },
    Attack { name: "bodies of 4 MiB", attackers: 4, round: large_body, opens: false },
    Attack {
        name: "watches, 200 of a connection, 10,000 in all",
        attackers: 50,
        round: watches,
        opens: true,
    },
    Attack { name: "lists that nobody reads, 200 of a connection", attackers: 2, round: lists, opens: true },
    Attack { name: "first states that nobody reads, likewise", attackers: 2, round: states, opens: true },
];

/// Measures the sessions of `prepare` twice; the first row is called `WORKLOAD-calm`.
pub(super) async fn compare(
    workload: &str,
    endpoint: Endpoint,
    options: &Options,
    clients: usize,
    prepare: Prepare,
    pids: &[u32],
) -> Result<Vec<Measurement>, Error> {
    let target = Target::new(endpoint.clone(), options, clients).await?;
    let sessions = prepare(&target, options, clients).await?;
    let calm = measure(&format!("{workload}-calm"), &target, sessions, options, pids).await?;
    let sessions = prepare(&target, options, clients).await?;
    let busy = Busy::start()?;
    let shared = measure(&format!("{workload}-shared"), &target, sessions, options, pids).await?;
    drop(busy);
    // The attackers end with this value.
    let hostile = hostile_user(&endpoint).await?;
    let attackers = Attackers::start(hostile, &options.attacks).await?;
    let target = Target::new(endpoint, options, clients).await?;
    let sessions = prepare(&target, options, clients).await?;
    let disturbed = measure(workload, &target, sessions, options, pids).await?;
    attackers.print();
    for other in [&calm, &shared] {
        if let (Some(other_ms), Some(disturbed)) = (&other.latency_ms, &disturbed.latency_ms) {
            output::line(format_args!(
                "{workload}: p99 is {:.1} times that of {}",
                disturbed.p99 / other_ms.p99,
                other.workload
            ));
        }
    }
    Ok(vec![calm, shared, disturbed])
}

/// The server as seen by a user of the attackers' own, who may do no more than what the attacks need.
async fn hostile_user(endpoint: &Endpoint) -> Result<Endpoint, Error> {
    const MAKE: [(&str, &str); 3] = [
        (
            "/api/v1/namespaces/default/serviceaccounts",
            r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"hostile"}}"#,
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"hostile"},
            "rules":[{"apiGroups":[""],"resources":["configmaps","nodes"],"verbs":["list","watch","create"]}]}"#,
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"hostile"},
            "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"hostile"},
            "subjects":[{"kind":"ServiceAccount","namespace":"default","name":"hostile"}]}"#,
        ),
    ];
    let mut connection = endpoint.connect(Protocol::Http2).await?;
    for (path, body) in MAKE {
        connection.must(&Call::new(Method::POST, path).body(JSON, body)).await?;
    }
    let token_request = Call::new(Method::POST, "/api/v1/namespaces/default/serviceaccounts/hostile/token");
    let request = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#;
    let answer = connection.must(&token_request.body(JSON, request)).await?;
    let answer: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
    let token = answer.as_ref().and_then(|answer| answer.pointer("/status/token")?.as_str());
    let token = token.ok_or_else(|| Error::Server("the server returned no token".into()))?;
    Ok(endpoint.with_identity(Identity::Token(token.to_owned())))
}

/// A thread that computes at the attackers' priority until this is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Result<Busy, Error> {
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let work = move || {
            lower_priority();
            while !ended.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        std::thread::Builder::new()
            .name("busy".into())
            .spawn(work)
            .map_err(Error::io("starting a thread"))?;
        Ok(Busy(end))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Linux has priorities by thread. Without the permission to set one the figures are upper bounds.
fn lower_priority() {
    let _ = rustix::process::setpriority_process(None, 10);
}

/// The thread on which the attackers run; they end when this is dropped.
struct Attackers {
    _end: oneshot::Sender<()>,
    attacks: Vec<&'static Attack>,
    rounds: Arc<[AtomicU64]>,
}

impl Attackers {
    /// Starts those whose names contain `which`; returns when those that hold something open do.
    async fn start(endpoint: Endpoint, which: &str) -> Result<Attackers, Error> {
        let attacks: Vec<_> = ATTACKS.iter().filter(|attack| attack.name.contains(which)).collect();
        let rounds: Arc<[AtomicU64]> = attacks.iter().map(|_| AtomicU64::new(0)).collect();
        let wanted = attacks.iter().filter(|attack| attack.opens).map(|attack| attack.attackers).sum();
        let ((_end, end), (opened, open)) = (oneshot::channel(), oneshot::channel());
        let (started, counts) = (attacks.clone(), rounds.clone());
        let work = move || {
            lower_priority();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(attack(endpoint, &started, counts, wanted, opened, end));
            }
        };
        std::thread::Builder::new()
            .name("attackers".into())
            .spawn(work)
            .map_err(Error::io("starting attackers"))?;
        open.await.map_err(|_| Error::Server("the attackers ended".into()))?;
        Ok(Attackers { _end, attacks, rounds })
    }

    fn print(&self) {
        for (attack, rounds) in self.attacks.iter().zip(self.rounds.iter()) {
            output::line(format_args!(
                "    {:>4} x {:<50} {:>8} rounds",
                attack.attackers,
                attack.name,
                rounds.load(Ordering::Relaxed)
            ));
        }
    }
}

async fn attack(
    endpoint: Endpoint,
    attacks: &[&'static Attack],
    rounds: Arc<[AtomicU64]>,
    wanted: usize,
    opened: oneshot::Sender<()>,
    end: oneshot::Receiver<()>,
) {
    let mut attackers = JoinSet::new();
    let (open, all_open) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Notify::new()));
    for (place, attack) in attacks.iter().copied().enumerate() {
        for number in 0..attack.attackers {
            let (endpoint, rounds) = (endpoint.clone(), rounds.clone());
            let (open, all_open) = (open.clone(), all_open.clone());
            attackers.spawn(async move {
                let mut held = Vec::new();
                loop {
                    let round = (attack.round)(&endpoint, number).await;
                    rounds.get(place).map(|count| count.fetch_add(1, Ordering::Relaxed));
                    if !attack.opens {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    if let Ok(bodies) = round {
                        held.push(bodies);
                        if open.fetch_add(1, Ordering::AcqRel) + 1 == wanted {
                            all_open.notify_one();
                        }
                        return std::future::pending::<()>().await;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
    }
    if wanted > 0 {
        all_open.notified().await;
    }
    if opened.send(()).is_ok() {
        // The other end is never used, only dropped.
        let _ = end.await;
    }
}

fn anonymous(endpoint: &Endpoint) -> Endpoint {
    endpoint.with_identity(Identity::Anonymous)
}

fn half_handshake(endpoint: &Endpoint, _: usize) -> Round<'_> {
    Box::pin(async move {
        let connecting = TcpStream::connect(endpoint.authority());
        let mut stream = connecting.await.map_err(Error::io("connecting"))?;
        let _ = stream.write_all(b"\x16\x03\x01\x02\x00").await;
        let _ = tokio::time::timeout(HOLD, stream.read_u8()).await;
        Ok(Holds::default())
    })
}

fn half_header(endpoint: &Endpoint, _: usize) -> Round<'_> {
    Box::pin(async move {
        let mut stream = anonymous(endpoint).stream(Protocol::Http1).await?;
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
        let _ = tokio::time::timeout(HOLD, stream.read_u8()).await;
        Ok(Holds::default())
    })
}

/// Asks for secrets on many streams until the connection ends.
fn flood(endpoint: &Endpoint, _: usize) -> Round<'_> {
    Box::pin(async move {
        let connection = anonymous(endpoint).connect(Protocol::Http2).await?;
        let mut streams = JoinSet::new();
        for _ in 0..50 {
            let Some(mut connection) = connection.share() else { break };
            streams.spawn(async move {
                let call = Call::get("/api/v1/secrets");
                while connection.call(&call).await.is_ok() {}
            });
        }
        while streams.join_next().await.is_some() {}
        Ok(Holds::default())
    })
}

/// Opens requests and drops them before they are answered, which resets their streams.
fn rapid_reset(endpoint: &Endpoint, _: usize) -> Round<'_> {
    Box::pin(async move {
        let connection = anonymous(endpoint).connect(Protocol::Http2).await?;
        for _ in 0..200 {
            let Some(mut connection) = connection.share() else { break };
            let call = Call::get("/livez");
            let _ = tokio::time::timeout(Duration::from_micros(50), connection.open(&call)).await;
        }
        Ok(Holds::default())
    })
}

/// Sends empty SETTINGS frames, each of which is to be acknowledged, and reads no acknowledgement.
fn settings(endpoint: &Endpoint, _: usize) -> Round<'_> {
    Box::pin(async move {
        let mut stream = anonymous(endpoint).stream(Protocol::Http2).await?;
        let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        // Length 0, type 4, no flags, stream 0.
        let frames = [0, 0, 0, 4, 0, 0, 0, 0, 0].repeat(1000);
        let send = async { while stream.write_all(&frames).await.is_ok() {} };
        // The server stops reading when its acknowledgements are not taken.
        let _ = tokio::time::timeout(Duration::from_secs(1), send).await;
        Ok(Holds::default())
    })
}

fn large_head(endpoint: &Endpoint, _: usize) -> Round<'_> {
    Box::pin(async move {
        let mut stream = anonymous(endpoint).stream(Protocol::Http1).await?;
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Large: ").await;
        let _ = stream.write_all(&vec![b'x'; 2 << 20]).await;
        let _ = tokio::time::timeout(HOLD, stream.read_u8()).await;
        Ok(Holds::default())
    })
}

fn large_body(endpoint: &Endpoint, _: usize) -> Round<'_> {
    Box::pin(async move {
        let mut connection = endpoint.connect(Protocol::Http2).await?;
        let path = "/api/v1/namespaces/default/configmaps";
        let call = Call::new(Method::POST, path).body(JSON, vec![b' '; 4 << 20]);
        connection.call(&call).await.map(|_| Holds::default())
    })
}

/// Opens requests on one connection whose answers are not read.
fn unread<'a>(endpoint: &'a Endpoint, path: &'static str) -> Round<'a> {
    Box::pin(async move {
        let connection = endpoint.connect_narrow().await?;
        let (mut bodies, mut opening) = Holds::default();
        for _ in 0..STREAMS {
            let Some(mut connection) = connection.share() else { break };
            opening.spawn(async move { Ok(connection.open(&Call::get(path)).await?.into_body()) });
        }
        let all = async {
            while let Some(Ok(opened)) = opening.join_next().await {
                bodies.extend(opened.ok());
            }
        };
        let _ = tokio::time::timeout(OPENING, all).await;
        Ok((bodies, opening))
    })
}

/// Watches of a collection to which nothing happens.
fn watches(endpoint: &Endpoint, _: usize) -> Round<'_> {
    unread(endpoint, "/api/v1/nodes?watch=1")
}

fn lists(endpoint: &Endpoint, _: usize) -> Round<'_> {
    unread(endpoint, "/api/v1/configmaps")
}

fn states(endpoint: &Endpoint, _: usize) -> Round<'_> {
    unread(endpoint, "/api/v1/configmaps?watch=1")
}
