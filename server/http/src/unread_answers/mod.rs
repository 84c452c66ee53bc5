//! Answers in memory that their clients have not read yet.
//!
//! An answer that is whole in memory has left the request's seat and slot behind, and a client that opens
//! many streams and reads none (HTTP/2 with a closed window) would collect them without bound. Two rules:
//!
//! - *Pace.* Where half of the bound is used, and a quarter by one user, one request after the other of that
//!   user is begun on each connection, when the answer to the one before is read. Others are served as ever,
//!   and nobody waits for what others read.
//! - *Bound.* Where a server holds more than it may ([`UnreadAnswers::new`]), connections are closed: those
//!   of users who have more than their share, the largest first, and of these the connections whose answers
//!   have waited longest, if that is [`YOUNG`] at least; with twice as much, whatever it is. How young its
//!   answers are, and on how many connections, is in a client's hands; so it is the user who counts, and a
//!   connection of several counts for the one of them who has most. All clients that are anonymous, or not
//!   authenticated yet, are one user: addresses are cheap.
//!
//! Requests that wait count as answers that are not read, for a reader or, where a connection has many, for
//! their processor time; so do the streams of such a connection. Documents that all answers share do not.
//! Lists and the initial states of watches are produced at the pace of their reader (`paced_response`); what
//! they hold ahead of it counts as long as they do ([`UnreadStream`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Request;
use parking_lot::Mutex;
use tokio::sync::Notify;

use plinth_api::{User, ANONYMOUS_USER};

use super::body::{Body, BodyError, ChunkStream};
use super::memory_limit::memory_limit;
use super::shared_by_key::SharedByKey;

/// How long an answer may wait in any case, but for twice the bound.
const YOUNG: Duration = Duration::from_secs(15);
/// How often it is looked for connections to close, and how often that is logged.
const LOOKED_FOR: Duration = Duration::from_millis(100);
const LOGGED: Duration = Duration::from_secs(10);
/// What a request that waits takes beside its head: its future and its stream.
const REQUEST: usize = 16 << 10;
/// What the stream of an answer takes beside it.
const STREAM: usize = 4 << 10;
/// Shorter answers are not counted, but for the streams of a connection that has many.
const COUNTED_FROM: usize = 1 << 10;
/// From so many streams on each of a connection counts. Clients that are no attackers have fewer for long.
const MANY_STREAMS: usize = 32;
/// The bound where none is given: this part of the memory, within these limits.
const PART_OF_MEMORY: u64 = 8;
const BOUNDS: (u64, u64) = (128 << 20, 1 << 30);

/// The answers of a server that are not read yet.
#[derive(Debug)]
pub struct UnreadAnswers {
    most: usize,
    /// Of all connections that are not closed.
    bytes: AtomicUsize,
    /// Numbers connections.
    next: AtomicU64,
    /// What is unread of each user.
    owners: Mutex<SharedByKey<String, Owner>>,
    /// The same of clients that are not identified.
    unidentified: Arc<Owner>,
    /// Held to add or remove a connection, and to look for those that have waited longest.
    connections: Mutex<HashMap<u64, Weak<ConnectionUnread>>>,
    /// When it was looked for some, and when that was logged. Held meanwhile.
    looked: Mutex<[Option<Instant>; 2]>,
}

/// Unread bytes of a user, or of all clients that are not identified.
type Owner = AtomicUsize;

/// What the client of one connection has not read.
#[derive(Debug)]
pub struct ConnectionUnread {
    all: Arc<UnreadAnswers>,
    number: u64,
    /// Held for moments, while no other lock is taken.
    state: Mutex<State>,
    /// The first user, who mostly is the only one.
    first: OnceLock<(String, Arc<UserUnread>)>,
    /// Others: a proxy's connection carries many.
    users: Mutex<SharedByKey<String, UserUnread>>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    unread: BTreeMap<u64, Item>,
    next: u64,
    is_closed: bool,
}

/// An answer that is not read, or a request that waits.
#[derive(Debug)]
struct Item {
    since: Instant,
    bytes: usize,
    owner: Arc<Owner>,
    /// A request that waits for its client to read: however old it is, the client may read as fast as it can.
    is_paced: bool,
}

