//! `plinth serve`.

mod backups;
mod error;
mod opening;
mod options;
mod starting;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_journal::record::ReplicaId;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;

use super::service_manager::{inherited_listener, Notifier};
use crate::bootstrap::{kubeconfig, DataDir};
use crate::controllers::identity_lease::IdentityLease;
use crate::members;
use crate::replica::controller_lease;
use plinth_apiserver::context::Server;
use plinth_apiserver::request_log;

pub(super) use options::LoggingFormat;

pub use error::ServeError;
pub use options::ServeOptions;
pub use starting::start_on;

/// Stack size of worker threads, in bytes: an object may be nested 10,000 levels deep, and address space that
/// is not touched costs nothing.
const THREAD_STACK: usize = 32 << 20;
/// Maximum number of threads that may block on the disk.
const BLOCKING_THREADS: usize = 64;
/// Number of polls after which a busy thread checks for I/O events: a check costs a microsecond, a poll up to
/// a hundred, and a new request should not wait for sixty polls of others (tokio's default).
const EVENT_INTERVAL: u32 = 8;
/// Idle time after which a blocking thread exits.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(5);

/// Runs the server until SIGTERM or SIGINT; `on_ready` is called when it is ready, and stops it with an
/// error.
///
/// # Errors
/// When it cannot start; the error text is one line for users.
pub fn run<E: From<ServeError>>(
    options: ServeOptions,
    on_ready: impl FnOnce(&Running) -> Result<(), E>,
) -> Result<(), E> {
    start_logging(options.verbosity, options.logging_format);
    let runtime = runtime()?;
    let mut refused = Ok(());
    let served = runtime.block_on(serve(options, |running| {
        refused = on_ready(running);
        refused.is_ok()
    }));
    match served {
        // Threads may be blocked: by the disk, or by what the start waits for.
        Err(error) if error.is_storage_failure() => {
            runtime.shutdown_background();
            refused.and(Err(error.into()))
        }
        Err(ServeError::StartAbandoned) => {
            runtime.shutdown_background();
            tracing::warn!("server stopped before its start was complete");
            Ok(())
        }
        served => refused.and(served.map_err(E::from)),
    }
}

/// A runtime for servers: its threads have the stack that deeply nested objects need.
///
/// # Errors
/// When no threads can be created.
pub fn runtime() -> Result<tokio::runtime::Runtime, ServeError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(THREAD_STACK)
        .event_interval(EVENT_INTERVAL)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(BLOCKING_THREAD_IDLE)
        .build()
        .map_err(|source| ServeError::Io { what: "cannot start the runtime", source })
}

/// Logs to standard error.
pub(super) fn start_logging(verbosity: u8, format: LoggingFormat) {
    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::prelude::*;
    let level = match verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Colors only on a terminal.
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    // Requests are many: they have a level of their own, which is upstream's.
    let requests = if verbosity < 3 { LevelFilter::OFF } else { LevelFilter::DEBUG };
    // Below the traces the libraries have nothing to say about requests.
    let libraries = if verbosity < 6 { level.min(LevelFilter::INFO) } else { level };
    let filter = Targets::new()
        .with_default(libraries)
        .with_target("plinth", level)
        .with_target(request_log::TARGET, requests);
    let logs = tracing_subscriber::registry().with(filter);
    // An embedding program may have its own subscriber, which is kept then.
    let _ = match format {
        LoggingFormat::Text => logs.with(lines).try_init(),
        LoggingFormat::Json => logs.with(lines.json()).try_init(),
    };
}

