//! ResourceClaim (`resource.k8s.io`).

use std::collections::{BTreeSet, HashSet};

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::{count, Cell, Column, Now};
use plinth_codec::{names, Map, Value};

use crate::checks::Check::{self, By, Each, OneOf, RequiredOneOf, RequiredText};
use crate::checks::{check_text, validate};
use crate::defaults::DefaultRule::{self, Field, ForEach, IfPresent, When};
use crate::defaults::Literal::Str;
use crate::path::{at, int, list, text, texts};
use crate::resource::device::{attribute_name, opaque_config, selectors};
use crate::strategy::{Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    create_checks: CREATE_CHECKS,
    immutable: &["spec"],
    status_keeps: STATUS_KEEPS_METADATA,
    validate_status,
    prepare_status,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[IfPresent("spec", SPEC_DEFAULTS)];

pub(crate) const SPEC_DEFAULTS: &[DefaultRule] = &[ForEach(
    "devices.requests",
    &[IfPresent("exactly", REQUEST_DEFAULTS), ForEach("firstAvailable", REQUEST_DEFAULTS)],
)];

const REQUEST_DEFAULTS: &[DefaultRule] = &[
    Field("allocationMode", Str("ExactCount")),
    When("allocationMode", "ExactCount", &[DefaultRule::NonZero("count", 1)]),
    ForEach("tolerations", &[Field("operator", Str("Equal"))]),
];

/// Drops what drivers reported about devices that are no longer allocated (`dropDeallocatedStatusDevices`).
fn prepare_status(new: &mut Value, old: &Value) {
    fn allocated(claim: &Value) -> BTreeSet<[String; 4]> {
        let results = claim.at(&["status", "allocation", "devices", "results"]).and_then(Value::as_array);
        results.unwrap_or_default().iter().map(device).collect()
    }
    fn device(object: &Value) -> [String; 4] {
        ["driver", "pool", "device", "shareID"]
            .map(|member| object.str_at(&[member]).unwrap_or_default().to_owned())
    }
    let kept = allocated(new);
    let gone: BTreeSet<_> = allocated(old).into_iter().filter(|device| !kept.contains(device)).collect();
    let devices: Vec<Value> = new
        .at(&["status", "devices"])
        .and_then(Value::as_array)
        .unwrap_or_default()
        .iter()
        .filter(|reported| !gone.contains(&device(reported)))
        .cloned()
        .collect();
    let Some(status) = new.object_at_mut(&["status"]) else { return };
    set_or_remove(status, "devices", devices);
}

fn set_or_remove(status: &mut Map, member: &str, list: Vec<Value>) {
    match list.is_empty() {
        true => drop(status.remove(member)),
        false => drop(status.insert(member, list)),
    }
}

const CREATE_CHECKS: &[Check] = &[By(|claim, _, errors| claim_spec(claim, format_args!("spec."), errors))];

/// Errors of an update of the status: an allocation can be removed but not changed, and only allocated
/// devices can be reserved or reported (kubernetes `pkg/apis/resource/validation`,
/// `validateResourceClaimStatusUpdate`).
fn validate_status(new: &Value, old: &Value) -> Vec<Cause> {
    let allocation = |claim| at(claim, "status.allocation").filter(|value| !value.is_null());
    let mut errors = Vec::new();
    let reserved = list(new, "status.reservedFor");
    if reserved.len() > MAX_CONSUMERS {
        errors.push(field::too_many("status.reservedFor", reserved.len(), MAX_CONSUMERS));
    }
    let mut uids = HashSet::new();
    for (i, consumer) in reserved.iter().enumerate() {
        for member in ["resource", "name", "uid"] {
            if text(consumer, member).is_empty() {
                errors.push(field::required(format_args!("status.reservedFor[{i}].{member}"), ""));
            }
        }
        if !uids.insert(text(consumer, "uid")) {
            errors.push(field::duplicate(format_args!("status.reservedFor[{i}]"), text(consumer, "uid")));
        }
    }
    let device = |value: &Value| -> String {
        let parts = ["driver", "pool", "device", "shareID"].map(|member| text(value, member));
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    };
    let allocated: HashSet<String> =
        list(new, "status.allocation.devices.results").iter().map(device).collect();
    let mut reported = HashSet::new();
    for (i, value) in list(new, "status.devices").iter().enumerate() {
        let here = format_args!("status.devices[{i}]").to_string();
        let device = device(value);
        if !allocated.contains(&device) {
            errors.push(field::invalid_shown(&here, &device, "must be an allocated device in the claim"));
        }
        if reported.contains(&device) {
            errors.push(field::duplicate_shown(&here, &device));
        }
        reported.insert(device);
    }
    let forbid = |why| field::forbidden("status.reservedFor", why);
    let is_new = |consumer: &Value| !list(old, "status.reservedFor").contains(consumer);
    if !reserved.is_empty() && allocation(new).is_none() {
        errors.push(forbid("may not be specified when `allocated` is not set"));
    } else if !text(new, "metadata.deletionTimestamp").is_empty() && reserved.iter().any(is_new) {
        errors.push(forbid(
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
        ));
    }
    if let (Some(new), Some(old)) = (allocation(new), allocation(old)) {
        if new != old {
            errors.push(field::invalid("status.allocation", new.clone(), "field is immutable"));
        }
    }
    errors
}

const MAX_CONSUMERS: usize = 256;

const MODES: &[&str] = &["All", "ExactCount"];

const MAX_REQUESTS: usize = 32;

const MAX_ALTERNATIVES: usize = 8;

/// Validates the spec of a claim; `path` ends in a dot.
pub(crate) fn claim_spec(claim: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let requests = list(claim, "spec.devices.requests");
    let here = format_args!("{path}devices.requests");
    if requests.len() > MAX_REQUESTS {
        errors.push(field::too_many(here, requests.len(), MAX_REQUESTS));
    }
    let mut known: HashSet<String> = HashSet::new();
    for (i, wanted) in requests.iter().enumerate() {
        request(wanted, format_args!("{here}[{i}]"), &mut known, errors);
    }
    for (i, constraint) in list(claim, "spec.devices.constraints").iter().enumerate() {
        let here = format_args!("{path}devices.constraints[{i}]");
        named_requests(constraint, &known, here, errors);
        let keys = ["matchAttribute", "distinctAttribute"];
        // Upstream has the same message for none and for several.
        const WHY: &str = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        match keys.iter().filter(|key| at(constraint, key).is_some()).count() {
            0 => errors.push(field::required(here, WHY)),
            1 => {}
            _ => errors.push(field::invalid(here, constraint.clone(), WHY)),
        }
        for key in keys {
            if let Some(name) = at(constraint, key).and_then(Value::as_str) {
                attribute_name(name, true, format_args!("{here}.{key}"), errors);
            }
        }
    }
    for (i, config) in list(claim, "spec.devices.config").iter().enumerate() {
        let here = format_args!("{path}devices.config[{i}]");
        named_requests(config, &known, here, errors);
        opaque_config(config, here, errors);
    }
}

fn request(wanted: &Value, path: FieldPath<'_>, known: &mut HashSet<String>, errors: &mut Vec<Cause>) {
    let name = text(wanted, "name");
    check_text(format_args!("{path}.name"), name, names::dns1123_label_errors, errors);
    if !known.insert(name.to_owned()) {
        errors.push(field::duplicate(path, name));
    }
    let alternatives = list(wanted, "firstAvailable");
    match (at(wanted, "exactly"), alternatives.is_empty()) {
        (None, true) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required";
            errors.push(field::required(path, why));
        }
        (Some(_), false) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(field::invalid(path, Value::Null, why));
        }
        _ => {}
    }
    if let Some(exactly) = at(wanted, "exactly") {
        one_request(exactly, format_args!("{path}.exactly"), errors);
    }
    if alternatives.len() > MAX_ALTERNATIVES {
        let here = format_args!("{path}.firstAvailable");
        errors.push(field::too_many(here, alternatives.len(), MAX_ALTERNATIVES));
    }
    for (j, alternative) in alternatives.iter().enumerate() {
        let here = format_args!("{path}.firstAvailable[{j}]");
        let inner = text(alternative, "name");
        check_text(format_args!("{here}.name"), inner, names::dns1123_label_errors, errors);
        if !known.insert(format!("{name}/{inner}")) {
            errors.push(field::duplicate(here, inner));
        }
        one_request(alternative, here, errors);
    }
}

