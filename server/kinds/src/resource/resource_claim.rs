//! ResourceClaim (`resource.k8s.io`).

use std::collections::HashSet;

use plinth_codec::table::{count, Cell, Column, Now};
use plinth_codec::{Map, Value};

use crate::checks::Check::{self, By};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, ForEach, IfPresent};
use crate::path::at;
use crate::resource::allocation::{device_id, validate_status, DeviceId};
use crate::resource::claim_spec::{claim_devices, SPEC_DEFAULTS, TOLERATION_DEFAULTS};
use crate::resource::conversion;
use crate::strategy::{Deprecation, Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

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
    deprecations: &[
        Deprecation::new(
            "v1beta2",
            "resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+",
            "1.39",
        ),
        Deprecation::new(
            "v1beta1",
            "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
            "1.38",
        ),
    ],
    conversions: conversion::OF_CLAIMS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    IfPresent("spec", SPEC_DEFAULTS),
    ForEach("status.allocation.devices.results", &[ForEach("tolerations", TOLERATION_DEFAULTS)]),
];

const CREATE_CHECKS: &[Check] = &[By(|claim| {
    let devices = |claim: &Part<'_>, _: Option<&Value>| claim_devices(&claim.field("spec.devices"));
    conversion::check_as_v1(conversion::OF_CLAIMS, claim, None, devices);
})];

/// Drops what drivers reported about devices that are no longer allocated (`dropDeallocatedStatusDevices`).
fn prepare_status(new: &mut Value, old: &Value) {
    fn allocated(claim: &Value) -> HashSet<DeviceId<'_>> {
        claim.list_at(&["status", "allocation", "devices", "results"]).iter().map(device_id).collect()
    }
    let kept = allocated(new);
    let gone: HashSet<_> = allocated(old).into_iter().filter(|device| !kept.contains(device)).collect();
    let reported = new.list_at(&["status", "devices"]).iter();
    let devices: Vec<Value> = reported.filter(|device| !gone.contains(&device_id(device))).cloned().collect();
    let Some(status) = new.object_at_mut(&["status"]) else { return };
    set_or_remove(status, "devices", devices);
}

fn set_or_remove(status: &mut Map, member: &str, list: Vec<Value>) {
    match list.is_empty() {
        true => drop(status.remove(member)),
        false => drop(status.insert(member, list)),
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
