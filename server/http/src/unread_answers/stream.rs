//! Bodies that are streams: what is produced of them and not sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use plinth_api::User;

use super::answers::{ConnectionUnread, Entry, SharedChunk, UserUnread};

/// Shorter chunks are not counted as long as a stream has few of them: an idle watch takes more.
pub(super) const SHORT: usize = 4 << 10;
pub(super) const FEW: usize = 8 << 10;
/// What a short chunk takes beside its bytes, as a frame that waits.
pub(super) const FRAME: usize = 256;

/// Parts in which longer answers are sent.
pub(super) const PART: usize = 128 << 10;

/// What the body of a response holds that its client has not read.
#[derive(Debug)]
pub struct UnreadStream {
    entry: Entry,
    /// Bytes of short chunks that are not counted.
    few: AtomicUsize,
}

impl UnreadStream {
    /// A stream of a user, or of a client that is not identified; `None` on a connection that is being
    /// closed.
    pub(crate) fn new(
        connection: &Arc<ConnectionUnread>,
        user: Option<&Arc<UserUnread>>,
    ) -> Option<Arc<UnreadStream>> {
        let owner = connection.owner(user);
        let entry = Entry::new(connection, (0, 0), owner)?;
        Some(Arc::new(UnreadStream { entry, few: AtomicUsize::new(0) }))
    }

    /// A chunk that counts until it is dropped, when the connection has sent it.
    pub fn count(self: &Arc<Self>, chunk: Bytes) -> Bytes {
        if chunk.len() < SHORT {
            let bytes = chunk.len() + FRAME;
            return match OneOfFew::new(self, bytes) {
                Some(few) => CountedBytes::until_dropped(few, chunk),
                None => CountedBytes::until_dropped(HeldBytes::new(self, bytes, chunk.len()), chunk),
            };
        }
        match chunk.is_unique() {
            true => CountedBytes::until_dropped(HeldBytes::new(self, chunk.len(), chunk.len()), chunk),
            false => CountedBytes::until_dropped(HeldShare::new(self, &chunk), chunk),
        }
    }

    /// Counts the head of its answer, which the connection sends before its first chunk.
    pub(crate) fn head(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        HeldBytes::new(self, bytes, 0)
    }

    /// Counts bytes that are held otherwise than as a chunk.
    pub fn holder(self: &Arc<Self>) -> HeldBytes {
        HeldBytes::new(self, 0, 0)
    }
}

impl ConnectionUnread {
    /// What is streamed to a user in another way than as the body of an answer; `None` when the connection is
    /// being closed.
    pub fn stream(self: &Arc<Self>, user: &User) -> Option<Arc<UnreadStream>> {
        UnreadStream::new(self, Some(&self.of(user)))
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
    /// Those of them that the socket is to take.
    to_send: usize,
}

impl HeldBytes {
    fn new(stream: &Arc<UnreadStream>, bytes: usize, to_send: usize) -> HeldBytes {
        stream.entry.add(bytes, to_send);
        HeldBytes { stream: stream.clone(), bytes, to_send }
    }

    /// They count until this chunk is dropped.
    pub(crate) fn until_dropped(self, chunk: Bytes) -> Bytes {
        CountedBytes::until_dropped(self, chunk)
    }

    /// They are so many now: others are counted as chunks, or sent.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        match bytes >= before {
            true => self.stream.entry.add(bytes - before, 0),
            false => self.stream.entry.remove(before - bytes, 0),
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.stream.entry.remove(self.bytes, self.to_send);
    }
}

/// A chunk of a stream that others may have, too.
struct HeldShare {
    stream: Arc<UnreadStream>,
    shared: Arc<SharedChunk>,
}

impl HeldShare {
    fn new(stream: &Arc<UnreadStream>, chunk: &Bytes) -> HeldShare {
        let all = stream.entry.answers();
        let key = (chunk.as_ptr().addr(), chunk.len());
        let shared = all.shared.lock().get_or_make(&key, || SharedChunk::new(all, chunk.len()));
        shared.holders.fetch_add(1, Ordering::Relaxed);
        stream.entry.add_shared(&shared);
        all.keep_bound();
        HeldShare { stream: stream.clone(), shared }
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        self.stream.entry.remove_shared(&self.shared);
        self.shared.holders.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes and what counts them. The bytes are dropped last: nothing else has their address before.
struct CountedBytes<C> {
    _counts: C,
    bytes: Bytes,
}

impl<C: Send + 'static> CountedBytes<C> {
    fn until_dropped(counts: C, bytes: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes { _counts: counts, bytes })
    }
}

impl<C> AsRef<[u8]> for CountedBytes<C> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts an answer: until the connection has taken it, or has ended.
struct HeldAnswer {
    user: Option<Arc<UserUnread>>,
    bytes: usize,
    _entry: Arc<Entry>,
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            user.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
            user.read.notify_one();
        }
    }
}

/// An answer that counts, and is sent in parts: while its client takes them it does not wait.
#[derive(Debug)]
pub struct CountedAnswer {
    rest: Bytes,
    entry: Arc<Entry>,
}

impl CountedAnswer {
    /// It takes `counted` bytes. `None` on a connection that is being closed.
    pub(crate) fn new(
        connection: &Arc<ConnectionUnread>,
        user: Option<&Arc<UserUnread>>,
        bytes: Bytes,
        counted: usize,
    ) -> Option<CountedAnswer> {
        let owner = connection.owner(user);
        let entry = Arc::new(Entry::new(connection, (counted, bytes.len()), owner)?);
        if let Some(user) = user {
            user.bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        }
        let counts = HeldAnswer { user: user.cloned(), bytes: bytes.len(), _entry: entry.clone() };
        Some(CountedAnswer { rest: CountedBytes::until_dropped(counts, bytes), entry })
    }

    /// All of it, where it is one part.
    pub(crate) fn only_part(&self) -> Option<Bytes> {
        (self.rest.len() <= PART).then(|| self.rest.clone())
    }

    /// Bytes that are not taken.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next part. The connection takes it when it has sent most of the one before.
    pub(crate) fn next_part(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let part = self.rest.split_to(PART.min(self.rest.len()));
        self.entry.is_read();
        Some(part)
    }
}
