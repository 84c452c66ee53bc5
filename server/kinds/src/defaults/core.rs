//! Defaults of core/v1 but pods and workloads.

use plinth_codec::{tree, Map, Value};

use super::pod::{AZURE_DISK, CLAIM_SPEC, HOST_PATH, ISCSI, RBD, SCALE_IO};
use super::DefaultRule::{Computed, Ensure, Field, ForEach, IfPresent, RoundQuantities, When};
use super::Literal::{Bool, EmptyObject, Int, Str};
use super::{at, fill_from, set, DefaultRule};

/// Endpoints.
pub const ENDPOINTS: &[DefaultRule] =
    &[ForEach("subsets", &[ForEach("ports", &[Field("protocol", Str("TCP"))])])];

/// LimitRange.
pub const LIMIT_RANGE: &[DefaultRule] =
    &[ForEach("spec.limits", &[When("type", "Container", &[Computed(limits)])])];

/// Namespace.
pub const NAMESPACE: &[DefaultRule] = &[Computed(name_label), Field("status.phase", Str("Active"))];

/// Node.
pub const NODE: &[DefaultRule] = &[
    Computed(allocatable),
    RoundQuantities("status.capacity"),
    RoundQuantities("status.allocatable"),
    IfPresent("spec", &[Computed(|spec| super::agree(spec, "podCIDR", "podCIDRs", None))]),
];

/// ResourceQuota.
pub const RESOURCE_QUOTA: &[DefaultRule] =
    &[RoundQuantities("spec.hard"), RoundQuantities("status.hard"), RoundQuantities("status.used")];

/// PersistentVolume.
pub const PERSISTENT_VOLUME: &[DefaultRule] = &[
    Field("status.phase", Str("Pending")),
    Field("spec.persistentVolumeReclaimPolicy", Str("Retain")),
    Field("spec.volumeMode", Str("Filesystem")),
    IfPresent("spec", VOLUME_SOURCE),
    RoundQuantities("spec.capacity"),
];

/// The source of a PersistentVolume.
pub const VOLUME_SOURCE: &[DefaultRule] = &[
    IfPresent("hostPath", HOST_PATH),
    IfPresent("iscsi", ISCSI),
    IfPresent("rbd", RBD),
    IfPresent("azureDisk", AZURE_DISK),
    IfPresent("scaleIO", SCALE_IO),
];

/// PersistentVolumeClaim.
pub const PERSISTENT_VOLUME_CLAIM: &[DefaultRule] =
    &[Ensure("spec", CLAIM_SPEC), Field("status.phase", Str("Pending"))];

/// Secret.
pub const SECRET: &[DefaultRule] = &[Computed(string_data), Field("type", Str("Opaque"))];

/// Service.
pub const SERVICE: &[DefaultRule] = &[
    Field("spec.sessionAffinity", Str("None")),
    Field("spec.type", Str("ClusterIP")),
    Computed(affinity),
    ForEach("spec.ports", &[Field("protocol", Str("TCP")), Computed(target_port)]),
    Computed(external_traffic),
    When("spec.type", "ClusterIP", INTERNAL_TRAFFIC),
    When("spec.type", "NodePort", INTERNAL_TRAFFIC),
    When("spec.type", "LoadBalancer", INTERNAL_TRAFFIC),
    When(
        "spec.type",
        "LoadBalancer",
        &[
            Field("spec.allocateLoadBalancerNodePorts", Bool(true)),
            ForEach("status.loadBalancer.ingress", &[Computed(ip_mode)]),
        ],
    ),
];

const INTERNAL_TRAFFIC: &[DefaultRule] = &[Field("spec.internalTrafficPolicy", Str("Cluster"))];
/// Three hours, in seconds.
const AFFINITY_TIMEOUT: i64 = 10_800;

fn affinity(object: &mut Map) {
    match at(object, "spec.sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("sessionAffinityConfig");
            }
        }
        Some("ClientIP") => super::apply(
            &[
                Field("spec.sessionAffinityConfig", EmptyObject),
                Field("spec.sessionAffinityConfig.clientIP.timeoutSeconds", Int(AFFINITY_TIMEOUT)),
            ],
            object,
        ),
        _ => {}
    }
}

fn target_port(port: &mut Map) {
    let is_unset = port
        .get("targetPort")
        .is_none_or(|target| matches!(target, Value::Null | Value::Int(0)) || target.as_str() == Some(""));
    if is_unset {
        let number = port.get("port").cloned().unwrap_or(Value::Int(0));
        port.insert("targetPort", number);
    }
}

/// Services that are reached from outside say how that traffic is spread.
fn external_traffic(object: &mut Map) {
    let kind = at(object, "spec.type").and_then(Value::as_str);
    let has_addresses =
        at(object, "spec.externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    let is_external =
        matches!(kind, Some("LoadBalancer" | "NodePort")) || (kind == Some("ClusterIP") && has_addresses);
    if is_external {
        super::apply(&[Field("spec.externalTrafficPolicy", Str("Cluster"))], object);
    }
}

fn ip_mode(ingress: &mut Map) {
    if ingress.get("ip").and_then(Value::as_str).is_some_and(|ip| !ip.is_empty()) {
        super::apply(&[Field("ipMode", Str("VIP"))], ingress);
    }
}

/// Limits of containers: the default is the most, what is requested is the default, or else the least.
fn limits(item: &mut Map) {
    for (target, source) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        let from = item.get(source).and_then(Value::as_object).cloned().unwrap_or_default();
        if !from.is_empty() {
            fill_from(item, target, &from);
        }
    }
}

fn name_label(object: &mut Map) {
    let name = at(object, "metadata.name").and_then(Value::as_str).filter(|name| !name.is_empty());
    if let Some(label) = name.map(|name| tree!({ "kubernetes.io/metadata.name": name })) {
        set(object, "metadata.labels", &label, Value::is_null);
        let labels = object.get_mut("metadata").and_then(|m| m.get_mut("labels"));
        if let (Some(Value::Object(labels)), Value::Object(label)) = (labels, label) {
            label.into_iter().for_each(|(key, value)| drop(labels.insert(key, value)));
        }
    }
}

fn allocatable(object: &mut Map) {
    if let Some(capacity) = at(object, "status.capacity").filter(|c| !c.is_null()).cloned() {
        set(object, "status.allocatable", &capacity, Value::is_null);
    }
}

/// `stringData` is written into `data`, encoded, and is not kept itself.
fn string_data(object: &mut Map) {
    let Some(Value::Object(texts)) = object.remove("stringData") else { return };
    if object.get("data").is_none_or(Value::is_null) {
        object.insert("data", Value::object());
    }
    let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) else { return };
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        data.insert(key, plinth_codec::base64_text::encode(text));
    }
}
