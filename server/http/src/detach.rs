//! Requests that must complete even when their client disconnects.
//!
//! hyper drops the future of a request when the client closes the connection or resets the stream. That is
//! right until the request writes: nobody waits for its result. A write that was handed to the storage takes
//! place in any case, so from then on the request runs to its end in a detached task: the work that follows
//! from the write is done, and audit and metrics record its actual outcome. For every other request this
//! costs two accesses to a thread-local cell per poll.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// Set while this thread polls a request that called [`mark_must_complete`].
    static MUST_COMPLETE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the request that is being polled: it runs to its end even if its client disconnects. No effect
/// outside of requests.
pub fn mark_must_complete() {
    MUST_COMPLETE.set(true);
}

/// A request that is handed to `detach` when it is dropped before its end and has called
/// [`mark_must_complete`].
pub struct DetachOnDrop<F: Future, C: Fn(Pin<Box<F>>)> {
    request: Option<Pin<Box<F>>>,
    must_complete: bool,
    detach: C,
}

impl<F: Future, C: Fn(Pin<Box<F>>)> DetachOnDrop<F, C> {
    /// Wraps a request that has not been polled yet.
    pub fn new(request: Pin<Box<F>>, detach: C) -> DetachOnDrop<F, C> {
        DetachOnDrop { request: Some(request), must_complete: false, detach }
    }
}

impl<F: Future, C: Fn(Pin<Box<F>>) + Unpin> Future for DetachOnDrop<F, C> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // A completed future is not polled again.
        let Some(request) = &mut self.request else { return Poll::Pending };
        let outer = MUST_COMPLETE.replace(false);
        let polled = request.as_mut().poll(cx);
        self.must_complete |= MUST_COMPLETE.replace(outer);
        if polled.is_ready() {
            // Released now, not together with the response body: the state is large.
            self.request = None;
        }
        polled
    }
}

impl<F: Future, C: Fn(Pin<Box<F>>)> Drop for DetachOnDrop<F, C> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take().filter(|_| self.must_complete) {
            (self.detach)(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_marked_request_is_detached_when_dropped_and_no_other() {
        // marked as must-complete, dropped before its end, times detached
        for (marks, early, expected) in [(true, true, 1), (false, true, 0), (true, false, 0)] {
            let detached = AtomicUsize::new(0);
            let request = async {
                if marks {
                    mark_must_complete();
                }
                if early {
                    std::future::pending::<()>().await;
                }
            };
            let mut wrapped = DetachOnDrop::new(Box::pin(request), |_| {
                detached.fetch_add(1, Ordering::Relaxed);
            });
            // A mark set by another future on this thread does not apply to this request.
            mark_must_complete();
            let polled = Pin::new(&mut wrapped).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(polled.is_pending(), early);
            drop(wrapped);
            assert_eq!(detached.load(Ordering::Relaxed), expected, "{marks} {early}");
        }
    }
}
