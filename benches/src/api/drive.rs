//! Many sessions at once for a time: each sends its next request when the last one is answered.
//!
//! Every latency of the measured time is kept (4 bytes each), so that percentiles are exact.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tokio::time::Interval;

use super::client::{refused, Call, Connection, Endpoint, Protocol, Reply, JSON};
use super::process::{self, Usage};
use super::report::{Measurement, Quantiles};
use super::{seconds, Error, Options};
use crate::output;

/// One client: its next request may depend on the last answer.
pub trait Session: Send {
    /// The next request.
    fn next(&mut self) -> Call;

    /// Whether [`answered`](Session::answered) looks at the body of the request just made; if not,
    /// bodies are counted and dropped as they arrive.
    fn wants_body(&self) -> bool {
        false
    }

    /// The request succeeded with this body (empty when it was not wanted).
    fn answered(&mut self, _body: &Bytes) {}
}

/// The connections to a server that sessions share.
pub struct Target {
    endpoint: Endpoint,
    protocol: Protocol,
    /// Prototypes to share; empty with HTTP/1.1, where every client opens its own.
    shared: Vec<Connection>,
}

impl Target {
    /// Opens the connections that `clients` clients share.
    pub async fn new(endpoint: Endpoint, options: &Options, clients: usize) -> Result<Target, Error> {
        let mut shared = Vec::new();
        if options.protocol == Protocol::Http2 {
            for _ in 0..options.connections.clamp(1, clients.max(1)) {
                shared.push(endpoint.connect(Protocol::Http2).await?);
            }
        }
        Ok(Target { endpoint, protocol: options.protocol, shared })
    }

    /// The connection of one client.
    pub async fn connection(&self, client: usize) -> Result<Connection, Error> {
        let prototype = client.checked_rem(self.shared.len()).and_then(|slot| self.shared.get(slot));
        match prototype.and_then(Connection::share) {
            Some(connection) => Ok(connection),
            None => self.endpoint.connect(self.protocol).await,
        }
    }

    /// Creates a namespace with the service account that pods need, unless they exist.
    pub async fn namespace(&self, name: &str) -> Result<(), Error> {
        let mut connection = self.connection(0).await?;
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        for (path, body) in [
            (
                "/api/v1/namespaces",
                format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#),
            ),
            (
                &*accounts,
                r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#.into(),
            ),
        ] {
            let call = Call::new(Method::POST, path).body(JSON, body);
            let reply = connection.call(&call).await?;
            if !reply.status.is_success() && reply.status != http::StatusCode::CONFLICT {
                return Err(refused(&call, &reply));
            }
        }
        Ok(())
    }

    /// Sends `count` requests that must succeed or find what they make already there, 64 at a time.
    pub async fn fill(
        &self,
        count: usize,
        call: impl Fn(usize) -> Call + Send + Sync + 'static,
    ) -> Result<(), Error> {
        const AT_ONCE: usize = 64;
        let call = Arc::new(call);
        let mut workers = JoinSet::new();
        for worker in 0..AT_ONCE.min(count) {
            let mut connection = self.connection(worker).await?;
            let call = call.clone();
            workers.spawn(async move {
                for index in (worker..count).step_by(AT_ONCE) {
                    let call = call(index);
                    let reply = connection.call(&call).await?;
                    if !reply.status.is_success() && reply.status != http::StatusCode::CONFLICT {
                        return Err(refused(&call, &reply));
                    }
                }
                Ok::<(), Error>(())
            });
        }
        while let Some(done) = workers.join_next().await {
            done.map_err(|e| Error::Server(format!("a client ended: {e}")))??;
        }
        Ok(())
    }
}

/// What one client saw in the measured time.
#[derive(Default)]
struct Tally {
    micros: Vec<u32>,
    first_byte: Vec<u32>,
    errors: u64,
    first_error: Option<String>,
    bytes_received: u64,
    bytes_sent: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.micros.extend(other.micros);
        self.first_byte.extend(other.first_byte);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
    }
}

