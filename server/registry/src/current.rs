//! The registry of this moment.

use std::sync::Arc;

use tokio::sync::watch;

use super::Registry;

/// Holds the registry that new requests are answered by, and tells who waits for it that there is another one.
///
/// A registry itself never changes. Readers take a snapshot and keep it for as long as their request lasts, under
/// a lock that is held for a reference count; whoever changes what is served publishes a new one.
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
    /// What is served now.
    pub fn snapshot(&self) -> Arc<Registry> {
        self.registry.borrow().clone()
    }

    /// Puts another registry in place; requests that are on their way keep theirs.
    pub fn publish(&self, registry: Arc<Registry>) {
        self.registry.send_replace(registry);
    }

    /// To wait for the next registry; the present one counts as seen.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Registry>> {
        self.registry.subscribe()
    }
}
