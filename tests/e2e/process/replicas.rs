//! Replicas of the real binary over three real members of etcd or brokers of Kafka, while processes of both
//! are killed and stopped. `scripts/journal` starts the members; the environment variables `PLINTH_ETCD` and
//! `PLINTH_KAFKA` name their programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use plinth_benches::api::client::{Call, Connection, Endpoint, Protocol, Reply, JSON};
use plinth_benches::api::server::Server;
use plinth_tests::server::{connect_to, launch, start_ready};
use serde_json::Value;
use tempfile::TempDir;

const COUNTER: &str = "/api/v1/namespaces/default/configmaps/counter";

/// What holds a journal, and the time that it may take to replace a member that has died.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    variable: &'static str,
    replaces_within: Duration,
}

const ETCD: Kind = Kind { name: "etcd", variable: "PLINTH_ETCD", replaces_within: Duration::from_secs(2) };
const KAFKA: Kind = Kind { name: "kafka", variable: "PLINTH_KAFKA", replaces_within: Duration::from_secs(4) };

/// Three members of a journal, stopped with it.
struct Members {
    kind: Kind,
    dir: TempDir,
    url: String,
}

impl Members {
    /// None, said aloud, where no program of this kind is named.
    fn start(kind: Kind) -> Option<Members> {
        let Kind { name, variable, .. } = kind;
        if std::env::var_os(variable).is_none() {
            eprintln!("skipped: {variable} names no program of {name}");
            return None;
        }
        let dir = TempDir::new().expect("directory");
        let output = journal(kind, "start", dir.path());
        let url = String::from_utf8(output.stdout).expect("text").trim().to_owned();
        assert!(output.status.success() && url.starts_with(&format!("{name}://")), "{url}");
        Some(Members { kind, dir, url })
    }

    fn process(&self, member: usize) -> u32 {
        let pid = std::fs::read_to_string(self.dir.path().join(format!("m{member}/pid"))).expect("pid");
        pid.trim().parse().expect("a process id")
    }

    /// Starts the members that do not run.
    fn restart(&self) {
        assert!(journal(self.kind, "start", self.dir.path()).status.success());
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for member in 0..3 {
            // One that is stopped does not end by SIGTERM.
            signal(self.process(member), "-KILL");
        }
    }
}

fn journal(kind: Kind, command: &str, dir: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/journal");
    Command::new(script).args([kind.name, command]).arg(dir).output().expect("scripts/journal runs")
}

fn signal(process: u32, signal: &str) {
    // It may have ended.
    let _ = Command::new("kill").args([signal, &process.to_string()]).status();
}

