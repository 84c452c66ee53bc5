//! The columns of jobs.

use plinth_codec::table::{self, condition, Cell, Column, Now};
use plinth_codec::Value;

use crate::columns;
use crate::path::{at, int_or_zero, list, text};

pub(crate) const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed(
        "Status",
        &["metadata.deletionTimestamp", "status.conditions[].type", "status.conditions[].status"],
        status_cell,
    ),
    Column::computed(
        "Completions",
        &["spec.completions", "spec.parallelism", "status.succeeded"],
        completions_cell,
    ),
    Column::computed("Duration", &["status.startTime", "status.completionTime"], duration_cell),
    Column::AGE,
    columns::containers("spec.template.spec.containers").wide(),
    columns::images("spec.template.spec.containers").wide(),
    Column::selector("Selector", "spec.selector", "<none>", "<error>").wide(),
];

fn status_cell(job: &Value, _: Now) -> Cell<'_> {
    let conditions = list(job, "status.conditions");
    let has = |kind| condition(conditions, kind).is_some_and(|c| text(c, "status") == "True");
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
}

fn completions_cell(job: &Value, _: Now) -> Cell<'_> {
    let succeeded = int_or_zero(job, "status.succeeded");
    let parallelism = int_or_zero(job, "spec.parallelism");
    match at(job, "spec.completions").and_then(Value::as_int) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
    .into()
}

fn duration_cell(job: &Value, now: Now) -> Cell<'_> {
    match (text(job, "status.startTime"), text(job, "status.completionTime")) {
        ("", _) => "".into(),
        (start, "") => now.age(start).into(),
        (start, end) => table::duration_between(start, end).into(),
    }
}
