//! Answers in memory that their clients have not read yet.
//!
//! An answer that is whole in memory has left the request's seat and slot behind, and a client that opens
//! many streams and reads none (HTTP/2 with a closed window) would collect them without bound. Two rules:
//!
//! - *Pace.* A user with [`PACE`] bytes unread on a connection begins further requests on that connection
//!   when some of them are read. That concerns nobody else, and a client that reads is served as fast as it
//!   reads.
//! - *Bound.* Where a server holds more than it may ([`UnreadAnswers::new`]), the connections whose answers
//!   have waited longest are closed. A client that reads is the last to be met, however many there are.
//!
//! Requests that wait count as answers that are not read. Lists and watches are not counted: they are
//! produced at the pace of their reader (`paced_response`).

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Request;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::body::{Body, BodyError, ChunkStream};
use super::memory_limit::memory_limit;
use super::shared_by_key::SharedByKey;

/// Unread bytes of a user on one connection with which further requests wait.
const PACE: usize = 4 << 20;
/// What a request that waits takes beside its head: its future and its stream.
const REQUEST: usize = 16 << 10;
/// Shorter answers are not counted: a stream costs as much.
const COUNTED_FROM: usize = 1 << 10;
/// The bound where none is given: this part of the memory, within these limits.
const PART_OF_MEMORY: u64 = 8;
const BOUNDS: (u64, u64) = (64 << 20, 2 << 30);

/// The answers of a server that are not read yet.
#[derive(Debug)]
pub struct UnreadAnswers {
    most: usize,
    /// Of all connections that are not closed.
    bytes: AtomicUsize,
    /// Numbers connections.
    next: AtomicU64,
    /// Held to add or remove a connection, and to look for those that have waited longest.
    connections: Mutex<HashMap<u64, Weak<ConnectionUnread>>>,
}

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
    /// Since when, and how many bytes, oldest first.
    unread: BTreeMap<u64, (Instant, usize)>,
    next: u64,
    is_closed: bool,
}

/// What one user of a connection has not read.
#[derive(Debug, Default)]
pub struct UserUnread {
    bytes: AtomicUsize,
    /// Wakes a request that waits, which wakes the next one.
    read: Notify,
}

