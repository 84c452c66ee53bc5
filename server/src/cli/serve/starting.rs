//! The start of a server, step by step: settings, directory, store, server, objects, controllers.
//!
//! Everything that can be refused is, before anything is created.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use plinth_engine::{Engine, Options, Replica};
use tokio::net::TcpListener;
use tokio::sync::{watch, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::opening::{checkpoint_writer, migrate, open_engine};
use super::{backups, Running, ServeError, ServeOptions};
use crate::admission::Plugins;
use crate::archives::ArchiveLocation;
use crate::bootstrap::files::exists;
use crate::bootstrap::pki::{self, Pki, PkiError};
use crate::bootstrap::{kubeconfig, DataDir, Stage};
use crate::controllers;
use crate::controllers::identity_lease::IdentityLease;
use crate::controllers::system_objects::{
    self, ensure_classes_and_roles, ensure_kubernetes_service, ensure_service_cidr, ensure_system_namespaces,
    ensure_token_tracking, ensure_trust,
};
use crate::members::{Membership, SharedFlags};
use crate::replica::checkpoint::{self, Source};
use crate::replica::checkpoint_dir::CheckpointWriter;
use crate::replica::controller_lease;
use crate::replica::journal::Connect;
use crate::replica::journal_settings;
use plinth_apiserver::audit::Audit;
use plinth_apiserver::authn::{self, Authenticator};
use plinth_apiserver::authz::{self, Authorizer};
use plinth_apiserver::context::{Limits, ReplicaInfo, Server};
use plinth_apiserver::custom_resources::Converter;
use plinth_apiserver::documents::{DiscoveryDocuments, OpenApiDocuments};
use plinth_apiserver::egress::kubelets::Kubelets;
use plinth_apiserver::egress::remote::RemoteApis;
use plinth_apiserver::egress::resolver::ServiceResolver;
use plinth_apiserver::egress::{SharedSlots, Webhooks};
use plinth_apiserver::error_log::ErrorLog;
use plinth_apiserver::feature_gates::FeatureGates;
use plinth_apiserver::flow_control::{FlowControl, Levels};
use plinth_apiserver::kind_handlers;
use plinth_apiserver::large_requests::Limiter;
use plinth_apiserver::listener;
use plinth_apiserver::metrics::Metrics;
use plinth_apiserver::private_files;
use plinth_apiserver::reload::{self, WatchedFiles};
use plinth_apiserver::representation::list_size_cache::ListSizeCache;
use plinth_apiserver::stored_objects::ObjectReader;
use plinth_apiserver::traces::Traces;
use plinth_codec::resources::Table;
use plinth_http::{
    connection_limits, Certificates, ConnectionLimits, RemoteWaits, ServingCertificate, StreamThreads,
};
use plinth_kinds::service_ranges::Ranges;
use plinth_pki::Authority;
use plinth_registry::Registry;
use plinth_storage::{
    ContinueTokens, Counts, Encryption, EncryptionOptions, HeaderIndex, Lengths, Namespaces, Store,
};

/// Replicas that join with a token at once, each of which reads the whole store.
const JOINS_AT_ONCE: usize = 2;

/// Starts a server on a journal that the caller provides, in the place of the one that the options name; a
/// single store without one.
///
/// # Errors
/// As [`start`](super::start).
pub async fn start_on(mut options: ServeOptions, connect: Option<Connect>) -> Result<Running, ServeError> {
    let settings = StartSettings::check(&options, connect.is_some())?;
    // Listens before anything is written: starting a second server by mistake changes nothing.
    let listener = listen(&mut options)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let (mut dir, pki) = open_directory(&options)?;
    let addresses = Addresses::new(&options, address);
    let limits = connection_limits(options.http.max_connections, options.http.max_open_files, true);
    let remote_apis = RemoteApis::new(&options.aggregator, addresses.resolver, limits.idle)
        .map_err(ServeError::ProxyClient)?;
    let (engine, replica) = open_store(&options, &dir, connect).await?;
    dir.making_keys()?;
    let service_ip = addresses.services.first_address().unwrap_or(address.ip());
    pki.ensure(&options.certificate_names(address.ip()), service_ip)?;
    for rejected in pki.rejected() {
        tracing::warn!(error = %rejected, "clients will reject a certificate of the server");
    }
    migrate(&engine).await?;
    let certificates = serving_certificates(&options, &pki)?;
    let tls = TlsAcceptor::from(Arc::new(options.tls.server_config(certificates.clone())?));
    let (stop, stopping) = watch::channel(false);
    let replica_of = replica.as_ref();
    let parts =
        Parts { settings, addresses, remote_apis, limits, replica: replica_of, stopping: stopping.clone() };
    let Built { server, source, plugins, advertised, levels } =
        parts.build(&options, engine, &dir, &pki).await?;
    controllers::token_use::start(&server);
    watch_files(&server, &options, certificates, &plugins);
    controllers::definitions::start(&server).await?;
    controllers::remote_apis::start(&server).await?;
    if let Some(Replica { journal, id, .. }) = &replica {
        let (server, id, dir) = (server.clone(), *id, dir.path().to_owned());
        journal_settings::watch(&server, journal.clone());
        Membership { server, id, address: advertised, dir, flags: shared_flags(&options) }.start();
    }
    create_objects(&server, dir.stage(), advertised, levels).await?;
    start_controllers(&server, &options, &pki, plugins, replica.as_ref().map(|replica| (replica, source)))?;
    let lease = host_name().map(|host| IdentityLease::new(&host, replica.as_ref().map(|replica| replica.id)));
    if let Some(lease) = &lease {
        lease.start(&server);
    }
    write_kubeconfig(&dir, &pki, address)?;
    dir.complete()?;
    backups::start(&server, options.backups);
    let kubeconfig = dir.admin_kubeconfig();
    let serving =
        tokio::spawn(listener::serve(listener, tls, server.clone(), (options.http, limits), stopping));
    let replica = replica.map(|replica| replica.id);
    Ok(Running { address, kubeconfig, stop, serving, server, replica, lease, _dir: dir })
}

/// What is made of the options alone.
struct StartSettings {
    plugins: Arc<Plugins>,
    kubelets: Kubelets,
    /// The built-in resources that are served.
    table: Table,
    gates: FeatureGates,
}

impl StartSettings {
    fn check(options: &ServeOptions, is_replica: bool) -> Result<StartSettings, ServeError> {
        for (flag, warning) in options.upstream.warnings()? {
            tracing::warn!(flag, reason = %warning, "flag is ignored");
        }
        options.versions.version()?;
        let gates = options.gates.enabled()?;
        options.check_families()?;
        let table = options.apis.enabled(&gates)?;
        if !is_replica && options.checkpoints.checkpoint_dir.is_some() {
            return Err(ServeError::CheckpointsOfSingle);
        }
        let locations =
            [("backup", &options.backups.backup_dir), ("checkpoint", &options.checkpoints.checkpoint_dir)];
        for (what, location) in locations {
            let checked = location.as_ref().map_or(Ok(()), ArchiveLocation::check);
            checked.map_err(|source| ServeError::Archives { what, source })?;
        }
        let plugins = Arc::new(options.admission.admission()?);
        let kubelets = Kubelets::new(&options.kubelets)?;
        if let (Some(certificate), Some(key)) =
            (&options.cluster_signing_cert_file, &options.cluster_signing_key_file)
        {
            Authority::read(certificate, key).map_err(ServeError::Signing)?;
        }
        Ok(StartSettings { plugins, kubelets, table, gates })
    }
}

fn cannot_listen(source: std::io::Error) -> ServeError {
    ServeError::Io { what: "cannot listen", source }
}

fn listen(options: &mut ServeOptions) -> Result<TcpListener, ServeError> {
    match options.listener.take() {
        Some(listener) => TcpListener::from_std(listener).map_err(cannot_listen),
        None => Ok(listener::bind(SocketAddr::new(options.bind_address(), options.secure_port))?),
    }
}

/// The data directory, locked, and its keys, checked.
fn open_directory(options: &ServeOptions) -> Result<(DataDir, Pki), ServeError> {
    let dir = DataDir::open(&options.data_dir)?;
    private_files::narrow(dir.path())
        .map_err(|source| ServeError::Io { what: "cannot check the modes of the data directory", source })?;
    let pki = Pki::at(dir.path());
    pki.check(dir.stage())?;
    dir.continue_key()?;
    Ok((dir, pki))
}

/// The flags that act on all replicas, as each of them records them.
fn shared_flags(options: &ServeOptions) -> SharedFlags {
    let ports = &options.service_node_port_range;
    SharedFlags {
        history_retention: Some(format!("{:?}", options.history_retention)),
        service_node_port_range: Some(format!("{}-{}", ports.start(), ports.end())),
    }
}

/// Where this server is, and the ranges of Services.
struct Addresses {
    services: Ranges,
    resolver: ServiceResolver,
    /// Where others find it; for an unspecified address, objects contain a suitable one.
    advertised: SocketAddr,
    /// Issuer of tokens, without a flag that names it.
    issuer: String,
}

impl Addresses {
    fn new(options: &ServeOptions, address: SocketAddr) -> Addresses {
        let advertised = SocketAddr::new(options.advertise_address.unwrap_or(address.ip()), address.port());
        Addresses {
            services: Ranges {
                addresses: options.service_cluster_ip_range.clone(),
                node_ports: options.service_node_port_range.clone(),
            },
            resolver: ServiceResolver {
                by_endpoints: options.aggregator.enable_aggregator_routing,
                own: Some(kubeconfig::reachable(address)),
            },
            advertised,
            issuer: match &options.external_hostname {
                Some(host) => format!("{host}:{}", address.port()),
                None => advertised.to_string(),
            },
        }
    }
}

/// Room for deletions on a full disk: RocksDB flushes its memtables before it accepts writes again, and then
/// needs some for those.
const RESERVE_BYTES: u64 = 32 << 20;

async fn open_store(
    options: &ServeOptions,
    dir: &DataDir,
    connect: Option<Connect>,
) -> Result<(Engine, Option<Replica>), ServeError> {
    let engine_options = Options::new(dir.store())
        .create(dir.stage() == Stage::New)
        .history_retention(Some(options.history_retention))
        .compaction_interval(options.compaction_interval)
        .reserve_bytes(RESERVE_BYTES)
        .on_warning(|warning| {
            tracing::warn!(error = %warning, "storage engine needs attention: {}", warning.advice());
        });
    let checkpoint_dir = options.checkpoints.checkpoint_dir.clone();
    let (engine, replica) = open_engine(dir, engine_options, connect, checkpoint_dir).await?;
    for dropped in engine.dropped() {
        tracing::warn!(
            path = %dropped.path.display(),
            bytes = dropped.bytes,
            "dropped the end of a write-ahead log or of the MANIFEST that was written incompletely, as after a crash before a write was acknowledged"
        );
    }
    Ok((engine, replica))
}

fn serving_certificates(options: &ServeOptions, pki: &Pki) -> Result<Arc<Certificates>, ServeError> {
    let cert = options.tls.tls_cert_file.clone().unwrap_or_else(|| pki.serving_cert());
    let key = options.tls.tls_private_key_file.clone().unwrap_or_else(|| pki.serving_key());
    let serving = ServingCertificate::read(&cert, &key).map_err(|error| match options.tls.tls_cert_file {
        Some(_) => ServeError::Serving(error),
        None => error.into(),
    })?;
    Ok(Arc::new(Certificates::read(serving, &options.tls)?))
}

/// What the server is built of, beside options and store.
struct Parts<'a> {
    settings: StartSettings,
    addresses: Addresses,
    remote_apis: RemoteApis,
    limits: ConnectionLimits,
    replica: Option<&'a Replica>,
    stopping: watch::Receiver<bool>,
}

