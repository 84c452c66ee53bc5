//! The table of plugins.

use plinth_codec::Value;

use super::call::Call;
use super::plugin_context::PluginContext;
use super::{
    always_deny, always_pull_images, anti_affinity, certificate_subject_restriction, default_ingress_class,
    default_toleration_seconds, deny_service_external_ips, event_rate_limit, extended_resource_toleration,
    image_policy, limit_ranger, namespace_auto_provision, namespace_lifecycle, node_restriction,
    owner_references, pod_groups, pod_node_selector, pod_resize, pod_security, pod_toleration_restriction,
    pod_topology_labels, policy, priority, resource_quota, runtime_class, service_account, signers, storage,
    taint_nodes_by_condition, webhook,
};
use plinth_api::ApiError;
use plinth_apiserver::context::Operation::{self, Connect, Create, Delete, Update};
use plinth_apiserver::context::Outcome;

/// A mutating function.
pub(super) type Mutate = for<'a> fn(&'a Call<'a>, &'a PluginContext, &'a mut Value) -> Outcome<'a, ()>;
/// A validating function. The object is null at a deletion.
pub(super) type Validate = for<'a> fn(&'a Call<'a>, &'a PluginContext, &'a Value) -> Outcome<'a, ()>;

/// Requests that a plugin handles: group, resource, subresource and operations; `*` is any group, resource or
/// subresource.
pub(crate) type Handled = (&'static str, &'static str, &'static str, &'static [Operation]);

/// One admission plugin.
pub struct Plugin {
    /// Upstream's name, as in `--enable-admission-plugins`.
    pub name: &'static str,
    /// Whether it is on by default.
    pub on: bool,
    /// Which requests it handles.
    pub handles: &'static [Handled],
    /// The mutating function.
    pub(super) mutate: Option<Mutate>,
    /// The validating function.
    pub(super) validate: Option<Validate>,
}

const PODS: Handled = ("", "pods", "", &[Create]);
const RESIZE: Handled = ("", "pods", "resize", &[Update]);
const PODS_CHANGED: Handled = ("", "pods", "", &[Create, Update]);
const EVERYTHING: &[Handled] = &[("*", "*", "*", &[Create, Update, Delete, Connect])];
const POD_GROUPS: Handled = ("scheduling.k8s.io", "podgroups", "", &[Create]);
const CLAIMS: Handled = ("", "persistentvolumeclaims", "", &[Create]);

/// A function that does not wait.
fn at_once<'a>(outcome: Result<(), ApiError>) -> Outcome<'a, ()> {
    Box::pin(std::future::ready(outcome))
}

const CHANGED: &[Operation] = &[Create, Update, Delete];

/// Name of the plugin for mutating policies.
pub(super) const MUTATING_POLICY: &str = "MutatingAdmissionPolicy";

