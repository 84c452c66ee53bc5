//! One connection: handshake, who is at the other end, then request after request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::UPGRADE;
use hyper::service::service_fn;
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::Watcher;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::coalesce::{coalesce, drive};
use super::upgrade::HoldsEnd;
use crate::authn::Peer;
use crate::pipeline;
use crate::server::Server;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take to arrive.
const HEADER: Duration = Duration::from_secs(32);
/// The largest head of a request, as upstream's (`http.DefaultMaxHeaderBytes`).
const HEADER_BYTES: usize = 1 << 20;
/// Requests under way on one HTTP/2 connection, as upstream's default.
const STREAMS: u32 = 250;
/// Flow-control windows of HTTP/2, in bytes: large enough for a long list on loopback.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Largest HTTP/2 frame that is written, in bytes.
const FRAME: u32 = 64 << 10;
/// What one HTTP/2 stream may buffer for sending, in bytes.
const SEND_BUFFER: usize = 256 << 10;
/// The first byte of every TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

/// Go's answer to plain HTTP on a TLS port; clients show it to people.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Answers plain HTTP and closes. What the client sent is read first: a socket that is closed with unread bytes is
/// reset, and the answer lost.
async fn refuse_plain_http(mut stream: TcpStream) {
    let mut request = [0u8; 4096];
    if stream.read(&mut request).await.is_err() || stream.write_all(PLAIN_HTTP).await.is_err() {
        return;
    }
    if stream.shutdown().await.is_ok() {
        // Bounded by the caller's timeout and the size of the buffer.
        let _ = stream.read(&mut request).await;
    }
}

/// Serves one connection to its end. `after_upgrade` goes with the connection when it is taken over.
pub async fn serve(
    stream: TcpStream,
    tls: TlsAcceptor,
    server: Arc<Server>,
    watcher: Watcher,
    after_upgrade: Watcher,
) {
    // Small answers go out at once.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut first = [0u8; 1];
    match tokio::time::timeout(HANDSHAKE, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == TLS_HANDSHAKE => {}
        Ok(Ok(1)) => {
            let _ = tokio::time::timeout(HANDSHAKE, refuse_plain_http(stream)).await;
            return;
        }
        _ => return,
    }
    let stream = match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(fault)) => {
            tracing::debug!(%fault, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let peer = Peer::new(stream.get_ref().1.peer_certificates());
    let holds_end = HoldsEnd(Arc::new(after_upgrade));
    let service = service_fn(move |mut request: Request<Incoming>| {
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(holds_end.clone());
        }
        let (server, peer) = (server.clone(), peer.clone());
        async move { Ok::<_, Infallible>(pipeline::handle(server, peer, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_BYTES as u32)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    let (stream, flusher) = coalesce(stream);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(fault) = drive(watcher.watch(connection.into_owned()), flusher).await {
        tracing::debug!(%fault, "connection ended");
    }
}
