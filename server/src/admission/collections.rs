//! The collections that plugins read on every write, from caches that are as fresh as a read.

use std::sync::Arc;

use plinth_storage::{DerivedCache, ObjectCache};

use super::{policy, webhook};

/// A cache for each collection. They lock internally.
pub(crate) struct Collections {
    /// LimitRanges.
    pub(crate) limit_ranges: ObjectCache,
    /// ResourceQuotas.
    pub(crate) resource_quotas: ObjectCache,
    /// PriorityClasses.
    pub(crate) priority_classes: ObjectCache,
    /// RuntimeClasses.
    pub(crate) runtime_classes: ObjectCache,
    /// StorageClasses.
    pub(crate) storage_classes: ObjectCache,
    /// IngressClasses.
    pub(crate) ingress_classes: ObjectCache,
    /// MutatingWebhookConfigurations.
    pub(crate) mutating_webhooks: webhook::Configurations,
    /// ValidatingWebhookConfigurations.
    pub(crate) validating_webhooks: webhook::Configurations,
    /// MutatingAdmissionPolicies.
    pub(crate) mutating_policies: DerivedCache<policy::MutatingPolicy>,
    /// MutatingAdmissionPolicyBindings.
    pub(crate) mutating_bindings: ObjectCache,
    /// ValidatingAdmissionPolicies.
    pub(crate) validating_policies: DerivedCache<policy::Policy>,
    /// ValidatingAdmissionPolicyBindings.
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
