//! Accepts connections until the server stops, then waits for requests in flight.

mod connection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use self::connection::{AcceptedConnection, ConnectionSettings};
use crate::context::Server;
use plinth_http::{
    ConnectionLimits, Connections, FairScheduler, HttpOptions, LargeHeaderSlots, ScheduledTask, UnreadAnswers,
};

/// Length of the accept queue.
const BACKLOG: u32 = 1024;
/// How long requests in flight may take after the stop; watches end at once.
const DRAIN: Duration = Duration::from_secs(10);
/// Pause after a failed accept, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}{}", advice(source))]
pub struct BindError {
    address: SocketAddr,
    source: std::io::Error,
}

/// What to do about it, where that is known.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "; give --secure-port another port or stop the other server",
        std::io::ErrorKind::AddrNotAvailable => "; --bind-address is no address of this machine",
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege (CAP_NET_BIND_SERVICE)",
        _ => "",
    }
}

/// Binds a TCP address.
///
/// # Errors
/// When it is in use or not an address of this machine.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let error = |source| BindError { address, source };
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }.map_err(error)?;
    socket.set_reuseaddr(true).map_err(error)?;
    socket.bind(address).map_err(error)?;
    socket.listen(BACKLOG).map_err(error)
}

/// Serves connections until `stop` is true, then waits for requests in flight.
pub async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    server: Arc<Server>,
    (options, limits): (HttpOptions, ConnectionLimits),
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    limits.warn_below(options.max_connections);
    let connections = Connections::new(limits.accepted, options.max_connections_per_client);
    let settings = ConnectionSettings::new(&options);
    let scheduler = Arc::<FairScheduler>::default();
    let header_slots = LargeHeaderSlots::default();
    let unread =
        server.metrics.unread_answers.get_or_init(|| UnreadAnswers::new(options.max_unread_bytes)).clone();
    let stopped = async move {
        // A dropped sender means stop, too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::pin!(stopped);
    loop {
        let (stream, remote) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => (stream, address.ip()),
                Err(error) => {
                    tracing::warn!(%error, "connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            () = &mut stopped => break,
        };
        let Some((slot, evicted)) = connections.admit(remote) else {
            // The connection closes when it is dropped. A warning for each would be a second flood.
            tracing::debug!(source_ip = %remote, "connection refused: limit reached");
            continue;
        };
        let scheduled = scheduler.connection();
        let accepted = AcceptedConnection {
            slot,
            evicted,
            remote,
            settings,
            header_slots: header_slots.clone(),
            scheduled: scheduled.clone(),
            unread: unread.connection(),
        };
        let (tls, server) = (tls.clone(), server.clone());
        let (end, after_upgrade) = (graceful.watcher(), graceful.watcher());
        tokio::spawn(ScheduledTask::new(
            scheduled,
            connection::serve(stream, accepted, tls, server, end, after_upgrade),
        ));
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests in flight were aborted at shutdown");
    }
}
