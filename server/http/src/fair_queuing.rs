//! Fair queuing between users on the threads that serve requests.
//!
//! What one request costs is bounded and small, but a client that sends thousands at once puts thousands
//! before everybody else's: the runtime polls tasks in the order in which they were woken. Seats of priority
//! and fairness do not help, since a request that never waits has released its seat before the next one is
//! polled. So all connections of a user share one `UserQueue`, which gets a time slice (`TIME_SLICE`) and
//! then lets all tasks pass that are runnable already: next to a thousand requests of one user, a request of
//! another waits for one time slice of that user, not for a thousand requests.
//!
//! Time slices cost a third of a small request: its polls pass two queues, and the connection's output leaves
//! in smaller pieces. So a user who has been alone (`ALONE`) is not limited. The next user to connect then
//! waits once for what that user has in the runtime's queue.
//!
//! Connections that are not authenticated yet, with their handshakes, share one queue, and anonymous users
//! share another one. These two are limited further: while others are served, their time slices are spaced so
//! that they get a small part of the processors (`UNIDENTIFIED_PART`): an authenticated user's request is
//! worth more than the same from anybody, and a thread that is busy with unidentified clients does not wake
//! up at once for others.

use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::Executor;
use parking_lot::Mutex;
use pin_project_lite::pin_project;

use plinth_api::ANONYMOUS_USER;

use super::shared_by_key::SharedByKey;

/// How long a user's connections are polled before others come first, per processor. One poll cannot be
/// interrupted, so a slice lasts as long as this and one poll more.
const TIME_SLICE: Duration = Duration::from_micros(100);
/// The divisor of the processor time that unidentified clients (not authenticated yet, or anonymous) get
/// while others are served.
const UNIDENTIFIED_PART: u32 = 8;
/// How long no other user must have been served for a user to be alone.
const ALONE: Duration = Duration::from_millis(200);
/// Resolution of the time when an authenticated user was served last.
const RESOLUTION: Duration = Duration::from_millis(10);
/// Tasks per processor that are woken at once when a time slice begins; more than one slice serves.
const WOKEN: usize = 16;
/// The number of processors, of which the runtime has a thread each.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
/// The queues of all connected users. The lock is held for one lookup per new connection.
#[derive(Debug)]
pub struct FairScheduler {
    unauthenticated: Arc<UserQueue>,
    users: Mutex<SharedByKey<String, UserQueue>>,
    /// Origin of the times below.
    began: Instant,
    /// Address of the queue that was served last.
    served: AtomicUsize,
    /// When another queue was served last, in nanoseconds.
    changed: AtomicU64,
    /// When an authenticated user was served last, in nanoseconds; 0 for never.
    authenticated_served: AtomicU64,
}

impl Default for FairScheduler {
    fn default() -> FairScheduler {
        FairScheduler {
            unauthenticated: Arc::new(UserQueue::of_unidentified()),
            users: Mutex::default(),
            began: Instant::now(),
            served: AtomicUsize::new(0),
            changed: AtomicU64::new(0),
            authenticated_served: AtomicU64::new(0),
        }
    }
}

impl FairScheduler {
    /// Registers a new connection, which is not authenticated yet.
    pub fn connection(self: &Arc<FairScheduler>) -> Arc<ScheduledConnection> {
        Arc::new(ScheduledConnection {
            scheduler: self.clone(),
            own: OnceLock::new(),
            streams: AtomicUsize::new(0),
        })
    }

    /// Records that a queue is served now; returns whether no other one has been served for a while.
    fn alone(&self, user_queue: &Arc<UserQueue>, now: Instant) -> bool {
        let address = Arc::as_ptr(user_queue) as usize;
        let now = nanoseconds(now.saturating_duration_since(self.began));
        if !user_queue.unidentified
            && now.saturating_sub(self.authenticated_served.load(Ordering::Relaxed)) > nanoseconds(RESOLUTION)
        {
            self.authenticated_served.store(now, Ordering::Relaxed);
        }
        // A race with another thread costs one time slice more or less.
        if self.served.load(Ordering::Relaxed) != address {
            self.served.store(address, Ordering::Relaxed);
            self.changed.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.changed.load(Ordering::Relaxed)) > nanoseconds(ALONE)
    }

