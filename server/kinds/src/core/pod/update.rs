//! Which fields of a pod can change (kubernetes `pkg/apis/core/validation`, `ValidatePodUpdate`).

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::{Map, Value};

use crate::checks::comparison::{same, take};
use crate::path::{at, list, text};
use crate::pod_template::app_armor::APP_ARMOR_ANNOTATION;
use crate::pod_template::MIRROR_ANNOTATION;

/// Message for an update that changes an immutable field.
const IMMUTABLE_SPEC: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";

/// Whether two objects are equal except for members where `may` allows a difference; copies nothing.
fn same_but(a: Option<&Value>, b: Option<&Value>, may: &dyn Fn(&str, &Value, &Value) -> bool) -> bool {
    let (Some(a), Some(b)) = (a.and_then(Value::as_object), b.and_then(Value::as_object)) else {
        return a == b;
    };
    let mut both = a.iter().zip(b.iter());
    a.len() == b.len() && both.all(|((key, a), (other, b))| key == other && (a == b || may(key, a, b)))
}

/// Whether nothing changed that the checks of a pod read, except for image names that are valid. Most updates
/// change labels or the status only.
pub(crate) fn is_unchanged_since_validation(new: &Value, old: &Value) -> bool {
    new.at(&["metadata", "annotations"]) == old.at(&["metadata", "annotations"])
        && differ_in_images(new, old, &|image| !image.is_empty() && image.trim() == image)
}

/// Whether two specs are equal except for image names, and those that differ are valid.
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

/// Images, an earlier deadline, more tolerations and fewer scheduling gates are allowed, and while there are
/// gates, narrower node selection.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
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
    // Fast path: most updates leave the spec unchanged or change images only, which is allowed.
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
        errors.push(field::forbidden("spec", IMMUTABLE_SPEC));
    }
    errors
}

/// Annotations that are immutable after creation.
fn fixed_annotations(new: &Value, old: &Value, errors: &mut Vec<Cause>) {
    const FIXED: [(fn(&str) -> bool, &str); 2] = [
        (|key| key.starts_with(APP_ARMOR_ANNOTATION), "AppArmor annotations"),
        (|key| key == MIRROR_ANNOTATION, "mirror pod annotation"),
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

/// The old spec with all fields that may change taken from the new one.
fn allowed(new: &Value, old: &Value, gated: bool, errors: &mut Vec<Cause>) -> Value {
    // Only the spec is cloned: managedFields are as large again.
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

/// Node affinity of a gated pod can only become more restrictive.
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

/// A deadline can be set or shortened; returns whether validation ends here.
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

/// Tolerations can be added; existing ones can only change `tolerationSeconds`.
fn tolerations<'a>(new: &'a [Value], old: &'a [Value], errors: &mut Vec<Cause>) {
    let without_seconds =
        |toleration: &'a Value| ["key", "operator", "value", "effect"].map(|key| text(toleration, key));
    let kept: HashSet<[&str; 4]> = new.iter().map(without_seconds).collect();
    if old.iter().any(|before| !kept.contains(&without_seconds(before))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(field::forbidden("spec.tolerations", why));
    }
}
