//! A server process of our own: started on a directory, waited for, stopped or killed, started
//! again on the same data. The end-to-end tests use it too.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};
use tempfile::TempDir;

use super::client::{Call, Endpoint, Protocol};
use super::{kubeconfig, Error};

/// How long a server may take to become ready; generous, for busy machines.
pub const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long a server may take to stop after SIGTERM.
pub const STOP_WITHIN: Duration = Duration::from_secs(60);
/// Below a server's root, beside its data.
const LOG: &str = "server.log";
/// The interval at which a server is polled until it is ready.
const POLL: Duration = Duration::from_millis(2);

/// Which binary to start and where its data goes.
#[derive(Debug, Clone)]
pub struct Launch {
    binary: PathBuf,
    parent: Option<PathBuf>,
    environment: Vec<(String, PathBuf)>,
    host: IpAddr,
    runner: Vec<String>,
}

impl Launch {
    /// Starts `binary` (this program when `None`) with data below `parent` (the system's
    /// temporary directory when `None`).
    pub fn new(binary: Option<PathBuf>, parent: Option<PathBuf>) -> Result<Launch, Error> {
        let binary = match binary {
            Some(binary) => binary,
            None => std::env::current_exe().map_err(Error::io("finding this program"))?,
        };
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Ok(Launch { binary, parent, environment: Vec::new(), host, runner: Vec::new() })
    }

    /// Sets a variable of the server's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &Path) -> Launch {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Has servers listen on `host`, and started by a command that runs its arguments, as
    /// `ip netns exec NAME`.
    #[must_use]
    pub fn on_host(mut self, host: IpAddr, runner: &[&str]) -> Launch {
        self.host = host;
        self.runner = runner.iter().map(|word| word.to_string()).collect();
        self
    }

    /// A new directory for one server's data and log, removed with the returned value.
    pub fn data_dir(&self) -> Result<TempDir, Error> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("plinth-");
        let dir = match &self.parent {
            Some(parent) => builder.tempdir_in(parent),
            None => builder.tempdir(),
        };
        dir.map_err(Error::io("making a data directory"))
    }

    /// A command for this binary.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = match self.runner.split_first() {
            None => Command::new(&self.binary),
            Some((runner, words)) => {
                let mut command = Command::new(runner);
                command.args(words).arg(&self.binary);
                command
            }
        };
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Starts `plinth serve` with its data in `root/data` and its output appended to
    /// `root/server.log`, on a free port. Returns at once; see [`Server::ready`].
    pub async fn start(&self, root: &Path, arguments: &[&str]) -> Result<Server, Error> {
        self.start_on(free_port()?, root, arguments)
    }

    fn start_on(&self, port: u16, root: &Path, arguments: &[&str]) -> Result<Server, Error> {
        let log_path = root.join(LOG);
        let log = File::options().create(true).append(true).open(&log_path);
        let log = log.map_err(Error::io(format!("opening {}", log_path.display())))?;
        let log_too = log.try_clone().map_err(Error::io("opening the server's log"))?;
        let mut command = self.command(["serve", "--data-dir"]);
        command.arg(root.join("data")).args([
            "--bind-address",
            &self.host.to_string(),
            "--secure-port",
            &port.to_string(),
        ]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.args(arguments).stdout(log).stderr(log_too);
        let child = command.spawn().map_err(Error::io(format!("starting {}", self.binary.display())))?;
        let guard = Guard::new(child.id(), None)?;
        Ok(Server {
            launch: self.clone(),
            arguments: arguments.iter().map(|a| a.to_string()).collect(),
            child,
            guard,
            root: root.to_path_buf(),
            port,
        })
    }
}

/// A running server. Dropping it kills the process.
pub struct Server {
    launch: Launch,
    arguments: Vec<String>,
    child: Child,
    guard: Guard,
    root: PathBuf,
    port: u16,
}

