//! `plinth serve`.

mod backups;
mod options;

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_engine::{Engine, Options, Replica};
use plinth_journal::record::ReplicaId;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::service_manager::{inherited_listener, Notifier, ServiceManagerError};
use super::upstream::UpstreamFlagError;
use crate::admission::options::BadPlugins;
use crate::bootstrap::identity::{Identity, IdentityError};
use crate::bootstrap::pki::{self, Pki, PkiError};
use crate::bootstrap::{
    self, ensure_classes_and_roles, ensure_kubernetes_service, ensure_service_cidr, ensure_system_namespaces,
    ensure_token_tracking, ensure_trust, kubeconfig, DataDir, DataDirError, Stage,
};
use crate::controllers;
use crate::replica::checkpoint::{self, Source};
use crate::replica::controller_lease;
use crate::replica::journal::{Connect, JournalOptionsError};
use crate::replica::members::{self, Membership};
use plinth_api::api_error::ApiError;
use plinth_apiserver::audit::{Audit, AuditError};
use plinth_apiserver::authn::{self, Authenticator};
use plinth_apiserver::authz::{self, Authorizer};
use plinth_apiserver::context::{Limits, ReplicaInfo, Server};
use plinth_apiserver::custom_resources::Converter;
use plinth_apiserver::documents::{DiscoveryDocuments, OpenApiDocuments};
use plinth_apiserver::egress::kubelets::Kubelets;
use plinth_apiserver::egress::Webhooks;
use plinth_apiserver::error_log::ErrorLog;
use plinth_apiserver::flow_control::FlowControl;
use plinth_apiserver::kind_handlers;
use plinth_apiserver::large_requests::Limiter;
use plinth_apiserver::listener::{self, BindError};
use plinth_apiserver::metrics::Metrics;
use plinth_apiserver::private_files;
use plinth_apiserver::reload::{self, WatchedFiles};
use plinth_apiserver::representation::list_size_cache::ListSizeCache;
use plinth_apiserver::service_ranges::Ranges;
use plinth_http::chunks::BlockedThreads;
use plinth_http::pull::RemoteWaits;
use plinth_http::serving::Certificates;
use plinth_http::tls::{ServingCertificate, TlsError};
use plinth_registry::Registry;
use plinth_storage::continue_token::ContinueTokens;
use plinth_storage::counts::Counts;
use plinth_storage::encryption::{ConfigError, Encryption};
use plinth_storage::header_index::HeaderIndex;
use plinth_storage::layout;
use plinth_storage::lengths::Lengths;
use plinth_storage::namespaces::Namespaces;
use plinth_storage::Store;

use options::LoggingFormat;

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

