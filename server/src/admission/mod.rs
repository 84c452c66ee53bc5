//! Admission: what is filled in, and what is refused, around the object that a write is about.
//!
//! Plugins are rows of one table, in upstream's order (kubernetes `pkg/kubeapiserver/options/plugins.go`): name, whether it is
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
//! `matching` says which requests webhooks and policies concern, `expressions` evaluates what they say in CEL, `made` takes what
//! they made of an object, `configuration` has what a file tells plugins, `reinvocation` knows which of them are asked twice.
//!
//! A plugin that reads a small collection on every write takes it from a [`crate::storage::mirror::Mirror`].

mod always_deny;
mod always_pull_images;
mod amounts;
mod anti_affinity;
mod certificate_subject_restriction;
pub mod configuration;
mod default_ingress_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod event_rate_limit;
pub(crate) mod expressions;
mod extended_resource_toleration;
mod image_policy;
mod limit_ranger;
mod made;
mod matching;
mod namespace_auto_provision;
mod namespace_lifecycle;
pub mod namespaces;
mod node_restriction;
pub mod options;
mod owner_references;
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

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_codec::Value;
use plinth_engine::{Condition, Transaction};

use self::namespaces::Namespaces;
use crate::handlers::Context;
use crate::metadata;
use crate::status::ApiError;
use crate::storage::mirror::{Derived, Mirror};

pub use options::AdmissionOptions;

/// What a request does to the object, in the words of `AdmissionReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object, or a POST to a subresource.
    Create,
    /// A change.
    Update,
    /// A deletion.
    Delete,
    /// A connection through the server: exec, attach, port-forward, proxy.
    Connect,
}

impl Operation {
    /// The word in `AdmissionReview`.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// One write on its way through admission. It belongs to one request; the lock is held for the moment of adding alone.
pub struct Call<'a> {
    /// The request: who asks, for what, and the server.
    pub cx: &'a Context,
    /// What is done.
    pub operation: Operation,
    /// Name of the object; empty at create while the server has not generated it.
    pub name: &'a str,
    /// Namespace of the object; empty for cluster-scoped ones.
    pub namespace: &'a str,
    /// The object as it is stored; `None` at create.
    pub old: Option<&'a Value>,
    /// Whether nothing is to be kept of what this request does.
    pub dry_run: bool,
    effects: Mutex<Effects>,
    /// What mutating webhooks and policies did so far.
    rounds: Mutex<reinvocation::Rounds>,
}

/// What a plugin wants written in the transaction of the object itself, or not at all.
#[derive(Debug, Default)]
pub struct Effects {
    conditions: Vec<Condition>,
    puts: Vec<(Bytes, Bytes)>,
}

impl Effects {
    /// The transaction with the effects' conditions and operations.
    pub fn add_to(self, mut transaction: Transaction) -> Transaction {
        for condition in self.conditions {
            transaction = transaction.require(condition);
        }
        for (key, value) in self.puts {
            transaction = transaction.put(key, value);
        }
        transaction
    }

    /// Whether the transaction can fail because somebody else was quicker.
    pub fn can_race(&self) -> bool {
        !self.conditions.is_empty()
    }
}

