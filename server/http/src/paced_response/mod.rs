//! Backpressure: streamed responses are produced in pieces on threads that may block, at the pace of their
//! reader.
//!
//! Those threads are few, and a client may read slowly or not at all. So a response is produced by a
//! [`PieceProducer`] that can stop after each piece. It runs on such a thread while few pieces are ready, is
//! then parked, which takes no thread, and is resumed when its reader has taken some. Where many are parked,
//! and after a while in which nothing was read, a producer is [suspended](PieceProducer::suspend): it keeps
//! no snapshot and no buffers. A client that does not read thus costs its ready pieces and what the producer
//! keeps, and no more; all clients together cost what [`PacedReader::count_in`] counts.
//!
//! A response that is not read to its end is aborted with an error, never with a clean end, so that the
//! client cannot take a partial response for a complete one.

mod pool;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use plinth_api::{ApiError, Reason};

use self::pool::{ParkedPlace, Permit, UserKey};
use super::unread_answers::{HeldBytes, UnreadStream};

pub use self::pool::ProducerPool;

/// Maximum number of ready pieces. It is one until the first was taken, and grows with each one taken, so
/// that clients that never read cost least.
const MAX_READY: usize = 3;
/// A producer is resumed when at most this many pieces are ready.
const RESUME_AT: usize = 1;
/// Time without reads after which the producer is idle.
const IDLE: Duration = Duration::from_secs(2);
/// Maximum number of requests of a server that block a thread on a remote service. Nothing else of a server
/// holds threads of the runtime's blocking pool while it waits for others, so whoever makes the runtime gives
/// its pool that many for each server, and more to compute.
pub const MAX_REMOTE_WAITS: usize = 24;

thread_local! {
    /// The permit of the producer that this thread runs.
    static PERMIT: Cell<Option<Permit>> = const { Cell::new(None) };
}

/// Too many requests of this server wait for remote services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for remote services")]
pub struct TooManyRemoteWaits;

/// Limits the requests of one server that block a thread on a remote service (conversion webhook, KMS
/// plugin) to [`MAX_REMOTE_WAITS`]. Cheap to clone; clones share the limit.
#[derive(Clone, Debug)]
pub struct RemoteWaits(Arc<Semaphore>);

impl Default for RemoteWaits {
    fn default() -> RemoteWaits {
        RemoteWaits(Arc::new(Semaphore::new(MAX_REMOTE_WAITS)))
    }
}

