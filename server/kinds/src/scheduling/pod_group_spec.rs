//! What PodGroups and the templates of Workloads have in common: a policy, and fields of feature gates that
//! are off.

use plinth_codec::Value;

use crate::checks::declarative::exactly_one;
use crate::checks::Check::AtLeast;
use crate::checks::Part;
use crate::gated_fields::drop_field;

pub(crate) const TOPOLOGY_GATE: &str = "TopologyAwareWorkloadScheduling";
pub(crate) const CLAIMS_GATE: &str = "DRAWorkloadResourceClaims";
pub(crate) const PREEMPTION_GATE: &str = "WorkloadAwarePreemption";

pub(crate) const CONSTRAINTS: &str = "schedulingConstraints";
pub(crate) const CLAIMS: &str = "resourceClaims";
pub(crate) const DISRUPTION: &str = "disruptionMode";
const PRIORITY: [&str; 2] = ["priorityClassName", "priority"];

/// A group is scheduled pod by pod (`basic`), or all or nothing (`gang`).
pub(crate) fn policy(policy: &Part<'_>) {
    exactly_one(policy, &["basic", "gang"]);
    let Some(gang) = policy.get("gang") else { return };
    match gang.number("minCount") {
        0 => gang.required("minCount", ""),
        _ => gang.check(&[AtLeast("minCount", 1)]),
    }
}

/// Removes the priority that the stored group does not have.
pub(crate) fn drop_priority(new: &mut Value, old: Option<&Value>) {
    PRIORITY.iter().for_each(|field| drop_field(new, old, field));
}

/// The fields of a group that belong to gates and that no change may set.
pub(crate) fn gated_fields() -> impl Iterator<Item = &'static str> {
    [CONSTRAINTS, DISRUPTION].into_iter().chain(PRIORITY)
}
