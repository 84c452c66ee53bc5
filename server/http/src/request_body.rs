//! Request bodies, and what of one is left when its answer is there.
//!
//! A connection of HTTP/1.1 can be used again only when the request's body has been read. hyper reads what happens to have come
//! already and closes the connection otherwise, without a word: a client that sends head and body apart then finds its next
//! request, or the answer itself, lost. So a body that is dropped before its end comes back to its connection, which reads the
//! rest before the answer goes out, and says `Connection: close` where the rest is too long (net/http `server.go`: `writeHeader`
//! does the same).

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

/// The longest rest of a body that is read for the connection's sake, in bytes (net/http `maxPostHandlerReadBytes`).
const REST: usize = 256 << 10;
/// How long it may take to come.
const REST_TIME: Duration = Duration::from_secs(5);

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    body: Option<Incoming>,
    unread: Option<Unread>,
}

/// Where the connection finds a body that was dropped before its end. The lock is held for a move only: by the body's drop, and
/// by the connection's task once the answer is there.
#[derive(Clone, Debug)]
pub struct Unread {
    dropped: Arc<Mutex<Option<Incoming>>>,
    /// The client waits with its body until it is asked for it.
    is_awaited: bool,
}

/// Lends a request's body to whoever answers it. Of HTTP/1.1 also returned: where it is found when not all of it was read.
pub fn lend(request: Request<Incoming>) -> (Request<RequestBody>, Option<Unread>) {
    let (parts, body) = request.into_parts();
    let unread = (parts.version < Version::HTTP_2 && !body.is_end_stream())
        .then(|| Unread { dropped: Arc::default(), is_awaited: parts.headers.contains_key(EXPECT) });
    let body = RequestBody { body: Some(body), unread: unread.clone() };
    (Request::from_parts(parts, body), unread)
}

impl Unread {
    /// Reads the rest of the body. False when the connection cannot be used again because there is too much of it, it does not
    /// come, or the client still waits to be asked for it. A body that somebody still reads is left alone.
    pub async fn drain(self) -> bool {
        let Some(rest) = self.dropped.lock().take() else { return true };
        // To ask for it now would have the client send what nobody wants.
        if self.is_awaited || rest.size_hint().lower() > REST as u64 {
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
            unread.is_awaited = false;
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
