//! Chunks of a streamed response on their way from the thread that produces them to the connection.
//!
//! The producing thread waits for its client, so it belongs to this response alone and not to the runtime,
//! whose blocking threads serve all requests, those of other servers in the process included. A slow client
//! must not occupy one forever: a response has a deadline, and when many threads wait for slow clients, each
//! waits only briefly. A response that misses it is aborted with an error, never with a clean end, so that
//! the client cannot take a partial response for a complete one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Maximum number of threads of a server that write responses.
const MAX_THREADS: usize = 64;
/// Number of waiting threads from which on they wait only briefly, so that a client that reads fast finds a
/// thread.
const MANY: usize = MAX_THREADS / 2;
/// Time limit per chunk then.
const SHORT: Duration = Duration::from_secs(2);

/// The threads of one server that write responses while they are sent. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub struct StreamThreads {
    free: Arc<Semaphore>,
    /// Those that wait for their client.
    waiting: Arc<AtomicUsize>,
}

impl Default for StreamThreads {
    fn default() -> StreamThreads {
        StreamThreads { free: Arc::new(Semaphore::new(MAX_THREADS)), waiting: Arc::default() }
    }
}

impl StreamThreads {
    /// Reserves a thread; none when all of them are in use.
    pub fn try_reserve(&self) -> Option<StreamThread> {
        self.free.clone().try_acquire_owned().ok().map(|_permit| StreamThread { _permit })
    }
}

/// A reserved thread.
#[derive(Debug)]
pub struct StreamThread {
    _permit: OwnedSemaphorePermit,
}

impl StreamThread {
    /// Runs `write` on the thread.
    ///
    /// # Errors
    /// When the system creates no thread.
    pub fn run(self, write: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let run = move || {
            write();
            drop(self);
        };
        std::thread::Builder::new().name("plinth-stream".to_owned()).spawn(run).map(drop)
    }
}

/// The client did not take the answer in time, or its producer panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client did not take the answer in time, or it could not be made")]
pub struct TooSlow;

/// The producer's end; used where blocking is allowed.
pub struct ChunkSender<C, E> {
    send: mpsc::Sender<Result<C, E>>,
    until: Instant,
    cut: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
    runtime: Handle,
}

/// The connection's end.
pub struct ChunkReceiver<C, E> {
    receive: mpsc::Receiver<Result<C, E>>,
    cut: Arc<AtomicBool>,
}

/// A channel for a response that must have been received within `limit`, with at most `chunks` buffered
/// chunks. To be called in a runtime.
pub fn chunk_channel<C, E>(
    chunks: usize,
    limit: Duration,
    threads: &StreamThreads,
) -> (ChunkSender<C, E>, ChunkReceiver<C, E>) {
    let (send, receive) = mpsc::channel(chunks);
    let cut = Arc::new(AtomicBool::new(false));
    let now = Instant::now();
    let until = now.checked_add(limit).unwrap_or(now);
    let (waiting, runtime) = (threads.waiting.clone(), Handle::current());
    let sender = ChunkSender { send, until, cut: cut.clone(), waiting, runtime };
    (sender, ChunkReceiver { receive, cut })
}

impl<C, E> ChunkSender<C, E> {
    /// Sends a chunk, or the error that ends the response. False when the client has disconnected or is too
    /// slow.
    pub fn send(&self, chunk: Result<C, E>) -> bool {
        let chunk = match self.send.try_send(chunk) {
            Ok(()) => return true,
            Err(mpsc::error::TrySendError::Closed(_)) => return false,
            Err(mpsc::error::TrySendError::Full(chunk)) => chunk,
        };
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let until = match waiting >= MANY {
            true => self.until.min(Instant::now() + SHORT),
            false => self.until,
        };
        // The timer is made within the runtime, of which this thread is none.
        let sent =
            self.runtime.block_on(async { tokio::time::timeout_at(until, self.send.send(chunk)).await });
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        match sent {
            Ok(sent) => sent.is_ok(),
            Err(_) => {
                self.cut.store(true, Ordering::Release);
                false
            }
        }
    }
}

/// A producer that panics leaves no clean end.
impl<C, E> Drop for ChunkSender<C, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.cut.store(true, Ordering::Release);
        }
    }
}

