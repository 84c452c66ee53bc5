//! Request bodies, and the unread rest of one when its response is ready.
//!
//! An HTTP/1.1 connection can be reused only when the request's body has been read. hyper reads what has been
//! received already and otherwise closes the connection without an announcement: a client that sends header
//! and body apart then loses its next request, or the response itself. So a body that is dropped before its
//! end is returned to its connection, which reads the rest before the response is sent, and sends
//! `Connection: close` where the rest is too long (as net/http `server.go` does in `writeHeader`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use hyper::{Request, Version};
use parking_lot::Mutex;

/// Maximum size of a body's rest that is read to reuse the connection, in bytes (net/http
/// `maxPostHandlerReadBytes`).
const REST: usize = 256 << 10;
/// Time limit for reading it.
const REST_TIME: Duration = Duration::from_secs(5);

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
}

/// Wraps a request's body. For HTTP/1.1 also returns where the body is found if it was not read to its end.
pub fn wrap_request_body(request: Request<Incoming>) -> (Request<RequestBody>, Option<UnreadBody>) {
    let (parts, body) = request.into_parts();
    let unread = (parts.version < Version::HTTP_2 && !body.is_end_stream())
        .then(|| UnreadBody { dropped: Arc::default(), awaits_continue: parts.headers.contains_key(EXPECT) });
    let body = RequestBody { body: Some(body), unread: unread.clone() };
    (Request::from_parts(parts, body), unread)
}

impl UnreadBody {
    /// Reads the rest of the body. False when the connection cannot be reused because the rest is too long,
    /// does not arrive in time, or the client still waits for `100 Continue`. A body that is still being read
    /// is left alone.
    pub async fn drain(self) -> bool {
        let Some(rest) = self.dropped.lock().take() else { return true };
        // To send `100 Continue` now would make the client send data that is discarded.
        if self.awaits_continue || rest.size_hint().lower() > REST as u64 {
            return false;
        }
        let mut rest = std::pin::pin!(Limited::new(rest, REST));
        let read = async {
            while let Some(frame) = rest.frame().await {
                if frame.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(REST_TIME, read).await.unwrap_or(false)
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
