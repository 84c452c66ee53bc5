//! Statuses as controllers and kubelets write them: counts that agree, addresses, what never goes back.
//!
//! Upstream: the `Validate…StatusUpdate` of kubernetes `pkg/apis/{core,apps,batch,networking,policy,autoscaling}/validation`
//! and the `PrepareForUpdate` of its status strategies.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use plinth_codec::quantity::Quantity;
use plinth_codec::time::Timestamp;
use plinth_codec::{names, Map, Value};

use super::Check::{AtLeast, By};
use super::{address, at, batch, int, list, rule, text, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};

const IMMUTABLE: &str = "field is immutable";

/// apps/v1 Deployment.
pub const DEPLOYMENT: &[Check] = &[
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.replicas", 0),
    AtLeast("status.updatedReplicas", 0),
    AtLeast("status.readyReplicas", 0),
    AtLeast("status.availableReplicas", 0),
    AtLeast("status.unavailableReplicas", 0),
    AtLeast("status.terminatingReplicas", 0),
    AtLeast("status.collisionCount", 0),
    By(|o, _, f| among(o, &["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", f)),
];

/// apps/v1 ReplicaSet and core/v1 ReplicationController.
pub const REPLICA_SET: &[Check] = &[
    AtLeast("status.replicas", 0),
    AtLeast("status.fullyLabeledReplicas", 0),
    AtLeast("status.readyReplicas", 0),
    AtLeast("status.availableReplicas", 0),
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.terminatingReplicas", 0),
    By(|o, _, f| {
        among(o, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", f)
    }),
];

/// apps/v1 StatefulSet.
pub const STATEFUL_SET: &[Check] = &[
    AtLeast("status.replicas", 0),
    AtLeast("status.readyReplicas", 0),
    AtLeast("status.currentReplicas", 0),
    AtLeast("status.updatedReplicas", 0),
    AtLeast("status.availableReplicas", 0),
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.collisionCount", 0),
    By(|o, _, f| {
        const PARTS: [&str; 4] = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        among(o, &PARTS, "status.readyReplicas", f);
    }),
];

/// apps/v1 DaemonSet.
pub const DAEMON_SET: &[Check] = &[
    AtLeast("status.currentNumberScheduled", 0),
    AtLeast("status.numberMisscheduled", 0),
    AtLeast("status.desiredNumberScheduled", 0),
    AtLeast("status.numberReady", 0),
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.updatedNumberScheduled", 0),
    AtLeast("status.numberAvailable", 0),
    AtLeast("status.numberUnavailable", 0),
    AtLeast("status.collisionCount", 0),
];

/// policy/v1 PodDisruptionBudget.
pub const POD_DISRUPTION_BUDGET: &[Check] = &[
    AtLeast("status.disruptionsAllowed", 0),
    AtLeast("status.currentHealthy", 0),
    AtLeast("status.desiredHealthy", 0),
    AtLeast("status.expectedPods", 0),
];

/// autoscaling HorizontalPodAutoscaler.
pub const HORIZONTAL_POD_AUTOSCALER: &[Check] =
    &[AtLeast("status.currentReplicas", 0), AtLeast("status.desiredReplicas", 0)];

/// batch/v1 Job.
pub const JOB: &[Check] = &[
    AtLeast("status.active", 0),
    AtLeast("status.succeeded", 0),
    AtLeast("status.failed", 0),
    AtLeast("status.ready", 0),
    AtLeast("status.terminating", 0),
    By(uncounted_pods),
];

/// core/v1 PersistentVolumeClaim.
pub const PERSISTENT_VOLUME_CLAIM: &[Check] = &[By(|claim, _, errors| {
    let given = at(claim, "status.capacity").and_then(Value::as_object);
    for (name, amount) in given.into_iter().flat_map(Map::iter) {
        let amount = amount.as_str().and_then(|amount| Quantity::parse(amount).ok());
        if let Some(amount) = amount.filter(|amount| amount.sign() < 0) {
            let path = format_args!("status.capacity[{name}]");
            errors.push(field::invalid(path, amount.value(0), "must be a valid resource quantity"));
        }
    }
})];

/// core/v1 Pod.
pub const POD: &[Check] = &[By(conditions)];

/// None of the parts is more than `replicas`, and none is available that is not ready.
fn among(object: &Value, parts: &[&str], ready: &str, errors: &mut Vec<Cause>) {
    let count = |key: &str| int(object, &format!("status.{key}")).unwrap_or(0);
    for part in parts.iter().filter(|part| count(part) > count("replicas")) {
        let why = "cannot be greater than status.replicas";
        errors.push(field::invalid(format_args!("status.{part}"), count(part), why));
    }
    if count("availableReplicas") > count("readyReplicas") {
        let why = format!("cannot be greater than {ready}");
        errors.push(field::invalid("status.availableReplicas", count("availableReplicas"), &why));
    }
}

/// The number of collisions of names only grows.
pub fn collisions(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "status.collisionCount";
    match (int(new, PATH), int(old, PATH)) {
        (now, Some(before)) if now.is_none_or(|now| now < before) => {
            vec![field::invalid(PATH, now.unwrap_or(0), "cannot be decremented")]
        }
        _ => Vec::new(),
    }
}

fn uncounted_pods(job: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for part in ["succeeded", "failed"] {
        let path = format!("status.uncountedTerminatedPods.{part}");
        for (i, uid) in super::texts(job, &path).into_iter().enumerate() {
            if uid.is_empty() {
                errors.push(field::invalid(format_args!("{path}[{i}]"), uid, "must not be empty"));
            } else if !seen.insert(uid) {
                errors.push(field::duplicate(format_args!("{path}[{i}]"), uid));
            }
        }
    }
}

fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = list(object, "status.conditions").iter();
    conditions
        .into_iter()
        .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
}

fn without_value(path: &str, why: &str) -> Cause {
    let mut error = field::invalid(path, Value::Null, "");
    error.message = format!("Invalid value: {why}");
    error
}

/// A Job that has ended has ended: what it says of that agrees and stays. Errors that the old status had are let through.
pub fn job(new: &Value, old: &Value) -> Vec<Cause> {
    const CONDITIONS: &str = "status.conditions";
    let before: Vec<Cause> = job_as_it_stands(old);
    let mut errors: Vec<Cause> =
        job_as_it_stands(new).into_iter().filter(|error| !before.contains(error)).collect();
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            errors.push(without_value(
                CONDITIONS,
                &format!("cannot disable the terminal {kind}=True condition"),
            ));
        }
    }
    for part in ["failed", "succeeded"] {
        let path = format!("status.{part}");
        let now = int(new, &path).unwrap_or(0);
        if now < int(old, &path).unwrap_or(0) {
            errors.push(field::invalid(path, now, &format!("cannot decrease the {part} counter")));
        }
    }
    let ended = at(new, "status.completionTime");
    if ended.is_some() && at(old, "status.completionTime").is_some_and(|before| ended != Some(before)) {
        errors.push(field::invalid("status.completionTime", ended.cloned().unwrap_or_default(), IMMUTABLE));
    }
    let started = at(new, "status.startTime");
    let suspended = at(new, "spec.suspend").and_then(Value::as_bool) == Some(true);
    if !suspended && at(old, "status.startTime").is_some_and(|before| started != Some(before)) {
        let why = "field is immutable for unsuspended job once set";
        errors.push(field::invalid("status.startTime", started.cloned().unwrap_or_default(), why));
    }
    if is_true(old, "SuccessCriteriaMet") && !is_true(new, "SuccessCriteriaMet") {
        errors.push(without_value(CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition"));
    }
    if is_true(old, "Complete") && !is_true(old, "SuccessCriteriaMet") && is_true(new, "SuccessCriteriaMet") {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(without_value(CONDITIONS, why));
    }
    errors
}

fn job_as_it_stands(job: &Value) -> Vec<Cause> {
    const CONDITIONS: &str = "status.conditions";
    let mut errors = Vec::new();
    let [complete, failed] = ["Complete", "Failed"].map(|kind| is_true(job, kind));
    let [target, criteria] = ["FailureTarget", "SuccessCriteriaMet"].map(|kind| is_true(job, kind));
    let finished = complete || failed;
    let time = |key: &str| at(job, key).and_then(Value::as_str).and_then(|time| Timestamp::parse(time).ok());
    let (started, ended) = (time("status.startTime"), time("status.completionTime"));
    let shown = |key: &str| at(job, key).cloned().unwrap_or_default();
    if complete && failed {
        errors.push(without_value(CONDITIONS, "cannot set Complete=True and Failed=true conditions"));
    }
    if complete && target {
        errors.push(without_value(CONDITIONS, "cannot set Complete=True and FailureTarget=true conditions"));
    }
    const ENDED: &str = "status.completionTime";
    if ended.is_some() && !complete {
        let why = "cannot set completionTime when there is no Complete=True condition";
        errors.push(field::invalid(ENDED, shown(ENDED), why));
    }
    if ended.is_none() && complete {
        errors.push(field::required(ENDED, "completionTime is required for Complete jobs"));
    }
    if started.zip(ended).is_some_and(|(started, ended)| ended < started) {
        errors.push(field::invalid(ENDED, shown(ENDED), "must be equal to or after `startTime`"));
    }
    if failed && !target {
        let why = "cannot set Failed=True condition without the FailureTarget=true condition";
        errors.push(without_value(CONDITIONS, why));
    }
    if complete && !criteria {
        let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.push(without_value(CONDITIONS, why));
    }
    let count = |key: &str| int(job, &format!("status.{key}")).unwrap_or(0);
    if finished && count("active") > 0 {
        errors.push(field::invalid("status.active", count("active"), "active>0 is invalid for finished job"));
    }
    if finished && started.is_none() {
        errors.push(field::required("status.startTime", "startTime is required for finished job"));
    }
    const UNCOUNTED: &str = "status.uncountedTerminatedPods";
    let uncounted = |part: &str| !list(job, &format!("{UNCOUNTED}.{part}")).is_empty();
    if finished && (uncounted("succeeded") || uncounted("failed")) {
        errors.push(field::invalid(UNCOUNTED, shown(UNCOUNTED), "must be empty for finished job"));
    }
    batch::status_indexes(job, &mut errors);
    if finished && count("terminating") > 0 {
        let why = "terminating>0 is invalid for finished job";
        errors.push(field::invalid("status.terminating", count("terminating"), why));
    }
    if at(job, "status.ready").is_some() && count("ready") > count("active") {
        errors.push(field::invalid("status.ready", count("ready"), "cannot set more ready pods than active"));
    }
    if criteria && failed {
        errors
            .push(without_value(CONDITIONS, "cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if criteria && target {
        let why = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
        errors.push(without_value(CONDITIONS, why));
    }
    errors
}

/// A namespace that is not deleted is active, one that is deleted ends.
pub fn namespace(new: &Value, _: &Value) -> Vec<Cause> {
    let phase = text(new, "status.phase");
    let (right, when) = match at(new, "metadata.deletionTimestamp") {
        None => ("Active", "empty"),
        Some(_) => ("Terminating", "not empty"),
    };
    if phase == right {
        return Vec::new();
    }
    let why = format!("may only be '{right}' if `deletionTimestamp` is {when}");
    // Upstream names the field as its struct does.
    vec![field::invalid("status.Phase", phase, &why)]
}

/// Where a load balancer can be reached; only a Service of that type has one.
pub fn service(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "status.loadBalancer.ingress";
    if text(new, "spec.type") != "LoadBalancer" && !list(new, PATH).is_empty() {
        return vec![field::forbidden(PATH, "may only be used when `spec.type` is 'LoadBalancer'")];
    }
    ingress_points(new, old, true)
}

/// Where an Ingress can be reached.
pub fn ingress(new: &Value, old: &Value) -> Vec<Cause> {
    ingress_points(new, old, false)
}

fn ingress_points(new: &Value, old: &Value, has_mode: bool) -> Vec<Cause> {
    const PATH: &str = "status.loadBalancer.ingress";
    let before: BTreeSet<&str> = list(old, PATH).iter().map(|point| text(point, "ip")).collect();
    let mut errors = Vec::new();
    for (i, point) in list(new, PATH).iter().enumerate() {
        let (ip, name, here) = (text(point, "ip"), text(point, "hostname"), format_args!("{PATH}[{i}]"));
        if !ip.is_empty() && !before.contains(ip) {
            address::legacy(ip, format_args!("{here}.ip"), &mut errors);
        }
        match at(point, "ipMode").and_then(Value::as_str).filter(|_| has_mode) {
            None if has_mode && !ip.is_empty() => {
                errors.push(field::required(
                    format_args!("{here}.ipMode"),
                    "must be specified when `ip` is set",
                ));
            }
            None => {}
            Some(_) if ip.is_empty() => {
                let why = "may not be specified when `ip` is not set";
                errors.push(field::forbidden(format_args!("{here}.ipMode"), why));
            }
            Some("Proxy" | "VIP") => {}
            Some(mode) => {
                errors.push(field::not_supported(format_args!("{here}.ipMode"), mode, &["Proxy", "VIP"]));
            }
        }
        if !name.is_empty() {
            let here = format_args!("{here}.hostname");
            rule(here, name, names::dns1123_subdomain_errors, &mut errors);
            if address::sloppy(name).is_some() {
                errors.push(field::invalid(here, name, "must be a DNS name, not an IP address"));
            }
        }
    }
    errors
}

fn conditions(pod: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    for (i, condition) in list(pod, "status.conditions").iter().enumerate() {
        let (kind, here) = (text(condition, "type"), format_args!("status.conditions[{i}]"));
        if let Some(generation) = int(condition, "observedGeneration").filter(|generation| *generation < 0) {
            let why = "must be a non-negative integer";
            errors.push(field::invalid(format_args!("{here}.observedGeneration"), generation, why));
        }
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            rule(format_args!("{here}.Type"), kind, names::qualified_name_errors, errors);
        }
    }
}

/// What a kubelet says of a pod: its class of service stays, containers that ended stay ended unless they are started again.
pub fn pod(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let nominated = text(new, "status.nominatedNodeName");
    if !nominated.is_empty() && nominated != text(old, "status.nominatedNodeName") {
        const PATH: &str = "status.nominatedNodeName";
        rule(format_args!("{PATH}"), nominated, names::dns1123_subdomain_errors, &mut errors);
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
    // Containers with rules of their own may be started again whatever the pod says.
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

/// Addresses are well formed where they are new, and one of each family.
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

/// An old kubelet leaves out the class of service and the generations that a status is of.
pub fn keep_of_pod(new: &mut Value, old: &Value) {
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

/// A volume tells since when it is in its phase.
pub fn date_phase(new: &mut Value, old: &Value) {
    const PHASE: &str = "status.phase";
    const SINCE: &str = "status.lastPhaseTransitionTime";
    let (now, before) = (at(new, SINCE).cloned(), at(old, SINCE).cloned());
    let since = match text(new, PHASE) == text(old, PHASE) {
        true if now.is_none() => before,
        false if now.is_none() || now == before => Some(Timestamp::now().to_rfc3339().into()),
        _ => return,
    };
    if let (Some(since), Some(status)) = (since, new.object_at_mut(&["status"])) {
        status.insert("lastPhaseTransitionTime", since);
    }
}

#[cfg(test)]
mod tests;
