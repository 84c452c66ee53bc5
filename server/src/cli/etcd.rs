//! `plinth etcd`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use plinth_etcd::{EtcdOptions, Server, StartError};
use tokio::signal::unix::{signal, SignalKind};

use super::exit_code::STORAGE_FAILED;
use super::output;
use super::serve::{self, LoggingFormat, ServeError};
use super::upstream::{Etcd, UpstreamFlagError, UpstreamFlags};
use crate::bootstrap::DataDir;
use plinth_apiserver::private_files;

/// Options of `plinth etcd`. Flags that etcd also has keep its names and meanings.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  plinth etcd --data-dir ./etcd-data\n  plinth etcd --data-dir ./etcd-data --listen-client-urls https://0.0.0.0:2379 --cert-file server.crt --key-file server.key \\\n    --trusted-ca-file ca.crt --client-cert-auth\n\nServes the services KV, Watch, Lease, Maintenance, Cluster, Auth, Lock and Election of etcd 3.6 on one member, and\n/health, /version and /metrics. Flags can be variables of the environment, as of etcd: ETCD_DATA_DIR. Flags of etcd\nwithout effect here are accepted; those that ask for something else are refused. The directory is one of plinth etcd\nalone: plinth serve refuses it, and the other way around. SIGTERM stops the server cleanly."
)]
pub struct EtcdCommandOptions {
    /// The options of the server
    #[command(flatten)]
    pub etcd: EtcdOptions,
    /// YAML file of etcd with all flags; those of the command line and of the environment, like ETCD_NAME,
    /// are then ignored
    #[arg(long, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Flags of etcd without effect
    #[command(flatten)]
    pub upstream: UpstreamFlags<Etcd>,
    /// Verbosity of logs: 0 warnings, 1 information, 2 to 5 details, more for everything
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub verbosity: u8,
    /// Format of logs
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub logging_format: LoggingFormat,
}

/// The server did not start, or failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum EtcdError {
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Start(#[from] StartError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Flag(#[from] UpstreamFlagError),
}

impl EtcdError {
    /// Whether the storage of a running server has failed.
    pub fn is_storage_failure(&self) -> bool {
        matches!(self, EtcdError::Serve(error) if error.is_storage_failure())
    }
}

fn remedy(error: &StartError) -> &'static str {
    match error {
        StartError::Engine(error) => super::store::remedy(error),
        _ => "",
    }
}

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
/// See [`EtcdError`].
pub(super) fn run(options: EtcdCommandOptions) -> Result<(), EtcdError> {
    serve::start_logging(options.verbosity, options.logging_format);
    for (flag, warning) in options.upstream.warnings()? {
        tracing::warn!(flag, reason = %warning, "flag is ignored");
    }
    let runtime = serve::runtime()?;
    let served = runtime.block_on(serve(&options.etcd));
    if served.as_ref().is_err_and(EtcdError::is_storage_failure) {
        // Threads may be blocked by the disk.
        runtime.shutdown_background();
    }
    served
}

async fn serve(options: &EtcdOptions) -> Result<(), EtcdError> {
    let signals =
        |kind| signal(kind).map_err(|source| ServeError::Io { what: "cannot handle signals", source });
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let dir = DataDir::open(&options.data_dir).map_err(ServeError::from)?;
    private_files::narrow(dir.path())
        .map_err(|source| ServeError::Io { what: "cannot check the modes of the data directory", source })?;
    let server = Server::start(options, &dir.store()).await?;
    let texts = |addresses: Vec<SocketAddr>| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    let version = env!("CARGO_PKG_VERSION");
    let mut places = texts(server.addresses());
    places.extend(server.unix_sockets().iter().map(|path| path.display().to_string()));
    let mut ready = format!("plinth {version} serves etcd's API on {}\n", places.join(", "));
    let metrics = texts(server.metrics_addresses()).join(", ");
    if !metrics.is_empty() {
        ready.push_str(&format!("plinth {version} serves metrics and checks on {metrics}\n"));
    }
    output::print(&ready);
    let failed = server.failed();
    let (failure, failing) = tokio::sync::oneshot::channel();
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            failed = failed => {
                tracing::error!(
                    error = %failed,
                    exit_code = STORAGE_FAILED,
                    "storage engine has failed and takes no more writes, the process ends: no acknowledged write \
                     is lost. Check the disk and the kernel's log, then start the server again; if it does \
                     not start, run \"plinth verify\""
                );
                // The receiver waits below.
                let _ = failure.send(failed);
            }
        }
    };
    let served = server.serve(stop).await;
    if let Ok(failure) = failing.await {
        return Err(ServeError::StorageFailed(failure).into());
    }
    Ok(served.map_err(ServeError::Close)?)
}
