//! Bodies that are streams: what is produced of them and not sent.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};

use super::super::body::{Body, BodyError, ChunkStream};
use super::connection::{ConnectionUnread, Entry};
use super::{Owner, UnreadAnswers};

/// Shorter chunks are not counted as long as a stream has few of them: an idle watch takes more.
pub(super) const SHORT: usize = 4 << 10;
pub(super) const FEW: usize = 8 << 10;
/// What a short chunk takes beside its bytes, as a frame that waits.
pub(super) const FRAME: usize = 256;

/// What the body of a response holds that its client has not read.
#[derive(Debug)]
pub struct UnreadStream {
    entry: Entry,
    /// Bytes of short chunks that are not counted.
    few: AtomicUsize,
}

impl UnreadStream {
    /// `None` on a connection that is being closed.
    pub(super) fn new(connection: &Arc<ConnectionUnread>, owner: &Arc<Owner>) -> Option<Arc<UnreadStream>> {
        let entry = Entry::new(connection, (0, false), owner)?;
        Some(Arc::new(UnreadStream { entry, few: AtomicUsize::new(0) }))
    }

    /// A chunk that counts until it is dropped, when the connection has sent it.
    pub fn count(self: &Arc<Self>, chunk: Bytes) -> Bytes {
        let is_short = chunk.len() < SHORT;
        let bytes = if is_short { chunk.len() + FRAME } else { chunk.len() };
        if is_short {
            if let Some(_held) = OneOfFew::new(self, bytes) {
                return Bytes::from_owner(CountedChunk { _held, chunk });
            }
        }
        if is_short || chunk.is_unique() {
            let mut held = self.holder();
            held.set(bytes);
            return Bytes::from_owner(CountedChunk { _held: held, chunk });
        }
        let all = self.entry.answers();
        let key = (chunk.as_ptr().addr(), chunk.len());
        let shared = all.shared.lock().get_or_make(&key, || SharedChunk::new(all, chunk.len()));
        self.entry.add_shared(&shared);
        all.keep_bound();
        let held = HeldShare { stream: self.clone(), shared };
        Bytes::from_owner(CountedChunk { _held: held, chunk })
    }

    /// Counts bytes that are held otherwise than as a chunk.
    pub fn holder(self: &Arc<Self>) -> HeldBytes {
        HeldBytes { stream: self.clone(), bytes: 0 }
    }
}

/// A short chunk of a stream that has few.
struct OneOfFew {
    stream: Arc<UnreadStream>,
    bytes: usize,
}

impl OneOfFew {
    fn new(stream: &Arc<UnreadStream>, bytes: usize) -> Option<OneOfFew> {
        let are_few = stream.few.fetch_add(bytes, Ordering::Relaxed) + bytes <= FEW;
        let one = OneOfFew { stream: stream.clone(), bytes };
        are_few.then_some(one)
    }
}

impl Drop for OneOfFew {
    fn drop(&mut self) {
        self.stream.few.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of a stream that count until this is dropped.
#[derive(Debug)]
pub struct HeldBytes {
    stream: Arc<UnreadStream>,
    bytes: usize,
}

impl HeldBytes {
    /// They are so many now.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        match bytes >= before {
            true => self.stream.entry.add(bytes - before),
            false => self.stream.entry.remove(before - bytes),
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A chunk that several streams have. It counts until all of them have dropped it.
#[derive(Debug)]
pub(super) struct SharedChunk {
    all: Arc<UnreadAnswers>,
    bytes: usize,
    /// Streams that have it, once for each time.
    holders: AtomicUsize,
}

impl SharedChunk {
    fn new(all: &Arc<UnreadAnswers>, bytes: usize) -> SharedChunk {
        all.bytes.fetch_add(bytes, Ordering::AcqRel);
        SharedChunk { all: all.clone(), bytes, holders: AtomicUsize::new(0) }
    }

    /// What one of those who have it has.
    pub(super) fn part(&self) -> usize {
        self.bytes / self.holders.load(Ordering::Relaxed).max(1)
    }

    pub(super) fn add_holder(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for SharedChunk {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A stream has such a chunk.
struct HeldShare {
    stream: Arc<UnreadStream>,
    shared: Arc<SharedChunk>,
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        self.stream.entry.remove_shared(&self.shared);
        self.shared.holders.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The chunk is dropped last: nothing else has its address before.
struct CountedChunk<H> {
    _held: H,
    chunk: Bytes,
}

impl<H> AsRef<[u8]> for CountedChunk<H> {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

/// A body whose chunks are counted as they are taken.
pub(super) struct CountedBody {
    pub(super) body: Body,
    pub(super) counted: Arc<UnreadStream>,
}

impl ChunkStream for CountedBody {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let CountedBody { body, counted } = self.get_mut();
        // No body has other frames than data.
        let chunk = |frame: Frame<Bytes>| frame.into_data().unwrap_or_default();
        let polled = Pin::new(body).poll_frame(cx);
        polled.map(|frame| frame.map(|frame| frame.map(|frame| counted.count(chunk(frame)))))
    }
}

/// The body of an answer that was dropped.
pub(super) struct Dropped;

impl ChunkStream for Dropped {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        Poll::Ready(Some(Err(BodyError("the connection is closed: answers are not read".to_owned()))))
    }
}
