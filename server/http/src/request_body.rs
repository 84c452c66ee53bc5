//! Request bodies, and the unread rest of one when its response is ready.
//!
//! An HTTP/1.1 connection can be reused only when the request's body has been read. hyper reads what has been
//! received already and otherwise closes the connection without an announcement: a client that sends header
//! and body apart then loses its next request, or the response itself. So a body that is dropped before its
//! end is returned to its connection, which reads the rest before the response is sent, and sends
//! `Connection: close` where the rest is too long (as net/http `server.go` does in `writeHeader`).
//!
//! An HTTP/2 stream is reset when its body is dropped before its end. curl loses a response that arrives in
//! one TLS record with that reset. So the rest is read after the response is sent: a short one ends the
//! stream without a reset, and the reset of another one follows some time after the response.

use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use hyper::{Request, Version};
use parking_lot::Mutex;

/// Maximum size of a body's rest that is read to reuse the connection, in bytes (net/http
/// `maxPostHandlerReadBytes`).
const REST: usize = 256 << 10;
/// Time limit for reading it.
const REST_TIME: Duration = Duration::from_secs(5);
/// How long a longer rest of an HTTP/2 stream is read and discarded before the stream is reset (as net/http
/// `rstAvoidanceDelay`).
const RESET_DELAY: Duration = Duration::from_millis(500);

/// The body of a request, as handlers read it.
#[derive(Debug)]
pub struct RequestBody {
    body: Option<Incoming>,
    unread: Option<UnreadBody>,
}

/// Where a body that was dropped before its end is left for the connection. The lock is held for a move only:
/// by the body's drop, and by the connection's task once the response is ready.
#[derive(Clone, Debug)]
pub struct UnreadBody {
    dropped: Arc<Mutex<Option<Incoming>>>,
    /// The client sends its body only after `100 Continue`.
    awaits_continue: bool,
    is_http2: bool,
}

/// Wraps a request's body. Also returns where the body is found if it was not read to its end.
pub fn wrap_request_body(request: Request<Incoming>) -> (Request<RequestBody>, Option<UnreadBody>) {
    let (parts, body) = request.into_parts();
    let unread = (!body.is_end_stream()).then(|| UnreadBody {
        dropped: Arc::default(),
        awaits_continue: parts.headers.contains_key(EXPECT),
        is_http2: parts.version == Version::HTTP_2,
    });
    let body = RequestBody { body: Some(body), unread: unread.clone() };
    (Request::from_parts(parts, body), unread)
}

impl UnreadBody {
    /// Reads the rest of the body; to be called when the response is ready. False when the connection cannot
    /// be reused because the rest is too long, does not arrive in time, or the client still waits for `100
    /// Continue`. A body that is still being read is left alone. Over HTTP/2 the response does not wait.
    pub async fn drain(self) -> bool {
        let Some(rest) = self.dropped.lock().take() else { return true };
        if self.is_http2 {
            // Holds the stream, whose number is limited on each connection, for a bounded time.
            tokio::spawn(read_before_reset(rest));
            return true;
        }
        // To send `100 Continue` now would make the client send data that is discarded.
        if self.awaits_continue {
            return false;
        }
        tokio::time::timeout(REST_TIME, read_rest(&mut pin!(rest))).await == Ok(Rest::Read)
    }
}

/// What became of the rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Read,
    TooLong,
    Failed,
}

/// Reads and discards a body to its end, up to the limit.
async fn read_rest<B: HttpBody<Data = Bytes>>(body: &mut Pin<&mut B>) -> Rest {
    let mut left = REST;
    // The length that the client has announced.
    if body.size_hint().lower() > left as u64 {
        return Rest::TooLong;
    }
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Rest::Failed };
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(rest) => left = rest,
            None => return Rest::TooLong,
        }
    }
    Rest::Read
}

/// Reads the rest of an HTTP/2 stream's body; dropping it before its end resets the stream.
async fn read_before_reset<B: HttpBody<Data = Bytes>>(body: B) {
    let mut body = pin!(body);
    if tokio::time::timeout(REST_TIME, read_rest(&mut body)).await == Ok(Rest::TooLong) {
        let discard = async { while let Some(Ok(_)) = body.frame().await {} };
        // Either way the body is dropped now.
        let _ = tokio::time::timeout(RESET_DELAY, discard).await;
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(unread) = &mut self.unread {
            unread.awaits_continue = false;
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let (Some(unread), Some(body)) = (&self.unread, self.body.take()) else { return };
        if !body.is_end_stream() {
            *unread.dropped.lock() = Some(body);
        }
    }
}
