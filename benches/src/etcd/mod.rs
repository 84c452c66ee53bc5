//! Workloads against a server of etcd's v3 API: etcd itself or `plinth etcd`, one at a time, by the same
//! client.
//!
//! | workload | what is done |
//! |---|---|
//! | `txn-put` | transactions of one put to random keys, by each number of clients |
//! | `range` | one client reads a range of `--keys` keys, again and again |
//! | `first-page` | it reads the first `--limit` keys of the range, with the number of all |
//! | `pages` | it reads the range in such pages, as kube-apiserver does; each is an operation |
//! | `count` | it asks for the number of keys alone |
//! | `watch` | one client puts, `--watchers` watchers of the range get each event |
//! | `many-keys` | `--many-keys` keys are put in transactions of 100; only where it is named |
//! | `open` | the time from the start of the server to its first answer; with `--start` |
//!
//! The client shares the machine with the server, and runs on one thread. Connections are shared by clients.

mod start;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_etcd_wire::call::{self, path};
use plinth_etcd_wire::kv::request_op::Request as Operation;
use plinth_etcd_wire::kv::{PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse};
use plinth_etcd_wire::watch::{watch_request, WatchCreateRequest, WatchRequest};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use self::start::StartedServer;
use crate::api::process::{self, Usage};
use crate::api::report::{print_columns, print_row, Machine, Measurement, Quantiles};
use crate::output;

/// First and last byte of the keys that are written, and what is behind them.
const PREFIX: &str = "bench/";
const END: &str = "bench0";
/// What the keys of `many-keys` begin with: none of the range above.
const MANY: &str = "many/";
/// Puts of a transaction that fills the range.
const FILLED: usize = 100;
/// A watcher that gets no event for so long has all that it will get.
const QUIET: Duration = Duration::from_secs(10);
/// The names for `--only`, in the order in which they run.
const WORKLOADS: [&str; 7] = ["txn-put", "range", "first-page", "pages", "count", "watch", MANY_KEYS];
/// The one that writes a gigabyte.
const MANY_KEYS: &str = "many-keys";

/// What can end a benchmark early.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum Error {
    /// No workload has this name.
    #[error("unknown workload {name:?}; there are: {}", WORKLOADS.join(", "))]
    UnknownWorkload {
        /// The requested name.
        name: String,
    },
    /// There is no server at the endpoint.
    #[error("{endpoint}: {reason}")]
    Endpoint { endpoint: String, reason: String },
    /// The server did not start.
    #[error("{command}: {reason}")]
    Start { command: String, reason: String },
    /// The server answered with an error.
    #[error("the server answered: {}", call::describe(.0.as_ref()))]
    Call(#[from] Box<Status>),
    /// The system failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The report could not be made.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        Error::Call(Box::new(status))
    }
}

/// `plinth bench etcd`: measures a server of etcd's API.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  plinth bench etcd --endpoint http://127.0.0.1:2379 --server-pid $(pidof etcd) --label etcd --output etcd.json\n  plinth bench etcd --only many-keys --start \"plinth etcd --data-dir ./etcd-data\""
)]
pub struct Options {
    /// URL of the server, which is written to
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:2379")]
    pub endpoint: String,
    /// Workloads to run, separated by commas; default: all but many-keys
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Numbers of clients for txn-put
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100, 1000])]
    pub clients: Vec<usize>,
    /// Connections that clients and watchers share
    #[arg(long, default_value_t = 10)]
    pub connections: usize,
    /// Seconds for each figure
    #[arg(long, default_value_t = 5.0)]
    pub duration: f64,
    /// Bytes of a value
    #[arg(long, default_value_t = 1024)]
    pub value_size: usize,
    /// Keys of the range
    #[arg(long, default_value_t = 10_000)]
    pub keys: usize,
    /// Keys of a page
    #[arg(long, default_value_t = 500)]
    pub limit: usize,
    /// Number of watchers
    #[arg(long, default_value_t = 100)]
    pub watchers: usize,
    /// Keys of the workload many-keys
    #[arg(long, default_value_t = 1_000_000)]
    pub many_keys: usize,
    /// Command that starts the server, its words separated by spaces, for the time until it answers; it is
    /// ended afterwards
    #[arg(long, value_name = "COMMAND", conflicts_with = "server_pid")]
    pub start: Option<String>,
    /// Process of the server, for its CPU time and memory
    #[arg(long)]
    pub server_pid: Vec<u32>,
    /// Name of the server in the report
    #[arg(long, default_value = "etcd API")]
    pub label: String,
    /// File for the figures, as JSON
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What a run has measured, and where.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Name of the server.
    pub label: String,
    /// On which machine it was measured.
    pub machine: Machine,
    /// The load averages before the run: more than a little means that others disturbed it.
    pub load_before: String,
    /// Bytes of a value.
    pub value_size: usize,
    /// Keys of the range.
    pub keys: usize,
    /// Connections that clients and watchers share.
    pub connections: usize,
    /// In the order measured.
    pub results: Vec<Measurement>,
}

