//! What of a pod, a claim, a volume, a set, a Job and a node can change, and what is fixed once it is there.
//!
//! Each rule takes the old object, puts in what may change of the new one, and compares. Upstream: kubernetes
//! `pkg/apis/{core,apps,batch}/validation`; where it appends a diff to a message ours ends before it.

use std::collections::HashSet;

use plinth_codec::quantity::Quantity;
use plinth_codec::{Map, Value};

use super::update::immutable;
use super::{at, list, text};
use crate::core::app_armor::ANNOTATION as APP_ARMOR;
use crate::faces::MIRROR;
use plinth_api::api_error::Cause;
use plinth_api::field;

/// What is said of a pod whose fixed fields change.
const POD: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";
const CLAIM: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
const SET: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// Takes `new`'s value at a path of keys over into `target`; absent there is absent here.
fn take(target: &mut Value, new: &Value, path: &[&str]) {
    let Some((key, parents)) = path.split_last() else { return };
    match new.at(path).filter(|v| !v.is_null()) {
        Some(value) => {
            if let Some(parent) = target.object_at_mut(parents) {
                parent.insert(*key, value.clone());
            }
        }
        None => {
            if let Some(parent) = parent_mut(target, parents) {
                parent.remove(key);
            }
        }
    }
}

/// The object at a path, if it is there.
fn parent_mut<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map> {
    let mut value = value;
    for key in path {
        value = value.get_mut(key)?;
    }
    value.as_object_mut()
}

/// Whether two objects are the same but for members that are null, empty or absent.
fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    fn empty(value: Option<&Value>) -> bool {
        match value {
            None | Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(_) => false,
        }
    }
    match (a, b) {
        (a, b) if empty(a) && empty(b) => true,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter().all(|(key, value)| same(Some(value), b.get(key)))
                && b.iter().all(|(key, value)| a.contains(key) || empty(Some(value)))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(Some(a), Some(b)))
        }
        (a, b) => a == b,
    }
}

/// Whether two objects have the same members, but for those that may differ; copies nothing.
fn same_but(a: Option<&Value>, b: Option<&Value>, may: &dyn Fn(&str, &Value, &Value) -> bool) -> bool {
    let (Some(a), Some(b)) = (a.and_then(Value::as_object), b.and_then(Value::as_object)) else {
        return a == b;
    };
    let mut both = a.iter().zip(b.iter());
    a.len() == b.len() && both.all(|((key, a), (other, b))| key == other && (a == b || may(key, a, b)))
}

/// Whether nothing of a pod changed that its checks look at, but names of images, and those to good ones: nearly every
/// change of a pod is of its labels or status.
pub fn pod_is_settled(new: &Value, old: &Value) -> bool {
    new.at(&["metadata", "annotations"]) == old.at(&["metadata", "annotations"])
        && differ_in_images(new, old, &|image| !image.is_empty() && image.trim() == image)
}

/// Whether the specs of two pods are the same but for names of images, and those that differ are good.
fn differ_in_images(new: &Value, old: &Value, good: &dyn Fn(&str) -> bool) -> bool {
    let is_image = |key: &str, new: &Value, _: &Value| key == "image" && new.as_str().is_some_and(good);
    let in_images = |key: &str, new: &Value, old: &Value| {
        ["containers", "initContainers"].contains(&key) && same_lists_but(new, old, &is_image)
    };
    same_but(new.get("spec"), old.get("spec"), &in_images)
}

/// As [`same_but`] for the elements of two lists.
fn same_lists_but(new: &Value, old: &Value, may: &dyn Fn(&str, &Value, &Value) -> bool) -> bool {
    let (new, old) = (new.as_array().unwrap_or_default(), old.as_array().unwrap_or_default());
    new.len() == old.len() && new.iter().zip(old).all(|(new, old)| same_but(Some(new), Some(old), may))
}

