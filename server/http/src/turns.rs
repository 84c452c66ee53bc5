//! Whose turn it is on the threads that serve requests.
//!
//! What one request costs is bounded and small, but a client that sends thousands at once puts thousands before everybody else's: the
//! runtime serves tasks in the order in which they were woken. Seats of flow control do not help, since a request that never waits for
//! anything has given its seat back when the next one is looked at. So all connections of a user have one `Share`, which takes a
//! turn of `TURN` and then lets everything pass that waits already: beside a thousand requests of one user, a request of another
//! waits for one turn of that user, not for a thousand requests.
//!
//! Turns cost a third of a small request: its steps go through two queues, and what a connection sends leaves in smaller pieces.
//! So a user who has been alone (`ALONE`) needs none. Whoever comes then waits once for what that user has in the queue.
//!
//! Connections that nobody has authenticated himself on yet, their handshakes with them, have one share together, and so have
//! those of anonymous users. To these two a turn is not enough: while others are served, their turns follow each other only as fast
//! as leaves them a small part of the processors (`STRANGERS`). For what somebody known asks for is worth more than the same from
//! anybody, and a thread that strangers keep busy does not wake up at once for others.

use std::collections::hash_map::HashMap;
use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::Executor;
use parking_lot::Mutex;
use pin_project_lite::pin_project;

use plinth_api::user::ANONYMOUS;

/// How long a user's connections are served before others come first, on each processor. One step of a request cannot be
/// interrupted, so a turn lasts as long as this and one step more.
const TURN: Duration = Duration::from_micros(100);
/// Of how many parts of the processors' time strangers get one while others are served: those who are not known yet, and those
/// who are anonymous.
const STRANGERS: u32 = 8;
/// How long nobody else must have been served for a user to be alone.
const ALONE: Duration = Duration::from_millis(200);
/// How finely it is noted when somebody known was served.
const NOTED: Duration = Duration::from_millis(10);
/// Tasks for each processor that are woken at once when a turn begins; more than a turn serves.
const WOKEN: usize = 16;
/// The processors, of which the runtime has a thread each.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
/// Users beyond which the registry is swept of those who have gone.
const SWEPT_AT: usize = 1024;

/// The shares of all users that are connected. The lock is held for one look-up for each new connection.
#[derive(Debug)]
pub struct Shares {
    newcomers: Arc<Share>,
    users: Mutex<Users>,
    /// What times are counted from.
    began: Instant,
    /// The address of the share that was served last.
    served: AtomicUsize,
    /// When it was not the one before, in nanoseconds.
    changed: AtomicU64,
    /// When somebody who is no stranger was served last, in nanoseconds; 0 for never.
    known: AtomicU64,
}

#[derive(Debug)]
struct Users {
    shares: HashMap<String, Weak<Share>>,
    sweep_at: usize,
}

impl Default for Shares {
    fn default() -> Shares {
        let users = Users { shares: HashMap::new(), sweep_at: SWEPT_AT };
        Shares {
            newcomers: Arc::new(Share::of_strangers()),
            users: Mutex::new(users),
            began: Instant::now(),
            served: AtomicUsize::new(0),
            changed: AtomicU64::new(0),
            known: AtomicU64::new(0),
        }
    }
}

impl Shares {
    /// A connection that has just come.
    pub fn enter(self: &Arc<Shares>) -> Arc<Member> {
        Arc::new(Member { shares: self.clone(), own: OnceLock::new(), streams: AtomicUsize::new(0) })
    }

    /// A share is served now; returns whether no other one has been for a while.
    fn alone(&self, share: &Arc<Share>, now: Instant) -> bool {
        let address = Arc::as_ptr(share) as usize;
        let now = nanoseconds(now.saturating_duration_since(self.began));
        if !share.strangers && now.saturating_sub(self.known.load(Ordering::Relaxed)) > nanoseconds(NOTED) {
            self.known.store(now, Ordering::Relaxed);
        }
        // Whoever is told something that another thread is about to change has one turn more or less.
        if self.served.load(Ordering::Relaxed) != address {
            self.served.store(address, Ordering::Relaxed);
            self.changed.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.changed.load(Ordering::Relaxed)) > nanoseconds(ALONE)
    }

    /// How long the next turn of a share is to be waited for. That of strangers is, while others are served: until what this one took
    /// is their part of the time since it began. After what came little by little that is no time at all.
    fn rest(&self, share: &Share, now: Instant) -> Duration {
        let since_began = nanoseconds(now.saturating_duration_since(self.began));
        let known = self.known.load(Ordering::Relaxed);
        if !share.strangers || known == 0 || since_began.saturating_sub(known) > nanoseconds(ALONE) {
            return Duration::ZERO;
        }
        let processors = u32::try_from(*PROCESSORS).unwrap_or(u32::MAX);
        let part = Duration::from_nanos(share.used.load(Ordering::Relaxed)) * STRANGERS / processors;
        let begun = share.queue.lock().begun;
        begun.map_or(Duration::ZERO, |begun| part.saturating_sub(now.saturating_duration_since(begun)))
    }

