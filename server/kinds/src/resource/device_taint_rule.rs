//! DeviceTaintRule (`resource.k8s.io`): a taint of all devices that a selector picks. The versions that have
//! it are off by default.

use plinth_codec::table::Column;
use plinth_codec::time::Timestamp;
use plinth_codec::{names, Value};

use crate::checks::conditions::conditions;
use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, By, RequiredOneOf};
use crate::checks::Part;
use crate::defaults::DefaultRule::IfPresent;
use crate::path::{at, text};
use crate::resource::conversion;
use crate::resource::device::{pool_name, EFFECTS, TAINT_DEFAULTS, TAINT_NAME};
use crate::strategy::{
    Deprecation, Generation, Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA,
};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    returns_deleted_object: true,
    defaults: &[IfPresent("spec.taint", TAINT_DEFAULTS)],
    prepare_for_update,
    create_checks: CREATE_CHECKS,
    validate_update: |rule, old| spec(rule, Some(old)),
    status_keeps: STATUS_KEEPS_METADATA,
    status_checks: STATUS_CHECKS,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    deprecations: &[Deprecation::new(
        "v1alpha3",
        "resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+",
        "1.39",
    )],
    conversions: conversion::OF_TAINT_RULES,
    ..BASE
};

const EFFECT: &str = "spec.taint.effect";
const TIME: &str = "spec.taint.timeAdded";

/// The time is that of the effect: a new effect gets a new time, unless the client sets one.
fn prepare_for_update(new: &mut Value, old: &Value) {
    if text(new, EFFECT) != text(old, EFFECT) && at(new, TIME) == at(old, TIME) {
        if let Some(taint) = new.object_at_mut(&["spec", "taint"]) {
            taint.insert("timeAdded", Timestamp::now().to_rfc3339());
        }
    }
}

const CREATE_CHECKS: &[Check] = &[By(|rule| spec(rule, None))];

fn spec(rule: &Part<'_>, old: Option<&Value>) {
    if let Some(selector) = rule.get("spec.deviceSelector") {
        if selector.has("driver") {
            selector.apply("driver", csi_driver_name);
        }
        if selector.has("pool") {
            selector.apply("pool", pool_name);
        }
        if let Some(device) = selector.set_text("device") {
            selector.check_text("device", device, names::dns1123_label_errors);
        }
    }
    let taint = rule.field("spec.taint");
    taint.check(TAINT_NAME);
    if old.is_none_or(|old| text(old, EFFECT) != rule.text(EFFECT)) {
        taint.check(&[RequiredOneOf("effect", EFFECTS)]);
    }
}

const STATUS_CHECKS: &[Check] = &[By(|rule| {
    /// Maximum number of conditions.
    const MAX_CONDITIONS: usize = 8;
    conditions(rule, "status.conditions");
    rule.at_most_items("status.conditions", MAX_CONDITIONS);
})];

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Key", "spec.taint.key", ""),
    Column::text("Value", "spec.taint.value", ""),
    Column::text("Effect", EFFECT, ""),
    Column::age("TimeAdded", TIME, ""),
    Column::AGE,
];
