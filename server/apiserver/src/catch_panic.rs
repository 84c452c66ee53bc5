//! Confines a panic to the request that caused it.
//!
//! No panic is known to be reachable; without this one would end all requests of its connection and leave
//! no trace in the audit log.

use std::any::Any;
use std::future::{poll_fn, Future};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::task::Poll;

/// Polls a future to its end or to its panic, whose text is the error. State shared with other requests is
/// either immutable or behind locks that a panic does not poison, and the future is not polled after a panic.
pub(crate) async fn catch_panic<T>(step: impl Future<Output = T>) -> Result<T, String> {
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
        assert_eq!(catch_panic(async { 7 }).await, Ok(7));
        let late = async {
            tokio::task::yield_now().await;
            panic!("nothing there");
        };
        assert_eq!(catch_panic(late).await, Err::<(), _>("nothing there".to_owned()));
    }
}