/// What one user of a connection has not read.
#[derive(Debug)]
pub struct UserUnread {
    owner: Arc<Owner>,
    bytes: AtomicUsize,
    /// Requests that were begun and are not answered.
    begun: AtomicUsize,
    /// Wakes a request that waits, which wakes the next one.
    read: Notify,
}

impl UnreadAnswers {
    /// No more than `most` bytes, or an eighth of the memory that the process may have; twice that for a
    /// while.
    pub fn new(most: Option<u64>) -> Arc<UnreadAnswers> {
        let most = most.unwrap_or_else(|| (memory_limit() / PART_OF_MEMORY).clamp(BOUNDS.0, BOUNDS.1));
        Arc::new(UnreadAnswers {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            bytes: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            owners: Mutex::default(),
            unidentified: Arc::default(),
            connections: Mutex::default(),
            looked: Mutex::default(),
        })
    }

    /// A new connection.
    pub fn connection(self: &Arc<UnreadAnswers>) -> Arc<ConnectionUnread> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(ConnectionUnread {
            all: Arc::clone(self),
            number,
            state: Mutex::default(),
            first: OnceLock::new(),
            users: Mutex::default(),
            closed: Notify::new(),
        });
        self.connections.lock().insert(number, Arc::downgrade(&connection));
        connection
    }

    /// Bytes that are not read now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    fn remove(&self, item: &Item) {
        item.owner.fetch_sub(item.bytes, Ordering::AcqRel);
        self.bytes.fetch_sub(item.bytes, Ordering::AcqRel);
    }

    fn owner(&self, name: &str) -> Arc<Owner> {
        self.owners.lock().get_or_make(name, Owner::default)
    }

    /// Closes connections of those who have more than their share, until a quarter is free.
    fn make_room(&self) {
        let now = Instant::now();
        let is_urgent = self.bytes() > 2 * self.most;
        let mut looked = self.looked.lock();
        let is_due = |last: Option<Instant>, interval| last.is_none_or(|last| now >= last + interval);
        if !is_urgent && !is_due(looked[0], LOOKED_FOR) {
            return;
        }
        looked[0] = Some(now);
        // Dropped after the lock, which the end of a connection takes.
        let connections: Vec<Arc<ConnectionUnread>> =
            self.connections.lock().values().filter_map(Weak::upgrade).collect();
        let largest = |connection| ConnectionUnread::largest(connection).map(|largest| (largest, connection));
        let mut waiting: Vec<_> = connections.iter().filter_map(largest).collect();
        let owners: HashSet<*const Owner> =
            waiting.iter().map(|((_, owner), _)| Arc::as_ptr(owner)).collect();
        let share = self.most / owners.len().max(1);
        waiting.sort_by_cached_key(|((since, owner), _)| {
            (Reverse(owner.load(Ordering::Acquire)), Arc::as_ptr(owner), *since)
        });
        let enough = if is_urgent { self.most / 2 * 3 } else { self.most / 4 * 3 };
        let mut closed = 0;
        for ((since, owner), connection) in waiting {
            if self.bytes() <= enough {
                break;
            }
            let is_young = now.saturating_duration_since(since) < YOUNG;
            if is_urgent || (!is_young && owner.load(Ordering::Acquire) > share) {
                connection.close();
                closed += 1;
            }
        }
        if closed > 0 && is_due(looked[1], LOGGED) {
            looked[1] = Some(now);
            tracing::warn!(
                connections = closed,
                bytes = self.most,
                "connections closed: their clients do not read answers, and there is no memory for more (--max-unread-bytes)"
            );
        }
    }
}

impl ConnectionUnread {
    /// What a user has not read here.
    pub fn of(&self, user: &User) -> Arc<UserUnread> {
        let make = || {
            let owner = match user.name == ANONYMOUS_USER {
                true => self.all.unidentified.clone(),
                false => self.all.owner(&user.counted_as()),
            };
            UserUnread { owner, bytes: AtomicUsize::new(0), begun: AtomicUsize::new(0), read: Notify::new() }
        };
        let first = self.first.get_or_init(|| (user.name.clone(), Arc::new(make())));
        match first.0 == user.name {
            true => first.1.clone(),
            false => self.users.lock().get_or_make(user.name.as_str(), make),
        }
    }

