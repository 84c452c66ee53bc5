//! A server that the benchmark starts itself: how long its first answer takes.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plinth_etcd_wire::call::{self, path};
use plinth_etcd_wire::kv::{RangeRequest, RangeResponse};
use rustix::process::{kill_process, Pid, Signal};
use tonic::transport::Endpoint;
use tonic::Request;

use super::Error;

/// Between two attempts, and until there is none any more: a large store of etcd takes seconds.
const POLL: Duration = Duration::from_millis(2);
const READY_WITHIN: Duration = Duration::from_secs(600);
/// How long it may take to end after SIGTERM.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// A running server. Killed when it is dropped.
pub(super) struct StartedServer(Child);

impl StartedServer {
    /// Runs a command, its words separated by spaces, until it answers at `endpoint`. Returns how long that
    /// took.
    pub(super) async fn start(command: &str, endpoint: &str) -> Result<(StartedServer, Duration), Error> {
        let failed = |reason: String| Error::Start { command: command.to_owned(), reason };
        let mut words = command.split_whitespace();
        let program = words.next().ok_or_else(|| failed("there is no command".to_owned()))?;
        let start = Instant::now();
        let child = Command::new(program).args(words).stdout(Stdio::null()).spawn();
        let mut server = StartedServer(child.map_err(|error| failed(error.to_string()))?);
        let target = Endpoint::from_shared(endpoint.to_owned());
        let target = target.map_err(|error| failed(call::describe(&error)))?;
        loop {
            if answers(&target).await {
                return Ok((server, start.elapsed()));
            }
            if let Some(status) = server.0.try_wait()? {
                return Err(failed(format!("it has ended with {status}")));
            }
            if start.elapsed() > READY_WITHIN {
                return Err(failed(format!("{endpoint} does not answer")));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ends it with SIGTERM, and waits for its end.
    pub(super) async fn stop(mut self) -> Result<(), Error> {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).map_err(std::io::Error::from)?;
        }
        let asked = Instant::now();
        while self.0.try_wait()?.is_none() && asked.elapsed() < STOP_WITHIN {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// Whether a server answers a read.
async fn answers(endpoint: &Endpoint) -> bool {
    let Ok(channel) = endpoint.connect().await else { return false };
    let request = RangeRequest { key: "a".into(), ..RangeRequest::default() };
    call::unary::<_, RangeResponse>(channel, path::RANGE, Request::new(request)).await.is_ok()
}

impl Drop for StartedServer {
    fn drop(&mut self) {
        // One that was stopped has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
