//! Answers in memory that their clients have not read yet.
//!
//! An answer that is whole in memory has left the request's seat and slot behind, and a client that opens
//! many streams and reads none (HTTP/2 with a closed window) would collect them without bound. Two rules:
//!
//! - *Pace.* A user with [`PACE`] bytes unread on a connection, or a part of what is left where that is less,
//!   begins further requests on that connection when some of them are read. That concerns nobody else, and a
//!   client that reads is served as fast as it reads.
//! - *Bound.* Where a server holds more than it may ([`UnreadAnswers::new`]), connections are closed: those
//!   of users who have more than their share, the largest first, and of these the connections whose answers
//!   have waited longest, if that is [`YOUNG`] at least; with twice as much, whatever it is. How young its
//!   answers are, or how many connections it has, is in a client's hands; so it is the user who counts.
//!   Anonymous clients, and those that are not authenticated yet, count by their network.
//!
//! Requests that wait count as answers that are not read, for a reader or, where a connection has many, for
//! their processor time; documents that all answers share do not. Lists and watches are not counted: they are
//! produced at the pace of their reader (`paced_response`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
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
use super::connections::client_network;
use super::memory_limit::memory_limit;
use super::shared_by_key::SharedByKey;

/// Unread bytes of a user on one connection with which further requests wait.
const PACE: usize = 4 << 20;
/// The same, as a part of what is left of the bound.
const PART_OF_ROOM: usize = 4;
/// How long an answer may wait in any case, but for twice the bound: on a busy machine a client that reads
/// takes it within that.
const YOUNG: Duration = Duration::from_secs(1);
/// How often it is looked for connections to close, and how often that is logged.
const LOOKED_FOR: Duration = Duration::from_millis(100);
const LOGGED: Duration = Duration::from_secs(10);
/// What a request that waits takes beside its head: its future and its stream.
const REQUEST: usize = 16 << 10;
/// Shorter answers are not counted: a stream costs as much.
const COUNTED_FROM: usize = 1 << 10;
/// The bound where none is given: this part of the memory, within these limits.
const PART_OF_MEMORY: u64 = 16;
const BOUNDS: (u64, u64) = (64 << 20, 1 << 30);

/// The answers of a server that are not read yet.
#[derive(Debug)]
pub struct UnreadAnswers {
    most: usize,
    /// Of all connections that are not closed.
    bytes: AtomicUsize,
    /// Numbers connections.
    next: AtomicU64,
    /// What is unread of each user, or network.
    owners: Mutex<SharedByKey<String, Owner>>,
    /// Held to add or remove a connection, and to look for those that have waited longest.
    connections: Mutex<HashMap<u64, Weak<ConnectionUnread>>>,
    /// When it was looked for some, and when that was logged. Held meanwhile.
    looked: Mutex<[Option<Instant>; 2]>,
}

/// Unread bytes of a user, or of the clients of a network that are not identified.
type Owner = AtomicUsize;

/// What the client of one connection has not read.
#[derive(Debug)]
pub struct ConnectionUnread {
    all: Arc<UnreadAnswers>,
    number: u64,
    network: Arc<Owner>,
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
    /// Wakes a request that waits, which wakes the next one.
    read: Notify,
}

impl UnreadAnswers {
    /// No more than `most` bytes, or a sixteenth of the memory that the process may have; twice that for a
    /// second.
    pub fn new(most: Option<u64>) -> Arc<UnreadAnswers> {
        let most = most.unwrap_or_else(|| (memory_limit() / PART_OF_MEMORY).clamp(BOUNDS.0, BOUNDS.1));
        Arc::new(UnreadAnswers {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            bytes: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            owners: Mutex::default(),
            connections: Mutex::default(),
            looked: Mutex::default(),
        })
    }

