//! What plugins are given beside a write: their configuration, and what they read of the store.

use super::collections::Collections;
use super::configuration::PluginSettings;

/// Default toleration of failed nodes, in seconds.
pub(super) const TOLERATION_SECONDS: i64 = 300;

/// Configuration and caches of all plugins; the table gives each plugin its part. Immutable but for the
/// caches, which lock internally.
pub(crate) struct PluginContext {
    /// The plugins' configuration.
    pub(crate) settings: PluginSettings,
    /// Toleration of nodes that are not ready, in seconds (`--default-not-ready-toleration-seconds`).
    pub(super) not_ready_toleration_seconds: i64,
    /// Toleration of unreachable nodes, in seconds (`--default-unreachable-toleration-seconds`).
    pub(super) unreachable_toleration_seconds: i64,
    /// What the plugins read of the store.
    pub(crate) collections: Collections,
}

impl Default for PluginContext {
    fn default() -> PluginContext {
        PluginContext {
            settings: PluginSettings::default(),
            not_ready_toleration_seconds: TOLERATION_SECONDS,
            unreachable_toleration_seconds: TOLERATION_SECONDS,
            collections: Collections::default(),
        }
    }
}