/// A pod: images, a shorter deadline, more tolerations, fewer scheduling gates; and while it has gates, where it may run.
pub fn pod(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    for part in ["containers", "initContainers"] {
        let path = format!("spec.{part}");
        if list(new, &path).len() != list(old, &path).len() {
            errors.push(field::forbidden(path, "pod updates may not add or remove containers"));
            return errors;
        }
        for (i, container) in list(new, &path).iter().enumerate() {
            if text(container, "image").is_empty() {
                errors.push(field::required(format_args!("{path}[{i}].image"), ""));
            }
        }
    }
    fixed_annotations(new, old, &mut errors);
    // Nearly every change of a pod is none of its spec, or one of images, which may change.
    if differ_in_images(new, old, &|_| true) {
        return errors;
    }
    if deadline(new, old, &mut errors) {
        return errors;
    }
    tolerations(list(new, "spec.tolerations"), list(old, "spec.tolerations"), &mut errors);
    let before: HashSet<&str> =
        list(old, "spec.schedulingGates").iter().map(|gate| text(gate, "name")).collect();
    let gates = list(new, "spec.schedulingGates").iter().map(|gate| text(gate, "name"));
    for (i, gate) in gates.enumerate().filter(|(_, gate)| !before.contains(gate)) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        errors.push(field::forbidden(format_args!("spec.schedulingGates[{i}].name"), &why));
    }
    if !same(Some(&allowed(new, old, !before.is_empty(), &mut errors)), old.get("spec")) {
        errors.push(field::forbidden("spec", POD));
    }
    errors
}

/// Annotations that stay what they were at birth.
fn fixed_annotations(new: &Value, old: &Value, errors: &mut Vec<Cause>) {
    const FIXED: [(fn(&str) -> bool, &str); 2] = [
        (|key| key.starts_with(APP_ARMOR), "AppArmor annotations"),
        (|key| key == MIRROR, "mirror pod annotation"),
    ];
    fn of(object: &Value) -> Option<&Map> {
        object.at(&["metadata", "annotations"]).and_then(Value::as_object)
    }
    let (new, old) = (of(new), of(old));
    let value_of = |annotations: Option<&Map>, key: &str| annotations.and_then(|all| all.get(key)).cloned();
    let fixed = |key: &str| FIXED.into_iter().find(|(is_it, _)| is_it(key)).map(|(_, what)| what);
    let mut refuse = |key: &str, why: String| {
        errors.push(field::forbidden(format!("metadata.annotations[{key}]"), &why));
    };
    for (key, value) in old.into_iter().flat_map(Map::iter) {
        let Some(what) = fixed(key) else { continue };
        if value_of(new, key).as_ref() != Some(value) {
            refuse(key, format!("may not remove or update {what}"));
        }
    }
    for (key, _) in new.into_iter().flat_map(Map::iter) {
        let Some(what) = fixed(key) else { continue };
        if value_of(old, key).is_none() {
            refuse(key, format!("may not add {what}"));
        }
    }
}

/// The new spec with what may have changed put back.
fn allowed(new: &Value, old: &Value, gated: bool, errors: &mut Vec<Cause>) -> Value {
    // The spec alone: what owns the fields is as much again.
    let mut munged = Value::object();
    if let (Some(munged), Some(spec)) = (munged.as_object_mut(), new.get("spec")) {
        munged.insert("spec", spec.clone());
    }
    for part in ["containers", "initContainers"] {
        let containers = munged.get_mut("spec").and_then(|s| s.get_mut(part)).and_then(Value::as_array_mut);
        for (container, before) in containers.into_iter().flatten().zip(list(old, &format!("spec.{part}"))) {
            take(container, before, &["image"]);
        }
    }
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        take(&mut munged, old, &["spec", key]);
    }
    let grace = |pod: &Value| at(pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_int);
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(new) == Some(1) {
        take(&mut munged, old, &["spec", "terminationGracePeriodSeconds"]);
    }
    if gated {
        let selector = |pod: &Value| {
            at(pod, "spec.nodeSelector").and_then(Value::as_object).cloned().unwrap_or_default()
        };
        let (now, before) = (selector(new), selector(old));
        if before.iter().any(|(key, value)| now.get(key) != Some(value)) {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            let shown = at(new, "spec.nodeSelector").cloned().unwrap_or_default();
            errors.push(field::invalid("spec.nodeSelector", shown, why));
        }
        node_affinity(new, old, errors);
        take(&mut munged, old, &["spec", "nodeSelector"]);
        take(&mut munged, old, &["spec", "affinity", "nodeAffinity"]);
    }
    munged.as_object_mut().and_then(|munged| munged.remove("spec")).unwrap_or_default()
}

