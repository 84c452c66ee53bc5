//! Servers to test: [`TestServer::start`] for a test that stops or breaks its server,
//! [`shared`] for all others.
//!
//! Which binary: `PLINTH_BIN`, or `plinth` beside the directory that this test runs from, where a
//! build of the workspace puts it. Harness functions panic on failure, as assertions do; the
//! server's last lines are printed when a test fails.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use plinth_benches::api::client::{Connection, Endpoint, Identity, Protocol};
use plinth_benches::api::kubeconfig;
use plinth_benches::api::server::{Launch, Server, READY_WITHIN};
use serde_json::{json, Value};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::outcome::Outcome;

/// An argument of servers whose namespaces hold what a test puts there and nothing else, as those of a
/// kube-apiserver without a controller manager.
pub const BARE_NAMESPACES: &str =
    "--controllers=*,-serviceaccount-controller,-serviceaccount-token-controller,-root-ca-certificate-publisher-controller";

/// A running server. Dropping it kills the process and removes its data.
pub struct TestServer {
    access: Access,
    server: Server,
    // Dropped after the server. None for the shared server, whose guard removes it.
    dir: Option<TempDir>,
}

/// Access to a server, as its administrator or unauthenticated.
pub struct Access {
    kubeconfig: PathBuf,
}

impl Access {
    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A `kube` client with the administrator's credentials. It belongs to the calling test: its
    /// connections end with the test's runtime.
    pub async fn client(&self) -> Client {
        client_of(&self.kubeconfig).await
    }

    /// The same through another port, say that of a proxy.
    pub async fn client_by_port(&self, port: u16) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("admin.kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("usable admin.kubeconfig");
        config.cluster_url = format!("https://127.0.0.1:{port}").parse().expect("a URL");
        Client::try_from(config).expect("client")
    }

    /// Where the server is, with the administrator's credentials.
    pub fn endpoint(&self) -> Endpoint {
        kubeconfig::endpoint(&self.kubeconfig).expect("endpoint of admin.kubeconfig")
    }

    /// A bare connection with the administrator's credentials.
    pub async fn connect(&self, protocol: Protocol) -> Connection {
        self.endpoint().connect(protocol).await.expect("connection")
    }

    /// A bare connection of an unauthenticated client.
    pub async fn connect_anonymously(&self, protocol: Protocol) -> Connection {
        self.endpoint().with_identity(Identity::Anonymous).connect(protocol).await.expect("connection")
    }
}

impl Deref for TestServer {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

/// Runs a command of the binary under test to its end: whether it succeeded, and what it wrote.
pub fn run(arguments: &[&str]) -> (bool, String) {
    let output = launch().command(arguments).outcome();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), text)
}

/// How to start the binary under test.
pub fn launch() -> Launch {
    let binary = std::env::var_os("PLINTH_BIN").map(PathBuf::from).unwrap_or_else(beside_this_test);
    assert!(
        binary.is_file(),
        "no plinth binary at {}: build it first (`make test` does), or name one in PLINTH_BIN",
        binary.display()
    );
    Launch::new(Some(binary), None).expect("a launch of a given binary")
}

/// Tests run from `TARGET/release/deps`, binaries lie in `TARGET/release`.
fn beside_this_test() -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    test.ancestors().nth(2).unwrap_or(Path::new(".")).join("plinth")
}

/// A `kube` client with the credentials of a kubeconfig.
pub async fn client_of(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("usable kubeconfig")).expect("client")
}

/// Starts a server on `root/data` and waits until it is ready, for tests that prepare or damage the data.
pub async fn start_ready(launch: &Launch, root: &Path, arguments: &[&str]) -> Server {
    let mut server = launch.start(root, arguments).await.expect("start of the server");
    server.ready(READY_WITHIN).await.expect("ready server");
    server
}

/// A bare connection to such a server with its administrator's credentials.
pub async fn connect_to(server: &Server, protocol: Protocol) -> Connection {
    server.endpoint().expect("endpoint").connect(protocol).await.expect("connection")
}

