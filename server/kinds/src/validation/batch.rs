//! Jobs and CronJobs.

use plinth_codec::selector::LabelSelector;
use plinth_codec::{names, Value};

use super::pod::TEMPLATE;
use super::Check::{AtLeast, By, Enum, In, OneOf, Selector};
use super::{at, int, list, text, validate, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};

/// batch/v1 Job.
pub const JOB: &[Check] = &[By(generated), In("spec", JOB_SPEC), In("spec", &[By(selector)]), By(pod_names)];
/// batch/v1 CronJob.
pub const CRON_JOB: &[Check] = &[
    By(schedule),
    AtLeast("spec.startingDeadlineSeconds", 0),
    OneOf("spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"]),
    By(time_zone),
    By(job_template),
    AtLeast("spec.successfulJobsHistoryLimit", 0),
    AtLeast("spec.failedJobsHistoryLimit", 0),
];

/// A Job's pods by index: that many at once at most, and that many failed ones.
const MOST_INDEXED: i64 = 100_000;
/// From that many completions on the bounds below hold.
const MANY_COMPLETIONS: i64 = 100_000;
const MOST_PARALLEL_OF_MANY: i64 = 10_000;
const MOST_RULES: usize = 20;

const JOB_SPEC: &[Check] = &[
    AtLeast("parallelism", 0),
    AtLeast("completions", 0),
    AtLeast("activeDeadlineSeconds", 0),
    AtLeast("backoffLimit", 0),
    AtLeast("ttlSecondsAfterFinished", 0),
    AtLeast("backoffLimitPerIndex", 0),
    AtLeast("maxFailedIndexes", 0),
    By(managed_by),
    Enum("completionMode", &["NonIndexed", "Indexed"]),
    By(indexed),
    By(failure_policy),
    By(success_policy),
    By(replacement_policy),
    By(template),
];

fn managed_by(spec: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const LONGEST: usize = 63;
    if int(spec, "maxFailedIndexes").is_some() && int(spec, "backoffLimitPerIndex").is_none() {
        let why = "when maxFailedIndexes is specified";
        errors.push(field::required(format_args!("{path}backoffLimitPerIndex"), why));
    }
    let Some(name) = at(spec, "managedBy").and_then(Value::as_str) else { return };
    let here = format_args!("{path}managedBy");
    domain_prefixed(name, here, errors);
    if name.len() > LONGEST {
        errors.push(field::too_long(here, LONGEST));
    }
}

/// A path below a domain, such as `acme.io/foo`.
pub fn domain_prefixed(given: &str, path: Place<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "must be a domain-prefixed path (such as \"acme.io/foo\")";
    if given.is_empty() {
        errors.push(field::required(path, ""));
        return;
    }
    let Some((domain, rest)) = given.split_once('/').filter(|(d, r)| !d.is_empty() && !r.is_empty()) else {
        errors.push(field::invalid(path, given, FORM));
        return;
    };
    for why in names::dns1123_subdomain_errors(domain) {
        errors.push(field::invalid(path, domain, &why));
    }
    let good = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(good) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(field::invalid(path, rest, why));
    }
}

fn indexed(spec: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let completions = int(spec, "completions");
    let (parallelism, failed) = (int(spec, "parallelism"), int(spec, "maxFailedIndexes"));
    let mut refuse = |key: &str, value: i64, why: String| {
        errors.push(field::invalid(format_args!("{path}{key}"), value, &why));
    };
    if text(spec, "completionMode") != "Indexed" {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) =
                int(spec, key).filter(|_| matches!(text(spec, "completionMode"), "" | "NonIndexed"))
            {
                refuse(key, value, "requires indexed completion mode".into());
            }
        }
        return;
    }
    if let Some(count) = parallelism.filter(|count| *count > MOST_INDEXED) {
        let why = format!("must be less than or equal to {MOST_INDEXED} when completion mode is Indexed");
        refuse("parallelism", count, why);
    }
    if let (Some(completions), Some(failed)) = (completions, failed) {
        if failed > completions {
            refuse("maxFailedIndexes", failed, "must be less than or equal to completions".into());
        }
    }
    if let Some(failed) = failed.filter(|failed| *failed > MOST_INDEXED) {
        refuse("maxFailedIndexes", failed, format!("must be less than or equal to {MOST_INDEXED}"));
    }
    let many = completions.is_some_and(|count| count > MANY_COMPLETIONS);
    if many && int(spec, "backoffLimitPerIndex").is_some() {
        for (key, value) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
            if let Some(value) = value.filter(|value| *value > MOST_PARALLEL_OF_MANY) {
                let why = format!("must be less than or equal to {MOST_PARALLEL_OF_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
                refuse(key, value, why);
            }
        }
        if failed.is_none() {
            let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.push(field::required(format_args!("{path}maxFailedIndexes"), &why));
        }
    }
    if completions.is_none() {
        errors.push(field::required(format_args!("{path}completions"), "when completion mode is Indexed"));
    }
}