    fn of(&self, user: &str) -> Arc<Share> {
        let mut users = self.users.lock();
        if let Some(share) = users.shares.get(user).and_then(Weak::upgrade) {
            return share;
        }
        if users.shares.len() >= users.sweep_at {
            users.shares.retain(|_, share| share.strong_count() > 0);
            users.sweep_at = (2 * users.shares.len()).max(SWEPT_AT);
        }
        let share = Arc::new(if user == ANONYMOUS { Share::of_strangers() } else { Share::default() });
        users.shares.insert(user.to_owned(), Arc::downgrade(&share));
        share
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1)
}

/// What the connections of one user have together.
#[derive(Debug, Default)]
struct Share {
    /// Strangers' turns are kept apart.
    strangers: bool,
    /// Nanoseconds of the turn that are used up.
    used: AtomicU64,
    /// Held to put and to take a few wakers; never while anything is served.
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// When the turn began, none for the first.
    begun: Option<Instant>,
    waiting: VecDeque<Waker>,
    /// How many have left the queue so far: the number of its first.
    left: u64,
    /// A task goes through the runtime's queue to begin the next turn.
    turning: bool,
}

impl Share {
    fn of_strangers() -> Share {
        Share { strangers: true, ..Share::default() }
    }

    fn is_used_up(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= nanoseconds(TURN) * *PROCESSORS as u64
    }

    fn took(&self, time: Duration) {
        self.used.fetch_add(nanoseconds(time), Ordering::Relaxed);
    }

    /// Waits for the next turn; returns the place in the queue, or none when the turn has begun meanwhile.
    fn wait(self: &Arc<Share>, shares: &Arc<Shares>, had: Option<u64>, waker: &Waker) -> Option<u64> {
        let mut queue = self.queue.lock();
        if !self.is_used_up() {
            return None;
        }
        // Whoever is woken by something else keeps its place.
        if had.is_some_and(|place| place >= queue.left) {
            return had;
        }
        let place = queue.left + queue.waiting.len() as u64;
        queue.waiting.push_back(waker.clone());
        if !std::mem::replace(&mut queue.turning, true) {
            tokio::spawn(turn(shares.clone(), self.clone()));
        }
        Some(place)
    }
}

/// Begins turn after turn while anybody waits, each when everything that waited for the runtime's threads has passed.
async fn turn(shares: Arc<Shares>, share: Arc<Share>) {
    loop {
        behind_the_others().await;
        let rest = shares.rest(&share, Instant::now());
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
        let mut queue = share.queue.lock();
        queue.begun = Some(Instant::now());
        share.used.store(0, Ordering::Relaxed);
        let count = queue.waiting.len().min(WOKEN * *PROCESSORS);
        if count == 0 {
            queue.turning = false;
            return;
        }
        queue.left += count as u64;
        let woken: Vec<Waker> = queue.waiting.drain(..count).collect();
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Goes once through the runtime's queue. A task that wakes itself while it runs goes to the queue's end.
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

/// A connection.
#[derive(Debug)]
pub struct Member {
    shares: Arc<Shares>,
    own: OnceLock<Arc<Share>>,
    streams: AtomicUsize,
}

impl Member {
    /// The connection is this user's. The first one counts: behind a front proxy's connection there may be many.
    pub fn belongs_to(&self, user: &str) {
        self.own.get_or_init(|| self.shares.of(user));
    }

    /// Requests under way (HTTP/2).
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    fn share(&self) -> &Arc<Share> {
        self.own.get().unwrap_or(&self.shares.newcomers)
    }
}

pin_project! {
    /// A task of a connection, served when it is its user's turn.
    pub struct Paced<F> {
        #[pin]
        task: F,
        member: Arc<Member>,
        // Where it waits, if it does.
        place: Option<(Arc<Share>, u64)>,
    }
}

impl<F> Paced<F> {
    /// Paces a task.
    pub fn new(member: Arc<Member>, task: F) -> Paced<F> {
        Paced { task, member, place: None }
    }
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let share = this.member.share();
        let begun = Instant::now();
        let alone = this.member.shares.alone(share, begun);
        if !alone && share.is_used_up() {
            let had =
                this.place.take().filter(|(queue, _)| Arc::ptr_eq(queue, share)).map(|(_, place)| place);
            if let Some(place) = share.wait(&this.member.shares, had, cx.waker()) {
                *this.place = Some((share.clone(), place));
                return Poll::Pending;
            }
        }
        let polled = this.task.poll(cx);
        if !alone {
            // The step may have been the one that told whose connection it is.
            this.member.share().took(begun.elapsed());
        }
        polled
    }
}

/// Runs the requests of an HTTP/2 connection.
#[derive(Clone, Debug)]
pub struct Streams(pub Arc<Member>);

impl<F> Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, request: F) {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(Paced::new(self.0.clone(), Counted { request, member: self.0.clone() }));
    }
}

