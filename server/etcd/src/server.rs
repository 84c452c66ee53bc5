//! [`Server`]: listeners, connections, and the tasks beside them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{lookup_host, TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::answers::{self, PATIENCE};
use crate::gateway;
use crate::grpc::{self, CommonName, Services};
use crate::maintenance::Identity;
use crate::member::{Limits, Member};
use crate::options::EtcdOptions;
use crate::{compaction, expiry, http as plain};

/// Connections at a time; further ones wait to be accepted.
const CONNECTIONS: usize = 16_384;
/// Time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for calls to end when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// Streams of a connection: each watch client has one for all of its watches.
const STREAMS: u32 = 16_384;
/// Bytes that a client may send ahead on a stream, and on a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes that wait in a stream for a client that does not read.
const SEND_BUFFER: usize = 1 << 20;
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
        Ok(Server { services: Arc::new(services), listeners, retention })
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
        let Server { services, listeners, retention } = self;
        let (member, token) = (Arc::clone(&services.member), services.stop.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(expiry::run(Arc::clone(&member), token.clone()));
        tasks.spawn(compaction::run(Arc::clone(&member), retention, token.clone()));
        tasks.spawn(measure(Arc::clone(&member), token.clone()));
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        for (listener, tls) in listeners {
            tasks.spawn(accept(listener, tls, Arc::clone(&services), Arc::clone(&room), tasks.clone()));
        }
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

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    services: Arc<Services>,
    room: Arc<Semaphore>,
    tasks: TaskTracker,
) {
    loop {
        let accepted = async {
            let permit = Arc::clone(&room).acquire_owned().await.ok()?;
            Some((listener.accept().await, permit))
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => match accepted {
                Some(accepted) => accepted,
                None => return,
            },
            () = services.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (tls, services) = (tls.clone(), Arc::clone(&services));
                tasks.spawn(async move {
                    connection(stream, tls, services).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, services: Arc<Services>) {
    // Small frames are not held back; without it they only come later.
    let _ = stream.set_nodelay(true);
    match tls {
        None => serve_connection(stream, None, services).await,
        Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let name = common_name(stream.get_ref().1.peer_certificates());
                serve_connection(stream, name, services).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        },
    }
}

/// The common name of a verified client certificate; of several the last one, as Go has it.
fn common_name(certificates: Option<&[CertificateDer<'_>]>) -> Option<CommonName> {
    let (_, certificate) = X509Certificate::from_der(certificates?.first()?).ok()?;
    let name = certificate.subject().iter_common_name().last()?.as_str().ok()?;
    (!name.is_empty()).then(|| CommonName(name.into()))
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    name: Option<CommonName>,
    services: Arc<Services>,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(PATIENCE));
    let stream = Box::pin(stream);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    let stop = services.stop.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let services = Arc::clone(&services);
        if let Some(name) = &name {
            request.extensions_mut().insert(name.clone());
        }
        async move { Ok::<_, Infallible>(answer(&services, request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(GRACE, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

async fn answer(services: &Services, request: Request<Incoming>) -> Response<Body> {
    let content_type = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
    if content_type.is_some_and(|value| value.starts_with(b"application/grpc")) {
        return answers::paced(grpc::answer(services, request.map(Body::new)).await);
    }
    match request.uri().path().starts_with(gateway::PREFIX) {
        true => answers::paced(gateway::answer(services, request).await),
        false => plain::answer(&services.member, request).await,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn the_last_common_name_counts() {
        let named = |names: &[(DnType, &str)]| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            names.iter().for_each(|(kind, name)| params.distinguished_name.push(kind.clone(), *name));
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            common_name(Some(&[certificate.der().clone()])).map(|name| name.0.to_string())
        };
        let again = DnType::CustomDnType(vec![2, 5, 4, 3]);
        assert_eq!(named(&[(DnType::CommonName, "root")]).as_deref(), Some("root"));
        assert_eq!(named(&[(DnType::CommonName, "root"), (again, "u")]).as_deref(), Some("u"));
        assert_eq!(named(&[(DnType::OrganizationName, "root")]), None);
        assert_eq!(named(&[(DnType::CommonName, "")]), None);
        assert!(common_name(None).is_none());
    }
}
