//! One connection to an API server, HTTP/1.1 or HTTP/2 over TLS, as light as it can be: no
//! redirects, no retries, no pool, no parsing of bodies.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::TlsConnector;

use super::Error;

/// Receive windows of HTTP/2: large enough that a list of 60 MB never waits for an update.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// The windows that HTTP/2 begins with where nothing else is said (RFC 9113, 6.9.2).
const NARROW: u32 = 65_535;
/// A stream's window of a few bytes, in which hundreds of streams share the narrow one.
const TRICKLE: u32 = 256;

/// Which HTTP a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1: one request at a time.
    Http1,
    /// HTTP/2: many requests at once.
    Http2,
}

/// The credentials of a client.
#[derive(Clone)]
pub enum Identity {
    /// None: an unauthenticated client.
    Anonymous,
    /// A client certificate and its key, both PEM.
    Certificate {
        /// The chain, the client's own certificate first.
        certificate: Vec<u8>,
        /// The private key.
        key: Vec<u8>,
    },
    /// A bearer token.
    Token(String),
}

/// The address of a server, the authorities that the client trusts, and the client's credentials.
#[derive(Clone)]
pub struct Endpoint {
    authority: String,
    name: ServerName<'static>,
    roots: Arc<RootCertStore>,
    identity: Identity,
}

impl Endpoint {
    /// An endpoint at `authority` (`host:port`) that must show a certificate of `ca` (PEM).
    pub fn new(authority: &str, ca: &[u8], identity: Identity) -> Result<Endpoint, Error> {
        let bad = |reason: String| Error::Server(format!("{authority}: {reason}"));
        let host = authority.rsplit_once(':').ok_or_else(|| bad("no port".into()))?.0;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let name = ServerName::try_from(host).map_err(|e| bad(e.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca) {
            roots.add(certificate.map_err(|e| bad(format!("CA: {e}")))?)?;
        }
        Ok(Endpoint { authority: authority.to_string(), name, roots: Arc::new(roots), identity })
    }

    /// `host:port`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The credentials that are sent.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The same server with other credentials.
    pub fn with_identity(&self, identity: Identity) -> Endpoint {
        Endpoint { identity, ..self.clone() }
    }

    /// Opens a TLS stream; the caller speaks HTTP on it.
    pub async fn stream(&self, protocol: Protocol) -> Result<TlsStream<TcpStream>, Error> {
        let tls = TlsConnector::from(Arc::new(self.tls(protocol)?));
        let what = || format!("connecting to {}", self.authority);
        let tcp = TcpStream::connect(&self.authority).await.map_err(Error::io(what()))?;
        tcp.set_nodelay(true).map_err(Error::io(what()))?;
        tls.connect(self.name.clone(), tcp).await.map_err(Error::io(what()))
    }

    /// Opens a connection.
    pub async fn connect(&self, protocol: Protocol) -> Result<Connection, Error> {
        self.connect_with(protocol, STREAM_WINDOW, CONNECTION_WINDOW).await
    }

    /// Opens an HTTP/2 connection with the smallest receive windows: what is not read stays buffered in the
    /// server.
    pub async fn connect_narrow(&self) -> Result<Connection, Error> {
        self.connect_with(Protocol::Http2, NARROW, NARROW).await
    }

    /// Opens an HTTP/2 connection on which each stream gets a few bytes at a time.
    pub async fn connect_trickling(&self) -> Result<Connection, Error> {
        self.connect_with(Protocol::Http2, TRICKLE, NARROW).await
    }

    async fn connect_with(
        &self,
        protocol: Protocol,
        stream_window: u32,
        connection_window: u32,
    ) -> Result<Connection, Error> {
        let stream = TokioIo::new(self.stream(protocol).await?);
        // The connection's task ends by itself when the last sender is dropped; its error, if
        // any, reaches the requests in flight.
        let sender = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(stream_window)
                    .initial_connection_window_size(connection_window)
                    .handshake(stream)
                    .await?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        let authorization = match &self.identity {
            Identity::Token(token) => HeaderValue::try_from(format!("Bearer {token}")).ok(),
            _ => None,
        };
        Ok(Connection { sender, authority: self.authority.clone().into(), authorization })
    }

    fn tls(&self, protocol: Protocol) -> Result<ClientConfig, Error> {
        let bad = |e: rustls::pki_types::pem::Error| Error::Server(format!("client credentials: {e}"));
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots.clone());
        let mut config = match &self.identity {
            Identity::Certificate { certificate, key } => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
                let key = PrivateKeyDer::from_pem_slice(key).map_err(bad)?;
                builder.with_client_auth_cert(chain.map_err(bad)?, key)?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec()],
        };
        Ok(config)
    }
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// One request of a workload.
#[derive(Debug, Clone)]
pub struct Call {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Media type of the body; none when there is no body.
    pub content_type: Option<&'static str>,
    /// Media types that the answer may have.
    pub accept: &'static str,
    /// Sent as it is; empty for requests without a body.
    pub body: Bytes,
    /// One header more.
    pub header: Option<(&'static str, HeaderValue)>,
}

/// The media type of most calls.
pub const JSON: &str = "application/json";

impl Call {
    /// A request without a body, answered in JSON.
    pub fn new(method: Method, path: impl Into<String>) -> Call {
        Call { method, path: path.into(), content_type: None, accept: JSON, body: Bytes::new(), header: None }
    }