/// A choice that has to be made, with upstream's way to say which there are.
fn chosen(holder: &Value, key: &str, supported: &[&str], path: Place<'_>, errors: &mut Vec<Cause>) {
    match text(holder, key) {
        "" => {
            let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
            let why = format!("valid values: [{}]", quoted.join(" "));
            errors.push(field::required(format_args!("{path}{key}"), &why));
        }
        given if !supported.contains(&given) => {
            errors.push(field::not_supported(format_args!("{path}{key}"), given, supported));
        }
        _ => {}
    }
}

fn failure_policy(spec: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let Some(policy) = at(spec, "podFailurePolicy") else { return };
    let rules = list(policy, "rules");
    let path = format_args!("{path}podFailurePolicy.rules");
    if rules.len() > MOST_RULES {
        errors.push(field::too_many(path, rules.len(), MOST_RULES));
    }
    for (i, rule) in rules.iter().enumerate() {
        let here = format_args!("{path}[{i}]");
        chosen(rule, "action", &["Count", "FailIndex", "FailJob", "Ignore"], format_args!("{here}."), errors);
        if text(rule, "action") == "FailIndex" && int(spec, "backoffLimitPerIndex").is_none() {
            let why = "requires the backoffLimitPerIndex to be set";
            errors.push(field::invalid(format_args!("{here}.action"), "FailIndex", why));
        }
        let (codes, conditions) = (at(rule, "onExitCodes"), list(rule, "onPodConditions"));
        if let Some(codes) = codes {
            exit_codes(codes, spec, format_args!("{here}.onExitCodes."), errors);
        }
        if conditions.len() > MOST_RULES {
            errors.push(field::too_many(
                format_args!("{here}.onPodConditions"),
                conditions.len(),
                MOST_RULES,
            ));
        }
        for (j, pattern) in conditions.iter().enumerate() {
            let here = format_args!("{here}.onPodConditions[{j}].");
            super::rule(
                format_args!("{here}type"),
                text(pattern, "type"),
                names::qualified_name_errors,
                errors,
            );
            chosen(pattern, "status", &["False", "True", "Unknown"], here, errors);
        }
        let why = match (codes.is_some(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        let mut error = field::invalid(here, Value::Null, "");
        error.message = format!("Invalid value: {why}");
        errors.push(error);
    }
}

fn exit_codes(codes: &Value, spec: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const MOST: usize = 255;
    chosen(codes, "operator", &["In", "NotIn"], path, errors);
    if let Some(name) = at(codes, "containerName").and_then(Value::as_str) {
        let parts = ["containers", "initContainers"];
        let containers = parts.iter().flat_map(|part| list(spec, &format!("template.spec.{part}")));
        if !containers.into_iter().any(|container| text(container, "name") == name) {
            let why = "must be one of the container or initContainer names in the pod template";
            errors.push(field::invalid(format_args!("{path}containerName"), name, why));
        }
    }
    let here = format_args!("{path}values");
    let values: Vec<i64> = list(codes, "values").iter().filter_map(Value::as_int).collect();
    if values.is_empty() {
        let shown = at(codes, "values").cloned().unwrap_or_default();
        errors.push(field::invalid(here, shown, "at least one value is required"));
    } else if values.len() > MOST {
        errors.push(field::too_many(here, values.len(), MOST));
    }
    for (j, value) in values.iter().enumerate() {
        let here = format_args!("{here}[{j}]");
        if *value == 0 && text(codes, "operator") == "In" {
            errors.push(field::invalid(here, 0, "must not be 0 for the In operator"));
        }
        if values.iter().take(j).any(|earlier| earlier == value) {
            errors.push(field::duplicate(here, *value));
        }
    }
    if !values.is_sorted() {
        errors.push(field::invalid(here, list(codes, "values").to_vec(), "must be ordered"));
    }
}

fn success_policy(spec: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const MOST_INDEXES: usize = 64 * 1024;
    let Some(policy) = at(spec, "successPolicy") else { return };
    let path = format_args!("{path}successPolicy");
    if text(spec, "completionMode") != "Indexed" {
        errors.push(field::invalid(path, policy.clone(), "requires indexed completion mode"));
        return;
    }
    let (rules, path) = (list(policy, "rules"), format_args!("{path}.rules"));
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        errors.push(field::required(path, why));
    }
    if rules.len() > MOST_RULES {
        errors.push(field::too_many(path, rules.len(), MOST_RULES));
    }
    let completions = int(spec, "completions").unwrap_or(0);
    for (i, rule) in rules.iter().enumerate() {
        let here = format_args!("{path}[{i}]");
        let (count, indexes) =
            (int(rule, "succeededCount"), at(rule, "succeededIndexes").and_then(Value::as_str));
        if count.is_none() && indexes.is_none() {
            let why = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(field::required(here, why));
        }
        let mut named = None;
        if let Some(indexes) = indexes {
            if indexes.len() > MOST_INDEXES {
                errors.push(field::too_long(format_args!("{here}.succeededIndexes"), MOST_INDEXES));
            }
            match count_indexes(indexes, completions) {
                // Upstream goes on with none where they cannot be read.
                Err(why) => {
                    let why = format!("error parsing succeededIndexes: {why}");
                    errors.push(field::invalid(format_args!("{here}.succeededIndexes"), indexes, &why));
                    named = Some(0);
                }
                Ok(count) => named = Some(count),
            }
        }
        let Some(count) = count else { continue };
        let mut refuse = |why: String| {
            errors.push(field::invalid(format_args!("{here}.succeededCount"), count, &why));
        };
        if count < 0 {
            refuse("must be greater than or equal to 0".into());
        }
        if count > completions {
            refuse(format!(
                "must be less than or equal to {completions} (the number of specified completions)"
            ));
        }
        if let Some(named) = named.filter(|named| count > *named) {
            refuse(format!("must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"));
        }
    }
}

/// How many indexes a text such as `0-2,4` names; they are in order and below `completions`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let index = |part: &str| {
        let number = part.parse::<i64>();
        let number = number.map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
        match number < completions {
            true => Ok(number),
            false => Err(format!("too large index: {part:?}")),
        }
    };
    let (mut count, mut before) = (0, None);
    for interval in text.split(',') {
        let ends: Vec<&str> = interval.split('-').collect();
        let (first, last) = match ends.as_slice() {
            [one] => (index(one)?, index(one)?),
            [first, last] => (index(first)?, index(last)?),
            _ => return Err(format!("the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'")),
        };
        if ends.len() == 2 && first >= last {
            return Err(format!("non-increasing order, previous: {first}, current: {last}"));
        }
        if let Some(before) = before.filter(|before| *before >= first) {
            return Err(format!("non-increasing order, previous: {before}, current: {first}"));
        }
        count += last - first + 1;
        before = Some(last);
    }
    Ok(count)
}

