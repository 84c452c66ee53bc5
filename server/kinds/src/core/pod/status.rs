//! The status of a pod as kubelets and schedulers write it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::{names, Value};

use crate::checks::immutable::IMMUTABLE;
use crate::checks::Check::{self, By};
use crate::checks::{address, check_text};
use crate::path::{at, int, list, text};
use crate::warnings::address::warn_ip;
use crate::warnings::Warnings;

pub(crate) const CHECKS: &[Check] = &[By(conditions)];

fn conditions(pod: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, condition) in list(pod, "status.conditions").iter().enumerate() {
        let (kind, here) = (text(condition, "type"), format_args!("status.conditions[{i}]"));
        if let Some(generation) = int(condition, "observedGeneration").filter(|generation| *generation < 0) {
            let why = "must be a non-negative integer";
            errors.push(field::invalid(format_args!("{here}.observedGeneration"), generation, why));
        }
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            check_text(format_args!("{here}.Type"), kind, names::qualified_name_errors, errors);
        }
    }
}

/// Errors of an update of the status: the QoS class is immutable, and terminated containers stay so unless
/// the restart policy allows a restart.
pub(crate) fn validate(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let nominated = text(new, "status.nominatedNodeName");
    if !nominated.is_empty() && nominated != text(old, "status.nominatedNodeName") {
        const PATH: &str = "status.nominatedNodeName";
        check_text(format_args!("{PATH}"), nominated, names::dns1123_subdomain_errors, &mut errors);
        if !text(old, "spec.nodeName").is_empty() {
            let why = "may not be set on pods that are already bound to a node";
            errors.push(field::forbidden(PATH, why));
        }
    }
    if let Some(generation) = int(new, "status.observedGeneration").filter(|generation| *generation < 0) {
        errors.push(field::invalid(
            "status.observedGeneration",
            generation,
            "must be a non-negative integer",
        ));
    }
    let class = text(new, "status.qosClass");
    if class != text(old, "status.qosClass") {
        errors.push(field::invalid("status.qosClass", class, IMMUTABLE));
    }
    ended_containers(new, old, &mut errors);
    addresses(new, old, "podIPs", &mut errors);
    let host = list(new, "status.hostIPs").first().map(|first| text(first, "ip"));
    if let Some(first) = host.filter(|first| *first != text(new, "status.hostIP")) {
        errors.push(field::invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`"));
    }
    addresses(new, old, "hostIPs", &mut errors);
    errors
}

fn ended_containers(new: &Value, old: &Value, errors: &mut Vec<Cause>) {
    // Containers with their own restart policy or rules may restart regardless of the pod's policy.
    let has_rules = |container: &Value| {
        at(container, "restartPolicy").is_some() || !list(container, "restartPolicyRules").is_empty()
    };
    let policy = text(old, "spec.restartPolicy");
    if matches!(policy, "" | "Always") || list(old, "spec.containers").iter().any(has_rules) {
        return;
    }
    let now: HashMap<&str, &Value> =
        list(new, "status.containerStatuses").iter().map(|status| (text(status, "name"), status)).collect();
    for (i, before) in list(old, "status.containerStatuses").iter().enumerate() {
        let Some(ended) = at(before, "state.terminated") else { continue };
        let failed = int(ended, "exitCode").unwrap_or(0) != 0;
        let runs = |status: &&Value| at(status, "state.terminated").is_none();
        if now.get(text(before, "name")).is_some_and(runs) && !(failed && policy == "OnFailure") {
            let path = format_args!("status.containerStatuses[{i}].state");
            errors.push(field::forbidden(path, "may not be transitioned to non-terminated state"));
        }
    }
}

/// New addresses must be valid, and there may be one of each family.
fn addresses(new: &Value, old: &Value, part: &str, errors: &mut Vec<Cause>) {
    let path = format!("status.{part}");
    let before: BTreeSet<&str> = list(old, &path).iter().map(|entry| text(entry, "ip")).collect();
    let now: Vec<&str> = list(new, &path).iter().map(|entry| text(entry, "ip")).collect();
    for (i, ip) in now.iter().enumerate().filter(|(_, ip)| !before.contains(*ip)) {
        address::legacy(ip, format_args!("{path}[{i}]"), errors);
    }
    if now.len() > 1 {
        let families: BTreeSet<bool> =
            now.iter().filter_map(|ip| address::sloppy(ip)).map(|ip| matches!(ip, IpAddr::V4(_))).collect();
        if families.len() != 2 || now.len() > 2 {
            let why = "may specify no more than one IP for each IP family";
            errors.push(field::invalid(&path, at(new, &path).cloned().unwrap_or_default(), why));
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
