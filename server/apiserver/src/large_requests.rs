//! Limits how many large requests run at the same time.
//!
//! Reading, validating and storing an object of megabytes takes a hundred times as long as one of kilobytes,
//! and a step of a request cannot be interrupted: on a runtime thread it delays every task behind it. A
//! request whose body, or whose stored object, turns out to be large therefore takes one of few slots for
//! each of its further steps, which run under `block_in_place`: the runtime moves the thread's other tasks to
//! another thread. While it waits, for the storage, a webhook or a kubelet, it has none, so that another
//! server which is slow or silent takes nothing from others. The request keeps its flow-control seat
//! meanwhile, so priority and fairness accounts for it. An expression of a policy that exceeds its inline
//! cost is evaluated in such a slot too. Requests that are exempt from flow control have one slot more.

use std::future::{poll_fn, Future};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::ready;

use futures_util::future::select;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Objects above this are large, in bytes: decoding, validating and storing one takes about a millisecond.
const LARGE: usize = 64 << 10;
/// What the expressions of a request may cost before they are evaluated in a slot, in CEL cost units: about
/// two milliseconds.
pub const INLINE_COST: u64 = 5_000;

/// The slots of large requests: half of the processors, so that the other half serves everything else, and
/// one for exempt requests, so that they do not queue behind a flood.
#[derive(Debug)]
pub struct Limiter {
    all: Arc<Semaphore>,
    exempt: Arc<Semaphore>,
}

impl Default for Limiter {
    fn default() -> Limiter {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Limiter::new((processors / 2).max(1))
    }
}

impl Limiter {
    fn new(limiter: usize) -> Limiter {
        Limiter { all: Arc::new(Semaphore::new(limiter)), exempt: Arc::new(Semaphore::new(1)) }
    }

    /// Waits for a slot. The semaphores are never closed.
    fn take(&self, exempt: bool) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send + 'static {
        let permit = self.all.clone().acquire_owned();
        let own = exempt.then(|| self.exempt.clone().acquire_owned());
        async move {
            let Some(own) = own else { return permit.await.ok() };
            // Boxed: only exempt requests wait for either.
            select(Box::pin(permit), Box::pin(own)).await.factor_first().0.ok()
        }
    }

    /// A slot, if one is free.
    fn try_take(&self, exempt: bool) -> Option<OwnedSemaphorePermit> {
        let own = || self.exempt.clone().try_acquire_owned();
        self.all.clone().try_acquire_owned().or_else(|error| if exempt { own() } else { Err(error) }).ok()
    }
}

/// A request's slot in the limiter, taken on demand. Cheap to clone. The default is for work of the server's
/// own, which takes slots for single steps only.
#[derive(Clone, Debug, Default)]
pub struct RequestSlot(Option<Arc<Request>>);

/// What a request needs a slot for. Only [`RequestSlot::run`] waits for one: a part of the request that
/// waited by itself would be given a slot while the request, waiting for one too, does not poll it.
#[derive(Debug)]
struct Request {
    exempt: bool,
    /// Whether each further step needs a slot.
    is_large: AtomicBool,
    /// Parts of it that are about to take a long step, or in one.
    long_steps: AtomicUsize,
    /// Whether it is being polled with a slot.
    has_slot: AtomicBool,
}

impl Request {
    fn needs_slot(&self) -> bool {
        self.is_large.load(Ordering::Relaxed) || self.long_steps.load(Ordering::Relaxed) > 0
    }

    /// Returns in a poll that has a slot, once it is recorded that one is needed.
    async fn polled_with_slot(&self) {
        if !self.has_slot.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }
}

/// A long step of a request, counted as long as this lives.
struct LongStep<'r>(&'r Request);

