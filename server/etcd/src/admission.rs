//! How many requests of a connection are answered at a time.
//!
//! A client may open thousands of streams, and read none of the responses. What such a response takes is not
//! counted where it is small (`answers`), so their number is bounded: each holds a permit until the
//! connection has taken it. What the connection has taken waits for the socket, and is bounded, too: while
//! more than that waits, nothing else is answered. Requests that wait take what the client may send ahead,
//! which HTTP/2 bounds for a connection. Calls that last, as watches do, need no permit, and hold back no
//! others.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::Status;

/// Responses of a connection that are made, or wait for it. With 64 KiB each that are not counted, 64 MiB.
const RESPONSES: usize = 1024;
/// Bytes that wait in a stream for a client that does not read.
pub(crate) const SEND_BUFFER: usize = 1 << 20;
/// Bytes of responses that wait for the socket, and hold back no request.
const UNWRITTEN: usize = 64 << 20;
/// What the paths of calls that last as long as their clients want end with: of gRPC, and of the gateway.
const LASTING: [&str; 10] = [
    "/Watch",
    "/LeaseKeepAlive",
    "/Lock",
    "/Campaign",
    "/Observe",
    "/watch",
    "/lease/keepalive",
    "/lock/lock",
    "/election/campaign",
    "/election/observe",
];

/// Who decides that for a connection.
pub(crate) struct Admission {
    responses: Arc<Semaphore>,
    /// Bytes of responses that the connection has taken and the socket has not.
    unwritten: AtomicUsize,
    written: Notify,
}

impl Admission {
    pub(crate) fn new() -> Admission {
        let responses = Arc::new(Semaphore::new(RESPONSES));
        Admission { responses, unwritten: AtomicUsize::new(0), written: Notify::new() }
    }

    /// Waits until a request may be answered. None for one that needs no permit.
    pub(crate) async fn admit(&self, path: &str) -> Option<OwnedSemaphorePermit> {
        if LASTING.iter().any(|lasting| path.ends_with(lasting)) {
            return None;
        }
        // It is never closed.
        let permit = Arc::clone(&self.responses).acquire_owned().await.ok();
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            // From here on it notices, so that none is missed between the look and the wait.
            written.as_mut().enable();
            if self.unwritten.load(Ordering::Acquire) <= UNWRITTEN {
                return permit;
            }
            written.await;
        }
    }

    /// Notes bytes that the socket has taken, those of headers among them.
    pub(crate) fn wrote(&self, bytes: usize) {
        let left = |unwritten: usize| Some(unwritten.saturating_sub(bytes));
        // It never refuses.
        let before = self.unwritten.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).unwrap_or(0);
        if before > UNWRITTEN && before.saturating_sub(bytes) <= UNWRITTEN {
            self.written.notify_waiters();
        }
    }

    /// Notes that a stream was reset: what was taken of it is never written. How much that is nobody knows,
    /// but it is not more than this.
    pub(crate) fn reset(&self) {
        self.wrote(SEND_BUFFER);
    }
}

/// A response that holds a permit until the connection has taken it, unless it needs none.
pub(crate) struct Admitted {
    body: Body,
    admission: Arc<Admission>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Admitted {
    pub(crate) fn new(
        body: Body,
        admission: Arc<Admission>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Admitted {
        Admitted { body, admission, _permit: permit }
    }
}

impl HttpBody for Admitted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.admission.unwritten.fetch_add(bytes, Ordering::AcqRel);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const RANGE: &str = "/etcdserverpb.KV/Range";

    #[tokio::test]
    async fn a_connection_has_a_number_of_responses_and_watches_beside_them() {
        let admission = Admission::new();
        let mut held = Vec::new();
        for _ in 0..RESPONSES {
            held.push(admission.admit(RANGE).await.unwrap());
        }
        let wait = Duration::from_millis(20);
        assert!(tokio::time::timeout(wait, admission.admit(RANGE)).await.is_err());
        for lasting in ["/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive", "/v3/watch"] {
            assert!(admission.admit(lasting).await.is_none(), "{lasting}");
        }
        held.pop();
        assert!(admission.admit(RANGE).await.is_some());
    }

    #[tokio::test]
    async fn nothing_is_answered_while_much_waits_for_the_socket() {
        let admission = Arc::new(Admission::new());
        let is_admitted = || {
            let admission = Arc::clone(&admission);
            tokio::spawn(async move { admission.admit(RANGE).await.is_some() })
        };
        let take = |bytes| {
            let body = Body::new(Full::from(vec![b'x'; bytes]));
            Admitted::new(body, Arc::clone(&admission), None).collect()
        };
        take(UNWRITTEN).await.unwrap();
        assert!(is_admitted().await.unwrap(), "as much as may wait");
        for is_reset in [false, true] {
            take(2).await.unwrap();
            let waiting = [is_admitted(), is_admitted()];
            admission.wrote(1);
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(waiting.iter().all(|task| !task.is_finished()));
            match is_reset {
                false => admission.wrote(1),
                true => admission.reset(),
            }
            for task in waiting {
                assert!(task.await.unwrap());
            }
        }
        admission.wrote(usize::MAX);
        assert_eq!(admission.unwritten.load(Ordering::Relaxed), 0);
    }
}
