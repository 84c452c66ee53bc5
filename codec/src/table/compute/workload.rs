//! Jobs, cron jobs, controller revisions.

use super::read::{at, bool_at, condition, int_at, items, str_at};
use super::Computation;
use crate::table::age;
use crate::Value;

pub const JOB_STATUS: Computation = Computation {
    reads: &["metadata.deletionTimestamp", "status.conditions[].type", "status.conditions[].status"],
    cell: |job, _| {
        let conditions = items(job, "status.conditions");
        let has = |kind| condition(conditions, kind).is_some_and(|c| str_at(c, "status") == "True");
        if has("Complete") {
            "Complete"
        } else if has("Failed") {
            "Failed"
        } else if at(job, "metadata.deletionTimestamp").is_some() {
            "Terminating"
        } else if has("Suspended") {
            "Suspended"
        } else if has("FailureTarget") {
            "FailureTarget"
        } else if has("SuccessCriteriaMet") {
            "SuccessCriteriaMet"
        } else {
            "Running"
        }
        .into()
    },
};

pub const JOB_COMPLETIONS: Computation = Computation {
    reads: &["spec.completions", "spec.parallelism", "status.succeeded"],
    cell: |job, _| {
        let succeeded = int_at(job, "status.succeeded");
        let parallelism = int_at(job, "spec.parallelism");
        match at(job, "spec.completions").and_then(Value::as_int) {
            Some(completions) => format!("{succeeded}/{completions}"),
            None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            None => format!("{succeeded}/1"),
        }
        .into()
    },
};

pub const JOB_DURATION: Computation = Computation {
    reads: &["status.startTime", "status.completionTime"],
    cell: |job, now| match (str_at(job, "status.startTime"), str_at(job, "status.completionTime")) {
        ("", _) => "".into(),
        (start, "") => now.age(start).into(),
        (start, end) => age::between(start, end).into(),
    },
};

pub const CRON_JOB_SUSPEND: Computation = Computation {
    reads: &["spec.suspend"],
    cell: |job, _| match at(job, "spec.suspend") {
        None => "<unset>".into(),
        Some(_) if bool_at(job, "spec.suspend") => "True".into(),
        Some(_) => "False".into(),
    },
};

/// The owner that controls a revision, as `statefulset.apps/web`.
pub const REVISION_CONTROLLER: Computation = Computation {
    reads: &["metadata.ownerReferences"],
    cell: |revision, _| {
        let owners = items(revision, "metadata.ownerReferences");
        let Some(owner) = owners.iter().find(|o| bool_at(o, "controller")) else {
            return "<none>".into();
        };
        let (kind, name) = (str_at(owner, "kind").to_lowercase(), str_at(owner, "name"));
        match str_at(owner, "apiVersion").split_once('/') {
            Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
            None if kind.is_empty() => name.to_owned(),
            None => format!("{kind}/{name}"),
        }
        .into()
    },
};