impl<'r> LongStep<'r> {
    fn of(request: &'r Request) -> LongStep<'r> {
        request.long_steps.fetch_add(1, Ordering::Relaxed);
        LongStep(request)
    }
}

impl Drop for LongStep<'_> {
    fn drop(&mut self) {
        self.0.long_steps.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestSlot {
    /// A request that is not large yet; `exempt` from flow control or not.
    pub fn new(exempt: bool) -> RequestSlot {
        RequestSlot(Some(Arc::new(Request {
            exempt,
            is_large: AtomicBool::new(false),
            long_steps: AtomicUsize::new(0),
            has_slot: AtomicBool::new(false),
        })))
    }

    /// Called when an object of `length` bytes has been read: returns at once when it is small, otherwise
    /// when the request has a slot.
    pub(crate) async fn acquire_for_size(&self, length: usize) {
        let Some(request) = self.0.as_ref().filter(|_| length > LARGE) else { return };
        request.is_large.store(true, Ordering::Relaxed);
        request.polled_with_slot().await;
    }

    /// Runs work that takes long, with a slot for its duration if the request has none.
    pub async fn run_long<T>(&self, limiter: &Limiter, work: impl FnOnce() -> T) -> T {
        let Some(request) = &self.0 else {
            let _permit = limiter.take(true).await;
            return long_step(work);
        };
        let _step = LongStep::of(request);
        request.polled_with_slot().await;
        long_step(work)
    }

    /// Runs the request's future: once it is large, each of its steps in a slot.
    pub async fn run<F: Future>(&self, limiter: &Limiter, request: F) -> F::Output {
        let Some(state) = &self.0 else { return request.await };
        let mut request = pin!(request);
        let mut waiting = None;
        poll_fn(|cx| {
            if !state.needs_slot() {
                // A wait that is not polled could be given a slot.
                waiting = None;
                return request.as_mut().poll(cx);
            }
            let free = if waiting.is_none() { limiter.try_take(state.exempt) } else { None };
            let _permit = match free {
                Some(permit) => Some(permit),
                None => {
                    let wait = waiting.get_or_insert_with(|| Box::pin(limiter.take(state.exempt)));
                    let permit = ready!(wait.as_mut().poll(cx));
                    waiting = None;
                    permit
                }
            };
            state.has_slot.store(true, Ordering::Relaxed);
            let polled = long_step(|| request.as_mut().poll(cx));
            state.has_slot.store(false, Ordering::Relaxed);
            polled
        })
        .await
    }
}

fn long_step<T>(work: impl FnOnce() -> T) -> T {
    match has_other_threads() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

/// Runs a step that takes long where an object of `length` bytes is large. For what has no slot: an event is
/// encoded once for all of its watchers, who wait for whoever encodes it.
pub(crate) fn in_place<T>(length: usize, work: impl FnOnce() -> T) -> T {
    match length > LARGE {
        true => long_step(work),
        false => work(),
    }
}

/// `block_in_place` needs a runtime of several threads.
fn has_other_threads() -> bool {
    Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Counts the progress of small requests, and the long steps in progress.
    #[derive(Default)]
    struct Seen {
        others: AtomicUsize,
        running: AtomicUsize,
    }

    impl Seen {
        /// A step that ends when other requests have been served. The only worker thread is blocked by it, so
        /// another thread must serve them.
        fn step(&self, limiter: usize) {
            assert!(self.running.fetch_add(1, Ordering::SeqCst) < limiter);
            let seen = self.others.load(Ordering::SeqCst);
            while self.others.load(Ordering::SeqCst) == seen {
                std::thread::yield_now();
            }
            self.running.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn long_steps_leave_the_thread_to_others_and_are_limited() {
        let (limiter, seen) = (Arc::new(Limiter::new(2)), Arc::new(Seen::default()));
        let mut all = tokio::task::JoinSet::new();
        for n in 0..9 {
            let (limiter, seen) = (limiter.clone(), seen.clone());
            all.spawn(async move {
                let slot = RequestSlot::new(false);
                let request = async {
                    // One request has a long step, one a large body, one a large stored object.
                    if n % 3 > 0 {
                        slot.acquire_for_size(if n % 3 == 1 { 1 << 20 } else { 10 }).await;
                        slot.acquire_for_size(1 << 20).await;
                        seen.step(2);
                    }
                    slot.run_long(&limiter, || seen.step(2)).await;
                };
                slot.run(&limiter, request).await;
            });
        }
        let ticking = seen.clone();
        let ticks = tokio::spawn(async move {
            loop {
                ticking.others.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        all.join_all().await;
        ticks.abort();
    }

    /// The step of an event, which ends when others have been served.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_large_event_leaves_the_thread_to_others() {
        let seen = Arc::new(Seen::default());
        let (ticking, encoding) = (seen.clone(), seen.clone());
        let ticks = tokio::spawn(async move {
            loop {
                ticking.others.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        tokio::spawn(async move { in_place(1 << 20, || encoding.step(1)) }).await.unwrap();
        ticks.abort();
        assert_eq!(in_place(10, || 7), 7);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_exempt_do_not_wait_behind_others() {
        let limiter = Limiter::new(1);
        let flood = limiter.take(false).await;
        let large = |exempt| {
            let (slot, limiter) = (RequestSlot::new(exempt), &limiter);
            async move {
                let request = async {
                    slot.acquire_for_size(1 << 20).await;
                    slot.run_long(limiter, || 7).await
                };
                slot.run(limiter, request).await
            }
        };
        assert_eq!(large(true).await, 7);
        assert_eq!(RequestSlot::default().run_long(&limiter, || 7).await, 7);
        let mut behind = pin!(large(false));
        for _ in 0..3 {
            assert!(futures_util::poll!(behind.as_mut()).is_pending());
        }
        drop(flood);
        assert_eq!(behind.await, 7);
    }

    /// Parts of one request: one has a long step, another reads a large object.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn parts_of_a_request_do_not_wait_for_each_other() {
        let limiter = Limiter::new(1);
        let flood = limiter.take(false).await;
        let slot = RequestSlot::new(false);
        let parts = async {
            let (step, large) = (slot.run_long(&limiter, || 7), slot.acquire_for_size(1 << 20));
            futures_util::join!(step, large).0
        };
        let mut request = pin!(slot.run(&limiter, parts));
        for _ in 0..3 {
            assert!(futures_util::poll!(request.as_mut()).is_pending());
        }
        drop(flood);
        let ended = tokio::time::timeout(Duration::from_secs(60), request).await;
        assert_eq!(ended.expect("an end"), 7);
        assert!(limiter.try_take(false).is_some(), "the slot is free again");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_request_that_waits_for_another_server_holds_no_slot() {
        let limiter = Limiter::new(1);
        let (answer, asked) = tokio::sync::oneshot::channel();
        let slot = RequestSlot::new(false);
        let request = async {
            slot.acquire_for_size(1 << 20).await;
            asked.await
        };
        let mut waits = pin!(slot.run(&limiter, request));
        for _ in 0..3 {
            assert!(futures_util::poll!(waits.as_mut()).is_pending());
        }
        let other = RequestSlot::new(false);
        let request = async {
            other.acquire_for_size(1 << 20).await;
            answer.send(7)
        };
        assert_eq!(other.run(&limiter, request).await, Ok(()));
        assert_eq!(waits.await, Ok(7));
    }

    #[tokio::test]
    async fn small_objects_and_small_runtimes_change_nothing() {
        let limiter = Limiter::default();
        for length in [10, 1 << 20] {
            let slot = RequestSlot::new(false);
            let answer = slot.run(&limiter, async {
                slot.acquire_for_size(length).await;
                slot.run_long(&limiter, || length).await
            });
            assert_eq!(answer.await, length);
        }
    }
}
