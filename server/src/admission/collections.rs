//! The collections that plugins read on every write, from caches that are as fresh as a read.

use std::sync::Arc;

use plinth_storage::{DerivedCache, ObjectCache};

use super::{policy, webhook};

/// A cache for each collection. They lock internally.
pub(crate) struct Collections {
    pub(crate) limit_ranges: ObjectCache,
    pub(crate) resource_quotas: ObjectCache,
    pub(crate) priority_classes: ObjectCache,
    pub(crate) runtime_classes: ObjectCache,
    pub(crate) storage_classes: ObjectCache,
    pub(crate) ingress_classes: ObjectCache,
    pub(crate) mutating_webhooks: webhook::Configurations,
    pub(crate) validating_webhooks: webhook::Configurations,
    pub(crate) mutating_policies: DerivedCache<policy::MutatingPolicy>,
    pub(crate) mutating_bindings: ObjectCache,
    pub(crate) validating_policies: DerivedCache<policy::Policy>,
    pub(crate) validating_bindings: ObjectCache,
}

impl Default for Collections {
    fn default() -> Collections {
        const GROUP: &str = "admissionregistration.k8s.io";
        let hooks =
            |plural| Arc::new(DerivedCache::new(ObjectCache::new(GROUP, "v1", plural), webhook::Hooks::read));
        Collections {
            limit_ranges: ObjectCache::new("", "v1", "limitranges"),
            resource_quotas: ObjectCache::new("", "v1", "resourcequotas"),
            priority_classes: ObjectCache::new("scheduling.k8s.io", "v1", "priorityclasses"),
            runtime_classes: ObjectCache::new("node.k8s.io", "v1", "runtimeclasses"),
            storage_classes: ObjectCache::new("storage.k8s.io", "v1", "storageclasses"),
            ingress_classes: ObjectCache::new("networking.k8s.io", "v1", "ingressclasses"),
            mutating_webhooks: hooks("mutatingwebhookconfigurations"),
            validating_webhooks: hooks("validatingwebhookconfigurations"),
            mutating_policies: DerivedCache::new(
                ObjectCache::new(GROUP, "v1", "mutatingadmissionpolicies"),
                policy::MutatingPolicy::read,
            ),
            mutating_bindings: ObjectCache::new(GROUP, "v1", "mutatingadmissionpolicybindings"),
            validating_policies: DerivedCache::new(
                ObjectCache::new(GROUP, "v1", "validatingadmissionpolicies"),
                policy::Policy::read,
            ),
            validating_bindings: ObjectCache::new(GROUP, "v1", "validatingadmissionpolicybindings"),
        }
    }
}
