//! Requests with large bodies, beside those of everybody else.
//!
//! To read, check and store an object of megabytes takes a hundred times as long as one of kilobytes, and a step of a request
//! cannot be interrupted. On a thread that serves all requests it would hold up those behind it. So a request whose body turns out to be
//! large waits for one of few places, and every step that it then makes is made elsewhere: the
//! runtime gives the rest of the thread's tasks to another thread. Meanwhile the request keeps its seat, so that flow control sees
//! who sends so many of them.

use std::future::{poll_fn, Future};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies above this are large, in bytes: what is decoded, checked and stored in about a millisecond.
const LARGE: u64 = 64 << 10;

/// The places of heavy requests: half of the processors, so that the other half is left for everybody else.
#[derive(Debug)]
pub struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Places {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Places(Arc::new(Semaphore::new((processors / 2).max(1))))
    }
}

/// Whether a request is heavy. Cheap to clone; one that never can be is a null pointer.
#[derive(Clone, Debug, Default)]
pub struct Heavy(Option<Arc<OnceLock<OwnedSemaphorePermit>>>);

impl Heavy {
    /// Of a request whose body has so many bytes, if that is known.
    pub fn perhaps(length: Option<u64>) -> Heavy {
        Heavy(length.is_none_or(|length| length > LARGE).then(Arc::default))
    }

    /// The body has been read and has so many bytes: returns when the request may go on.
    pub async fn weigh(&self, length: usize, places: &Places) {
        let Some(place) = self.0.as_ref().filter(|_| length as u64 > LARGE) else { return };
        if let Ok(permit) = places.0.clone().acquire_owned().await {
            // A request has one body; a second one would go back at once.
            drop(place.set(permit));
            // The next step is made elsewhere.
            tokio::task::yield_now().await;
        }
    }

    /// Serves the request.
    pub async fn run<F: Future>(&self, request: F) -> F::Output {
        let Some(place) = &self.0 else { return request.await };
        // A runtime of one thread has nobody to give its tasks to.
        let many = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
        let mut request = pin!(request);
        poll_fn(|cx| match place.get() {
            Some(_) if many => tokio::task::block_in_place(|| request.as_mut().poll(cx)),
            _ => request.as_mut().poll(cx),
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn heavy_steps_leave_the_thread_to_others_and_are_few_at_once() {
        let places = Arc::new(Places(Arc::new(Semaphore::new(2))));
        let (running, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let (places, running, others) = (places.clone(), running.clone(), others.clone());
            all.spawn(async move {
                let heavy = Heavy::perhaps(None);
                let request = async {
                    heavy.weigh(1 << 20, &places).await;
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
                    // One worker, and it is here: the others are served by another thread.
                    let seen = others.load(Ordering::SeqCst);
                    while others.load(Ordering::SeqCst) == seen {
                        std::thread::yield_now();
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                heavy.run(request).await;
            });
        }
        let ticking = others.clone();
        let ticks = tokio::spawn(async move {
            loop {
                ticking.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        all.join_all().await;
        ticks.abort();
    }

    #[tokio::test]
    async fn small_bodies_and_small_runtimes_change_nothing() {
        let places = Places::default();
        for (known, length) in [(Some(10), 10), (None, 10), (None, 1 << 20)] {
            let heavy = Heavy::perhaps(known);
            let answer = heavy.run(async {
                heavy.weigh(length, &places).await;
                length
            });
            assert_eq!(answer.await, length);
        }
    }
}
