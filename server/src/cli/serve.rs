//! `plinth serve`.

mod backups;
mod error;
mod opening;
mod options;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_engine::{Options, Replica};
use plinth_journal::record::ReplicaId;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::{watch, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::service_manager::{inherited_listener, Notifier};
use crate::bootstrap::pki::{self, Pki, PkiError};
use crate::bootstrap::{
    self, ensure_classes_and_roles, ensure_kubernetes_service, ensure_service_cidr, ensure_system_namespaces,
    ensure_token_tracking, ensure_trust, kubeconfig, DataDir, Stage,
};
use crate::controllers;
use crate::controllers::identity_lease::IdentityLease;
use crate::members::{self, Membership};
use crate::replica::archive::Archivist;
use crate::replica::checkpoint::Source;
use crate::replica::controller_lease;
use crate::replica::journal::Connect;
use plinth_apiserver::audit::Audit;
use plinth_apiserver::authn::{self, Authenticator};
use plinth_apiserver::authz::{self, Authorizer};
use plinth_apiserver::context::{Limits, ReplicaInfo, Server};
use plinth_apiserver::custom_resources::Converter;
use plinth_apiserver::documents::{DiscoveryDocuments, OpenApiDocuments};
use plinth_apiserver::egress::kubelets::Kubelets;
use plinth_apiserver::egress::remote::RemoteApis;
use plinth_apiserver::egress::resolver::ServiceResolver;
use plinth_apiserver::egress::Webhooks;
use plinth_apiserver::error_log::ErrorLog;
use plinth_apiserver::flow_control::FlowControl;
use plinth_apiserver::kind_handlers;
use plinth_apiserver::large_requests::Limiter;
use plinth_apiserver::listener;
use plinth_apiserver::metrics::Metrics;
use plinth_apiserver::private_files;
use plinth_apiserver::reload::{self, WatchedFiles};
use plinth_apiserver::representation::list_size_cache::ListSizeCache;
use plinth_apiserver::request_log;
use plinth_apiserver::service_ranges::Ranges;
use plinth_http::chunks::BlockedThreads;
use plinth_http::pull::RemoteWaits;
use plinth_http::serving::Certificates;
use plinth_http::tls::ServingCertificate;
use plinth_storage::continue_token::ContinueTokens;
use plinth_storage::counts::Counts;
use plinth_storage::encryption::Encryption;
use plinth_storage::header_index::HeaderIndex;
use plinth_storage::lengths::Lengths;
use plinth_storage::namespaces::Namespaces;
use plinth_storage::Store;

use opening::{archivist, migrate, open_engine};
pub(super) use options::LoggingFormat;

pub use error::ServeError;
pub use options::ServeOptions;

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

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start; the error text is one line for users.
pub fn run(options: ServeOptions) -> Result<(), ServeError> {
    start_logging(options.verbosity, options.logging_format);
    let runtime = runtime()?;
    let served = runtime.block_on(serve(options));
    if served.as_ref().is_err_and(ServeError::is_storage_failure) {
        // Threads may be blocked by the disk.
        runtime.shutdown_background();
    }
    served
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

async fn serve(mut options: ServeOptions) -> Result<(), ServeError> {
    let signals =
        |kind| signal(kind).map_err(|source| ServeError::Io { what: "cannot handle signals", source });
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let delay = options.shutdown_delay_duration;
    let environment = |name: &str| std::env::var_os(name);
    let notifier = Notifier::of(environment)?;
    options.listener = inherited_listener(environment)?;
    let note = ready_note(&options);
    let running = start(options).await?;
    print_ready(&running, note);
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

/// Replicas that join with a token at once, each of which reads the whole store.
const JOINS_AT_ONCE: usize = 2;
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
            "Storage engine has failed and takes no more writes; the process ends with exit code {}. \
             No acknowledged write is lost. {}",
            super::STORAGE_FAILED,
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
        Failure::Journal { error: JournalError::Refused { .. } | JournalError::Behind { .. } } => {
            "Keep the data directories of all replicas: the journal is not what it was. If it cannot be restored, \
             make a backup of the replica that is furthest, restore it, and begin a new journal with \"plinth \
             replicate\""
        }
        Failure::Journal { .. } | Failure::Diverged { .. } => {
            "Start the server again: where the journal does not go back to what it has, it takes a checkpoint of \
             another replica. If it fails again, move its data directory away and run \"plinth join\""
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

/// Starts a server on a journal that the caller provides, in the place of the one that the options name; a
/// single store without one.
///
/// # Errors
/// As [`start`].
#[expect(clippy::too_many_lines, reason = "to be split into settings, storage, server and controllers")]
pub async fn start_on(mut options: ServeOptions, connect: Option<Connect>) -> Result<Running, ServeError> {
    for (flag, warning) in options.upstream.warnings()? {
        tracing::warn!("--{flag} is ignored: {warning}");
    }
    if connect.is_none() && options.checkpoints.checkpoint_dir.is_some() {
        return Err(ServeError::CheckpointsOfSingle);
    }
    let plugins = Arc::new(options.admission.admission()?);
    let kubelets = Kubelets::new(&options.kubelets).map_err(ServeError::Kubelets)?;
    // Listens before anything is written: starting a second server by mistake changes nothing.
    let cannot_listen = |source| ServeError::Io { what: "cannot listen", source };
    let listener = match options.listener.take() {
        Some(listener) => tokio::net::TcpListener::from_std(listener).map_err(cannot_listen)?,
        None => listener::bind(SocketAddr::new(options.bind_address(), options.secure_port))?,
    };
    let address = listener.local_addr().map_err(cannot_listen)?;
    let bind_address = address.ip();
    // Everything that can be rejected is, before anything is created.
    let mut dir = DataDir::open(&options.data_dir)?;
    private_files::narrow(dir.path())
        .map_err(|source| ServeError::Io { what: "cannot check the modes of the data directory", source })?;
    let pki = Pki::at(dir.path());
    pki.check(dir.stage())?;
    dir.continue_key()?;
    let services = Ranges {
        addresses: options.service_cluster_ip_range.clone(),
        node_ports: options.service_node_port_range.clone(),
    };
    let resolver = ServiceResolver {
        by_endpoints: options.aggregator.enable_aggregator_routing,
        own: Some(kubeconfig::reachable(address)),
    };
    let remote_apis = RemoteApis::new(&options.aggregator, resolver).map_err(ServeError::ProxyClient)?;
    let service_ip = services.first_address().unwrap_or(bind_address);
    let engine_options = Options::new(dir.store())
        .create(dir.stage() == Stage::New)
        .history_retention(Some(options.history_retention))
        .compaction_interval(options.compaction_interval)
        .on_warning(|warning| tracing::warn!(error = %warning, "Storage engine needs attention; \"plinth verify\" reports what is damaged"));
    let (engine, replica) =
        open_engine(&dir, engine_options, connect, options.checkpoints.checkpoint_dir.clone()).await?;
    for dropped in engine.dropped() {
        tracing::warn!(
            path = %dropped.path.display(),
            bytes = dropped.bytes,
            "dropped the end of a write-ahead log or of the MANIFEST that was written incompletely, as after a crash before a write was acknowledged"
        );
    }
    dir.making_keys()?;
    pki.ensure(&options.certificate_names(bind_address), service_ip)?;
    for rejected in pki.rejected() {
        tracing::warn!("{rejected}");
    }
    migrate(&engine).await?;
    // Where others find it; for an unspecified address, objects contain a suitable one.
    let advertised = SocketAddr::new(options.advertise_address.unwrap_or(address.ip()), address.port());
    let cert = options.tls.tls_cert_file.clone().unwrap_or_else(|| pki.serving_cert());
    let key = options.tls.tls_private_key_file.clone().unwrap_or_else(|| pki.serving_key());
    let certificates = Certificates::read(ServingCertificate::read(&cert, &key)?, &options.tls)?;
    let certificates = Arc::new(certificates);
    let tls = TlsAcceptor::from(Arc::new(options.tls.server_config(certificates.clone())?));
    let (stop, stopping) = watch::channel(false);
    let metrics = Metrics::new()?;
    let (flow_control, levels) = FlowControl::new(&options.flow_control, metrics.registry())?;
    let remote_waits = RemoteWaits::default();
    let encryption = Encryption::start(&options.encryption, &remote_waits).await?;
    let store = Store::new(engine, encryption);
    let authenticator = Authenticator::new(
        &options.authentication,
        authn::Dependencies {
            own_ca: &pki.ca_cert(),
            own_signing_key: &pki.service_account_key(),
            store: store.clone(),
            address: match &options.external_hostname {
                Some(host) => format!("{host}:{}", address.port()),
                None => advertised.to_string(),
            },
        },
    )?;
    let converter = Arc::new(Converter {
        store: store.clone(),
        webhooks: Arc::new(Webhooks::new(resolver)),
        header_index: Arc::new(HeaderIndex::default()),
        remote_waits,
    });
    let authority = read_text(pki.ca_cert())?.into_bytes();
    let source = replica.as_ref().map(|replica| {
        let (dir, store) = (dir.path().to_owned(), store.clone());
        let encryption = options.encryption.encryption_provider_config.clone();
        Arc::new(Source { dir, store, id: replica.id, authority, encryption })
    });
    let server = Arc::new(Server {
        replica: source.clone().map(|source| source as Arc<dyn ReplicaInfo>),
        authorizer: Arc::new(
            Authorizer::new(&options.authorization, store.clone())?.with_metrics(metrics.identity.clone()),
        ),
        store,
        namespaces: Namespaces::default(),
        tokens: ContinueTokens::new(&dir.continue_secret()?),
        counts: Counts::default(),
        admission: plugins.clone(),
        kind_handler: kind_handlers::of,
        kubelets,
        remote_apis,
        converter,
        producers: Arc::default(),
        blocked_threads: BlockedThreads::default(),
        list_sizes: ListSizeCache::default(),
        lengths: Lengths::default(),
        authenticator: Arc::new(authenticator),
        audit: Audit::start(&options.audit, metrics.registry())?,
        flow_control,
        error_log: ErrorLog::default(),
        large_requests: Limiter::default(),
        discovery: DiscoveryDocuments::default(),
        openapi: OpenApiDocuments::default(),
        metrics,
        services,
        joining: Arc::new(Semaphore::new(JOINS_AT_ONCE)),
        limits: Limits {
            min_watch_seconds: options.min_request_timeout,
            event_ttl: options.event_ttl,
            ..Limits::default()
        },
        has_registered_apis: AtomicBool::new(false),
        flags: options.flags.values(),
        is_draining: AtomicBool::new(false),
        stopping: stopping.clone(),
        tasks: TaskTracker::new(),
    });
    let follower = server.clone();
    server.spawn(async move { follower.authenticator.watch_bound_objects().await });
    controllers::token_use::start(&server);
    let mut watched =
        authn::watched_files(&server.authenticator, &options.authentication, &server.metrics.reloads);
    let metrics = &server.metrics.reloads;
    watched.extend(authz::watched_files(&server.authorizer, &options.authorization, metrics));
    watched
        .push(WatchedFiles::new("serving certificates", certificates.files(), move || certificates.reload()));
    let proxying = server.clone();
    watched.push(WatchedFiles::new("proxy client certificate", server.remote_apis.files(), move || {
        proxying.remote_apis.reload()
    }));
    server.spawn(reload::watch_files(watched));
    controllers::definitions::start(&server).await?;
    controllers::remote_apis::start(&server).await?;
    if let Some(Replica { journal, id, .. }) = &replica {
        let (server, journal, id, dir) = (server.clone(), journal.clone(), *id, dir.path().to_owned());
        Membership { server, journal, id, address: advertised, dir }.start();
    }
    let is_first_start = dir.stage() == Stage::New;
    let tolerate = |what, outcome| bootstrap::tolerate(&server, is_first_start, what, outcome);
    tolerate("a system namespace", ensure_system_namespaces(&server).await)?;
    let has_classes_and_roles =
        tolerate("a priority class or role", ensure_classes_and_roles(&server).await)?;
    if let Some(levels) = levels {
        let started = controllers::flow_control::start(&server, levels).await;
        tolerate("an object of priority and fairness", started)?;
    }
    let before = server.store.engine().current_revision();
    let is_restored =
        tolerate("an allocation of a Service", controllers::allocations::restore(&server).await)?;
    controllers::allocations::start(&server, is_restored.then_some(before));
    tolerate("Service default/kubernetes", ensure_kubernetes_service(&server, advertised).await)?;
    tolerate("an APIService", controllers::api_services::start(&server).await)?;
    // Also with one that is damaged, which the controller goes on trying.
    server.has_registered_apis.store(true, Ordering::Relaxed);
    let tracking = ensure_token_tracking(&server).await;
    tolerate("the ConfigMap that tracks tokens of Secrets", tracking)?;
    tolerate("ServiceCIDR kubernetes", ensure_service_cidr(&server).await)?;
    let trust = options.authentication.trust(&pki.ca_cert());
    let trusted = ensure_trust(&server, &trust).await;
    tolerate("ConfigMap kube-system/extension-apiserver-authentication", trusted)?;
    bootstrap::start_reconciler(&server, advertised, trust, has_classes_and_roles);
    let root_ca = read_text(pki.ca_cert())?;
    let signing = controllers::SigningOptions {
        certificate: options.cluster_signing_cert_file.clone().unwrap_or_else(|| pki.ca_cert()),
        key: options.cluster_signing_key_file.clone().unwrap_or_else(|| pki.ca_key()),
        lifetime: options.cluster_signing_duration,
    };
    let settings = controllers::Settings {
        controllers: options.controllers.clone(),
        root_ca,
        plugins,
        signing,
        unused_tokens: options.legacy_service_account_token_clean_up_period,
    };
    match &replica {
        None => drop(controllers::start(&server, &settings)),
        Some(replica) => {
            let controlled = server.clone();
            let archivist = archivist(&server, replica, source, &options.checkpoints);
            controller_lease::start(&server, replica.id, move || {
                let mut tasks = controllers::start(&controlled, &settings);
                tasks.extend(archivist.as_ref().map(Archivist::start));
                tasks
            });
        }
    }
    let lease = host_name().map(|host| IdentityLease::new(&host, replica.as_ref().map(|replica| replica.id)));
    if let Some(lease) = &lease {
        lease.start(&server);
    }
    write_kubeconfig(&dir, &pki, address)?;
    dir.complete()?;
    backups::start(&server, options.backups);
    let kubeconfig = dir.admin_kubeconfig();
    let serving = tokio::spawn(listener::serve(listener, tls, server.clone(), options.http, stopping));
    let replica = replica.map(|replica| replica.id);
    Ok(Running { address, kubeconfig, stop, serving, server, replica, lease, _dir: dir })
}

/// The name of this machine; none, with a line in the log, where the system does not say.
fn host_name() -> Option<String> {
    const FILE: &str = "/proc/sys/kernel/hostname";
    match std::fs::read_to_string(FILE) {
        Ok(name) => Some(name.trim().to_owned()).filter(|name| !name.is_empty()),
        Err(error) => {
            tracing::warn!(path = FILE, %error, "the host name is unknown; this server has no identity Lease");
            None
        }
    }
}

fn read_text(path: PathBuf) -> Result<String, PkiError> {
    std::fs::read_to_string(&path).map_err(|source| PkiError::File { path, source })
}

fn write_kubeconfig(dir: &DataDir, pki: &Pki, address: SocketAddr) -> Result<(), ServeError> {
    let url = format!("https://{}", kubeconfig::reachable(address));
    let text = kubeconfig::render(
        &url,
        "kubernetes-admin",
        &read_text(pki.ca_cert())?,
        &read_text(pki.admin_cert())?,
        &read_text(pki.admin_key())?,
    );
    let path = dir.admin_kubeconfig();
    // Additions of users (a namespace, other clusters) are kept as long as the file refers to this server.
    if std::fs::read_to_string(&path).is_ok_and(|present| kubeconfig::is_equivalent(&present, &text)) {
        return Ok(());
    }
    pki::write_secret(&path, &text)?;
    Ok(())
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
