//! A real kubectl, where one is installed: `PLINTH_KUBECTL`, or `kubectl` on the PATH.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A kubectl with a home, a cache and a kubeconfig of its own.
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: TempDir,
}

impl Kubectl {
    /// A kubectl for the given kubeconfig, or `None` after saying that `test` is skipped.
    pub fn find(test: &str, kubeconfig: &Path) -> Option<Kubectl> {
        let program = std::env::var_os("PLINTH_KUBECTL").map(PathBuf::from).unwrap_or("kubectl".into());
        let version =
            Command::new(&program).args(["version", "--client"]).env("HOME", "/nonexistent").output();
        if !version.is_ok_and(|output| output.status.success()) {
            println!("skipped: {test}: no kubectl on the PATH (PLINTH_KUBECTL names another)");
            return None;
        }
        let home = TempDir::new().expect("home of kubectl");
        Some(Kubectl { program, kubeconfig: kubeconfig.to_path_buf(), home })
    }

    /// A directory for the caller's files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The program itself.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A command that talks to the server.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs the words of `line`; whatever the outcome.
    pub fn run(&self, line: &str) -> Output {
        self.command(line.split_whitespace()).output().expect("kubectl runs")
    }

    /// Runs the words of `line`, which must succeed; returns standard output.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        succeeded(line, self.run(line))
    }

    /// Runs the words of `line` with standard input, which must succeed.
    #[track_caller]
    pub fn ok_with_input(&self, line: &str, input: &str) -> String {
        succeeded(line, self.run_with_input(line, input))
    }

    /// Runs the words of `line` with standard input, which must fail; returns standard error.
    #[track_caller]
    pub fn fails_with_input(&self, line: &str, input: &str) -> String {
        failed(line, self.run_with_input(line, input))
    }

    fn run_with_input(&self, line: &str, input: &str) -> Output {
        use std::io::Write;
        let mut child = self
            .command(line.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        // Closed when the temporary is dropped, which ends kubectl's input.
        child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("input taken");
        child.wait_with_output().expect("kubectl ends")
    }

    /// Runs the words of `line`, which must fail; returns standard error.
    #[track_caller]
    pub fn fails(&self, line: &str) -> String {
        failed(line, self.run(line))
    }
}

#[track_caller]
fn failed(line: &str, output: Output) -> String {
    assert!(!output.status.success(), "kubectl {line} succeeded:\n{}", text(&output.stdout));
    text(&output.stderr)
}

/// Standard output of a command that must have succeeded.
#[track_caller]
pub fn succeeded(line: &str, output: Output) -> String {
    assert!(
        output.status.success(),
        "kubectl {line}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
