//! Admission: plugins that mutate and validate the object of a write.
//!
//! Plugins are rows of one table (`plugins`), in upstream's order (kubernetes
//! `pkg/kubeapiserver/options/plugins.go`): name, whether it is on by default, which requests it handles, and
//! its functions. A write runs the mutating functions after decoding and defaulting and before validation,
//! the validating functions on the object as it will be stored.
//!
//! | plugin | module |
//! |---|---|
//! | no creates in absent or terminating namespaces; system namespaces cannot be deleted | `namespace_lifecycle` |
//! | missing namespaces are created | `namespace_auto_provision` |
//! | required anti-affinity by node only | `anti_affinity` |
//! | defaults and bounds of requests and limits | `limit_ranger` |
//! | kubelets change their own objects only | `node_restriction` |
//! | a pod's account and its token | `service_account` |
//! | the taint of new nodes | `taint_nodes_by_condition` |
//! | images are always pulled | `always_pull_images` |
//! | a webhook decides which images may run | `image_policy` |
//! | the Pod Security Standards | `pod_security` |
//! | node selectors per namespace | `pod_node_selector` |
//! | a pod's priority | `priority` |
//! | default tolerations of failed nodes | `default_toleration_seconds` |
//! | tolerations per namespace | `pod_toleration_restriction` |
//! | limits on the rate of events | `event_rate_limit` |
//! | tolerations of extended resources | `extended_resource_toleration` |
//! | default class and resizing of claims, protection finalizers | `storage` |
//! | permissions for owner references | `owner_references` |
//! | overhead and scheduling of runtime classes | `runtime_class` |
//! | permissions to approve, sign and attest per signer | `signers` |
//! | no client certificate of `system:masters` | `certificate_subject_restriction` |
//! | default class of an Ingress | `default_ingress_class` |
//! | no external IPs of Services | `deny_service_external_ips` |
//! | zone and region labels of bound pods | `pod_topology_labels` |
//! | running pods are changed as their node allows | `pod_resize` |
//! | webhooks | `webhook` |
//! | policies in CEL | `policy` |
//! | resource quotas | `resource_quota` |
//! | denies everything | `always_deny` |
//!
//! `call` is a write that passes the plugins, `plugin_context` what they are given beside it. `matching`
//! matches requests with webhooks and policies, `expressions` evaluates their CEL, `mutated` decodes mutated
//! objects, `configuration` loads the plugins' configuration file and `section` the part of one plugin,
//! `reinvocation` tracks the second round of webhooks and policies, `namespace` reads the namespace of a
//! request, `resource_list` adds up what pods request.
//!
//! A plugin that needs a small collection for every write is given one of the caches of `collections`.

mod always_deny;
mod always_pull_images;
mod anti_affinity;
mod call;
#[cfg(test)]
mod certificate_request_tests;
pub(crate) mod certificate_subject_restriction;
mod collections;
pub mod configuration;
mod conversions;
mod converted;
mod default_ingress_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod event_rate_limit;
pub(crate) mod expressions;
mod extended_resource_toleration;
pub(crate) mod image_policy;
mod limit_ranger;
mod matching;
mod mutated;
mod namespace;
mod namespace_auto_provision;
mod namespace_lifecycle;
pub(crate) mod node_restriction;
pub mod options;
mod owner_references;
mod plugin_context;
mod plugins;
mod pod_groups;
mod pod_node_selector;
mod pod_resize;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
pub mod policy;
mod priority;
mod reinvocation;
mod resource_list;
pub(crate) mod resource_quota;
mod runtime_class;
mod section;
mod service_account;
mod signers;
mod static_manifests;
pub(crate) mod storage;
mod taint_nodes_by_condition;
mod tolerations;
pub mod webhook;

use std::time::Instant;

use parking_lot::Mutex;
use plinth_codec::Value;

use plinth_api::ApiError;
use plinth_apiserver::context::{Admission, AdmissionRequest, Outcome};
use plinth_apiserver::metrics::{AdmissionSeries, Stage};
use plinth_registry::match_namespace;

use call::Call;
use converted::Conversions;
use plugin_context::PluginContext;

pub use options::AdmissionOptions;
pub use plugins::{Plugin, PLUGINS};