fn one_request(wanted: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    validate(
        &[RequiredText("deviceClassName", names::dns1123_subdomain_errors)],
        wanted,
        format_args!("{path}."),
        errors,
    );
    selectors(wanted, "selectors", format_args!("{path}.selectors"), errors);
    validate(&[Each("tolerations", TOLERATION)], wanted, format_args!("{path}."), errors);
    let count = int(wanted, "count").unwrap_or(0);
    let here = format_args!("{path}.count");
    match text(wanted, "allocationMode") {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.push(field::invalid(here, count, why));
        }
        "ExactCount" if count <= 0 => {
            errors.push(field::invalid(here, count, "must be greater than zero"));
        }
        "All" | "ExactCount" => {}
        other => errors.push(field::not_supported(format_args!("{path}.allocationMode"), other, MODES)),
    }
}

/// Checks of a toleration of device taints.
const TOLERATION: &[Check] = &[
    By(|toleration, path, errors| {
        let (key, value) = (text(toleration, "key"), text(toleration, "value"));
        if !key.is_empty() {
            check_text(format_args!("{path}key"), key, names::qualified_name_errors, errors);
        }
        let here = format_args!("{path}value");
        match text(toleration, "operator") {
            "Exists" if !value.is_empty() => {
                errors.push(field::invalid(here, value, "must be empty for operator `Exists`"));
            }
            "Equal" => check_text(here, value, names::label_value_errors, errors),
            _ => {}
        }
    }),
    RequiredOneOf("operator", &["Equal", "Exists"]),
    OneOf("effect", &["NoExecute", "NoSchedule", "None"]),
];