/// The indexes that the status of a Job tells.
pub fn status_indexes(job: &Value, errors: &mut Vec<Cause>) {
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

fn replacement_policy(spec: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let supported: &[&str] = match at(spec, "podFailurePolicy") {
        Some(_) => &["Failed"],
        None => &["Failed", "TerminatingOrFailed"],
    };
    if let Some(given) = at(spec, "podReplacementPolicy").and_then(Value::as_str) {
        if !supported.contains(&given) {
            errors.push(field::not_supported(format_args!("{path}podReplacementPolicy"), given, supported));
        }
    }
}

fn template(spec: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let nothing = Value::object();
    let template = at(spec, "template").unwrap_or(&nothing);
    validate(TEMPLATE, template, format_args!("{path}template."), errors);
    let here = format_args!("{path}template.spec.restartPolicy");
    match text(template, "spec.restartPolicy") {
        "Always" | "" => errors.push(field::required(here, "valid values: \"OnFailure\", \"Never\"")),
        "Never" => {}
        "OnFailure" if at(spec, "podFailurePolicy").is_some() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(field::invalid(here, "OnFailure", why));
        }
        "OnFailure" => {}
        other => errors.push(field::not_supported(here, other, &["OnFailure", "Never"])),
    }
}

fn selector(spec: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let given = at(spec, "selector");
    if given.is_none() {
        errors.push(field::required(format_args!("{path}selector"), ""));
    }
    validate(&[Selector("selector")], spec, path, errors);
    let labels = at(spec, "template.metadata.labels");
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    if LabelSelector::from_object(given).is_ok_and(|selector| given.is_none() || !selector.matches(label)) {
        let why = "`selector` does not match template `labels`";
        let shown = labels.cloned().unwrap_or_default();
        errors.push(field::invalid(format_args!("{path}template.metadata.labels"), shown, why));
    }
}

