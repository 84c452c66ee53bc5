//! Answers that are made piece by piece on threads that may block, at the pace of whoever reads them.
//!
//! Those threads are few, and a client may read slowly or not at all. So an answer is made by a [`Producer`] that can stop after
//! each piece. It runs on such a thread while few pieces wait, is then parked, which takes no thread, and is resumed when its
//! reader has taken some. A producer that is idle for a while [releases](Producer::release) its snapshot and buffers. A client
//! that does not read thus costs the pieces that wait for it, and no more.
//!
//! An answer that is not taken to its end is cut off with an error, never with a clean end, so that no client takes a part
//! for the whole.

use plinth_api::api_error::{ApiError, Reason};
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Pieces that wait for a reader at most. There is one until the first was taken, and one more for each that is, so that
/// clients which never read cost least.
const MAX_READY: usize = 3;
/// A producer is resumed when no more than so many pieces wait.
const RESUME_AT: usize = 1;
/// How long nothing may be taken before the producer releases what it holds.
const IDLE: Duration = Duration::from_secs(2);
/// Requests of a server that block a thread on a remote service at once.
const MAX_REMOTE_WAITS: usize = 32;

/// The producers of one server that run at once: as many as there are processors. More would not be faster, and each would take
/// its part of the processors from the threads that serve other requests.
#[derive(Debug)]
pub struct ProducerPool {
    permits: Arc<Semaphore>,
    /// Producers that wait for a permit.
    waiting: AtomicUsize,
}

impl Default for ProducerPool {
    fn default() -> ProducerPool {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        ProducerPool { permits: Arc::new(Semaphore::new(processors)), waiting: AtomicUsize::new(0) }
    }
}

impl ProducerPool {
    /// Waits for a permit; `None` never comes, since the semaphore is not closed.
    async fn acquire(self: &Arc<ProducerPool>) -> Option<Permit> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _counted = Waiting(self);
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        Some(Permit { _held: permit, pool: self.clone() })
    }

    fn try_acquire(self: &Arc<ProducerPool>) -> Option<Permit> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        Some(Permit { _held: permit, pool: self.clone() })
    }
}

/// Counts a producer that waits for a permit.
struct Waiting<'a>(&'a ProducerPool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Allows one producer to run.
struct Permit {
    _held: OwnedSemaphorePermit,
    pool: Arc<ProducerPool>,
}

thread_local! {
    /// The permit of the producer that this thread runs.
    static PERMIT: Cell<Option<Permit>> = const { Cell::new(None) };
}

/// Too many requests of this server wait for remote services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for services elsewhere")]
pub struct TooManyRemoteWaits;

/// Bounds how many requests of one server block a thread on a remote service (conversion webhook, KMS plugin). There are more
/// threads than that, for requests that need not wait. Cheap to clone; clones share the bound.
#[derive(Clone, Debug)]
pub struct RemoteWaits(Arc<Semaphore>);

impl Default for RemoteWaits {
    fn default() -> RemoteWaits {
        RemoteWaits(Arc::new(Semaphore::new(MAX_REMOTE_WAITS)))
    }
}

impl RemoteWaits {
    /// Runs `work`, which blocks on a remote service. A producer gives its permit back meanwhile, so that others run.
    ///
    /// # Errors
    /// [`TooManyRemoteWaits`].
    pub fn block_on<T>(&self, work: impl FnOnce() -> T) -> Result<T, TooManyRemoteWaits> {
        let _wait = self.0.try_acquire().map_err(|_| TooManyRemoteWaits)?;
        let pool = PERMIT.take().map(|permit| permit.pool.clone());
        let made = work();
        if let Some(pool) = pool {
            PERMIT.set(Handle::current().block_on(pool.acquire()));
        }
        Ok(made)
    }
}

/// A producer's permit while its thread runs it.
struct Running;

impl Running {
    fn begin(permit: Permit) -> Running {
        PERMIT.set(Some(permit));
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(PERMIT.take());
    }
}

/// Makes an answer.
pub trait Producer: Send + 'static {
    /// A part of the answer.
    type Piece: Send;
    /// Why there is no more of it.
    type Error: From<Cut> + Send;

    /// The next piece. May block; where it blocks for long, it checks now and then whether the client still waits.
    ///
    /// # Errors
    /// What ends the answer.
    fn next(&mut self, reader: Presence<'_>) -> Result<Next<Self::Piece>, Self::Error>;

    /// Nothing was taken for a while: releases what can be read again, such as a snapshot.
    fn release(&mut self);
}

