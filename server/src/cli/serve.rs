//! `plinth serve`.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, FromArgMatches, ValueEnum};
use ipnet::IpNet;
use plinth_engine::{Engine, Options};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::upstream::{UpstreamFlagError, UpstreamFlags};
use crate::admission::options::BadPlugins;
use crate::admission::AdmissionOptions;
use crate::api_services;
use crate::bootstrap::pki::{self, Pki, PkiError};
use crate::bootstrap::{
    self, ensure_classes_and_roles, ensure_kubernetes_service, ensure_service_cidr, ensure_system_namespaces,
    ensure_token_tracking, ensure_trust, kubeconfig, DataDir, DataDirError, Stage,
};
use crate::controllers::{self, Controllers};
use plinth_api::api_error::ApiError;
use plinth_apiserver::audit::{Audit, AuditError, AuditOptions};
use plinth_apiserver::authn::{self, AuthenticationOptions, Authenticator};
use plinth_apiserver::authz::{self, AuthorizationOptions, Authorizer};
use plinth_apiserver::context::{Limits, Server};
use plinth_apiserver::custom_resources::Presenter;
use plinth_apiserver::error_log::ErrorLog;
use plinth_apiserver::flags::duration;
use plinth_apiserver::flow_control::{FlowControl, FlowControlOptions};
use plinth_apiserver::heavy::Places;
use plinth_apiserver::kind_handlers;
use plinth_apiserver::listener::{self, BindError};
use plinth_apiserver::metrics::Metrics;
use plinth_apiserver::outward::kubelets::{KubeletOptions, Kubelets};
use plinth_apiserver::outward::Webhooks;
use plinth_apiserver::private_files;
use plinth_apiserver::published::{Discovered, Documents};
use plinth_apiserver::reload::{self, Watched};
use plinth_apiserver::representation::ledger::Ledger;
use plinth_apiserver::service_ranges::Ranges;
use plinth_http::chunks::BlockedThreads;
use plinth_http::options::HttpOptions;
use plinth_http::pull::RemoteWaits;
use plinth_http::serving::{Certificates, TlsOptions};
use plinth_http::tls::{ServingCertificate, TlsError};
use plinth_registry::Registry;
use plinth_storage::continue_token::ContinueTokens;
use plinth_storage::counts::Counts;
use plinth_storage::encryption::{ConfigError, Encryption, EncryptionOptions};
use plinth_storage::heads::Heads;
use plinth_storage::layout;
use plinth_storage::lengths::Lengths;
use plinth_storage::namespaces::Namespaces;
use plinth_storage::Store;

/// Stack of the threads that parse and write objects, in bytes: an object may be nested 10,000 levels deep, and
/// address space that is not touched costs nothing.
const THREAD_STACK: usize = 32 << 20;
/// Threads that may block on the disk at once.
const BLOCKING_THREADS: usize = 64;
/// Steps of requests after which a busy thread looks for what has come in: a look costs a microsecond, a step up to a hundred, and
/// who has just asked should not wait for sixty of others (the runtime's own choice).
const STEPS_BETWEEN_EVENTS: u32 = 8;
/// How long an idle blocking thread stays.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(5);

