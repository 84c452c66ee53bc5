//! Servers under test. Which binary: `PLINTH_BIN`, or `plinth` beside the directory that the test runs from.

use std::path::{Path, PathBuf};

use plinth_benches::api::server::{Launch, Log, Server, READY_WITHIN};
use tempfile::TempDir;

/// A number of the environment, or its default.
///
/// # Panics
/// When the variable is no number.
pub fn setting(name: &str, default: u64) -> u64 {
    let parse = |text: String| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number"));
    std::env::var(name).map_or(default, parse)
}

/// How to start the binary under test.
///
/// # Panics
/// When there is none.
pub fn launch() -> Launch {
    let beside = || {
        let test = std::env::current_exe().expect("path of this test");
        test.ancestors().nth(2).unwrap_or(Path::new(".")).join("plinth")
    };
    let binary = std::env::var_os("PLINTH_BIN").map_or_else(beside, PathBuf::from);
    assert!(
        binary.is_file(),
        "no plinth binary at {}: build it first (`make test` does), or name one in PLINTH_BIN",
        binary.display()
    );
    Launch::new(Some(binary), None).expect("a launch of a given binary")
}

/// A server in a directory of its own, which is kept for inspection when the test fails.
pub struct TestServer {
    /// The server, as a process of its own.
    pub server: Server,
    dir: Option<TempDir>,
}

impl TestServer {
    /// Starts one and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start(arguments: &[&str]) -> TestServer {
        let launch = launch();
        let dir = launch.data_dir().expect("data directory");
        let mut server = launch.start(dir.path(), arguments).await.expect("start of the server");
        server.ready(READY_WITHIN).await.expect("ready server");
        TestServer { server, dir: Some(dir) }
    }

    /// The lines of a log that report a panic.
    pub fn panics(log: &Log) -> Vec<String> {
        log.tail(usize::MAX).lines().filter(|line| line.contains("panicked at")).map(str::to_owned).collect()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some(dir) = self.dir.take() {
                eprintln!("--- left in {}; the last lines of the server:", dir.keep().display());
                eprintln!("{}", self.server.log().tail(30));
            }
        }
    }
}