impl<'a> Call<'a> {
    /// A call about the object that the request names.
    pub fn new(cx: &'a Context, operation: Operation, old: Option<&'a Value>) -> Call<'a> {
        Call {
            cx,
            operation,
            name: &cx.info.name,
            namespace: crate::handlers::key_namespace(cx),
            old,
            dry_run: cx.query.is_dry_run(),
            effects: Mutex::default(),
            rounds: Mutex::default(),
        }
    }

    /// The name as webhooks and policies see it: empty when the server has not generated it yet.
    pub fn object_name<'v>(&'v self, object: &'v Value) -> &'v str {
        match metadata::text(object, "name") {
            "" => self.name,
            name => name,
        }
    }

    /// Whether the request is about a namespace.
    pub fn is_about_namespace(&self) -> bool {
        self.cx.resource.plural() == "namespaces" && self.cx.resource.group().is_empty()
    }

    /// The namespace as webhooks and policies see it: a namespace is in itself.
    pub fn request_namespace<'v>(&'v self, object: &'v Value) -> &'v str {
        match self.is_about_namespace() {
            true => self.object_name(object),
            false => self.namespace,
        }
    }

    /// Adds a write to the transaction: the value at the key, on that condition.
    pub fn write(&self, condition: Condition, key: Bytes, value: Bytes) {
        let mut effects = self.effects.lock();
        effects.conditions.push(condition);
        effects.puts.push((key, value));
    }

    /// What the plugins want written; asked once, after the validating halves.
    pub fn effects(self) -> Effects {
        self.effects.into_inner()
    }

    /// 403 in upstream's words: `pods "x" is forbidden: why`.
    pub fn forbidden(&self, object: &Value, why: &str) -> ApiError {
        let given = metadata::text(object, "name");
        let prefix = metadata::text(object, "generateName");
        // The path has it before the body: an eviction may name another pod.
        let name = match (self.name, given, prefix) {
            ("", "", prefix) => prefix,
            ("", given, _) => given,
            (name, ..) => name,
        };
        ApiError::forbidden(self.cx.resource.group(), self.cx.resource.plural(), name, why)
    }
}

/// What a plugin's half answers.
pub type Outcome<'a> = Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + 'a>>;

/// A half that may change the object.
pub type Mutate = for<'a> fn(&'a Call<'a>, &'a mut Value) -> Outcome<'a>;
/// A half that may refuse it. A deletion has no new object: then it is null.
pub type Validate = for<'a> fn(&'a Call<'a>, &'a Value) -> Outcome<'a>;

/// Requests that a plugin sees: group, resource, subresource and operations; `*` is each group, resource or subresource.
pub type Sees = (&'static str, &'static str, &'static str, &'static [Operation]);

/// One admission plugin.
pub struct Plugin {
    /// Upstream's name, as in `--enable-admission-plugins`.
    pub name: &'static str,
    /// Whether it is on unless a flag says otherwise.
    pub on: bool,
    /// Which requests it sees.
    pub sees: &'static [Sees],
    /// The half that may change the object.
    pub mutate: Option<Mutate>,
    /// The half that may refuse it.
    pub validate: Option<Validate>,
}

use Operation::{Connect, Create, Delete, Update};

const PODS: Sees = ("", "pods", "", &[Create]);
const PODS_CHANGED: Sees = ("", "pods", "", &[Create, Update]);
const EVERYTHING: &[Sees] = &[("*", "*", "*", &[Create, Update, Delete, Connect])];
const CLAIMS: Sees = ("", "persistentvolumeclaims", "", &[Create]);

/// The namespace that the request is in; `None` when it is not there.
async fn namespace_of(call: &Call<'_>) -> Result<Option<Value>, ApiError> {
    let namespaces = call.cx.registry.get("", "v1", "namespaces").ok_or_else(ApiError::no_such_resource)?;
    let Some(form) = &namespaces.storage else { return Ok(None) };
    match call.cx.server.store.get(form, "", call.namespace).await? {
        Some(record) => Ok(Some(crate::storage::object::to_tree(namespaces, &record)?)),
        None => Ok(None),
    }
}

/// A half that decides at once.
fn at_once<'a>(outcome: Result<(), ApiError>) -> Outcome<'a> {
    Box::pin(std::future::ready(outcome))
}

const CHANGED: &[Operation] = &[Create, Update, Delete];

/// The plugin that asks mutating policies.
const MUTATING_POLICY: &str = "MutatingAdmissionPolicy";

