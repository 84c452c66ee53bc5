//! Panics stay with the request that made them.
//!
//! None is reachable that we know of; one that is would otherwise take all requests of its connection with it, and leave
//! nothing in the audit log.

use std::any::Any;
use std::future::{poll_fn, Future};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::task::Poll;

/// Runs a step to its end, or to its panic, whose text is the error. What the step shares with others is either
/// immutable or behind locks that a panic does not poison, and the step itself is never polled again.
pub async fn recover<T>(step: impl Future<Output = T>) -> Result<T, String> {
    let mut step = pin!(step);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| step.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(text(&*panic))),
    })
    .await
}

fn text(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without a text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_of_its_step() {
        assert_eq!(recover(async { 7 }).await, Ok(7));
        let late = async {
            tokio::task::yield_now().await;
            panic!("nothing there");
        };
        assert_eq!(recover(late).await, Err::<(), _>("nothing there".to_owned()));
    }
}