pin_project! {
    /// A request among those of its connection.
    struct Counted<F> {
        #[pin]
        request: F,
        member: Arc<Member>,
    }

    impl<F> PinnedDrop for Counted<F> {
        fn drop(this: Pin<&mut Self>) {
            this.member.streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().request.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step that takes longer than a turn, as the clock of the share sees it.
    async fn work(log: Arc<Mutex<Vec<&'static str>>>, who: &'static str, steps: usize) {
        for _ in 0..steps {
            let begun = Instant::now();
            while begun.elapsed() <= TURN * u32::try_from(*PROCESSORS).unwrap() {
                std::hint::spin_loop();
            }
            log.lock().push(who);
            tokio::task::yield_now().await;
        }
    }

    fn member_of(shares: &Arc<Shares>, user: &str) -> Arc<Member> {
        let member = shares.enter();
        member.belongs_to(user);
        member
    }

    #[tokio::test]
    async fn a_user_with_many_requests_leaves_a_turn_to_each_other() {
        let (shares, log) = (Arc::<Shares>::default(), Arc::<Mutex<Vec<_>>>::default());
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..100 {
            running.spawn(Paced::new(member_of(&shares, "many"), work(log.clone(), "many", 4)));
        }
        running.spawn(Paced::new(member_of(&shares, "few"), work(log.clone(), "few", 3)));
        running.join_all().await;
        let log = log.lock();
        assert_eq!(log.len(), 403, "everything is served in the end");
        // Without turns the third step of the few would come after three hundred of the many.
        let last = log.iter().rposition(|who| *who == "few").unwrap();
        assert!(last < 40, "{last}");
    }

    #[test]
    fn strangers_get_a_small_part_beside_others() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(*PROCESSORS).enable_time().build().unwrap();
        let (shares, log) = (Arc::<Shares>::default(), Arc::<Mutex<Vec<_>>>::default());
        let steps = |who| log.lock().iter().filter(|name| **name == who).count();
        runtime.block_on(async {
            let mut known = tokio::task::JoinSet::new();
            let mut strangers = tokio::task::JoinSet::new();
            for _ in 0..2 * *PROCESSORS {
                strangers.spawn(Paced::new(shares.enter(), work(log.clone(), "newcomer", 100)));
                let anonymous = member_of(&shares, ANONYMOUS);
                strangers.spawn(Paced::new(anonymous, work(log.clone(), "anonymous", 100)));
                known.spawn(Paced::new(member_of(&shares, "known"), work(log.clone(), "known", 100)));
            }
            known.join_all().await;
            let (known, newcomers, anonymous) = (steps("known"), steps("newcomer"), steps("anonymous"));
            assert!(newcomers > 0 && anonymous > 0, "nobody is shut out");
            // By turns alone each of the three would have had as many.
            assert!(2 * newcomers.max(anonymous) < known, "{newcomers} and {anonymous} beside {known}");
            // Without others they have all of the time, and end.
            strangers.join_all().await;
        });
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nobody_is_forgotten() {
        let shares = Arc::<Shares>::default();
        let mut running = tokio::task::JoinSet::new();
        for user in ["a", "b", "c"] {
            for number in 0..200 {
                let member = member_of(&shares, user);
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
                let waits = Paced::new(member, task);
                // Some go while they wait.
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
    fn alone_is_who_has_been_served_without_others_for_a_while() {
        let shares = Shares::default();
        let (one, other) = (Arc::default(), Arc::default());
        let after = |milliseconds| shares.began + Duration::from_millis(milliseconds);
        assert!(!shares.alone(&one, after(1)));
        assert!(!shares.alone(&one, after(201)));
        assert!(shares.alone(&one, after(202)));
        assert!(!shares.alone(&other, after(203)));
        assert!(!shares.alone(&one, after(204)));
        assert!(!shares.alone(&one, after(404)));
        assert!(shares.alone(&one, after(405)));
    }

    #[test]
    fn users_who_have_gone_are_swept_out() {
        let shares = Arc::<Shares>::default();
        let stays = member_of(&shares, "stays");
        for number in 0..10 * SWEPT_AT {
            drop(member_of(&shares, &number.to_string()));
        }
        assert!(shares.users.lock().shares.len() <= SWEPT_AT);
        assert!(Arc::ptr_eq(stays.share(), member_of(&shares, "stays").share()));
    }
}