impl UnreadAnswers {
    /// No more than `most` bytes, or an eighth of the memory that the process may have.
    pub fn new(most: Option<u64>) -> Arc<UnreadAnswers> {
        let most = most.unwrap_or_else(|| (memory_limit() / PART_OF_MEMORY).clamp(BOUNDS.0, BOUNDS.1));
        Arc::new(UnreadAnswers {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            bytes: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            connections: Mutex::default(),
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

    /// Closes connections, those first whose answers have waited longest, until a quarter is free.
    fn make_room(&self) {
        // Dropped after the lock, which the end of a connection takes.
        let connections: Vec<Arc<ConnectionUnread>> =
            self.connections.lock().values().filter_map(Weak::upgrade).collect();
        let mut waiting: Vec<(Instant, &Arc<ConnectionUnread>)> =
            connections.iter().filter_map(|connection| Some((connection.oldest()?, connection))).collect();
        waiting.sort_unstable_by_key(|(since, _)| *since);
        for (_, connection) in waiting {
            if self.bytes.load(Ordering::Acquire) <= self.most / 4 * 3 {
                break;
            }
            connection.close();
        }
    }
}

impl ConnectionUnread {
    /// What a user has not read here.
    pub fn of(&self, user: &str) -> Arc<UserUnread> {
        let first = self.first.get_or_init(|| (user.to_owned(), Arc::default()));
        match first.0 == user {
            true => first.1.clone(),
            false => self.users.lock().get_or_make(user, UserUnread::default),
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
        if user.may_begin() {
            return true;
        }
        let Some(_counted) = Entry::new(self, REQUEST + head_bytes(request)) else { return false };
        let begins = async {
            // What is read between the check and the wait is remembered by `Notify`.
            while !user.may_begin() {
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
            Body::Full(bytes) if bytes.len() >= COUNTED_FROM => bytes,
            answer => return answer,
        };
        let Some(entry) = Entry::new(self, bytes.len()) else { return Body::Stream(Box::pin(Dropped)) };
        if let Some(user) = user {
            user.bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        }
        Body::Full(Bytes::from_owner(Counted { bytes, user: user.cloned(), _entry: entry }))
    }

    fn oldest(&self) -> Option<Instant> {
        self.state.lock().unread.first_key_value().map(|(_, (since, _))| *since)
    }

    fn close(&self) {
        let unread = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.unread)
        };
        let bytes = unread.values().map(|(_, bytes)| bytes).sum();
        self.all.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.closed.notify_one();
    }
}

impl Drop for ConnectionUnread {
    fn drop(&mut self) {
        self.all.connections.lock().remove(&self.number);
    }
}

impl UserUnread {
    fn may_begin(&self) -> bool {
        self.bytes.load(Ordering::Acquire) < PACE
    }
}

/// The bytes of a request's head.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    target + headers.sum::<usize>()
}

/// Bytes that count until this is dropped.
struct Entry {
    connection: Arc<ConnectionUnread>,
    number: u64,
}

impl Entry {
    /// `None` on a connection that is being closed.
    fn new(connection: &Arc<ConnectionUnread>, bytes: usize) -> Option<Entry> {
        let number = {
            let mut state = connection.state.lock();
            if state.is_closed {
                return None;
            }
            let number = state.next;
            state.next += 1;
            state.unread.insert(number, (Instant::now(), bytes));
            number
        };
        let all = &connection.all;
        let before = all.bytes.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes > all.most {
            all.make_room();
        }
        Some(Entry { connection: Arc::clone(connection), number })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let entry = self.connection.state.lock().unread.remove(&self.number);
        if let Some((_, bytes)) = entry {
            self.connection.all.bytes.fetch_sub(bytes, Ordering::AcqRel);
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

    fn answer(of: &Arc<ConnectionUnread>, user: &str) -> Body {
        of.count(Body::from(vec![0; SIZE]), Some(&of.of(user)))
    }

    async fn is_closed(connection: &ConnectionUnread) -> bool {
        tokio::time::timeout(Duration::ZERO, connection.closed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_user_begins_no_more_than_is_read_and_others_do() {
        let connection = UnreadAnswers::new(None).connection();
        let mut unread: Vec<Body> = (0..4).map(|_| answer(&connection, "first")).collect();
        let request = Request::builder().header("large", "x".repeat(1000)).body(()).unwrap();
        let begins = async |user: &str| {
            connection.wait_for_reader(&connection.of(user), &request, Duration::from_millis(1)).await
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
        let connection = UnreadAnswers::new(None).connection();
        let mut unread: Vec<Body> = (0..4).map(|_| answer(&connection, "user")).collect();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let connection = connection.clone();
            waiting.spawn(async move {
                let (user, request) = (connection.of("user"), Request::new(()));
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

    #[tokio::test]
    async fn connections_whose_answers_have_waited_longest_are_closed() {
        let all = UnreadAnswers::new(Some(16 << 20));
        let [stalled, reading, other] = std::array::from_fn(|_| all.connection());
        let held: Vec<Body> = (0..8).map(|_| answer(&stalled, "user")).collect();
        let first = answer(&reading, "user");
        let others: Vec<Body> = (0..7).map(|_| answer(&other, "user")).collect();
        // It reads, so its oldest is the newest of all.
        drop(first);
        let second = answer(&reading, "user");
        assert!(!is_closed(&stalled).await);
        let third = answer(&reading, "user");
        assert!(is_closed(&stalled).await && !is_closed(&other).await && !is_closed(&reading).await);
        assert_eq!(all.bytes.load(Ordering::SeqCst), 9 * SIZE);
        // Nothing more is kept for it, and nothing counted twice.
        assert!(matches!(answer(&stalled, "user"), Body::Stream(_)));
        let request = Request::new(());
        let user = stalled.of("user");
        assert!(!stalled.wait_for_reader(&user, &request, Duration::from_secs(600)).await);
        drop((held, others, second, third));
        assert_eq!(all.bytes.load(Ordering::SeqCst), 0);
        drop((stalled, reading, other, user));
        assert!(all.connections.lock().is_empty());
    }
}
