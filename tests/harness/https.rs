//! HTTPS servers of a test's own: webhooks and kubelets that answer as the test wants.

use std::future::Future;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A server on a free port of 127.0.0.1, under the names `localhost` and `127.0.0.1`. Dropping it ends it.
pub struct HttpsServer {
    /// Its port.
    pub port: u16,
    /// Its certificate, PEM: its own authority.
    pub certificate: String,
    task: JoinHandle<()>,
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
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("TLS settings");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("free port");
        let port = listener.local_addr().expect("address").port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(async move {
            // Ends with this task: a client that keeps a connection must not find the server still there.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let answer = answer(request);
                        async move { answer.await.into().ok_or(io::Error::other("no answer")) }
                    });
                    // A client that breaks off ends the connection; the test sees it at the other end.
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades()
                        .await;
                });
            }
        });
        HttpsServer { port, certificate: made.cert.pem(), task }
    }
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
