//! The status of a Job: counters and conditions that agree, and what is final.

use std::collections::BTreeSet;

use plinth_codec::time::Timestamp;
use plinth_codec::Value;

use crate::batch::job::indexes::count_indexes;
use crate::checks::immutable::IMMUTABLE;
use crate::checks::{ErrorList, Part};
use crate::path::{at, int, list, text};

/// Validates `completedIndexes` and `failedIndexes`.
fn indexes(job: &Part<'_>) {
    const COMPLETED: &str = "status.completedIndexes";
    const FAILED: &str = "status.failedIndexes";
    let (completed, failed) = (job.text(COMPLETED), job.set_text(FAILED));
    let completions = job.int("spec.completions");
    let per_index = job.int("spec.backoffLimitPerIndex").is_some();
    if let Some(Err(why)) = completions.map(|most| count_indexes(completed, most)) {
        job.invalid(COMPLETED, completed, &format!("error parsing completedIndexes: {why}"));
    }
    let failed_read = completions.zip(failed).filter(|_| per_index);
    if let Some((Err(why), failed)) = failed_read.map(|(most, failed)| (count_indexes(failed, most), failed))
    {
        job.invalid(FAILED, failed, &format!("error parsing failedIndexes: {why}"));
    }
    if !completed.is_empty() && job.text("spec.completionMode") != "Indexed" {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        job.invalid(COMPLETED, completed, why);
    }
    if let Some(failed) = failed.filter(|_| !per_index) {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        job.invalid(FAILED, failed, why);
    }
}

pub(crate) fn uncounted_pods(job: &Part<'_>) {
    let mut seen = BTreeSet::new();
    for part in ["status.uncountedTerminatedPods.succeeded", "status.uncountedTerminatedPods.failed"] {
        for uid in job.each(part) {
            match uid.text("") {
                "" => uid.invalid("", "", "must not be empty"),
                text if !seen.insert(text) => uid.duplicate("", text),
                _ => {}
            }
        }
    }
}

/// Whether the status has a condition of that type that is true.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = list(object, "status.conditions").iter();
    conditions
        .into_iter()
        .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
}

/// Errors of an update of the status: terminal conditions and times are final and consistent. Errors that the
/// old status has are ignored.
pub(crate) fn validate(new: &Part<'_>, old: &Value) {
    const CONDITIONS: &str = "status.conditions";
    let before = ErrorList::of(old, job_as_it_stands);
    let now = ErrorList::of(new.value(), job_as_it_stands);
    now.into_iter().filter(|error| !before.contains(error)).for_each(|error| new.push(error));
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new.value(), kind) {
            new.invalid_unshown(CONDITIONS, &format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    for part in ["failed", "succeeded"] {
        let path = format!("status.{part}");
        let now = new.int(&path).unwrap_or(0);
        if now < int(old, &path).unwrap_or(0) {
            new.invalid(path, now, &format!("cannot decrease the {part} counter"));
        }
    }
    let ended = new.at("status.completionTime");
    if ended.is_some() && at(old, "status.completionTime").is_some_and(|before| ended != Some(before)) {
        new.invalid("status.completionTime", ended.cloned().unwrap_or_default(), IMMUTABLE);
    }
    let started = new.at("status.startTime");
    let suspended = new.at("spec.suspend").and_then(Value::as_bool) == Some(true);
    if !suspended && at(old, "status.startTime").is_some_and(|before| started != Some(before)) {
        let why = "field is immutable for unsuspended job once set";
        new.invalid("status.startTime", started.cloned().unwrap_or_default(), why);
    }
    if is_true(old, "SuccessCriteriaMet") && !is_true(new.value(), "SuccessCriteriaMet") {
        new.invalid_unshown(CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is_true(old, "Complete")
        && !is_true(old, "SuccessCriteriaMet")
        && is_true(new.value(), "SuccessCriteriaMet")
    {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        new.invalid_unshown(CONDITIONS, why);
    }
}

fn job_as_it_stands(job: &Part<'_>) {
    const CONDITIONS: &str = "status.conditions";
    let [complete, failed] = ["Complete", "Failed"].map(|kind| is_true(job.value(), kind));
    let [target, criteria] = ["FailureTarget", "SuccessCriteriaMet"].map(|kind| is_true(job.value(), kind));
    let finished = complete || failed;
    let time = |key: &str| job.at(key).and_then(Value::as_str).and_then(|time| Timestamp::parse(time).ok());
    let (started, ended) = (time("status.startTime"), time("status.completionTime"));
    if complete && failed {
        job.invalid_unshown(CONDITIONS, "cannot set Complete=True and Failed=true conditions");
    }
    if complete && target {
        job.invalid_unshown(CONDITIONS, "cannot set Complete=True and FailureTarget=true conditions");
    }
    const ENDED: &str = "status.completionTime";
    if ended.is_some() && !complete {
        let why = "cannot set completionTime when there is no Complete=True condition";
        job.invalid(ENDED, job.shown(ENDED), why);
    }
    if ended.is_none() && complete {
        job.required(ENDED, "completionTime is required for Complete jobs");
    }
    if started.zip(ended).is_some_and(|(started, ended)| ended < started) {
        job.invalid(ENDED, job.shown(ENDED), "must be equal to or after `startTime`");
    }
    if failed && !target {
        let why = "cannot set Failed=True condition without the FailureTarget=true condition";
        job.invalid_unshown(CONDITIONS, why);
    }
    if complete && !criteria {
        let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        job.invalid_unshown(CONDITIONS, why);
    }
    let count = |key: &str| job.number(&format!("status.{key}"));
    if finished && count("active") > 0 {
        job.invalid("status.active", count("active"), "active>0 is invalid for finished job");
    }
    if finished && started.is_none() {
        job.required("status.startTime", "startTime is required for finished job");
    }
    const UNCOUNTED: &str = "status.uncountedTerminatedPods";
    let uncounted = |part: &str| !job.list(&format!("{UNCOUNTED}.{part}")).is_empty();
    if finished && (uncounted("succeeded") || uncounted("failed")) {
        job.invalid(UNCOUNTED, job.shown(UNCOUNTED), "must be empty for finished job");
    }
    indexes(job);
    if finished && count("terminating") > 0 {
        let why = "terminating>0 is invalid for finished job";
        job.invalid("status.terminating", count("terminating"), why);
    }
    if job.at("status.ready").is_some() && count("ready") > count("active") {
        job.invalid("status.ready", count("ready"), "cannot set more ready pods than active");
    }
    if criteria && failed {
        job.invalid_unshown(CONDITIONS, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if criteria && target {
        let why = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
        job.invalid_unshown(CONDITIONS, why);
    }
}
