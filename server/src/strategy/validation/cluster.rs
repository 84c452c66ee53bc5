//! Storage, nodes, leases, priority classes, webhooks, flow control and Secrets.

use plinth_codec::{names, Value};

use super::Check::{AtLeast, By, Each, Need, NeedOneOf, OneOf, Text};
use super::{at, is_empty, list, text, Check};
use crate::field;
use crate::status::Cause;

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// core/v1 PersistentVolume.
pub const PERSISTENT_VOLUME: &[Check] = &[
    Need("spec.accessModes", ""),
    By(access_modes),
    By(capacity),
    OneOf("spec.persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"]),
    OneOf("spec.volumeMode", &["Block", "Filesystem"]),
    By(volume_source),
    Text("spec.storageClassName", names::dns1123_subdomain_faults),
];

/// core/v1 PersistentVolumeClaim.
pub const PERSISTENT_VOLUME_CLAIM: &[Check] = &[
    Need("spec.accessModes", "at least 1 access mode is required"),
    By(access_modes),
    By(storage_request),
    Text("spec.storageClassName", names::dns1123_subdomain_faults),
    OneOf("spec.volumeMode", &["Block", "Filesystem"]),
];

/// Upstream names the field as it is kept in memory.
fn storage_request(claim: &Value, _: &str, faults: &mut Vec<Cause>) {
    if is_empty(at(claim, "spec.resources.requests.storage")) {
        faults.push(field::required("spec.resources[storage]", ""));
    }
}

/// storage.k8s.io/v1 StorageClass.
pub const STORAGE_CLASS: &[Check] = &[
    Need("provisioner", ""),
    OneOf("reclaimPolicy", &["Delete", "Retain"]),
    OneOf("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]),
];

/// The classes of what a cluster cannot do without are there for good.
pub fn system_priority_class(name: &str) -> Option<&'static str> {
    let is_system = matches!(name, "system-node-critical" | "system-cluster-critical");
    is_system.then_some("this is a system priority class and cannot be deleted")
}

/// core/v1 Node.
pub const NODE: &[Check] = &[By(taints)];

/// coordination.k8s.io/v1 Lease.
pub const LEASE: &[Check] = &[By(lease_duration), AtLeast("spec.leaseTransitions", 0)];

/// scheduling.k8s.io/v1 PriorityClass.
pub const PRIORITY_CLASS: &[Check] =
    &[By(priority), OneOf("preemptionPolicy", &["Never", "PreemptLowerPriority"])];

/// admissionregistration.k8s.io/v1 webhook configurations.
pub const WEBHOOKS: &[Check] = &[Each(
    "webhooks",
    &[
        By(webhook_name),
        OneOf("failurePolicy", &["Fail", "Ignore"]),
        OneOf("matchPolicy", &["Equivalent", "Exact"]),
        NeedOneOf("sideEffects", &["None", "NoneOnDryRun"]),
        By(webhook_timeout),
        By(webhook_client),
        Need("admissionReviewVersions", "must specify one of v1, v1beta1"),
    ],
)];

/// flowcontrol.apiserver.k8s.io/v1 FlowSchema.
pub const FLOW_SCHEMA: &[Check] =
    &[By(precedence), Need("spec.priorityLevelConfiguration.name", "must reference a priority level")];

/// apiregistration.k8s.io/v1 APIService.
pub const API_SERVICE: &[Check] = &[By(api_service)];

/// core/v1 Secret.
pub const SECRET: &[Check] = &[By(secret)];

fn access_modes(object: &Value, _: &str, faults: &mut Vec<Cause>) {
    let modes: Vec<&str> = list(object, "spec.accessModes").iter().filter_map(Value::as_str).collect();
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        faults.push(field::not_supported("spec.accessModes", *mode, ACCESS_MODES));
    }
    if modes.len() > 1 && modes.contains(&"ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        faults.push(field::forbidden("spec.accessModes", why));
    }
}

fn capacity(volume: &Value, _: &str, faults: &mut Vec<Cause>) {
    let capacity = at(volume, "spec.capacity").filter(|c| !is_empty(Some(c)));
    if capacity.is_none() {
        faults.push(field::required("spec.capacity", ""));
    }
    if capacity.is_none_or(|c| c.get("storage").is_none() || c.as_object().is_some_and(|m| m.len() > 1)) {
        let shown = capacity.cloned().unwrap_or_default();
        faults.push(field::not_supported("spec.capacity", shown, &["storage"]));
    }
}

/// Everything in the spec of a volume that is no source.
pub(super) const NO_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn volume_source(volume: &Value, _: &str, faults: &mut Vec<Cause>) {
    let spec = at(volume, "spec").and_then(Value::as_object);
    let members = spec.into_iter().flat_map(plinth_codec::Map::iter);
    let sources: Vec<&str> = members
        .filter(|(key, value)| !NO_SOURCES.contains(&key.as_str()) && !value.is_null())
        .map(|(key, _)| key.as_str())
        .collect();
    if sources.is_empty() {
        faults.push(field::required("spec", "must specify a volume type"));
    }
    for extra in sources.iter().skip(1) {
        faults.push(field::forbidden(format!("spec.{extra}"), "may not specify more than 1 volume type"));
    }
}