    /// Delay before the next time slice of a queue. For unidentified clients, while others are served: until
    /// the used time is their part of the time since the slice began. That is zero for a low load.
    fn delay(&self, user_queue: &UserQueue, now: Instant) -> Duration {
        let since_began = nanoseconds(now.saturating_duration_since(self.began));
        let known = self.authenticated_served.load(Ordering::Relaxed);
        if !user_queue.unidentified || known == 0 || since_began.saturating_sub(known) > nanoseconds(ALONE) {
            return Duration::ZERO;
        }
        let processors = u32::try_from(*PROCESSORS).unwrap_or(u32::MAX);
        let part =
            Duration::from_nanos(user_queue.used.load(Ordering::Relaxed)) * UNIDENTIFIED_PART / processors;
        let begun = user_queue.waiters.lock().begun;
        begun.map_or(Duration::ZERO, |begun| part.saturating_sub(now.saturating_duration_since(begun)))
    }

    fn of(&self, user: &str) -> Arc<UserQueue> {
        self.users.lock().get_or_make(user, || match user == ANONYMOUS_USER {
            true => UserQueue::of_unidentified(),
            false => UserQueue::default(),
        })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1)
}

/// The state that the connections of one user share.
#[derive(Debug, Default)]
struct UserQueue {
    /// Whether its time slices are spaced.
    unidentified: bool,
    /// Nanoseconds used of the current time slice.
    used: AtomicU64,
    /// Held to add and to remove a few wakers; never while a task is polled.
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    /// When the time slice began, none for the first.
    begun: Option<Instant>,
    waiting: VecDeque<Waker>,
    /// How many wakers have left the queue so far: the number of its first.
    left: u64,
    /// Whether a task is scheduled to begin the next time slice.
    slice_scheduled: bool,
}

impl UserQueue {
    fn of_unidentified() -> UserQueue {
        UserQueue { unidentified: true, ..UserQueue::default() }
    }

    fn is_used_up(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= nanoseconds(TIME_SLICE) * *PROCESSORS as u64
    }

    fn record(&self, time: Duration) {
        self.used.fetch_add(nanoseconds(time), Ordering::Relaxed);
    }

    /// Waits for the next time slice; returns the position in the queue, or none when the slice has begun
    /// meanwhile.
    fn wait(
        self: &Arc<UserQueue>,
        scheduler: &Arc<FairScheduler>,
        earlier: Option<u64>,
        waker: &Waker,
    ) -> Option<u64> {
        let mut waiters = self.waiters.lock();
        if !self.is_used_up() {
            return None;
        }
        // A task that was woken by something else keeps its position.
        if earlier.is_some_and(|position| position >= waiters.left) {
            return earlier;
        }
        let position = waiters.left + waiters.waiting.len() as u64;
        waiters.waiting.push_back(waker.clone());
        if !std::mem::replace(&mut waiters.slice_scheduled, true) {
            tokio::spawn(run_slices(scheduler.clone(), self.clone()));
        }
        Some(position)
    }
}

