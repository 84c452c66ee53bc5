//! The status of a Job: counters and conditions that agree, and what is final.

use std::collections::BTreeSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::time::Timestamp;
use plinth_codec::Value;

use crate::batch::job::indexes::count_indexes;
use crate::checks::immutable::IMMUTABLE;
use crate::path::{at, int, list, text, texts};

/// Validates `completedIndexes` and `failedIndexes`.
fn indexes(job: &Value, errors: &mut Vec<Cause>) {
    const COMPLETED: &str = "status.completedIndexes";
    const FAILED: &str = "status.failedIndexes";
    let (completed, failed) = (text(job, COMPLETED), at(job, FAILED).and_then(Value::as_str));
    let completions = int(job, "spec.completions");
    let per_index = int(job, "spec.backoffLimitPerIndex").is_some();
    if let Some(Err(why)) = completions.map(|most| count_indexes(completed, most)) {
        let why = format!("error parsing completedIndexes: {why}");
        errors.push(field::invalid(COMPLETED, completed, &why));
    }
    let failed_read = completions.zip(failed).filter(|_| per_index);
    if let Some((Err(why), failed)) = failed_read.map(|(most, failed)| (count_indexes(failed, most), failed))
    {
        errors.push(field::invalid(FAILED, failed, &format!("error parsing failedIndexes: {why}")));
    }
    if !completed.is_empty() && text(job, "spec.completionMode") != "Indexed" {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(field::invalid(COMPLETED, completed, why));
    }
    if let Some(failed) = failed.filter(|_| !per_index) {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(field::invalid(FAILED, failed, why));
    }
}

pub(crate) fn uncounted_pods(job: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for part in ["succeeded", "failed"] {
        let path = format!("status.uncountedTerminatedPods.{part}");
        for (i, uid) in texts(job, &path).into_iter().enumerate() {
            if uid.is_empty() {
                errors.push(field::invalid(format_args!("{path}[{i}]"), uid, "must not be empty"));
            } else if !seen.insert(uid) {
                errors.push(field::duplicate(format_args!("{path}[{i}]"), uid));
            }
        }
    }
}

fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = list(object, "status.conditions").iter();
    conditions
        .into_iter()
        .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
}

fn without_value(path: &str, why: &str) -> Cause {
    let mut error = field::invalid(path, Value::Null, "");
    error.message = format!("Invalid value: {why}");
    error
}

/// Errors of an update of the status: terminal conditions and times are final and consistent. Errors that the
/// old status has are ignored.
pub(crate) fn validate(new: &Value, old: &Value) -> Vec<Cause> {
    const CONDITIONS: &str = "status.conditions";
    let before: Vec<Cause> = job_as_it_stands(old);
    let mut errors: Vec<Cause> =
        job_as_it_stands(new).into_iter().filter(|error| !before.contains(error)).collect();
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            errors.push(without_value(
                CONDITIONS,
                &format!("cannot disable the terminal {kind}=True condition"),
            ));
        }
    }
    for part in ["failed", "succeeded"] {
        let path = format!("status.{part}");
        let now = int(new, &path).unwrap_or(0);
        if now < int(old, &path).unwrap_or(0) {
            errors.push(field::invalid(path, now, &format!("cannot decrease the {part} counter")));
        }
    }
    let ended = at(new, "status.completionTime");
    if ended.is_some() && at(old, "status.completionTime").is_some_and(|before| ended != Some(before)) {
        errors.push(field::invalid("status.completionTime", ended.cloned().unwrap_or_default(), IMMUTABLE));
    }
    let started = at(new, "status.startTime");
    let suspended = at(new, "spec.suspend").and_then(Value::as_bool) == Some(true);
    if !suspended && at(old, "status.startTime").is_some_and(|before| started != Some(before)) {
        let why = "field is immutable for unsuspended job once set";
        errors.push(field::invalid("status.startTime", started.cloned().unwrap_or_default(), why));
    }
    if is_true(old, "SuccessCriteriaMet") && !is_true(new, "SuccessCriteriaMet") {
        errors.push(without_value(CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition"));
    }
    if is_true(old, "Complete") && !is_true(old, "SuccessCriteriaMet") && is_true(new, "SuccessCriteriaMet") {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(without_value(CONDITIONS, why));
    }
    errors
}

fn job_as_it_stands(job: &Value) -> Vec<Cause> {
    const CONDITIONS: &str = "status.conditions";
    let mut errors = Vec::new();
    let [complete, failed] = ["Complete", "Failed"].map(|kind| is_true(job, kind));
    let [target, criteria] = ["FailureTarget", "SuccessCriteriaMet"].map(|kind| is_true(job, kind));
    let finished = complete || failed;
    let time = |key: &str| at(job, key).and_then(Value::as_str).and_then(|time| Timestamp::parse(time).ok());
    let (started, ended) = (time("status.startTime"), time("status.completionTime"));
    let shown = |key: &str| at(job, key).cloned().unwrap_or_default();
    if complete && failed {
        errors.push(without_value(CONDITIONS, "cannot set Complete=True and Failed=true conditions"));
    }
    if complete && target {
        errors.push(without_value(CONDITIONS, "cannot set Complete=True and FailureTarget=true conditions"));
    }
    const ENDED: &str = "status.completionTime";
    if ended.is_some() && !complete {
        let why = "cannot set completionTime when there is no Complete=True condition";
        errors.push(field::invalid(ENDED, shown(ENDED), why));
    }
    if ended.is_none() && complete {
        errors.push(field::required(ENDED, "completionTime is required for Complete jobs"));
    }
    if started.zip(ended).is_some_and(|(started, ended)| ended < started) {
        errors.push(field::invalid(ENDED, shown(ENDED), "must be equal to or after `startTime`"));
    }
    if failed && !target {
        let why = "cannot set Failed=True condition without the FailureTarget=true condition";
        errors.push(without_value(CONDITIONS, why));
    }
    if complete && !criteria {
        let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.push(without_value(CONDITIONS, why));
    }
    let count = |key: &str| int(job, &format!("status.{key}")).unwrap_or(0);
    if finished && count("active") > 0 {
        errors.push(field::invalid("status.active", count("active"), "active>0 is invalid for finished job"));
    }
    if finished && started.is_none() {
        errors.push(field::required("status.startTime", "startTime is required for finished job"));
    }
    const UNCOUNTED: &str = "status.uncountedTerminatedPods";
    let uncounted = |part: &str| !list(job, &format!("{UNCOUNTED}.{part}")).is_empty();
    if finished && (uncounted("succeeded") || uncounted("failed")) {
        errors.push(field::invalid(UNCOUNTED, shown(UNCOUNTED), "must be empty for finished job"));
    }
    indexes(job, &mut errors);
    if finished && count("terminating") > 0 {
        let why = "terminating>0 is invalid for finished job";
        errors.push(field::invalid("status.terminating", count("terminating"), why));
    }
    if at(job, "status.ready").is_some() && count("ready") > count("active") {
        errors.push(field::invalid("status.ready", count("ready"), "cannot set more ready pods than active"));
    }
    if criteria && failed {
        errors
            .push(without_value(CONDITIONS, "cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if criteria && target {
        let why = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
        errors.push(without_value(CONDITIONS, why));
    }
    errors
}
