//! Memory of large responses: how much of it there is at a time, and how long a client may take to read.
//!
//! A response of gRPC is one message, which is whole in memory from the first key that is read until its
//! client has taken the end of it. So what it takes is counted while keys are read ([`Reservation`]), a
//! request is refused that would take more than is left, and a client that takes nothing for a while loses
//! its response.
//! A Range in the order of keys takes little memory (`range_body`), but the state of the store.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{ready, Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::Status;

use crate::errors;
use crate::wire::kv::KeyValue;

/// Bytes of a response that are not counted: most responses are smaller.
const FREE: usize = 64 << 10;
/// Bytes that are counted at a time.
const STEP: usize = 1 << 20;
/// Bytes of a response that go to the connection at a time.
const PIECE: usize = 256 << 10;
/// A client that takes nothing for so long is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of large responses of a server.
#[derive(Debug)]
pub(crate) struct Answers {
    limit: usize,
    held: AtomicUsize,
}

impl Answers {
    pub(crate) fn new(limit: usize) -> Arc<Answers> {
        Arc::new(Answers { limit, held: AtomicUsize::new(0) })
    }

    /// Begins a response.
    pub(crate) fn begin(self: &Arc<Answers>) -> Reservation {
        Reservation { answers: Arc::clone(self), bytes: 0, counted: 0 }
    }
}

/// What one response takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    answers: Arc<Answers>,
    bytes: usize,
    /// Bytes that count for the server.
    counted: usize,
}

impl Reservation {
    /// Adds a key to the response.
    ///
    /// # Errors
    /// As [`Reservation::add_bytes`].
    pub(crate) fn add(&mut self, kv: &KeyValue) -> Result<(), Status> {
        self.add_bytes(kv.key.len() + kv.value.len() + size_of::<KeyValue>())
    }

    /// Adds bytes to the response.
    ///
    /// # Errors
    /// etcd's for a server with too much to do, when the responses of all clients take what they may.
    pub(crate) fn add_bytes(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= FREE + self.counted {
            return Ok(());
        }
        let more = (self.bytes - FREE - self.counted).next_multiple_of(STEP);
        let (held, limit) = (&self.answers.held, self.answers.limit);
        let within = |held: usize| held.checked_add(more).filter(|held| *held <= limit);
        match held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => {
                self.counted += more;
                Ok(())
            }
            Err(held) => {
                tracing::debug!(
                    bytes = held,
                    limit_bytes = limit,
                    "request refused, responses in progress take too much memory"
                );
                Err(errors::too_many_requests())
            }
        }
    }

    /// Whether it counts.
    pub(crate) fn is_large(&self) -> bool {
        self.counted > 0
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.answers.held.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// A response, and what it takes.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub message: T,
    pub held: Reservation,
}

impl<T> Answer<T> {
    /// A response of gRPC.
    pub(crate) fn into_response(self) -> tonic::Response<T> {
        let mut response = tonic::Response::new(self.message);
        if self.held.is_large() {
            response.extensions_mut().insert(Arc::new(self.held));
        }
        response
    }
}

/// Has [`paced`] send a response.
pub(crate) fn pace<B>(response: &mut Response<B>, held: Reservation) {
    response.extensions_mut().insert(Arc::new(held));
}

/// Sends a large response in pieces, and gives up a client that does not read them.
pub(crate) fn paced(mut response: Response<Body>) -> Response<Body> {
    match response.extensions_mut().remove::<Arc<Reservation>>() {
        Some(held) => response.map(|body| Body::new(Paced::new(body, held, PATIENCE))),
        None => response,
    }
}

/// What of a response was not sent.
struct Rest {
    body: Body,
    /// The beginning of it.
    bytes: Bytes,
    _held: Arc<Reservation>,
}

/// A response on its way.
struct Sending {
    /// None once the client was given up.
    rest: Option<Rest>,
    /// When a piece was last taken.
    taken: Instant,
}

/// A body in pieces.
struct Paced(Arc<Mutex<Sending>>);

impl Paced {
    fn new(body: Body, held: Arc<Reservation>, patience: Duration) -> Paced {
        let rest = Rest { body, bytes: Bytes::new(), _held: held };
        let sending = Arc::new(Mutex::new(Sending { rest: Some(rest), taken: Instant::now() }));
        tokio::spawn(give_up(Arc::downgrade(&sending), patience));
        Paced(sending)
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut sending = self.0.lock();
        sending.taken = Instant::now();
        let Some(rest) = &mut sending.rest else {
            return Poll::Ready(Some(Err(errors::timed_out())));
        };
        while rest.bytes.is_empty() {
            match ready!(Pin::new(&mut rest.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(bytes))) => rest.bytes = bytes,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None => return Poll::Ready(None),
            }
        }
        let length = rest.bytes.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(rest.bytes.split_to(length)))))
    }

    fn size_hint(&self) -> SizeHint {
        let sending = self.0.lock();
        let Some(rest) = &sending.rest else { return SizeHint::new() };
        let (bytes, body) = (rest.bytes.len() as u64, rest.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(bytes));
        }
        hint.set_lower(body.lower().saturating_add(bytes));
        hint
    }
}

/// Drops a response that its client does not read.
async fn give_up(sending: Weak<Mutex<Sending>>, patience: Duration) {
    loop {
        let Some(deadline) = sending.upgrade().map(|sending| sending.lock().taken + patience) else { return };
        tokio::time::sleep_until(deadline).await;
        let Some(sending) = sending.upgrade() else { return };
        let mut sending = sending.lock();
        if sending.taken + patience <= Instant::now() {
            sending.rest = None;
            tracing::debug!("response was dropped, its client does not read it");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    fn kv(bytes: usize) -> KeyValue {
        KeyValue { value: vec![b'x'; bytes].into(), ..KeyValue::default() }
    }

    #[test]
    fn large_responses_are_counted_while_they_exist() {
        let answers = Answers::new(3 * STEP);
        let mut first = answers.begin();
        first.add(&kv(FREE / 2)).unwrap();
        assert_eq!(answers.held.load(Ordering::Relaxed), 0);
        first.add(&kv(FREE)).unwrap();
        assert_eq!(answers.held.load(Ordering::Relaxed), STEP);
        first.add(&kv(2 * STEP)).unwrap();
        let mut second = answers.begin();
        assert!(second.add(&kv(STEP)).is_err());
        second.add(&kv(0)).unwrap_err();
        drop(first);
        second.add(&kv(0)).unwrap();
        drop(second);
        assert_eq!(answers.held.load(Ordering::Relaxed), 0);
    }

    fn response(answers: &Arc<Answers>, bytes: usize, patience: Duration) -> Paced {
        let mut held = answers.begin();
        held.add(&kv(bytes)).unwrap();
        Paced::new(Body::new(Full::from(vec![b'x'; bytes])), Arc::new(held), patience)
    }

    #[tokio::test]
    async fn a_response_that_is_not_read_is_dropped() {
        let answers = Answers::new(64 * STEP);
        let mut body = response(&answers, 10 * STEP, Duration::from_millis(10));
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece.len(), PIECE);
        while answers.held.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(body.frame().await.unwrap().is_err());
        let whole = response(&answers, 3 * STEP + 1, PATIENCE).collect().await.unwrap().to_bytes();
        assert_eq!(whole.len(), 3 * STEP + 1);
        assert_eq!(answers.held.load(Ordering::Relaxed), 0);
    }
}