/// What a waiting pod wants of nodes can become more, never less or something else.
fn node_affinity(new: &Value, old: &Value, errors: &mut Vec<Cause>) {
    const PATH: &str =
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (now, before) = (list(new, PATH), list(old, PATH));
    if !before.is_empty() && now.len() != before.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown = at(new, PATH).cloned().unwrap_or_default();
        errors.push(field::invalid(PATH, shown, why));
        return;
    }
    let only_adds = |now: &Value, before: &Value| {
        let part = |term: &Value, key: &str| list(term, key).to_vec();
        let keys = ["matchExpressions", "matchFields"];
        let was_empty = keys.iter().all(|key| part(before, key).is_empty());
        let is_empty = keys.iter().all(|key| part(now, key).is_empty());
        let kept = |key: &&str| part(now, key).starts_with(&part(before, key));
        (!was_empty || is_empty) && keys.iter().all(kept)
    };
    for (i, (now, _)) in
        now.iter().zip(before).enumerate().filter(|(_, (now, before))| !only_adds(now, before))
    {
        let why = "only additions are allowed (no mutations or deletions)";
        errors.push(field::invalid(format_args!("{PATH}[{i}]"), now.clone(), why));
    }
}

/// A deadline can be set, and moved nearer; true when nothing else need be looked at.
fn deadline(new: &Value, old: &Value, errors: &mut Vec<Cause>) -> bool {
    const PATH: &str = "spec.activeDeadlineSeconds";
    let seconds = |pod: &Value| at(pod, PATH).and_then(Value::as_int);
    match (seconds(new), seconds(old)) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            errors.push(field::invalid(PATH, now, "must be between 0 and 2147483647, inclusive"));
            true
        }
        (Some(now), Some(before)) if before < now => {
            errors.push(field::invalid(PATH, now, "must be less than or equal to previous value"));
            true
        }
        (None, Some(_)) => {
            errors.push(field::invalid(
                PATH,
                Value::Null,
                "must not update from a positive integer to nil value",
            ));
            false
        }
        _ => false,
    }
}

/// Tolerations can be added; of those that are there only the seconds can change.
fn tolerations<'a>(new: &'a [Value], old: &'a [Value], errors: &mut Vec<Cause>) {
    let without_seconds =
        |toleration: &'a Value| ["key", "operator", "value", "effect"].map(|key| text(toleration, key));
    let kept: HashSet<[&str; 4]> = new.iter().map(without_seconds).collect();
    if old.iter().any(|before| !kept.contains(&without_seconds(before))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(field::forbidden("spec.tolerations", why));
    }
}