    /// A new connection of that client.
    pub fn connection(self: &Arc<UnreadAnswers>, remote: IpAddr) -> Arc<ConnectionUnread> {
        // No user has a name with a line break.
        let network = self.owner(&format!("network\n{}", client_network(remote)));
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(ConnectionUnread {
            all: Arc::clone(self),
            number,
            network,
            state: Mutex::default(),
            first: OnceLock::new(),
            users: Mutex::default(),
            closed: Notify::new(),
        });
        self.connections.lock().insert(number, Arc::downgrade(&connection));
        connection
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
        let is_urgent = self.bytes.load(Ordering::Acquire) > 2 * self.most;
        let mut looked = self.looked.lock();
        let is_due = |last: Option<Instant>, interval| last.is_none_or(|last| now >= last + interval);
        if !is_urgent && !is_due(looked[0], LOOKED_FOR) {
            return;
        }
        looked[0] = Some(now);
        // Dropped after the lock, which the end of a connection takes.
        let connections: Vec<Arc<ConnectionUnread>> =
            self.connections.lock().values().filter_map(Weak::upgrade).collect();
        let oldest = |connection| ConnectionUnread::oldest(connection).map(|oldest| (oldest, connection));
        let mut waiting: Vec<_> = connections.iter().filter_map(oldest).collect();
        let owners: HashSet<*const Owner> =
            waiting.iter().map(|((_, owner), _)| Arc::as_ptr(owner)).collect();
        let share = self.most / owners.len().max(1);
        waiting.sort_by_cached_key(|((since, owner), _)| {
            (Reverse(owner.load(Ordering::Acquire)), Arc::as_ptr(owner), *since)
        });
        let enough = if is_urgent { self.most / 2 * 3 } else { self.most / 4 * 3 };
        let mut closed = 0;
        for ((since, owner), connection) in waiting {
            if self.bytes.load(Ordering::Acquire) <= enough {
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
                true => self.network.clone(),
                false => self.all.owner(&user.counted_as()),
            };
            UserUnread { owner, bytes: AtomicUsize::new(0), read: Notify::new() }
        };
        let first = self.first.get_or_init(|| (user.name.clone(), Arc::new(make())));
        match first.0 == user.name {
            true => first.1.clone(),
            false => self.users.lock().get_or_make(user.name.as_str(), make),
        }
    }

    /// Returns when the connection is to be closed, as others need the memory.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Waits until the user has read enough of earlier answers for a request to begin, for so long at most;
    /// returns whether that is so.
    pub async fn wait_for_reader<B>(
        self: &Arc<Self>,
        user: &UserUnread,
        request: &Request<B>,
        most: Duration,
    ) -> bool {
        if user.may_begin(&self.all) {
            return true;
        }
        let paced = (REQUEST + head_bytes(request), true);
        let Some(_counted) = Entry::new(self, paced, &user.owner) else { return false };
        let begins = async {
            // What is read between the check and the wait is remembered by `Notify`.
            while !user.may_begin(&self.all) {
                user.read.notified().await;
            }
        };
        let may_begin = tokio::time::timeout(most, begins).await.is_ok();
        user.read.notify_one();
        may_begin
    }

    /// An answer that counts until it is read, as the user's where that is known. On a connection that is
    /// being closed it is an error, which is no clean end.
    pub fn count(self: &Arc<Self>, answer: Body, user: Option<&Arc<UserUnread>>) -> Body {
        let bytes = match answer {
            Body::Full(bytes) if bytes.len() >= COUNTED_FROM && bytes.is_unique() => bytes,
            answer => return answer,
        };
        let owner = user.map_or(&self.network, |user| &user.owner);
        let Some(entry) = Entry::new(self, (bytes.len(), false), owner) else {
            return Body::Stream(Box::pin(Dropped));
        };
        if let Some(user) = user {
            user.bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        }
        Body::Full(Bytes::from_owner(Counted { bytes, user: user.cloned(), _entry: entry }))
    }

    /// Counts a request that is not begun yet, until what this gives is dropped.
    pub fn count_request<B>(self: &Arc<Self>, request: &Request<B>) -> Option<UnbegunRequest> {
        let owner = self.first.get().map_or(&self.network, |(_, user)| &user.owner);
        Entry::new(self, (REQUEST + head_bytes(request), false), owner)
            .map(|_entry| UnbegunRequest { _entry })
    }