impl RemoteWaits {
    /// Runs `work`, which blocks on a remote service. A producer releases its permit meanwhile, so that
    /// others run.
    ///
    /// # Errors
    /// [`TooManyRemoteWaits`].
    pub fn block_on<T>(&self, work: impl FnOnce() -> T) -> Result<T, TooManyRemoteWaits> {
        let _wait = self.0.try_acquire().map_err(|_| TooManyRemoteWaits)?;
        let passed_on = PERMIT.take().map(|permit| (permit.pool.clone(), permit.user));
        let made = work();
        if let Some((pool, user)) = passed_on {
            PERMIT.set(Handle::current().block_on(pool.acquire(user)));
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

/// Produces a response.
pub trait PieceProducer: Send + 'static {
    /// A part of the response.
    type Piece: Send;
    /// An error that ends the response.
    type Error: From<AbortedResponse> + Send;

    /// The next piece. May block; if it blocks for long, it must check periodically whether the client still
    /// waits.
    ///
    /// # Errors
    /// Errors that end the response.
    fn next(&mut self, reader: ClientPresence<'_>) -> Result<NextPiece<Self::Piece>, Self::Error>;

    /// Releases what takes memory and can be acquired again, such as a snapshot and its buffers.
    fn suspend(&mut self);

    /// Nothing was read for a while.
    fn idle(&mut self) {
        self.suspend();
    }

    /// The memory of a piece, in bytes.
    fn piece_bytes(piece: &Self::Piece) -> usize;

    /// The memory of what it keeps between two pieces, in bytes.
    fn kept_bytes(&self) -> usize {
        0
    }
}

/// The result of a step.
pub enum NextPiece<C> {
    /// A piece, possibly followed by more.
    Piece(C),
    /// The last piece.
    Last(C),
    /// The previous piece was the last.
    End,
}

/// Whether the client still waits for its response.
#[derive(Clone, Copy)]
pub struct ClientPresence<'a>(&'a AtomicBool);

impl ClientPresence<'_> {
    /// False when the client has disconnected or the response was aborted.
    pub fn waits(self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// Why a response was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbortedResponse {
    /// It was not read in time.
    #[error("the client did not take the answer in time")]
    TooSlow,
    /// Its producer panicked.
    #[error("the answer could not be made")]
    Failed,
}

impl From<AbortedResponse> for ApiError {
    fn from(cut: AbortedResponse) -> ApiError {
        match cut {
            AbortedResponse::TooSlow => ApiError::new(504, Reason::Timeout, cut.to_string()),
            AbortedResponse::Failed => ApiError::internal(cut),
        }
    }
}

/// The connection's end of a response. The lock on the pieces is held to add and to remove them, not while
/// one is produced.
pub struct PacedReader<P: PieceProducer> {
    shared: Arc<Shared<P>>,
    watcher: Option<AbortHandle>,
}

struct Shared<P: PieceProducer> {
    pool: Arc<ProducerPool>,
    user: UserKey,
    state: Mutex<State<P>>,
    /// The client has disconnected, or the response was aborted.
    gone: AtomicBool,
}

struct State<P: PieceProducer> {
    ready: VecDeque<Result<P::Piece, P::Error>>,
    /// Number of pieces taken.
    taken: u64,
    /// The producer, while it has no thread.
    parked: Option<Parked<P>>,
    is_idle: bool,
    ended: bool,
    waiting: Option<Waker>,
    /// Bytes that the producer keeps.
    kept: usize,
    counted: Option<HeldBytes>,
}

/// A producer without a thread.
struct Parked<P> {
    producer: P,
    /// While it has its snapshot.
    place: Option<ParkedPlace>,
}

impl<P: PieceProducer> Parked<P> {
    /// One that has no snapshot.
    fn suspended(producer: P) -> Parked<P> {
        Parked { producer, place: None }
    }
}

impl<P: PieceProducer> PacedReader<P> {
    /// Starts a response to a user among the producers of a pool. To be called in a runtime.
    pub fn start(pool: Arc<ProducerPool>, user: &str, producer: P) -> PacedReader<P> {
        let state = State {
            ready: VecDeque::new(),
            taken: 0,
            parked: None,
            is_idle: false,
            ended: false,
            waiting: None,
            kept: 0,
            counted: None,
        };
        let user = pool.user(user);
        let shared = Arc::new(Shared { pool, user, state: Mutex::new(state), gone: AtomicBool::new(false) });
        resume(&shared, Parked::suspended(producer));
        PacedReader { shared, watcher: None }
    }

    /// Makes an idle producer release its resources, and aborts the response when it has not been read within
    /// `limit`.
    pub fn watch(&mut self, limit: Option<Duration>) {
        self.watch_with(IDLE, limit);
    }

    fn watch_with(&mut self, idle: Duration, limit: Option<Duration>) {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let watcher = tokio::spawn(watch(Arc::downgrade(&self.shared), idle, until));
        self.watcher = Some(watcher.abort_handle());
    }

    /// Counts from now on the pieces that are ready, and what their producer keeps.
    pub fn count_in(&mut self, counted: &Arc<UnreadStream>) {
        let mut state = self.shared.state.lock();
        state.counted = Some(counted.holder());
        state.count();
    }

    /// Whether all pieces have been taken.
    pub fn is_at_end(&self) -> bool {
        let state = self.shared.state.lock();
        state.ended && state.ready.is_empty()
    }

    /// The next piece; `None` is the clean end.
    pub async fn next(&mut self) -> Option<Result<P::Piece, P::Error>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The poll form of [`PacedReader::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<P::Piece, P::Error>>> {
        let mut state = self.shared.state.lock();
        let piece = state.ready.pop_front();
        state.taken += u64::from(piece.is_some());
        state.count();
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
        if let Some(parked) = parked {
            resume(&self.shared, parked);
        }
        polled
    }
}

impl<P: PieceProducer> Drop for PacedReader<P> {
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
fn resume<P: PieceProducer>(shared: &Arc<Shared<P>>, parked: Parked<P>) {
    let shared = shared.clone();
    let run_on_a_thread = |shared: Arc<Shared<P>>, Parked { producer, place }: Parked<P>, permit| {
        tokio::task::spawn_blocking(move || {
            drop(place);
            run(&shared, producer, permit);
        });
    };
    match shared.pool.try_acquire(shared.user) {
        Some(permit) => run_on_a_thread(shared, parked, permit),
        None => drop(tokio::spawn(async move {
            if let Some(permit) = shared.pool.acquire(shared.user).await {
                run_on_a_thread(shared, parked, permit);
            }
        })),
    }
}

/// Produces pieces until enough are ready; after each one another waiting producer may run first.
fn run<P: PieceProducer>(shared: &Arc<Shared<P>>, mut producer: P, permit: Permit) {
    let _end = EndsOnPanic(shared);
    let running = Running::begin(permit);
    loop {
        if shared.gone.load(Ordering::Relaxed) {
            return;
        }
        let next = producer.next(ClientPresence(&shared.gone));
        let kept = producer.kept_bytes();
        let mut state = shared.state.lock();
        if state.ended {
            // It was aborted meanwhile.
            return;
        }
        match next {
            Ok(NextPiece::Piece(piece)) => state.ready.push_back(Ok(piece)),
            Ok(NextPiece::Last(piece)) => {
                state.ready.push_back(Ok(piece));
                state.ended = true;
            }
            Ok(NextPiece::End) => state.ended = true,
            Err(error) => {
                state.ready.push_back(Err(error));
                state.ended = true;
            }
        }
        state.is_idle = false;
        state.kept = if state.ended { 0 } else { kept };
        state.count();
        if state.ended {
            return wake(state);
        }
        if state.ready.len() >= state.max_ready() {
            if let Some(place) = ParkedPlace::take(&shared.pool) {
                state.parked = Some(Parked { producer, place: Some(place) });
                return wake(state);
            }
            wake(state);
            producer.suspend();
            match park_suspended(shared, producer, false) {
                Some(resumed) => producer = resumed,
                None => return,
            }
        } else {
            wake(state);
        }
        if shared.pool.is_waited_for() {
            let place = ParkedPlace::take(&shared.pool);
            if place.is_none() {
                producer.suspend();
            }
            drop(running);
            return resume(shared, Parked { producer, place });
        }
    }
}

impl<P: PieceProducer> State<P> {
    fn max_ready(&self) -> usize {
        MAX_READY.min(usize::try_from(self.taken).unwrap_or(MAX_READY) + 1)
    }

    /// Ends the response with an error; ready pieces are dropped.
    fn cut(&mut self, cut: AbortedResponse) {
        self.ready.clear();
        self.ready.push_back(Err(cut.into()));
        self.ended = true;
        self.kept = 0;
        self.count();
    }

    fn count(&mut self) {
        if let Some(counted) = &mut self.counted {
            let ready: usize = self.ready.iter().flatten().map(P::piece_bytes).sum();
            counted.set(ready + self.kept);
        }
    }
}

/// Wakes the reader, outside of the lock.
fn wake<P: PieceProducer>(mut state: parking_lot::MutexGuard<'_, State<P>>) {
    let waiting = state.waiting.take();
    drop(state);
    if let Some(waker) = waiting {
        waker.wake();
    }
}

/// A reader must not wait for a producer that panicked.
struct EndsOnPanic<'s, P: PieceProducer>(&'s Shared<P>);

impl<P: PieceProducer> Drop for EndsOnPanic<'_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state.lock();
            state.cut(AbortedResponse::Failed);
            wake(state);
        }
    }
}

/// Checks a response periodically until it ends.
async fn watch<P: PieceProducer>(shared: Weak<Shared<P>>, idle: Duration, until: Option<Instant>) {
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
            state.cut(AbortedResponse::TooSlow);
            wake(state);
            // It may own a snapshot, whose end may free files.
            tokio::task::spawn_blocking(move || drop(parked));
            return;
        }
        if std::mem::replace(&mut seen, state.taken) != state.taken || state.is_idle {
            continue;
        }
        if let Some(Parked { mut producer, .. }) = state.parked.take() {
            drop(state);
            tokio::task::spawn_blocking(move || {
                let _end = EndsOnPanic(&shared);
                producer.idle();
                if let Some(producer) = park_suspended(&shared, producer, true) {
                    resume(&shared, Parked::suspended(producer));
                }
            });
        }
    }
}

/// Parks a producer that was suspended without the lock. Gives it back where the reader has taken enough
/// meanwhile.
fn park_suspended<P: PieceProducer>(shared: &Shared<P>, producer: P, is_idle: bool) -> Option<P> {
    let mut state = shared.state.lock();
    if state.ended || shared.gone.load(Ordering::Relaxed) {
        return None;
    }
    if state.ready.len() <= RESUME_AT && state.ready.len() < state.max_ready() {
        return Some(producer);
    }
    state.is_idle = is_idle;
    state.parked = Some(Parked::suspended(producer));
    None
}

#[cfg(test)]
mod tests;