/// The server, and what else of it the start needs.
struct Built {
    server: Arc<Server>,
    /// Hands out checkpoints; none for a single store.
    source: Option<Arc<Source>>,
    plugins: Arc<Plugins>,
    advertised: SocketAddr,
    /// Priority levels, where they are on.
    levels: Option<Levels>,
}

impl Parts<'_> {
    async fn build(
        self,
        options: &ServeOptions,
        engine: Engine,
        dir: &DataDir,
        pki: &Pki,
    ) -> Result<Built, ServeError> {
        let Parts {
            settings: StartSettings { plugins, kubelets, table, gates },
            addresses,
            remote_apis,
            limits,
            replica,
            stopping,
        } = self;
        let Addresses { services, resolver, advertised, issuer } = addresses;
        let metrics = metrics_with_gates(options, &gates)?;
        let (flow_control, levels) = FlowControl::new(&options.flow_control, metrics.registry())?;
        let remote_waits = RemoteWaits::default();
        let encryption = Encryption::start(&encryption_options(options, dir)?, &remote_waits).await?;
        let store = Store::serving(engine, encryption, Registry::of_table(table));
        let authenticator = Authenticator::new(
            &options.authentication,
            authn::Dependencies {
                own_ca: &pki.ca_cert(),
                own_signing_key: &pki.service_account_key(),
                store: store.clone(),
                address: issuer,
            },
        )?;
        let source = checkpoint_source(options, (dir, pki), replica, &store)?;
        let authorizer = Authorizer::new(&options.authorization, store.clone(), &gates)?
            .with_metrics(metrics.identity.clone(), metrics.authorization_webhooks.clone());
        let server = Arc::new(Server {
            replica: source.clone().map(|source| source as Arc<dyn ReplicaInfo>),
            authorizer: Arc::new(authorizer),
            namespaces: Namespaces::default(),
            tokens: ContinueTokens::new(&dir.continue_secret()?),
            counts: Counts::default(),
            admission: plugins.clone(),
            kind_handler: kind_handlers::of,
            kubelets,
            forwarded: SharedSlots::of_both(limits.forwarded),
            remote_apis,
            reader: Arc::new(ObjectReader {
                converter: Converter {
                    store: store.clone(),
                    webhooks: Arc::new(Webhooks::new(resolver, &limits)),
                    remote_waits,
                    metrics: metrics.conversions.clone(),
                },
                header_index: Arc::new(HeaderIndex::default()),
            }),
            store,
            producers: Arc::default(),
            stream_threads: StreamThreads::default(),
            list_sizes: ListSizeCache::default(),
            lengths: Lengths::default(),
            authenticator: Arc::new(authenticator),
            audit: Audit::start(&options.audit, metrics.registry())?,
            traces: Traces::start(&options.traces, &host_name().unwrap_or_default(), &metrics.traces)?,
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
                default_ttl: options.event_ttl,
                ..Limits::default()
            },
            has_registered_apis: AtomicBool::new(false),
            gates,
            flags: options.flag_values(),
            version: options.versions.version()?,
            is_draining: AtomicBool::new(false),
            stopping,
            tasks: TaskTracker::new(),
        });
        Ok(Built { server, source, plugins, advertised, levels })
    }
}

