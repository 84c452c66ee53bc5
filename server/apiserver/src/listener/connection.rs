//! Serves one connection: TLS handshake, then its requests.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, CONNECTION, CONTENT_TYPE, TRANSFER_ENCODING, UPGRADE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, Notify};
use tokio_rustls::server::TlsStream;
use tokio_rustls::TlsAcceptor;

use crate::authn::Peer;
use crate::context::Server;
use crate::pipeline;
use plinth_http::{
    coalesce_writes, drive_connection, prepare_socket, wrap_request_body, Body, ConnectionSlot,
    ConnectionUnread, DetachOnDrop, HttpOptions, LargeHeaderSlots, ReadPhase, RequestBody,
    ScheduledConnection, StreamExecutor, UnbegunRequest, UnreadBody, UpgradeHold, MOST_HEADER_LINES,
};

/// Longest TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Longest time in which the head of a request must arrive.
const HEADER: Duration = Duration::from_secs(32);
/// The largest head of a request, as upstream's (`http.DefaultMaxHeaderBytes`).
const HEADER_BYTES: usize = 1 << 20;
/// Concurrent HTTP/2 streams of a connection when the options do not set it.
const STREAMS: u32 = 250;
/// Flow-control windows of HTTP/2, in bytes: large enough for a long list on loopback.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Largest HTTP/2 frame that is written, in bytes.
const FRAME: u32 = 64 << 10;
/// Send buffer of one HTTP/2 stream, in bytes.
const SEND_BUFFER: usize = 256 << 10;
/// Streams reset before they were accepted: more end the connection ("rapid reset").
const PENDING_RESETS: usize = 20;
/// Streams reset because of protocol errors: more end the connection.
const ERROR_RESETS: usize = 256;
/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

/// Go's answer to plain HTTP on a TLS port; clients show it to users.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Answers plain HTTP and closes. The request is read first: closing a socket with unread data resets
/// it, and the answer is lost.
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

/// Refuses a body with more than one transfer coding: hyper decodes the chunks, and a proxy might decode the
/// body differently (request smuggling; net/http answers 501 too).
fn unknown_coding(request: &Request<RequestBody>) -> Option<Response<Body>> {
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let first = codings.next()?;
    if codings.next().is_none() && first.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return None;
    }
    let mut response = Response::new(Body::from(b"Unsupported transfer encoding".to_vec()));
    *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// Settings shared by all connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionSettings {
    streams: u32,
    goaway_chance: f64,
}

impl ConnectionSettings {
    /// The settings of these options.
    pub(super) fn new(options: &HttpOptions) -> ConnectionSettings {
        let streams = match options.http2_max_streams_per_connection {
            0 => STREAMS,
            streams => streams,
        };
        ConnectionSettings { streams, goaway_chance: options.goaway_chance }
    }

    /// Whether a request makes the connection send GOAWAY, so that the client reconnects.
    fn sends_goaway(&self) -> bool {
        // A v4 UUID has 122 random bits; 53 of them make a fraction.
        const ALL: f64 = (1u64 << 53) as f64;
        let random = || (uuid::Uuid::new_v4().as_u128() & ((1 << 53) - 1)) as u64 as f64 / ALL;
        self.goaway_chance > 0.0 && random() < self.goaway_chance
    }
}

/// An accepted connection with its resources.
pub(super) struct AcceptedConnection {
    /// Its slot in the connection limits.
    pub slot: ConnectionSlot,
    /// Ready when its half-open slot is given to another connection.
    pub evicted: oneshot::Receiver<()>,
    /// The client's address.
    pub remote: IpAddr,
    /// Settings shared by all connections.
    pub settings: ConnectionSettings,
    /// The limiter of large request heads.
    pub header_slots: LargeHeaderSlots,
    /// Its entry in fair queuing.
    pub scheduled: Arc<ScheduledConnection>,
    /// Answers that its client has not read.
    pub unread: Arc<ConnectionUnread>,
}

/// Performs the TLS handshake; `None` when it fails or takes too long.
async fn accept_tls(stream: TcpStream, tls: TlsAcceptor, server: &Server) -> Option<TlsStream<TcpStream>> {
    let handshake = async {
        let mut first = [0u8; 1];
        match tokio::time::timeout(HANDSHAKE, stream.peek(&mut first)).await {
            Ok(Ok(1)) if first[0] == TLS_HANDSHAKE => {}
            Ok(Ok(1)) => {
                let _ = tokio::time::timeout(HANDSHAKE, refuse_plain_http(stream)).await;
                return None;
            }
            _ => return None,
        }
        match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    };
    let accepted = handshake.await;
    if accepted.is_none() {
        server.metrics.tls_handshake_errors.inc();
    }
    accepted
}

