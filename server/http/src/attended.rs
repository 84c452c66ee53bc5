//! Requests whose clients leave before the answer.
//!
//! hyper drops a request when its client goes or resets its stream, wherever the request is. Until it writes that is as it should be:
//! nobody waits for what it would find out. A write that was handed to the storage takes place, whoever waits for it. So from there on the
//! request goes on to its end: what follows from the write is done, and what is recorded of it is what it came to. To whoever stays
//! this costs two looks at a cell of the thread for each step.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// Whether the step that this thread makes has said that its request goes on.
    static GOES_ON: Cell<bool> = const { Cell::new(false) };
}

/// Said by a step of a request: from here on it goes on to its end, also without its client. Outside of requests it means nothing.
pub fn go_on() {
    GOES_ON.set(true);
}

/// A request on its way. Dropped before its end it is handed to `carry`, when one of its steps has said that it goes on.
pub struct Attended<F: Future, C: Fn(Pin<Box<F>>)> {
    request: Option<Pin<Box<F>>>,
    goes_on: bool,
    carry: C,
}

impl<F: Future, C: Fn(Pin<Box<F>>)> Attended<F, C> {
    /// A request that nobody has looked at yet.
    pub fn new(request: Pin<Box<F>>, carry: C) -> Attended<F, C> {
        Attended { request: Some(request), goes_on: false, carry }
    }
}

impl<F: Future, C: Fn(Pin<Box<F>>) + Unpin> Future for Attended<F, C> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Nothing polls a future that is done.
        let Some(request) = &mut self.request else { return Poll::Pending };
        let outer = GOES_ON.replace(false);
        let polled = request.as_mut().poll(cx);
        self.goes_on |= GOES_ON.replace(outer);
        if polled.is_ready() {
            // Now, not with the answer's body: its state is large.
            self.request = None;
        }
        polled
    }
}

impl<F: Future, C: Fn(Pin<Box<F>>)> Drop for Attended<F, C> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take().filter(|_| self.goes_on) {
            (self.carry)(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use super::*;

    #[test]
    fn who_has_said_so_is_carried_on_when_dropped_and_nobody_else() {
        // what the request says, whether it is dropped before its end, how often it is carried on
        for (says, early, expected) in [(true, true, 1), (false, true, 0), (true, false, 0)] {
            let carried = AtomicUsize::new(0);
            let request = async {
                if says {
                    go_on();
                }
                if early {
                    std::future::pending::<()>().await;
                }
            };
            let mut attended = Attended::new(Box::pin(request), |_| {
                carried.fetch_add(1, Ordering::Relaxed);
            });
            // What others said on this thread is not this request's.
            go_on();
            let polled = Pin::new(&mut attended).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(polled.is_pending(), early);
            drop(attended);
            assert_eq!(carried.load(Ordering::Relaxed), expected, "{says} {early}");
        }
    }
}
