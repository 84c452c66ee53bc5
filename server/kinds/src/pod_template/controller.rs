//! What controllers that run pods share: selector, template, replica counts in the status.

use std::collections::HashSet;

use plinth_api::Cause;
use plinth_codec::selector::LabelSelector;
use plinth_codec::{tree, Value};

use crate::checks::Check::{self, Always, AtLeast, By, OneOf};
use crate::checks::{selector_errors, Part};
use crate::path::{at, int, list};
use crate::pod_template::TEMPLATE_CHECKS;

pub(crate) fn template(object: &Part<'_>) {
    match object.list("spec.volumeClaimTemplates") {
        [] => object.check(&[Always("spec.template", TEMPLATE_CHECKS)]),
        claims => {
            let template = object.at("spec.template").cloned().unwrap_or_else(Value::object);
            object.with_value(&with_claims(&template, claims), "spec.template", |template| {
                template.check(TEMPLATE_CHECKS);
            });
        }
    }
}

/// The template of a StatefulSet as its pods get it: with a volume for each claim template.
fn with_claims(template: &Value, claims: &[Value]) -> Value {
    let mut template = template.clone();
    let names: HashSet<Option<&str>> =
        claims.iter().map(|claim| claim.str_at(&["metadata", "name"])).collect();
    let volumes = claims.iter().map(|claim| {
        let name = claim.str_at(&["metadata", "name"]).unwrap_or_default();
        plinth_codec::tree!({ "name": name, "persistentVolumeClaim": plinth_codec::tree!({ "claimName": name }) })
    });
    if let Some(spec) = template.object_at_mut(&["spec"]) {
        let mut all = spec.get("volumes").and_then(Value::as_array).unwrap_or_default().to_vec();
        // A claim template replaces a volume of the same name.
        all.retain(|volume| !names.contains(&volume.str_at(&["name"])));
        all.extend(volumes);
        spec.insert("volumes", all);
    }
    template
}

/// Validates that the selector is set, not empty, and matches the labels of the template.
pub(crate) fn selector(object: &Part<'_>, kind: &str) {
    let given = object.at("spec.selector");
    let selects_nothing =
        given.is_none_or(|s| at(s, "matchLabels").is_none() && list(s, "matchExpressions").is_empty());
    match object.get("spec.selector") {
        // Upstream does not require it of DaemonSets.
        None if kind == "daemonset" => {}
        None => object.required("spec.selector", ""),
        Some(selector) => {
            selector_errors(&selector);
            if selects_nothing {
                selector.invalid("", tree!({}), &format!("empty selector is invalid for {kind}"));
            }
        }
    }
    let labels = object.at("spec.template.metadata.labels");
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let Ok(parsed) = LabelSelector::from_object(given) else {
        match kind {
            "daemonset" => {}
            "statefulset" => {
                let mut error = Cause::invalid("spec.selector", object.shown("spec.selector"), "");
                error.message.truncate(error.message.trim_end_matches([':', ' ']).len());
                object.push(error);
            }
            _ => object.invalid("spec.selector", object.shown("spec.selector"), "invalid label selector"),
        }
        return;
    };
    if given.is_none() || (!selects_nothing && !parsed.matches(label)) {
        labels_do_not_match(object, "spec.template.metadata.labels");
    }
}

/// Reports that the selector does not match the template's labels.
pub(crate) fn labels_do_not_match(part: &Part<'_>, labels: &str) {
    part.invalid(labels, part.shown(labels), "`selector` does not match template `labels`");
}

/// Validates that pods of the template always restart and have no deadline.
pub(crate) fn restarts_always(object: &Part<'_>) {
    object.check(&[OneOf("spec.template.spec.restartPolicy", &["Always"])]);
    if object.int("spec.template.spec.activeDeadlineSeconds").is_some() {
        let what = match object.text("kind") {
            "" => "this kind",
            kind => kind,
        };
        let why = format!("activeDeadlineSeconds in {what} is not Supported");
        object.forbidden("spec.template.spec.activeDeadlineSeconds", &why);
    }
}

pub(crate) fn template_always(object: &Part<'_>) {
    // Upstream skips the template when the selector is malformed.
    let reads = LabelSelector::from_object(object.at("spec.selector")).is_ok();
    if !reads && matches!(object.text("kind"), "Deployment" | "ReplicaSet") {
        return;
    }
    template(object);
    restarts_always(object);
}

/// Status checks of ReplicaSet and ReplicationController.
pub(crate) const REPLICAS_STATUS_CHECKS: &[Check] = &[
    AtLeast("status.replicas", 0),
    AtLeast("status.fullyLabeledReplicas", 0),
    AtLeast("status.readyReplicas", 0),
    AtLeast("status.availableReplicas", 0),
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.terminatingReplicas", 0),
    By(|object| {
        const PARTS: &[&str] = &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        replica_counts(object, PARTS, "readyReplicas");
    }),
];

/// Validates that no count exceeds `replicas`, nor `availableReplicas` exceeds `readyReplicas`.
pub(crate) fn replica_counts(object: &Part<'_>, parts: &[&str], ready: &str) {
    let status = object.field("status");
    for part in parts.iter().filter(|part| status.number(part) > status.number("replicas")) {
        status.invalid(part, status.number(part), "cannot be greater than status.replicas");
    }
    let available = status.number("availableReplicas");
    if available > status.number("readyReplicas") {
        status.invalid("availableReplicas", available, &format!("cannot be greater than {ready}"));
    }
}

/// Errors of an update of the status: `collisionCount` cannot decrease.
pub(crate) fn collision_count(new: &Part<'_>, old: &Value) {
    const PATH: &str = "status.collisionCount";
    if int(old, PATH).is_some_and(|before| new.int(PATH).is_none_or(|now| now < before)) {
        new.invalid(PATH, new.number(PATH), "cannot be decremented");
    }
}