/// Every plugin, in execution order.
pub static PLUGINS: &[Plugin] = &[
    Plugin {
        name: "NamespaceAutoProvision",
        on: false,
        handles: &[("*", "*", "*", &[Create])],
        mutate: Some(|call, _, object| Box::pin(namespace_auto_provision::admit(call, object))),
        validate: None,
    },
    Plugin {
        name: "NamespaceLifecycle",
        on: true,
        handles: &[("*", "*", "*", &[Create]), ("", "namespaces", "", &[Delete])],
        mutate: Some(|call, _, object| Box::pin(namespace_lifecycle::admit(call, object))),
        validate: None,
    },
    Plugin {
        name: "LimitPodHardAntiAffinityTopology",
        on: false,
        handles: &[PODS_CHANGED],
        mutate: None,
        validate: Some(|call, _, pod| at_once(anti_affinity::validate(call, pod))),
    },
    Plugin {
        name: "LimitRanger",
        on: true,
        handles: &[
            PODS,
            ("", "pods", "resize", &[Update]),
            ("", "persistentvolumeclaims", "", &[Create, Update]),
        ],
        mutate: Some(|call, given, object| {
            Box::pin(limit_ranger::admit(call, &given.collections.limit_ranges, object))
        }),
        validate: Some(|call, given, object| {
            Box::pin(limit_ranger::validate(call, &given.collections.limit_ranges, object))
        }),
    },
    Plugin {
        name: "ServiceAccount",
        on: true,
        handles: &[PODS, ("", "pods", "ephemeralcontainers", &[Update])],
        mutate: Some(|call, _, pod| Box::pin(service_account::admit(call, pod))),
        validate: Some(|call, _, pod| Box::pin(service_account::validate(call, pod))),
    },
    Plugin {
        name: "NodeRestriction",
        // Off by default upstream; here the Node authorizer, which needs it, is on.
        on: true,
        handles: &[
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
        mutate: Some(|call, _, object| Box::pin(node_restriction::admit(call, object))),
        validate: None,
    },
    Plugin {
        name: "TaintNodesByCondition",
        on: true,
        handles: &[("", "nodes", "", &[Create])],
        mutate: Some(|_, _, node| {
            taint_nodes_by_condition::admit(node);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: "AlwaysPullImages",
        on: false,
        handles: &[PODS_CHANGED],
        mutate: Some(|call, _, pod| {
            always_pull_images::admit(call, pod);
            at_once(Ok(()))
        }),
        validate: Some(|call, _, pod| at_once(always_pull_images::validate(call, pod))),
    },
    Plugin {
        name: image_policy::NAME,
        on: false,
        handles: &[PODS_CHANGED, ("", "pods", "ephemeralcontainers", &[Update])],
        mutate: None,
        validate: Some(|call, given, pod| {
            Box::pin(image_policy::validate(call, given.settings.image_policy.as_deref(), pod))
        }),
    },
    Plugin {
        name: pod_security::NAME,
        on: true,
        handles: &[
            ("", "namespaces", "", &[Create, Update]),
            ("", "pods", "*", &[Create, Update]),
            ("", "podtemplates", "", &[Create, Update]),
            ("", "replicationcontrollers", "", &[Create, Update]),
            ("apps", "*", "", &[Create, Update]),
            ("batch", "*", "", &[Create, Update]),
        ],
        mutate: None,
        validate: Some(|call, given, object| {
            Box::pin(pod_security::validate(call, &given.settings.pod_security, object))
        }),
    },
    Plugin {
        name: pod_node_selector::NAME,
        on: false,
        handles: &[PODS],
        mutate: Some(|call, given, pod| {
            Box::pin(pod_node_selector::admit(call, &given.settings.selectors, pod))
        }),
        validate: Some(|call, given, pod| {
            Box::pin(pod_node_selector::validate(call, &given.settings.selectors, pod))
        }),
    },
    Plugin {
        name: "Priority",
        on: true,
        handles: &[PODS_CHANGED, ("scheduling.k8s.io", "priorityclasses", "", &[Create, Update])],
        mutate: Some(|call, given, object| match call.cx.resource.plural() {
            "pods" => Box::pin(priority::admit_pod(call, &given.collections.priority_classes, object)),
            _ => at_once(Ok(())),
        }),
        validate: Some(|call, given, object| match call.cx.resource.plural() {
            "pods" => at_once(Ok(())),
            _ => Box::pin(priority::validate_class(call, &given.collections.priority_classes, object)),
        }),
    },
    Plugin {
        name: "DefaultTolerationSeconds",
        on: true,
        handles: &[PODS_CHANGED],
        mutate: Some(|_, given, pod| {
            let (not_ready, unreachable) =
                (given.not_ready_toleration_seconds, given.unreachable_toleration_seconds);
            default_toleration_seconds::admit(pod, not_ready, unreachable);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: pod_toleration_restriction::NAME,
        on: false,
        handles: &[PODS_CHANGED],
        mutate: Some(|call, given, pod| {
            Box::pin(pod_toleration_restriction::admit(call, &given.settings.tolerations, pod))
        }),
        validate: Some(|call, given, pod| {
            Box::pin(pod_toleration_restriction::validate(call, &given.settings.tolerations, pod))
        }),
    },
    Plugin {
        name: event_rate_limit::NAME,
        on: false,
        // Those of `events.k8s.io` are not handled, as upstream.
        handles: &[("", "events", "", &[Create, Update])],
        mutate: None,
        validate: Some(|call, given, event| {
            at_once(event_rate_limit::validate(call, &given.settings.event_limits, event))
        }),
    },
    Plugin {
        name: "ExtendedResourceToleration",
        on: false,
        handles: &[PODS_CHANGED],
        mutate: Some(|_, _, pod| {
            extended_resource_toleration::admit(pod);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: "DefaultStorageClass",
        on: true,
        handles: &[CLAIMS],
        mutate: Some(|call, given, claim| {
            Box::pin(storage::default_class(call, &given.collections.storage_classes, claim))
        }),
        validate: None,
    },
    Plugin {
        name: "StorageObjectInUseProtection",
        on: true,
        handles: &[
            CLAIMS,
            ("", "persistentvolumes", "", &[Create]),
            ("storage.k8s.io", "volumeattributesclasses", "", &[Create]),
        ],
        mutate: Some(|call, _, object| {
            storage::protect(call, object);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: "PodGroupProtection",
        on: true,
        handles: &[POD_GROUPS],
        mutate: Some(|_, _, group| {
            pod_groups::protect(group);
            at_once(Ok(()))
        }),
        validate: None,
    },
    Plugin {
        name: "OwnerReferencesPermissionEnforcement",
        on: false,
        handles: &[("*", "*", "*", &[Create, Update])],
        mutate: None,
        validate: Some(|call, _, object| Box::pin(owner_references::validate(call, object))),
    },
    Plugin {
        name: "PersistentVolumeClaimResize",
        on: true,
        handles: &[("", "persistentvolumeclaims", "", &[Update])],
        mutate: None,
        validate: Some(|call, given, claim| {
            Box::pin(storage::validate_resize(call, &given.collections.storage_classes, claim))
        }),
    },
    Plugin {
        name: "RuntimeClass",
        on: true,
        handles: &[PODS],
        mutate: Some(|call, given, pod| {
            Box::pin(runtime_class::admit(call, &given.collections.runtime_classes, pod))
        }),
        validate: Some(|call, given, pod| {
            Box::pin(runtime_class::validate(call, &given.collections.runtime_classes, pod))
        }),
    },
    Plugin {
        name: "CertificateApproval",
        on: true,
        handles: &[("certificates.k8s.io", "certificatesigningrequests", "approval", &[Update])],
        mutate: None,
        validate: Some(|call, _, object| Box::pin(signers::approve(call, object))),
    },
    Plugin {
        name: "CertificateSigning",
        on: true,
        handles: &[("certificates.k8s.io", "certificatesigningrequests", "status", &[Update])],
        mutate: None,
        validate: Some(|call, _, object| Box::pin(signers::sign(call, object))),
    },
    Plugin {
        name: "ClusterTrustBundleAttest",
        on: true,
        handles: &[("certificates.k8s.io", "clustertrustbundles", "*", &[Create, Update])],
        mutate: None,
        validate: Some(|call, _, object| Box::pin(signers::attest(call, object))),
    },
    Plugin {
        name: "CertificateSubjectRestriction",
        on: true,
        handles: &[("certificates.k8s.io", "certificatesigningrequests", "", &[Create])],
        mutate: None,
        validate: Some(|call, _, request| at_once(certificate_subject_restriction::validate(call, request))),
    },
    Plugin {
        name: "DefaultIngressClass",
        on: true,
        handles: &[("networking.k8s.io", "ingresses", "", &[Create])],
        mutate: Some(|call, given, ingress| {
            Box::pin(default_ingress_class::admit(call, &given.collections.ingress_classes, ingress))
        }),
        validate: None,
    },
    Plugin {
        name: "DenyServiceExternalIPs",
        on: false,
        handles: &[("", "services", "", &[Create, Update])],
        mutate: None,
        validate: Some(|call, _, service| at_once(deny_service_external_ips::validate(call, service))),
    },
    Plugin {
        name: "PodTopologyLabels",
        on: true,
        handles: &[PODS, ("", "pods", "binding", &[Create]), ("", "bindings", "", &[Create])],
        mutate: Some(|call, _, object| Box::pin(pod_topology_labels::admit(call, object))),
        validate: None,
    },
    Plugin {
        name: "PodGroupWorkloadExists",
        on: true,
        handles: &[POD_GROUPS],
        mutate: None,
        validate: Some(|call, _, group| Box::pin(pod_groups::find_template(call, group))),
    },
    Plugin {
        name: "NodeDeclaredFeatureValidator",
        on: true,
        handles: &[("", "pods", "", &[Update]), RESIZE],
        mutate: None,
        validate: Some(|call, _, pod| Box::pin(pod_resize::check_features(call, pod))),
    },
    Plugin {
        name: "PodResizeValidator",
        on: true,
        handles: &[RESIZE],
        mutate: None,
        validate: Some(|call, _, pod| Box::pin(pod_resize::check_node(call, pod))),
    },
    Plugin {
        name: MUTATING_POLICY,
        on: true,
        handles: &[("*", "*", "*", &[Create, Update, Connect])],
        mutate: Some(|call, given, object| {
            Box::pin(policy::mutating::mutate(
                call,
                (&given.collections.mutating_policies, &given.collections.mutating_bindings),
                object,
            ))
        }),
        validate: None,
    },
    Plugin {
        name: webhook::MUTATING,
        on: true,
        handles: EVERYTHING,
        mutate: Some(|call, given, object| {
            let configurations = &given.collections.mutating_webhooks;
            let credentials = &given.settings.mutating_webhooks;
            Box::pin(webhook::mutate(call, webhook::Caller { configurations, credentials }, object))
        }),
        validate: None,
    },
    Plugin {
        name: "ValidatingAdmissionPolicy",
        on: true,
        handles: EVERYTHING,
        mutate: None,
        validate: Some(|call, given, object| {
            Box::pin(policy::validate(
                call,
                (&given.collections.validating_policies, &given.collections.validating_bindings),
                object,
            ))
        }),
    },
    Plugin {
        name: webhook::VALIDATING,
        on: true,
        handles: EVERYTHING,
        mutate: None,
        validate: Some(|call, given, object| {
            let configurations = &given.collections.validating_webhooks;
            let credentials = &given.settings.validating_webhooks;
            Box::pin(webhook::validate(call, webhook::Caller { configurations, credentials }, object))
        }),
    },
    Plugin {
        name: resource_quota::NAME,
        on: true,
        handles: &[
            ("*", "*", "", &[Create, Update]),
            ("", "pods", "resize", &[Update]),
            ("", "persistentvolumeclaims", "status", &[Update]),
        ],
        mutate: None,
        validate: Some(|call, given, object| {
            let quotas = &given.collections.resource_quotas;
            Box::pin(resource_quota::validate(call, quotas, &given.settings.limited_resources, object))
        }),
    },
    Plugin {
        name: "AlwaysDeny",
        on: false,
        handles: EVERYTHING,
        mutate: Some(|call, _, object| at_once(always_deny::refuse(call, object))),
        validate: Some(|call, _, object| at_once(always_deny::refuse(call, object))),
    },
];

/// Plugins that handle custom resources with the names of a built-in kind: a node's permissions are by name,
/// as in its authorization. Other plugins for a kind use its fields, which have no meaning in a custom
/// resource.
const BY_NAME: &[&str] = &["NodeRestriction"];

impl Plugin {
    /// Whether it handles the request.
    pub(super) fn handles(&self, call: &Call<'_>) -> bool {
        let info = &call.cx.info;
        let takes_custom = BY_NAME.contains(&self.name) || !call.cx.resource.is_custom();
        let fits = |pattern: &str, given: &str| pattern == "*" || pattern == given;
        self.handles.iter().any(|(group, resource, subresource, operations)| {
            operations.contains(&call.operation)
                && (takes_custom || *resource == "*")
                && fits(resource, &info.resource)
                && fits(group, &info.group)
                && fits(subresource, &info.subresource)
        })
    }
}
