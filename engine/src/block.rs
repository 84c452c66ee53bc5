//! Blocking on futures from a plain thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// A waker that unparks a thread.
pub(crate) struct ThreadWaker(Thread);

impl ThreadWaker {
    /// The waker of this thread.
    pub(crate) fn current() -> Waker {
        Arc::new(ThreadWaker(thread::current())).into()
    }

    /// Parks this thread until it is woken or `deadline` passes; false in the latter case.
    pub(crate) fn park_until(deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else {
            thread::park();
            return true;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::park_timeout(left);
        true
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread until it completes or `deadline` passes.
pub(crate) fn block_until<T>(future: impl Future<Output = T>, deadline: Option<Instant>) -> Option<T> {
    let waker = ThreadWaker::current();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        if !ThreadWaker::park_until(deadline) {
            return None;
        }
    }
}
