//! The current registry.

use std::sync::Arc;
use std::time::Duration;

use plinth_engine::Revision;
use tokio::sync::watch;

use super::Registry;

/// Longest time for which discovery waits for the status of definitions to be written: it may not be
/// possible.
const STATUS_WITHIN: Duration = Duration::from_secs(1);

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
    /// Whether there are definitions in the registry whose stored status does not have them established yet.
    is_ahead: watch::Sender<bool>,
}

impl Default for Current {
    /// The built-in resources.
    fn default() -> Current {
        Current::new(Registry::builtin())
    }
}

impl Current {
    /// That registry.
    pub fn new(registry: Registry) -> Current {
        let registry = watch::Sender::new(Arc::new(registry));
        let (reached, is_ahead) = (watch::Sender::new(Revision::ZERO), watch::Sender::new(false));
        Current { registry, reached, is_ahead }
    }

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

    /// Notes whether definitions are in the registry whose stored status does not have them established yet.
    pub fn note_ahead(&self, is_ahead: bool) {
        self.is_ahead.send_if_modified(|noted| std::mem::replace(noted, is_ahead) != is_ahead);
    }

    /// Waits until the stored status of every definition in the registry has it established: as upstream, a
    /// client that finds a definition in discovery can change it without a conflict with that write.
    pub async fn established(&self) {
        if *self.is_ahead.borrow() {
            let mut changes = self.is_ahead.subscribe();
            let _ = tokio::time::timeout(STATUS_WITHIN, changes.wait_for(|is_ahead| !is_ahead)).await;
        }
    }

    /// Notified of later registries; the current one counts as seen.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Registry>> {
        self.registry.subscribe()
    }
}
