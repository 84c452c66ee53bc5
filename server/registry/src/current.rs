//! The current registry.

use std::sync::Arc;

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
}

impl Default for Current {
    /// The built-in resources.
    fn default() -> Current {
        Current { registry: watch::Sender::new(Arc::new(Registry::builtin())) }
    }
}

impl Current {
    /// The current registry.
    pub fn snapshot(&self) -> Arc<Registry> {
        self.registry.borrow().clone()
    }

    /// Replaces the registry; requests in progress keep theirs.
    pub fn publish(&self, registry: Arc<Registry>) {
        self.registry.send_replace(registry);
    }

    /// Notified of later registries; the current one counts as seen.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Registry>> {
        self.registry.subscribe()
    }
}