    /// A GET answered in JSON.
    pub fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path)
    }

    /// The same request with a body.
    pub fn body(self, content_type: &'static str, body: impl Into<Bytes>) -> Call {
        Call { content_type: Some(content_type), body: body.into(), ..self }
    }

    /// The same request with a header.
    pub fn header(self, name: &'static str, value: HeaderValue) -> Call {
        Call { header: Some((name, value)), ..self }
    }

    /// The same request, answered in another media type.
    pub fn accept(self, accept: &'static str) -> Call {
        Call { accept, ..self }
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: StatusCode,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// The whole body of the response.
    pub body: Bytes,
}

impl Reply {
    /// The body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// An open connection. With HTTP/2 it may be [shared](Connection::share) by many clients.
pub struct Connection {
    sender: Sender,
    authority: Arc<str>,
    authorization: Option<HeaderValue>,
}

impl Connection {
    /// Another handle to the same connection; HTTP/2 only, as HTTP/1.1 carries one request at a time.
    pub fn share(&self) -> Option<Connection> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(Connection {
                sender: Sender::Http2(sender.clone()),
                authority: self.authority.clone(),
                authorization: self.authorization.clone(),
            }),
        }
    }

    /// Sends a request and returns the response with its body still to be read.
    pub async fn open(&mut self, call: &Call) -> Result<Response<Incoming>, Error> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        let headers = request.headers_mut();
        if !call.accept.is_empty() {
            headers.insert(ACCEPT, HeaderValue::from_static(call.accept));
        }
        if let Some((name, value)) = &call.header {
            headers.insert(*name, value.clone());
        }
        if let Some(content_type) = call.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        self.send(request, &call.path).await
    }

    /// Sends a request that the caller has built, to `path` on this connection's server.
    pub async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
        path: &str,
    ) -> Result<Response<Incoming>, Error> {
        let bad = |e: http::Error| Error::Server(format!("{path:?} is no path: {e}"));
        match &mut self.sender {
            Sender::Http1(sender) => {
                *request.uri_mut() = path.parse().map_err(|e: http::uri::InvalidUri| bad(e.into()))?;
                if let Ok(host) = HeaderValue::from_str(&self.authority) {
                    request.headers_mut().insert(HOST, host);
                }
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
            Sender::Http2(sender) => {
                *request.uri_mut() = http::Uri::builder()
                    .scheme("https")
                    .authority(&*self.authority)
                    .path_and_query(path)
                    .build()
                    .map_err(bad)?;
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
        }
    }

    /// Sends a request and reads the whole answer.
    pub async fn call(&mut self, call: &Call) -> Result<Reply, Error> {
        let (parts, body) = self.open(call).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Reply { status: parts.status, headers: parts.headers, body })
    }

    /// As [`call`](Connection::call), with an answer other than 2xx as an error.
    pub async fn must(&mut self, call: &Call) -> Result<Reply, Error> {
        let reply = self.call(call).await?;
        if reply.status.is_success() {
            return Ok(reply);
        }
        Err(refused(call, &reply))
    }
}

/// The error for an answer after which a workload cannot continue.
pub fn refused(call: &Call, reply: &Reply) -> Error {
    let body: String = reply.text().chars().take(300).collect();
    Error::Answer {
        method: call.method.clone(),
        path: call.path.clone(),
        status: reply.status.as_u16(),
        body,
    }
}
