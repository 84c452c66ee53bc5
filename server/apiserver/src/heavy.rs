//! Requests that take long, beside those of everybody else.
//!
//! To read, check and store an object of megabytes takes a hundred times as long as one of kilobytes, and a step of a request
//! cannot be interrupted. On a thread that serves all requests it would hold up those behind it. So a request whose body turns out to
//! be large, or what is stored under its name, waits for one of few places, and every step that it then makes is made elsewhere: the
//! runtime gives the rest of the thread's tasks to another thread. Meanwhile the request keeps its seat, so that flow control sees
//! who sends so many of them. An expression of a policy that has turned out to take long is evaluated in such a place too, which is
//! free again after it. Requests that are exempt from flow control have one place more.

use std::future::{poll_fn, Future};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use futures_util::future::select;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Objects above this are large, in bytes: what is decoded, checked and stored in about a millisecond.
const LARGE: usize = 64 << 10;
/// What the expressions of a request may take together before they go on beside other requests, in units: about two milliseconds.
pub const BRIEF: u64 = 5_000;

/// The places of heavy requests: half of the processors, so that the other half is left for everybody else; and one more for those
/// who are exempt from flow control, so that they do not wait behind a flood.
#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    exempt: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Places {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Places::new((processors / 2).max(1))
    }
}

impl Places {
    fn new(places: usize) -> Places {
        Places { all: Arc::new(Semaphore::new(places)), exempt: Arc::new(Semaphore::new(1)) }
    }

    /// Waits for a place. They are never closed.
    async fn take(&self, exempt: bool) -> Option<OwnedSemaphorePermit> {
        let place = self.all.clone().acquire_owned();
        if !exempt {
            return place.await.ok();
        }
        // On the heap, as what few wait for.
        let (place, own) = (Box::pin(place), Box::pin(self.exempt.clone().acquire_owned()));
        select(place, own).await.factor_first().0.ok()
    }
}

/// Whether a request is heavy. Cheap to clone. The default is work of the server's own, which has no place but for single steps.
#[derive(Clone, Debug, Default)]
pub struct Heavy(Option<Arc<Request>>);

#[derive(Debug)]
struct Request {
    exempt: bool,
    place: OnceLock<OwnedSemaphorePermit>,
}

impl Heavy {
    /// A request that may turn out to be heavy; `exempt` from flow control or not.
    pub fn perhaps(exempt: bool) -> Heavy {
        Heavy(Some(Arc::new(Request { exempt, place: OnceLock::new() })))
    }

    /// An object of so many bytes has been read: returns when the request may go on with it.
    pub async fn weigh(&self, length: usize, places: &Places) {
        let Some(request) = self.0.as_ref().filter(|_| length > LARGE) else { return };
        if request.place.get().is_some() {
            return;
        }
        if let Some(place) = places.take(request.exempt).await {
            // Where another part of the request was quicker, one place is enough.
            drop(request.place.set(place));
            // The next step is made elsewhere.
            tokio::task::yield_now().await;
        }
    }

    /// Does work that takes long, of a request that need not be heavy otherwise.
    pub async fn beside<T>(&self, places: &Places, work: impl FnOnce() -> T) -> T {
        let request = self.0.as_deref();
        let _place = match request.is_some_and(|request| request.place.get().is_some()) {
            true => None,
            false => places.take(request.is_none_or(|request| request.exempt)).await,
        };
        match has_other_threads() {
            true => tokio::task::block_in_place(work),
            false => work(),
        }
    }

    /// Serves the request.
    pub async fn run<F: Future>(&self, request: F) -> F::Output {
        let Some(state) = &self.0 else { return request.await };
        let mut request = pin!(request);
        poll_fn(|cx| match state.place.get() {
            Some(_) if has_other_threads() => tokio::task::block_in_place(|| request.as_mut().poll(cx)),
            _ => request.as_mut().poll(cx),
        })
        .await
    }
}

/// A runtime of one thread has nobody to give its tasks to.
fn has_other_threads() -> bool {
    Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// What others have done, and how many long steps are being made.
    #[derive(Default)]
    struct Seen {
        others: AtomicUsize,
        running: AtomicUsize,
    }

    impl Seen {
        /// A step that ends when others have been served. There is one worker, and it is here: another thread serves them.
        fn step(&self, places: usize) {
            assert!(self.running.fetch_add(1, Ordering::SeqCst) < places);
            let seen = self.others.load(Ordering::SeqCst);
            while self.others.load(Ordering::SeqCst) == seen {
                std::thread::yield_now();
            }
            self.running.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn heavy_steps_leave_the_thread_to_others_and_are_few_at_once() {
        let (places, seen) = (Arc::new(Places::new(2)), Arc::new(Seen::default()));
        let mut all = tokio::task::JoinSet::new();
        for n in 0..9 {
            let (places, seen) = (places.clone(), seen.clone());
            all.spawn(async move {
                let heavy = Heavy::perhaps(false);
                let request = async {
                    // Of one a step takes long, of another the body is large, of a third what is stored.
                    if n % 3 > 0 {
                        heavy.weigh(if n % 3 == 1 { 1 << 20 } else { 10 }, &places).await;
                        heavy.weigh(1 << 20, &places).await;
                        seen.step(2);
                    }
                    heavy.beside(&places, || seen.step(2)).await;
                };
                heavy.run(request).await;
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

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_exempt_do_not_wait_behind_others() {
        let places = Places::new(1);
        let flood = Heavy::perhaps(false);
        flood.weigh(1 << 20, &places).await;
        for heavy in [Heavy::perhaps(true), Heavy::default()] {
            heavy.weigh(1 << 20, &places).await;
            assert_eq!(heavy.beside(&places, || 7).await, 7);
        }
        let behind = Heavy::perhaps(false);
        let mut behind = pin!(behind.weigh(1 << 20, &places));
        assert!(futures_util::poll!(behind.as_mut()).is_pending());
        drop(flood);
        behind.await;
    }

    #[tokio::test]
    async fn small_objects_and_small_runtimes_change_nothing() {
        let places = Places::default();
        for length in [10, 1 << 20] {
            let heavy = Heavy::perhaps(false);
            let answer = heavy.run(async {
                heavy.weigh(length, &places).await;
                heavy.beside(&places, || length).await
            });
            assert_eq!(answer.await, length);
        }
    }
}
