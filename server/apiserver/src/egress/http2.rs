//! Connections of HTTP/2 to services that choose it in the TLS handshake, as Go's client offers it to
//! webhooks. Several requests go over one at a time.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::HOST;
use hyper::http::uri::{Authority, Scheme};
use hyper::rt::Executor;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::connection::{ConnectError, Stream, MOST_BUFFERED};

/// Name of the protocol in the TLS handshake.
pub(super) const ALPN: &[u8] = b"h2";

/// Most requests at a time on one connection, where the server allows as many.
const MAX_STREAMS: usize = 100;
/// How much of a response, and of all responses of a connection, is received before it is read.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Longest headers of a response.
const MAX_HEADERS: u32 = MOST_BUFFERED as u32;
/// A server that sends nothing for so long is sent a PING; so much later, without an answer, it is gone
/// (k8s.io/apimachinery `pkg/util/net`, `readIdleTimeoutSeconds` and `pingTimeoutSeconds`).
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection. Dropping it closes it, whatever is still being sent or received then.
pub(super) struct Http2Connection {
    sender: SendRequest<Full<Bytes>>,
    /// What distributes requests, which a task drives. None once it has ended: while it exists, requests are
    /// queued for it, and would wait for ever.
    dispatch: Arc<Mutex<Option<Dispatch>>>,
    tasks: Tasks,
}

type Dispatch = http2::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>, Tasks>;

/// What failed with a request, and whether it can have arrived.
#[derive(Debug)]
pub(super) struct SendError {
    pub error: hyper::Error,
    /// The server has not processed it, and will not.
    pub is_unsent: bool,
}

/// Starts HTTP/2.
///
/// # Errors
/// [`ConnectError::Http`].
pub(super) async fn handshake(stream: Box<dyn Stream>) -> Result<Http2Connection, ConnectError> {
    let tasks = Tasks::default();
    let mut builder = http2::Builder::new(tasks.clone());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADERS)
        // One, until its settings have arrived.
        .initial_max_send_streams(1);
    let (sender, dispatch) = builder.handshake(TokioIo::new(stream)).await?;
    let dispatch = Arc::new(Mutex::new(Some(dispatch)));
    tasks.execute(drive(dispatch.clone()));
    Ok(Http2Connection { sender, dispatch, tasks })
}

/// Drives a dispatch to its end and drops it, which closes the connection to further requests and returns
/// those that were queued as unsent.
async fn drive(dispatch: Arc<Mutex<Option<Dispatch>>>) {
    let ended = poll_fn(|cx| match dispatch.lock().as_mut() {
        Some(running) => Pin::new(running).poll(cx),
        None => Poll::Ready(Ok(())),
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "connection to a service ended");
    }
    let ended = dispatch.lock().take();
    drop(ended);
}

impl Http2Connection {
    /// Sends requests on it, several of these at a time.
    pub(super) fn sender(&self) -> Sender {
        Sender(self.sender.clone())
    }

    /// Whether it takes no request any more; what is under way may go on.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// How many requests may be under way: what its server allows now, within our limit.
    pub(super) fn capacity(&self) -> usize {
        let allowed = self.dispatch.lock().as_ref().map_or(0, Dispatch::current_max_send_streams);
        allowed.min(MAX_STREAMS)
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

/// Sends a request on a connection. Dropping it or the response before its end cancels the request.
pub(super) struct Sender(SendRequest<Full<Bytes>>);

impl Sender {
    /// Sends a request with a path for its URI to the server that its header `Host` names.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendError> {
        self.0.try_send_request(with_authority(request)).await.map_err(|mut failed| {
            let is_unsent = failed.take_message().is_some() || is_unprocessed(failed.error());
            SendError { error: failed.into_error(), is_unsent }
        })
    }
}

/// Moves the host from its header into the URI, which becomes `:scheme` and `:authority`.
fn with_authority(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let host = request.headers_mut().remove(HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    if authority.is_some() {
        (parts.scheme, parts.authority) = (Some(Scheme::HTTPS), authority);
    }
    // A path alone, or all three.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request
}

/// Whether the server has reported that it has not processed a request and will not (RFC 9113, 8.7): by a
/// GOAWAY with the number of an earlier one, or by REFUSED_STREAM. The error of a request that a GOAWAY
/// leaves under way is another one, whenever the connection ends.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<h2::Error>() {
            let is_refused = cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM);
            return cause.is_remote() && (cause.is_go_away() || is_refused);
        }
        source = cause.source();
    }
    false
}

/// The tasks of a connection: it is driven by one, and each request by another.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    tasks: JoinSet<()>,
    is_closed: bool,
}

impl<F: Future + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        let mut running = self.0.lock();
        while running.tasks.try_join_next().is_some() {}
        if !running.is_closed {
            running.tasks.spawn(async move {
                future.await;
            });
        }
    }
}

impl Tasks {
    fn abort(&self) {
        let mut running = self.0.lock();
        running.is_closed = true;
        running.tasks.abort_all();
    }
}
