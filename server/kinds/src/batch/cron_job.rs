//! CronJob (`batch`).

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::Value;

use crate::batch::job::{warn_job_spec, SPEC_CHECKS, SPEC_DEFAULTS};
use crate::checks::Check::{self, AtLeast, By, OneOf};
use crate::checks::Part;
use crate::columns;
use crate::defaults::DefaultRule::{self, Ensure, Field};
use crate::defaults::Literal::{Bool, Int, Str};
use crate::gated_fields;
use crate::path::{at, flag, text};
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings::{is_same_generation, warn_pod_name, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    gated_fields: &gated_fields::of_pods(&["spec", "jobTemplate", "spec", "template", "spec"]),
    checks: CHECKS,
    validate_create,
    warnings,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Field("spec.concurrencyPolicy", Str("Allow")),
    Field("spec.suspend", Bool(false)),
    Field("spec.successfulJobsHistoryLimit", Int(3)),
    Field("spec.failedJobsHistoryLimit", Int(1)),
    Ensure("spec.jobTemplate.spec", SPEC_DEFAULTS),
];

const CHECKS: &[Check] = &[
    By(schedule),
    AtLeast("spec.startingDeadlineSeconds", 0),
    OneOf("spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"]),
    By(time_zone),
    By(job_template),
    AtLeast("spec.successfulJobsHistoryLimit", 0),
    AtLeast("spec.failedJobsHistoryLimit", 0),
];

/// The name of a new CronJob is limited, since its Jobs append eleven characters.
fn validate_create(cron_job: &Part<'_>) {
    const MAX_LENGTH: usize = 52;
    let name = cron_job.text("metadata.name");
    if name.len() > MAX_LENGTH {
        cron_job.invalid("metadata.name", name, "must be no more than 52 characters");
    }
}

fn job_template(cron_job: &Part<'_>) {
    let spec = cron_job.field("spec.jobTemplate.spec");
    spec.check(SPEC_CHECKS);
    if spec.is_true("manualSelector") {
        spec.not_supported("manualSelector", true, &["nil", "false"]);
    }
}

/// Validates a schedule: five fields, or a descriptor such as `@hourly`, as upstream's parser does
/// (`github.com/robfig/cron`).
fn schedule(cron_job: &Part<'_>) {
    const PATH: &str = "spec.schedule";
    let schedule = cron_job.text(PATH);
    let why = match schedule {
        "" => return cron_job.required(PATH, ""),
        zoned if zoned.contains("TZ") => {
            Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned())
        }
        schedule => schedule_error(schedule),
    };
    if let Some(why) = why {
        cron_job.invalid(PATH, schedule, &why);
    }
}

/// Minimum, maximum and names (starting at the minimum) of a field of a schedule.
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

/// Areas of the IANA time zone database. Its locations change several times a year, so an unknown location of
/// a known area is accepted, which upstream refuses.
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

/// Zones without an area.
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

fn time_zone(cron_job: &Part<'_>) {
    const PATH: &str = "spec.timeZone";
    let Some(zone) = cron_job.set_text(PATH) else { return };
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
    cron_job.invalid(PATH, zone, &why);
}

/// Warnings about the job template.
fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    warn_pod_name(new, old, "Pod names and hostnames", &mut found);
    if !is_same_generation(new, old) {
        warn_job_spec(new, "spec.jobTemplate.spec", &mut found);
    }
    if old.is_some() && text(new, "spec.schedule").contains("TZ") {
        found.add("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details");
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Schedule", "spec.schedule", ""),
    Column::text("Timezone", "spec.timeZone", "<none>"),
    Column::computed("Suspend", &["spec.suspend"], suspend_cell).declared("boolean"),
    Column::count("Active", "status.active"),
    Column::age("Last Schedule", "status.lastScheduleTime", "<none>"),
    Column::AGE,
    columns::containers("spec.jobTemplate.spec.template.spec.containers").wide(),
    columns::images("spec.jobTemplate.spec.template.spec.containers").wide(),
    Column::selector("Selector", "spec.jobTemplate.spec.selector", "<none>", "<error>").wide(),
];

fn suspend_cell(job: &Value, _: Now) -> Cell<'_> {
    match at(job, "spec.suspend") {
        None => "<unset>".into(),
        Some(_) if flag(job, "spec.suspend") => "True".into(),
        Some(_) => "False".into(),
    }
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
}