/// Options of `plinth serve`. Flags that kube-apiserver also has keep its names and meanings.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  plinth serve --data-dir ./data\n  plinth serve --data-dir /var/lib/plinth --bind-address 0.0.0.0 --history-retention 1h\n\nThe first start makes certificates, keys and DATA_DIR/admin.kubeconfig. SIGTERM stops the server cleanly.\nFlags of kube-apiserver that are not listed are taken, too, or refused with the reason."
)]
pub struct ServeOptions {
    /// Directory of all data; made when it is not there
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Address to listen on; 127.0.0.1 when not given, all addresses with --advertise-address
    #[arg(long, value_name = "IP")]
    pub bind_address: Option<IpAddr>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    pub secure_port: u16,
    /// How long history can be read and watched
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = duration)]
    pub history_retention: Duration,
    /// How often history past its retention is removed
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration)]
    pub compaction_interval: Duration,
    /// How long Events are kept
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    pub event_ttl: Duration,
    /// Address at which others reach this server: its endpoint in the Service kubernetes, and in its certificate
    #[arg(long, value_name = "IP")]
    pub advertise_address: Option<IpAddr>,
    /// Host in URLs of this server in documents; the advertised address when not given
    #[arg(long, value_name = "HOST")]
    pub external_hostname: Option<String>,
    /// How connections are encrypted
    #[command(flatten, next_help_heading = "TLS")]
    pub tls: TlsOptions,
    /// Range of cluster IP addresses; two ranges, one of each family, for dual stack
    #[arg(long, default_value = "10.0.0.0/24", value_name = "CIDR", value_delimiter = ',', num_args = 1..=2)]
    pub service_cluster_ip_range: Vec<IpNet>,
    /// Ports that Services of type NodePort get
    #[arg(long, default_value = "30000-32767", value_name = "FIRST-LAST", value_parser = port_range)]
    pub service_node_port_range: RangeInclusive<u16>,
    /// The least that a watch without timeoutSeconds lasts, in seconds
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    pub min_request_timeout: u64,
    /// How many requests are served at once.
    #[command(flatten)]
    pub flow_control: FlowControlOptions,
    /// How many connections and streams there may be.
    #[command(flatten)]
    pub http: HttpOptions,
    /// What is recorded of requests.
    #[command(flatten)]
    pub audit: AuditOptions,
    /// What is encrypted on disk.
    #[command(flatten)]
    pub encryption: EncryptionOptions,
    /// Controllers to run, as in kube-controller-manager: * is all, name is on, -name is off. One that runs
    /// elsewhere is switched off here
    #[arg(long, default_value = "*", value_name = "LIST", allow_hyphen_values = true)]
    pub controllers: Controllers,
    /// The way to kubelets
    #[command(flatten, next_help_heading = "Kubelets")]
    pub kubelets: KubeletOptions,
    /// Admission plugins
    #[command(flatten, next_help_heading = "Admission")]
    pub admission: AdmissionOptions,
    /// Authority that signs CertificateSigningRequests, PEM; the server's own when not given
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// The longest life of the certificates that it signs
    #[arg(long, default_value = "8760h", value_name = "DURATION", value_parser = duration)]
    pub cluster_signing_duration: Duration,
    /// How long tokens in Secrets that were made for their accounts by themselves may be unused before they are marked as invalid, and
    /// as long again before they are deleted
    #[arg(long, default_value = "8760h", value_name = "DURATION", value_parser = duration)]
    pub legacy_service_account_token_clean_up_period: Duration,
    /// Credentials that are known
    #[command(flatten, next_help_heading = "Authentication")]
    pub authentication: AuthenticationOptions,
    /// Who may do what
    #[command(flatten, next_help_heading = "Authorization")]
    pub authorization: AuthorizationOptions,
    /// Form of the logs on standard error
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub logging_format: LoggingFormat,
    /// Flags of kube-apiserver for which there is nothing to set.
    #[command(flatten)]
    pub upstream: UpstreamFlags,
    /// How much is logged: 0 warnings, 1 information, 2 and more details
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub verbosity: u8,
}