    /// A stream of a client that is not identified.
    #[cfg(test)]
    pub(crate) fn unidentified_stream(self: &Arc<Self>) -> Option<UnreadStream> {
        UnreadStream::new(self, &self.all.unidentified)
    }

    /// Returns when the connection is to be closed, as others need the memory.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Waits until the user has read enough of earlier answers for a request to begin, for so long at most.
    /// `None` where that is not so. What this gives is dropped when the request is answered.
    pub async fn wait_for_reader<B>(
        self: &Arc<Self>,
        user: &Arc<UserUnread>,
        request: &Request<B>,
        most: Duration,
    ) -> Option<BegunRequest> {
        if user.may_begin(&self.all) {
            return Some(BegunRequest::new(user));
        }
        let paced = (REQUEST + head_bytes(request), true);
        let _counted = Entry::new(self, paced, &user.owner)?;
        let begins = async {
            // What is read between the check and the wait is remembered by `Notify`.
            while !user.may_begin(&self.all) {
                user.read.notified().await;
            }
            BegunRequest::new(user)
        };
        let begun = tokio::time::timeout(most, begins).await.ok();
        // The next one, if there is room for it, too.
        user.read.notify_one();
        begun
    }

    /// An answer that counts until it is read, as the user's where that is known, on a connection with so many
    /// streams. On one that is being closed it is an error, which is no clean end.
    pub fn count(self: &Arc<Self>, answer: Body, user: Option<&Arc<UserUnread>>, streams: usize) -> Body {
        let owner = user.map_or(&self.all.unidentified, |user| &user.owner);
        let mut answer = match answer {
            Body::Full(bytes) => return self.count_whole(bytes, owner, user, streams),
            answer => answer,
        };
        if let Some(stream) = answer.stream() {
            match UnreadStream::new(self, owner) {
                Some(counted) => stream.count_ahead(counted),
                None => return Body::Stream(Box::pin(Dropped)),
            }
        }
        answer
    }

    fn count_whole(
        self: &Arc<Self>,
        bytes: Bytes,
        owner: &Arc<Owner>,
        user: Option<&Arc<UserUnread>>,
        streams: usize,
    ) -> Body {
        let length = if bytes.len() >= COUNTED_FROM && bytes.is_unique() { bytes.len() } else { 0 };
        let stream = if streams >= MANY_STREAMS && !bytes.is_empty() { STREAM } else { 0 };
        if length + stream == 0 {
            return Body::Full(bytes);
        }
        let Some(entry) = Entry::new(self, (length + stream, false), owner) else {
            return Body::Stream(Box::pin(Dropped));
        };
        if let Some(user) = user {
            user.bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        }
        Body::Full(Bytes::from_owner(Counted { bytes, user: user.cloned(), _entry: entry }))
    }

    /// Counts a request that is not begun yet on a connection with so many streams, until what this gives is
    /// dropped.
    pub fn count_request<B>(
        self: &Arc<Self>,
        request: &Request<B>,
        streams: usize,
    ) -> Option<UnbegunRequest> {
        if streams < MANY_STREAMS {
            return None;
        }
        let owner = self.first.get().map_or(&self.all.unidentified, |(_, user)| &user.owner);
        Entry::new(self, (REQUEST + head_bytes(request), false), owner)
            .map(|_entry| UnbegunRequest { _entry })
    }

    /// Of the users with something unread here the one who has most in all, and since when the oldest of it
    /// waits.
    fn largest(self: &Arc<Self>) -> Option<(Instant, Arc<Owner>)> {
        let state = self.state.lock();
        let items = state.unread.values().filter(|item| item.bytes > 0 && !item.is_paced);
        // Of equal ones the last, so the oldest comes last.
        let largest = items.rev().max_by_key(|item| item.owner.load(Ordering::Acquire));
        largest.map(|item| (item.since, item.owner.clone()))
    }

    fn close(&self) {
        let unread = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.unread)
        };
        unread.into_values().for_each(|item| self.all.remove(&item));
        self.closed.notify_one();
    }
}

impl Drop for ConnectionUnread {
    fn drop(&mut self) {
        self.all.connections.lock().remove(&self.number);
    }
}

