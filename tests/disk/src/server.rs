//! The whole server, started on directories that a power cut or a failing disk left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_benches::api::kubeconfig;
use plinth_benches::api::server::free_port;

use crate::process::Interposed;

/// How long a server may take to become ready or to end.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);

/// A server process. Killed when it is dropped.
pub struct Server {
    child: Child,
    port: u16,
    data: PathBuf,
    log: PathBuf,
}

/// How a start ended.
pub enum Started {
    /// It is ready.
    Ready(Server),
    /// It ended by itself: how, and what it printed.
    Ended(ExitStatus, String),
}

/// The binary under test: `PLINTH_BIN`, or `plinth` beside the directory that this test runs from.
///
/// # Panics
/// When it is not there.
pub fn binary() -> PathBuf {
    let binary = std::env::var_os("PLINTH_BIN").map(PathBuf::from).unwrap_or_else(|| {
        let test = std::env::current_exe().expect("path of this test");
        test.ancestors().nth(2).unwrap_or(Path::new(".")).join("plinth")
    });
    assert!(
        binary.is_file(),
        "no plinth binary at {}: build it, or name one in PLINTH_BIN",
        binary.display()
    );
    binary
}

/// Runs a command of the binary to its end; how it ended and what it printed on standard error.
///
/// # Panics
/// When it cannot be started.
pub fn run(arguments: &[&str], interposed: Option<&Interposed>) -> (ExitStatus, String) {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    if let Some(interposed) = interposed {
        interposed.apply(&mut command);
    }
    let output = command.output().expect("the binary under test");
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

impl Server {
    /// Starts a server on `root/data` with its output in `root.log`, and waits until it is ready or has
    /// ended.
    ///
    /// # Panics
    /// When it is neither after two minutes.
    pub async fn start(root: &Path, interposed: Option<&Interposed>) -> Started {
        let mut server = Server::spawn(root, interposed);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = server.ended() {
                return Started::Ended(status, server.printed());
            }
            if server.is_ready().await {
                return Started::Ready(server);
            }
            assert!(Instant::now() < deadline, "neither ready nor ended: {}", server.printed());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Starts a server and does not wait.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(root: &Path, interposed: Option<&Interposed>) -> Server {
        let log = root.with_extension("log");
        let output = File::options().create(true).append(true).open(&log).expect("a log file");
        let errors = output.try_clone().expect("a log file");
        let port = free_port().expect("a port");
        let data = root.join("data");
        let mut command = Command::new(binary());
        command.arg("serve").arg("--data-dir").arg(&data).args(["--bind-address", "127.0.0.1"]);
        command.args(["--secure-port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        if let Some(interposed) = interposed {
            interposed.apply(&mut command);
        }
        let child = command.spawn().expect("the binary under test");
        Server { child, port, data, log }
    }

    async fn is_ready(&self) -> bool {
        // A kubeconfig of another start names another port.
        let config = self.data.join("admin.kubeconfig");
        let here = format!("127.0.0.1:{}", self.port);
        if !fs::read_to_string(&config).is_ok_and(|text| text.contains(&here)) {
            return false;
        }
        let Some(mut connection) = self.connect(&config).await else { return false };
        connection.must(&Call::get("/readyz")).await.is_ok()
    }

    /// Connects with the credentials of a kubeconfig, whatever address it names.
    pub async fn connect(&self, config: &Path) -> Option<Connection> {
        let text = fs::read_to_string(config).ok()?;
        let address =
            text.split("https://").nth(1)?.split_whitespace().next()?.trim_end_matches('"').to_owned();
        let copy = self.log.with_extension("kubeconfig");
        fs::write(&copy, text.replace(&address, &format!("127.0.0.1:{}", self.port))).ok()?;
        kubeconfig::endpoint(&copy).ok()?.connect(Protocol::Http1).await.ok()
    }

    /// Connects with the server's own kubeconfig.
    ///
    /// # Panics
    /// When that fails.
    pub async fn admin(&self) -> Connection {
        self.connect(&self.data.join("admin.kubeconfig")).await.expect("a connection")
    }

    /// Kills it.
    pub fn kill(&mut self) {
        // Either it runs or it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end; none when it still runs after `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(POLL);
        }
        None
    }

    /// What it printed.
    pub fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates ConfigMap number `n`; whether that was acknowledged.
pub async fn create(connection: &mut Connection, n: u64) -> Result<(), String> {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"n{n:05}"}},"data":{{"n":"{n}"}}}}"#
    );
    let call = Call::new(http::Method::POST, "/api/v1/namespaces/default/configmaps").body(JSON, body);
    match connection.call(&call).await {
        Ok(reply) if reply.status == http::StatusCode::CREATED => Ok(()),
        Ok(reply) => Err(format!("{}: {}", reply.status, reply.text())),
        Err(error) => Err(error.to_string()),
    }
}

/// The numbers of the ConfigMaps that are there with what was written into them.
///
/// # Errors
/// When they cannot be listed or one holds something else.
pub async fn list(connection: &mut Connection) -> Result<Vec<u64>, String> {
    let call = Call::get("/api/v1/namespaces/default/configmaps");
    let reply = connection.must(&call).await.map_err(|error| error.to_string())?;
    let list: serde_json::Value = serde_json::from_slice(&reply.body).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for item in list["items"].as_array().into_iter().flatten() {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        let Some(n) = name.strip_prefix('n').and_then(|n| n.parse::<u64>().ok()) else { continue };
        if item["data"]["n"].as_str() != Some(n.to_string().as_str()) {
            return Err(format!("{name} holds {}", item["data"]));
        }
        found.push(n);
    }
    Ok(found)
}
