//! The status of a pod as kubelets and schedulers write it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use plinth_codec::{names, Value};

use crate::checks::immutable::IMMUTABLE;
use crate::checks::Check::{self, By, Each, Within};
use crate::checks::{address, Part};
use crate::core::pod::device_status;
use crate::path::{at, int, list, text};
use crate::warnings::address::warn_ip;
use crate::warnings::Warnings;

pub(crate) const CHECKS: &[Check] =
    &[Each("status.conditions", &[not_negative("observedGeneration"), By(condition)])];

fn condition(condition: &Part<'_>) {
    let kind = condition.text("type");
    if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
        condition.check_text("Type", kind, names::qualified_name_errors);
    }
}

const fn not_negative(key: &'static str) -> Check {
    Within(key, 0, i64::MAX, "must be a non-negative integer")
}

/// Errors of an update of the status: the QoS class is immutable, and terminated containers stay so unless
/// the restart policy allows a restart.
pub(crate) fn validate(new: &Part<'_>, old: &Value) {
    const NOMINATED: &str = "status.nominatedNodeName";
    let nominated = new.text(NOMINATED);
    if !nominated.is_empty() && nominated != text(old, NOMINATED) {
        new.check_text(NOMINATED, nominated, names::dns1123_subdomain_errors);
        if !text(old, "spec.nodeName").is_empty() {
            new.forbidden(NOMINATED, "may not be set on pods that are already bound to a node");
        }
    }
    new.check(&[not_negative("status.observedGeneration")]);
    let class = new.text("status.qosClass");
    if class != text(old, "status.qosClass") {
        new.invalid("status.qosClass", class, IMMUTABLE);
    }
    ended_containers(new, old);
    device_status::claims(new);
    addresses(new, old, "status.podIPs");
    if let Some(first) = new.each("status.hostIPs").next() {
        let ip = first.text("ip");
        if ip != new.text("status.hostIP") {
            first.invalid("ip", ip, "must be equal to `hostIP`");
        }
    }
    addresses(new, old, "status.hostIPs");
    device_status::health(new);
}

fn ended_containers(new: &Part<'_>, old: &Value) {
    // Containers with their own restart policy or rules may restart regardless of the pod's policy.
    let has_rules = |container: &Value| {
        at(container, "restartPolicy").is_some() || !list(container, "restartPolicyRules").is_empty()
    };
    let policy = text(old, "spec.restartPolicy");
    if matches!(policy, "" | "Always") || list(old, "spec.containers").iter().any(has_rules) {
        return;
    }
    let now: HashMap<&str, &Value> =
        new.list("status.containerStatuses").iter().map(|status| (text(status, "name"), status)).collect();
    for (i, before) in list(old, "status.containerStatuses").iter().enumerate() {
        let Some(ended) = at(before, "state.terminated") else { continue };
        let failed = int(ended, "exitCode").unwrap_or(0) != 0;
        let runs = |status: &&Value| at(status, "state.terminated").is_none();
        if now.get(text(before, "name")).is_some_and(runs) && !(failed && policy == "OnFailure") {
            let why = "may not be transitioned to non-terminated state";
            new.forbidden(format_args!("status.containerStatuses[{i}].state"), why);
        }
    }
}

/// New addresses must be valid, and there may be one of each family.
fn addresses(new: &Part<'_>, old: &Value, key: &str) {
    let before: BTreeSet<&str> = list(old, key).iter().map(|entry| text(entry, "ip")).collect();
    let now: Vec<&str> = new.list(key).iter().map(|entry| text(entry, "ip")).collect();
    for entry in new.each(key).filter(|entry| !before.contains(entry.text("ip"))) {
        entry.apply_to("", entry.text("ip"), address::legacy);
    }
    if now.len() > 1 {
        let families: BTreeSet<bool> =
            now.iter().filter_map(|ip| address::sloppy(ip)).map(|ip| matches!(ip, IpAddr::V4(_))).collect();
        if families.len() != 2 || now.len() > 2 {
            new.invalid(key, new.shown(key), "may specify no more than one IP for each IP family");
        }
    }
}

/// Restores `qosClass` and `observedGeneration`, which old kubelets omit.
pub(crate) fn prepare(new: &mut Value, old: &Value) {
    let class = text(old, "status.qosClass").to_owned();
    let generation = int(old, "status.observedGeneration").unwrap_or(0);
    let mut generations: HashMap<String, VecDeque<i64>> = HashMap::new();
    for condition in list(old, "status.conditions") {
        let of = int(condition, "observedGeneration").unwrap_or(0);
        generations.entry(text(condition, "type").to_owned()).or_default().push_back(of);
    }
    let Some(status) = new.object_at_mut(&["status"]) else { return };
    if !class.is_empty() && status.get("qosClass").and_then(Value::as_str).is_none_or(str::is_empty) {
        status.insert("qosClass", class);
    }
    if generation != 0 && status.get("observedGeneration").and_then(Value::as_int).unwrap_or(0) == 0 {
        status.insert("observedGeneration", generation);
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let before = generations.get_mut(text(condition, "type")).and_then(VecDeque::pop_front).unwrap_or(0);
        let Some(condition) = condition.as_object_mut() else { continue };
        if before != 0 && condition.get("observedGeneration").and_then(Value::as_int).unwrap_or(0) == 0 {
            condition.insert("observedGeneration", before);
        }
    }
}

/// Warnings about the addresses of the pod and its node.
pub(crate) fn warnings(new: &Value) -> Vec<String> {
    let mut found = Warnings::default();
    for part in ["podIPs", "hostIPs"] {
        for (i, entry) in list(new, &format!("status.{part}")).iter().enumerate() {
            warn_ip(text(entry, "ip"), &format!("status.{part}[{i}].ip"), &mut found);
        }
    }
    found.into_vec()
}