/// Metrics, which show the states of the feature gates.
fn metrics_with_gates(options: &ServeOptions, gates: &FeatureGates) -> Result<Metrics, ServeError> {
    let metrics = Metrics::new()?;
    for (name, stage, is_on) in options.gates.states(gates) {
        metrics.filters.set_feature(name, stage, is_on);
    }
    Ok(metrics)
}

/// What hands out checkpoints of a replica.
fn checkpoint_source(
    options: &ServeOptions,
    (dir, pki): (&DataDir, &Pki),
    replica: Option<&Replica>,
    store: &Store,
) -> Result<Option<Arc<Source>>, ServeError> {
    let authority = read_text(pki.ca_cert())?.into_bytes();
    let encryption = encryption_options(options, dir)?.encryption_provider_config;
    Ok(replica.map(|replica| {
        let (dir, store) = (dir.path().to_owned(), store.clone());
        Arc::new(Source { dir, store, id: replica.id, authority, encryption })
    }))
}

/// The flags of encryption at rest. Without one the file that joining has brought counts: a replica that
/// ignored it would write in plain text, for all of them, what they encrypt.
fn encryption_options(options: &ServeOptions, dir: &DataDir) -> Result<EncryptionOptions, ServeError> {
    let mut encryption = options.encryption.clone();
    let joined = dir.path().join(checkpoint::ENCRYPTION);
    let is_there = exists(&joined);
    if is_there.map_err(|source| PkiError::File { path: joined.clone(), source })? {
        encryption.encryption_provider_config.get_or_insert(joined);
    }
    Ok(encryption)
}

