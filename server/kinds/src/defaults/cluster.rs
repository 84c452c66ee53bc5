//! Defaults of the kinds that configure a cluster: networking, storage, RBAC, admission, flow control, extensions.

use plinth_codec::{tree, Map, Value};

use super::core::VOLUME_SOURCE;
use super::Literal::{Empty, Flag, Number, OptionalText, Text, Texts};
use super::Rule::{By, Counted, Each, Field, In, Made};
use super::{at, set, Rule};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const HTTPS: i64 = 443;

/// networking.k8s.io/v1 NetworkPolicy.
pub const NETWORK_POLICY: &[Rule] = &[
    By(policy_types),
    Each("spec.ingress", &[Each("ports", NETWORK_PORT)]),
    Each("spec.egress", &[Each("ports", NETWORK_PORT)]),
];
const NETWORK_PORT: &[Rule] = &[Field("protocol", Text("TCP"))];

/// networking.k8s.io/v1 IngressClass.
pub const INGRESS_CLASS: &[Rule] = &[In("spec.parameters", &[Field("scope", OptionalText("Cluster"))])];

/// discovery.k8s.io/v1 EndpointSlice.
pub const ENDPOINT_SLICE: &[Rule] =
    &[Each("ports", &[Field("name", OptionalText("")), Field("protocol", Text("TCP"))])];

/// storage.k8s.io/v1 StorageClass.
pub const STORAGE_CLASS: &[Rule] =
    &[Field("reclaimPolicy", OptionalText("Delete")), Field("volumeBindingMode", OptionalText("Immediate"))];

/// storage.k8s.io/v1 CSIDriver.
pub const CSI_DRIVER: &[Rule] = &[
    Field("spec.attachRequired", Flag(true)),
    Field("spec.podInfoOnMount", Flag(false)),
    Field("spec.storageCapacity", Flag(false)),
    Field("spec.fsGroupPolicy", Text("ReadWriteOnceWithFSType")),
    Field("spec.volumeLifecycleModes", Texts(&["Persistent"])),
    Field("spec.requiresRepublish", Flag(false)),
    Field("spec.seLinuxMount", Flag(false)),
];

/// storage.k8s.io/v1 VolumeAttachment.
pub const VOLUME_ATTACHMENT: &[Rule] = &[In("spec.source.inlineVolumeSpec", VOLUME_SOURCE)];

/// rbac.authorization.k8s.io/v1 RoleBinding and ClusterRoleBinding.
pub const ROLE_BINDING: &[Rule] =
    &[Field("roleRef.apiGroup", Text(RBAC_GROUP)), Each("subjects", &[By(subject)])];

/// admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration.
pub const VALIDATING_WEBHOOKS: &[Rule] = &[Each("webhooks", WEBHOOK)];
/// admissionregistration.k8s.io/v1 MutatingWebhookConfiguration.
pub const MUTATING_WEBHOOKS: &[Rule] =
    &[Each("webhooks", WEBHOOK), Each("webhooks", &[Field("reinvocationPolicy", Text("Never"))])];
const WEBHOOK: &[Rule] = &[
    Field("failurePolicy", OptionalText("Fail")),
    Field("matchPolicy", OptionalText("Equivalent")),
    Field("namespaceSelector", Empty),
    Field("objectSelector", Empty),
    Field("timeoutSeconds", Number(10)),
    Each("rules", RULE),
    In("clientConfig.service", SERVICE_REFERENCE),
];
const RULE: &[Rule] = &[Field("scope", Text("*"))];
const SERVICE_REFERENCE: &[Rule] = &[Field("port", Number(HTTPS))];

/// admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
pub const ADMISSION_POLICY: &[Rule] =
    &[Field("spec.failurePolicy", Text("Fail")), In("spec.matchConstraints", MATCH_RESOURCES)];
/// admissionregistration.k8s.io/v1 bindings of the policies.
pub const ADMISSION_POLICY_BINDING: &[Rule] = &[In("spec.matchResources", MATCH_RESOURCES)];
const MATCH_RESOURCES: &[Rule] = &[
    Field("matchPolicy", Text("Equivalent")),
    Field("namespaceSelector", Empty),
    Field("objectSelector", Empty),
    Each("resourceRules", RULE),
    Each("excludeResourceRules", RULE),
];

/// flowcontrol.apiserver.k8s.io/v1 FlowSchema.
pub const FLOW_SCHEMA: &[Rule] = &[Made("spec", &[Counted("matchingPrecedence", 1000)])];
/// flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration.
pub const PRIORITY_LEVEL: &[Rule] = &[
    In(
        "spec.limited",
        &[
            Field("nominalConcurrencyShares", Number(30)),
            Field("lendablePercent", Number(0)),
            In(
                "limitResponse.queuing",
                &[Counted("handSize", 8), Counted("queues", 64), Counted("queueLengthLimit", 50)],
            ),
        ],
    ),
    In("spec.exempt", &[Field("nominalConcurrencyShares", Number(0)), Field("lendablePercent", Number(0))]),
];

/// apiregistration.k8s.io/v1 APIService.
pub const API_SERVICE: &[Rule] = &[In("spec.service", SERVICE_REFERENCE)];

/// apiextensions.k8s.io/v1 CustomResourceDefinition.
pub const CUSTOM_RESOURCE_DEFINITION: &[Rule] = &[
    By(definition_names),
    Field("spec.conversion.strategy", Text("None")),
    In("spec.conversion.webhook.clientConfig.service", SERVICE_REFERENCE),
    By(stored_versions),
];

/// A policy that does not say what it is about is about what comes in, and about what goes out where it has rules
/// for that.
fn policy_types(object: &mut Map) {
    let has_egress = at(object, "spec.egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
    let types = if has_egress { Texts(&["Ingress", "Egress"]) } else { Texts(&["Ingress"]) };
    super::apply(&[Field("spec.policyTypes", types)], object);
}

fn subject(subject: &mut Map) {
    if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
        super::apply(&[Field("apiGroup", Text(RBAC_GROUP))], subject);
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