/// `--logging-format`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LoggingFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `30000-32767`, as in kube-apiserver's flag.
fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let ends = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match ends {
        Some((first, last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err(format!("{text:?} is not a range of ports like 30000-32767")),
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ServeError {
    #[error(transparent)]
    Flag(#[from] UpstreamFlagError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("cannot open the store: {0}{remedy}", remedy = super::store::remedy(.0))]
    Engine(#[from] plinth_engine::Error),
    #[error("cannot move custom resources to keys of their own: {0}; nothing is lost, and the next start goes on. If a record is damaged, \
             run `plinth verify` and restore a backup")]
    Layout(#[source] plinth_engine::Error),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("authorization: {0}")]
    Authorization(#[from] authz::config::SetupError),
    #[error("authentication: {0}")]
    Authentication(#[from] authn::SetupError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot create the objects that every cluster has: {0}")]
    Bootstrap(#[from] ApiError),
    #[error(transparent)]
    Admission(#[from] BadPlugins),
    #[error("TLS towards kubelets: {0}")]
    Kubelets(#[source] TlsError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("encryption at rest: {0}")]
    Encryption(#[from] ConfigError),
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// Logged when it happened.
    #[error("the storage engine has failed: {0}")]
    StorageFailed(plinth_engine::Failure),
    #[error("the storage failed while the server stopped: {0}\nNo acknowledged write is lost. Check the disk and the kernel's log, then start \
             the server again; if it does not start, run plinth verify")]
    Close(#[source] plinth_engine::Error),
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
}

impl ServeError {
    /// Whether the storage of a server that ran has failed.
    pub fn is_storage_failure(&self) -> bool {
        matches!(self, ServeError::StorageFailed(_) | ServeError::Close(_))
    }
}

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start; the text is one line for people.
pub fn run(options: ServeOptions) -> Result<(), ServeError> {
    start_logging(&options);
    let runtime = runtime()?;
    let served = runtime.block_on(serve(options));
    if served.as_ref().is_err_and(ServeError::is_storage_failure) {
        // The disk may keep threads for as long as it likes.
        runtime.shutdown_background();
    }
    served
}

/// A runtime that a server can live in: its threads have the stack that deeply nested objects need.
///
/// # Errors
/// When the system has no threads to give.
pub fn runtime() -> Result<tokio::runtime::Runtime, ServeError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(THREAD_STACK)
        .event_interval(STEPS_BETWEEN_EVENTS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(BLOCKING_THREAD_IDLE)
        .build()
        .map_err(|source| ServeError::Io { what: "cannot start the runtime", source })
}

impl ServeOptions {
    /// Options from arguments as on the command line, without the name of a program.
    ///
    /// # Errors
    /// When an argument is unknown, missing or of no use; the text is for people.
    pub fn from_arguments<I, T>(arguments: I) -> Result<ServeOptions, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let command = ServeOptions::augment_args(clap::Command::new("plinth serve").no_binary_name(true));
        ServeOptions::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }
}

impl ServeOptions {
    /// Where to listen. Nobody else reaches this server unless a flag says that others do.
    fn bind_address(&self) -> IpAddr {
        self.bind_address.unwrap_or(match self.advertise_address {
            None => IpAddr::from(Ipv4Addr::LOCALHOST),
            Some(IpAddr::V4(_)) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Some(IpAddr::V6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        })
    }
}

fn start_logging(options: &ServeOptions) {
    use tracing::level_filters::LevelFilter;
    let level = match options.verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Colours are for people at a terminal, not for files and journals.
    let colours = std::io::stderr().is_terminal();
    let logs =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colours).with_max_level(level);
    // An embedding program may have its own subscriber; then that one stays.
    let _ = match options.logging_format {
        LoggingFormat::Text => logs.try_init(),
        LoggingFormat::Json => logs.json().try_init(),
    };
}

async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let signals =
        |kind| signal(kind).map_err(|source| ServeError::Io { what: "cannot handle signals", source });
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let running = start(options).await?;
    say_ready(&running);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        failure = running.failed() => {
            running.give_up(&failure).await;
            return Err(ServeError::StorageFailed(failure));
        }
    }
    running.stop().await
}

/// How long the tasks beside the requests may take to end.
const END_OF_TASKS: Duration = Duration::from_secs(5);
/// How long a server whose storage has failed goes on to answer: long enough for the answers to writes
/// under way, and for a probe to see that it is unhealthy.
const ANSWER_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long it takes its leave of its clients afterwards.
const STOP_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A server that is ready, within this process. Dropped, it goes on until the runtime ends, and then stops as if killed:
/// nothing that was acknowledged is lost.
pub struct Running {
    address: SocketAddr,
    kubeconfig: PathBuf,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
    server: Arc<Server>,
    /// Held for its lock on the directory.
    _dir: DataDir,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file by which clients reach it as the administrator.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Waits until the storage engine has failed for good. The server then refuses writes and reports
    /// itself unhealthy; the process should end and be started again.
    pub async fn failed(&self) -> plinth_engine::Failure {
        self.server.store.engine().failed().await
    }

    /// Logs the failure and what to do, and answers what is under way. The store is not closed: it must
    /// not be written to any more.
    async fn give_up(self, failure: &plinth_engine::Failure) {
        tracing::error!(
            error = %failure,
            "Storage engine has failed and takes no more writes; the process ends with exit code {}. \
             No acknowledged write is lost. Check the disk and the kernel's log, then start the server again; \
             if it does not start, run \"plinth verify\"",
            super::STORAGE_FAILED,
        );
        tokio::time::sleep(ANSWER_AFTER_FAILURE).await;
        // Nobody listening any more is no error: then the listener has ended already.
        let _ = self.stop.send(true);
        let leave = async {
            // The listener's own end says nothing that matters now.
            let _ = self.serving.await;
            self.server.audit.drain().await;
        };
        // Whoever has not taken leave by then is cut off.
        let _ = tokio::time::timeout(STOP_AFTER_FAILURE, leave).await;
    }

    /// Stops it: what is under way ends, the store is closed.
    ///
    /// # Errors
    /// [`ServeError::Close`] when the storage fails.
    pub async fn stop(self) -> Result<(), ServeError> {
        // Nobody listening any more is no error: then the listener has ended already.
        let _ = self.stop.send(true);
        if let Err(error) = self.serving.await {
            tracing::error!(%error, "the listener failed");
        }
        self.server.tasks.close();
        // None of them blocks, so they end at their next await. One that does not meets a closed store, which it can bear.
        let _ = tokio::time::timeout(END_OF_TASKS, self.server.tasks.wait()).await;
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

/// Starts a server in the [`runtime`] that this is called in; it is ready when this returns.
///
/// # Errors
/// When it cannot start; the text is one line for people.
pub async fn start(options: ServeOptions) -> Result<Running, ServeError> {
    for (flag, remark) in options.upstream.remarks()? {
        tracing::warn!("--{flag} is not followed: {remark}");
    }
    let plugins = Arc::new(options.admission.admission()?);
    let kubelets = Kubelets::new(&options.kubelets).map_err(ServeError::Kubelets)?;
    // The port before anything is written: who starts a second server by mistake leaves nothing behind.
    let bind_address = options.bind_address();
    let listener = listener::bind(SocketAddr::new(bind_address, options.secure_port))?;
    let address = listener.local_addr().map_err(|source| ServeError::Io { what: "cannot listen", source })?;
    // All that can be refused is, before anything is made.
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
    let served: Vec<IpAddr> = [bind_address].into_iter().chain(options.advertise_address).collect();
    let engine = Engine::open(
        Options::new(dir.store())
            .create(dir.stage() == Stage::New)
            .history_retention(Some(options.history_retention))
            .compaction_interval(options.compaction_interval)
            .on_warning(|warning| tracing::warn!(error = %warning, "Storage engine needs attention; \"plinth verify\" says what is damaged")),
    )?;
    for dropped in engine.dropped() {
        tracing::warn!(
            path = %dropped.path.display(),
            bytes = dropped.bytes,
            "dropped the end of a write-ahead log or of the MANIFEST that was not written whole, as a crash leaves it before a write is acknowledged"
        );
    }
    dir.making_keys()?;
    pki.ensure(&served, service_ip)?;
    for unaccepted in pki.unaccepted() {
        tracing::warn!("{unaccepted}");
    }
    migrate(&engine).await?;
    // Where others find it; of an address that is any, objects say what fits.
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
        authn::Foundation {
            own_ca: &pki.ca_cert(),
            own_signing_key: &pki.service_account_key(),
            store: store.clone(),
            address: match &options.external_hostname {
                Some(host) => format!("{host}:{}", address.port()),
                None => advertised.to_string(),
            },
        },
    )?;
    let presenter = Arc::new(Presenter {
        store: store.clone(),
        webhooks: Arc::new(Webhooks::default()),
        heads: Arc::new(Heads::default()),
        remote_waits,
    });
    let server = Arc::new(Server {
        authorizer: Arc::new(Authorizer::new(&options.authorization, store.clone())?),
        store,
        namespaces: Namespaces::default(),
        tokens: ContinueTokens::new(&dir.continue_secret()?),
        counts: Counts::default(),
        admission: plugins.clone(),
        kind_handler: kind_handlers::of,
        kubelets,
        presenter,
        producers: Arc::default(),
        blocked_threads: BlockedThreads::default(),
        ledger: Ledger::default(),
        lengths: Lengths::default(),
        authenticator: Arc::new(authenticator),
        audit: Audit::start(&options.audit, metrics.registry())?,
        flow_control,
        error_log: ErrorLog::default(),
        heavy: Places::default(),
        discovered: Discovered::default(),
        documents: Documents::default(),
        metrics,
        services,
        limits: Limits {
            min_watch_seconds: options.min_request_timeout,
            event_ttl: options.event_ttl,
            ..Limits::default()
        },
        stopping: stopping.clone(),
        tasks: TaskTracker::new(),
    });
    let follower = server.clone();
    server.spawn(async move { follower.authenticator.follow().await });
    server.spawn(controllers::token_use::run(server.clone()));
    let mut watched = authn::watched(&server.authenticator, &options.authentication);
    watched.extend(authz::watched(&server.authorizer, &options.authorization));
    watched.push(Watched::new("serving certificates", certificates.files(), move || certificates.reload()));
    server.spawn(reload::follow(watched));
    controllers::definitions::start(&server).await?;
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
    server.spawn(controllers::allocations::run(server.clone(), is_restored.then_some(before)));
    tolerate("Service default/kubernetes", ensure_kubernetes_service(&server, advertised).await)?;
    api_services::start(&server);
    let tracking = ensure_token_tracking(&server).await;
    tolerate("the ConfigMap that tracks tokens of Secrets", tracking)?;
    tolerate("ServiceCIDR kubernetes", ensure_service_cidr(&server).await)?;
    let trust = options.authentication.trust(&pki.ca_cert());
    let trusted = ensure_trust(&server, &trust).await;
    tolerate("ConfigMap kube-system/extension-apiserver-authentication", trusted)?;
    server.spawn(bootstrap::keep(server.clone(), advertised, trust, has_classes_and_roles));
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
    controllers::start(&server, &settings);
    write_kubeconfig(&dir, &pki, address)?;
    dir.complete()?;
    let kubeconfig = dir.admin_kubeconfig();
    let serving = tokio::spawn(listener::serve(listener, tls, server.clone(), options.http, stopping));
    Ok(Running { address, kubeconfig, stop, serving, server, _dir: dir })
}

/// Gives the store the present layout of keys, before anything reads it.
async fn migrate(engine: &Engine) -> Result<(), ServeError> {
    let store = engine.clone();
    let migrated = tokio::task::spawn_blocking(move || layout::migrate(&store, &Registry::builtin())).await;
    let moved = migrated
        .map_err(|error| ServeError::Io {
            what: "cannot move custom resources to keys of their own",
            source: std::io::Error::other(error),
        })?
        .map_err(ServeError::Layout)?;
    if moved.objects > 0 {
        let (objects, among_builtin) = (moved.objects, moved.among_builtin);
        tracing::warn!(
            objects,
            among_builtin,
            "custom resources were moved to keys of their own; watches and continue tokens from before are answered with 410"
        );
    }
    Ok(())
}

fn read_text(path: PathBuf) -> Result<String, PkiError> {
    std::fs::read_to_string(&path).map_err(|source| PkiError::File { path, source })
}

fn write_kubeconfig(dir: &DataDir, pki: &Pki, address: SocketAddr) -> Result<(), ServeError> {
    // Clients cannot connect to "any address".
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1]),
    };
    let url = format!("https://{}", SocketAddr::new(ip, address.port()));
    let text = kubeconfig::render(
        &url,
        "kubernetes-admin",
        &read_text(pki.ca_cert())?,
        &read_text(pki.admin_cert())?,
        &read_text(pki.admin_key())?,
    );
    let path = dir.admin_kubeconfig();
    // What people add to it (a namespace, other clusters) stays as long as it leads here.
    if std::fs::read_to_string(&path).is_ok_and(|present| kubeconfig::says_the_same(&present, &text)) {
        return Ok(());
    }
    pki::write_secret(&path, &text)?;
    Ok(())
}

fn say_ready(running: &Running) {
    println!("plinth {} is ready on https://{}", env!("CARGO_PKG_VERSION"), running.address());
    println!("  export KUBECONFIG={}", running.kubeconfig().display());
}