/// What a producer made.
pub enum Next<C> {
    /// A piece, and perhaps there is more.
    Piece(C),
    /// The last piece.
    Last(C),
    /// Nothing: the piece before was the last.
    End,
}

/// Whether the client still waits for its answer.
#[derive(Clone, Copy)]
pub struct Presence<'a>(&'a AtomicBool);

impl Presence<'_> {
    /// False when the client has gone or was cut off.
    pub fn waits(self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// Why an answer was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// It was not taken in time.
    #[error("the client did not take the answer in time")]
    TooSlow,
    /// Its producer panicked.
    #[error("the answer could not be made")]
    Failed,
}

impl From<Cut> for ApiError {
    fn from(cut: Cut) -> ApiError {
        match cut {
            Cut::TooSlow => ApiError::new(504, Reason::Timeout, cut.to_string()),
            Cut::Failed => ApiError::internal(cut),
        }
    }
}

/// The end of an answer that the connection has. The pieces are behind a lock that is held to put and to take them, never
/// while one is made.
pub struct Reader<P: Producer> {
    shared: Arc<Shared<P>>,
    watcher: Option<AbortHandle>,
}

struct Shared<P: Producer> {
    pool: Arc<ProducerPool>,
    state: Mutex<State<P>>,
    /// The client has left, or was cut off.
    gone: AtomicBool,
}

struct State<P: Producer> {
    ready: VecDeque<Result<P::Piece, P::Error>>,
    /// How many were taken.
    taken: u64,
    /// The producer, while it has no thread.
    parked: Option<P>,
    released: bool,
    ended: bool,
    waiting: Option<Waker>,
}

impl<P: Producer> Reader<P> {
    /// Starts making an answer among the producers of a pool. To be called in a runtime.
    pub fn start(pool: Arc<ProducerPool>, producer: P) -> Reader<P> {
        let state = State {
            ready: VecDeque::new(),
            taken: 0,
            parked: None,
            released: false,
            ended: false,
            waiting: None,
        };
        let shared = Arc::new(Shared { pool, state: Mutex::new(state), gone: AtomicBool::new(false) });
        resume(&shared, producer);
        Reader { shared, watcher: None }
    }

    /// Makes an idle producer release what it holds, and cuts the answer off when it has not been taken after that time.
    pub fn watch(&mut self, limit: Option<Duration>) {
        self.watch_with(IDLE, limit);
    }

    fn watch_with(&mut self, idle: Duration, limit: Option<Duration>) {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let watcher = tokio::spawn(watch(Arc::downgrade(&self.shared), idle, until));
        self.watcher = Some(watcher.abort_handle());
    }

    /// Whether everything has been taken.
    pub fn is_at_end(&self) -> bool {
        let state = self.shared.state.lock();
        state.ended && state.ready.is_empty()
    }