/// Runs the workloads, and prints a row for each figure.
///
/// # Errors
/// See [`Error`].
pub fn run(options: &Options) -> Result<Report, Error> {
    if let Some(unknown) = options.only.iter().find(|name| !WORKLOADS.contains(&name.as_str())) {
        return Err(Error::UnknownWorkload { name: unknown.clone() });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(measure(options))?;
    if let Some(path) = &options.output {
        std::fs::write(path, serde_json::to_vec_pretty(&report)?)?;
    }
    Ok(report)
}

async fn measure(options: &Options) -> Result<Report, Error> {
    let mut report = Report {
        label: options.label.clone(),
        machine: Machine::this(),
        load_before: std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned(),
        value_size: options.value_size,
        keys: options.keys,
        connections: options.connections,
        results: Vec::new(),
    };
    output::line(format_args!("{}, load {}", report.label, report.load_before));
    print_columns();
    let started = match &options.start {
        None => None,
        Some(command) => Some(StartedServer::start(command, &options.endpoint).await?),
    };
    let pids = started.as_ref().map_or_else(|| options.server_pid.clone(), |(server, _)| vec![server.pid()]);
    let bench = Bench { channels: connect(options).await?, options, pids };
    let is_wanted = |name: &str| match options.only.is_empty() {
        true => name != MANY_KEYS,
        false => options.only.iter().any(|only| only == name),
    };
    let mut add = |row: Measurement| {
        print_row(&row);
        report.results.push(row);
    };
    if let Some((_, took)) = &started {
        add(bench.open(*took));
    }
    if is_wanted("txn-put") {
        for clients in &options.clients {
            add(bench.puts((*clients).max(1)).await?);
        }
    }
    if ["range", "first-page", "pages", "count"].into_iter().any(is_wanted) {
        bench.fill().await?;
    }
    for workload in [Read::Range, Read::FirstPage, Read::Pages, Read::Count] {
        if is_wanted(workload.name()) {
            add(bench.reads(workload).await?);
        }
    }
    if is_wanted("watch") {
        add(bench.watches().await?);
    }
    if is_wanted(MANY_KEYS) {
        add(bench.many_keys().await?);
    }
    if let Some((server, _)) = started {
        server.stop().await?;
    }
    Ok(report)
}

async fn connect(options: &Options) -> Result<Vec<Channel>, Error> {
    let failed = |error: tonic::transport::Error| Error::Endpoint {
        endpoint: options.endpoint.clone(),
        reason: call::describe(&error),
    };
    let endpoint = Endpoint::from_shared(options.endpoint.clone()).map_err(failed)?;
    // As etcd's own client: its windows grow with what a connection carries.
    let endpoint = endpoint.tcp_nodelay(true).http2_adaptive_window(true);
    let mut channels = Vec::new();
    for _ in 0..options.connections.max(1) {
        channels.push(endpoint.connect().await.map_err(failed)?);
    }
    Ok(channels)
}

/// A range of keys on a server, and what is measured.
struct Bench<'o> {
    channels: Vec<Channel>,
    options: &'o Options,
    /// The processes of the server.
    pids: Vec<u32>,
}

/// A workload of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Range,
    FirstPage,
    Pages,
    Count,
}

