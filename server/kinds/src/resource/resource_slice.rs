//! ResourceSlice (`resource.k8s.io`).

use plinth_api::Cause;
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;
use plinth_codec::{names, Map, Value};

use crate::checks::immutable::IMMUTABLE;
use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, By, Is, Positive, Within};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, ForEach, IfPresent};
use crate::path::{at, text};
use crate::pod_template::scheduling::NODE_SELECTOR_CHECKS;
use crate::resource::conversion;
use crate::resource::device::{each_of_set, objects_mut, pool_name, TAINT_DEFAULTS};
use crate::resource::slice_device::{self, counter_set, NodeChoice};
use crate::strategy::{Deprecation, Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_create: |slice| conversion::change_as_v1(conversion::OF_SLICES, slice, None, drop_disabled),
    prepare_for_update: |new, old| {
        conversion::change_as_v1(conversion::OF_SLICES, new, Some(old), drop_disabled);
    },
    create_checks: CREATE_CHECKS,
    validate_update: |slice, old| conversion::check_as_v1(conversion::OF_SLICES, slice, Some(old), spec),
    warnings,
    columns: COLUMNS,
    selectable: SELECTABLE,
    deprecations: &[
        Deprecation::new(
            "v1beta2",
            "resource.k8s.io/v1beta2 ResourceSlice is deprecated in v1.36+, unavailable in v1.39+",
            "1.39",
        ),
        Deprecation::new(
            "v1beta1",
            "resource.k8s.io/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+",
            "1.38",
        ),
    ],
    conversions: conversion::OF_SLICES,
    ..BASE
};

/// Of devices in both forms.
const DEFAULTS: &[DefaultRule] = &[ForEach(
    "spec.devices",
    &[ForEach("taints", TAINT_DEFAULTS), IfPresent("basic", &[ForEach("taints", TAINT_DEFAULTS)])],
)];

/// Attributes that are lists, which are behind a gate that is off (`DRAListTypeAttributes`).
const LISTS: [&str; 4] = ["ints", "bools", "strings", "versions"];

/// Which resources of a node a device stands for, likewise (`DRANodeAllocatableResources`).
const MAPPINGS: &str = "nodeAllocatableResourceMappings";

/// Drops fields whose gates are off, unless the stored slice has them.
fn drop_disabled(new: &mut Value, old: Option<&Value>) {
    let old_devices = || old.map_or(&[][..], |old| old.list_at(&["spec", "devices"])).iter();
    let has_list = |attribute: &Value| LISTS.iter().any(|key| at(attribute, key).is_some());
    let keeps_lists = old_devices().any(|device| {
        let attributes = at(device, "attributes").and_then(Value::as_object);
        attributes.into_iter().flat_map(Map::iter).any(|(_, attribute)| has_list(attribute))
    });
    let keeps_mappings = old_devices().any(|device| at(device, MAPPINGS).is_some());
    for device in objects_mut(new, &["spec", "devices"]) {
        if !keeps_mappings {
            device.remove(MAPPINGS);
        }
        let attributes = device.get_mut("attributes").and_then(Value::as_object_mut);
        for (_, attribute) in attributes.filter(|_| !keeps_lists).into_iter().flat_map(Map::iter_mut) {
            if let Some(attribute) = attribute.as_object_mut() {
                LISTS.iter().for_each(|key| drop(attribute.remove(key)));
            }
        }
    }
}

const CREATE_CHECKS: &[Check] =
    &[By(|slice| conversion::check_as_v1(conversion::OF_SLICES, slice, None, spec))];

/// Maximum number of devices; of those with taints, counters or lists of attributes fewer.
const MAX_DEVICES: usize = 128;
const MAX_COSTLY_DEVICES: usize = 64;

/// Maximum number of sets of counters.
const MAX_COUNTER_SETS: usize = 8;

fn spec(slice: &Part<'_>, old: Option<&Value>) {
    let spec = slice.field("spec");
    let old = old.and_then(|old| at(old, "spec"));
    spec.check(&[Is("driver", csi_driver_name), By(pool)]);
    if let Some(old) = old {
        for key in ["pool.name", "driver", "nodeName"] {
            if spec.at(key) != at(old, key) {
                spec.invalid(key, spec.shown(key), IMMUTABLE);
            }
        }
    }
    let chosen = nodes(&spec);
    if spec.has("sharedCounters") && spec.has("devices") {
        spec.invalid("", "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let is_costly = |device: &Value| {
        let attributes = at(device, "attributes").and_then(Value::as_object);
        !device.list_at(&["taints"]).is_empty()
            || !device.list_at(&["consumesCounters"]).is_empty()
            || attributes
                .into_iter()
                .flat_map(Map::iter)
                .any(|(_, attribute)| LISTS.iter().any(|key| at(attribute, key).is_some()))
    };
    let most = if spec.list("devices").iter().any(is_costly) { MAX_COSTLY_DEVICES } else { MAX_DEVICES };
    each_of_set(&spec, "devices", most, "name", |device| {
        let same = |old: &&Value| text(old, "name") == device.text("name");
        let before = old.and_then(|old| old.list_at(&["devices"]).iter().find(same));
        slice_device::validate(device, before, chosen);
    });
    each_of_set(&spec, "sharedCounters", MAX_COUNTER_SETS, "name", |set| counter_set(set, "name"));
}

fn pool(spec: &Part<'_>) {
    let pool = spec.field("pool");
    pool.check(&[
        Is("name", pool_name),
        Positive("resourceSliceCount"),
        Within("generation", 0, i64::MAX, "must be greater than or equal to zero"),
    ]);
}

/// Validates from which nodes the devices can be used; returns whether each device has its own.
fn nodes(spec: &Part<'_>) -> NodeChoice {
    const WHY: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    const TERMS: &str = "nodeSelector.nodeSelectorTerms";
    let mut given = Vec::new();
    match spec.set_text("nodeName") {
        Some("") => spec.invalid("nodeName", "", "must be either unset or set to a non-empty string"),
        Some(name) => {
            given.push("`nodeName`");
            spec.check_text("nodeName", name, names::dns1123_subdomain_errors);
        }
        None => {}
    }
    if let Some(selector) = spec.get("nodeSelector") {
        given.push("`nodeSelector`");
        selector.check(NODE_SELECTOR_CHECKS);
        if spec.list(TERMS).len() != 1 {
            spec.invalid(TERMS, spec.shown(TERMS), "must have exactly one node selector term");
        }
    }
    for (key, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        match spec.flag(key) {
            Some(true) => given.push(shown),
            Some(false) => spec.invalid(key, false, "must be either unset or set to true"),
            None => {}
        }
    }
    match given.len() {
        0 => spec.required("", WHY),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", given.join(", "));
            spec.push(Cause::invalid(spec.path(""), shown, &format!("{WHY}, but multiple fields are set")));
        }
    }
    match spec.is_true("perDeviceNodeSelection") {
        true => NodeChoice::PerDevice,
        false => NodeChoice::PerSlice,
    }
}

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let driver = text(new, "spec.driver");
    match driver.chars().any(char::is_uppercase) {
        true => vec![format!(
            "spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"
        )],
        false => Vec::new(),
    }
}

const SELECTABLE: Selectable = Selectable {
    fields: &[
        SelectableField::NAME,
        SelectableField::new("spec.nodeName"),
        SelectableField::new("spec.driver"),
    ],
    unsupported: |label| {
        format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
    },
};

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Node", "spec.nodeName", ""),
    Column::text("Driver", "spec.driver", ""),
    Column::text("Pool", "spec.pool.name", ""),
    Column::AGE,
];
