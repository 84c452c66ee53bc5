//! `plinth serve`.

mod backups;
mod error;
mod opening;
mod options;
mod running;
mod starting;

use std::io::IsTerminal;
use std::time::Duration;

use tokio::signal::unix::{signal, SignalKind};

use super::output;
use super::service_manager::{inherited_listener, Notifier};
use crate::bootstrap::kubeconfig;
use plinth_apiserver::request_log;

pub(super) use options::{default_data_dir, LoggingFormat};

pub use error::ServeError;
pub use options::ServeOptions;
pub use running::Running;
pub use starting::start_on;

/// Stack size of the runtime's threads, in bytes: an object may be nested 10,000 levels deep, and address
/// space that is not touched costs nothing.
const THREAD_STACK: usize = 32 << 20;
/// Blocking threads that are left to read the disk and to compute when every server of a runtime has all of
/// its requests wait for remote services.
const COMPUTING_THREADS: usize = 16;
/// Number of servers that the runtime of [`runtime`] is made for.
const SERVERS: usize = 2;
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
pub(super) fn run<E: From<ServeError>>(
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

/// A runtime for one server or two: that of [`runtime_for`].
///
/// # Errors
/// When no threads can be created.
pub fn runtime() -> Result<tokio::runtime::Runtime, ServeError> {
    runtime_for(SERVERS)
}

/// A runtime for that many servers. Its threads have the stack that deeply nested objects need, and its
/// blocking pool the threads that each of the servers may hold while it waits for remote services, and some
/// that are left then.
///
/// # Errors
/// When no threads can be created.
pub fn runtime_for(servers: usize) -> Result<tokio::runtime::Runtime, ServeError> {
    let waiting = servers.saturating_mul(plinth_http::MAX_REMOTE_WAITS);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(THREAD_STACK)
        .event_interval(EVENT_INTERVAL)
        .max_blocking_threads(waiting.saturating_add(COMPUTING_THREADS))
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
        () = notifier.keep_alive(|| running.check_liveness()) => {}
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

/// Starts a server in the current runtime; it is ready when this returns.
///
/// The runtime has several threads, drivers of I/O and time, stacks of 32 MiB and blocking threads for each
/// of its servers, as [`runtime_for`] makes it. On smaller stacks an object that is nested deeply can
/// overflow one, which ends the process.
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
    let (version, address) = (env!("CARGO_PKG_VERSION"), kubeconfig::reachable(running.address()));
    let kubeconfig = running.kubeconfig().display();
    let mut text =
        format!("plinth {version} is ready on https://{address}\n  export KUBECONFIG={kubeconfig}\n");
    text.extend(note.map(|note| note + "\n"));
    output::print(&text);
}
