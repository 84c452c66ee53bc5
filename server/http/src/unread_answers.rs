//! Answers in memory that their clients have not read yet.
//!
//! An answer that is whole in memory has left the request's seat and slot behind, and a client that opens
//! many streams and reads none (HTTP/2 with a closed window) would collect them without bound. So they are
//! counted, by user and for all: while a user has as many bytes unread as are left for others, further
//! requests of that user wait before they are begun. Who has none unread never waits. And a connection whose
//! client takes nothing for [`UNREAD_TIME`] is closed.
//!
//! Lists and watches are not counted here: they are produced at the pace of their reader (`paced_response`).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::body::Body;

/// Unread bytes of all users: half of them when one user alone does not read.
const MOST: usize = 128 << 20;
/// Shorter answers are not counted: a stream costs as much.
const COUNTED_FROM: usize = 1 << 10;
/// How long a client may take nothing of what waits for it: the usual timeout of a request.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// Unread bytes of all users of a server.
#[derive(Debug, Default)]
pub(crate) struct AllUnread(AtomicUsize);

/// Unread bytes of one user.
#[derive(Debug, Default)]
pub(crate) struct UserUnread {
    bytes: AtomicUsize,
    /// Wakes a request that waits. It wakes the next one.
    taken: Notify,
}

impl UserUnread {
    fn has_room(&self, all: &AllUnread) -> bool {
        let own = self.bytes.load(Ordering::Acquire);
        own == 0 || own < MOST.saturating_sub(all.0.load(Ordering::Acquire))
    }

    /// Waits until the user has read enough of earlier answers, for so long at most; returns whether it has.
    pub(crate) async fn wait_for_room(&self, all: &AllUnread, most: Duration) -> bool {
        if self.has_room(all) {
            return true;
        }
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
struct Unread {
    bytes: Bytes,
    all: Arc<AllUnread>,
    user: Arc<dyn AsRef<UserUnread> + Send + Sync>,
    connection: Arc<ConnectionUnread>,
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let user = (*self.user).as_ref();
        self.all.0.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        user.bytes.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        user.taken.notify_one();
        self.connection.taken.fetch_add(1, Ordering::AcqRel);
        self.connection.answers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts an answer that is whole in memory until its client has read it.
pub(crate) fn count(
    body: Body,
    all: &Arc<AllUnread>,
    user: Arc<dyn AsRef<UserUnread> + Send + Sync>,
    connection: &Arc<ConnectionUnread>,
) -> Body {
    let bytes = match body {
        Body::Full(bytes) if bytes.len() >= COUNTED_FROM => bytes,
        body => return body,
    };
    all.0.fetch_add(bytes.len(), Ordering::AcqRel);
    (*user).as_ref().bytes.fetch_add(bytes.len(), Ordering::AcqRel);
    connection.answers.fetch_add(1, Ordering::AcqRel);
    connection.watch();
    let (all, connection) = (Arc::clone(all), Arc::clone(connection));
    Body::Full(Bytes::from_owner(Unread { bytes, all, user, connection }))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct User(UserUnread);

    impl AsRef<UserUnread> for User {
        fn as_ref(&self) -> &UserUnread {
            &self.0
        }
    }

    fn user() -> Arc<User> {
        Arc::new(User(UserUnread::default()))
    }

    fn answer(all: &Arc<AllUnread>, of: &Arc<User>, length: usize) -> Body {
        count(Body::from(vec![0; length]), all, of.clone(), &Arc::default())
    }

    fn has_room(all: &AllUnread, of: &User) -> bool {
        of.0.has_room(all)
    }

    #[tokio::test]
    async fn who_does_not_read_leaves_memory_to_others() {
        let all = Arc::new(AllUnread::default());
        let (greedy, other) = (user(), user());
        let mut unread = Vec::new();
        while has_room(&all, &greedy) {
            unread.push(answer(&all, &greedy, 1 << 20));
        }
        assert_eq!(unread.len(), 64);
        while has_room(&all, &other) {
            unread.push(answer(&all, &other, 1 << 20));
        }
        assert_eq!(unread.len(), 64 + 32);
        // Whoever has none gets one, however little there is.
        let third = user();
        unread.push(answer(&all, &other, 64 << 20));
        assert!(has_room(&all, &third));
        drop(unread);
        assert_eq!(all.0.load(Ordering::SeqCst), 0);
        assert!(has_room(&all, &greedy));
        // Small ones, and those of other forms, are not counted.
        let _small = answer(&all, &third, COUNTED_FROM - 1);
        assert_eq!(all.0.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_that_wait_go_on_when_answers_are_read() {
        let (all, reader) = (Arc::new(AllUnread::default()), user());
        let mut unread: Vec<Body> = (0..64).map(|_| answer(&all, &reader, 1 << 20)).collect();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let (all, reader) = (all.clone(), reader.clone());
            waiting.spawn(async move {
                assert!(reader.0.wait_for_room(&all, Duration::from_secs(600)).await);
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
        assert_eq!(all.0.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn who_waits_for_too_long_is_refused() {
        let (all, reader) = (Arc::new(AllUnread::default()), user());
        let _unread: Vec<Body> = (0..64).map(|_| answer(&all, &reader, 1 << 20)).collect();
        assert!(!reader.0.wait_for_room(&all, Duration::from_millis(1)).await);
    }
    #[tokio::test]
    async fn a_connection_of_which_nothing_is_taken_is_given_up() {
        let (all, reader) = (Arc::new(AllUnread::default()), user());
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