/// A claim: its volume is named once; when it is bound, its size and its attributes class can change.
pub fn claim(new: &Value, old: &Value) -> Vec<Cause> {
    const SIZE: &str = "spec.resources.requests.storage";
    let mut errors = Vec::new();
    let mut munged = new.clone();
    if text(old, "spec.volumeName").is_empty() {
        take(&mut munged, old, &["spec", "volumeName"]);
    }
    let bound = text(new, "status.phase") == "Bound";
    if bound {
        take(&mut munged, old, &["spec", "resources", "requests", "storage"]);
        take(&mut munged, old, &["spec", "volumeAttributesClassName"]);
    }
    if !same(munged.get("spec"), old.get("spec")) {
        errors.push(field::forbidden("spec", CLAIM));
    }
    let amount = |claim: &Value, path: &str| Quantity::parse(text(claim, path)).unwrap_or(Quantity::ZERO);
    if amount(new, SIZE) < amount(old, SIZE) && amount(new, SIZE) <= amount(old, "status.capacity.storage") {
        errors.push(field::forbidden(SIZE, "field can not be less than status.capacity"));
    }
    if at(new, "spec.volumeMode") != at(old, "spec.volumeMode") {
        let shown = at(new, "spec.volumeMode").cloned().unwrap_or_default();
        errors.push(field::invalid("volumeMode", shown, "field is immutable"));
    }
    errors
}

/// A volume: where it is and what it looks like are fixed.
pub fn volume(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let source = |volume: &Value| {
        let mut source = volume.get("spec").cloned().unwrap_or_default();
        if let Some(object) = source.as_object_mut() {
            object.retain(|key, _| super::storage::is_source(key));
        }
        source
    };
    let (mut now, before) = (source(new), source(old));
    if at(&before, "csi").is_some() && at(&before, "csi.controllerExpandSecretRef").is_none() {
        take(&mut now, &before, &["csi", "controllerExpandSecretRef"]);
    }
    if !same(Some(&now), Some(&before)) {
        let why = "spec.persistentvolumesource is immutable after creation\n";
        errors.push(field::forbidden("spec.persistentvolumesource", why));
    }
    if at(new, "spec.volumeMode") != at(old, "spec.volumeMode") {
        let shown = at(new, "spec.volumeMode").cloned().unwrap_or_default();
        errors.push(field::invalid("volumeMode", shown, "field is immutable"));
    }
    let affinity = |volume| at(volume, "spec.nodeAffinity");
    if affinity(old).is_some() && !same(affinity(new), affinity(old)) {
        let why = "field is immutable, except for updating from beta label to GA";
        errors.push(field::invalid("nodeAffinity", affinity(new).cloned().unwrap_or_default(), why));
    }
    errors
}

/// A StatefulSet: what its pods are, how many and how they are replaced.
pub fn stateful_set(new: &Value, old: &Value) -> Vec<Cause> {
    const CHANGING: [&str; 7] = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    let mut munged = new.clone();
    for key in CHANGING {
        take(&mut munged, old, &["spec", key]);
    }
    match same(munged.get("spec"), old.get("spec")) {
        true => Vec::new(),
        false => vec![field::forbidden("spec", SET)],
    }
}