/// Begins time slices while tasks wait, each when all tasks have run that were runnable before.
async fn run_slices(scheduler: Arc<FairScheduler>, user_queue: Arc<UserQueue>) {
    loop {
        behind_the_others().await;
        let delay = scheduler.delay(&user_queue, Instant::now());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut waiters = user_queue.waiters.lock();
        waiters.begun = Some(Instant::now());
        user_queue.used.store(0, Ordering::Relaxed);
        let count = waiters.waiting.len().min(WOKEN * *PROCESSORS);
        if count == 0 {
            waiters.slice_scheduled = false;
            return;
        }
        waiters.left += count as u64;
        let woken: Vec<Waker> = waiters.waiting.drain(..count).collect();
        drop(waiters);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Passes once through the runtime's queue. A task that wakes itself while it runs is put at the queue's end.
async fn behind_the_others() {
    let mut passed = false;
    poll_fn(|cx| match std::mem::replace(&mut passed, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// A connection as the scheduler sees it.
#[derive(Debug)]
pub struct ScheduledConnection {
    scheduler: Arc<FairScheduler>,
    own: OnceLock<Arc<UserQueue>>,
    streams: AtomicUsize,
}

impl ScheduledConnection {
    /// Assigns the connection to a user. Only the first call counts: a front proxy's connection may carry
    /// many users.
    pub fn assign_user(&self, user: &str) {
        self.own.get_or_init(|| self.scheduler.of(user));
    }

    /// Number of concurrent requests (HTTP/2).
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    fn user_queue(&self) -> &Arc<UserQueue> {
        self.own.get().unwrap_or(&self.scheduler.unauthenticated)
    }
}

pin_project! {
    /// A task of a connection, polled within its user's time slices.
    pub struct ScheduledTask<F> {
        #[pin]
        task: F,
        connection: Arc<ScheduledConnection>,
        // The queue and the position where it waits.
        position: Option<(Arc<UserQueue>, u64)>,
    }
}

impl<F> ScheduledTask<F> {
    /// Schedules a task of a connection.
    pub fn new(connection: Arc<ScheduledConnection>, task: F) -> ScheduledTask<F> {
        ScheduledTask { task, connection, position: None }
    }
}

impl<F: Future> Future for ScheduledTask<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let user_queue = this.connection.user_queue();
        let begun = Instant::now();
        let alone = this.connection.scheduler.alone(user_queue, begun);
        if !alone && user_queue.is_used_up() {
            let earlier = this
                .position
                .take()
                .filter(|(queue, _)| Arc::ptr_eq(queue, user_queue))
                .map(|(_, position)| position);
            if let Some(position) = user_queue.wait(&this.connection.scheduler, earlier, cx.waker()) {
                *this.position = Some((user_queue.clone(), position));
                return Poll::Pending;
            }
        }
        let polled = this.task.poll(cx);
        if !alone {
            // The poll may have assigned the connection to a user.
            this.connection.user_queue().record(begun.elapsed());
        }
        polled
    }
}

/// hyper's executor for the requests of an HTTP/2 connection.
#[derive(Clone, Debug)]
pub struct StreamExecutor(pub Arc<ScheduledConnection>);

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, request: F) {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(ScheduledTask::new(
            self.0.clone(),
            CountedStream { request, connection: self.0.clone() },
        ));
    }
}

pin_project! {
    /// A request that is counted in its connection's number of streams.
    struct CountedStream<F> {
        #[pin]
        request: F,
        connection: Arc<ScheduledConnection>,
    }

    impl<F> PinnedDrop for CountedStream<F> {
        fn drop(this: Pin<&mut Self>) {
            this.connection.streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<F: Future> Future for CountedStream<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().request.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared_by_key::SWEEP_AT;
    use super::*;

    /// A poll that takes longer than a time slice, by the clock of the queue.
    async fn work(log: Arc<Mutex<Vec<&'static str>>>, who: &'static str, steps: usize) {
        for _ in 0..steps {
            let begun = Instant::now();
            while begun.elapsed() <= TIME_SLICE * u32::try_from(*PROCESSORS).unwrap() {
                std::hint::spin_loop();
            }
            log.lock().push(who);
            tokio::task::yield_now().await;
        }
    }

    fn connection_of(scheduler: &Arc<FairScheduler>, user: &str) -> Arc<ScheduledConnection> {
        let connection = scheduler.connection();
        connection.assign_user(user);
        connection
    }

    #[tokio::test]
    async fn a_user_with_many_requests_leaves_time_slices_to_others() {
        let (scheduler, log) = (Arc::<FairScheduler>::default(), Arc::<Mutex<Vec<_>>>::default());
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..100 {
            running
                .spawn(ScheduledTask::new(connection_of(&scheduler, "many"), work(log.clone(), "many", 4)));
        }
        running.spawn(ScheduledTask::new(connection_of(&scheduler, "few"), work(log.clone(), "few", 3)));
        running.join_all().await;
        let log = log.lock();
        assert_eq!(log.len(), 403, "everything is served in the end");
        // Without fair queuing the third poll of the few would come after three hundred of the many.
        let last = log.iter().rposition(|who| *who == "few").unwrap();
        assert!(last < 40, "{last}");
    }

    #[test]
    fn unidentified_clients_get_a_small_part_beside_others() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(*PROCESSORS).enable_time().build().unwrap();
        let (scheduler, log) = (Arc::<FairScheduler>::default(), Arc::<Mutex<Vec<_>>>::default());
        let steps = |who| log.lock().iter().filter(|name| **name == who).count();
        runtime.block_on(async {
            let mut known = tokio::task::JoinSet::new();
            let mut unidentified = tokio::task::JoinSet::new();
            for _ in 0..2 * *PROCESSORS {
                unidentified
                    .spawn(ScheduledTask::new(scheduler.connection(), work(log.clone(), "newcomer", 100)));
                let anonymous = connection_of(&scheduler, ANONYMOUS_USER);
                unidentified.spawn(ScheduledTask::new(anonymous, work(log.clone(), "anonymous", 100)));
                known.spawn(ScheduledTask::new(
                    connection_of(&scheduler, "known"),
                    work(log.clone(), "known", 100),
                ));
            }
            known.join_all().await;
            let (known, unauthenticated, anonymous) = (steps("known"), steps("newcomer"), steps("anonymous"));
            assert!(unauthenticated > 0 && anonymous > 0, "none is starved");
            // With equal time slices each of the three would have had as many.
            assert!(
                2 * unauthenticated.max(anonymous) < known,
                "{unauthenticated} and {anonymous} beside {known}"
            );
            // Without others they have all of the time, and end.
            unidentified.join_all().await;
        });
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_waiting_task_is_woken() {
        let scheduler = Arc::<FairScheduler>::default();
        let mut running = tokio::task::JoinSet::new();
        for user in ["a", "b", "c"] {
            for number in 0..200 {
                let connection = connection_of(&scheduler, user);
                let task = async move {
                    for step in 0..50 {
                        match (number + step) % 3 {
                            0 => tokio::task::yield_now().await,
                            1 => tokio::time::sleep(Duration::from_micros(10)).await,
                            // Woken more than once, from inside and outside.
                            _ => tokio::join!(tokio::task::yield_now(), behind_the_others()).0,
                        }
                        std::hint::black_box(vec![number; 1000].iter().sum::<usize>());
                    }
                };
                let waits = ScheduledTask::new(connection, task);
                // Some are dropped while they wait.
                match number % 10 {
                    0 => drop(running.spawn(async {
                        drop(tokio::time::timeout(Duration::from_micros(300), waits).await)
                    })),
                    _ => drop(running.spawn(waits)),
                }
            }
        }
        running.join_all().await;
    }

    #[test]
    fn a_user_is_alone_when_no_other_was_served_for_a_while() {
        let scheduler = FairScheduler::default();
        let (one, other) = (Arc::default(), Arc::default());
        let after = |milliseconds| scheduler.began + Duration::from_millis(milliseconds);
        assert!(!scheduler.alone(&one, after(1)));
        assert!(!scheduler.alone(&one, after(201)));
        assert!(scheduler.alone(&one, after(202)));
        assert!(!scheduler.alone(&other, after(203)));
        assert!(!scheduler.alone(&one, after(204)));
        assert!(!scheduler.alone(&one, after(404)));
        assert!(scheduler.alone(&one, after(405)));
    }

    #[test]
    fn queues_of_disconnected_users_are_removed() {
        let scheduler = Arc::<FairScheduler>::default();
        let stays = connection_of(&scheduler, "stays");
        for number in 0..10 * SWEEP_AT {
            drop(connection_of(&scheduler, &number.to_string()));
        }
        assert!(scheduler.users.lock().entries.len() <= SWEEP_AT);
        assert!(Arc::ptr_eq(stays.user_queue(), connection_of(&scheduler, "stays").user_queue()));
    }
}