/// Labels and selector that the server writes stay what it wrote.
fn generated(job: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let manual = at(job, "spec.manualSelector").and_then(Value::as_bool) == Some(true);
    let Some(selector) = at(job, "spec.selector").filter(|_| !manual) else { return };
    let (uid, name) = (text(job, "metadata.uid"), text(job, "metadata.name"));
    let labels = job.at(&["spec", "template", "metadata", "labels"]);
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (key, value) in expected {
        let here = format_args!("spec.template.metadata.labels[{key}]");
        match labels.and_then(|l| l.get(key)).and_then(Value::as_str) {
            None => errors.push(field::required(here, &format!("must be '{value}'"))),
            Some(given) if given != value => {
                errors.push(field::invalid(here, given, &format!("must be '{value}'")));
            }
            Some(_) => {}
        }
    }
    let label = |key: &str| expected.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    if LabelSelector::from_object(Some(selector)).is_ok_and(|selector| !selector.matches(label)) {
        errors.push(field::invalid("spec.selector", selector.clone(), "`selector` not auto-generated"));
    }
}

/// The last pod of an indexed Job must have a name that is one for a host.
fn pod_names(job: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let completions = int(job, "spec.completions").unwrap_or(0);
    if text(job, "spec.completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = text(job, "metadata.name");
    let host = format!("{name}-{}", completions - 1);
    if !names::dns1123_label_errors(&host).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {host}");
        errors.push(field::invalid("metadata.name", name, &why));
    }
}

/// What a new CronJob cannot be called: its Jobs add eleven characters.
pub fn cron_job_create(cron_job: &Value) -> Vec<Cause> {
    const LONGEST: usize = 52;
    let name = text(cron_job, "metadata.name");
    match name.len() > LONGEST {
        true => vec![field::invalid("metadata.name", name, "must be no more than 52 characters")],
        false => Vec::new(),
    }
}

fn job_template(cron_job: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.jobTemplate.spec.";
    let nothing = Value::object();
    let spec = at(cron_job, "spec.jobTemplate.spec").unwrap_or(&nothing);
    validate(JOB_SPEC, spec, format_args!("{PATH}"), errors);
    if at(spec, "manualSelector").and_then(Value::as_bool) == Some(true) {
        errors.push(field::not_supported(format_args!("{PATH}manualSelector"), true, &["nil", "false"]));
    }
}

/// Five fields, or a descriptor such as `@hourly`, as upstream's parser reads them (`github.com/robfig/cron`).
fn schedule(cron_job: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.schedule";
    let schedule = text(cron_job, PATH);
    let why = match schedule {
        "" => {
            errors.push(field::required(PATH, ""));
            return;
        }
        zoned if zoned.contains("TZ") => {
            Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned())
        }
        schedule => schedule_error(schedule),
    };
    errors.extend(why.map(|why| field::invalid(PATH, schedule, &why)));
}

/// Least, most and names (from the least on) of a field of a schedule.
type Bounds = (u32, u32, &'static [&'static str]);
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [(0, 59, &[]), (0, 23, &[]), (1, 31, &[]), (1, 12, MONTHS), (0, 6, DAYS)];

fn schedule_error(schedule: &str) -> Option<String> {
    const KNOWN: [&str; 7] =
        ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if let Some(every) = schedule.strip_prefix("@every ") {
        let duration = plinth_codec::time::parse_duration(every);
        return duration
            .err()
            .map(|_| format!("failed to parse duration {schedule}: time: invalid duration {every:?}"));
    }
    if schedule.starts_with('@') {
        return (!KNOWN.contains(&schedule)).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let parts: Vec<&str> = schedule.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
    }
    let ranges =
        parts.iter().zip(FIELDS).flat_map(|(part, bounds)| part.split(',').map(move |r| (r, bounds)));
    ranges.filter(|(range, _)| !range.is_empty()).find_map(|(range, bounds)| range_error(range, bounds))
}

