//! ResourceClaim (`resource.k8s.io`).

use std::collections::{BTreeSet, HashSet};

use plinth_api::Cause;
use plinth_codec::table::{count, Cell, Column, Now};
use plinth_codec::{names, Map, Value};

use crate::checks::immutable::IMMUTABLE;
use crate::checks::Check::{
    self, AnyText, AtMostItems, By, Each, EachUniqueElement, ExactlyOne, In, OneOf, Positive, Required,
    RequiredOneOf, RequiredText, Text,
};
use crate::checks::{Part, PartError};
use crate::defaults::DefaultRule::{self, Field, ForEach, IfPresent, When};
use crate::defaults::Literal::Str;
use crate::path::{at, list, text};
use crate::resource::device::{attribute_name, opaque_config, SELECTOR};
use crate::resource::OLDER_VERSIONS;
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
    conversions: OLDER_VERSIONS,
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

const CREATE_CHECKS: &[Check] = &[By(|claim| claim_devices(&claim.field("spec.devices")))];

/// Errors of an update of the status: an allocation can be removed but not changed, and only allocated
/// devices can be reserved or reported (kubernetes `pkg/apis/resource/validation`,
/// `validateResourceClaimStatusUpdate`).
fn validate_status(new: &Part<'_>, old: &Value) {
    const RESERVED: &str = "status.reservedFor";
    const ALLOCATION: &str = "status.allocation";
    new.check(&[
        AtMostItems(RESERVED, MAX_CONSUMERS, &[]),
        EachUniqueElement(
            RESERVED,
            "uid",
            &[Required("resource", ""), Required("name", ""), Required("uid", "")],
        ),
    ]);
    let device = |value: &Value| -> String {
        let parts = ["driver", "pool", "device", "shareID"].map(|member| text(value, member));
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    };
    let allocated: HashSet<String> =
        new.list("status.allocation.devices.results").iter().map(device).collect();
    let mut reported = HashSet::new();
    for part in new.each("status.devices") {
        let device = device(part.value());
        if !allocated.contains(&device) {
            let why = "must be an allocated device in the claim";
            part.push(Cause::invalid_shown(part.path(""), &device, why));
        }
        if reported.contains(&device) {
            part.push(Cause::duplicate_shown(part.path(""), &device));
        }
        reported.insert(device);
    }
    let reserved = new.list(RESERVED);
    let is_new = |consumer: &Value| !list(old, RESERVED).contains(consumer);
    if !reserved.is_empty() && !new.has(ALLOCATION) {
        new.forbidden(RESERVED, "may not be specified when `allocated` is not set");
    } else if !new.text("metadata.deletionTimestamp").is_empty() && reserved.iter().any(is_new) {
        let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        new.forbidden(RESERVED, why);
    }
    if let (Some(now), Some(before)) = (new.at(ALLOCATION), at(old, ALLOCATION)) {
        if now != before {
            new.invalid(ALLOCATION, now.clone(), IMMUTABLE);
        }
    }
}

const MAX_CONSUMERS: usize = 256;

const MAX_REQUESTS: usize = 32;

const MAX_ALTERNATIVES: usize = 8;

/// Validates `devices` of the spec of a claim.
pub(crate) fn claim_devices(devices: &Part<'_>) {
    devices.at_most_items("requests", MAX_REQUESTS);
    let mut known: HashSet<String> = HashSet::new();
    for wanted in devices.each("requests") {
        request(&wanted, &mut known);
    }
    for constraint in devices.each("constraints") {
        named_requests(&constraint, &known);
        constraint.check(&[ONE_ATTRIBUTE]);
        for attribute in ATTRIBUTES.iter().filter_map(|key| constraint.get(key)) {
            attribute_name(attribute.text(""), true, &attribute);
        }
    }
    for config in devices.each("config") {
        named_requests(&config, &known);
        opaque_config(&config);
    }
}

const ATTRIBUTES: &[&str] = &["matchAttribute", "distinctAttribute"];

// Upstream has the same message for none and for several.
const ATTRIBUTES_WHY: &str =
    "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";

const ONE_ATTRIBUTE: Check =
    ExactlyOne(ATTRIBUTES, PartError::Required(ATTRIBUTES_WHY), PartError::Invalid(ATTRIBUTES_WHY), &[]);

fn request(wanted: &Part<'_>, known: &mut HashSet<String>) {
    const WHY: &str = "exactly one of `exactly` or `firstAvailable` is required";
    let name = wanted.text("name");
    wanted.check(&[AnyText("name", names::dns1123_label_errors)]);
    if !known.insert(name.to_owned()) {
        wanted.duplicate("", name);
    }
    match (wanted.has("exactly"), wanted.is_empty("firstAvailable")) {
        (false, true) => wanted.required("", WHY),
        (true, false) => wanted.invalid("", Value::Null, &format!("{WHY}, but multiple fields are set")),
        _ => {}
    }
    wanted.check(&[In("exactly", ONE_REQUEST)]);
    wanted.at_most_items("firstAvailable", MAX_ALTERNATIVES);
    for alternative in wanted.each("firstAvailable") {
        let inner = alternative.text("name");
        alternative.check(&[AnyText("name", names::dns1123_label_errors)]);
        if !known.insert(format!("{name}/{inner}")) {
            alternative.duplicate("", inner);
        }
        alternative.check(ONE_REQUEST);
    }
}

const ONE_REQUEST: &[Check] = &[
    RequiredText("deviceClassName", names::dns1123_subdomain_errors),
    Each("selectors", SELECTOR),
    Each("tolerations", TOLERATION),
    By(|wanted| {
        let count = wanted.number("count");
        match wanted.text("allocationMode") {
            "All" if count != 0 => {
                wanted.invalid("count", count, "must not be specified when allocationMode is 'All'");
            }
            "ExactCount" => wanted.check(&[Positive("count")]),
            _ => wanted.one_of("allocationMode", &["All", "ExactCount"]),
        }
    }),
];

/// Checks of a toleration of device taints.
const TOLERATION: &[Check] = &[
    Text("key", names::qualified_name_errors),
    By(|toleration| {
        let value = toleration.text("value");
        match toleration.text("operator") {
            "Exists" if !value.is_empty() => {
                toleration.invalid("value", value, "must be empty for operator `Exists`");
            }
            "Equal" => toleration.check_text("value", value, names::label_value_errors),
            _ => {}
        }
    }),
    RequiredOneOf("operator", &["Equal", "Exists"]),
    OneOf("effect", &["NoExecute", "NoSchedule", "None"]),
];

fn named_requests(holder: &Part<'_>, known: &HashSet<String>) {
    let mut seen = HashSet::new();
    for request in holder.each("requests") {
        let name = request.text("");
        for part in name.splitn(2, '/') {
            request.check_text("", part, names::dns1123_label_errors);
        }
        if !known.contains(name) {
            let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            request.invalid("", name, why);
        }
        if !seen.insert(name) {
            request.duplicate("", name);
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