fn succeeds(mut command: Command) -> String {
    let output = command.output().expect("plinth runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Replicas, each below a directory of its own.
async fn replicas(roots: &[TempDir], members: &Members) -> Vec<Server> {
    let arguments = ["--journal", members.url.as_str()];
    let mut servers: Vec<Server> = Vec::new();
    for root in roots {
        if let Some(first) = servers.first() {
            let mut join = launch().command(["join", "--kubeconfig"]);
            join.arg(first.kubeconfig()).arg("--data-dir").arg(root.path().join("data"));
            succeeds(join);
        }
        servers.push(start_ready(&launch(), root.path(), &arguments).await);
    }
    servers
}

/// A client that goes to another replica when one does not answer.
struct Client {
    endpoints: Vec<Endpoint>,
    at: usize,
    connection: Option<Connection>,
}

impl Client {
    async fn call(&mut self, call: &Call) -> Option<Reply> {
        if self.connection.is_none() {
            let connecting = self.endpoints[self.at].connect(Protocol::Http1);
            self.connection = tokio::time::timeout(Duration::from_secs(1), connecting).await.ok()?.ok();
        }
        let reply = match &mut self.connection {
            Some(connection) => tokio::time::timeout(Duration::from_secs(3), connection.call(call)).await,
            None => return None,
        };
        reply.ok()?.ok()
    }

    fn turn_away(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.endpoints.len();
    }

    /// Adds one to the counter: returns whether it was added, none where that is unknown.
    async fn increment(&mut self) -> Option<bool> {
        let get = Call::get(format!("{COUNTER}?timeout=2s"));
        let Some(found) = self.call(&get).await.filter(|reply| reply.status == 200) else {
            self.turn_away();
            return Some(false);
        };
        let mut map: Value = serde_json::from_str(&found.text()).expect("an object");
        let count: u64 = map["data"]["n"].as_str().and_then(|n| n.parse().ok()).expect("a number");
        map["data"]["n"] = (count + 1).to_string().into();
        let put = Call::new(Method::PUT, format!("{COUNTER}?timeout=2s")).body(JSON, map.to_string());
        match self.call(&put).await {
            Some(reply) if reply.status == 200 => Some(true),
            Some(reply) if reply.status == 409 => Some(false),
            // Said to be not written.
            Some(reply) if reply.status == 503 => Some(false),
            _ => {
                self.turn_away();
                None
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_on_etcd_lose_nothing_while_processes_die() {
    lose_nothing_while_processes_die(ETCD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_on_kafka_lose_nothing_while_processes_die() {
    lose_nothing_while_processes_die(KAFKA).await;
}

async fn lose_nothing_while_processes_die(kind: Kind) {
    let Some(members) = Members::start(kind) else { return };
    let roots: Vec<TempDir> = (0..3).map(|_| TempDir::new().expect("directory")).collect();
    let mut servers = replicas(&roots, &members).await;
    let counter = r#"{"metadata":{"name":"counter"},"data":{"n":"0"}}"#;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut first = connect_to(&servers[0], Protocol::Http1).await;
    first.must(&Call::new(Method::POST, path).body(JSON, counter)).await.expect("created");

    let is_done = Arc::new(AtomicBool::new(false));
    let endpoints: Vec<Endpoint> =
        servers.iter().map(|server| server.endpoint().expect("endpoint")).collect();
    let clients: Vec<_> = (0..6)
        .map(|at| {
            let mut client = Client { endpoints: endpoints.clone(), at: at % 3, connection: None };
            let is_done = is_done.clone();
            tokio::spawn(async move {
                let (mut added, mut unknown) = (0u64, 0u64);
                while !is_done.load(Ordering::Relaxed) {
                    match client.increment().await {
                        Some(true) => added += 1,
                        Some(false) => {}
                        None => unknown += 1,
                    }
                }
                (added, unknown)
            })
        })
        .collect();
    let pause = || tokio::time::sleep(kind.replaces_within);
    for n in 0..3 {
        pause().await;
        servers[n].kill().expect("killed");
        pause().await;
        servers[n].restart().await.expect("restarted");
        signal(members.process(n), "-KILL");
        pause().await;
        members.restart();
        signal(servers[(n + 1) % 3].pid(), "-STOP");
        pause().await;
        signal(servers[(n + 1) % 3].pid(), "-CONT");
        signal(members.process((n + 1) % 3), "-STOP");
        pause().await;
        signal(members.process((n + 1) % 3), "-CONT");
    }
    is_done.store(true, Ordering::Relaxed);
    let (mut added, mut unknown) = (0, 0);
    for client in clients {
        let (more, perhaps) = client.await.expect("a client");
        added += more;
        unknown += perhaps;
    }
    assert!(added > 0);
    for server in &servers {
        let deadline = Instant::now() + Duration::from_secs(60);
        let count: u64 = loop {
            let mut connection = connect_to(server, Protocol::Http1).await;
            let reply =
                connection.call(&Call::get(format!("{COUNTER}?timeout=5s"))).await.expect("an answer");
            if reply.status == 200 {
                let map: Value = serde_json::from_str(&reply.text()).expect("an object");
                break map["data"]["n"].as_str().and_then(|n| n.parse().ok()).expect("a number");
            }
            assert!(Instant::now() < deadline, "{}", reply.text());
        };
        assert!(
            (added..=added + unknown).contains(&count),
            "{added} added, {unknown} unknown, found {count}"
        );
    }
    until_all_are_listed(&servers[0].kubeconfig(), 3).await;
    for server in &mut servers {
        server.terminate().await.expect("clean end");
    }
}

/// Waits until `plinth replicas` lists that many, and all that have come as far have one hash.
async fn until_all_are_listed(kubeconfig: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut command = launch().command(["replicas", "--kubeconfig"]);
        command.arg(kubeconfig);
        let listed = succeeds(command);
        let lines: Vec<Vec<&str>> = listed.lines().skip(1).map(|l| l.split_whitespace().collect()).collect();
        // Id, address, version, position, lag, revision, hash.
        for (one, other) in lines.iter().flat_map(|one| lines.iter().map(move |other| (one, other))) {
            assert!(one[3] != other[3] || one[6] == other[6], "{listed}");
        }
        if lines.len() == count {
            return;
        }
        assert!(Instant::now() < deadline, "{listed}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_in_etcd_that_is_not_this_clusters_is_refused() {
    another_clusters_journal_is_refused(ETCD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_in_kafka_that_is_not_this_clusters_is_refused() {
    another_clusters_journal_is_refused(KAFKA).await;
}

async fn another_clusters_journal_is_refused(kind: Kind) {
    let Some(members) = Members::start(kind) else { return };
    let roots: Vec<TempDir> = (0..1).map(|_| TempDir::new().expect("directory")).collect();
    let mut servers = replicas(&roots, &members).await;
    let other = TempDir::new().expect("directory");
    let refused = |data: PathBuf, url: &str| {
        let mut command = launch().command(["serve", "--secure-port", "0", "--journal", url, "--data-dir"]);
        let output = command.arg(data).output().expect("plinth runs");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("text")
    };
    // A second cluster on the same journal, and on another one in the same etcd.
    let refusal = refused(other.path().join("a"), &members.url);
    assert!(refusal.contains("another cluster"), "{refusal}");
    if kind.name == ETCD.name {
        let elsewhere = members.url.replace("/plinth", "/elsewhere");
        let refusal = refused(other.path().join("b"), &elsewhere);
        assert!(refusal.contains("an etcd of its own"), "{refusal}");
    }
    let refusal = refused(other.path().join("c"), &format!("{}://127.0.0.1:1", kind.name));
    assert!(refusal.contains("--journal") && refusal.contains("names no"), "{refusal}");
    assert!(!other.path().join("a/store").exists() && !other.path().join("b/store").exists());
    // A replica with data at a journal that does not have it.
    if kind.name == KAFKA.name {
        let elsewhere = members.url.replace("/plinth", "/elsewhere");
        servers[0].terminate().await.expect("clean end");
        let refusal = refused(roots[0].path().join("data"), &elsewhere);
        assert!(refusal.contains("the journal ends at position 0"), "{refusal}");
        return;
    }
    servers[0].terminate().await.expect("clean end");
}