/// The HTTP server of a connection.
fn http_builder(
    settings: ConnectionSettings,
    is_http2: bool,
    streams: StreamExecutor,
) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_buf_size(HEADER_BYTES)
        .max_headers(MOST_HEADER_LINES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.streams)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_BYTES as u32)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    match is_http2 {
        true => builder.http2_only(),
        false => builder.http1_only(),
    }
}

/// Shuts a connection down gracefully and polls it to its end. `own` watches this connection alone: its
/// shutdown waits for the connection to be dropped, which happens after the connection's own end.
async fn finish_gracefully<C: std::future::Future + Unpin>(
    own: GracefulShutdown,
    mut connection: C,
) -> C::Output {
    tokio::select! {
        biased;
        () = own.shutdown() => connection.await,
        ended = &mut connection => ended,
    }
}

/// Answers a request, and closes an HTTP/1.1 connection where the rest of its body is not read.
async fn answer(
    server: Arc<Server>,
    info: pipeline::ConnectionInfo,
    (request, unbegun): (Request<RequestBody>, Option<UnbegunRequest>),
    (incoming, unread): (ReadPhase, Option<UnreadBody>),
) -> Result<Response<Body>, Infallible> {
    drop(unbegun);
    if let Some(refusal) = unknown_coding(&request) {
        return Ok(refusal);
    }
    let mut response = pipeline::handle(server, info, request).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        incoming.protocol_switched();
    } else if let Some(unread) = unread {
        if !unread.drain().await {
            incoming.closes_early();
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    Ok(response)
}

/// Serves a connection to its end. `after_upgrade` is moved into the connection when it is upgraded.
pub(super) async fn serve(
    stream: TcpStream,
    accepted: AcceptedConnection,
    tls: TlsAcceptor,
    server: Arc<Server>,
    watcher: Watcher,
    after_upgrade: Watcher,
) {
    let AcceptedConnection {
        mut slot,
        evicted,
        remote,
        settings,
        header_slots,
        scheduled,
        unread: unread_answers,
    } = accepted;
    if prepare_socket(&stream).is_err() {
        return;
    }
    let stream = tokio::select! {
        stream = accept_tls(stream, tls, &server) => stream,
        _ = evicted => None,
    };
    let Some(stream) = stream else { return };
    slot.opened();
    let peer = Peer::new(stream.get_ref().1.peer_certificates());
    // ALPN decides; without it the protocol is HTTP/1.1 (RFC 9113, 3.2), as upstream.
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    // Until the connection ends, or what it is upgraded to.
    let slot = Arc::new(slot);
    let upgrade_hold = UpgradeHold {
        shutdown: Arc::new(after_upgrade),
        slot: slot.clone(),
        scheduled: scheduled.clone(),
        unread: unread_answers.clone(),
    };
    let (stream, flusher, incoming) = coalesce_writes(stream, is_http2, header_slots, unread_answers.clone());
    let mut stopping = server.stopping.clone();
    let goaway = Arc::new(Notify::new());
    let (goaway_sender, connection_scheduled) = (goaway.clone(), scheduled.clone());
    let closed = unread_answers.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut request, unread) = wrap_request_body(request);
        let incoming = incoming.clone();
        incoming.header_complete();
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(upgrade_hold.clone());
        }
        let info = pipeline::ConnectionInfo {
            peer: peer.clone(),
            remote,
            scheduled: connection_scheduled.clone(),
            unread: unread_answers.clone(),
        };
        let (server, detacher) = (server.clone(), server.clone());
        let unbegun = info.unread.count_request(&request, info.scheduled.streams());
        if request.version() == hyper::Version::HTTP_2 && settings.sends_goaway() {
            goaway_sender.notify_one();
        }
        // Boxed, so that it is freed when the response starts: the task of a stream is as large as the
        // largest state of its future, and a watch would keep the memory of its request for its whole
        // duration.
        let answered = Box::pin(answer(server, info, (request, unbegun), (incoming, unread)));
        DetachOnDrop::new(answered, move |request| detacher.finish_detached(request))
    });
    let builder = http_builder(settings, is_http2, StreamExecutor(scheduled.clone()));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    // The listener waits for `watcher`; `own` shuts down this connection alone.
    let _watcher = watcher;
    let own = GracefulShutdown::new();
    // A dropped sender means stop, too.
    let stopped = async move { drop(stopping.wait_for(|stop| *stop).await) };
    let until_end = async {
        let mut connection = std::pin::pin!(own.watch(connection.into_owned()));
        tokio::select! {
            ended = &mut connection => ended,
            () = goaway.notified() => finish_gracefully(own, connection).await,
            () = stopped => finish_gracefully(own, connection).await,
            () = closed.closed() => {
                tracing::debug!(%remote, "connection closed: its client does not read answers");
                Ok(())
            }
        }
    };
    if let Err(error) = drive_connection(until_end, flusher, || scheduled.streams()).await {
        tracing::debug!(%error, "connection ended");
    }
    drop(slot);
}