fn range_error(range: &str, (least, most, named): Bounds) -> Option<String> {
    let number = |text: &str| -> Result<u32, String> {
        let lower = text.to_lowercase();
        if let Some(position) = named.iter().position(|name| *name == lower) {
            return Ok(least + u32::try_from(position).unwrap_or(0));
        }
        match text.parse::<i64>() {
            Ok(n) if n < 0 => Err(format!("negative number ({n}) not allowed: {text}")),
            Ok(n) => Ok(u32::try_from(n).unwrap_or(u32::MAX)),
            Err(_) => Err(format!(
                "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
            )),
        }
    };
    let parts: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = parts.first().copied().unwrap_or_default().split('-').collect();
    let bounds = match ends.as_slice() {
        ["*" | "?", ..] => Ok((least, most)),
        [one] => number(one).map(|n| (n, n)),
        [first, last] => number(first).and_then(|first| Ok((first, number(last)?))),
        _ => Err(format!("too many hyphens: {range}")),
    };
    let (start, mut end) = match bounds {
        Ok(bounds) => bounds,
        Err(why) => return Some(why),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => match number(step) {
            Err(why) => return Some(why),
            Ok(step) => {
                if ends.len() == 1 {
                    end = most;
                }
                step
            }
        },
        _ => return Some(format!("too many slashes: {range}")),
    };
    if start < least {
        return Some(format!("beginning of range ({start}) below minimum ({least}): {range}"));
    }
    if end > most {
        return Some(format!("end of range ({end}) above maximum ({most}): {range}"));
    }
    if start > end {
        return Some(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    (step == 0).then(|| format!("step of range should be a positive number: {range}"))
}

/// The areas that zones of the IANA's database are in. Which places it knows changes several times a year, so a place
/// that it does not know is taken: upstream refuses it.
const AREAS: [&str; 16] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Brazil",
    "Canada",
    "Chile",
    "Etc",
    "Europe",
    "Indian",
    "Mexico",
    "Pacific",
    "US",
];
/// Zones that are in no area.
const ZONES: [&str; 44] = [
    "CET",
    "CST6CDT",
    "Cuba",
    "EET",
    "EST",
    "EST5EDT",
    "Egypt",
    "Eire",
    "Factory",
    "GB",
    "GB-Eire",
    "GMT",
    "GMT+0",
    "GMT-0",
    "GMT0",
    "Greenwich",
    "HST",
    "Hongkong",
    "Iceland",
    "Iran",
    "Israel",
    "Jamaica",
    "Japan",
    "Kwajalein",
    "Libya",
    "MET",
    "MST",
    "MST7MDT",
    "NZ",
    "NZ-CHAT",
    "Navajo",
    "PRC",
    "PST8PDT",
    "Poland",
    "Portugal",
    "ROC",
    "ROK",
    "Singapore",
    "Turkey",
    "UCT",
    "UTC",
    "Universal",
    "W-SU",
    "Zulu",
];

fn time_zone(cron_job: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.timeZone";
    let Some(zone) = at(cron_job, PATH).and_then(Value::as_str) else { return };
    let in_area = zone.split_once('/').is_some_and(|(area, place)| {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'/');
        AREAS.contains(&area) && !place.is_empty() && place.bytes().all(good)
    });
    let why = match zone {
        "" => "timeZone must be nil or non-empty string".to_owned(),
        zone if zone.eq_ignore_ascii_case("local") => {
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned()
        }
        zone if in_area || ZONES.contains(&zone) => return,
        zone => format!("unknown time zone {zone}"),
    };
    errors.push(field::invalid(PATH, zone, &why));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["*/5 * * * *", "0 0 1 jan sun", "1,2-3 ? * * 0-6/2", "@daily", "@every 1h30m"] {
            assert_eq!(schedule_error(good), None, "{good}");
        }
        // schedule, part of the message
        let rows = [
            ("* * * *", "expected exactly 5 fields, found 4"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a"),
            ("1-2-3 * * * *", "too many hyphens"),
            ("1/2/3 * * * *", "too many slashes"),
            ("-1 * * * *", "failed to parse int from"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every x", "failed to parse duration"),
        ];
        for (schedule, part) in rows {
            let why = schedule_error(schedule).unwrap_or_default();
            assert!(why.contains(part), "{schedule}: {why}");
        }
    }

    #[test]
    fn indexes() {
        // text, completions, count or part of the message
        let rows: [(&str, i64, Result<i64, &str>); 7] = [
            ("", 3, Ok(0)),
            ("0-2,4", 5, Ok(4)),
            ("5", 5, Err("too large index: \"5\"")),
            ("a", 5, Err("cannot convert string to integer for index: \"a\"")),
            ("2,1", 5, Err("non-increasing order")),
            ("2-1", 5, Err("non-increasing order")),
            ("1-2-3", 5, Err("at most two parts")),
        ];
        for (text, completions, expected) in rows {
            match (count_indexes(text, completions), expected) {
                (Ok(count), Ok(expected)) => assert_eq!(count, expected, "{text}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
