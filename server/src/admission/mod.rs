//! Admission: what is filled in, and what is refused, around the object that a write is about.
//!
//! Plugins are rows of one table (`plugins`), in upstream's order (kubernetes `pkg/kubeapiserver/options/plugins.go`): name, whether it is
//! on unless a flag says otherwise, which requests it sees, and what it does. A write runs the mutating halves after
//! decoding and defaulting and before validation, the validating halves on the object as it will be stored.
//!
//! | plugin | module |
//! |---|---|
//! | nothing is created in a namespace that is absent or going; some namespaces stay | `namespace_lifecycle` |
//! | a namespace that is missing is made | `namespace_auto_provision` |
//! | pods keep others away from their node at the most | `anti_affinity` |
//! | defaults and bounds of requests and limits | `limit_ranger` |
//! | a kubelet changes what is its own | `node_restriction` |
//! | a pod's account and its token | `service_account` |
//! | a new node is not ready | `taint_nodes_by_condition` |
//! | images are pulled anew | `always_pull_images` |
//! | a service says which images may run | `image_policy` |
//! | the Pod Security Standards | `pod_security` |
//! | on which nodes a namespace's pods run | `pod_node_selector` |
//! | a pod's priority | `priority` |
//! | how long a pod stays on a failed node | `default_toleration_seconds` |
//! | which taints a namespace's pods tolerate | `pod_toleration_restriction` |
//! | how many events are taken | `event_rate_limit` |
//! | who asks for a device may run where it is | `extended_resource_toleration` |
//! | classes and growth of claims, protection of what is used | `storage` |
//! | who sets owners may delete what is owned | `owner_references` |
//! | overhead of a pod's runtime | `runtime_class` |
//! | who approves, signs and attests for which signer | `signers` |
//! | no client certificate of `system:masters` | `certificate_subject_restriction` |
//! | class of an Ingress | `default_ingress_class` |
//! | no external addresses of Services | `deny_service_external_ips` |
//! | zone and region on bound pods | `pod_topology_labels` |
//! | services of others | `webhook` |
//! | policies in CEL | `policy` |
//! | what a namespace may use | `resource_quota` |
//! | nothing at all | `always_deny` |
//!
//! `call` is a write on its way through them. `matching` says which requests webhooks and policies concern, `expressions` evaluates what they say in CEL, `made` takes what
//! they made of an object, `configuration` has what a file tells plugins, `reinvocation` knows which of them are asked twice.
//!
//! A plugin that reads a small collection on every write takes it from a [`plinth_storage::object_cache::ObjectCache`].

mod always_deny;
mod always_pull_images;
mod amounts;
mod anti_affinity;
#[cfg(test)]
mod certificate_requests;
pub(crate) mod certificate_subject_restriction;
pub mod configuration;
mod default_ingress_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod event_rate_limit;
pub(crate) mod expressions;
mod extended_resource_toleration;
pub(crate) mod image_policy;
mod limit_ranger;
mod made;
mod matching;
mod namespace_auto_provision;
mod namespace_lifecycle;
pub(crate) mod node_restriction;
pub mod options;
mod owner_references;
mod plugins;
mod pod_node_selector;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
pub mod policy;
mod priority;
mod reinvocation;
pub(crate) mod resource_quota;
mod runtime_class;
mod service_account;
mod signers;
pub(crate) mod storage;
mod taint_nodes_by_condition;
pub mod webhook;

use std::ops::Deref;

use parking_lot::Mutex;
use plinth_codec::Value;

use plinth_api::api_error::ApiError;
use plinth_apiserver::context::{Admission, AdmissionRequest, Operation, Outcome};
use plinth_registry::object_meta;
use plinth_storage::object_cache::{DerivedCache, ObjectCache};

pub use options::AdmissionOptions;
pub use plugins::{Plugin, PLUGINS};

