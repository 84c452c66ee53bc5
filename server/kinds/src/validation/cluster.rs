//! Nodes, leases, priority and runtime classes, APIServices and Secrets.

use std::collections::{BTreeSet, HashSet};

use plinth_codec::{names, Value};

use super::Check::{AtLeast, By, OneOf, Required};
use super::{at, is_empty, list, text, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};

/// The classes of what a cluster cannot do without are there for good.
pub fn system_priority_class(name: &str) -> Option<&'static str> {
    let is_system = matches!(name, "system-node-critical" | "system-cluster-critical");
    is_system.then_some("this is a system priority class and cannot be deleted")
}

/// core/v1 Node.
pub const NODE: &[Check] = &[By(taints), By(amounts), By(pod_networks)];

fn amounts(node: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    for part in ["capacity", "allocatable"] {
        let given = node.at(&["status", part]).and_then(Value::as_object);
        for (name, shown) in given.into_iter().flat_map(plinth_codec::Map::iter) {
            let shown = shown.as_str().unwrap_or_default();
            super::amounts::amount(name, shown, format_args!("status.{part}.{name}"), errors);
        }
    }
}

/// Networks of pods: one of each family.
fn pod_networks(node: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let networks = super::texts(node, "spec.podCIDRs");
    for (i, network) in networks.iter().enumerate() {
        super::address::network(network, format_args!("spec.podCIDRs[{i}]"), errors);
    }
    let is_6 = |network: &&str| network.contains(':');
    let one_each = networks.len() == 2 && networks.iter().filter(|network| is_6(network)).count() == 1;
    if networks.len() > 1 && !one_each {
        let why = "may specify no more than one CIDR for each IP family";
        errors.push(field::invalid("spec.podCIDRs", list(node, "spec.podCIDRs").to_vec(), why));
    }
}

/// core/v1 Namespace.
pub const NAMESPACE: &[Check] = &[By(|namespace, _, errors| {
    const PATH: &str = "spec.finalizers";
    const WHY: &str = "name is neither a standard finalizer name nor is it fully qualified";
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    for finalizer in super::texts(namespace, PATH) {
        super::rule(format_args!("{PATH}"), finalizer, names::qualified_name_errors, errors);
        if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
            errors.push(field::invalid(PATH, finalizer, WHY));
        }
    }
})];

/// coordination.k8s.io/v1 Lease.
pub const LEASE: &[Check] = &[By(lease_duration), AtLeast("spec.leaseTransitions", 0)];

/// scheduling.k8s.io/v1 PriorityClass.
pub const PRIORITY_CLASS: &[Check] =
    &[By(priority), OneOf("preemptionPolicy", &["PreemptLowerPriority", "Never"])];

/// node.k8s.io/v1 RuntimeClass.
pub const RUNTIME_CLASS: &[Check] = &[
    Check::RequiredText("handler", names::dns1123_label_errors),
    By(|class, _, errors| {
        if let Some(amounts) = at(class, "overhead.podFixed") {
            let requirements = plinth_codec::tree!({ "limits": amounts.clone() });
            super::amounts::requirements(
                &requirements,
                super::amounts::Kind::Container,
                &BTreeSet::new(),
                format_args!("overhead"),
                errors,
            );
        }
    }),
    Check::Labels("scheduling.nodeSelector"),
    By(|class, _, errors| {
        if let Some(scheduling) = at(class, "scheduling") {
            super::scheduling::tolerations(scheduling, format_args!("scheduling."), errors);
            let all = list(scheduling, "tolerations");
            for (i, toleration) in all.iter().enumerate() {
                if all.iter().take(i).any(|earlier| earlier == toleration) {
                    let here = format_args!("scheduling.tolerations[{i}]");
                    errors.push(field::duplicate(here, toleration.clone()));
                }
            }
        }
    }),
];

/// apiregistration.k8s.io/v1 APIService.
pub const API_SERVICE: &[Check] = &[By(api_service)];

/// core/v1 Secret.
pub const SECRET: &[Check] = &[By(secret)];

