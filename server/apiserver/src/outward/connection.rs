//! A connection to a service: name, TCP, TLS, HTTP/1.1.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{lookup_host, TcpStream};
use tokio_rustls::TlsConnector;

/// Both directions of a byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why no connection came about, in Go's words where it has some, because people look for them.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// TCP, or the name of the host.
    #[error("dial tcp {host}:{port}: {}", in_go(source))]
    Dial {
        /// Where to.
        host: String,
        /// Where to.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// No address of the host is one that may be connected to.
    #[error("address not allowed")]
    NotAllowed,
    /// No certificate can have that name.
    #[error("tls: {0:?} is no name of a server")]
    Name(String),
    /// TLS: most of the time a certificate that is not trusted.
    #[error("tls: {0}")]
    Tls(io::Error),
    /// HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

fn in_go(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

/// Connects to the first address of a host that answers, of those that are allowed. Waits for as long as the system does.
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
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(failed)?;
    // A question, or a key that is typed, is not to wait for the one before it.
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Puts TLS onto a connection. `name` is what the other end's certificate must have.
///
/// # Errors
/// [`ConnectError::Name`] and [`ConnectError::Tls`].
pub async fn secure(
    stream: TcpStream,
    config: &Arc<ClientConfig>,
    name: &str,
) -> Result<Box<dyn Stream>, ConnectError> {
    let server = ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::Name(name.to_owned()))?;
    let stream =
        TlsConnector::from(config.clone()).connect(server, stream).await.map_err(ConnectError::Tls)?;
    Ok(Box::new(stream))
}

/// Begins HTTP/1.1. A task drives the connection until the sender is dropped, or the connection has been upgraded; errors
/// reach the request in flight.
///
/// # Errors
/// [`ConnectError::Http`].
pub async fn handshake<B>(stream: Box<dyn Stream>) -> Result<SendRequest<B>, ConnectError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a service ended");
        }
    });
    Ok(sender)
}
