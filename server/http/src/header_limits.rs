//! Limits on request headers that are still being received: few large ones at once.
//!
//! A header is buffered until it is complete, and its sender is not authenticated before that: a megabyte on
//! each of ten thousand connections would be all of the memory. Headers of honest clients have a few
//! kilobytes. So what a header has beyond `SMALL` is read by at most `LARGE` connections at a time; the
//! others wait, and time out with the limit for reading a header.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Lines of a header over HTTP/1.1, of a request or of what a service answers: a user has hundreds of groups,
/// each a line. The parser has room for all of them each time.
pub const MOST_HEADER_LINES: usize = 1000;
/// Size up to which a header needs no slot, in bytes.
const SMALL: usize = 16 << 10;
/// Number of slots for larger headers, each of a megabyte.
const LARGE: usize = 64;

/// The slots for large headers, shared by all connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LargeHeaderSlots(Arc<Semaphore>);

impl Default for LargeHeaderSlots {
    fn default() -> LargeHeaderSlots {
        LargeHeaderSlots(Arc::new(Semaphore::new(LARGE)))
    }
}

/// What the client of an HTTP/1.1 connection sends next; set by the connection, read by its stream.
#[derive(Clone, Debug, Default)]
pub struct ReadPhase(Arc<AtomicU8>);

/// Phases: a header, a body, data of another protocol, or the rest of a body that is discarded.
const HEADER: u8 = 0;
const BODY: u8 = 1;
const OTHER_PROTOCOL: u8 = 2;
const DISCARDED: u8 = 3;

impl ReadPhase {
    /// The header is complete: a body follows.
    pub fn header_complete(&self) {
        self.0.store(BODY, Ordering::Relaxed);
    }

    /// The protocol is switched: no header follows.
    pub fn protocol_switched(&self) {
        self.0.store(OTHER_PROTOCOL, Ordering::Relaxed);
    }

    /// The connection is closed after the next response, although the client may still be sending.
    pub fn closes_early(&self) {
        self.0.store(DISCARDED, Ordering::Relaxed);
    }

    fn is_header(&self) -> bool {
        self.0.load(Ordering::Relaxed) == HEADER
    }
}

/// The interim response that makes a waiting client send its body. The next header does not follow it.
const CONTINUE: &[u8] = b"HTTP/1.1 100 ";

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// The header that a connection is receiving. Owned by the connection's stream.
pub(crate) struct RequestHeader {
    slots: LargeHeaderSlots,
    phase: ReadPhase,
    /// HTTP/1.1: bytes read since the last response began.
    read: usize,
    slot: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
}

impl RequestHeader {
    /// For a new connection.
    pub(crate) fn new(slots: LargeHeaderSlots) -> RequestHeader {
        RequestHeader { slots, phase: ReadPhase::default(), read: 0, slot: None, waiting: None }
    }

    /// The phase of this connection, for the parser of its requests.
    pub(crate) fn phase(&self) -> ReadPhase {
        self.phase.clone()
    }

    /// Records bytes read from an HTTP/1.1 connection.
    pub(crate) fn record_read(&mut self, bytes: usize) {
        self.read = if self.phase.is_header() { self.read.saturating_add(bytes) } else { 0 };
    }

    /// Whether the client may still be sending a body that is discarded.
    pub(crate) fn is_closing_early(&self) -> bool {
        self.phase.0.load(Ordering::Relaxed) == DISCARDED
    }

    /// Records a part of a response on an HTTP/1.1 connection: the next header may follow.
    pub(crate) fn record_response(&mut self, part: &[u8]) {
        if part.starts_with(CONTINUE) {
            return;
        }
        self.read = 0;
        if self.phase.0.load(Ordering::Relaxed) == BODY {
            self.phase.0.store(HEADER, Ordering::Relaxed);
        }
    }

    /// Bytes of HTTP/1.1 that may belong to an incomplete header.
    pub(crate) fn size(&self) -> usize {
        if self.phase.is_header() {
            self.read
        } else {
            0
        }
    }

    /// Ready when more of a header may be read of which `size` bytes were received.
    pub(crate) fn poll_room(&mut self, size: usize, cx: &mut Context<'_>) -> Poll<()> {
        if size <= SMALL {
            (self.slot, self.waiting) = (None, None);
            return Poll::Ready(());
        }
        if self.slot.is_none() {
            let slots = &self.slots.0;
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(slots.clone().acquire_owned()));
            // The semaphore is never closed.
            self.slot = ready!(waiting.as_mut().poll(cx)).ok();
            self.waiting = None;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn room(header: &mut RequestHeader, size: usize) -> bool {
        header.poll_room(size, &mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn large_headers_have_few_slots() {
        let slots = LargeHeaderSlots(Arc::new(Semaphore::new(2)));
        let mut headers: Vec<RequestHeader> = (0..4).map(|_| RequestHeader::new(slots.clone())).collect();
        assert!(headers.iter_mut().all(|header| room(header, SMALL)), "small ones need none");
        let large = |headers: &mut [RequestHeader]| -> Vec<bool> {
            headers.iter_mut().map(|h| room(h, SMALL + 1)).collect()
        };
        assert_eq!(large(&mut headers), [true, true, false, false]);
        assert_eq!(large(&mut headers), [true, true, false, false], "who has a slot keeps it");
        // One is complete, one is aborted.
        assert!(room(&mut headers[0], 0));
        assert_eq!(large(&mut headers[1..]), [true, true, false]);
        drop(headers.remove(1));
        assert_eq!(large(&mut headers[1..]), [true, true]);
        assert!(!room(&mut headers[0], SMALL + 1), "it is at the end of the queue");
    }

    #[test]
    fn bodies_and_other_protocols_are_no_headers() {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n";
        let mut header = RequestHeader::new(LargeHeaderSlots::default());
        header.record_read(100);
        header.record_read(100);
        assert_eq!(header.size(), 200);
        header.phase().header_complete();
        assert_eq!(header.size(), 0);
        header.record_response(b"HTTP/1.1 100 Continue\r\n\r\n");
        header.record_read(1 << 20);
        assert_eq!(header.size(), 0, "a body still");
        header.record_response(ANSWER);
        header.record_response(b"more of it");
        header.record_read(50);
        assert_eq!(header.size(), 50, "the next one");
        header.record_response(ANSWER);
        assert_eq!(header.size(), 0, "a connection that waits has no header");
        header.phase().header_complete();
        header.phase().protocol_switched();
        header.record_response(b"HTTP/1.1 101 Switching Protocols\r\n");
        header.record_response(b"frames");
        header.record_read(1 << 20);
        assert_eq!(header.size(), 0);
    }
}