/// Starts the task that follows files for authentication, authorization and TLS.
fn watch_files(
    server: &Arc<Server>,
    options: &ServeOptions,
    certificates: Arc<Certificates>,
    plugins: &Plugins,
) {
    let metrics = &server.metrics.reloads;
    let mut watched = authn::watched_files(&server.authenticator, &options.authentication, metrics);
    watched.extend(authz::watched_files(&server.authorizer, &options.authorization, metrics));
    watched
        .push(WatchedFiles::new("serving certificates", certificates.files(), move || certificates.reload()));
    let proxying = server.clone();
    watched.push(WatchedFiles::new("proxy client certificate", server.remote_apis.files(), move || {
        proxying.remote_apis.reload()
    }));
    let connecting = server.clone();
    watched.push(WatchedFiles::new(
        "kubelet client certificate and authority",
        server.kubelets.files(),
        move || connecting.kubelets.reload(),
    ));
    for credentials in plugins.context.settings.webhook_credentials() {
        let reloaded = credentials.clone();
        let files =
            WatchedFiles::new("credentials of webhooks", credentials.files(), move || reloaded.reload());
        let named = credentials.clone();
        watched.push(files.naming(move || named.files()));
    }
    server.spawn(reload::watch_files(watched));
}

/// Creates and repairs the objects that every cluster has, and starts what goes on doing so.
async fn create_objects(
    server: &Arc<Server>,
    stage: Stage,
    advertised: SocketAddr,
    levels: Option<Levels>,
) -> Result<(), ServeError> {
    let is_first_start = stage == Stage::New;
    let tolerate = |what, outcome| system_objects::tolerate(server, is_first_start, what, outcome);
    let patience = system_objects::Patience::of(server, is_first_start);
    tolerate("a system namespace", patience.wait(ensure_system_namespaces(server)).await)?;
    let has_classes_and_roles =
        tolerate("a priority class or role", patience.wait(ensure_classes_and_roles(server)).await)?;
    if let Some(levels) = levels {
        let started = controllers::flow_control::start(server, levels).await;
        tolerate("an object of priority and fairness", started)?;
    }
    let before = server.store.engine().current_revision();
    let is_restored =
        tolerate("an allocation of a Service", controllers::allocations::restore(server).await)?;
    controllers::allocations::start(server, is_restored.then_some(before));
    if !system_objects::is_reachable(server, advertised) {
        tracing::warn!(
            "Service default/kubernetes has no endpoints: others cannot reach the addresses of this machine"
        );
    }
    let service = ensure_kubernetes_service(server, advertised);
    tolerate("Service default/kubernetes", patience.wait(service).await)?;
    tolerate("an APIService", controllers::api_services::start(server).await)?;
    // Also with one that is damaged, which the controller retries.
    server.has_registered_apis.store(true, Ordering::Relaxed);
    let tracking = patience.wait(ensure_token_tracking(server)).await;
    tolerate("the ConfigMap that tracks tokens of Secrets", tracking)?;
    tolerate("ServiceCIDR kubernetes", patience.wait(ensure_service_cidr(server)).await)?;
    let trusted = patience.wait(ensure_trust(server)).await;
    tolerate("ConfigMap kube-system/extension-apiserver-authentication", trusted)?;
    system_objects::start(server, advertised, has_classes_and_roles);
    Ok(())
}

