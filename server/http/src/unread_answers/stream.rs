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
        let owner = user.map_or(&connection.all.unidentified, |user| &user.owner);
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

/// Parts in which longer answers are sent.
pub(super) const PART: usize = 128 << 10;

impl ConnectionUnread {
    /// What is streamed to a user in another way than as the body of an answer; `None` when the connection is
    /// being closed.
    pub fn stream(self: &Arc<Self>, user: &User) -> Option<Arc<UnreadStream>> {
        UnreadStream::new(self, Some(&self.of(user)))
    }
}

/// An answer that counts until it is dropped: when the connection has taken it, or has ended.
struct CountedBytes {
    bytes: Bytes,
    user: Option<Arc<UserUnread>>,
    _entry: Arc<Entry>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            user.bytes.fetch_sub(self.bytes.len(), Ordering::AcqRel);
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
        let owner = user.map_or(&connection.all.unidentified, |user| &user.owner);
        let entry = Arc::new(Entry::new(connection, (counted, false), owner)?);
        if let Some(user) = user {
            user.bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        }
        let counted = CountedBytes { bytes, user: user.cloned(), _entry: entry.clone() };
        Some(CountedAnswer { rest: Bytes::from_owner(counted), entry })
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
        self.entry.is_read();
        Some(self.rest.split_to(PART.min(self.rest.len())))
    }
}