/// The plugins that are on, and their caches. Immutable but for the caches, which lock internally.
pub struct Plugins {
    plugins: Vec<ActivePlugin>,
    pub(crate) context: PluginContext,
}

impl Default for Plugins {
    fn default() -> Plugins {
        Plugins {
            plugins: PLUGINS.iter().filter(|plugin| plugin.on).map(ActivePlugin::new).collect(),
            context: PluginContext::default(),
        }
    }
}

impl Plugins {
    /// Whether a plugin is on.
    pub fn runs(&self, name: &str) -> bool {
        self.plugins.iter().any(|active| active.plugin.name == name)
    }
}

/// A plugin that is on, and its series.
struct ActivePlugin {
    plugin: &'static Plugin,
    series: AdmissionSeries,
}

impl ActivePlugin {
    fn new(plugin: &'static Plugin) -> ActivePlugin {
        ActivePlugin { plugin, series: AdmissionSeries::default() }
    }

    fn observe(&self, call: &Call<'_>, stage: Stage, rejected: bool, begun: Instant) {
        let (metrics, what) = (&call.cx.server.metrics.admission, (stage, call.operation.as_str(), rejected));
        metrics.plugin(self.plugin.name, &self.series, what, begun.elapsed());
    }
}

fn observe_step(request: &AdmissionRequest<'_>, stage: Stage, rejected: bool, begun: Instant) {
    let what = (stage, request.operation.as_str(), rejected);
    request.cx.server.metrics.admission.step(what, begun.elapsed());
}

impl Admission for Plugins {
    fn mutate<'a>(&'a self, request: &'a AdmissionRequest<'a>, object: &'a mut Value) -> Outcome<'a, bool> {
        Box::pin(async move {
            let (call, begun) = (new_call(request), Instant::now());
            let first = self.mutate_once(&call, object).await;
            observe_step(request, Stage::Mutating, first.is_err(), begun);
            let ran = first?;
            let reinvoke = {
                let mut reinvocation = call.reinvocation.lock();
                reinvocation.second = true;
                reinvocation.changed
            };
            // Changes of webhooks and policies are shown to the others in a second round.
            if reinvoke {
                let begun = Instant::now();
                let second = self.mutate_once(&call, object).await;
                observe_step(request, Stage::Mutating, second.is_err(), begun);
                second?;
                // Plugins may have changed the namespace.
                if object.get("metadata").is_some() {
                    match_namespace(&request.cx.resource, &request.cx.info, object)?;
                }
            }
            Ok(ran)
        })
    }

    fn validate<'a>(&'a self, request: &'a AdmissionRequest<'a>, object: &'a Value) -> Outcome<'a, ()> {
        Box::pin(async move {
            let (call, begun) = (new_call(request), Instant::now());
            let outcome = self.validate_once(&call, object).await;
            observe_step(request, Stage::Validating, outcome.is_err(), begun);
            outcome
        })
    }
}

fn new_call<'c>(request: &'c AdmissionRequest<'c>) -> Call<'c> {
    Call { request, conversions: Conversions::default(), reinvocation: Mutex::default() }
}

impl Plugins {
    async fn validate_once(&self, call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
        for active in self.plugins.iter().filter(|active| active.plugin.handles(call)) {
            if let Some(validate) = active.plugin.validate {
                let begun = Instant::now();
                let outcome = validate(call, &self.context, object).await;
                active.observe(call, Stage::Validating, outcome.is_err(), begun);
                outcome?;
            }
        }
        Ok(())
    }

    async fn mutate_once(&self, call: &Call<'_>, object: &mut Value) -> Result<bool, ApiError> {
        let mut ran = false;
        for active in self.plugins.iter().filter(|active| active.plugin.handles(call)) {
            let plugin = active.plugin;
            if let Some(mutate) = plugin.mutate {
                let begun = Instant::now();
                let outcome = mutate(call, &self.context, object).await;
                active.observe(call, Stage::Mutating, outcome.is_err(), begun);
                outcome?;
                // Webhooks and policies handle every request, and report whether they changed it; the others
                // are few.
                ran |= !matches!(plugin.name, webhook::MUTATING | plugins::MUTATING_POLICY)
                    || call.reinvocation.lock().changed;
            }
        }
        Ok(ran)
    }
}
