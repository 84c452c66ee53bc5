//! Answers that are made piece by piece on threads that may block, at the pace of whoever reads them.
//!
//! Those threads are few, and a client may read slowly or not at all. So whoever makes an answer is a [`Producer`] that can
//! stop after each piece. It runs on such a thread while few pieces wait, is then put aside, which takes no thread, and goes on
//! when its reader has taken some. One that nobody has asked for a while is told to [rest](Producer::rest): to let go of what
//! others could use. What a client that does not read costs is thus the pieces that wait for it, and no more.
//!
//! An answer that is not taken to its end is cut off with an error, never with a clean end, so that no client takes a part
//! for the whole.

use plinth_api::api_error::{ApiError, Reason};
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Pieces that wait for a reader at most. There is one until the first was taken, and one more for each that is, so that
/// those who never read cost least.
const LEAD: usize = 3;
/// A producer goes on when no more than so many wait.
const LOW: usize = 1;
/// How long nothing may be taken before the producer rests.
const PATIENCE: Duration = Duration::from_secs(2);

/// Producers at work at once: as many as there are processors. More would not be faster, and each would take its part of the
/// processors from the threads that serve everybody else's requests.
static PLACES: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)));
/// Producers that wait for a place.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Producers that wait for services elsewhere at once. Each has a thread meanwhile, of which there are more, for what need not wait.
static ELSEWHERE: Semaphore = Semaphore::const_new(32);

thread_local! {
    /// The place of the producer that this thread runs.
    static PLACE: Cell<Option<SemaphorePermit<'static>>> = const { Cell::new(None) };
}

/// As many producers as can be wait for services elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for services elsewhere")]
pub struct Crowded;

/// Waits for a service elsewhere. A producer has no place meanwhile: others make their answers.
///
/// # Errors
/// [`Crowded`].
pub fn elsewhere<T>(work: impl FnOnce() -> T) -> Result<T, Crowded> {
    let _waits = ELSEWHERE.try_acquire().map_err(|_| Crowded)?;
    let had = PLACE.take().map(drop);
    let made = work();
    if had.is_some() {
        let _waiting = Waiting::count();
        // They are never closed.
        PLACE.set(Handle::current().block_on(PLACES.acquire()).ok());
    }
    Ok(made)
}

/// A producer's place on its thread.
struct AtWork;

impl AtWork {
    fn begin(place: SemaphorePermit<'static>) -> AtWork {
        PLACE.set(Some(place));
        AtWork
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        drop(PLACE.take());
    }
}

/// Makes an answer.
pub trait Producer: Send + 'static {
    /// A part of the answer.
    type Piece: Send;
    /// Why there is no more of it.
    type Error: From<Cut> + Send;

    /// The next piece. May block; where it blocks for long, it looks now and then whether somebody still waits.
    ///
    /// # Errors
    /// What ends the answer.
    fn next(&mut self, reader: Presence<'_>) -> Result<Next<Self::Piece>, Self::Error>;

    /// Nothing was asked for since a while: lets go of what can be had again.
    fn rest(&mut self);
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

/// Whether anybody still waits for an answer.
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
    keeper: Option<AbortHandle>,
}

struct Shared<P: Producer> {
    state: Mutex<State<P>>,
    /// Nobody wants more.
    gone: AtomicBool,
}

struct State<P: Producer> {
    ready: VecDeque<Result<P::Piece, P::Error>>,
    /// How many were taken.
    taken: u64,
    /// The producer, while it has no thread.
    parked: Option<P>,
    resting: bool,
    ended: bool,
    waiting: Option<Waker>,
}

impl<P: Producer> Reader<P> {
    /// Starts making an answer. To be called in a runtime.
    pub fn start(producer: P) -> Reader<P> {
        let state = State {
            ready: VecDeque::new(),
            taken: 0,
            parked: None,
            resting: false,
            ended: false,
            waiting: None,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), gone: AtomicBool::new(false) });
        go_on(&shared, producer);
        Reader { shared, keeper: None }
    }

    /// Sees to it that a producer that nobody asks rests, and that the answer is cut off when it has not been taken after that
    /// time.
    pub fn keep(&mut self, limit: Option<Duration>) {
        self.keep_with(PATIENCE, limit);
    }

    fn keep_with(&mut self, patience: Duration, limit: Option<Duration>) {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let keeper = tokio::spawn(keep(Arc::downgrade(&self.shared), patience, until));
        self.keeper = Some(keeper.abort_handle());
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
        let parked = if state.ready.len() <= LOW { state.parked.take() } else { None };
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
            go_on(&self.shared, producer);
        }
        polled
    }
}

impl<P: Producer> Drop for Reader<P> {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Relaxed);
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
        let parked = self.shared.state.lock().parked.take();
        drop(parked);
    }
}

/// Gives a producer a thread, when one of the [`PLACES`] is free.
fn go_on<P: Producer>(shared: &Arc<Shared<P>>, producer: P) {
    let shared = shared.clone();
    match PLACES.try_acquire() {
        Ok(place) => drop(tokio::task::spawn_blocking(move || run(&shared, producer, place))),
        Err(_) => drop(tokio::spawn(async move {
            let place = {
                let _waiting = Waiting::count();
                PLACES.acquire().await
            };
            // They are never closed.
            if let Ok(place) = place {
                tokio::task::spawn_blocking(move || run(&shared, producer, place));
            }
        })),
    }
}

