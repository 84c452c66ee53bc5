//! Replicas of the real binary over three real members of etcd or brokers of Kafka, while processes of both
//! are killed and stopped. `scripts/journal` starts the members; the environment variables `PLINTH_ETCD` and
//! `PLINTH_KAFKA` name their programs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use plinth_benches::api::client::{Call, Connection, Endpoint, Protocol, Reply, JSON};
use plinth_benches::api::server::Server;
use plinth_tests::eventually;
use plinth_tests::object_store::ObjectStore;
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{connect_to, launch, start_ready};
use serde_json::Value;
use tempfile::TempDir;

const COUNTER: &str = "/api/v1/namespaces/default/configmaps/counter";

/// What holds a journal, and the time that it may take to replace a member that has died.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    name: &'static str,
    variable: &'static str,
    replaces_within: Duration,
}

pub(super) const ETCD: Kind =
    Kind { name: "etcd", variable: "PLINTH_ETCD", replaces_within: Duration::from_secs(2) };
pub(super) const KAFKA: Kind =
    Kind { name: "kafka", variable: "PLINTH_KAFKA", replaces_within: Duration::from_secs(4) };

/// Three members of a journal, stopped with it.
pub(super) struct Members {
    kind: Kind,
    dir: TempDir,
    pub(super) url: String,
}

impl Members {
    /// None, said aloud, where no program of this kind is named.
    pub(super) fn start(kind: Kind) -> Option<Members> {
        let Kind { name, variable, .. } = kind;
        if std::env::var_os(variable).is_none() {
            eprintln!("skipped: {variable} names no program of {name}");
            return None;
        }
        let dir = TempDir::new().expect("directory");
        let output = journal(kind, "start", dir.path());
        let url = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || !url.starts_with(&format!("{name}://")) {
            let logs = (0..3).map(|member| dir.path().join(format!("m{member}/log")));
            let logs: String = logs.filter_map(|log| std::fs::read_to_string(log).ok()).collect();
            panic!("{url}: {}{logs}", String::from_utf8_lossy(&output.stderr));
        }
        Some(Members { kind, dir, url })
    }

    fn process(&self, member: usize) -> u32 {
        let pid = std::fs::read_to_string(self.dir.path().join(format!("m{member}/pid"))).expect("pid");
        pid.trim().parse().expect("a process id")
    }