/// Chunks of a task that may wait for its client as long as needed: it occupies no thread.
impl<C, E> From<mpsc::Receiver<Result<C, E>>> for ChunkReceiver<C, E> {
    fn from(receive: mpsc::Receiver<Result<C, E>>) -> ChunkReceiver<C, E> {
        ChunkReceiver { receive, cut: Arc::default() }
    }
}

impl<C, E: From<TooSlow>> ChunkReceiver<C, E> {
    /// The next chunk; `None` is the clean end.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<C, E>>> {
        self.receive.poll_recv(cx).map(|chunk| match chunk {
            // The channel's close orders the store before this load.
            None if self.cut.swap(false, Ordering::AcqRel) => Some(Err(TooSlow.into())),
            chunk => chunk,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::sync::oneshot;

    #[derive(Debug, PartialEq)]
    struct Cut;

    impl From<TooSlow> for Cut {
        fn from(_: TooSlow) -> Cut {
            Cut
        }
    }

    /// Sends on a thread of its own as long as that succeeds, and returns how often it did.
    fn send_many(send: ChunkSender<&'static str, Cut>, many: usize) -> oneshot::Receiver<usize> {
        let (done, sent) = oneshot::channel();
        let run = move || {
            let count = (0..many).take_while(|_| send.send(Ok("x"))).count();
            let _ = done.send(count);
        };
        StreamThreads::default().try_reserve().unwrap().run(run).unwrap();
        sent
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slow_client_is_cut_off_with_an_error_and_keeps_no_thread() {
        let (send, mut receive) =
            chunk_channel::<&str, Cut>(2, Duration::from_millis(20), &StreamThreads::default());
        assert_eq!(send_many(send, 10).await, Ok(2), "what fits into the channel");
        for _ in 0..2 {
            assert_eq!(poll_fn(|cx| receive.poll_recv(cx)).await, Some(Ok("x")));
        }
        assert_eq!(poll_fn(|cx| receive.poll_recv(cx)).await, Some(Err(Cut)));
        assert_eq!(poll_fn(|cx| receive.poll_recv(cx)).await, None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn where_many_wait_each_waits_briefly() {
        let threads = StreamThreads { waiting: Arc::new(AtomicUsize::new(MANY)), ..Default::default() };
        let (send, receive) = chunk_channel::<&str, Cut>(1, Duration::from_secs(3600), &threads);
        assert_eq!(send_many(send, 10).await, Ok(1));
        drop(receive);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_client_that_reads_gets_everything() {
        let (send, mut receive) =
            chunk_channel::<&str, Cut>(2, Duration::from_secs(60), &StreamThreads::default());
        let sent = send_many(send, 1000);
        let mut got = 0;
        while let Some(chunk) = poll_fn(|cx| receive.poll_recv(cx)).await {
            chunk.unwrap();
            got += 1;
        }
        assert_eq!((got, sent.await), (1000, Ok(1000)));
    }

    #[tokio::test]
    async fn a_producer_that_panics_leaves_no_clean_end() {
        let threads = StreamThreads::default();
        let (send, mut receive) = chunk_channel::<&str, Cut>(2, Duration::from_secs(60), &threads);
        let panics = move || {
            send.send(Ok("x"));
            panic!("on purpose");
        };
        threads.try_reserve().unwrap().run(panics).unwrap();
        assert_eq!(poll_fn(|cx| receive.poll_recv(cx)).await, Some(Ok("x")));
        assert_eq!(poll_fn(|cx| receive.poll_recv(cx)).await, Some(Err(Cut)));
    }

    #[test]
    fn a_thread_is_free_again_when_its_response_has_ended() {
        let threads = StreamThreads::default();
        let reserved: Vec<_> = std::iter::from_fn(|| threads.try_reserve()).collect();
        assert_eq!(reserved.len(), MAX_THREADS);
        let (ended, end) = std::sync::mpsc::channel();
        for thread in reserved {
            let ended = ended.clone();
            thread.run(move || ended.send(()).unwrap()).unwrap();
        }
        drop(ended);
        assert_eq!(end.iter().count(), MAX_THREADS);
        while threads.free.available_permits() < MAX_THREADS {
            std::thread::yield_now();
        }
        assert!(threads.try_reserve().is_some());
    }
}