/// Counts a producer that waits for a thread.
struct Waiting;

impl Waiting {
    fn count() -> Waiting {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Waiting
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes pieces until enough wait; after each one it is another producer's turn, if there is one.
fn run<P: Producer>(shared: &Arc<Shared<P>>, mut producer: P, place: SemaphorePermit<'static>) {
    let _end = EndsOnPanic(shared);
    let at_work = AtWork::begin(place);
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
        state.resting = false;
        if state.ended {
            return wake(state);
        }
        if state.ready.len() >= state.lead() {
            state.parked = Some(producer);
            return wake(state);
        }
        wake(state);
        if WAITING.load(Ordering::Relaxed) > 0 {
            drop(at_work);
            return go_on(shared, producer);
        }
    }
}

impl<P: Producer> State<P> {
    fn lead(&self) -> usize {
        LEAD.min(usize::try_from(self.taken).unwrap_or(LEAD) + 1)
    }

    /// Ends the answer with an error; what waits is let go of.
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

/// Looks after an answer from time to time until it ends.
async fn keep<P: Producer>(shared: Weak<Shared<P>>, patience: Duration, until: Option<Instant>) {
    let mut seen = 0;
    loop {
        let next = Instant::now() + patience;
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
        if std::mem::replace(&mut seen, state.taken) != state.taken || state.resting {
            continue;
        }
        if let Some(producer) = state.parked.take() {
            drop(state);
            tokio::task::spawn_blocking(move || rest(&shared, producer));
        }
    }
}

fn rest<P: Producer>(shared: &Arc<Shared<P>>, mut producer: P) {
    let _end = EndsOnPanic(shared);
    producer.rest();
    let mut state = shared.state.lock();
    if state.ended || shared.gone.load(Ordering::Relaxed) {
        return;
    }
    if state.ready.len() <= LOW && state.ready.len() < state.lead() {
        // The reader has come back meanwhile.
        drop(state);
        return go_on(shared, producer);
    }
    state.resting = true;
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
        rested: AtomicUsize,
        dropped: AtomicUsize,
        /// Threads that are at it.
        running: AtomicUsize,
    }

    #[derive(Debug, PartialEq)]
    struct Fault(Cut);

    impl From<Cut> for Fault {
        fn from(cut: Cut) -> Fault {
            Fault(cut)
        }
    }

    impl Producer for Numbers {
        type Piece = usize;
        type Error = Fault;

        fn next(&mut self, _: Presence<'_>) -> Result<Next<usize>, Fault> {
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

        fn rest(&mut self) {
            self.seen.rested.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Drop for Numbers {
        fn drop(&mut self) {
            self.seen.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn numbers(end: usize) -> (Reader<Numbers>, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (Reader::start(Numbers { at: 0, end, seen: seen.clone() }), seen)
    }

    async fn until(what: impl Fn() -> bool) {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_reads_gets_everything_in_order() {
        let (mut reader, seen) = numbers(10_000);
        reader.keep(Some(Duration::from_secs(3600)));
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
        reader.keep_with(Duration::from_millis(1), None);
        for number in 2..10 {
            // One that rests already, and has not been needed since, does not rest again.
            until(|| reader.shared.state.lock().resting).await;
            assert!(seen.rested.load(Ordering::SeqCst) > 0);
            assert_eq!(reader.next().await, Some(Ok(number)));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_takes_too_long_is_cut_off() {
        let (mut reader, seen) = numbers(usize::MAX);
        assert_eq!(reader.next().await, Some(Ok(1)));
        reader.keep(Some(Duration::from_millis(20)));
        until(|| seen.dropped.load(Ordering::SeqCst) == 1).await;
        assert_eq!(reader.next().await, Some(Err(Fault(Cut::TooSlow))));
        assert_eq!(reader.next().await, None);
    }

    /// Waits for a service that answers when it is told to.
    struct Waits(Arc<std::sync::Barrier>);

    impl Producer for Waits {
        type Piece = usize;
        type Error = Fault;

        fn next(&mut self, _: Presence<'_>) -> Result<Next<usize>, Fault> {
            elsewhere(|| self.0.wait()).map_err(|Crowded| Fault(Cut::Failed))?;
            Ok(Next::Last(1))
        }

        fn rest(&mut self) {}
    }

    /// More producers wait than there are places, and all of them have to wait at once before any goes on.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_waits_elsewhere_has_no_place() {
        let many = (2 * std::thread::available_parallelism().map_or(1, usize::from)).clamp(16, 24);
        let answers = Arc::new(std::sync::Barrier::new(many + 1));
        let readers: Vec<_> = (0..many).map(|_| Reader::start(Waits(answers.clone()))).collect();
        // Meanwhile others make their answers.
        let (mut other, _) = numbers(100);
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
        let mut reader = Reader::start(Numbers { at: 999_998, end: usize::MAX, seen });
        assert_eq!(reader.next().await, Some(Ok(999_999)));
        assert_eq!(reader.next().await, Some(Err(Fault(Cut::Failed))));
        assert_eq!(reader.next().await, None);
    }
}
