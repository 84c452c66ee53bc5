//! Connects to a service: DNS, TCP, TLS, HTTP/1.1 (`http2` for HTTP/2).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use plinth_codec::url::join_host_port;
use plinth_http::{prepare_outgoing_socket, MOST_HEADER_LINES};
use rustls::pki_types::ServerName;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{lookup_host, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_rustls::TlsConnector;

use super::forward::RequestConnection;
use super::happy_eyeballs;
use super::pool::Reusable;
use super::proxy::ProxyError;
use super::tls_error;

/// Bytes of a connection that were received and not read, and so the longest head of a response. Each proxied
/// answer that waits for its client has so many.
pub(super) const MOST_BUFFERED: usize = 64 << 10;

/// Both directions of a byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why no connection was established, with Go's messages where it has one, because people search for them.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// DNS or TCP failed.
    #[error("dial tcp {}: {}", join_host_port(host, port), in_go(source))]
    Dial {
        /// Host name.
        host: String,
        /// TCP port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// No address of the host may be connected to.
    #[error("address not allowed")]
    NotAllowed,
    /// Not a valid server name.
    #[error("tls: {0:?} is no name of a server")]
    Name(String),
    /// The proxy failed, or did not connect.
    #[error("{0}")]
    Proxy(#[from] ProxyError),
    /// TLS failed, most often because the certificate is not trusted.
    #[error("{}", tls_error::in_go(.0))]
    Tls(io::Error),
    /// HTTP failed.
    #[error("{}", with_cause(.0))]
    Http(#[from] hyper::Error),
}

/// The text of an error with that of its cause, such as the code that a server has reset a stream with.
pub(super) fn with_cause(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn in_go(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

/// Connects to the first allowed address of a host that answers (`happy_eyeballs`).
///
/// # Errors
/// [`ConnectError`].
pub async fn dial(
    host: &str,
    port: u16,
    is_allowed: impl Fn(IpAddr) -> bool,
) -> Result<TcpStream, ConnectError> {
    let failed = |source| ConnectError::Dial { host: host.to_owned(), port, source };
    let addresses: Vec<SocketAddr> = lookup_host((host, port)).await.map_err(failed)?.collect();
    let addresses: Vec<SocketAddr> = addresses.into_iter().filter(|a| is_allowed(a.ip())).collect();
    if addresses.is_empty() {
        return Err(ConnectError::NotAllowed);
    }
    let stream = happy_eyeballs::connect(addresses).await.map_err(failed)?;
    // A request, or a typed key, must not wait for the one before it; a machine that is gone sends nothing.
    prepare_outgoing_socket(&stream).map_err(failed)?;
    Ok(stream)
}

/// Performs the TLS handshake. `name` is the server name to verify.
///
/// # Errors
/// [`ConnectError::Name`] and [`ConnectError::Tls`].
pub async fn secure(
    stream: TcpStream,
    config: &Arc<ClientConfig>,
    name: &str,
) -> Result<Box<dyn Stream>, ConnectError> {
    Ok(Box::new(negotiate(stream, config, name).await?))
}

/// As [`secure`], with the protocol that the server chose.
///
/// # Errors
/// As [`secure`].
pub(super) async fn negotiate(
    stream: TcpStream,
    config: &Arc<ClientConfig>,
    name: &str,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let server = ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::Name(name.to_owned()))?;
    TlsConnector::from(config.clone()).connect(server, stream).await.map_err(ConnectError::Tls)
}

/// Starts HTTP/1.1.
///
/// # Errors
/// [`ConnectError::Http`].
pub async fn handshake<B>(stream: Box<dyn Stream>) -> Result<Connection<B>, ConnectError>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MOST_BUFFERED).max_headers(MOST_HEADER_LINES);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to a service ended");
        }
    });
    Ok(Connection { sender, sending: Weak::new(), task })
}

/// A connection, for one request after the other. A task drives it until this is dropped, whatever is still
/// being sent or received then, or until it has switched protocols: a server may answer before it has read a
/// request whose body never ends.
pub struct Connection<B> {
    sender: SendRequest<SentBody<B>>,
    /// Of the last request's body, until hyper has sent it.
    sending: Weak<()>,
    task: JoinHandle<()>,
}

impl<B: Body + Unpin + 'static> Connection<B> {
    /// Sends a request. The body of the response ends with the connection.
    ///
    /// # Errors
    /// Of the connection.
    pub async fn send(&mut self, request: Request<B>) -> Result<Response<Incoming>, hyper::Error> {
        let request = self.begin(request);
        self.sender.send_request(request).await
    }

    /// Sends a request on a connection that may have been closed meanwhile. With the error comes the request,
    /// where nothing of it was sent.
    ///
    /// # Errors
    /// Of the connection.
    pub(super) async fn try_send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<B>>)> {
        let request = self.begin(request);
        self.sender.try_send_request(request).await.map_err(|mut error| {
            let unsent = error.take_message().map(|request| request.map(|sent| sent.body));
            (error.into_error(), unsent)
        })
    }

    /// Waits until another request can be sent.
    ///
    /// # Errors
    /// Of the connection.
    pub(super) async fn ready(&mut self) -> Result<(), hyper::Error> {
        self.sender.ready().await
    }

    fn begin(&mut self, request: Request<B>) -> Request<SentBody<B>> {
        let sending = Arc::new(());
        self.sending = Arc::downgrade(&sending);
        request.map(|body| SentBody { body, _sending: sending })
    }
}

impl<B> Connection<B> {
    /// Whether the last request is sent: until then the next one would wait for it.
    pub(super) fn has_sent(&self) -> bool {
        self.sending.strong_count() == 0
    }
}

impl<B: Body + Unpin + Send + 'static> Reusable for Connection<B> {
    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// It is closed where the request was not sent to its end: its client decides when that is.
    fn is_reusable(&self) -> bool {
        self.has_sent()
    }
}

impl<B: Send + 'static> RequestConnection for Connection<B> {
    fn has_sent(&self) -> bool {
        self.has_sent()
    }

    fn received(self: Box<Self>) {}
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        // After a switch of protocols it has ended, and whoever has the stream keeps it.
        self.task.abort();
    }
}

/// The body of a request, which hyper drops when it is sent.
struct SentBody<B> {
    body: B,
    _sending: Arc<()>,
}

impl<B: Body + Unpin> Body for SentBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
