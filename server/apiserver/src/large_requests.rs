//! Limits how many large requests run at the same time.
//!
//! Reading, validating and storing an object of megabytes takes a hundred times as long as one of kilobytes,
//! and a step of a request cannot be interrupted: on a runtime thread it delays every task behind it. A
//! request whose body, or whose stored object, turns out to be large therefore acquires one of few slots, and
//! its further steps run under `block_in_place`: the runtime moves the thread's other tasks to another
//! thread. The request keeps its flow-control seat meanwhile, so priority and fairness accounts for it. An
//! expression of a policy that exceeds its inline cost is evaluated in such a slot too, which is released
//! after it. Requests that are exempt from flow control have one slot more.

use std::future::{poll_fn, Future};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

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
    async fn take(&self, exempt: bool) -> Option<OwnedSemaphorePermit> {
        let permit = self.all.clone().acquire_owned();
        if !exempt {
            return permit.await.ok();
        }
        // Boxed: only exempt requests wait for either.
        let (permit, own) = (Box::pin(permit), Box::pin(self.exempt.clone().acquire_owned()));
        select(permit, own).await.factor_first().0.ok()
    }
}

/// A request's slot in the limiter, acquired on demand. Cheap to clone. The default is for work of the
/// server's own, which acquires slots for single steps only.
#[derive(Clone, Debug, Default)]
pub struct RequestSlot(Option<Arc<Request>>);

#[derive(Debug)]
struct Request {
    exempt: bool,
    permit: OnceLock<OwnedSemaphorePermit>,
}

impl RequestSlot {
    /// A request without a slot yet; `exempt` from flow control or not.
    pub fn new(exempt: bool) -> RequestSlot {
        RequestSlot(Some(Arc::new(Request { exempt, permit: OnceLock::new() })))
    }

    /// Called when an object of `length` bytes has been read: returns at once when it is small, otherwise
    /// when the request has a slot.
    pub(crate) async fn acquire_for_size(&self, length: usize, limiter: &Limiter) {
        let Some(request) = self.0.as_ref().filter(|_| length > LARGE) else { return };
        if request.permit.get().is_some() {
            return;
        }
        if let Some(permit) = limiter.take(request.exempt).await {
            // If another task of the request was first, one slot is enough.
            drop(request.permit.set(permit));
            // The next poll is made under `block_in_place`.
            tokio::task::yield_now().await;
        }
    }

    /// Runs work that takes long, with a slot for its duration if the request has none.
    pub async fn run_long<T>(&self, limiter: &Limiter, work: impl FnOnce() -> T) -> T {
        let request = self.0.as_deref();
        let _permit = match request.is_some_and(|request| request.permit.get().is_some()) {
            true => None,
            false => limiter.take(request.is_none_or(|request| request.exempt)).await,
        };
        match has_other_threads() {
            true => tokio::task::block_in_place(work),
            false => work(),
        }
    }

    /// Runs the request's future.
    pub async fn run<F: Future>(&self, request: F) -> F::Output {
        let Some(state) = &self.0 else { return request.await };
        let mut request = pin!(request);
        poll_fn(|cx| match state.permit.get() {
            Some(_) if has_other_threads() => tokio::task::block_in_place(|| request.as_mut().poll(cx)),
            _ => request.as_mut().poll(cx),
        })
        .await
    }
}

/// Runs a step that takes long where an object of `length` bytes is large. For what has no slot: an event is
/// encoded once for all of its watchers, who wait for whoever encodes it.
pub(crate) fn in_place<T>(length: usize, work: impl FnOnce() -> T) -> T {
    match length > LARGE && has_other_threads() {
        true => tokio::task::block_in_place(work),
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
    use std::sync::atomic::{AtomicUsize, Ordering};
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
                        slot.acquire_for_size(if n % 3 == 1 { 1 << 20 } else { 10 }, &limiter).await;
                        slot.acquire_for_size(1 << 20, &limiter).await;
                        seen.step(2);
                    }
                    slot.run_long(&limiter, || seen.step(2)).await;
                };
                slot.run(request).await;
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
        let flood = RequestSlot::new(false);
        flood.acquire_for_size(1 << 20, &limiter).await;
        for slot in [RequestSlot::new(true), RequestSlot::default()] {
            slot.acquire_for_size(1 << 20, &limiter).await;
            assert_eq!(slot.run_long(&limiter, || 7).await, 7);
        }
        let behind = RequestSlot::new(false);
        let mut behind = pin!(behind.acquire_for_size(1 << 20, &limiter));
        assert!(futures_util::poll!(behind.as_mut()).is_pending());
        drop(flood);
        behind.await;
    }

    #[tokio::test]
    async fn small_objects_and_small_runtimes_change_nothing() {
        let limiter = Limiter::default();
        for length in [10, 1 << 20] {
            let slot = RequestSlot::new(false);
            let answer = slot.run(async {
                slot.acquire_for_size(length, &limiter).await;
                slot.run_long(&limiter, || length).await
            });
            assert_eq!(answer.await, length);
        }
    }
}