/// Upstream names the taints of a node as if they were metadata.
fn taints(node: &Value, _: &str, faults: &mut Vec<Cause>) {
    for (i, taint) in list(node, "spec.taints").iter().enumerate() {
        let path = format!("metadata.taints[{i}]");
        let key = text(taint, "key");
        let bad = names::qualified_name_faults(key);
        faults.extend(bad.iter().map(|why| field::invalid(format!("{path}.key"), key, why)));
        let value = text(taint, "value");
        let bad = names::label_value_faults(value);
        faults.extend(bad.iter().map(|why| field::invalid(format!("{path}.value"), value, why)));
        let effect = text(taint, "effect");
        let supported = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if effect.is_empty() {
            faults.push(field::required(format!("{path}.effect"), ""));
        } else if !supported.contains(&effect) {
            faults.push(field::not_supported(format!("{path}.effect"), effect, supported));
        }
    }
}

fn lease_duration(lease: &Value, _: &str, faults: &mut Vec<Cause>) {
    if let Some(seconds) = at(lease, "spec.leaseDurationSeconds").and_then(Value::as_int).filter(|n| *n <= 0)
    {
        faults.push(field::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
}

/// The highest priority that users may give.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn priority(class: &Value, _: &str, faults: &mut Vec<Cause>) {
    let name = text(class, "metadata.name");
    let value = at(class, "value").and_then(Value::as_int).unwrap_or(0);
    if name.starts_with("system-") {
        let known = SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name);
        if known.is_none_or(|(_, expected)| *expected != value) {
            let why = format!("priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class");
            faults.push(field::forbidden("metadata.name", &why));
        }
    } else if value > HIGHEST_PRIORITY {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
        faults.push(field::forbidden("value", &why));
    }
}

fn webhook_name(webhook: &Value, path: &str, faults: &mut Vec<Cause>) {
    let name = text(webhook, "name");
    let path = format!("{path}name");
    if name.is_empty() {
        faults.push(field::required(path, ""));
        return;
    }
    let bad = names::dns1123_subdomain_faults(name);
    if bad.is_empty() && name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        faults.push(field::invalid(path.as_str(), name, why));
    }
    faults.extend(bad.iter().map(|why| field::invalid(path.as_str(), name, why)));
}

fn webhook_timeout(webhook: &Value, path: &str, faults: &mut Vec<Cause>) {
    let seconds = at(webhook, "timeoutSeconds").and_then(Value::as_int);
    if let Some(seconds) = seconds.filter(|s| !(1..=30).contains(s)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        faults.push(field::invalid(format!("{path}timeoutSeconds"), seconds, why));
    }
}

fn webhook_client(webhook: &Value, path: &str, faults: &mut Vec<Cause>) {
    let has = |key: &str| at(webhook, key).is_some();
    if has("clientConfig.url") == has("clientConfig.service") {
        faults.push(field::required(
            format!("{path}clientConfig"),
            "exactly one of url or service is required",
        ));
    }
}

fn precedence(schema: &Value, _: &str, faults: &mut Vec<Cause>) {
    const MOST: i64 = 10_000;
    let precedence = at(schema, "spec.matchingPrecedence").and_then(Value::as_int).unwrap_or(0);
    if precedence <= 0 {
        faults.push(field::invalid("spec.matchingPrecedence", precedence, "must be a positive value"));
    }
    if precedence > MOST {
        let why = format!("must not be greater than {MOST}");
        faults.push(field::invalid("spec.matchingPrecedence", precedence, &why));
    }
}

fn api_service(service: &Value, _: &str, faults: &mut Vec<Cause>) {
    let name = text(service, "metadata.name");
    let required = format!("{}.{}", text(service, "spec.version"), text(service, "spec.group"));
    if name != required {
        let why = format!("must be `spec.version+\".\"+spec.group`: {required:?}");
        faults.push(field::invalid("metadata.name", name, &why));
    }
    for (path, most) in [("spec.groupPriorityMinimum", 20_000), ("spec.versionPriority", 1000)] {
        let number = at(service, path).and_then(Value::as_int).unwrap_or(0);
        if number <= 0 || number > most {
            faults.push(field::invalid(path, number, &format!("must be positive and less than {most}")));
        }
    }
}

/// What Secrets of upstream's types must hold.
const SECRET_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

fn secret(secret: &Value, _: &str, faults: &mut Vec<Cause>) {
    use base64::Engine as _;
    let kind = text(secret, "type");
    let data = |key: &str| secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    for key in SECRET_KEYS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, keys)| keys.iter()) {
        let path = format!("data[{key}]");
        let Some(encoded) = data(key) else {
            faults.push(field::required(path, ""));
            continue;
        };
        if key.starts_with(".docker") {
            let decoded = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
            if let Err(fault) = plinth_codec::json::parse(&decoded) {
                let why = fault.to_string();
                faults.push(field::invalid(path, "<secret contents redacted>", &why));
            }
        }
    }
    let account = secret.at(&["metadata", "annotations", "kubernetes.io/service-account.name"]);
    if kind == "kubernetes.io/service-account-token" && is_empty(account) {
        faults.push(field::required("metadata.annotations[kubernetes.io/service-account.name]", ""));
    }
    if kind == "kubernetes.io/basic-auth" && data("username").is_none() && data("password").is_none() {
        faults.push(field::required("data[username]", ""));
        faults.push(field::required("data[password]", ""));
    }
}