/// The plugins that are on, and what they look at. Immutable but for the mirrors, which lock for themselves.
pub struct Plugins {
    plugins: Vec<&'static Plugin>,
    /// What plugins were told by a file.
    settings: configuration::Settings,
    /// Seconds that a pod stays on a node that is not ready (`--default-not-ready-toleration-seconds`).
    pub not_ready_toleration_seconds: i64,
    /// Seconds that a pod stays on a node that cannot be reached (`--default-unreachable-toleration-seconds`).
    pub unreachable_toleration_seconds: i64,
    /// LimitRanges.
    pub limit_ranges: ObjectCache,
    /// ResourceQuotas.
    pub resource_quotas: ObjectCache,
    /// PriorityClasses.
    pub priority_classes: ObjectCache,
    /// RuntimeClasses.
    pub runtime_classes: ObjectCache,
    /// StorageClasses.
    pub storage_classes: ObjectCache,
    /// IngressClasses.
    pub ingress_classes: ObjectCache,
    /// MutatingWebhookConfigurations.
    pub mutating_webhooks: DerivedCache<webhook::Hooks>,
    /// ValidatingWebhookConfigurations.
    pub validating_webhooks: DerivedCache<webhook::Hooks>,
    /// MutatingAdmissionPolicies.
    pub mutating_policies: DerivedCache<policy::MutatingPolicy>,
    /// MutatingAdmissionPolicyBindings.
    pub mutating_bindings: ObjectCache,
    /// ValidatingAdmissionPolicies.
    pub validating_policies: DerivedCache<policy::Policy>,
    /// ValidatingAdmissionPolicyBindings.
    pub validating_bindings: ObjectCache,
}

/// How long a pod stays on a failed node when nobody says otherwise.
const TOLERATION_SECONDS: i64 = 300;

impl Default for Plugins {
    fn default() -> Plugins {
        const GROUP: &str = "admissionregistration.k8s.io";
        let hooks = |plural| DerivedCache::new(ObjectCache::new(GROUP, "v1", plural), webhook::Hooks::read);
        Plugins {
            plugins: PLUGINS.iter().filter(|plugin| plugin.on).collect(),
            settings: configuration::Settings::default(),
            not_ready_toleration_seconds: TOLERATION_SECONDS,
            unreachable_toleration_seconds: TOLERATION_SECONDS,
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

impl Plugins {
    /// Whether a plugin is on.
    pub fn runs(&self, name: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.name == name)
    }
}

/// The namespace that the request is in; `None` when it is not there.
async fn namespace_of(call: &Call<'_>) -> Result<Option<Value>, ApiError> {
    let namespaces = call.cx.registry.get("", "v1", "namespaces").ok_or_else(ApiError::no_such_resource)?;
    let Some(form) = &namespaces.storage else { return Ok(None) };
    match call.cx.stored(form, "", call.namespace).await? {
        Some(record) => Ok(Some(plinth_storage::object::to_tree(namespaces, &record)?)),
        None => Ok(None),
    }
}

/// A request on its way through the plugins. Belongs to one run of them; the lock is held for a look and a note alone.
struct Call<'c> {
    request: &'c AdmissionRequest<'c>,
    /// What plugins look at.
    admission: &'c Plugins,
    /// What mutating webhooks and policies did so far.
    rounds: Mutex<reinvocation::Rounds>,
}

impl<'c> Deref for Call<'c> {
    type Target = AdmissionRequest<'c>;

    fn deref(&self) -> &AdmissionRequest<'c> {
        self.request
    }
}

impl Admission for Plugins {
    fn mutate<'a>(&'a self, request: &'a AdmissionRequest<'a>, object: &'a mut Value) -> Outcome<'a, bool> {
        Box::pin(async move {
            let call = Call { request, admission: self, rounds: Mutex::default() };
            let ran = mutate_once(&call, object).await?;
            let again = {
                let mut rounds = call.rounds.lock();
                rounds.second = true;
                rounds.changed
            };
            // What a webhook or policy changed, the others get to see once more.
            if again {
                mutate_once(&call, object).await?;
                // They may have moved it elsewhere.
                if object.get("metadata").is_some() {
                    object_meta::match_namespace(&request.cx.resource, &request.cx.info, object)?;
                }
            }
            Ok(ran)
        })
    }

    fn validate<'a>(&'a self, request: &'a AdmissionRequest<'a>, object: &'a Value) -> Outcome<'a, ()> {
        Box::pin(async move {
            let call = Call { request, admission: self, rounds: Mutex::default() };
            for plugin in self.plugins.iter().filter(|plugin| plugin.sees(&call)) {
                if let Some(validate) = plugin.validate {
                    validate(&call, object).await?;
                }
            }
            Ok(())
        })
    }
}

async fn mutate_once(call: &Call<'_>, object: &mut Value) -> Result<bool, ApiError> {
    let mut ran = false;
    for plugin in call.admission.plugins.iter().filter(|plugin| plugin.sees(call)) {
        if let Some(mutate) = plugin.mutate {
            mutate(call, object).await?;
            // Webhooks and policies see every request, and say whether they changed something; the others are few.
            ran |= !matches!(plugin.name, webhook::MUTATING | plugins::MUTATING_POLICY)
                || call.rounds.lock().changed;
        }
    }
    Ok(ran)
}