impl TestServer {
    /// Starts a server of the caller's own with further arguments, and waits until it is ready.
    pub async fn start(arguments: &[&str]) -> TestServer {
        TestServer::of(launch(), arguments).await
    }

    /// The same with a limit of open files.
    pub async fn start_with_files(files: u32, arguments: &[&str]) -> TestServer {
        let limited = format!("ulimit -n {files}; exec \"$@\"");
        let launch = launch().on_host(IpAddr::V4(Ipv4Addr::LOCALHOST), &["sh", "-c", &limited, "sh"]);
        TestServer::of(launch, arguments).await
    }

    /// The same that listens on another address of this machine than 127.0.0.1.
    pub async fn start_on(host: IpAddr, arguments: &[&str]) -> TestServer {
        TestServer::of(launch().on_host(host, &[]), arguments).await
    }

    /// Starts a server that a launch describes, and waits until it is ready.
    pub async fn of(launch: Launch, arguments: &[&str]) -> TestServer {
        let dir = launch.data_dir().expect("data directory");
        let server = start_ready(&launch, dir.path(), arguments).await;
        let access = Access { kubeconfig: server.kubeconfig() };
        TestServer { access, server, dir: Some(dir) }
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.server.data()
    }

    /// The port on the address that it listens on.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The process id; another after each restart.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Stops the server with SIGTERM; it must end with success.
    pub async fn terminate(&mut self) {
        self.server.terminate().await.expect("clean end after SIGTERM");
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.server.kill().expect("killed server");
    }

    /// Starts the stopped server again on the same data and port.
    pub async fn restart(&mut self) {
        self.server.restart().await.expect("restarted server");
    }

    /// The last lines that the server wrote.
    pub fn log_tail(&self, lines: usize) -> String {
        self.server.log().tail(lines)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ended = self.server.ended().map_or(String::new(), |how| format!(" (it ended: {how})"));
            eprintln!("--- last lines of the server{ended}\n{}\n---", self.log_tail(40));
        }
    }
}

/// The server that all tests share which neither stop nor break it. It ends with the test process.
///
/// `PLINTH_E2E_KUBECONFIG` names the administrator's kubeconfig of another server, to see whether a test
/// holds there; that server has to be an API server of the same version.
pub async fn shared() -> &'static Access {
    static SHARED: OnceCell<TestServer> = OnceCell::const_new();
    given_or(&SHARED).await
}

/// As [`shared`], for tests that define APIs: its discovery documents change all the time.
pub async fn shared_with_apis() -> &'static Access {
    static SHARED: OnceCell<TestServer> = OnceCell::const_new();
    given_or(&SHARED).await
}

async fn given_or(shared: &'static OnceCell<TestServer>) -> &'static Access {
    static GIVEN: OnceCell<Access> = OnceCell::const_new();
    if let Some(kubeconfig) = std::env::var_os("PLINTH_E2E_KUBECONFIG") {
        return GIVEN.get_or_init(async || Access { kubeconfig: kubeconfig.into() }).await;
    }
    shared.get_or_init(start_shared).await
}

async fn start_shared() -> TestServer {
    let mut started = TestServer::start(&[BARE_NAMESPACES]).await;
    if let Some(dir) = started.dir.take() {
        started.server.until_exit(dir).expect("guard of the shared server");
    }
    // Statics are never dropped, so the panic hook prints the log.
    let log = started.server.log();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        eprintln!("--- last lines of the shared server\n{}\n---", log.tail(15));
    }));
    started
}

/// A name that no other test of this run has: `PREFIX-N`.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Creates a namespace of the caller's own and returns its name.
pub async fn namespace(client: &Client, prefix: &str) -> String {
    let name = unique(prefix);
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let request = http::Request::post("/api/v1/namespaces")
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .expect("request");
    client.request::<Value>(request).await.expect("new namespace");
    // The service account of pods, where no controller creates it.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let request = http::Request::post(format!("/api/v1/namespaces/{name}/serviceaccounts"))
        .header("content-type", "application/json")
        .body(account.to_string().into_bytes())
        .expect("request");
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        outcome => drop(outcome.expect("new service account")),
    }
    name
}
