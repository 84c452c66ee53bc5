//! `PodGroupProtection` and `PodGroupWorkloadExists`: a new group is kept while pods refer to it, and the
//! template that it names exists.
//!
//! Upstream: kubernetes `plugin/pkg/admission/scheduling/podgroupprotection` and
//! `plugin/pkg/admission/podgroup`.

use plinth_codec::Value;

use super::call::Call;
use super::storage::add_finalizer;
use plinth_api::{metadata_text, ApiError};

/// The finalizer that a controller removes when no pod refers to the group any more.
const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// Adds the finalizer to a new group.
pub(super) fn protect(group: &mut Value) {
    add_finalizer(group, FINALIZER);
}

/// Checks that the template of a new group exists.
///
/// # Errors
/// 403.
pub(super) async fn find_template(call: &Call<'_>, group: &Value) -> Result<(), ApiError> {
    let reference = ["spec", "podGroupTemplateRef", "workload"];
    let Some(reference) = group.at(&reference).filter(|reference| !reference.is_null()) else {
        return Ok(());
    };
    let [name, template] =
        ["workloadName", "podGroupTemplateName"].map(|key| reference.str_at(&[key]).unwrap_or_default());
    let refuse = |why: String| Err(call.forbidden(group, &format!("PodGroup rejected: {why}")));
    let of_kind = ("scheduling.k8s.io", "v1alpha2", "workloads");
    let Some(workload) = call.stored_object(of_kind, call.namespace, name).await? else {
        return refuse(format!("Workload {name:?} not found"));
    };
    if !metadata_text(&workload, "deletionTimestamp").is_empty() {
        return refuse(format!("Workload {name:?} is being deleted"));
    }
    let mut templates = workload.list_at(&["spec", "podGroupTemplates"]).iter();
    match templates.any(|of_workload| of_workload.str_at(&["name"]) == Some(template)) {
        true => Ok(()),
        false => refuse(format!("PodGroupTemplate {template:?} not found in Workload {name:?}")),
    }
}