/// Upstream names the taints of a node as if they were metadata.
fn taints(node: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, taint) in list(node, "spec.taints").iter().enumerate() {
        let path = format_args!("metadata.taints[{i}]");
        let key = text(taint, "key");
        let bad = names::qualified_name_errors(key);
        errors.extend(bad.iter().map(|why| field::invalid(format_args!("{path}.key"), key, why)));
        let value = text(taint, "value");
        let bad = names::label_value_errors(value);
        errors.extend(bad.iter().map(|why| field::invalid(format_args!("{path}.value"), value, why)));
        if !seen.insert((key, text(taint, "effect"))) {
            let mut error = field::duplicate(path, taint.clone());
            error.message += ": taints must be unique by key and effect pair";
            errors.push(error);
        }
        let effect = text(taint, "effect");
        let supported = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if effect.is_empty() {
            errors.push(field::required(format_args!("{path}.effect"), ""));
        } else if !supported.contains(&effect) {
            errors.push(field::not_supported(format_args!("{path}.effect"), effect, supported));
        }
    }
}

fn lease_duration(lease: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    if let Some(seconds) = at(lease, "spec.leaseDurationSeconds").and_then(Value::as_int).filter(|n| *n <= 0)
    {
        errors.push(field::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
}

/// The highest priority that users may give.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn priority(class: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let name = text(class, "metadata.name");
    let value = at(class, "value").and_then(Value::as_int).unwrap_or(0);
    if name.starts_with("system-") {
        let known = SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name);
        if known.is_none_or(|(_, expected)| *expected != value) {
            let why = format!("priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class");
            errors.push(field::forbidden("metadata.name", &why));
        }
    } else if value > HIGHEST_PRIORITY {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
        errors.push(field::forbidden("value", &why));
    }
}

fn api_service(service: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let name = text(service, "metadata.name");
    let (group, version) = (text(service, "spec.group"), text(service, "spec.version"));
    let required = format!("{version}.{group}");
    if name != required {
        let why = format!("must be `spec.version+\".\"+spec.group`: {required:?}");
        errors.push(field::invalid("metadata.name", name, &why));
    }
    match group {
        "" if version != "v1" => {
            let why = "only v1 may have an empty group and it better be legacy kube";
            errors.push(field::required("spec.group", why));
        }
        "" => {}
        group => super::rule(format_args!("spec.group"), group, names::dns1123_subdomain_errors, errors),
    }
    super::rule(format_args!("spec.version"), version, names::dns1035_label_errors, errors);
    for (path, most) in [("spec.groupPriorityMinimum", 20_000), ("spec.versionPriority", 1000)] {
        let number = at(service, path).and_then(Value::as_int).unwrap_or(0);
        if number <= 0 || number > most {
            errors.push(field::invalid(path, number, &format!("must be positive and less than {most}")));
        }
    }
    let skips = at(service, "spec.insecureSkipTLSVerify").and_then(Value::as_bool) == Some(true);
    let authority = !text(service, "spec.caBundle").is_empty();
    let Some(called) = at(service, "spec.service") else {
        if authority {
            let why = "local APIServices may not have a caBundle";
            errors.push(field::invalid("spec.caBundle", text(service, "spec.caBundle"), why));
        }
        if skips {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(field::invalid("spec.insecureSkipTLSVerify", true, why));
        }
        return;
    };
    super::validate(
        &[Required("namespace", ""), Required("name", "")],
        called,
        format_args!("spec.service."),
        errors,
    );
    let port = super::int(called, "port").unwrap_or(443);
    if !super::is_port(port) {
        let why = format!("port is not valid: {}", super::PORT);
        errors.push(field::invalid("spec.service.port", port, &why));
    }
    if skips && authority {
        let why = "may not be true if caBundle is present";
        errors.push(field::invalid("spec.insecureSkipTLSVerify", true, why));
    }
}

/// What Secrets of upstream's types must hold.
const SECRET_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

fn secret(secret: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let kind = text(secret, "type");
    let data = |key: &str| secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    for key in SECRET_KEYS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, keys)| keys.iter()) {
        let path = format_args!("data[{key}]");
        let Some(encoded) = data(key) else {
            errors.push(field::required(path, ""));
            continue;
        };
        if key.starts_with(".docker") {
            let decoded = plinth_codec::base64_text::decode(encoded).unwrap_or_default();
            if let Err(error) = plinth_codec::json::parse(&decoded) {
                let why = error.to_string();
                errors.push(field::invalid(path, "<secret contents redacted>", &why));
            }
        }
    }
    let account = secret.at(&["metadata", "annotations", "kubernetes.io/service-account.name"]);
    if kind == "kubernetes.io/service-account-token" && is_empty(account) {
        errors.push(field::required("metadata.annotations[kubernetes.io/service-account.name]", ""));
    }
    if kind == "kubernetes.io/basic-auth" && data("username").is_none() && data("password").is_none() {
        errors.push(field::required("data[username]", ""));
        errors.push(field::required("data[password]", ""));
    }
}
