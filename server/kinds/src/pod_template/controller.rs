//! What controllers that run pods share: selector, template, replica counts in the status.

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::selector::LabelSelector;
use plinth_codec::{tree, Value};

use crate::checks::Check::{self, AtLeast, By};
use crate::checks::{selector_errors, validate};
use crate::path::{at, int, list, text};
use crate::pod_template::TEMPLATE_CHECKS;

pub(crate) fn template(object: &Value, errors: &mut Vec<Cause>) {
    let nothing = Value::object();
    let template = at(object, "spec.template").unwrap_or(&nothing);
    let claims = object.at(&["spec", "volumeClaimTemplates"]).and_then(Value::as_array).unwrap_or_default();
    match claims {
        [] => validate(TEMPLATE_CHECKS, template, format_args!("spec.template."), errors),
        claims => {
            validate(TEMPLATE_CHECKS, &with_claims(template, claims), format_args!("spec.template."), errors)
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
pub(crate) fn selector(object: &Value, kind: &str, errors: &mut Vec<Cause>) {
    let given = at(object, "spec.selector");
    let selects_nothing =
        given.is_none_or(|s| at(s, "matchLabels").is_none() && list(s, "matchExpressions").is_empty());
    match given {
        // Upstream does not require it of DaemonSets.
        None if kind == "daemonset" => {}
        None => errors.push(field::required("spec.selector", "")),
        Some(selector) => {
            selector_errors(selector, format_args!("spec.selector"), errors);
            if selects_nothing {
                let why = format!("empty selector is invalid for {kind}");
                errors.push(field::invalid("spec.selector", tree!({}), &why));
            }
        }
    }
    let labels = at(object, "spec.template.metadata.labels");
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let Ok(parsed) = LabelSelector::from_object(given) else {
        let shown = given.cloned().unwrap_or_default();
        match kind {
            "daemonset" => {}
            "statefulset" => {
                let mut error = field::invalid("spec.selector", shown, "");
                error.message.truncate(error.message.trim_end_matches([':', ' ']).len());
                errors.push(error);
            }
            _ => errors.push(field::invalid("spec.selector", shown, "invalid label selector")),
        }
        return;
    };
    if given.is_none() || (!selects_nothing && !parsed.matches(label)) {
        let why = "`selector` does not match template `labels`";
        let shown = labels.cloned().unwrap_or_default();
        errors.push(field::invalid("spec.template.metadata.labels", shown, why));
    }
}

/// Validates that pods of the template always restart and have no deadline.
pub(crate) fn restarts_always(object: &Value, errors: &mut Vec<Cause>) {
    let policy = text(object, "spec.template.spec.restartPolicy");
    if !matches!(policy, "" | "Always") {
        errors.push(field::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    if int(object, "spec.template.spec.activeDeadlineSeconds").is_some() {
        let what = match text(object, "kind") {
            "" => "this kind",
            kind => kind,
        };
        let why = format!("activeDeadlineSeconds in {what} is not Supported");
        errors.push(field::forbidden("spec.template.spec.activeDeadlineSeconds", &why));
    }
}

pub(crate) fn template_always(object: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    // Upstream skips the template when the selector is malformed.
    let reads = LabelSelector::from_object(at(object, "spec.selector")).is_ok();
    if !reads && matches!(text(object, "kind"), "Deployment" | "ReplicaSet") {
        return;
    }
    template(object, errors);
    restarts_always(object, errors);
}

/// Status checks of ReplicaSet and ReplicationController.
pub(crate) const REPLICAS_STATUS_CHECKS: &[Check] = &[
    AtLeast("status.replicas", 0),
    AtLeast("status.fullyLabeledReplicas", 0),
    AtLeast("status.readyReplicas", 0),
    AtLeast("status.availableReplicas", 0),
    AtLeast("status.observedGeneration", 0),
    AtLeast("status.terminatingReplicas", 0),
    By(|o, _, f| {
        replica_counts(o, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", f)
    }),
];

/// Validates that no count exceeds `replicas`, nor `availableReplicas` exceeds `readyReplicas`.
pub(crate) fn replica_counts(object: &Value, parts: &[&str], ready: &str, errors: &mut Vec<Cause>) {
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

/// Errors of an update of the status: `collisionCount` cannot decrease.
pub(crate) fn collision_count(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "status.collisionCount";
    match (int(new, PATH), int(old, PATH)) {
        (now, Some(before)) if now.is_none_or(|now| now < before) => {
            vec![field::invalid(PATH, now.unwrap_or(0), "cannot be decremented")]
        }
        _ => Vec::new(),
    }
}
