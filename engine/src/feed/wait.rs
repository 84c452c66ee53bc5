//! Waiting for a revision.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::Result;
use crate::feed::hub::Hub;
use crate::revision::Revision;

/// A future that resolves when a revision is published. Returned by [`crate::Engine::wait_for`].
#[must_use = "futures do nothing unless awaited"]
pub struct WaitFor {
    hub: Arc<Hub>,
    revision: Revision,
    /// Set while it is registered with the hub.
    id: Option<u64>,
}

impl WaitFor {
    pub(crate) fn new(hub: Arc<Hub>, revision: Revision) -> WaitFor {
        WaitFor { hub, revision, id: None }
    }
}

impl Future for WaitFor {
    type Output = Result<Revision>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = match self.id {
            Some(id) => id,
            None => self.hub.waiter_id(),
        };
        self.id = Some(id);
        if self.hub.wait(self.revision, id, cx.waker()) {
            return Poll::Pending;
        }
        self.id = None;
        let latest = self.hub.latest();
        Poll::Ready(if latest >= self.revision { Ok(latest) } else { Err(self.hub.ending()) })
    }
}

impl Drop for WaitFor {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.hub.stop_waiting(self.revision, id);
        }
    }
}