/// Every plugin, in the order that they run in.
pub static PLUGINS: &[Plugin] = &[
    Plugin {
        name: "NamespaceAutoProvision",
        on: false,
        sees: &[("*", "*", "*", &[Create])],
        mutate: Some(|call, object| Box::pin(namespace_auto_provision::admit(call, object))),
        validate: None,
    },
    Plugin {
        name: "NamespaceLifecycle",
        on: true,
        sees: &[("*", "*", "*", &[Create]), ("", "namespaces", "", &[Delete])],
        mutate: Some(|call, object| Box::pin(namespace_lifecycle::admit(call, object))),
        validate: None,
    },
    Plugin {
        name: "LimitPodHardAntiAffinityTopology",
        on: false,
        sees: &[PODS_CHANGED],
        mutate: None,
        validate: Some(|call, pod| at_once(anti_affinity::validate(call, pod))),
    },
    Plugin {
        name: "LimitRanger",
        on: true,
        sees: &[
            PODS,
            ("", "pods", "resize", &[Update]),
            ("", "persistentvolumeclaims", "", &[Create, Update]),
        ],
        mutate: Some(|call, object| Box::pin(limit_ranger::admit(call, object))),
        validate: Some(|call, object| Box::pin(limit_ranger::validate(call, object))),
    },
    Plugin {
        name: "ServiceAccount",
        on: true,
        sees: &[PODS, ("", "pods", "ephemeralcontainers", &[Update])],
        mutate: Some(|call, pod| Box::pin(service_account::admit(call, pod))),
        validate: Some(|call, pod| Box::pin(service_account::validate(call, pod))),
    },
    Plugin {
        name: "NodeRestriction",
        // Off upstream unless a flag says otherwise; here the Node authorizer, which needs it, is on.
        on: true,
        sees: &[
            ("", "pods", "*", CHANGED),
            ("", "nodes", "*", CHANGED),
            ("", "persistentvolumeclaims", "*", CHANGED),
            ("", "serviceaccounts", "token", &[Create]),
            ("certificates.k8s.io", "podcertificaterequests", "*", CHANGED),
            ("certificates.k8s.io", "certificatesigningrequests", "", &[Create]),
            ("coordination.k8s.io", "leases", "*", CHANGED),
            ("resource.k8s.io", "resourceslices", "*", CHANGED),
            ("storage.k8s.io", "csinodes", "*", CHANGED),
        ],
        mutate: Some(|call, object| Box::pin(node_restriction::admit(call, object))),
        validate: None,
    },
    Plugin {
        name: "TaintNodesByCondition",
        on: true,
        sees: &[("", "nodes", "", &[Create])],
        mutate: Some(|_, node| {
            taint_nodes_by_condition::admit(node);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: "AlwaysPullImages",
        on: false,
        sees: &[PODS_CHANGED],
        mutate: Some(|call, pod| {
            always_pull_images::admit(call, pod);
            at_once(Ok(()))
        }),
        validate: Some(|call, pod| at_once(always_pull_images::validate(call, pod))),
    },
    Plugin {
        name: image_policy::NAME,
        on: false,
        sees: &[PODS_CHANGED, ("", "pods", "ephemeralcontainers", &[Update])],
        mutate: None,
        validate: Some(|call, pod| Box::pin(image_policy::validate(call, pod))),
    },
    Plugin {
        name: "PodSecurity",
        on: true,
        sees: &[
            ("", "namespaces", "", &[Create, Update]),
            ("", "pods", "*", &[Create, Update]),
            ("", "podtemplates", "", &[Create, Update]),
            ("", "replicationcontrollers", "", &[Create, Update]),
            ("apps", "*", "", &[Create, Update]),
            ("batch", "*", "", &[Create, Update]),
        ],
        mutate: None,
        validate: Some(|call, object| Box::pin(pod_security::validate(call, object))),
    },
    Plugin {
        name: pod_node_selector::NAME,
        on: false,
        sees: &[PODS],
        mutate: Some(|call, pod| Box::pin(pod_node_selector::admit(call, pod))),
        validate: Some(|call, pod| Box::pin(pod_node_selector::validate(call, pod))),
    },
    Plugin {
        name: "Priority",
        on: true,
        sees: &[PODS_CHANGED, ("scheduling.k8s.io", "priorityclasses", "", &[Create, Update])],
        mutate: Some(|call, object| match call.cx.resource.plural() {
            "pods" => Box::pin(priority::admit_pod(call, object)),
            _ => at_once(Ok(())),
        }),
        validate: Some(|call, object| match call.cx.resource.plural() {
            "pods" => at_once(Ok(())),
            _ => Box::pin(priority::validate_class(call, object)),
        }),
    },
    Plugin {
        name: "DefaultTolerationSeconds",
        on: true,
        sees: &[PODS_CHANGED],
        mutate: Some(|call, pod| {
            default_toleration_seconds::admit(call, pod);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: pod_toleration_restriction::NAME,
        on: false,
        sees: &[PODS_CHANGED],
        mutate: Some(|call, pod| Box::pin(pod_toleration_restriction::admit(call, pod))),
        validate: Some(|call, pod| Box::pin(pod_toleration_restriction::validate(call, pod))),
    },
    Plugin {
        name: event_rate_limit::NAME,
        on: false,
        // Those of `events.k8s.io` pass, as upstream.
        sees: &[("", "events", "", &[Create, Update])],
        mutate: None,
        validate: Some(|call, event| at_once(event_rate_limit::validate(call, event))),
    },
    Plugin {
        name: "ExtendedResourceToleration",
        on: false,
        sees: &[PODS_CHANGED],
        mutate: Some(|_, pod| {
            extended_resource_toleration::admit(pod);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: "DefaultStorageClass",
        on: true,
        sees: &[CLAIMS],
        mutate: Some(|call, claim| Box::pin(storage::default_class(call, claim))),
        validate: None,
    },
    Plugin {
        name: "StorageObjectInUseProtection",
        on: true,
        sees: &[
            CLAIMS,
            ("", "persistentvolumes", "", &[Create]),
            ("storage.k8s.io", "volumeattributesclasses", "", &[Create]),
        ],
        mutate: Some(|call, object| {
            storage::protect(call, object);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: "OwnerReferencesPermissionEnforcement",
        on: false,
        sees: &[("*", "*", "*", &[Create, Update])],
        mutate: None,
        validate: Some(|call, object| Box::pin(owner_references::validate(call, object))),
    },
    Plugin {
        name: "PersistentVolumeClaimResize",
        on: true,
        sees: &[("", "persistentvolumeclaims", "", &[Update])],
        mutate: None,
        validate: Some(|call, claim| Box::pin(storage::validate_resize(call, claim))),
    },
    Plugin {
        name: "RuntimeClass",
        on: true,
        sees: &[PODS],
        mutate: Some(|call, pod| Box::pin(runtime_class::admit(call, pod))),
        validate: Some(|call, pod| Box::pin(runtime_class::validate(call, pod))),
    },
    Plugin {
        name: "CertificateApproval",
        on: true,
        sees: &[("certificates.k8s.io", "certificatesigningrequests", "approval", &[Update])],
        mutate: None,
        validate: Some(|call, object| Box::pin(signers::approve(call, object))),
    },
    Plugin {
        name: "CertificateSigning",
        on: true,
        sees: &[("certificates.k8s.io", "certificatesigningrequests", "status", &[Update])],
        mutate: None,
        validate: Some(|call, object| Box::pin(signers::sign(call, object))),
    },
    Plugin {
        name: "ClusterTrustBundleAttest",
        on: true,
        sees: &[("certificates.k8s.io", "clustertrustbundles", "*", &[Create, Update])],
        mutate: None,
        validate: Some(|call, object| Box::pin(signers::attest(call, object))),
    },
    Plugin {
        name: "CertificateSubjectRestriction",
        on: true,
        sees: &[("certificates.k8s.io", "certificatesigningrequests", "", &[Create])],
        mutate: None,
        validate: Some(|call, request| at_once(certificate_subject_restriction::validate(call, request))),
    },
    Plugin {
        name: "DefaultIngressClass",
        on: true,
        sees: &[("networking.k8s.io", "ingresses", "", &[Create])],
        mutate: Some(|call, ingress| Box::pin(default_ingress_class::admit(call, ingress))),
        validate: None,
    },
    Plugin {
        name: "DenyServiceExternalIPs",
        on: false,
        sees: &[("", "services", "", &[Create, Update])],
        mutate: None,
        validate: Some(|call, service| at_once(deny_service_external_ips::validate(call, service))),
    },
    Plugin {
        name: "PodTopologyLabels",
        on: true,
        sees: &[PODS, ("", "pods", "binding", &[Create]), ("", "bindings", "", &[Create])],
        mutate: Some(|call, object| Box::pin(pod_topology_labels::admit(call, object))),
        validate: None,
    },
    Plugin {
        name: MUTATING_POLICY,
        on: true,
        sees: &[("*", "*", "*", &[Create, Update, Connect])],
        mutate: Some(|call, object| Box::pin(policy::mutating::mutate(call, object))),
        validate: None,
    },
    Plugin {
        name: webhook::MUTATING,
        on: true,
        sees: EVERYTHING,
        mutate: Some(|call, object| Box::pin(webhook::mutate(call, object))),
        validate: None,
    },
    Plugin {
        name: "ValidatingAdmissionPolicy",
        on: true,
        sees: EVERYTHING,
        mutate: None,
        validate: Some(|call, object| Box::pin(policy::validate(call, object))),
    },
    Plugin {
        name: "ValidatingAdmissionWebhook",
        on: true,
        sees: EVERYTHING,
        mutate: None,
        validate: Some(|call, object| Box::pin(webhook::validate(call, object))),
    },
    Plugin {
        name: "ResourceQuota",
        on: true,
        sees: &[("*", "*", "", &[Create, Update]), ("", "pods", "resize", &[Update])],
        mutate: None,
        validate: Some(|call, object| Box::pin(resource_quota::validate(call, object))),
    },
    Plugin {
        name: "AlwaysDeny",
        on: false,
        sees: EVERYTHING,
        mutate: Some(|call, object| at_once(always_deny::refuse(call, object))),
        validate: Some(|call, object| at_once(always_deny::refuse(call, object))),
    },
];

impl Plugin {
    fn sees(&self, call: &Call<'_>) -> bool {
        let info = &call.cx.info;
        let fits = |pattern: &str, given: &str| pattern == "*" || pattern == given;
        self.sees.iter().any(|(group, resource, subresource, operations)| {
            operations.contains(&call.operation)
                && fits(resource, &info.resource)
                && fits(group, &info.group)
                && fits(subresource, &info.subresource)
        })
    }
}

/// The plugins that are on, and what they look at. Immutable but for the mirrors, which lock for themselves.
pub struct Admission {
    plugins: Vec<&'static Plugin>,
    /// What plugins were told by a file.
    settings: configuration::Settings,
    /// Seconds that a pod stays on a node that is not ready (`--default-not-ready-toleration-seconds`).
    pub not_ready_toleration_seconds: i64,
    /// Seconds that a pod stays on a node that cannot be reached (`--default-unreachable-toleration-seconds`).
    pub unreachable_toleration_seconds: i64,
    /// Namespaces.
    pub namespaces: Namespaces,
    /// LimitRanges.
    pub limit_ranges: Mirror,
    /// ResourceQuotas.
    pub resource_quotas: Mirror,
    /// PriorityClasses.
    pub priority_classes: Mirror,
    /// RuntimeClasses.
    pub runtime_classes: Mirror,
    /// StorageClasses.
    pub storage_classes: Mirror,
    /// IngressClasses.
    pub ingress_classes: Mirror,
    /// MutatingWebhookConfigurations.
    pub mutating_webhooks: Derived<webhook::Hooks>,
    /// ValidatingWebhookConfigurations.
    pub validating_webhooks: Derived<webhook::Hooks>,
    /// MutatingAdmissionPolicies.
    pub mutating_policies: Derived<policy::MutatingPolicy>,
    /// MutatingAdmissionPolicyBindings.
    pub mutating_bindings: Mirror,
    /// ValidatingAdmissionPolicies.
    pub validating_policies: Derived<policy::Policy>,
    /// ValidatingAdmissionPolicyBindings.
    pub validating_bindings: Mirror,
}

/// How long a pod stays on a failed node when nobody says otherwise.
const TOLERATION_SECONDS: i64 = 300;

impl Default for Admission {
    fn default() -> Admission {
        const GROUP: &str = "admissionregistration.k8s.io";
        let hooks = |plural| Derived::new(Mirror::new(GROUP, "v1", plural), webhook::Hooks::read);
        Admission {
            plugins: PLUGINS.iter().filter(|plugin| plugin.on).collect(),
            settings: configuration::Settings::default(),
            not_ready_toleration_seconds: TOLERATION_SECONDS,
            unreachable_toleration_seconds: TOLERATION_SECONDS,
            namespaces: Namespaces::default(),
            limit_ranges: Mirror::new("", "v1", "limitranges"),
            resource_quotas: Mirror::new("", "v1", "resourcequotas"),
            priority_classes: Mirror::new("scheduling.k8s.io", "v1", "priorityclasses"),
            runtime_classes: Mirror::new("node.k8s.io", "v1", "runtimeclasses"),
            storage_classes: Mirror::new("storage.k8s.io", "v1", "storageclasses"),
            ingress_classes: Mirror::new("networking.k8s.io", "v1", "ingressclasses"),
            mutating_webhooks: hooks("mutatingwebhookconfigurations"),
            validating_webhooks: hooks("validatingwebhookconfigurations"),
            mutating_policies: Derived::new(
                Mirror::new(GROUP, "v1", "mutatingadmissionpolicies"),
                policy::MutatingPolicy::read,
            ),
            mutating_bindings: Mirror::new(GROUP, "v1", "mutatingadmissionpolicybindings"),
            validating_policies: Derived::new(
                Mirror::new(GROUP, "v1", "validatingadmissionpolicies"),
                policy::Policy::read,
            ),
            validating_bindings: Mirror::new(GROUP, "v1", "validatingadmissionpolicybindings"),
        }
    }
}

impl Admission {
    /// Whether a plugin is on.
    pub fn runs(&self, name: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.name == name)
    }
}

/// Runs the mutating halves; true when the object may have been changed.
///
/// # Errors
/// What a plugin refuses with.
pub async fn mutate(call: &Call<'_>, object: &mut Value) -> Result<bool, ApiError> {
    let ran = mutate_once(call, object).await?;
    let again = {
        let mut rounds = call.rounds.lock();
        rounds.second = true;
        rounds.changed
    };
    // What a webhook or policy changed, the others get to see once more.
    if again {
        mutate_once(call, object).await?;
        // They may have moved it elsewhere.
        if object.get("metadata").is_some() {
            metadata::match_namespace(&call.cx.resource, &call.cx.info, object)?;
        }
    }
    Ok(ran)
}

async fn mutate_once(call: &Call<'_>, object: &mut Value) -> Result<bool, ApiError> {
    let mut ran = false;
    for plugin in call.cx.server.admission.plugins.iter().filter(|plugin| plugin.sees(call)) {
        if let Some(mutate) = plugin.mutate {
            mutate(call, object).await?;
            // Webhooks and policies see every request, and say whether they changed something; the others are few.
            ran |= !matches!(plugin.name, webhook::MUTATING | MUTATING_POLICY) || call.rounds.lock().changed;
        }
    }
    Ok(ran)
}

/// Runs the validating halves.
///
/// # Errors
/// What a plugin refuses with.
pub async fn validate(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    for plugin in call.cx.server.admission.plugins.iter().filter(|plugin| plugin.sees(call)) {
        if let Some(validate) = plugin.validate {
            validate(call, object).await?;
        }
    }
    Ok(())
}