impl Read {
    fn name(self) -> &'static str {
        match self {
            Read::Range => "range",
            Read::FirstPage => "first-page",
            Read::Pages => "pages",
            Read::Count => "count",
        }
    }
}

/// What was measured, and when it began.
struct Clock {
    start: Instant,
    before: Usage,
}

impl Bench<'_> {
    /// The connection of one client.
    fn channel(&self, client: usize) -> Channel {
        let slot = client.checked_rem(self.channels.len()).unwrap_or(0);
        self.channels[slot].clone()
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.options.duration.clamp(0.05, 600.0))
    }

    fn begin(&self) -> Clock {
        process::forget_peak(&self.pids);
        Clock { start: Instant::now(), before: process::usage(&self.pids) }
    }

    fn row(&self, clock: &Clock, workload: &str, clients: usize, operations: u64) -> Measurement {
        let after = process::usage(&self.pids);
        let seconds = clock.start.elapsed().as_secs_f64();
        Measurement {
            workload: workload.to_owned(),
            clients,
            seconds,
            operations,
            errors: 0,
            rate: operations as f64 / seconds,
            latency_ms: None,
            first_byte_ms: None,
            bytes_received: 0,
            bytes_sent: 0,
            server_cpu_seconds: after.cpu_seconds - clock.before.cpu_seconds,
            server_rss_mib: after.rss_mib,
            server_peak_rss_mib: after.peak_rss_mib,
            server_growth_mib: after.peak_rss_mib - clock.before.rss_mib,
        }
    }

    async fn puts(&self, clients: usize) -> Result<Measurement, Error> {
        let clock = self.begin();
        let end = clock.start + self.time();
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let (channel, options) = (self.channel(client), self.options.clone());
            tasks.spawn(async move {
                let mut micros = Vec::new();
                let mut state = client as u64 + 1;
                loop {
                    let start = Instant::now();
                    if start >= end {
                        return Ok::<_, Status>(micros);
                    }
                    state = next(state);
                    let number = state as usize % options.keys.max(1);
                    txn(&channel, [put(&options, number, state)]).await?;
                    micros.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
                }
            });
        }
        let mut micros = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            micros.extend(ended.map_err(std::io::Error::from)??);
        }
        let mut row = self.row(&clock, "txn-put", clients, micros.len() as u64);
        row.bytes_sent = row.operations * self.options.value_size as u64;
        row.latency_ms = Quantiles::of(micros);
        Ok(row)
    }

    /// Puts every key of the range.
    async fn fill(&self) -> Result<(), Error> {
        let numbers: Vec<usize> = (0..self.options.keys).collect();
        for chunk in numbers.chunks(FILLED) {
            let puts = chunk.iter().map(|number| put(self.options, *number, *number as u64));
            txn(&self.channel(0), puts).await?;
        }
        Ok(())
    }

    /// How long the server took to open its store.
    fn open(&self, took: Duration) -> Measurement {
        let clock = Clock { start: Instant::now(), before: Usage::default() };
        let mut row = self.row(&clock, "open", 1, 1);
        row.seconds = took.as_secs_f64();
        row.rate = 1.0 / row.seconds;
        row.latency_ms = Quantiles::of(vec![u32::try_from(took.as_micros()).unwrap_or(u32::MAX)]);
        row
    }

    async fn reads(&self, workload: Read) -> Result<Measurement, Error> {
        let clock = self.begin();
        let end = clock.start + self.time();
        let (mut micros, mut received) = (Vec::new(), 0);
        let first = RangeRequest { key: PREFIX.into(), range_end: END.into(), ..RangeRequest::default() };
        let first = match workload {
            Read::Range => first,
            Read::FirstPage | Read::Pages => {
                RangeRequest { limit: i64::try_from(self.options.limit).unwrap_or(i64::MAX), ..first }
            }
            Read::Count => RangeRequest { count_only: true, ..first },
        };
        let mut request = first.clone();
        while Instant::now() < end {
            let start = Instant::now();
            let response: RangeResponse =
                call::unary(self.channel(0), path::RANGE, Request::new(request.clone())).await?;
            micros.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
            received += response.kvs.iter().map(|kv| kv.value.len() as u64).sum::<u64>();
            request = match response.kvs.last().filter(|_| response.more && workload == Read::Pages) {
                None => first.clone(),
                // As kube-apiserver: at the revision of the first page.
                Some(last) => RangeRequest {
                    key: [last.key.as_ref(), b"\0"].concat().into(),
                    revision: match request.revision {
                        0 => response.header.map_or(0, |header| header.revision),
                        revision => revision,
                    },
                    ..request
                },
            };
        }
        let mut row = self.row(&clock, workload.name(), 1, micros.len() as u64);
        row.bytes_received = received;
        row.latency_ms = Quantiles::of(micros);
        Ok(row)
    }

    async fn many_keys(&self) -> Result<Measurement, Error> {
        let clock = self.begin();
        let clients = self.channels.len();
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let (channel, options) = (self.channel(client), self.options.clone());
            tasks.spawn(async move {
                let numbers: Vec<usize> = (client..options.many_keys).step_by(clients).collect();
                for chunk in numbers.chunks(FILLED) {
                    let puts = chunk.iter().map(|number| PutRequest {
                        key: format!("{MANY}{number:08}").into(),
                        ..put(&options, *number, *number as u64)
                    });
                    txn(&channel, puts).await?;
                }
                Ok::<_, Status>(numbers.len() as u64)
            });
        }
        let mut keys = 0;
        while let Some(ended) = tasks.join_next().await {
            keys += ended.map_err(std::io::Error::from)??;
        }
        let mut row = self.row(&clock, MANY_KEYS, clients, keys);
        row.bytes_sent = keys * self.options.value_size as u64;
        Ok(row)
    }

    async fn watches(&self) -> Result<Measurement, Error> {
        let delivered = Arc::new(AtomicU64::new(0));
        let mut watchers = JoinSet::new();
        for watcher in 0..self.options.watchers {
            let create = WatchCreateRequest {
                key: PREFIX.into(),
                range_end: END.into(),
                ..WatchCreateRequest::default()
            };
            let request = WatchRequest { request: Some(watch_request::Request::Create(create)) };
            let requests = tokio_stream::once(request).chain(tokio_stream::pending());
            let mut responses = call::watch(self.channel(watcher), requests, None).await?;
            // The first one says that the watch is there.
            responses.message().await?;
            let delivered = Arc::clone(&delivered);
            watchers.spawn(async move {
                while let Ok(Ok(Some(response))) = tokio::time::timeout(QUIET, responses.message()).await {
                    delivered.fetch_add(response.events.len() as u64, Ordering::Relaxed);
                }
            });
        }
        let clock = self.begin();
        let end = clock.start + self.time();
        let mut puts = 0;
        while Instant::now() < end {
            txn(&self.channel(0), [put(self.options, puts % self.options.keys.max(1), puts as u64)]).await?;
            puts += 1;
        }
        let wanted = puts as u64 * self.options.watchers as u64;
        let written = Instant::now();
        while delivered.load(Ordering::Relaxed) < wanted && written.elapsed() < QUIET {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let operations = delivered.load(Ordering::Relaxed);
        let mut row = self.row(&clock, "watch", self.options.watchers, operations);
        row.errors = wanted.saturating_sub(operations);
        row.bytes_received = operations * self.options.value_size as u64;
        Ok(row)
    }
}

async fn txn(channel: &Channel, puts: impl IntoIterator<Item = PutRequest>) -> Result<(), Status> {
    let success = puts.into_iter().map(|put| RequestOp { request: Some(Operation::Put(put)) }).collect();
    let request = TxnRequest { success, ..TxnRequest::default() };
    call::unary::<_, TxnResponse>(channel.clone(), path::TXN, Request::new(request)).await.map(drop)
}

fn put(options: &Options, number: usize, seed: u64) -> PutRequest {
    let mut value = Vec::with_capacity(options.value_size + 8);
    let mut state = seed;
    while value.len() < options.value_size {
        state = next(state);
        // The high bits, which are the better ones.
        value.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    value.truncate(options.value_size);
    PutRequest { key: format!("{PREFIX}{number:08}").into(), value: value.into(), ..PutRequest::default() }
}

fn next(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}
