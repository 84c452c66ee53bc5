//! What one connection and its users have not read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Request;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use plinth_api::{User, ANONYMOUS_USER};

use super::super::body::Body;
use super::super::shared_by_key::SharedByKey;
use super::stream::{CountedBody, Dropped, SharedChunk, UnreadStream};
use super::{Owner, UnreadAnswers};

/// What a request that waits takes beside its head: its future and its stream.
pub(super) const REQUEST: usize = 16 << 10;
/// What the stream of an answer takes beside it.
pub(super) const STREAM: usize = 4 << 10;
/// Shorter answers are not counted, but for the streams of a connection that has many.
pub(super) const COUNTED_FROM: usize = 1 << 10;
/// Parts in which longer answers are sent.
pub(super) const PART: usize = 128 << 10;
/// From so many streams on each of a connection counts. Clients that are no attackers have fewer for long.
pub(super) const MANY_STREAMS: usize = 32;

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
    /// What it had of chunks that others may have, too, when it was closed, until that is dropped.
    closing: usize,
}

/// An answer or what there is of one that is not read, or a request that waits.
#[derive(Debug)]
struct Item {
    /// When it began, or when some of it was read last.
    since: Instant,
    bytes: usize,
    /// Chunks that other streams may have, too.
    shared: Vec<Arc<SharedChunk>>,
    owner: Arc<Owner>,
    /// A request that waits for its client to read: however old it is, the client may read as fast as it can.
    /// It is a reason to close the connection where nothing else helps.
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

/// What waits on a connection for one owner.
pub(super) struct Waiting {
    pub(super) owner: Arc<Owner>,
    /// Since when the oldest of it does.
    pub(super) since: Instant,
    /// Its part of chunks that others may have, too.
    pub(super) shared: usize,
}

impl ConnectionUnread {
    pub(super) fn new(all: &Arc<UnreadAnswers>, number: u64) -> ConnectionUnread {
        ConnectionUnread {
            all: Arc::clone(all),
            number,
            state: Mutex::default(),
            first: OnceLock::new(),
            users: Mutex::default(),
            closed: Notify::new(),
        }
    }

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

    /// What is streamed to a user in another way than as the body of an answer; `None` when the connection is
    /// being closed.
    pub fn stream(self: &Arc<Self>, user: &User) -> Option<Arc<UnreadStream>> {
        UnreadStream::new(self, &self.of(user).owner)
    }

    /// A stream of a client that is not identified.
    #[cfg(test)]
    pub(crate) fn unidentified_stream(self: &Arc<Self>) -> Option<Arc<UnreadStream>> {
        UnreadStream::new(self, &self.all.unidentified)
    }

    #[cfg(test)]
    pub(super) fn answers(&self) -> &Arc<UnreadAnswers> {
        &self.all
    }

    /// Makes what is not read older.
    #[cfg(test)]
    pub(super) fn age(&self) {
        self.state.lock().unread.values_mut().for_each(|item| item.since -= super::YOUNG);
    }