    /// The next piece; `None` is the clean end.
    pub async fn next(&mut self) -> Option<Result<P::Piece, P::Error>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The poll form of [`Reader::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<P::Piece, P::Error>>> {
        let mut state = self.shared.state.lock();
        let piece = state.ready.pop_front();
        state.taken += u64::from(piece.is_some());
        let parked = if state.ready.len() <= RESUME_AT { state.parked.take() } else { None };
        let polled = match piece {
            Some(piece) => Poll::Ready(Some(piece)),
            None if state.ended => Poll::Ready(None),
            None => {
                state.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
        };
        drop(state);
        if let Some(producer) = parked {
            resume(&self.shared, producer);
        }
        polled
    }
}

impl<P: Producer> Drop for Reader<P> {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Relaxed);
        if let Some(watcher) = &self.watcher {
            watcher.abort();
        }
        let parked = self.shared.state.lock().parked.take();
        drop(parked);
    }
}

/// Runs a producer on a thread that may block, once its pool has a permit.
fn resume<P: Producer>(shared: &Arc<Shared<P>>, producer: P) {
    let shared = shared.clone();
    match shared.pool.try_acquire() {
        Some(permit) => drop(tokio::task::spawn_blocking(move || run(&shared, producer, permit))),
        None => drop(tokio::spawn(async move {
            if let Some(permit) = shared.pool.acquire().await {
                tokio::task::spawn_blocking(move || run(&shared, producer, permit));
            }
        })),
    }
}

/// Makes pieces until enough wait; after each one it is another producer's turn, if there is one.
fn run<P: Producer>(shared: &Arc<Shared<P>>, mut producer: P, permit: Permit) {
    let _end = EndsOnPanic(shared);
    let running = Running::begin(permit);
    loop {
        if shared.gone.load(Ordering::Relaxed) {
            return;
        }
        let next = producer.next(Presence(&shared.gone));
        let mut state = shared.state.lock();
        if state.ended {
            // It was cut off meanwhile.
            return;
        }
        match next {
            Ok(Next::Piece(piece)) => state.ready.push_back(Ok(piece)),
            Ok(Next::Last(piece)) => {
                state.ready.push_back(Ok(piece));
                state.ended = true;
            }
            Ok(Next::End) => state.ended = true,
            Err(error) => {
                state.ready.push_back(Err(error));
                state.ended = true;
            }
        }
        state.released = false;
        if state.ended {
            return wake(state);
        }
        if state.ready.len() >= state.max_ready() {
            state.parked = Some(producer);
            return wake(state);
        }
        wake(state);
        if shared.pool.waiting.load(Ordering::Relaxed) > 0 {
            drop(running);
            return resume(shared, producer);
        }
    }
}

impl<P: Producer> State<P> {
    fn max_ready(&self) -> usize {
        MAX_READY.min(usize::try_from(self.taken).unwrap_or(MAX_READY) + 1)
    }

    /// Ends the answer with an error; pieces that wait are dropped.
    fn cut(&mut self, cut: Cut) {
        self.ready.clear();
        self.ready.push_back(Err(cut.into()));
        self.ended = true;
    }
}

/// Wakes the reader, outside of the lock.
fn wake<P: Producer>(mut state: parking_lot::MutexGuard<'_, State<P>>) {
    let waiting = state.waiting.take();
    drop(state);
    if let Some(waker) = waiting {
        waker.wake();
    }
}

/// A reader must not wait for a producer that panicked.
struct EndsOnPanic<'s, P: Producer>(&'s Shared<P>);

impl<P: Producer> Drop for EndsOnPanic<'_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state.lock();
            state.cut(Cut::Failed);
            wake(state);
        }
    }
}

/// Checks an answer periodically until it ends.
async fn watch<P: Producer>(shared: Weak<Shared<P>>, idle: Duration, until: Option<Instant>) {
    let mut seen = 0;
    loop {
        let next = Instant::now() + idle;
        tokio::time::sleep_until(until.map_or(next, |until| until.min(next))).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut state = shared.state.lock();
        if state.ended {
            return;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            shared.gone.store(true, Ordering::Relaxed);
            let parked = state.parked.take();
            state.cut(Cut::TooSlow);
            wake(state);
            // It may own a snapshot, whose end may free files.
            tokio::task::spawn_blocking(move || drop(parked));
            return;
        }
        if std::mem::replace(&mut seen, state.taken) != state.taken || state.released {
            continue;
        }
        if let Some(producer) = state.parked.take() {
            drop(state);
            tokio::task::spawn_blocking(move || release(&shared, producer));
        }
    }
}

fn release<P: Producer>(shared: &Arc<Shared<P>>, mut producer: P) {
    let _end = EndsOnPanic(shared);
    producer.release();
    let mut state = shared.state.lock();
    if state.ended || shared.gone.load(Ordering::Relaxed) {
        return;
    }
    if state.ready.len() <= RESUME_AT && state.ready.len() < state.max_ready() {
        // The reader has come back meanwhile.
        drop(state);
        return resume(shared, producer);
    }
    state.released = true;
    state.parked = Some(producer);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the numbers up to a limit and tells what happens to it.
    struct Numbers {
        at: usize,
        end: usize,
        seen: Arc<Seen>,
    }

    #[derive(Default)]
    struct Seen {
        made: AtomicUsize,
        released_count: AtomicUsize,
        dropped: AtomicUsize,
        /// Threads that are at it.
        running: AtomicUsize,
    }

    #[derive(Debug, PartialEq)]
    struct Failed(Cut);

    impl From<Cut> for Failed {
        fn from(cut: Cut) -> Failed {
            Failed(cut)
        }
    }

    impl Producer for Numbers {
        type Piece = usize;
        type Error = Failed;

        fn next(&mut self, _: Presence<'_>) -> Result<Next<usize>, Failed> {
            self.seen.running.fetch_add(1, Ordering::SeqCst);
            self.at += 1;
            assert_ne!(self.at, 1_000_000, "unlucky");
            self.seen.made.fetch_add(1, Ordering::SeqCst);
            self.seen.running.fetch_sub(1, Ordering::SeqCst);
            Ok(match self.at {
                at if at < self.end => Next::Piece(at),
                at if at == self.end => Next::Last(at),
                _ => Next::End,
            })
        }

        fn release(&mut self) {
            self.seen.released_count.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Drop for Numbers {
        fn drop(&mut self) {
            self.seen.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn numbers(end: usize) -> (Reader<Numbers>, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (Reader::start(Arc::default(), Numbers { at: 0, end, seen: seen.clone() }), seen)
    }

    async fn until(what: impl Fn() -> bool) {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_reads_gets_everything_in_order() {
        let (mut reader, seen) = numbers(10_000);
        reader.watch(Some(Duration::from_secs(3600)));
        let mut got = 0;
        while let Some(piece) = reader.next().await {
            got += 1;
            assert_eq!(piece, Ok(got));
        }
        assert_eq!(got, 10_000);
        assert!(reader.is_at_end());
        until(|| seen.dropped.load(Ordering::SeqCst) == 1).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hundred_who_do_not_read_hold_no_thread_and_little_memory() {
        // The blocking threads of this runtime are 512; the readers more.
        let readers: Vec<_> = (0..600).map(|_| numbers(usize::MAX)).collect();
        for (reader, seen) in &readers {
            until(|| reader.shared.state.lock().parked.is_some()).await;
            assert_eq!(seen.made.load(Ordering::SeqCst), 1, "nothing was taken yet");
            assert_eq!(seen.running.load(Ordering::SeqCst), 0);
        }
        let (mut reader, seen) = numbers(20);
        assert_eq!(reader.next().await, Some(Ok(1)));
        until(|| reader.shared.state.lock().parked.is_some()).await;
        assert_eq!(seen.made.load(Ordering::SeqCst), 3, "two wait for one who has taken one");
        assert_eq!(reader.next().await, Some(Ok(2)));
        drop(reader);
        until(|| seen.dropped.load(Ordering::SeqCst) == 1).await;
        for (reader, seen) in readers {
            drop(reader);
            assert_eq!(seen.dropped.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_stalls_lets_it_rest_and_finds_it_where_it_was() {
        let (mut reader, seen) = numbers(usize::MAX);
        assert_eq!(reader.next().await, Some(Ok(1)));
        reader.watch_with(Duration::from_millis(1), None);
        for number in 2..10 {
            // One that rests already, and has not been needed since, does not rest again.
            until(|| reader.shared.state.lock().released).await;
            assert!(seen.released_count.load(Ordering::SeqCst) > 0);
            assert_eq!(reader.next().await, Some(Ok(number)));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_takes_too_long_is_cut_off() {
        let (mut reader, seen) = numbers(usize::MAX);
        assert_eq!(reader.next().await, Some(Ok(1)));
        reader.watch(Some(Duration::from_millis(20)));
        until(|| seen.dropped.load(Ordering::SeqCst) == 1).await;
        assert_eq!(reader.next().await, Some(Err(Failed(Cut::TooSlow))));
        assert_eq!(reader.next().await, None);
    }

    /// Waits for a service that answers when it is told to.
    struct Waits(Arc<std::sync::Barrier>, RemoteWaits);

    impl Producer for Waits {
        type Piece = usize;
        type Error = Failed;

        fn next(&mut self, _: Presence<'_>) -> Result<Next<usize>, Failed> {
            self.1.block_on(|| self.0.wait()).map_err(|TooManyRemoteWaits| Failed(Cut::Failed))?;
            Ok(Next::Last(1))
        }

        fn release(&mut self) {}
    }

    /// More producers wait than there are places, and all of them have to wait at once before any goes on.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_producer_that_waits_for_a_service_holds_no_permit() {
        let many = (2 * std::thread::available_parallelism().map_or(1, usize::from)).clamp(16, 24);
        let answers = Arc::new(std::sync::Barrier::new(many + 1));
        let (pool, waits) = (Arc::<ProducerPool>::default(), RemoteWaits::default());
        let readers: Vec<_> =
            (0..many).map(|_| Reader::start(pool.clone(), Waits(answers.clone(), waits.clone()))).collect();
        // Meanwhile others make their answers.
        let seen = Arc::new(Seen::default());
        let mut other = Reader::start(pool.clone(), Numbers { at: 0, end: 100, seen });
        for piece in 1..=100 {
            assert_eq!(other.next().await, Some(Ok(piece)));
        }
        tokio::task::spawn_blocking(move || answers.wait()).await.unwrap();
        for mut reader in readers {
            assert_eq!(reader.next().await, Some(Ok(1)));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_is_an_error_and_no_clean_end() {
        let seen = Arc::new(Seen::default());
        let mut reader = Reader::start(Arc::default(), Numbers { at: 999_998, end: usize::MAX, seen });
        assert_eq!(reader.next().await, Some(Ok(999_999)));
        assert_eq!(reader.next().await, Some(Err(Failed(Cut::Failed))));
        assert_eq!(reader.next().await, None);
    }
}
