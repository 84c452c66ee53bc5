//! The subresource `pods/ephemeralcontainers`, and ephemeral containers of a pod.

use std::collections::{HashMap, HashSet};

use plinth_codec::error::quoted;
use plinth_codec::Value;

use crate::checks::Part;
use crate::core::pod::subresources::{is_static, name, old_with_write};
use crate::pod_template::container;
use crate::pod_template::PodContext;

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

pub(crate) fn validate_update(new: &Part<'_>, old: &Value) {
    const PATH: &str = "spec.ephemeralContainers";
    if is_static(old) {
        new.forbidden("", "static pods do not support ephemeral containers");
        return;
    }
    let now: HashMap<&str, &Value> =
        new.list(PATH).iter().map(|container| (name(container), container)).collect();
    for before in old.list_at(&["spec", "ephemeralContainers"]) {
        let verb = match now.get(name(before)) {
            None => "removed",
            Some(container) if *container != before => "changed",
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers {} may not be {verb}\n", quoted(name(before)));
        new.forbidden(PATH, &why);
    }
}

/// Errors of ephemeral containers (kubernetes `pkg/apis/core/validation`, `validateEphemeralContainers`).
pub(crate) fn validate(pod: &Part<'_>) {
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
    let others: HashSet<&str> = ["spec.containers", "spec.initContainers"]
        .into_iter()
        .flat_map(|part| pod.list(part))
        .map(name)
        .collect();
    let mut seen = others.clone();
    let Some(context) = PodContext::of_running(pod.value()) else { return };
    for container in pod.each("spec.ephemeralContainers") {
        container::common(&container, &context);
        container.unique("name", container.text("name"), &mut seen);
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            container.not_found("targetContainerName", target);
        }
        // An empty text counts as set.
        let is_set = |key: &&str| container.set_text(key) == Some("") || !container.is_empty(key);
        FORBIDDEN.into_iter().filter(is_set).for_each(|key| container.forbidden(key, WHY));
        for mount in container.each("volumeMounts") {
            for key in ["subPath", "subPathExpr"].into_iter().filter(|key| !mount.text(key).is_empty()) {
                mount.forbidden(key, WHY);
            }
        }
    }
}