    /// Returns when the connection is to be closed, as others need the memory.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Waits until the user has read enough of earlier answers for a request to begin, for so long at most.
    /// `None` where that is not so, and where requests that wait would take more than the bound. What this
    /// gives is dropped when the request is answered.
    pub async fn wait_for_reader<B>(
        self: &Arc<Self>,
        user: &Arc<UserUnread>,
        request: &Request<B>,
        most: Duration,
    ) -> Option<BegunRequest> {
        if user.may_begin(&self.all) {
            return Some(BegunRequest::new(user));
        }
        if self.all.remaining() > self.all.most {
            return None;
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

    /// An answer that counts until it is read, as the user's where that is known, on a connection with so
    /// many streams. On one that is being closed it is an error, which is no clean end.
    pub fn count(self: &Arc<Self>, answer: Body, user: Option<&Arc<UserUnread>>, streams: usize) -> Body {
        let owner = user.map_or(&self.all.unidentified, |user| &user.owner);
        match answer {
            Body::Full(bytes) => self.count_whole(bytes, owner, user, streams),
            Body::Observed(body) => {
                Body::Observed(Box::new(body.map(|answer| self.count(answer, user, streams))))
            }
            answer => self.count_stream(answer, owner),
        }
    }

    fn count_stream(self: &Arc<Self>, mut answer: Body, owner: &Arc<Owner>) -> Body {
        let Some(counted) = UnreadStream::new(self, owner) else { return Body::Stream(Box::pin(Dropped)) };
        let counts_itself = match &mut answer {
            Body::Stream(stream) => stream.as_mut().count_in(&counted),
            _ => false,
        };
        match counts_itself {
            true => answer,
            false => Body::Stream(Box::pin(CountedBody { body: answer, counted })),
        }
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
        let entry = Arc::new(entry);
        let counted = CountedBytes { bytes, user: user.cloned(), _entry: entry.clone() };
        let rest = Bytes::from_owner(counted);
        match rest.len() <= PART {
            true => Body::Full(rest),
            false => Body::Counted(Box::new(CountedAnswer { rest, entry })),
        }
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

    /// What waits here, by owner; requests that wait for a reader are part of it where it is urgent.
    pub(super) fn waiting(&self, is_urgent: bool) -> Vec<Waiting> {
        let state = self.state.lock();
        let mut waiting: Vec<Waiting> = Vec::new();
        let is_reason = |item: &&Item| is_urgent || !item.is_paced;
        for item in state.unread.values().filter(is_reason) {
            let (Item { since, bytes, owner, .. }, shared) = (item, item.part_of_shared());
            if bytes + shared == 0 {
                continue;
            }
            match waiting.iter_mut().find(|waiting| Arc::ptr_eq(&waiting.owner, owner)) {
                Some(waiting) => {
                    waiting.since = waiting.since.min(*since);
                    waiting.shared += shared;
                }
                None => waiting.push(Waiting { owner: owner.clone(), since: *since, shared }),
            }
        }
        waiting
    }

    pub(super) fn close(&self) {
        let unread = {
            let mut state = self.state.lock();
            state.is_closed = true;
            let unread = std::mem::take(&mut state.unread);
            let shared = unread.values().map(Item::part_of_shared).sum();
            state.closing += shared;
            self.all.closing.fetch_add(shared, Ordering::AcqRel);
            unread
        };
        unread.into_values().for_each(|item| self.subtract(&item.owner, item.bytes));
        self.closed.notify_one();
    }

    fn add(&self, owner: &Owner, bytes: usize) {
        owner.fetch_add(bytes, Ordering::AcqRel);
        self.all.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    fn subtract(&self, owner: &Owner, bytes: usize) {
        owner.fetch_sub(bytes, Ordering::AcqRel);
        self.all.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Drop for ConnectionUnread {
    fn drop(&mut self) {
        self.all.closing.fetch_sub(self.state.get_mut().closing, Ordering::AcqRel);
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
#[derive(Debug)]
pub(super) struct Entry {
    connection: Arc<ConnectionUnread>,
    number: u64,
}

impl Entry {
    /// `None` on a connection that is being closed.
    pub(super) fn new(
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
            connection.add(owner, bytes);
            let item =
                Item { since: Instant::now(), bytes, shared: Vec::new(), owner: owner.clone(), is_paced };
            state.unread.insert(number, item);
            number
        };
        connection.all.keep_bound();
        Some(Entry { connection: Arc::clone(connection), number })
    }

    pub(super) fn answers(&self) -> &Arc<UnreadAnswers> {
        &self.connection.all
    }

    /// Changes it, if its connection is not being closed.
    fn change(&self, change: impl FnOnce(&mut Item)) -> Result<(), Closed<'_>> {
        let mut state = self.connection.state.lock();
        match state.unread.get_mut(&self.number) {
            Some(item) => {
                change(item);
                Ok(())
            }
            None => Err(Closed(state)),
        }
    }

    pub(super) fn add(&self, bytes: usize) {
        let added = self.change(|item| {
            item.begin();
            item.bytes += bytes;
            self.connection.add(&item.owner, bytes);
        });
        if added.is_ok() {
            drop(added);
            self.connection.all.keep_bound();
        }
    }

    /// Some of it was read.
    fn is_read(&self) {
        let _ = self.change(|item| item.since = Instant::now());
    }

    pub(super) fn remove(&self, bytes: usize) {
        // What a closed connection had is removed.
        let _ = self.change(|item| {
            item.since = Instant::now();
            item.bytes -= bytes;
            self.connection.subtract(&item.owner, bytes);
        });
    }

    /// The stream has a chunk that others may have, too.
    pub(super) fn add_shared(&self, chunk: &Arc<SharedChunk>) {
        chunk.add_holder();
        let _ = self.change(|item| {
            item.begin();
            item.shared.push(chunk.clone());
        });
    }

    pub(super) fn remove_shared(&self, chunk: &Arc<SharedChunk>) {
        let removed = self.change(|item| {
            item.since = Instant::now();
            if let Some(at) = item.shared.iter().position(|shared| Arc::ptr_eq(shared, chunk)) {
                item.shared.swap_remove(at);
            }
        });
        if let Err(Closed(mut state)) = removed {
            let bytes = chunk.part().min(state.closing);
            state.closing -= bytes;
            self.connection.all.closing.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}

impl Item {
    /// To be called before something is added.
    fn begin(&mut self) {
        if self.bytes == 0 && self.shared.is_empty() {
            self.since = Instant::now();
        }
    }

    fn part_of_shared(&self) -> usize {
        self.shared.iter().map(|chunk| chunk.part()).sum()
    }
}

/// The state of a connection that is being closed.
struct Closed<'e>(MutexGuard<'e, State>);

impl Drop for Entry {
    fn drop(&mut self) {
        let item = self.connection.state.lock().unread.remove(&self.number);
        if let Some(item) = item {
            self.connection.subtract(&item.owner, item.bytes);
        }
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