/// A Job: its pods are fixed but for where a suspended one that never ran lets them run; an indexed one can have another
/// number of completions together with its parallelism.
pub fn job(new: &Value, old: &Value) -> Vec<Cause> {
    const FIXED: &[&str] = &[
        "spec.completionMode",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
        "spec.managedBy",
        "spec.successPolicy",
    ];
    let mut errors = Vec::new();
    let count = |job: &Value, key: &str| at(job, &format!("spec.{key}")).and_then(Value::as_int);
    let completions = count(new, "completions");
    if completions != count(old, "completions") {
        let indexed = text(new, "spec.completionMode") == "Indexed";
        let shown = completions.map_or(Value::Null, Value::from);
        if !indexed || completions.is_none() || count(old, "completions").is_none() {
            errors.push(field::invalid("spec.completions", shown, "field is immutable"));
        } else if completions != count(new, "parallelism") {
            let why = "can only be modified in tandem with spec.parallelism";
            errors.push(field::invalid("spec.completions", shown, why));
        }
    }
    immutable(&["spec.selector"], new, old, &mut errors);
    let suspended = |job: &Value| at(job, "spec.suspend").and_then(Value::as_bool) == Some(true);
    let mut template = new.clone();
    if suspended(old) && at(old, "status.startTime").is_none() {
        const DIRECTIVES: [&[&str]; 6] = [
            &["spec", "template", "metadata", "annotations"],
            &["spec", "template", "metadata", "labels"],
            &["spec", "template", "spec", "nodeSelector"],
            &["spec", "template", "spec", "tolerations"],
            &["spec", "template", "spec", "schedulingGates"],
            &["spec", "template", "spec", "affinity", "nodeAffinity"],
        ];
        for path in DIRECTIVES {
            take(&mut template, old, path);
        }
        let containers = template.get_mut("spec").and_then(|s| s.get_mut("template"));
        let containers = containers.and_then(|t| t.get_mut("spec")).and_then(|s| s.get_mut("containers"));
        let before = list(old, "spec.template.spec.containers");
        for (container, before) in containers.and_then(Value::as_array_mut).into_iter().flatten().zip(before)
        {
            if container.get("name") == before.get("name") {
                take(container, before, &["resources"]);
            }
        }
    }
    if !same(at(&template, "spec.template"), at(old, "spec.template")) {
        let shown = at(new, "spec.template").cloned().unwrap_or_default();
        errors.push(field::invalid("spec.template", shown, "field is immutable"));
    }
    immutable(FIXED, new, old, &mut errors);
    errors
}

