//! Heads of requests that are still coming: few large ones at once.
//!
//! What has come of a head is kept until it is whole, and nobody knows yet who sends it: a megabyte on each of ten thousand
//! connections would be all of the memory. A head of an honest client has a few kilobytes. So what a head has beyond `SMALL`
//! is read by one of `LARGE` connections at a time; the others wait, and their time for a head goes by.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// A head up to this size needs no place, in bytes.
const SMALL: usize = 16 << 10;
/// Places of larger ones, each of a megabyte.
const LARGE: usize = 64;

/// The places of large heads, for all connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LargeHeads(Arc<Semaphore>);

impl Default for LargeHeads {
    fn default() -> LargeHeads {
        LargeHeads(Arc::new(Semaphore::new(LARGE)))
    }
}

/// Tells a connection of HTTP/1.1 what comes now.
#[derive(Clone, Debug, Default)]
pub struct Came(Arc<AtomicU8>);

/// What comes: a head, a body, what another protocol has to say, or the rest of a body that nobody reads.
const HEAD: u8 = 0;
const BODY: u8 = 1;
const OTHER: u8 = 2;
const REST: u8 = 3;

impl Came {
    /// The head is whole: a body comes.
    pub fn whole(&self) {
        self.0.store(BODY, Ordering::Relaxed);
    }

    /// The protocol is switched: no head comes any more.
    pub fn switched(&self) {
        self.0.store(OTHER, Ordering::Relaxed);
    }

    /// The connection ends with the next answer, although the client may still be sending.
    pub fn cut_short(&self) {
        self.0.store(REST, Ordering::Relaxed);
    }

    fn is_head(&self) -> bool {
        self.0.load(Ordering::Relaxed) == HEAD
    }
}

/// How hyper lets a client go on that waits with its body. The next head does not come after it.
const GO_ON: &[u8] = b"HTTP/1.1 100 ";

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// The head that a connection is sending. Owned by the connection's stream.
pub struct Head {
    places: LargeHeads,
    came: Came,
    /// Of HTTP/1.1: bytes since the last answer began.
    read: usize,
    place: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
}

impl Head {
    /// Of a connection that begins.
    pub fn new(places: LargeHeads) -> Head {
        Head { places, came: Came::default(), read: 0, place: None, waiting: None }
    }

    /// What is told when a head of HTTP/1.1 is whole.
    pub fn came(&self) -> Came {
        self.came.clone()
    }

    /// Bytes of HTTP/1.1 were read.
    pub fn took(&mut self, bytes: usize) {
        self.read = if self.came.is_head() { self.read.saturating_add(bytes) } else { 0 };
    }

    /// Whether the client may still be sending a body that nobody reads.
    pub fn is_cut_short(&self) -> bool {
        self.came.0.load(Ordering::Relaxed) == REST
    }

    /// A part of an answer of HTTP/1.1 is written: the next head may come.
    pub fn answers(&mut self, part: &[u8]) {
        if part.starts_with(GO_ON) {
            return;
        }
        self.read = 0;
        if self.came.0.load(Ordering::Relaxed) == BODY {
            self.came.0.store(HEAD, Ordering::Relaxed);
        }
    }

    /// Bytes of HTTP/1.1 that may belong to a head which is not whole.
    pub fn size(&self) -> usize {
        if self.came.is_head() {
            self.read
        } else {
            0
        }
    }

    /// Ready when more may be read of a head of which so many bytes have come.
    pub fn poll_room(&mut self, size: usize, cx: &mut Context<'_>) -> Poll<()> {
        if size <= SMALL {
            (self.place, self.waiting) = (None, None);
            return Poll::Ready(());
        }
        if self.place.is_none() {
            let places = &self.places.0;
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(places.clone().acquire_owned()));
            // Never closed.
            self.place = ready!(waiting.as_mut().poll(cx)).ok();
            self.waiting = None;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn room(head: &mut Head, size: usize) -> bool {
        head.poll_room(size, &mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn large_heads_have_few_places() {
        let places = LargeHeads(Arc::new(Semaphore::new(2)));
        let mut heads: Vec<Head> = (0..4).map(|_| Head::new(places.clone())).collect();
        assert!(heads.iter_mut().all(|head| room(head, SMALL)), "small ones need none");
        let large =
            |heads: &mut [Head]| -> Vec<bool> { heads.iter_mut().map(|h| room(h, SMALL + 1)).collect() };
        assert_eq!(large(&mut heads), [true, true, false, false]);
        assert_eq!(large(&mut heads), [true, true, false, false], "who has a place keeps it");
        // One is whole, one breaks off.
        assert!(room(&mut heads[0], 0));
        assert_eq!(large(&mut heads[1..]), [true, true, false]);
        drop(heads.remove(1));
        assert_eq!(large(&mut heads[1..]), [true, true]);
        assert!(!room(&mut heads[0], SMALL + 1), "it is at the end of the queue");
    }

    #[test]
    fn bodies_and_other_protocols_are_no_heads() {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n";
        let mut head = Head::new(LargeHeads::default());
        head.took(100);
        head.took(100);
        assert_eq!(head.size(), 200);
        head.came().whole();
        assert_eq!(head.size(), 0);
        head.answers(b"HTTP/1.1 100 Continue\r\n\r\n");
        head.took(1 << 20);
        assert_eq!(head.size(), 0, "a body still");
        head.answers(ANSWER);
        head.answers(b"more of it");
        head.took(50);
        assert_eq!(head.size(), 50, "the next one");
        head.answers(ANSWER);
        assert_eq!(head.size(), 0, "a connection that waits has no head");
        head.came().whole();
        head.came().switched();
        head.answers(b"HTTP/1.1 101 Switching Protocols\r\n");
        head.answers(b"frames");
        head.took(1 << 20);
        assert_eq!(head.size(), 0);
    }
}
