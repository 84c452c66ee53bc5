//! Connects to a service: DNS, TCP, TLS, HTTP/1.1.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use plinth_codec::url::join_host_port;
use plinth_http::prepare_outgoing_socket;
use rustls::pki_types::ServerName;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{lookup_host, TcpStream};
use tokio_rustls::TlsConnector;

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
    /// TLS failed, most often because the certificate is not trusted.
    #[error("tls: {0}")]
    Tls(io::Error),
    /// HTTP failed.
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

/// Connects to the first allowed address of a host that answers. The timeout is the system's.
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
    // A request, or a typed key, must not wait for the one before it; a machine that is gone says nothing.
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
    let server = ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::Name(name.to_owned()))?;
    let stream =
        TlsConnector::from(config.clone()).connect(server, stream).await.map_err(ConnectError::Tls)?;
    Ok(Box::new(stream))
}

/// Starts HTTP/1.1. A task drives the connection until the sender is dropped or the connection is upgraded;
/// errors are returned to the request in flight.
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
            tracing::debug!(%error, "connection to a service ended");
        }
    });
    Ok(sender)
}
