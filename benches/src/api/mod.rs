//! Workloads against the API of a running server, over TLS, as clients see it.
//!
//! | module | subject |
//! |---|---|
//! | [`kubeconfig`] | a server's address and the client's credentials |
//! | [`client`] | one connection, HTTP/1.1 or HTTP/2, as light as it can be |
//! | [`server`] | a server process of our own: start, wait, stop, restart |
//! | [`process`] | CPU seconds and memory of a process |
//! | [`objects`] | the objects that workloads write |
//! | `hostile` | clients that attack |
//! | [`workloads`] | what each workload does: a table and its sessions |
//! | [`drive`] | many sessions at once for a time, every latency kept |
//! | [`watch`] | few writers, many watchers; idle watchers |
//! | [`lifecycle`] | time to start, memory held |
//! | [`definitions`] | hundreds of custom resource definitions |
//! | [`report`] | the table and the file that a run ends in |
//!
//! The generator shares the machine with the server that it measures, so it runs on one thread by
//! default, keeps no answer longer than it must and parses none.

use std::path::PathBuf;
use std::time::Duration;

pub mod client;
pub mod definitions;
pub mod drive;
mod hostile;
pub mod kubeconfig;
pub mod lifecycle;
pub mod objects;
pub mod process;
pub mod report;
pub mod server;
pub mod watch;
pub mod workloads;

use client::{Endpoint, Protocol};
use report::{Measurement, Report};
use server::Launch;
use workloads::{Run, Workload, WORKLOADS};

use crate::output;