async fn serve(mut options: ServeOptions, on_ready: impl FnOnce(&Running) -> bool) -> Result<(), ServeError> {
    let signals =
        |kind| signal(kind).map_err(|source| ServeError::Io { what: "cannot handle signals", source });
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let delay = options.shutdown_delay_duration;
    let environment = |name: &str| std::env::var_os(name);
    let notifier = Notifier::of(environment)?;
    options.listener = inherited_listener(environment)?;
    let note = ready_note(&options);
    let mut starting = Box::pin(start(options));
    let started = tokio::select! {
        started = &mut starting => Some(started),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let Some(running) = started.transpose()? else {
        // It may wait for a journal, or for a checkpoint, that does not come.
        let started = tokio::time::timeout(START_TIMEOUT, starting).await;
        return started.map_err(|_| ServeError::StartAbandoned)??.stop().await;
    };
    print_ready(&running, note);
    if !on_ready(&running) {
        return running.stop().await;
    }
    notifier.notify(&format!("READY=1\nSTATUS=Serving on https://{}", running.address()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = notifier.keep_alive() => {}
        failure = running.failed() => {
            notifier.notify("STOPPING=1\nSTATUS=The storage engine has failed");
            running.stop_after_failure(&failure).await;
            return Err(ServeError::StorageFailed(failure));
        }
    }
    notifier.notify("STOPPING=1\nSTATUS=Finishing requests");
    if let Some(failure) = running.drain(delay).await {
        running.stop_after_failure(&failure).await;
        return Err(ServeError::StorageFailed(failure));
    }
    running.stop().await
}

/// Time limit for a start to end after a signal to stop.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for recording that a replica stops.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for background tasks to end.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server whose storage has failed continues to answer: long enough for the responses to writes in
/// progress, and for a probe to see that it is unhealthy.
const ANSWER_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Time limit for closing connections afterwards.
const STOP_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A running server in this process. If dropped, it runs until the runtime ends, and then stops as if killed:
/// nothing that was acknowledged is lost.
pub struct Running {
    address: SocketAddr,
    kubeconfig: PathBuf,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
    server: Arc<Server>,
    /// This replica, where it is one.
    replica: Option<ReplicaId>,
    /// What shows that it is there.
    lease: Option<IdentityLease>,
    /// Holds the lock on the directory.
    _dir: DataDir,
}

impl Running {
    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Waits until the storage engine has failed. The server then rejects writes and reports itself
    /// unhealthy; the process should exit and be restarted.
    pub async fn failed(&self) -> plinth_engine::Failure {
        self.server.store.engine().failed().await
    }

    /// Reports itself as not ready, and serves on for `delay`, so that load balancers send requests to other
    /// servers before this one refuses them. Ends early where the storage fails.
    pub async fn drain(&self, delay: Duration) -> Option<plinth_engine::Failure> {
        self.server.is_draining.store(true, Ordering::Relaxed);
        if delay.is_zero() {
            return None;
        }
        tracing::info!(duration_ms = delay.as_millis() as u64, "shutdown is delayed, /readyz fails");
        tokio::select! {
            () = tokio::time::sleep(delay) => None,
            failure = self.failed() => Some(failure),
        }
    }

    /// Logs the failure and advice, and finishes requests in progress. The store is not closed: it must not
    /// be written to any more.
    async fn stop_after_failure(self, failure: &plinth_engine::Failure) {
        tracing::error!(
            error = %failure,
            "Storage engine has failed and takes no more writes; the process ends with exit code {}. {}{}",
            super::STORAGE_FAILED,
            // Of a journal only its own members know that.
            match failure {
                plinth_engine::Failure::Journal { .. } | plinth_engine::Failure::Diverged { .. } => "",
                _ => "No acknowledged write is lost. ",
            },
            advice(failure),
        );
        tokio::time::sleep(ANSWER_AFTER_FAILURE).await;
        // Fails if the listener has ended already.
        let _ = self.stop.send(true);
        let leave = async {
            // The listener's own result is irrelevant now.
            let _ = self.serving.await;
            self.server.audit.drain().await;
        };
        // Remaining connections are dropped.
        let _ = tokio::time::timeout(STOP_AFTER_FAILURE, leave).await;
    }

    /// Stops the server: requests in progress are finished, the store is closed.
    ///
    /// # Errors
    /// [`ServeError::Close`] when the storage fails.
    pub async fn stop(self) -> Result<(), ServeError> {
        if let Some(id) = self.replica {
            // While requests are finished, clients learn of it. Without the journal they learn in a while.
            let deadline = Instant::now() + LEAVE_TIMEOUT;
            let store = &self.server.store;
            let left = async {
                controller_lease::release(store, id, deadline).await?;
                members::leave(store, id, deadline).await
            };
            if let Err(error) = left.await {
                tracing::debug!(%error, "the end of this replica could not be recorded");
            }
        }
        // Fails if the listener has ended already.
        let _ = self.stop.send(true);
        if let Err(error) = self.serving.await {
            tracing::error!(%error, "listener failed");
        }
        self.server.tasks.close();
        // Tasks do not block, so they end at their next await. A remaining one gets errors from the closed
        // store.
        let _ = tokio::time::timeout(TASK_TIMEOUT, self.server.tasks.wait()).await;
        if let Some(lease) = &self.lease {
            // Nobody renews it any more. Without the journal it is removed when it has expired.
            let deleted = tokio::time::timeout(LEAVE_TIMEOUT, lease.delete(&self.server)).await;
            if !matches!(deleted, Ok(Ok(()))) {
                tracing::debug!("the identity Lease of this server could not be deleted");
            }
        }
        self.server.audit.drain().await;
        let tracing = self.server.clone();
        // A panic there loses spans, and nothing else.
        let _ = tokio::task::spawn_blocking(move || tracing.traces.stop()).await;
        let engine = self.server.store.engine().clone();
        tokio::task::spawn_blocking(move || engine.close())
            .await
            .map_err(|error| ServeError::Io {
                what: "cannot close the store",
                source: std::io::Error::other(error),
            })?
            .map_err(ServeError::Close)
    }
}

/// What to do after a failure.
fn advice(failure: &plinth_engine::Failure) -> &'static str {
    use plinth_engine::Failure;
    use plinth_journal::Error as JournalError;
    match failure {
        Failure::Superseded { .. } => {
            "Stop one of the two processes; a replica on another machine is made with \"plinth join\", not by a \
             copy of a data directory"
        }
        Failure::Journal { error: plinth_journal::Error::Version { .. } } => {
            "The other replicas were upgraded: start a version of plinth that is as new as theirs"
        }
        Failure::Journal { error: JournalError::Closed { .. } } => {
            "Stop this replica and do not start it again: \"plinth replicate --undo\" has made that one a single \
             server, which clients go to. Where that server's data is lost, make a backup of the replica that is \
             furthest, and restore it"
        }
        Failure::Journal {
            error: JournalError::Refused { .. } | JournalError::Behind { .. } | JournalError::Replaced { .. },
        } => {
            "Keep the data directories of all replicas: the journal is not what it was. If it cannot be restored, \
             make a backup of the replica that is furthest, restore it, and begin a new journal with \"plinth \
             replicate\""
        }
        Failure::Journal { error: JournalError::Damaged { .. } | JournalError::OtherCluster { .. } } => {
            "The journal has a record that no replica of this cluster has written, or one that is damaged, and every \
             replica stops at it. Keep the data directories of all: make a backup of the replica that is furthest, \
             restore it into an empty directory, and begin a new journal with \"plinth replicate\". Only where other \
             replicas go on, start this one again"
        }
        Failure::Journal { .. } | Failure::Diverged { .. } => {
            "Start the server again: where the journal does not go back to what it has, it takes a checkpoint of \
             another replica. If it fails again while others run, move its data directory away and run \"plinth \
             join\". If none runs any more, keep the data directories of all: make a backup of the replica that is \
             furthest, restore it, and begin a new journal with \"plinth replicate\""
        }
        _ => {
            "Check the disk and the kernel's log, then start the server again; if it does not start, run \
             \"plinth verify\""
        }
    }
}

/// Starts a server in the current [`runtime`]; it is ready when this returns.
///
/// # Errors
/// When it cannot start; the error text is one line for users.
pub async fn start(options: ServeOptions) -> Result<Running, ServeError> {
    let connect = options.replica.connector()?;
    start_on(options, connect).await
}

/// What keeps the kubeconfig that the server writes from being used as it is.
fn ready_note(options: &ServeOptions) -> Option<String> {
    if let Some(file) = &options.authentication.client_ca_file {
        return Some(format!(
            "  --client-ca-file: clients need a certificate of an authority in {}; that of this kubeconfig is another's",
            file.display()
        ));
    }
    options.tls.tls_cert_file.as_ref().map(|file| {
        format!(
            "  --tls-cert-file: clients have to trust the issuer of {}; this kubeconfig does not name it",
            file.display()
        )
    })
}

fn print_ready(running: &Running, note: Option<String>) {
    println!(
        "plinth {} is ready on https://{}",
        env!("CARGO_PKG_VERSION"),
        kubeconfig::reachable(running.address())
    );
    println!("  export KUBECONFIG={}", running.kubeconfig().display());
    if let Some(note) = note {
        println!("{note}");
    }
}