    /// Since when the oldest answer waits, and whose it is.
    fn oldest(self: &Arc<Self>) -> Option<(Instant, Arc<Owner>)> {
        let state = self.state.lock();
        let oldest = state.unread.values().find(|item| !item.is_paced);
        oldest.map(|item| (item.since, item.owner.clone()))
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
    /// Whoever has none unread may, however little is left, so that nobody waits for others to read.
    fn may_begin(&self, all: &UnreadAnswers) -> bool {
        let left = all.most.saturating_sub(all.bytes.load(Ordering::Acquire));
        let own = self.bytes.load(Ordering::Acquire);
        own == 0 || own < PACE.min(left / PART_OF_ROOM)
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
        if all.bytes.load(Ordering::Acquire) > all.most {
            all.make_room();
        }
        Some(Entry { connection: Arc::clone(connection), number })
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
mod tests {
    use super::*;

    const SIZE: usize = 1 << 20;

    fn user(name: &str) -> User {
        User { name: name.to_owned(), ..User::default() }
    }

    fn connection(all: &Arc<UnreadAnswers>) -> Arc<ConnectionUnread> {
        all.connection([127, 0, 0, 1].into())
    }

    fn answer(of: &Arc<ConnectionUnread>, name: &str) -> Body {
        of.count(Body::from(vec![0; SIZE]), Some(&of.of(&user(name))))
    }

    async fn is_closed(connection: &ConnectionUnread) -> bool {
        tokio::time::timeout(Duration::ZERO, connection.closed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_user_begins_no_more_than_is_read_and_others_do() {
        let connection = connection(&UnreadAnswers::new(None));
        let mut unread: Vec<Body> = (0..4).map(|_| answer(&connection, "first")).collect();
        let request = Request::builder().header("large", "x".repeat(1000)).body(()).unwrap();
        let begins = async |name: &str| {
            let name = user(name);
            connection.wait_for_reader(&connection.of(&name), &request, Duration::from_millis(1)).await
        };
        assert_eq!([begins("first").await, begins("second").await], [false, true]);
        unread.pop();
        assert!(begins("first").await);
        drop(unread);
        assert_eq!(connection.all.bytes.load(Ordering::SeqCst), 0);
        // Small ones, and those of other forms, are not counted.
        let _small = connection.count(Body::from(vec![0; COUNTED_FROM - 1]), None);
        assert_eq!(connection.all.bytes.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_that_wait_go_on_when_answers_are_read() {
        let connection = connection(&UnreadAnswers::new(None));
        let mut unread: Vec<Body> = (0..4).map(|_| answer(&connection, "user")).collect();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let connection = connection.clone();
            waiting.spawn(async move {
                let (user, request) = (connection.of(&user("user")), Request::new(()));
                assert!(connection.wait_for_reader(&user, &request, Duration::from_secs(600)).await);
                drop(answer(&connection, "user"));
            });
        }
        tokio::task::yield_now().await;
        // One is enough: each that goes on wakes another.
        unread.pop();
        while let Some(ended) = waiting.join_next().await {
            ended.unwrap();
        }
        drop(unread);
        assert_eq!(connection.all.bytes.load(Ordering::SeqCst), 0);
    }

    /// Makes what a connection has not read older.
    fn age(connection: &ConnectionUnread) {
        connection.state.lock().unread.values_mut().for_each(|item| item.since -= YOUNG);
        *connection.all.looked.lock() = [None; 2];
    }

    #[tokio::test]
    async fn connections_of_those_with_more_than_their_share_are_closed() {
        let all = UnreadAnswers::new(Some(16 << 20));
        let [stalled, second, slow] = std::array::from_fn(|_| connection(&all));
        let mut held: Vec<Body> = (0..2).map(|_| answer(&slow, "reader")).collect();
        held.extend((0..9).map(|_| answer(&stalled, "many")));
        held.extend((0..6).map(|_| answer(&second, "many")));
        // All are young, and there is not twice as much.
        assert!(!is_closed(&stalled).await && !is_closed(&second).await && !is_closed(&slow).await);
        // The slow reader has less than the share of a user, though its answers are the oldest.
        age(&slow);
        age(&stalled);
        held.push(answer(&slow, "reader"));
        assert!(is_closed(&stalled).await && !is_closed(&second).await && !is_closed(&slow).await);
        assert_eq!(all.bytes.load(Ordering::SeqCst), 9 * SIZE);
        // Nothing more is kept for it, and nothing counted twice.
        assert!(matches!(answer(&stalled, "many"), Body::Stream(_)));
        let (request, user) = (Request::new(()), stalled.of(&user("many")));
        assert!(!stalled.wait_for_reader(&user, &request, Duration::from_secs(600)).await);
        drop(held);
        assert_eq!(all.bytes.load(Ordering::SeqCst), 0);
        drop((stalled, second, slow, user));
        assert!(all.connections.lock().is_empty());
    }

    #[tokio::test]
    async fn with_twice_as_much_young_answers_are_no_reason_to_wait() {
        let all = UnreadAnswers::new(Some(16 << 20));
        let (fresh, slow) = (connection(&all), connection(&all));
        let _read = answer(&slow, "reader");
        age(&slow);
        let _held: Vec<Body> = (0..31).map(|_| answer(&fresh, "many")).collect();
        assert!(!is_closed(&fresh).await && !is_closed(&slow).await);
        let _more = answer(&fresh, "many");
        assert!(is_closed(&fresh).await && !is_closed(&slow).await);
        // What all answers share takes no memory, whoever reads it.
        let document = Bytes::from(vec![0; SIZE]);
        let _shared = slow.count(Body::Full(document.clone()), None);
        assert_eq!(all.bytes.load(Ordering::SeqCst), SIZE);
    }
}
