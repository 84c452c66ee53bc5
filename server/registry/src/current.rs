//! The current registry.

use std::sync::Arc;

use plinth_engine::Revision;
use tokio::sync::watch;

use super::Registry;

/// Holds the current registry, and notifies waiters when it is replaced.
///
/// A registry itself never changes. Readers take a snapshot and keep it for the duration of their request;
/// the lock is held to increment a reference count. A change of the served resources publishes a new
/// registry.
#[derive(Debug)]
pub struct Current {
    registry: watch::Sender<Arc<Registry>>,
    /// The revision up to which definitions are in the registry.
    reached: watch::Sender<Revision>,
}

impl Default for Current {
    /// The built-in resources.
    fn default() -> Current {
        let registry = watch::Sender::new(Arc::new(Registry::builtin()));
        Current { registry, reached: watch::Sender::new(Revision::ZERO) }
    }
}

impl Current {
    /// The current registry.
    pub fn snapshot(&self) -> Arc<Registry> {
        self.registry.borrow().clone()
    }

    /// Replaces the registry by the one that `next` makes of it, or keeps it; requests in progress keep
    /// theirs. Concurrent changes are made one after the other.
    pub fn update(&self, next: impl FnOnce(&Registry) -> Option<Registry>) {
        self.registry.send_if_modified(|registry| match next(registry) {
            Some(next) => {
                *registry = Arc::new(next);
                true
            }
            None => false,
        });
    }

    /// Every definition up to a revision is in the registry that was published last.
    pub fn note_reached(&self, revision: Revision) {
        self.reached.send_if_modified(|reached| {
            let is_later = revision > *reached;
            *reached = revision.max(*reached);
            is_later
        });
    }

    /// Waits until every definition up to a revision is in the registry.
    pub async fn reach(&self, revision: Revision) {
        // The sender lives as long as this.
        let _ = self.reached.subscribe().wait_for(|reached| *reached >= revision).await;
    }

    /// Notified of later registries; the current one counts as seen.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Registry>> {
        self.registry.subscribe()
    }
}