impl UserUnread {
    fn may_begin(&self, all: &UnreadAnswers) -> bool {
        let (used, of_owner) = (all.bytes(), self.owner.load(Ordering::Acquire));
        let has_room = used <= all.most / 2 || of_owner <= all.most / 4;
        has_room || (self.bytes.load(Ordering::Acquire) == 0 && self.begun.load(Ordering::Acquire) == 0)
    }
}

/// A request that was begun, until it is answered.
pub struct BegunRequest(Arc<UserUnread>);

impl BegunRequest {
    fn new(user: &Arc<UserUnread>) -> BegunRequest {
        user.begun.fetch_add(1, Ordering::AcqRel);
        BegunRequest(Arc::clone(user))
    }
}

impl Drop for BegunRequest {
    fn drop(&mut self) {
        self.0.begun.fetch_sub(1, Ordering::AcqRel);
        self.0.read.notify_one();
    }
}

/// The bytes of a request's head.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    target + headers.sum::<usize>()
}

/// A request that counts until this is dropped, when it is begun.
pub struct UnbegunRequest {
    _entry: Entry,
}

/// Bytes that count until this is dropped.
struct Entry {
    connection: Arc<ConnectionUnread>,
    number: u64,
}

impl Entry {
    /// `None` on a connection that is being closed.
    fn new(
        connection: &Arc<ConnectionUnread>,
        (bytes, is_paced): (usize, bool),
        owner: &Arc<Owner>,
    ) -> Option<Entry> {
        let number = {
            let mut state = connection.state.lock();
            if state.is_closed {
                return None;
            }
            let number = state.next;
            state.next += 1;
            // Counted before somebody may remove it.
            owner.fetch_add(bytes, Ordering::AcqRel);
            connection.all.bytes.fetch_add(bytes, Ordering::AcqRel);
            let item = Item { since: Instant::now(), bytes, owner: owner.clone(), is_paced };
            state.unread.insert(number, item);
            number
        };
        let all = &connection.all;
        if all.bytes() > all.most {
            all.make_room();
        }
        Some(Entry { connection: Arc::clone(connection), number })
    }
}

impl Entry {
    /// The bytes that count from now on. What gets less is being read, so it has not waited.
    fn set(&self, bytes: usize) {
        let all = &self.connection.all;
        {
            let mut state = self.connection.state.lock();
            let Some(item) = state.unread.get_mut(&self.number) else { return };
            let more = bytes.saturating_sub(item.bytes);
            let less = item.bytes.saturating_sub(bytes);
            item.owner.fetch_add(more, Ordering::AcqRel);
            all.bytes.fetch_add(more, Ordering::AcqRel);
            item.owner.fetch_sub(less, Ordering::AcqRel);
            all.bytes.fetch_sub(less, Ordering::AcqRel);
            item.bytes = bytes;
            if less > 0 {
                item.since = Instant::now();
            }
        }
        if all.bytes() > all.most {
            all.make_room();
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let item = self.connection.state.lock().unread.remove(&self.number);
        if let Some(item) = item {
            self.connection.all.remove(&item);
        }
    }
}

/// What a response holds that is produced ahead of its reader. It counts until this is dropped.
pub struct UnreadStream(Entry);

impl UnreadStream {
    fn new(connection: &Arc<ConnectionUnread>, owner: &Arc<Owner>) -> Option<UnreadStream> {
        Entry::new(connection, (0, false), owner).map(UnreadStream)
    }

    /// It holds so many bytes now.
    pub(crate) fn set(&self, bytes: usize) {
        self.0.set(bytes);
    }
}

/// An answer that counts until it is dropped: when the connection has taken it, or has ended.
struct Counted {
    bytes: Bytes,
    user: Option<Arc<UserUnread>>,
    _entry: Entry,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            user.bytes.fetch_sub(self.bytes.len(), Ordering::AcqRel);
            user.read.notify_one();
        }
    }
}

/// The body of an answer that was dropped.
struct Dropped;

impl ChunkStream for Dropped {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        Poll::Ready(Some(Err(BodyError("the connection is closed: answers are not read".to_owned()))))
    }
}

#[cfg(test)]
mod tests;