/// Runs the sessions for the options' warm-up and duration and measures the latter.
pub async fn measure(
    workload: &str,
    target: &Target,
    sessions: Vec<Box<dyn Session>>,
    options: &Options,
    pids: &[u32],
) -> Result<Measurement, Error> {
    let clients = sessions.len();
    let mut connections = Vec::with_capacity(clients);
    for client in 0..clients {
        connections.push(target.connection(client).await?);
    }
    process::forget_peak(pids);
    let before = process::usage(pids);
    let from = Instant::now() + seconds(options.warm_up);
    let until = from + seconds(options.duration);
    let mut running = JoinSet::new();
    for (session, connection) in sessions.into_iter().zip(connections) {
        running.spawn(run_session(session, connection, (from, until), ticks(options.rate)));
    }
    let used = usage_between(pids, before, from, until).await;
    let mut tally = Tally::default();
    while let Some(done) = running.join_next().await {
        tally.add(done.map_err(|e| Error::Server(format!("a client ended: {e}")))??);
    }
    if let Some(error) = &tally.first_error {
        output::error_line(format_args!("{workload}: {} errors, the first: {error}", tally.errors));
    }
    let operations = tally.micros.len() as u64;
    Ok(Measurement {
        workload: workload.to_string(),
        clients,
        seconds: options.duration,
        operations,
        errors: tally.errors,
        rate: operations as f64 / options.duration,
        latency_ms: Quantiles::of(tally.micros),
        first_byte_ms: Quantiles::of(tally.first_byte),
        bytes_received: tally.bytes_received,
        bytes_sent: tally.bytes_sent,
        server_cpu_seconds: used.cpu_seconds,
        server_rss_mib: used.rss_mib,
        server_peak_rss_mib: used.peak_rss_mib,
        server_growth_mib: used.growth_mib,
    })
}

/// CPU used between two moments, memory as of the second, its growth from `before` on.
pub async fn usage_between(pids: &[u32], before: Usage, from: Instant, until: Instant) -> Usage {
    tokio::time::sleep_until(from.into()).await;
    let begin = process::usage(pids);
    tokio::time::sleep_until(until.into()).await;
    let after = process::usage(pids);
    Usage {
        cpu_seconds: after.cpu_seconds - begin.cpu_seconds,
        growth_mib: (after.peak_rss_mib - before.rss_mib).max(0.0),
        ..after
    }
}

/// When a client that sends at a rate sends; none where it sends when it has been answered.
pub(super) fn ticks(rate: Option<f64>) -> Option<Interval> {
    let period = Duration::try_from_secs_f64(1.0 / rate.filter(|rate| *rate > 0.0)?).ok()?;
    Some(tokio::time::interval(period))
}

async fn run_session(
    mut session: Box<dyn Session>,
    mut connection: Connection,
    (from, until): (Instant, Instant),
    mut ticks: Option<Interval>,
) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    loop {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let call = session.next();
        let begin = Instant::now();
        if begin >= until {
            return Ok(tally);
        }
        let (reply, received, first_byte) = exchange(&mut connection, &call, session.wants_body()).await?;
        let end = Instant::now();
        let measured = begin >= from && end <= until;
        if !reply.status.is_success() {
            tally.errors += u64::from(measured);
            tally.first_error.get_or_insert_with(|| refused(&call, &reply).to_string());
            continue;
        }
        session.answered(&reply.body);
        if measured {
            tally.micros.push(micros(end - begin));
            tally.first_byte.extend(first_byte.map(|at| micros(at - begin)));
            tally.bytes_received += received;
            tally.bytes_sent += call.body.len() as u64;
        }
    }
}

/// Sends one request; returns the answer, with its body where it is wanted or an error, the body's length,
/// and when its first byte arrived, where that was measured.
async fn exchange(
    connection: &mut Connection,
    call: &Call,
    wants_body: bool,
) -> Result<(Reply, u64, Option<Instant>), Error> {
    let (parts, mut body) = connection.open(call).await?.into_parts();
    if wants_body || !parts.status.is_success() {
        let body = body.collect().await?.to_bytes();
        let length = body.len() as u64;
        return Ok((Reply { status: parts.status, headers: parts.headers, body }, length, None));
    }
    let (mut length, mut first_byte) = (0, None);
    while let Some(frame) = body.frame().await {
        first_byte.get_or_insert_with(Instant::now);
        length += frame?.data_ref().map_or(0, Bytes::len) as u64;
    }
    Ok((Reply { status: parts.status, headers: parts.headers, body: Bytes::new() }, length, first_byte))
}

/// Whole microseconds; an hour and more saturates.
pub fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