impl Server {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The port; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory that the server keeps its data in.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The kubeconfig that the server wrote for its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.data().join("admin.kubeconfig")
    }

    /// The endpoint of that kubeconfig.
    pub fn endpoint(&self) -> Result<Endpoint, Error> {
        kubeconfig::endpoint(&self.kubeconfig())
    }

    /// How the process ended, when it was not this value that ended it.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(describe)
    }

    /// What the server and its predecessors on this directory wrote.
    pub fn log(&self) -> Log {
        Log { path: self.root.join(LOG) }
    }

    fn log_tail(&self) -> String {
        self.log().tail(20)
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&mut self, within: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().map_err(Error::io("waiting for the server"))? {
                return Err(Error::Server(format!("ended with {status}\n{}", self.log_tail())));
            }
            if self.is_ready().await {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::Server(format!("not ready after {within:?}\n{}", self.log_tail())));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    // A kubeconfig of the run before names the same port, so a stale one does no harm.
    async fn is_ready(&self) -> bool {
        let Ok(endpoint) = self.endpoint() else { return false };
        let Ok(mut connection) = endpoint.connect(Protocol::Http1).await else { return false };
        connection.must(&Call::get("/readyz")).await.is_ok()
    }

    /// Stops the server with SIGTERM and waits for its end.
    pub async fn terminate(&mut self) -> Result<ExitStatus, Error> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).map_err(|e| Error::io("stopping the server")(e.into()))?;
        }
        let deadline = Instant::now() + STOP_WITHIN;
        loop {
            if let Some(status) = self.child.try_wait().map_err(Error::io("waiting for the server"))? {
                return match status.success() {
                    true => Ok(status),
                    false => {
                        Err(Error::Server(format!("stopped with {}\n{}", describe(status), self.log_tail())))
                    }
                };
            }
            if Instant::now() > deadline {
                return Err(Error::Server(format!(
                    "still there {STOP_WITHIN:?} after SIGTERM\n{}",
                    self.log_tail()
                )));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Kills the server with SIGKILL, as a power cut would, and waits for its end.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().map_err(Error::io("killing the server"))?;
        self.child.wait().map_err(Error::io("killing the server"))?;
        Ok(())
    }

    /// Starts the server again on the same data and port and waits until it is ready. The process
    /// before must have ended.
    pub async fn restart(&mut self) -> Result<(), Error> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        *self = self.launch.start_on(self.port, &self.root, &arguments)?;
        self.ready(READY_WITHIN).await
    }

    /// Lets the server live until this process ends, whichever way it does, and removes `dir` then.
    /// For servers in statics, which are never dropped.
    pub fn until_exit(&mut self, dir: TempDir) -> Result<(), Error> {
        self.guard = Guard::new(self.child.id(), Some(dir.keep()))?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already reaped or just killed: nothing to report either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a server, as a file that outlives it.
#[derive(Debug, Clone)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    /// The last lines.
    pub fn tail(&self, lines: usize) -> String {
        let log = fs::read(&self.path).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().rev().take(lines).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => status.to_string(),
    }
}

/// A shell that waits for the end of this process, whichever way it comes (its standard input is
/// a pipe that only we hold open), and then kills a process and removes a directory.
struct Guard {
    shell: Child,
    _open: Option<ChildStdin>,
}

const GUARD: &str = r#"trap '' INT TERM; read -r _; kill -KILL "$1" 2>/dev/null; [ -z "$2" ] || { sleep 0.2; rm -rf -- "$2"; }"#;

impl Guard {
    fn new(pid: u32, dir: Option<PathBuf>) -> Result<Guard, Error> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard", &pid.to_string()]).arg(dir.unwrap_or_default());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = command.spawn().map_err(Error::io("starting sh"))?;
        let open = shell.stdin.take();
        Ok(Guard { shell, _open: open })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before its pipe closes: the process it guards has another owner or is gone.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A port of 127.0.0.1 that nothing listens on, below the range that the system gives to outgoing
/// connections, and different in each call of this process.
pub fn free_port() -> Result<u16, Error> {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = (std::process::id().wrapping_mul(61).wrapping_add(step)) % COUNT;
        let Ok(port) = u16::try_from(FIRST + offset) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::Server("no free port on 127.0.0.1".into()))
}