fn named_requests(holder: &Value, known: &HashSet<String>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, name) in texts(holder, "requests").iter().enumerate() {
        let here = format_args!("{path}.requests[{i}]");
        for part in name.splitn(2, '/') {
            check_text(here, part, names::dns1123_label_errors, errors);
        }
        if !known.contains(*name) {
            let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            errors.push(field::invalid(here, *name, why));
        }
        if !seen.insert(*name) {
            errors.push(field::duplicate(here, *name));
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed(
        "State",
        &["metadata.deletionTimestamp", "status.allocation#", "status.reservedFor#"],
        state_cell,
    ),
    Column::AGE,
];

fn state_cell(claim: &Value, _: Now) -> Cell<'_> {
    let deleted = at(claim, "metadata.deletionTimestamp").is_some();
    let allocated = at(claim, "status.allocation").is_some();
    let reserved = count(claim, "status.reservedFor") > 0;
    match (deleted, allocated, reserved) {
        (true, false, _) => "deleted",
        (true, true, false) => "deleted,allocated",
        (true, true, true) => "deleted,allocated,reserved",
        (false, false, _) => "pending",
        (false, true, false) => "allocated",
        (false, true, true) => "allocated,reserved",
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn deallocated_devices_are_dropped_from_the_status() {
        let old = parse(
            r#"{"status":{"allocation":{"devices":{"results":[{"driver":"a","pool":"p","device":"d"}]}},"devices":[{"driver":"a","pool":"p","device":"d"}]}}"#,
        );
        let mut new = parse(r#"{"status":{"devices":[{"driver":"a","pool":"p","device":"d"}]}}"#);
        prepare_status(&mut new, &old);
        assert_eq!(new, parse(r#"{"status":{}}"#));
    }
}