/// A node: its pod network and its provider's name for it are given once.
pub fn node(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let before = list(old, "spec.podCIDRs");
    if !before.is_empty() && list(new, "spec.podCIDRs") != before {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(field::forbidden("spec.podCIDRs", why));
    }
    let before = text(old, "spec.providerID");
    if !before.is_empty() && text(new, "spec.providerID") != before {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(field::forbidden("spec.providerID", why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    type Rule = fn(&Value, &Value) -> Vec<Cause>;

    /// Rule, old, new, paths of the errors.
    const ROWS: &[(Rule, &str, &str, &[&str])] = &[
        (
            pod,
            r#"{"spec":{"containers":[{"name":"a","image":"x"}]}}"#,
            r#"{"spec":{"containers":[{"name":"a","image":"y"}],"tolerations":[{"key":"k"}],"activeDeadlineSeconds":5}}"#,
            &[],
        ),
        (
            pod,
            r#"{"spec":{"containers":[{"name":"a","image":"x"}]}}"#,
            r#"{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"x"}]}}"#,
            &["spec.containers"],
        ),
        (
            pod,
            r#"{"spec":{"containers":[{"name":"a","image":"x"}]}}"#,
            r#"{"spec":{"containers":[{"name":"a","image":"x","command":["c"]}]}}"#,
            &["spec"],
        ),
        (pod, r#"{"spec":{"nodeName":"a"}}"#, r#"{"spec":{"nodeName":"b"}}"#, &["spec"]),
        (
            pod,
            r#"{"spec":{"activeDeadlineSeconds":5}}"#,
            r#"{"spec":{"activeDeadlineSeconds":6}}"#,
            &["spec.activeDeadlineSeconds"],
        ),
        (pod, r#"{"spec":{"activeDeadlineSeconds":5}}"#, r#"{"spec":{"activeDeadlineSeconds":4}}"#, &[]),
        (pod, r#"{"spec":{"activeDeadlineSeconds":5}}"#, r#"{"spec":{}}"#, &["spec.activeDeadlineSeconds"]),
        (
            pod,
            r#"{"spec":{"tolerations":[{"key":"k","tolerationSeconds":1}]}}"#,
            r#"{"spec":{"tolerations":[{"key":"k","tolerationSeconds":2},{"key":"l"}]}}"#,
            &[],
        ),
        (pod, r#"{"spec":{"tolerations":[{"key":"k"}]}}"#, r#"{"spec":{}}"#, &["spec.tolerations"]),
        (
            pod,
            r#"{"spec":{"schedulingGates":[{"name":"a"}]}}"#,
            r#"{"spec":{"schedulingGates":[{"name":"b"}],"nodeSelector":{"k":"v"}}}"#,
            &["spec.schedulingGates[0].name"],
        ),
        (
            pod,
            r#"{"spec":{"terminationGracePeriodSeconds":-1}}"#,
            r#"{"spec":{"terminationGracePeriodSeconds":1}}"#,
            &[],
        ),
        (
            claim,
            r#"{"spec":{"resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Pending"}}"#,
            r#"{"spec":{"volumeName":"v","resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Pending"}}"#,
            &["spec"],
        ),
        (
            claim,
            r#"{"spec":{"resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Bound"}}"#,
            r#"{"spec":{"volumeName":"v","resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Bound"}}"#,
            &[],
        ),
        (
            claim,
            r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}"#,
            r#"{"spec":{"resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}"#,
            &["spec.resources.requests.storage"],
        ),
        (
            volume,
            r#"{"spec":{"hostPath":{"path":"/a"},"capacity":{"storage":"1"}}}"#,
            r#"{"spec":{"hostPath":{"path":"/b"},"capacity":{"storage":"2"}}}"#,
            &["spec.persistentvolumesource"],
        ),
        (
            volume,
            r#"{"spec":{"hostPath":{"path":"/a"}}}"#,
            r#"{"spec":{"hostPath":{"path":"/a"},"claimRef":{"name":"c"}}}"#,
            &[],
        ),
        (
            volume,
            r#"{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{}]}}}}"#,
            r#"{"spec":{}}"#,
            &["nodeAffinity"],
        ),
        (
            volume,
            r#"{"spec":{}}"#,
            r#"{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{}]}}}}"#,
            &[],
        ),
        (stateful_set, r#"{"spec":{"replicas":1}}"#, r#"{"spec":{"replicas":2,"template":{}}}"#, &[]),
        (stateful_set, r#"{"spec":{"serviceName":"a"}}"#, r#"{"spec":{"serviceName":"b"}}"#, &["spec"]),
        (job, r#"{"spec":{"completions":1}}"#, r#"{"spec":{"completions":2}}"#, &["spec.completions"]),
        (
            job,
            r#"{"spec":{"completionMode":"Indexed","completions":1,"parallelism":1}}"#,
            r#"{"spec":{"completionMode":"Indexed","completions":2,"parallelism":2}}"#,
            &[],
        ),
        (
            job,
            r#"{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}"#,
            r#"{"spec":{"template":{"spec":{"nodeSelector":{"a":"c"}}}}}"#,
            &["spec.template"],
        ),
        (
            job,
            r#"{"spec":{"suspend":true,"template":{"spec":{"nodeSelector":{"a":"b"}}}}}"#,
            r#"{"spec":{"suspend":true,"template":{"spec":{"nodeSelector":{"a":"c"}}}}}"#,
            &[],
        ),
        (node, r#"{"spec":{}}"#, r#"{"spec":{"podCIDRs":["10.0.0.0/24"],"providerID":"x"}}"#, &[]),
        (
            node,
            r#"{"spec":{"podCIDRs":["10.0.0.0/24"],"providerID":"x"}}"#,
            r#"{"spec":{"podCIDRs":["10.0.1.0/24"],"providerID":"y"}}"#,
            &["spec.podCIDRs", "spec.providerID"],
        ),
    ];

    #[test]
    fn what_is_fixed_and_what_can_change() {
        for (rule, old, new, paths) in ROWS {
            let (old_object, new_object) =
                (json::parse(old.as_bytes()).unwrap(), json::parse(new.as_bytes()).unwrap());
            let errors = rule(&new_object, &old_object);
            let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(found, *paths, "{old} -> {new}");
            assert_eq!(rule(&old_object, &old_object), [], "{old}");
        }
    }
}
