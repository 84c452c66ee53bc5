//! What of its template a Job may change (kubernetes `pkg/apis/batch/validation`,
//! `validatePodTemplateUpdate`).

use plinth_codec::Value;

use super::status::is_true;
use crate::checks::comparison::{same, take};
use crate::checks::immutable::IMMUTABLE;
use crate::checks::Part;
use crate::path::{at, int, list};

const TEMPLATE: &str = "spec.template";
const POD: &str = "spec.template.spec";

/// Errors of an update of the template, which is immutable but for scheduling directives and resources of a
/// suspended Job.
pub(super) fn validate_update(new: &Part<'_>, old: &Value) {
    let mut changed = new.value().clone();
    let is_resumable = may_change(old);
    if is_resumable {
        const DIRECTIVES: [&[&str]; 6] = [
            &["spec", "template", "metadata", "annotations"],
            &["spec", "template", "metadata", "labels"],
            &["spec", "template", "spec", "nodeSelector"],
            &["spec", "template", "spec", "tolerations"],
            &["spec", "template", "spec", "schedulingGates"],
            &["spec", "template", "spec", "affinity", "nodeAffinity"],
        ];
        for path in DIRECTIVES {
            take(&mut changed, old, path);
        }
        take_resources(&mut changed, old, "containers");
        take_resources(&mut changed, old, "initContainers");
    }
    // As upstream, the rest of the template's metadata is not looked at where the resources may change.
    let path = if is_resumable { POD } else { TEMPLATE };
    if !same(at(&changed, path), at(old, path)) {
        new.invalid(path, new.shown(path), IMMUTABLE);
    }
}

/// Whether no pod of the template runs: the Job is suspended, and either never started or has no pods left.
fn may_change(old: &Value) -> bool {
    let is_suspended = at(old, "spec.suspend").and_then(Value::as_bool) == Some(true);
    let has_stopped = at(old, "status.startTime").is_none() || is_true(old, "Suspended");
    is_suspended && has_stopped && int(old, "status.active").unwrap_or(0) == 0
}

/// Containers are compared one by one: a list of another length has other containers.
fn take_resources(changed: &mut Value, old: &Value, lists: &str) {
    let before = list(old, &format!("{POD}.{lists}"));
    let pod = changed.get_mut("spec").and_then(|spec| spec.get_mut("template"));
    let containers = pod.and_then(|template| template.get_mut("spec")).and_then(|spec| spec.get_mut(lists));
    let Some(containers) = containers.and_then(Value::as_array_mut) else { return };
    if containers.len() != before.len() {
        return;
    }
    for (container, before) in containers.iter_mut().zip(before) {
        if container.get("name") == before.get("name") {
            take(container, before, &["resources"]);
        }
    }
}
