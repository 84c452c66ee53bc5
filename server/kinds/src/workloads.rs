//! apps and batch: what their kinds do at create and update.

use plinth_codec::{tree, Value};

/// What deletes a Job and leaves its pods (kubernetes `pkg/registry/batch/job/strategy.go`, `DefaultGarbageCollectionPolicy`).
pub(crate) const JOB_ORPHANS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// How many pods of a StatefulSet may be away during an update is a feature that is off (`MaxUnavailableStatefulSet`).
pub fn prepare_stateful_set_for_create(set: &mut Value) {
    drop_unavailable(set);
}

/// As [`prepare_stateful_set_for_create`]; where it was said before it stays.
pub fn prepare_stateful_set_for_update(new: &mut Value, old: &Value) {
    const PATH: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];
    if old.at(&PATH).is_none() {
        drop_unavailable(new);
    }
}

fn drop_unavailable(set: &mut Value) {
    let strategy = set.get_mut("spec").and_then(|spec| spec.get_mut("updateStrategy"));
    let rolling =
        strategy.and_then(|strategy| strategy.get_mut("rollingUpdate")).and_then(Value::as_object_mut);
    if let Some(rolling) = rolling {
        rolling.remove("maxUnavailable");
    }
}

/// Says which generation of its template a DaemonSet is at; nobody but old clients reads it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// A DaemonSet counts its templates.
pub fn prepare_daemon_set_for_create(object: &mut Value) {
    set_template_generation(object, 1);
}

/// See [`prepare_daemon_set_for_create`].
pub fn prepare_daemon_set_for_update(new: &mut Value, old: &Value) {
    let count =
        old.str_at(&["metadata", "annotations", TEMPLATE_GENERATION]).and_then(|t| t.parse::<i64>().ok());
    let template = |v: &Value| v.at(&["spec", "template"]).cloned();
    let changed = i64::from(template(new) != template(old));
    set_template_generation(new, count.unwrap_or(1).saturating_add(changed));
}

/// A write of the status leaves the count as it is.
pub fn keep_template_generation(new: &mut Value, old: &Value) {
    if let Some(count) =
        old.str_at(&["metadata", "annotations", TEMPLATE_GENERATION]).and_then(|t| t.parse().ok())
    {
        set_template_generation(new, count);
    }
}

fn set_template_generation(object: &mut Value, count: i64) {
    if let Some(annotations) = object.object_at_mut(&["metadata", "annotations"]) {
        annotations.insert(TEMPLATE_GENERATION, count.to_string());
    }
}

/// A Job's pods are found by the Job's uid, unless its author wants to select them
/// (kubernetes `pkg/registry/batch/job/strategy.go`).
pub fn prepare_job_for_create(job: &mut Value) {
    if job.at(&["spec", "manualSelector"]).and_then(Value::as_bool) == Some(true) {
        return;
    }
    let text = |key: &str| job.str_at(&["metadata", key]).unwrap_or_default().to_owned();
    let (name, uid) = (text("name"), text("uid"));
    if let Some(labels) = job.object_at_mut(&["spec", "template", "metadata", "labels"]) {
        let generated = [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("batch.kubernetes.io/controller-uid", &uid),
        ];
        // What the author set stays, for validation to refuse.
        for (key, value) in generated {
            if !labels.contains(key) {
                labels.insert(key, value.as_str());
            }
        }
    }
    if let Some(selected) = job.object_at_mut(&["spec", "selector", "matchLabels"]) {
        if !selected.contains("batch.kubernetes.io/controller-uid") {
            selected.insert("batch.kubernetes.io/controller-uid", uid);
        }
    }
    let labels = job.at(&["spec", "template", "metadata", "labels"]).cloned().unwrap_or_else(|| tree!({}));
    if let Some(own) = job.object_at_mut(&["metadata", "labels"]) {
        if own.is_empty() {
            if let Value::Object(labels) = labels {
                *own = labels;
            }
        }
    }
}
