//! The subresource `pods/ephemeralcontainers`, and ephemeral containers of a pod.

use std::collections::{HashMap, HashSet};

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::Value;

use crate::core::pod::subresources::{is_static, list_at, name, old_with_write};
use crate::pod_template::{self, PodContext};

pub(crate) fn prepare(new: &mut Value, old: &Value) {
    let mut kept = old_with_write(new, old);
    if let Some(spec) = kept.object_at_mut(&["spec"]) {
        match new.at(&["spec", "ephemeralContainers"]) {
            Some(containers) => spec.insert("ephemeralContainers", containers.clone()),
            None => spec.remove("ephemeralContainers"),
        };
    }
    *new = kept;
}

pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.ephemeralContainers";
    if is_static(old) {
        return vec![field::forbidden("", "static pods do not support ephemeral containers")];
    }
    let mut errors = Vec::new();
    let now: HashMap<&str, &Value> = list_at(new, &["spec", "ephemeralContainers"])
        .iter()
        .map(|container| (name(container), container))
        .collect();
    for before in list_at(old, &["spec", "ephemeralContainers"]) {
        let verb = match now.get(name(before)) {
            None => "removed",
            Some(container) if *container != before => "changed",
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers {:?} may not be {verb}\n", name(before));
        errors.push(field::forbidden(PATH, &why));
    }
    errors
}

/// Errors of ephemeral containers (kubernetes `pkg/apis/core/validation`, `validateEphemeralContainers`).
pub(crate) fn validate(pod: &Value) -> Vec<Cause> {
    const FORBIDDEN: [&str; 7] = [
        "ports",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "resources",
        "restartPolicy",
    ];
    const WHY: &str = "cannot be set for an Ephemeral Container";
    let mut errors = Vec::new();
    let others: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|part| list_at(pod, &["spec", part]))
        .map(name)
        .collect();
    let mut seen = others.clone();
    let Some(context) = PodContext::of_running(pod) else { return errors };
    for (i, container) in list_at(pod, &["spec", "ephemeralContainers"]).iter().enumerate() {
        let path = format!("spec.ephemeralContainers[{i}]");
        pod_template::ephemeral(container, &context, format_args!("{path}."), &mut errors);
        if !seen.insert(name(container)) {
            errors.push(field::duplicate(format!("{path}.name"), name(container)));
        }
        let target = container.str_at(&["targetContainerName"]).filter(|target| !target.is_empty());
        if let Some(target) = target.filter(|target| !others.contains(*target)) {
            errors.push(field::not_found(format!("{path}.targetContainerName"), target));
        }
        let is_set = |key: &str| match container.get(key) {
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Array(list_at)) => !list_at.is_empty(),
            other => other.is_some_and(|v| !v.is_null()),
        };
        let set = FORBIDDEN.iter().filter(|key| is_set(key));
        errors.extend(set.map(|key| field::forbidden(format!("{path}.{key}"), WHY)));
        for (j, mount) in list_at(container, &["volumeMounts"]).iter().enumerate() {
            let set = ["subPath", "subPathExpr"].into_iter();
            let set = set.filter(|key| mount.str_at(&[key]).is_some_and(|path| !path.is_empty()));
            errors.extend(set.map(|key| field::forbidden(format!("{path}.volumeMounts[{j}].{key}"), WHY)));
        }
    }
    errors
}
