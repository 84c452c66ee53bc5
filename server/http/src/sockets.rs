//! Options of the sockets of connections.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// How long a client may leave sent data unacknowledged, and the interval of TCP keepalive probes.
const STALL: Duration = Duration::from_secs(60);
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Sends small answers at once, and closes connections whose client is gone or has stopped reading.
///
/// # Errors
/// When the socket is closed already.
pub fn prepare_socket(stream: &TcpStream) -> std::io::Result<()> {
    prepare_outgoing_socket(stream)?;
    #[cfg(target_os = "linux")]
    {
        // Covers data that waits in the socket because the client's window is closed (tcp(7)).
        let stall = u32::try_from(STALL.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, stall)?;
    }
    Ok(())
}

/// Sends small requests at once, and notices that the other machine is gone, as Go's dialer does. A server
/// that does not read for a while may do so.
///
/// # Errors
/// When the socket is closed already.
pub fn prepare_outgoing_socket(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    #[cfg(target_os = "linux")]
    {
        sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
        sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    }
    Ok(())
}
