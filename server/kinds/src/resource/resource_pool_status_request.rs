//! ResourcePoolStatusRequest (`resource.k8s.io`): asks a controller once how many devices of a driver there
//! are. The version that has it is off by default.

use plinth_api::{Cause, FieldPath};
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::Value;

use crate::checks::conditions::conditions;
use crate::checks::declarative::long_name_errors;
use crate::checks::immutable::IMMUTABLE;
use crate::checks::Check::{self, AtLeast, By, Set};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, IfPresent};
use crate::defaults::Literal::Int;
use crate::path::{at, int, list, text};
use crate::resource::device::each_of;
use crate::strategy::{Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    returns_deleted_object: true,
    defaults: &[IfPresent("spec", &[DefaultRule::Field("limit", Int(100))])],
    create_checks: CREATE_CHECKS,
    validate_update,
    status_keeps: STATUS_KEEPS_METADATA,
    validate_status,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const CREATE_CHECKS: &[Check] = &[By(|request| {
    let spec = request.field("spec");
    spec.required_text("driver", "", caseless_name_errors);
    if spec.has("poolName") {
        spec.apply("poolName", pool_name);
    }
    spec.check(&[Set("limit", "")]);
    // Upstream looks at the maximum first.
    if spec.number("limit") > MAX_LIMIT {
        spec.invalid("limit", spec.number("limit"), "must be less than or equal to 1000");
    }
    spec.check(&[AtLeast("limit", 1)]);
})];

const MAX_LIMIT: i64 = 1000;

/// Errors of a subdomain in any case: `IsDNS1123SubdomainCaseless`.
fn caseless_name_errors(name: &str) -> Vec<String> {
    const FORM: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'Example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let mut errors = long_name_errors(&name.to_ascii_lowercase());
    errors.iter_mut().filter(|why| why.contains("RFC 1123")).for_each(|why| FORM.clone_into(why));
    errors
}

/// As the name of a slice's pool, in other words.
fn pool_name(name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX: usize = 253;
    if name.len() > MAX {
        errors.push(Cause::too_long(path, MAX));
    }
    for (i, part) in name.split('/').enumerate() {
        if part.is_empty() {
            errors.push(Cause::invalid(path, name, &format!("segment {i}: must not be empty")));
            continue;
        }
        let why = long_name_errors(part);
        errors.extend(why.iter().map(|why| Cause::invalid(path, part, &format!("segment {i}: {why}"))));
    }
}

fn validate_update(new: &Part<'_>, old: &Value) {
    if new.at("spec") != at(old, "spec") {
        new.invalid("spec", Value::Null, IMMUTABLE);
    }
}

/// A status is written once.
fn validate_status(new: &Part<'_>, old: &Value) {
    /// Maximum numbers of conditions and of pools.
    const MAX_CONDITIONS: usize = 10;
    const MAX_POOLS: usize = 1000;
    let before = at(old, "status");
    if new.at("status") == before {
        return;
    }
    if before.is_some() {
        new.invalid("status", new.shown("status"), IMMUTABLE);
    }
    let Some(status) = new.get("status") else { return };
    // What declarative validation finds is reported beside that.
    if before.is_none() {
        conditions(&status, "conditions");
    }
    status.check(&[Set("poolCount", ""), AtLeast("poolCount", 0)]);
    each_of(&status, "pools", MAX_POOLS, |pool| pool.check(POOL));
    status.at_most_items("conditions", MAX_CONDITIONS);
}

const POOL: &[Check] = &[
    By(|pool| {
        pool.required_text("driver", "", caseless_name_errors);
        match pool.text("poolName") {
            "" => pool.required("poolName", ""),
            _ => pool.apply("poolName", pool_name),
        }
        match pool.number("generation") {
            0 => pool.required("generation", ""),
            _ => pool.check(&[AtLeast("generation", 0)]),
        }
    }),
    AtLeast("resourceSliceCount", 1),
    AtLeast("totalDevices", 0),
    AtLeast("allocatedDevices", 0),
    AtLeast("availableDevices", 0),
    AtLeast("unavailableDevices", 0),
    Check::OptionalText("nodeName", long_name_errors),
    By(|pool| pool.at_most_bytes("validationError", pool.text("validationError"), 256)),
];

const STATUS: &[&str] = &["status"];

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Driver", "spec.driver", ""),
    Column::computed("Total", STATUS, |request, _| sum_cell(request, "totalDevices")),
    Column::computed("Available", STATUS, |request, _| sum_cell(request, "availableDevices")),
    Column::computed("Allocated", STATUS, |request, _| sum_cell(request, "allocatedDevices")),
    Column::computed("Unavailable", STATUS, |request, _| sum_cell(request, "unavailableDevices")),
    Column::computed("Errors", STATUS, errors_cell),
    Column::int_or("Pools", "status.poolCount", "0"),
    Column::computed("Status", STATUS, status_cell),
    Column::computed("Completed", STATUS, completed_cell),
];

/// The condition that ended the request, if there is one.
fn ending(request: &Value) -> Option<&Value> {
    let ends = |condition: &&Value| {
        matches!(text(condition, "type"), "Complete" | "Failed") && text(condition, "status") == "True"
    };
    list(request, "status.conditions").iter().find(ends)
}

/// The pools that were counted.
fn counted(request: &Value) -> Option<&[Value]> {
    let has_failed = ending(request).is_some_and(|condition| text(condition, "type") == "Failed");
    at(request, "status").filter(|_| !has_failed).map(|status| list(status, "pools"))
}

fn sum_cell<'a>(request: &'a Value, member: &str) -> Cell<'a> {
    match counted(request) {
        Some(pools) => {
            let numbers = pools.iter().filter_map(|pool| int(pool, member));
            numbers.fold(0, i64::saturating_add).to_string().into()
        }
        None => "-".into(),
    }
}

fn errors_cell(request: &Value, _: Now) -> Cell<'_> {
    match counted(request) {
        Some(pools) => {
            pools.iter().filter(|pool| at(pool, "validationError").is_some()).count().to_string().into()
        }
        None => "-".into(),
    }
}

fn status_cell(request: &Value, _: Now) -> Cell<'_> {
    let pools = list(request, "status.pools").len();
    match ending(request).map(|condition| text(condition, "type")) {
        Some("Complete") => match int(request, "status.poolCount").unwrap_or(0) {
            count if count > pools as i64 => format!("Complete ({pools}/{count} pools)").into(),
            _ => "Complete".into(),
        },
        Some(other) => other.into(),
        None => "Pending".into(),
    }
}

fn completed_cell(request: &Value, now: Now) -> Cell<'_> {
    match ending(request).filter(|condition| text(condition, "type") == "Complete") {
        Some(condition) => now.age(text(condition, "lastTransitionTime")).into(),
        None => "<none>".into(),
    }
}
