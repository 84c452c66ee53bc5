//! Defaults of the kinds that configure a cluster: networking, storage, RBAC, admission, flow control, extensions.

use plinth_codec::{tree, Map, Value};

use super::core::VOLUME_SOURCE;
use super::DefaultRule::{Computed, Ensure, Field, ForEach, IfPresent, NonZero};
use super::Literal::{Bool, EmptyObject, Int, OptionalStr, Str, Strs};
use super::{at, set, DefaultRule};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const HTTPS: i64 = 443;

/// networking.k8s.io/v1 NetworkPolicy.
pub const NETWORK_POLICY: &[DefaultRule] = &[
    Computed(policy_types),
    ForEach("spec.ingress", &[ForEach("ports", NETWORK_PORT)]),
    ForEach("spec.egress", &[ForEach("ports", NETWORK_PORT)]),
];
const NETWORK_PORT: &[DefaultRule] = &[Field("protocol", Str("TCP"))];

/// networking.k8s.io/v1 IngressClass.
pub const INGRESS_CLASS: &[DefaultRule] =
    &[IfPresent("spec.parameters", &[Field("scope", OptionalStr("Cluster"))])];

/// discovery.k8s.io/v1 EndpointSlice.
pub const ENDPOINT_SLICE: &[DefaultRule] =
    &[ForEach("ports", &[Field("name", OptionalStr("")), Field("protocol", Str("TCP"))])];

/// storage.k8s.io/v1 StorageClass.
pub const STORAGE_CLASS: &[DefaultRule] =
    &[Field("reclaimPolicy", OptionalStr("Delete")), Field("volumeBindingMode", OptionalStr("Immediate"))];

/// storage.k8s.io/v1 CSIDriver.
pub const CSI_DRIVER: &[DefaultRule] = &[
    Field("spec.attachRequired", Bool(true)),
    Field("spec.podInfoOnMount", Bool(false)),
    Field("spec.storageCapacity", Bool(false)),
    Field("spec.fsGroupPolicy", Str("ReadWriteOnceWithFSType")),
    Field("spec.volumeLifecycleModes", Strs(&["Persistent"])),
    Field("spec.requiresRepublish", Bool(false)),
    Field("spec.seLinuxMount", Bool(false)),
];

/// storage.k8s.io/v1 VolumeAttachment.
pub const VOLUME_ATTACHMENT: &[DefaultRule] = &[IfPresent("spec.source.inlineVolumeSpec", VOLUME_SOURCE)];

/// rbac.authorization.k8s.io/v1 RoleBinding and ClusterRoleBinding.
pub const ROLE_BINDING: &[DefaultRule] =
    &[Field("roleRef.apiGroup", Str(RBAC_GROUP)), ForEach("subjects", &[Computed(subject)])];

/// admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration.
pub const VALIDATING_WEBHOOKS: &[DefaultRule] = &[ForEach("webhooks", WEBHOOK)];
/// admissionregistration.k8s.io/v1 MutatingWebhookConfiguration.
pub const MUTATING_WEBHOOKS: &[DefaultRule] =
    &[ForEach("webhooks", WEBHOOK), ForEach("webhooks", &[Field("reinvocationPolicy", Str("Never"))])];
const WEBHOOK: &[DefaultRule] = &[
    Field("failurePolicy", OptionalStr("Fail")),
    Field("matchPolicy", OptionalStr("Equivalent")),
    Field("namespaceSelector", EmptyObject),
    Field("objectSelector", EmptyObject),
    Field("timeoutSeconds", Int(10)),
    ForEach("rules", RULE),
    IfPresent("clientConfig.service", SERVICE_REFERENCE),
];
const RULE: &[DefaultRule] = &[Field("scope", Str("*"))];
const SERVICE_REFERENCE: &[DefaultRule] = &[Field("port", Int(HTTPS))];

/// admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
pub const ADMISSION_POLICY: &[DefaultRule] =
    &[Field("spec.failurePolicy", Str("Fail")), IfPresent("spec.matchConstraints", MATCH_RESOURCES)];
/// admissionregistration.k8s.io/v1 bindings of the policies.
pub const ADMISSION_POLICY_BINDING: &[DefaultRule] = &[IfPresent("spec.matchResources", MATCH_RESOURCES)];
const MATCH_RESOURCES: &[DefaultRule] = &[
    Field("matchPolicy", Str("Equivalent")),
    Field("namespaceSelector", EmptyObject),
    Field("objectSelector", EmptyObject),
    ForEach("resourceRules", RULE),
    ForEach("excludeResourceRules", RULE),
];

/// flowcontrol.apiserver.k8s.io/v1 FlowSchema.
pub const FLOW_SCHEMA: &[DefaultRule] = &[Ensure("spec", &[NonZero("matchingPrecedence", 1000)])];
/// flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration.
pub const PRIORITY_LEVEL: &[DefaultRule] = &[
    IfPresent(
        "spec.limited",
        &[
            Field("nominalConcurrencyShares", Int(30)),
            Field("lendablePercent", Int(0)),
            IfPresent(
                "limitResponse.queuing",
                &[NonZero("handSize", 8), NonZero("queues", 64), NonZero("queueLengthLimit", 50)],
            ),
        ],
    ),
    IfPresent("spec.exempt", &[Field("nominalConcurrencyShares", Int(0)), Field("lendablePercent", Int(0))]),
];

/// apiregistration.k8s.io/v1 APIService.
pub const API_SERVICE: &[DefaultRule] = &[IfPresent("spec.service", SERVICE_REFERENCE)];

/// apiextensions.k8s.io/v1 CustomResourceDefinition.
pub const CUSTOM_RESOURCE_DEFINITION: &[DefaultRule] = &[
    Computed(definition_names),
    Field("spec.conversion.strategy", Str("None")),
    IfPresent("spec.conversion.webhook.clientConfig.service", SERVICE_REFERENCE),
    Computed(stored_versions),
];

/// A policy that does not say what it is about is about what comes in, and about what goes out where it has rules
/// for that.
fn policy_types(object: &mut Map) {
    let has_egress = at(object, "spec.egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
    let types = if has_egress { Strs(&["Ingress", "Egress"]) } else { Strs(&["Ingress"]) };
    super::apply(&[Field("spec.policyTypes", types)], object);
}

fn subject(subject: &mut Map) {
    if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
        super::apply(&[Field("apiGroup", Str(RBAC_GROUP))], subject);
    }
}

fn definition_names(object: &mut Map) {
    let kind = at(object, "spec.names.kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    let is_absent = |v: &Value| v.is_null() || v.as_str() == Some("");
    set(object, "spec.names.singular", &kind.to_lowercase().into(), is_absent);
    set(object, "spec.names.listKind", &format!("{kind}List").into(), is_absent);
}

/// The version that a new definition stores.
fn stored_versions(object: &mut Map) {
    let versions = at(object, "spec.versions").and_then(Value::as_array).unwrap_or_default();
    let stored = versions.iter().find(|v| v.get("storage").and_then(Value::as_bool) == Some(true));
    let Some(name) = stored.and_then(|v| v.str_at(&["name"])) else { return };
    let names = tree!([name]);
    let is_absent = |v: &Value| v.is_null() || v.as_array().is_some_and(<[Value]>::is_empty);
    set(object, "status.storedVersions", &names, is_absent);
}