/// Starts the controllers: those of a replica run while it holds their lease.
fn start_controllers(
    server: &Arc<Server>,
    options: &ServeOptions,
    pki: &Pki,
    plugins: Arc<Plugins>,
    replica: Option<(&Replica, Option<Arc<Source>>)>,
) -> Result<(), ServeError> {
    let signing = controllers::SigningOptions {
        certificate: options.cluster_signing_cert_file.clone().unwrap_or_else(|| pki.ca_cert()),
        key: options.cluster_signing_key_file.clone().unwrap_or_else(|| pki.ca_key()),
        lifetime: options.cluster_signing_duration,
    };
    let settings = controllers::ControllerSettings {
        controllers: options.controllers.clone(),
        root_ca: read_text(pki.ca_cert())?,
        plugins,
        signing,
        unused_tokens: options.legacy_service_account_token_clean_up_period,
    };
    match replica {
        None => drop(controllers::start(server, &settings)),
        Some((replica, source)) => {
            let controlled = server.clone();
            let checkpoint_writer = checkpoint_writer(server, replica, source, &options.checkpoints);
            controller_lease::start(server, replica.id, move || {
                let mut tasks = controllers::start(&controlled, &settings);
                tasks.extend(checkpoint_writer.as_ref().map(CheckpointWriter::start));
                tasks
            });
        }
    }
    Ok(())
}

/// The name of this machine; none, with a line in the log, where the system does not have it.
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
