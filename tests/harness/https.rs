//! HTTPS servers of a test's own: webhooks and kubelets that answer as the test wants.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A server on a free port, by default of 127.0.0.1 under the names `localhost` and `127.0.0.1`. Dropping it
/// ends it.
pub struct HttpsServer {
    /// On 127.0.0.1.
    pub port: u16,
    /// Its certificate, PEM: its own authority.
    pub certificate: String,
    /// Connections that it has accepted.
    pub connections: Arc<AtomicUsize>,
    /// Those of them that are open.
    pub open: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// The name in a client's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientName(pub Option<String>);

/// What a server is called and where it listens.
pub struct HttpsOptions {
    /// Names in its certificate.
    pub names: Vec<String>,
    /// Where it listens.
    pub address: IpAddr,
    /// The authority of its clients' certificates, PEM; without it none is asked for.
    pub client_authority: Option<String>,
    /// Protocols that it offers in the TLS handshake: `h2`, `http/1.1`.
    pub protocols: Vec<&'static str>,
    /// Whether it ends a connection of HTTP/2 after its first answer, as a server that is replaced does.
    pub leaves: bool,
}

impl Default for HttpsOptions {
    fn default() -> HttpsOptions {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        HttpsOptions {
            names,
            address: Ipv4Addr::LOCALHOST.into(),
            client_authority: None,
            protocols: Vec::new(),
            leaves: false,
        }
    }
}

impl HttpsServer {
    /// Starts a server that answers each request with what `answer` makes of it; for `None` it closes the
    /// connection without an answer. Upgrades are possible.
    pub async fn start<F, A, R>(answer: F) -> HttpsServer
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = R> + Send + 'static,
        R: Into<Option<Response<Full<Bytes>>>> + 'static,
    {
        let answer = move |request| {
            let answer = answer(request);
            async move { answer.await.into() }
        };
        HttpsServer::start_on(HttpsOptions::default(), answer).await
    }

    /// The same with other names and another address. The extensions of a request have the [`ClientName`].
    pub async fn start_as<F, A, B>(options: HttpsOptions, answer: F) -> HttpsServer
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let answer = move |request| {
            let answer = answer(request);
            async move { Some(answer.await) }
        };
        HttpsServer::start_on(options, answer).await
    }

    async fn start_on<F, A, B>(options: HttpsOptions, answer: F) -> HttpsServer
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Option<Response<B>>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let made = rcgen::generate_simple_self_signed(options.names).expect("certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("protocol versions");
        let config = match &options.client_authority {
            None => config.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    roots.add(certificate.expect("certificate")).expect("authority");
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .allow_unauthenticated();
                config.with_client_cert_verifier(verifier.build().expect("verifier"))
            }
        };
        let mut config = config.with_single_cert(vec![made.cert.der().clone()], key).expect("TLS settings");
        config.alpn_protocols = options.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind((options.address, 0)).await.expect("free port");
        let port = listener.local_addr().expect("address").port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let connections = Arc::new(AtomicUsize::new(0));
        let open = Arc::new(AtomicUsize::new(0));
        let (accepted, opened) = (connections.clone(), open.clone());
        let task = tokio::spawn(async move {
            // Ends with this task: a client that keeps a connection must not find the server still there.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, answer, counted) = (acceptor.clone(), answer.clone(), Counted::new(&opened));
                connections.spawn(async move {
                    let _counted = counted;
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let name = ClientName(client_name(stream.get_ref().1.peer_certificates()));
                    let (answered, left) = (Arc::new(Notify::new()), options.leaves);
                    let first = answered.clone();
                    let service = service_fn(move |mut request: Request<Incoming>| {
                        request.extensions_mut().insert(name.clone());
                        let (answer, first) = (answer(request), first.clone());
                        async move {
                            let answer = answer.await;
                            first.notify_one();
                            answer.ok_or(io::Error::other("no answer"))
                        }
                    });
                    // A client that breaks off ends the connection; the test sees it at the other end.
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        let http2 = http2::Builder::new(TokioExecutor::new());
                        let mut connection = pin!(http2.serve_connection(TokioIo::new(stream), service));
                        tokio::select! {
                            _ = &mut connection => return,
                            () = answered.notified(), if left => connection.as_mut().graceful_shutdown(),
                        }
                        let _ = connection.await;
                        return;
                    }
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades()
                        .await;
                });
            }
        });
        HttpsServer { port, certificate: made.cert.pem(), connections, open, task }
    }
}

/// Counts what has begun and not ended.
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// One more, until it is dropped.
    pub fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn client_name(chain: Option<&[CertificateDer<'_>]>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(chain?.first()?).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    Some(name)
}

impl HttpsServer {
    /// A kubeconfig that leads a server here, to this path, with that bearer token.
    pub fn kubeconfig(&self, path: &str, token: &str) -> String {
        use base64::prelude::{Engine as _, BASE64_STANDARD};
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{}{path}', certificate-authority-data: {}}}}}]\n\
             users: [{{name: a, user: {{token: {token}}}}}]\n",
            self.port,
            BASE64_STANDARD.encode(&self.certificate),
        )
    }
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
