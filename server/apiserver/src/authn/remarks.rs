//! What authenticators have to say beside who it is: for the audit log, and for the client.
//!
//! They are asked before the request has a recorder or an answer, and far below the place where it gets them; so what they say is
//! kept with the task until then.

use std::cell::RefCell;
use std::future::Future;

/// Said of a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// An annotation of the audit event.
    Audit(&'static str, String),
    /// A warning to the client.
    Warning(&'static str),
}

tokio::task_local! {
    static REMARKS: RefCell<Vec<Remark>>;
}

/// Says something; nobody listens where no request is authenticated, as in a TokenReview.
pub fn remark(remark: Remark) {
    let _ = REMARKS.try_with(|all| all.borrow_mut().push(remark));
}

/// Authenticates, and returns what was said meanwhile.
pub async fn collect<F: Future>(authentication: F) -> (F::Output, Vec<Remark>) {
    let authentication = async { (authentication.await, REMARKS.with(RefCell::take)) };
    REMARKS.scope(RefCell::default(), authentication).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_said_comes_with_the_outcome() {
        remark(Remark::Warning("to nobody"));
        let outcome = collect(async {
            tokio::task::yield_now().await;
            remark(Remark::Audit("a", "b".into()));
            7
        });
        assert_eq!(outcome.await, (7, vec![Remark::Audit("a", "b".into())]));
    }
}
