//! Answers in memory that their clients have not read yet.
//!
//! An answer that is whole in memory has left the request's seat and slot behind, and a client that opens
//! many streams and reads none (HTTP/2 with a closed window) would collect them without bound. So they are
//! counted, by user and for all; anonymous clients, and those that are not authenticated yet, count by their
//! network. While a user has as many bytes unread as are left for others, further requests of that user wait
//! before they are begun, and what waits is counted in the same way. With twice as much, as answers came of
//! requests that were under way, or of errors before a request is begun, an answer is dropped, and its stream
//! reset. Who has none unread neither waits nor loses any. And a connection whose client takes nothing for
//! [`UNREAD_TIME`] is closed.
//!
//! Lists and watches are not counted here: they are produced at the pace of their reader (`paced_response`).

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::body::{Body, BodyError, ChunkStream};

/// Unread bytes of all users, with which requests wait: half of them when one user alone does not read.
const MOST: usize = 128 << 20;
/// The same, with which answers are dropped.
const MOST_EVER: usize = 2 * MOST;
/// Bytes of the requests of all users that wait.
const MOST_WAITING: usize = 32 << 20;
/// What a request that waits takes beside its head: its future and its stream.
const REQUEST: usize = 16 << 10;
/// Shorter answers are not counted: a stream costs as much.
const COUNTED_FROM: usize = 1 << 10;
/// How long a client may take nothing of what waits for it: the usual timeout of a request.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// Bytes of answers that are not read, and of requests that wait until they are: of one user, or of all users
/// of a server.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    answers: AtomicUsize,
    waiting: AtomicUsize,
    /// Wakes a request that waits, which wakes the next one. Of a user.
    taken: Notify,
}

/// Whether a user who has so much may have more: no more than is left of `most` for others.
fn has_room(own: &AtomicUsize, all: &AtomicUsize, most: usize) -> bool {
    let own = own.load(Ordering::Acquire);
    own == 0 || own < most.saturating_sub(all.load(Ordering::Acquire))
}

impl Unread {
    fn has_room(&self, all: &Unread) -> bool {
        has_room(&self.answers, &all.answers, MOST)
    }

    /// Waits until the user has read enough of earlier answers, for so long at most; returns whether it has.
    /// It has not, at once, where too many requests wait already.
    pub(crate) async fn wait_for_room<B>(&self, all: &Unread, request: &Request<B>, most: Duration) -> bool {
        if self.has_room(all) {
            return true;
        }
        if !has_room(&self.waiting, &all.waiting, MOST_WAITING) {
            return false;
        }
        let _waiting = Waiting::new(self, all, REQUEST + head_bytes(request));
        let room = async {
            // What is taken between the check and the wait is remembered by `Notify`.
            while !self.has_room(all) {
                self.taken.notified().await;
            }
        };
        let has_room = tokio::time::timeout(most, room).await.is_ok();
        self.taken.notify_one();
        has_room
    }
}

/// The bytes of a request's head.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    target + headers.sum::<usize>()
}

/// Counts a request that waits.
struct Waiting<'u> {
    ledgers: [&'u Unread; 2],
    bytes: usize,
}

impl<'u> Waiting<'u> {
    fn new(user: &'u Unread, all: &'u Unread, bytes: usize) -> Waiting<'u> {
        let ledgers = [user, all];
        for unread in ledgers {
            unread.waiting.fetch_add(bytes, Ordering::AcqRel);
        }
        Waiting { ledgers, bytes }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        for unread in self.ledgers {
            unread.waiting.fetch_sub(self.bytes, Ordering::AcqRel);
        }
    }
}

/// What the client of one connection has not read.
#[derive(Debug)]
pub(crate) struct ConnectionUnread {
    /// How long it may take nothing.
    time: Duration,
    answers: AtomicUsize,
    /// Counts answers that were taken.
    taken: AtomicU64,
    /// Whether a task looks whether any is.
    is_watched: AtomicBool,
    given_up: Notify,
}

impl Default for ConnectionUnread {
    fn default() -> ConnectionUnread {
        ConnectionUnread::of(UNREAD_TIME)
    }
}

impl ConnectionUnread {
    fn of(time: Duration) -> ConnectionUnread {
        ConnectionUnread {
            time,
            answers: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            given_up: Notify::new(),
        }
    }

    /// Returns when the client has taken nothing for too long.
    pub(crate) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    fn watch(self: &Arc<Self>) {
        if self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        // Without a runtime the process ends.
        let Ok(runtime) = Handle::try_current() else { return };
        let connection = Arc::downgrade(self);
        runtime.spawn(async move {
            let mut before = None;
            loop {
                let Some(connection) = connection.upgrade() else { return };
                let taken = connection.taken.load(Ordering::Acquire);
                if connection.answers.load(Ordering::Acquire) == 0 {
                    connection.is_watched.store(false, Ordering::Release);
                    // One that came in between has seen the task still there.
                    if connection.answers.load(Ordering::Acquire) == 0
                        || connection.is_watched.swap(true, Ordering::AcqRel)
                    {
                        return;
                    }
                } else if before == Some(taken) {
                    connection.given_up.notify_one();
                    return;
                }
                before = Some(taken);
                let time = connection.time;
                drop(connection);
                tokio::time::sleep(time).await;
            }
        });
    }
}

