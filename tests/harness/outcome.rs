//! Commands that end by themselves, or are a failure of the test.

// A test that waits for another process sleeps.
#![allow(clippy::disallowed_methods)]

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// After this long a command counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);

/// The outcome of a command within bounded time: a server that starts where it should have refused does not
/// stop a run of the tests.
pub trait Outcome {
    /// Runs the command to its end; whatever its status.
    ///
    /// # Panics
    /// When it cannot be started, or still runs after five minutes. It is killed then.
    #[track_caller]
    fn outcome(&mut self) -> Output;
}

impl Outcome for Command {
    fn outcome(&mut self) -> Output {
        self.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.spawn().expect("the command starts");
        let read = |mut from: Box<dyn std::io::Read + Send>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                from.read_to_end(&mut bytes).map(|_| bytes)
            })
        };
        let stdout = read(Box::new(child.stdout.take().expect("a pipe")));
        let stderr = read(Box::new(child.stderr.take().expect("a pipe")));
        let started = Instant::now();
        let mut status = child.try_wait().expect("status of a child");
        while status.is_none() && started.elapsed() < PATIENCE {
            thread::sleep(POLL);
            status = child.try_wait().expect("status of a child");
        }
        if status.is_none() {
            child.kill().expect("kill of a child");
            child.wait().expect("end of a child");
        }
        let text = |reader: thread::JoinHandle<std::io::Result<Vec<u8>>>| {
            reader.join().expect("reader of a pipe").expect("output of a child")
        };
        let (stdout, stderr) = (text(stdout), text(stderr));
        let Some(status) = status else {
            let shown = String::from_utf8_lossy(&stderr);
            panic!("{self:?} still runs after {} s\n{shown}", PATIENCE.as_secs());
        };
        Output { status, stdout, stderr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_those_of_the_command() {
        let output = Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).outcome();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    }
}