    /// Removes the history of all keys: trims the journal to its newest record.
    fn compact(&self) {
        let newest = self.gateway("/v3/kv/range", r#"{"key":"AA=="}"#, "");
        let revision = newest.split("\"revision\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let revision = revision.unwrap_or_else(|| panic!("{newest}"));
        let compacted = self.gateway("/v3/kv/compaction", &format!(r#"{{"revision":"{revision}"}}"#), "");
        assert!(compacted.starts_with("HTTP/1.1 200"), "{compacted}");
    }

    /// The answer of the first member, in JSON; to a user, who has a token.
    pub(super) fn gateway(&self, path: &str, body: &str, token: &str) -> String {
        let address = self.url.trim_start_matches("etcd://").split([',', '/']).next().expect("a member");
        let mut stream = TcpStream::connect(address).expect("a connection");
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {token}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Sends a signal to all of them.
    pub(super) fn signal_all(&self, name: &str) {
        (0..3).for_each(|member| signal(self.process(member), name));
    }

    /// Starts the members that do not run.
    fn restart(&self) {
        assert!(journal(self.kind, "start", self.dir.path()).status.success());
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        // One that is stopped does not end by SIGTERM.
        self.signal_all("-KILL");
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
    let output = command.outcome();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Replicas, each below a directory of its own.
pub(super) async fn replicas(roots: &[TempDir], members: &Members) -> Vec<Server> {
    let arguments = ["--journal", members.url.as_str()];
    let mut servers: Vec<Server> = Vec::new();
    for root in roots {
        if let Some(first) = servers.first() {
            join(first, root);
        }
        servers.push(start_ready(&launch(), root.path(), &arguments).await);
    }
    servers
}

/// Makes the data directory of another replica.
pub(super) fn join(first: &Server, root: &TempDir) {
    let mut join = launch().command(["join", "--kubeconfig"]);
    join.arg(first.kubeconfig()).arg("--data-dir").arg(root.path().join("data"));
    succeeds(join);
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
        let output = command.arg(data).outcome();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("text")
    };
    // A second cluster on the same journal, and on another one in the same etcd.
    let refusal = refused(other.path().join("a"), &members.url);
    assert!(refusal.contains("another cluster"), "{refusal}");
    if kind.name == ETCD.name {
        let other_prefix = members.url.replace("/plinth", "/other");
        let refusal = refused(other.path().join("b"), &other_prefix);
        assert!(refusal.contains("an etcd of its own"), "{refusal}");
    } else {
        std::fs::create_dir(other.path().join("b")).expect("directory");
    }
    let refusal = refused(other.path().join("c"), &format!("{}://127.0.0.1:1", kind.name));
    assert!(refusal.contains("--journal") && refusal.contains("names no"), "{refusal}");
    for refused in ["a", "b"] {
        let left = std::fs::read_dir(other.path().join(refused));
        assert!(
            left.is_ok_and(|mut left| left.next().is_none()),
            "files of a refused start stay in {refused}"
        );
    }
    // A replica with data at a journal that is empty, as after its data was lost or by a wrong URL.
    servers[0].terminate().await.expect("clean end");
    let empty = (kind.name == ETCD.name).then(|| Members::start(kind).expect("members"));
    let empty_url =
        empty.as_ref().map_or(members.url.replace("/plinth", "/other"), |empty| empty.url.clone());
    let refusal = refused(roots[0].path().join("data"), &empty_url);
    assert!(refusal.contains("the journal that this replica has applied is not there"), "{refusal}");
    // Nothing was written there: a new cluster founds its journal.
    let fresh = TempDir::new().expect("directory");
    let mut founder = start_ready(&launch(), fresh.path(), &["--journal", empty_url.as_str()]).await;
    founder.terminate().await.expect("clean end");
    servers[0].restart().await.expect("restarted");
    servers[0].terminate().await.expect("clean end");
}

/// Runs a command with a kubeconfig.
fn admin(arguments: &[&str], server: &Server) -> Output {
    let mut command = launch().command(arguments);
    command.arg("--kubeconfig").arg(server.kubeconfig()).outcome()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text").trim().to_owned()
}

/// Both over `::1`, one joins by a kubeconfig and one by a token, and what one writes the others read.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_join_over_ipv6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no ::1");
        return;
    }
    let Some(members) = Members::start(ETCD) else { return };
    let arguments = ["--journal", members.url.as_str(), "--service-cluster-ip-range", "fd00:10::/112"];
    let roots: Vec<TempDir> = (0..3).map(|_| TempDir::new().expect("directory")).collect();
    let host = launch().on_host(std::net::Ipv6Addr::LOCALHOST.into(), &[]);
    let first = start_ready(&host, roots[0].path(), &arguments).await;
    let mut by_kubeconfig = launch().command(["join", "--kubeconfig"]);
    by_kubeconfig.arg(first.kubeconfig()).arg("--data-dir").arg(roots[1].path().join("data"));
    succeeds(by_kubeconfig);
    let token = text(&admin(&["token", "create"], &first));
    let url = format!("https://[::1]:{}", first.port());
    let mut by_token = launch().command(["join", "--server", url.as_str(), "--token", token.as_str()]);
    by_token.arg("--data-dir").arg(roots[2].path().join("data"));
    succeeds(by_token);
    let second = start_ready(&host, roots[1].path(), &arguments).await;
    let third = start_ready(&host, roots[2].path(), &arguments).await;
    until_all_are_listed(&first.kubeconfig(), 3).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let map = r#"{"metadata":{"name":"counter"},"data":{"n":"6"}}"#;
    let mut writer = connect_to(&third, Protocol::Http1).await;
    writer.must(&Call::new(Method::POST, path).body(JSON, map)).await.expect("created");
    for server in [&first, &second] {
        let reply = connect_to(server, Protocol::Http2).await.must(&Call::get(COUNTER)).await.expect("read");
        assert!(reply.text().contains("\"n\":\"6\""), "{}", reply.text());
    }
}

/// The secret is in neither the logs at the highest level, nor the arguments of a process, nor what commands
/// print.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once() {
    let Some(members) = Members::start(ETCD) else { return };
    let (one, other) = (TempDir::new().expect("directory"), TempDir::new().expect("directory"));
    let audit = one.path().join("audit.log");
    let policy = one.path().join("policy.yaml");
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n";
    std::fs::write(&policy, rules).expect("policy");
    let (audit_flag, policy_flag) = (audit.to_str().expect("UTF-8"), policy.to_str().expect("UTF-8"));
    let arguments = [
        "--journal",
        members.url.as_str(),
        "--v=9",
        "--audit-log-path",
        audit_flag,
        "--audit-policy-file",
        policy_flag,
    ];
    let mut first = start_ready(&launch(), one.path(), &arguments).await;
    let token = text(&admin(&["token", "create", "--description", "a test"], &first));
    let secret = token.rsplit('.').next().expect("a secret").to_owned();
    let id = token.split('.').nth(2).expect("an ID").to_owned();
    let listed = text(&admin(&["token", "list"], &first));
    assert!(listed.contains(&id) && listed.contains("a test") && !listed.contains(&secret), "{listed}");

    // By a file, and with all that a joining process may print, also where it fails.
    let file = other.path().join("token");
    std::fs::write(&file, &token).expect("token");
    let url = format!("https://127.0.0.1:{}", first.port());
    let join = |data: &str| {
        let mut command = launch().command(["join", "--server", url.as_str(), "--token-file"]);
        command.env("RUST_LOG", "trace").arg(&file).arg("--data-dir").arg(other.path().join(data));
        command.outcome()
    };
    let (joined, again) = (join("a"), join("b"));
    assert!(joined.status.success() && !again.status.success());
    let mut shown: Vec<u8> = Vec::new();
    for output in [&joined, &again] {
        shown.extend(&output.stdout);
        shown.extend(&output.stderr);
    }
    let malformed = {
        let mut command = launch().command(["join", "--server", url.as_str(), "--token", &token[..100]]);
        command.arg("--data-dir").arg(other.path().join("c")).outcome()
    };
    assert_eq!(malformed.status.code(), Some(1));
    shown.extend(&malformed.stderr);
    first.terminate().await.expect("clean end");
    shown.extend(first.log().tail(1_000_000).into_bytes());
    shown.extend(std::fs::read(&audit).expect("audit log"));
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("a join token was used") && shown.contains(&id));
    assert!(!shown.contains(&secret), "the secret was logged");
    assert!(!shown.contains(&token[..100]), "a malformed token was shown");
}

/// A replica that the journal does not go back to takes a checkpoint, and is killed at every moment of that.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_killed_while_it_takes_a_checkpoint_loses_nothing() {
    let Some(members) = Members::start(ETCD) else { return };
    let roots: Vec<TempDir> = (0..2).map(|_| TempDir::new().expect("directory")).collect();
    let mut servers = replicas(&roots, &members).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut client = connect_to(&servers[0], Protocol::Http1).await;
    let filler = "x".repeat(16 << 10);
    for n in 0..300 {
        let body = format!(r#"{{"metadata":{{"name":"m-{n}"}},"data":{{"x":"{filler}"}}}}"#);
        client.must(&Call::new(Method::POST, maps).body(JSON, body)).await.expect("created");
    }
    let data = servers[1].data();
    let identity = std::fs::read_to_string(data.join("replica")).expect("identity");
    let peers = data.join("peers");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !std::fs::read_to_string(&peers).is_ok_and(|text| !text.is_empty()) {
        assert!(Instant::now() < deadline, "the other replica is known");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut second = servers.pop().expect("two");
    second.terminate().await.expect("clean end");
    for n in 0..4 {
        let body = format!(r#"{{"metadata":{{"name":"later-{n}"}}}}"#);
        client.must(&Call::new(Method::POST, maps).body(JSON, body)).await.expect("created");
    }
    members.compact();
    let start = || {
        let mut command =
            launch().command(["serve", "--secure-port", "0", "--journal", members.url.as_str()]);
        command.arg("--data-dir").arg(&data).stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null()).spawn().expect("plinth starts")
    };

    // Killed later each time, until a start has come through all of it.
    let (mut replaced_at, mut after) = (None, Duration::ZERO);
    while after < Duration::from_secs(30) {
        let mut child = start();
        tokio::time::sleep(after).await;
        signal(child.id(), "-KILL");
        child.wait().expect("its end");
        let store = data.join("store");
        assert!(store.is_dir() || data.join("store.joined").is_dir(), "there is a whole store");
        if data.join("store.replaced").is_dir() && store.is_dir() {
            replaced_at = Some(after);
            break;
        }
        // As long as a busy machine makes it.
        after += Duration::from_millis(15).max(after / 20);
    }
    let replaced_at = replaced_at.expect("a start came through");
    assert!(!replaced_at.is_zero());
    let mut second = start_ready(&launch(), roots[1].path(), &["--journal", members.url.as_str()]).await;
    let mut client = connect_to(&second, Protocol::Http1).await;
    for name in ["m-0", "m-299", "later-0"] {
        client.must(&Call::get(format!("{maps}/{name}"))).await.expect("it is there");
    }
    assert_eq!(std::fs::read_to_string(data.join("replica")).expect("identity"), identity);
    second.terminate().await.expect("clean end");
    for store in ["store", "store.replaced"] {
        let report = plinth_engine::verify(data.join(store), |_| {}, |_| {}).expect("verified");
        assert_eq!(report.findings, 0, "{store}");
    }
    servers[0].terminate().await.expect("clean end");
}

/// Checkpoints in an S3-compatible store: the last two stay, and a replica begins from one while no other
/// runs.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_on_etcd_begin_from_checkpoints_in_a_bucket() {
    let Some(members) = Members::start(ETCD) else { return };
    let store = ObjectStore::start("checkpoints");
    let launch =
        store.environment.iter().fold(launch(), |launch, (name, value)| launch.env(name, Path::new(value)));
    let (first, second) = (TempDir::new().expect("directory"), TempDir::new().expect("directory"));
    let arguments =
        ["--journal", &members.url, "--checkpoint-dir", &store.url, "--checkpoint-interval", "200ms"];
    let mut server = start_ready(&launch, first.path(), &arguments).await;
    let mut client = connect_to(&server, Protocol::Http1).await;
    let mut create = async |name: &str| {
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        let call = Call::new(Method::POST, "/api/v1/namespaces/default/configmaps").body(JSON, body);
        client.must(&call).await.expect("created");
    };
    create("kept").await;
    eventually("one is written", || async { !store.names().is_empty() }).await;
    let oldest = store.names().remove(0);
    let mut steps = 0;
    while store.names().contains(&oldest) {
        create(&format!("step-{steps}")).await;
        steps += 1;
        assert!(steps < 2000, "{:?}", store.names());
    }
    assert!(store.names().len() <= 3, "{:?}", store.names());
    server.terminate().await.expect("clean end");

    let join = || {
        let mut join = launch.command(["join", "--checkpoint-dir", &store.url, "--data-dir"]);
        join.arg(second.path().join("data"));
        join.envs(store.environment.iter().map(|(name, value)| (name, value)));
        join
    };
    // None that is damaged is taken, and the newest that is whole.
    let names = store.names();
    let (newest, older) = names.split_last().expect("checkpoints");
    let mut whole = Vec::new();
    for name in older {
        store.change(name, |content| {
            whole.push(content.clone());
            content.truncate(content.len() / 2);
        });
    }
    store.change(newest, |content| {
        whole.push(content.clone());
        let middle = content.len() / 2;
        content[middle] ^= 1;
    });
    let output = join().outcome();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains(&format!("note: checkpoint {newest} cannot be used")),
        "{text}"
    );
    assert!(!second.path().join("data").exists() && !second.path().join("data.joining").exists());
    for (name, whole) in older.iter().zip(whole) {
        store.change(name, |content| content.clone_from(&whole));
    }
    succeeds(join());
    let server = start_ready(&launch, second.path(), &arguments).await;
    let mut client = connect_to(&server, Protocol::Http1).await;
    for name in ["kept", "step-0"] {
        let path = format!("/api/v1/namespaces/default/configmaps/{name}");
        client.must(&Call::new(Method::GET, &path)).await.expect("found");
    }
}