/// An error that ends a benchmark early.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum Error {
    /// No workload has this name.
    #[error("unknown workload {name:?}; there are: {}", WORKLOADS.iter().map(|w| w.name).collect::<Vec<_>>().join(", "))]
    UnknownWorkload {
        /// The requested name.
        name: String,
    },
    /// The workload starts and stops servers, so it cannot run against one that is given.
    #[error("workload {name} needs servers of its own; leave out --kubeconfig")]
    NeedsOwnServer { name: &'static str },
    /// A kubeconfig that cannot be used.
    #[error("{path}: {reason}")]
    Kubeconfig {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The server process ended or did not become ready.
    #[error("server: {0}")]
    Server(String),
    /// The server answered a request of the workload's set-up with an error.
    #[error("{method} {path}: {status}: {body}")]
    Answer {
        /// The request's method.
        method: http::Method,
        /// The request's path.
        path: String,
        /// The answer's status code.
        status: u16,
        /// The beginning of the answer's body.
        body: String,
    },
    /// A file or a socket failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A connection broke.
    #[error("connection: {0}")]
    Http(#[from] hyper::Error),
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A report file is not one.
    #[error("report {path}: {source}")]
    Report {
        path: PathBuf,
        /// Where it is wrong.
        source: serde_json::Error,
    },
    /// A plot could not be drawn.
    #[error("plot: {0}")]
    Plot(String),
}

impl Error {
    /// Wraps a system error with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

/// `plinth bench api`: measures the API of a server.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  plinth bench api create get mixed --duration 10 --output api.json\n  \
    plinth bench api list --kubeconfig admin.kubeconfig --server-pid 4711")]
pub struct Options {
    /// Workloads to run, in this order; all when none is named. `list` is one, `mixed` another;
    /// an unknown name prints them all.
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Concurrent clients; each workload has its own default.
    #[arg(long)]
    pub clients: Option<usize>,
    /// Connections that the clients share (HTTP/2); with HTTP/1.1 each client has its own.
    #[arg(long, default_value_t = 4)]
    pub connections: usize,
    /// Protocol of the connections.
    #[arg(long, value_enum, default_value_t = Protocol::Http2)]
    pub protocol: Protocol,
    /// Seconds that each workload is measured.
    #[arg(long, default_value_t = 10.0)]
    pub duration: f64,
    /// Seconds that each workload runs before it is measured.
    #[arg(long, default_value_t = 1.0)]
    pub warm_up: f64,
    /// Objects that the reading workloads find: pods of lists, ConfigMaps of gets.
    #[arg(long, default_value_t = 10_000)]
    pub objects: usize,
    /// Bytes of data in each ConfigMap.
    #[arg(long, default_value_t = 1024)]
    pub size: usize,
    /// Watchers of the watch workloads.
    #[arg(long)]
    pub watchers: Option<usize>,
    /// Requests per second of each client, and writes of each writer of the watch workloads; 0 is as fast as
    /// they are answered.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Threads of the load generator.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Seed of all contents.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A CustomResourceDefinition in JSON for the workload `definitions`; one of 75 KiB by default.
    #[arg(long)]
    pub definition: Option<PathBuf>,
    /// Only those attacks of `hostile` whose names contain this text; all by default.
    #[arg(long, default_value = "")]
    pub attacks: String,
    /// A server to measure instead of one started here.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Another server for the watchers of the watch workloads, such as another replica
    #[arg(long, requires = "kubeconfig", value_name = "KUBECONFIG")]
    pub watch_kubeconfig: Option<PathBuf>,
    /// Processes whose CPU and memory are the server's; repeat it for a server that is several.
    #[arg(long = "server-pid", requires = "kubeconfig")]
    pub server_pids: Vec<u32>,
    /// The plinth binary to start; this program by default.
    #[arg(long)]
    pub plinth: Option<PathBuf>,
    /// Where the data of the servers started here goes; a temporary directory by default. The
    /// disk below it decides the figures of writes.
    #[arg(long)]
    pub data_parent: Option<PathBuf>,
    /// Name of the measured server in the report.
    #[arg(long, default_value = "plinth")]
    pub label: String,
    /// Write the report as JSON to this file too.
    #[arg(long)]
    pub output: Option<PathBuf>,
}

/// Runs the requested workloads, prints a table and writes the report.
///
/// Blocks until all are done; errors of single requests are counted in the report, everything
/// else ends the run.
pub fn run(options: Options) -> Result<(), Error> {
    let mut runtime = if options.threads > 1 {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(options.threads);
        builder
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.enable_all().build().map_err(Error::io("starting the load generator"))?;
    runtime.block_on(run_all(options))
}

async fn run_all(options: Options) -> Result<(), Error> {
    let chosen = chosen(&options.workloads)?;
    let mut report = Report::new(&options);
    report::print_header(&report);
    for workload in chosen {
        for measurement in run_one(workload, &options).await? {
            report::print_row(&measurement);
            report.results.push(measurement);
        }
    }
    if let Some(path) = &options.output {
        report.write(path)?;
        output::line(format_args!("\nreport: {}", path.display()));
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Workload>, Error> {
    if names.is_empty() {
        return Ok(WORKLOADS.iter().collect());
    }
    names
        .iter()
        .map(|name| {
            WORKLOADS
                .iter()
                .find(|w| w.name == name)
                .ok_or_else(|| Error::UnknownWorkload { name: name.clone() })
        })
        .collect()
}

/// Each workload gets a fresh server, so that none inherits the memory or the files of another.
async fn run_one(workload: &'static Workload, options: &Options) -> Result<Vec<Measurement>, Error> {
    let launch = Launch::new(options.plinth.clone(), options.data_parent.clone())?;
    let clients = options.clients.unwrap_or(workload.clients);
    match workload.run {
        Run::Start => {
            refuse_given_server(workload, options)?;
            lifecycle::start(workload, options, &launch).await
        }
        Run::Memory => {
            refuse_given_server(workload, options)?;
            lifecycle::memory(workload, options, &launch).await
        }
        Run::Definitions => {
            refuse_given_server(workload, options)?;
            definitions::measure(workload, options, &launch).await
        }
        Run::Sessions(prepare) => {
            with_server(options, &launch, async |endpoint, pids| {
                let target = drive::Target::new(endpoint, options, clients).await?;
                let sessions = prepare(&target, options, clients).await?;
                Ok(vec![drive::measure(workload.name, &target, sessions, options, pids).await?])
            })
            .await
        }
        Run::Hostile(prepare) => {
            with_server(options, &launch, async |endpoint, pids| {
                hostile::compare(workload.name, endpoint, options, clients, prepare, pids).await
            })
            .await
        }
        Run::Watch { watchers, writers, rate } => {
            let watchers = options.watchers.unwrap_or(watchers);
            let writers = options.clients.unwrap_or(writers);
            let rate = options.rate.unwrap_or(rate);
            with_server(options, &launch, async |endpoint, pids| {
                let measured =
                    watch::measure(workload.name, endpoint, options, watchers, writers, rate, pids);
                Ok(vec![measured.await?])
            })
            .await
        }
        Run::Idle { watchers } => {
            let watchers = options.watchers.unwrap_or(watchers);
            with_server(options, &launch, async |endpoint, pids| {
                Ok(vec![watch::idle(workload.name, endpoint, options, watchers, pids).await?])
            })
            .await
        }
    }
}

fn refuse_given_server(workload: &'static Workload, options: &Options) -> Result<(), Error> {
    match options.kubeconfig {
        Some(_) => Err(Error::NeedsOwnServer { name: workload.name }),
        None => Ok(()),
    }
}

async fn with_server<T>(
    options: &Options,
    launch: &Launch,
    work: impl AsyncFnOnce(Endpoint, &[u32]) -> Result<T, Error>,
) -> Result<T, Error> {
    if let Some(kubeconfig) = &options.kubeconfig {
        return work(kubeconfig::endpoint(kubeconfig)?, &options.server_pids).await;
    }
    let dir = launch.data_dir()?;
    let mut server = launch.start(dir.path(), &[]).await?;
    server.ready(server::READY_WITHIN).await?;
    let result = work(server.endpoint()?, &[server.pid()]).await;
    server.terminate().await?;
    result
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(Duration::ZERO)
}