/// An answer that is counted until it is dropped: when the connection has taken it, or has ended.
struct Counted {
    bytes: Bytes,
    all: Arc<Unread>,
    user: Arc<Unread>,
    connection: Arc<ConnectionUnread>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for unread in [&self.all, &self.user] {
            unread.answers.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        }
        self.user.taken.notify_one();
        self.connection.taken.fetch_add(1, Ordering::AcqRel);
        self.connection.answers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of an answer that was dropped: an error, which is no clean end.
struct Dropped;

impl ChunkStream for Dropped {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        Poll::Ready(Some(Err(BodyError("too many earlier answers are not read".to_owned()))))
    }
}

/// Counts an answer that is whole in memory until its client has read it. It is dropped where the user has
/// far too many.
pub(crate) fn count(
    body: Body,
    all: &Arc<Unread>,
    user: Arc<Unread>,
    connection: &Arc<ConnectionUnread>,
) -> Body {
    let bytes = match body {
        Body::Full(bytes) if bytes.len() >= COUNTED_FROM => bytes,
        body => return body,
    };
    if !has_room(&user.answers, &all.answers, MOST_EVER) {
        return Body::Stream(Box::pin(Dropped));
    }
    for unread in [all, &user] {
        unread.answers.fetch_add(bytes.len(), Ordering::AcqRel);
    }
    connection.answers.fetch_add(1, Ordering::AcqRel);
    connection.watch();
    let (all, connection) = (Arc::clone(all), Arc::clone(connection));
    Body::Full(Bytes::from_owner(Counted { bytes, all, user, connection }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(all: &Arc<Unread>, of: &Arc<Unread>, length: usize) -> Body {
        count(Body::from(vec![0; length]), all, of.clone(), &Arc::default())
    }

    #[tokio::test]
    async fn who_does_not_read_leaves_memory_to_others() {
        let all = Arc::<Unread>::default();
        let [greedy, other, third] = std::array::from_fn(|_| Arc::<Unread>::default());
        let mut unread = Vec::new();
        while Unread::has_room(&greedy, &all) {
            unread.push(answer(&all, &greedy, 1 << 20));
        }
        assert_eq!(unread.len(), 64);
        while Unread::has_room(&other, &all) {
            unread.push(answer(&all, &other, 1 << 20));
        }
        assert_eq!(unread.len(), 64 + 32);
        // Answers of what is under way are dropped at some time, if not the first one of a user.
        let made = (0..1000).map(|_| answer(&all, &greedy, 1 << 20));
        let kept: Vec<Body> = made.filter(|body| matches!(body, Body::Full(_))).collect();
        assert_eq!(kept.len(), 48);
        assert!(third.has_room(&all));
        assert!(matches!(answer(&all, &third, 64 << 20), Body::Full(_)));
        drop((unread, kept));
        assert_eq!(all.answers.load(Ordering::SeqCst), 0);
        assert!(greedy.has_room(&all));
        // Small ones, and those of other forms, are not counted.
        let _small = answer(&all, &third, COUNTED_FROM - 1);
        assert_eq!(all.answers.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_that_wait_go_on_when_answers_are_read() {
        let (all, reader) = (Arc::<Unread>::default(), Arc::<Unread>::default());
        let mut unread: Vec<Body> = (0..64).map(|_| answer(&all, &reader, 1 << 20)).collect();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let (all, reader) = (all.clone(), reader.clone());
            waiting.spawn(async move {
                let long = Duration::from_secs(600);
                assert!(reader.wait_for_room(&all, &Request::new(()), long).await);
                drop(answer(&all, &reader, 1 << 20));
            });
        }
        tokio::task::yield_now().await;
        // One is enough: each that goes on wakes another.
        unread.pop();
        while let Some(ended) = waiting.join_next().await {
            ended.unwrap();
        }
        drop(unread);
        let left = [&all.answers, &all.waiting, &reader.waiting].map(|bytes| bytes.load(Ordering::SeqCst));
        assert_eq!(left, [0, 0, 0]);
    }

    #[tokio::test]
    async fn who_waits_for_too_long_or_with_too_many_is_refused() {
        let (all, reader) = (Arc::<Unread>::default(), Arc::<Unread>::default());
        let _unread: Vec<Body> = (0..64).map(|_| answer(&all, &reader, 1 << 20)).collect();
        let large = Request::builder().header("large", "x".repeat(1 << 20)).body(()).unwrap();
        assert!(!reader.wait_for_room(&all, &large, Duration::from_millis(1)).await);
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let (all, reader, large) = (all.clone(), reader.clone(), large.clone());
            waiting.spawn(async move { reader.wait_for_room(&all, &large, Duration::from_secs(600)).await });
        }
        for _ in 0..84 {
            assert!(!waiting.join_next().await.unwrap().unwrap(), "refused at once");
        }
        assert_eq!(waiting.len(), 16);
        waiting.shutdown().await;
        assert_eq!(all.waiting.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_connection_of_which_nothing_is_taken_is_given_up() {
        let (all, reader) = (Arc::<Unread>::default(), Arc::<Unread>::default());
        let connection = Arc::new(ConnectionUnread::of(Duration::from_millis(5)));
        let answer = || count(Body::from(vec![0; COUNTED_FROM]), &all, reader.clone(), &connection);
        // One that reads is watched for a while, and again when it has something to read.
        for _ in 0..3 {
            drop(answer());
            while connection.is_watched.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(tokio::time::timeout(Duration::ZERO, connection.given_up()).await.is_err());
        let _unread = answer();
        connection.given_up().await;
    }
}
