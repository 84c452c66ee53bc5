//! Warnings and audit annotations that authenticators produce.
//!
//! They arise before the request has an audit event or a response, deep in the call chain; a task-local
//! collects them until then.

use std::cell::RefCell;
use std::future::Future;

/// A notice about a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An annotation of the audit event.
    Audit(&'static str, String),
    /// A warning to the client.
    Warning(&'static str),
}

tokio::task_local! {
    static NOTICES: RefCell<Vec<Notice>>;
}

/// Adds a notice; without effect outside of [`collect`], as in a TokenReview.
pub fn add(notice: Notice) {
    let _ = NOTICES.try_with(|all| all.borrow_mut().push(notice));
}

/// Runs the authentication and returns the notices it produced.
pub async fn collect<F: Future>(authentication: F) -> (F::Output, Vec<Notice>) {
    let authentication = async { (authentication.await, NOTICES.with(RefCell::take)) };
    NOTICES.scope(RefCell::default(), authentication).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notices_come_with_the_outcome() {
        add(Notice::Warning("to nobody"));
        let outcome = collect(async {
            tokio::task::yield_now().await;
            add(Notice::Audit("a", "b".into()));
            7
        });
        assert_eq!(outcome.await, (7, vec![Notice::Audit("a", "b".into())]));
    }
}
