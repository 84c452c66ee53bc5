use std::sync::atomic::AtomicUsize;

use super::pool::MANY_PARKED;
use super::*;
use crate::unread_answers::UnreadAnswers;

/// The memory that each number takes, and its producer keeps.
const PIECE: usize = 1 << 20;
const KEPT: usize = 1 << 10;

/// Produces the numbers up to a limit and counts what happens to it.
struct Numbers {
    at: usize,
    end: usize,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    made: AtomicUsize,
    idle: AtomicUsize,
    suspended: AtomicUsize,
    dropped: AtomicUsize,
    /// Number of threads that run it.
    running: AtomicUsize,
}

#[derive(Debug, PartialEq)]
struct Failed(AbortedResponse);

impl From<AbortedResponse> for Failed {
    fn from(cut: AbortedResponse) -> Failed {
        Failed(cut)
    }
}

impl PieceProducer for Numbers {
    type Piece = usize;
    type Error = Failed;

    fn next(&mut self, _: ClientPresence<'_>) -> Result<NextPiece<usize>, Failed> {
        self.seen.running.fetch_add(1, Ordering::SeqCst);
        self.at += 1;
        assert_ne!(self.at, 1_000_000, "unlucky");
        self.seen.made.fetch_add(1, Ordering::SeqCst);
        self.seen.running.fetch_sub(1, Ordering::SeqCst);
        Ok(match self.at {
            at if at < self.end => NextPiece::Piece(at),
            at if at == self.end => NextPiece::Last(at),
            _ => NextPiece::End,
        })
    }

    fn suspend(&mut self) {
        self.seen.suspended.fetch_add(1, Ordering::SeqCst);
    }

    fn idle(&mut self) {
        self.seen.idle.fetch_add(1, Ordering::SeqCst);
    }

    fn piece_bytes(_: &usize) -> usize {
        PIECE
    }

    fn kept_bytes(&self) -> usize {
        KEPT
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.seen.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn numbers(end: usize) -> (PacedReader<Numbers>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    (PacedReader::start(Arc::default(), "user", Numbers { at: 0, end, seen: seen.clone() }), seen)
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
        // An idle producer that was not resumed is not idle again.
        until(|| reader.shared.state.lock().is_idle).await;
        assert!(seen.idle.load(Ordering::SeqCst) > 0);
        assert_eq!(reader.next().await, Some(Ok(number)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_too_long_is_cut_off() {
    let (mut reader, seen) = numbers(usize::MAX);
    assert_eq!(reader.next().await, Some(Ok(1)));
    reader.watch(Some(Duration::from_millis(20)));
    until(|| seen.dropped.load(Ordering::SeqCst) == 1).await;
    assert_eq!(reader.next().await, Some(Err(Failed(AbortedResponse::TooSlow))));
    assert_eq!(reader.next().await, None);
}

/// Waits for a service that responds on demand.
struct Waits(Arc<std::sync::Barrier>, RemoteWaits);

impl PieceProducer for Waits {
    type Piece = usize;
    type Error = Failed;

    fn next(&mut self, _: ClientPresence<'_>) -> Result<NextPiece<usize>, Failed> {
        self.1.block_on(|| self.0.wait()).map_err(|TooManyRemoteWaits| Failed(AbortedResponse::Failed))?;
        Ok(NextPiece::Last(1))
    }

    fn suspend(&mut self) {}

    fn piece_bytes(_: &usize) -> usize {
        0
    }
}

/// More producers wait than there are permits, and all of them have to wait at once before any continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_waits_for_a_service_holds_no_permit() {
    let many = (2 * std::thread::available_parallelism().map_or(1, usize::from)).clamp(16, 24);
    let answers = Arc::new(std::sync::Barrier::new(many + 1));
    let (pool, waits) = (Arc::<ProducerPool>::default(), RemoteWaits::default());
    let readers: Vec<_> = (0..many)
        .map(|_| PacedReader::start(pool.clone(), "user", Waits(answers.clone(), waits.clone())))
        .collect();
    // Meanwhile others produce their responses.
    let seen = Arc::new(Seen::default());
    let mut other = PacedReader::start(pool.clone(), "user", Numbers { at: 0, end: 100, seen });
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
    let mut reader =
        PacedReader::start(Arc::default(), "user", Numbers { at: 999_998, end: usize::MAX, seen });
    assert_eq!(reader.next().await, Some(Ok(999_999)));
    assert_eq!(reader.next().await, Some(Err(Failed(AbortedResponse::Failed))));
    assert_eq!(reader.next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_response_holds_is_counted_until_it_is_read() {
    let all = UnreadAnswers::new(None);
    let connection = all.connection();
    let (mut reader, _) = numbers(5);
    assert_eq!(reader.next().await.unwrap(), Ok(1));
    until(|| reader.shared.state.lock().parked.is_some()).await;
    reader.count_in(&UnreadStream::new(&connection, None).unwrap());
    assert_eq!(all.bytes(), 2 * PIECE + KEPT);
    while reader.next().await.is_some() {}
    assert_eq!(all.bytes(), 0);
    let (mut reader, _) = numbers(5);
    reader.count_in(&UnreadStream::new(&connection, None).unwrap());
    until(|| all.bytes() == PIECE + KEPT).await;
    drop(reader);
    until(|| all.bytes() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_are_parked_few_keep_their_snapshots() {
    let (pool, seen) = (Arc::<ProducerPool>::default(), Arc::<Seen>::default());
    let start = |_| PacedReader::start(pool.clone(), "user", Numbers { at: 0, end: 100, seen: seen.clone() });
    let mut readers: Vec<_> = (0..MANY_PARKED + 10).map(start).collect();
    until(|| readers.iter().all(|reader| reader.shared.state.lock().parked.is_some())).await;
    assert_eq!(pool.parked.load(Ordering::SeqCst), MANY_PARKED);
    assert_eq!(seen.suspended.load(Ordering::SeqCst), 10);
    for reader in &mut readers {
        for piece in 1..=100 {
            assert_eq!(reader.next().await, Some(Ok(piece)));
        }
    }
    drop(readers);
    until(|| pool.parked.load(Ordering::SeqCst) == 0).await;
}
