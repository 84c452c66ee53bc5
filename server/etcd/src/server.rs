//! [`Server`]: listeners, and the tasks beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plinth_http::{max_connections, Connections};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{lookup_host, TcpListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Accepted, Keepalive, GRACE};
use crate::grpc::Services;
use crate::maintenance::Identity;
use crate::member::{Limits, Member};
use crate::options::EtcdOptions;
use crate::{compaction, expiry};

/// Connections at a time, and of these from one address.
const CONNECTIONS: usize = 16_384;
const CONNECTIONS_PER_PEER: usize = CONNECTIONS / 2;
/// How often the size of the store is looked at.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// The server did not start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum StartError {
    /// A flag has no meaning.
    #[error("{flag}: {reason}")]
    Flag { flag: &'static str, reason: String },
    /// The store cannot be opened.
    #[error("cannot open the store: {0}")]
    Engine(#[from] plinth_engine::Error),
    /// A certificate or key cannot be used.
    #[error("{file}: {reason}")]
    Certificate { file: String, reason: String },
    /// An address cannot be listened on.
    #[error("cannot listen on {url}: {source}")]
    Bind { url: String, source: std::io::Error },
}

/// A server whose store is open and whose addresses are bound.
pub struct Server {
    services: Arc<Services>,
    listeners: Vec<(TcpListener, Option<TlsAcceptor>)>,
    retention: crate::options::Retention,
    keepalive: Keepalive,
}

/// A URL of `--listen-client-urls`.
struct ListenUrl<'a> {
    is_tls: bool,
    host: &'a str,
}

fn parse_url(url: &str) -> Option<ListenUrl<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    (has_port && !host.contains('/')).then_some(ListenUrl { is_tls, host })
}

impl Server {
    /// Opens the store in `dir` and binds the addresses of the options.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(options: &EtcdOptions, dir: &std::path::Path) -> Result<Server, StartError> {
        let retention = options
            .retention()
            .map_err(|reason| StartError::Flag { flag: "--auto-compaction-retention", reason })?;
        let listeners = bind(options).await?;
        let limits = Limits {
            request_bytes: options.max_request_bytes,
            response_bytes: options.max_inflight_response_bytes,
            txn_operations: options.max_txn_ops,
            quota_bytes: options.quota(),
        };
        let dir = dir.to_owned();
        let auth = options.auth().map_err(|reason| StartError::Flag { flag: "--auth-token", reason })?;
        let opened = tokio::task::spawn_blocking(move || Member::open(&dir, limits, auth)).await;
        let member = opened.map_err(|_| plinth_engine::Error::Closed)??;
        let client_urls = match options.advertise_client_urls.is_empty() {
            true => options.listen_client_urls.clone(),
            false => options.advertise_client_urls.clone(),
        };
        let services = Services {
            member: Arc::new(member),
            identity: Identity { name: options.name.clone(), client_urls },
            progress_interval: options.progress_interval(),
            stop: CancellationToken::new(),
        };
        let keepalive = options.keepalive();
        Ok(Server { services: Arc::new(services), listeners, retention, keepalive })
    }

    /// The addresses that it listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect()
    }

    /// The newest revision.
    pub fn revision(&self) -> i64 {
        self.services.member.revision()
    }

    /// Resolves when the store has failed for good.
    pub fn failed(&self) -> plinth_engine::Failed {
        self.services.member.engine.failed()
    }

    /// Serves until `stop` resolves, then ends what is in progress and closes the store.
    ///
    /// # Errors
    /// The error of closing the store.
    pub async fn serve(
        self,
        stop: impl std::future::Future<Output = ()>,
    ) -> Result<(), plinth_engine::Error> {
        let Server { services, listeners, retention, keepalive } = self;
        let (member, token) = (Arc::clone(&services.member), services.stop.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(expiry::run(Arc::clone(&member), token.clone()));
        tasks.spawn(compaction::run(Arc::clone(&member), retention, token.clone()));
        tasks.spawn(measure(Arc::clone(&member), token.clone()));
        let connections = Connections::new(max_connections(CONNECTIONS), CONNECTIONS_PER_PEER);
        let shared = Shared { services, connections, keepalive, tasks: tasks.clone() };
        for (listener, tls) in listeners {
            tasks.spawn(accept(listener, tls, shared.clone()));
        }
        drop(shared);
        stop.await;
        token.cancel();
        tasks.close();
        if tokio::time::timeout(GRACE, tasks.wait()).await.is_err() {
            tracing::warn!("some calls did not end; their connections are closed");
        }
        let engine = member.engine.clone();
        match tokio::task::spawn_blocking(move || engine.close()).await {
            Ok(closed) => closed,
            Err(_) => Err(plinth_engine::Error::Closed),
        }
    }
}

/// Looks at the size of the store in intervals.
async fn measure(member: Arc<Member>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(MEASURE_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        if crate::maintenance::measure(&member).await.is_err() {
            return;
        }
    }
}

async fn bind(options: &EtcdOptions) -> Result<Vec<(TcpListener, Option<TlsAcceptor>)>, StartError> {
    let flag = |reason| StartError::Flag { flag: "--listen-client-urls", reason };
    let mut listeners = Vec::new();
    for url in &options.listen_client_urls {
        let parsed = parse_url(url).ok_or_else(|| flag(format!("{url:?} is not http(s)://HOST:PORT")))?;
        let tls = match parsed.is_tls {
            true => Some(tls(options)?),
            false => None,
        };
        let failed = |source| StartError::Bind { url: url.clone(), source };
        let addresses: Vec<SocketAddr> = lookup_host(parsed.host).await.map_err(failed)?.collect();
        // As etcd, which listens on one address of a name.
        let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
        let address = address.ok_or_else(|| flag(format!("{url:?} has no address")))?;
        listeners.push((TcpListener::bind(address).await.map_err(failed)?, tls));
    }
    Ok(listeners)
}

fn tls(options: &EtcdOptions) -> Result<TlsAcceptor, StartError> {
    let (Some(cert_file), Some(key_file)) = (&options.cert_file, &options.key_file) else {
        let reason = "an https URL needs --cert-file and --key-file".to_owned();
        return Err(StartError::Flag { flag: "--listen-client-urls", reason });
    };
    let of = |file: &std::path::Path| {
        let file = file.display().to_string();
        move |error: &dyn std::fmt::Display| StartError::Certificate { file, reason: error.to_string() }
    };
    let read = |file: &std::path::Path| -> Result<Vec<CertificateDer<'static>>, StartError> {
        let certificates =
            CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        certificates.map_err(|error| of(file)(&error))
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| of(cert_file)(&error))?;
    let builder = match &options.trusted_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in read(file)? {
                roots.add(certificate).map_err(|error| of(file)(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| of(file)(&error))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| of(key_file)(&error))?;
    let mut config =
        builder.with_single_cert(read(cert_file)?, key).map_err(|error| of(cert_file)(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// What the connections of all listeners have in common.
#[derive(Clone)]
struct Shared {
    services: Arc<Services>,
    connections: Arc<Connections>,
    keepalive: Keepalive,
    tasks: TaskTracker,
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Shared) {
    let Shared { services, connections, keepalive, tasks } = shared;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = services.stop.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer.ip()),
            Err(error) => {
                tracing::warn!(%error, "connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some((slot, evicted)) = connections.admit(peer) else {
            tracing::debug!(remote = %peer, "connection is closed, there are too many");
            continue;
        };
        let accepted = Accepted { stream, peer, tls: tls.clone(), slot, evicted };
        tasks.spawn(connection::serve(accepted, keepalive, Arc::clone(&services)));
    }
}
