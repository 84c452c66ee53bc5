//! Which fields of a pod can change (kubernetes `pkg/apis/core/validation`, `ValidatePodUpdate`).

use std::collections::HashSet;

use plinth_codec::{Map, Value};

use crate::checks::comparison::{same, take};
use crate::checks::Check::{Each, Required};
use crate::checks::Part;
use crate::path::{at, int, list, text};
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
pub(crate) fn validate_update(new: &Part<'_>, old: &Value) {
    for part in ["spec.containers", "spec.initContainers"] {
        if new.list(part).len() != list(old, part).len() {
            new.forbidden(part, "pod updates may not add or remove containers");
            return;
        }
        new.check(&[Each(part, &[Required("image", "")])]);
    }
    fixed_annotations(new, old);
    // Fast path: most updates leave the spec unchanged or change images only, which is allowed.
    if differ_in_images(new.value(), old, &|_| true) || deadline(new, old) {
        return;
    }
    tolerations(new, old);
    let before: HashSet<&str> =
        list(old, "spec.schedulingGates").iter().map(|gate| text(gate, "name")).collect();
    for gate in new.each("spec.schedulingGates").filter(|gate| !before.contains(gate.text("name"))) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{}'", gate.text("name"));
        gate.forbidden("name", &why);
    }
    if !same(Some(&allowed(new, old, !before.is_empty())), old.get("spec")) {
        new.forbidden("spec", IMMUTABLE_SPEC);
    }
}

/// Annotations that are immutable after creation.
fn fixed_annotations(pod: &Part<'_>, old: &Value) {
    const FIXED: [(fn(&str) -> bool, &str); 2] = [
        (|key| key.starts_with(APP_ARMOR_ANNOTATION), "AppArmor annotations"),
        (|key| key == MIRROR_ANNOTATION, "mirror pod annotation"),
    ];
    fn of(object: &Value) -> Option<&Map> {
        object.at(&["metadata", "annotations"]).and_then(Value::as_object)
    }
    let (new, old) = (of(pod.value()), of(old));
    let value_of = |annotations: Option<&Map>, key: &str| annotations.and_then(|all| all.get(key)).cloned();
    let fixed = |key: &str| FIXED.into_iter().find(|(is_it, _)| is_it(key)).map(|(_, what)| what);
    let refuse = |key: &str, why: String| pod.forbidden(format_args!("metadata.annotations[{key}]"), &why);
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

/// The new spec with all fields that may change taken from the old one.
fn allowed(new: &Part<'_>, old: &Value, gated: bool) -> Value {
    // Only the spec is cloned: managedFields are as large again.
    let mut munged = Value::object();
    if let (Some(munged), Some(spec)) = (munged.as_object_mut(), new.at("spec")) {
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
    const GRACE: &str = "spec.terminationGracePeriodSeconds";
    if int(old, GRACE).is_some_and(|seconds| seconds < 0) && new.int(GRACE) == Some(1) {
        take(&mut munged, old, &["spec", "terminationGracePeriodSeconds"]);
    }
    if gated {
        const SELECTOR: &str = "spec.nodeSelector";
        let now = new.at(SELECTOR).and_then(Value::as_object);
        let mut before = at(old, SELECTOR).and_then(Value::as_object).into_iter().flat_map(Map::iter);
        if before.any(|(key, value)| now.and_then(|now| now.get(key)) != Some(value)) {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            new.invalid(SELECTOR, new.shown(SELECTOR), why);
        }
        node_affinity(new, old);
        take(&mut munged, old, &["spec", "nodeSelector"]);
        take(&mut munged, old, &["spec", "affinity", "nodeAffinity"]);
    }
    munged.as_object_mut().and_then(|munged| munged.remove("spec")).unwrap_or_default()
}

/// Node affinity of a gated pod can only become more restrictive.
fn node_affinity(new: &Part<'_>, old: &Value) {
    const PATH: &str =
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let before = list(old, PATH);
    if !before.is_empty() && new.list(PATH).len() != before.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        new.invalid(PATH, new.shown(PATH), why);
        return;
    }
    let only_adds = |now: &Value, before: &Value| {
        let keys = ["matchExpressions", "matchFields"];
        let was_empty = keys.iter().all(|key| list(before, key).is_empty());
        let is_empty = keys.iter().all(|key| list(now, key).is_empty());
        (!was_empty || is_empty) && keys.iter().all(|key| list(now, key).starts_with(list(before, key)))
    };
    for (now, _) in new.each(PATH).zip(before).filter(|(now, before)| !only_adds(now.value(), before)) {
        now.invalid("", now.shown(""), "only additions are allowed (no mutations or deletions)");
    }
}

/// A deadline can be set or shortened; returns whether validation ends here.
fn deadline(new: &Part<'_>, old: &Value) -> bool {
    const PATH: &str = "spec.activeDeadlineSeconds";
    let (value, why, ends) = match (new.int(PATH), int(old, PATH)) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            (now.into(), "must be between 0 and 2147483647, inclusive", true)
        }
        (Some(now), Some(before)) if before < now => {
            (now.into(), "must be less than or equal to previous value", true)
        }
        (None, Some(_)) => (Value::Null, "must not update from a positive integer to nil value", false),
        _ => return false,
    };
    new.invalid(PATH, value, why);
    ends
}

/// Tolerations can be added; existing ones can only change `tolerationSeconds`.
fn tolerations(new: &Part<'_>, old: &Value) {
    fn without_seconds(toleration: &Value) -> [&str; 4] {
        ["key", "operator", "value", "effect"].map(|key| text(toleration, key))
    }
    let kept: HashSet<[&str; 4]> = new.list("spec.tolerations").iter().map(without_seconds).collect();
    if list(old, "spec.tolerations").iter().any(|before| !kept.contains(&without_seconds(before))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        new.forbidden("spec.tolerations", why);
    }
}