/// The server did not start, or failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ServeError {
    #[error(transparent)]
    Flag(#[from] UpstreamFlagError),
    #[error(transparent)]
    ServiceManager(#[from] ServiceManagerError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    JournalOptions(#[from] JournalOptionsError),
    #[error("--journal: {0}")]
    Journal(#[source] plinth_journal::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot open the store: {0}{remedy}", remedy = super::store::remedy(.0))]
    Engine(#[from] plinth_engine::Error),
    #[error("cannot move custom resources to their own keys: {0}; nothing is lost, and the next start continues. If a record is damaged, \
             run `plinth verify` and restore a backup")]
    Layout(#[source] plinth_engine::Error),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("authorization: {0}")]
    Authorization(#[from] authz::config::AuthorizationSetupError),
    #[error("authentication: {0}")]
    Authentication(#[from] authn::AuthenticationSetupError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot create the system objects: {0}")]
    Bootstrap(#[from] ApiError),
    #[error(transparent)]
    Admission(#[from] BadPlugins),
    #[error("TLS to kubelets: {0}")]
    Kubelets(#[source] TlsError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("encryption at rest: {0}")]
    Encryption(#[from] ConfigError),
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// Logged when it occurred.
    #[error("the storage engine has failed: {0}")]
    StorageFailed(plinth_engine::Failure),
    #[error("the storage failed while the server stopped: {0}\nNo acknowledged write is lost. Check the disk and the kernel's log, then start \
             the server again; if it does not start, run plinth verify")]
    Close(#[source] plinth_engine::Error),
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
}

impl ServeError {
    /// Whether the storage of a running server has failed.
    pub fn is_storage_failure(&self) -> bool {
        matches!(self, ServeError::StorageFailed(_) | ServeError::Close(_))
    }
}

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start; the error text is one line for users.
pub fn run(options: ServeOptions) -> Result<(), ServeError> {
    start_logging(&options);
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

fn start_logging(options: &ServeOptions) {
    use tracing::level_filters::LevelFilter;
    let level = match options.verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Colors only on a terminal.
    let colours = std::io::stderr().is_terminal();
    let logs =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colours).with_max_level(level);
    // An embedding program may have its own subscriber, which is kept then.
    let _ = match options.logging_format {
        LoggingFormat::Text => logs.try_init(),
        LoggingFormat::Json => logs.json().try_init(),
    };
}

async fn serve(mut options: ServeOptions) -> Result<(), ServeError> {
    let signals =
        |kind| signal(kind).map_err(|source| ServeError::Io { what: "cannot handle signals", source });
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
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
    running.stop().await
}

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
    match failure {
        Failure::Superseded { .. } => {
            "Stop one of the two processes; a replica on another machine is made with \"plinth join\", not by a \
             copy of a data directory"
        }
        Failure::Journal { .. } | Failure::Diverged { .. } => {
            "Start the server again; if it fails again, remove its data directory and run \"plinth join\", which \
             copies another replica"
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
pub async fn start_on(mut options: ServeOptions, connect: Option<Connect>) -> Result<Running, ServeError> {
    for (flag, warning) in options.upstream.warnings()? {
        tracing::warn!("--{flag} is ignored: {warning}");
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
    let service_ip = services.first_address().unwrap_or(bind_address);
    let engine_options = Options::new(dir.store())
        .create(dir.stage() == Stage::New)
        .history_retention(Some(options.history_retention))
        .compaction_interval(options.compaction_interval)
        .on_warning(|warning| tracing::warn!(error = %warning, "Storage engine needs attention; \"plinth verify\" reports what is damaged"));
    let (engine, replica) = open_engine(&dir, engine_options, connect).await?;
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
        webhooks: Arc::new(Webhooks::default()),
        header_index: Arc::new(HeaderIndex::default()),
        remote_waits,
    });
    let replica_info = replica.as_ref().map(|replica| {
        let (dir, store) = (dir.path().to_owned(), store.clone());
        Arc::new(Source { dir, store, id: replica.id }) as Arc<dyn ReplicaInfo>
    });
    let server = Arc::new(Server {
        replica: replica_info,
        authorizer: Arc::new(Authorizer::new(&options.authorization, store.clone())?),
        store,
        namespaces: Namespaces::default(),
        tokens: ContinueTokens::new(&dir.continue_secret()?),
        counts: Counts::default(),
        admission: plugins.clone(),
        kind_handler: kind_handlers::of,
        kubelets,
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
        limits: Limits {
            min_watch_seconds: options.min_request_timeout,
            event_ttl: options.event_ttl,
            ..Limits::default()
        },
        has_registered_apis: AtomicBool::new(false),
        stopping: stopping.clone(),
        tasks: TaskTracker::new(),
    });
    let follower = server.clone();
    server.spawn(async move { follower.authenticator.watch_bound_objects().await });
    controllers::token_use::start(&server);
    let mut watched = authn::watched_files(&server.authenticator, &options.authentication);
    watched.extend(authz::watched_files(&server.authorizer, &options.authorization));
    watched
        .push(WatchedFiles::new("serving certificates", certificates.files(), move || certificates.reload()));
    server.spawn(reload::watch_files(watched));
    controllers::definitions::start(&server).await?;
    if let Some(Replica { journal, id, .. }) = &replica {
        let (server, journal, id) = (server.clone(), journal.clone(), *id);
        Membership { server, journal, id, address: advertised }.start();
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
            controller_lease::start(&server, replica.id, move || controllers::start(&controlled, &settings));
        }
    }
    write_kubeconfig(&dir, &pki, address)?;
    dir.complete()?;
    backups::start(&server, options.backups);
    let kubeconfig = dir.admin_kubeconfig();
    let serving = tokio::spawn(listener::serve(listener, tls, server.clone(), options.http, stopping));
    let replica = replica.map(|replica| replica.id);
    Ok(Running { address, kubeconfig, stop, serving, server, replica, _dir: dir })
}

/// Opens the store: a single one, or that of a replica, and what replica it is.
async fn open_engine(
    dir: &DataDir,
    options: Options,
    connect: Option<Connect>,
) -> Result<(Engine, Option<Replica>), ServeError> {
    let Some(connect) = connect else {
        Identity::check_none(dir)?;
        return Ok((Engine::open(options)?, None));
    };
    let Identity { cluster, id } = Identity::of(dir)?;
    checkpoint::remove_leftovers(dir.path())
        .map_err(|source| ServeError::Io { what: "cannot remove checkpoints of an earlier start", source })?;
    let open = move || {
        let journal = connect(cluster).map_err(ServeError::Journal)?;
        let replica = Replica { journal, cluster, id };
        Ok((Engine::open_replicated(options, replica.clone())?, Some(replica)))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|error| ServeError::Io {
        what: "cannot open the store",
        source: std::io::Error::other(error),
    })?
}

/// Migrates the store to the current layout of keys, before anything reads it.
async fn migrate(engine: &Engine) -> Result<(), ServeError> {
    let store = engine.clone();
    let migrated = tokio::task::spawn_blocking(move || layout::migrate(&store, &Registry::builtin())).await;
    let moved = migrated
        .map_err(|error| ServeError::Io {
            what: "cannot move custom resources to their own keys",
            source: std::io::Error::other(error),
        })?
        .map_err(ServeError::Layout)?;
    if moved.objects > 0 {
        let (objects, among_builtin) = (moved.objects, moved.among_builtin);
        tracing::warn!(
            objects,
            among_builtin,
            "custom resources were moved to their own keys; older watches and continue tokens are answered with 410"
        );
    }
    Ok(())
}

fn read_text(path: PathBuf) -> Result<String, PkiError> {
    std::fs::read_to_string(&path).map_err(|source| PkiError::File { path, source })
}

fn write_kubeconfig(dir: &DataDir, pki: &Pki, address: SocketAddr) -> Result<(), ServeError> {
    let url = format!("https://{}", reachable(address));
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

/// An address that local clients can connect to, which they cannot to an unspecified one.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1]),
    };
    SocketAddr::new(ip, address.port())
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
    println!("plinth {} is ready on https://{}", env!("CARGO_PKG_VERSION"), reachable(running.address()));
    println!("  export KUBECONFIG={}", running.kubeconfig().display());
    if let Some(note) = note {
        println!("{note}");
    }
}
