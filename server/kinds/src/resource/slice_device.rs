//! A device of a ResourceSlice: attributes, capacities, counters, taints, nodes.

use plinth_api::{Cause, MOST_ERRORS};
use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Value};

use crate::checks::quantities::is_native;
use crate::checks::Check::{self, AnyText, By, ExactlyOne};
use crate::checks::{Part, PartError};
use crate::path::at;
use crate::pod_template::scheduling::NODE_SELECTOR_CHECKS;
use crate::resource::capacity;
use crate::resource::device::{binding_conditions, each_of, each_of_set, qualified_name, TAINT};

/// Where it defines from which nodes a device can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeChoice {
    PerSlice,
    PerDevice,
}

/// Maximum number of attributes and capacities of a device.
const MAX_ENTRIES: usize = 32;

/// Maximum number of values of attributes of a device.
const MAX_VALUES: usize = 48;

/// Maximum number of taints of a device.
const MAX_TAINTS: usize = 16;

/// Maximum number of sets of counters that a device consumes of.
const MAX_CONSUMED_SETS: usize = 2;

/// Maximum number of counters of a set.
const MAX_COUNTERS: usize = 32;

/// Validates a device; taints that the stored slice has are not looked at again.
pub(crate) fn validate(device: &Part<'_>, old: Option<&Value>, nodes: NodeChoice) {
    device.check(&[AnyText("name", names::dns1123_label_errors), By(sizes), By(attributes)]);
    capacities(device);
    if old.is_none_or(|old| at(old, "taints") != device.at("taints")) {
        each_of(device, "taints", MAX_TAINTS, |taint| taint.check(TAINT));
    }
    each_of_set(device, "consumesCounters", MAX_CONSUMED_SETS, "counterSet", |consumption| {
        counter_set(consumption, "counterSet");
    });
    match nodes {
        NodeChoice::PerDevice => own_nodes(device),
        NodeChoice::PerSlice if device.count(&["nodeName", "nodeSelector", "allNodes"]) > 0 => {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            device.invalid("", Value::Null, why);
        }
        NodeChoice::PerSlice => {}
    }
    binding_conditions(device);
    mappings(device);
}

fn sizes(device: &Part<'_>) {
    let count = |key: &str| device.members(key).count();
    let entries = count("attributes") + count("capacity");
    if entries > MAX_ENTRIES {
        let why = format!("the total number of attributes and capacities must not exceed {MAX_ENTRIES}");
        device.invalid("", shown(entries), &why);
    }
    let of_lists = |attribute: &Value| LISTS.iter().map(|key| attribute.list_at(&[key]).len()).sum::<usize>();
    let values: usize = device.members("attributes").map(|(_, attribute)| of_lists(attribute).max(1)).sum();
    if values > MAX_VALUES {
        let why = format!("the total number of attribute values must not exceed {MAX_VALUES}");
        device.invalid("", shown(values), &why);
    }
}

fn shown(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Values of attributes that are lists, in the order in which upstream looks at them.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

const ONE_VALUE: Check = ExactlyOne(
    &["int", "bool", "string", "version", "bools", "ints", "strings", "versions"],
    PartError::InvalidText("exactly one value must be specified"),
    PartError::Invalid("exactly one value must be specified"),
    &[],
);

fn attributes(device: &Part<'_>) {
    for (name, attribute) in device.entries("attributes") {
        if attribute.errors() >= MOST_ERRORS {
            return;
        }
        device.apply_to("attributes", name, qualified_name);
        if attribute.has("string") {
            text_value(&attribute.field("string"));
        }
        if attribute.has("version") {
            version_value(&attribute.field("version"));
        }
        for key in LISTS.into_iter().filter(|key| attribute.has(key)) {
            if attribute.list(key).is_empty() {
                attribute.invalid(key, attribute.shown(key), "must not be empty if specified");
            }
            for value in attribute.each(key) {
                match key {
                    "strings" => text_value(&value),
                    "versions" => version_value(&value),
                    _ => {}
                }
            }
        }
        attribute.check(&[ONE_VALUE]);
    }
}

fn text_value(value: &Part<'_>) {
    const MAX_LENGTH: usize = 64;
    value.at_most_bytes("", value.text(""), MAX_LENGTH);
}

fn version_value(value: &Part<'_>) {
    const PATTERN: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$";
    let version = value.text("");
    if !plinth_codec::regexp::is_match(PATTERN, version) {
        value.invalid("", version, "must be a string compatible with semver.org spec 2.0.0");
    }
    text_value(value);
}

fn capacities(device: &Part<'_>) {
    let is_shared = device.is_true("allowMultipleAllocations");
    for (name, given) in device.entries("capacity") {
        if given.errors() >= MOST_ERRORS {
            return;
        }
        device.apply_to("capacity", name, qualified_name);
        match (given.get("requestPolicy"), is_shared) {
            (Some(policy), true) => capacity::request_policy(&policy, given.text("value")),
            (Some(policy), false) => policy.forbidden("", "allowMultipleAllocations must be true"),
            (None, _) => {}
        }
    }
}

/// Validates a set of counters, and a consumption of one, which names it in another field.
pub(crate) fn counter_set(set: &Part<'_>, name: &'static str) {
    const COUNTERS: &str = "counters";
    set.required_text(name, "", names::dns1123_label_errors);
    let count = set.members(COUNTERS).count();
    if count == 0 {
        set.required(COUNTERS, "");
    } else if count > MAX_COUNTERS {
        set.push(Cause::too_many(set.path(COUNTERS), count, MAX_COUNTERS));
    } else {
        for (counter, _) in set.members(COUNTERS) {
            set.check_text(COUNTERS, counter, names::dns1123_label_errors);
        }
    }
}

/// Validates from which nodes a device can be used where each of the slice has its own.
fn own_nodes(device: &Part<'_>) {
    const WHY: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let mut given = Vec::new();
    match device.set_text("nodeName") {
        Some("") => device.invalid("nodeName", "", "must not be empty"),
        Some(name) => {
            given.push("`nodeName`");
            device.check_text("nodeName", name, names::dns1123_subdomain_errors);
        }
        None => {}
    }
    if let Some(selector) = device.get("nodeSelector") {
        given.push("`nodeSelector`");
        selector.check(NODE_SELECTOR_CHECKS);
    }
    match device.flag("allNodes") {
        Some(true) => given.push("`allNodes`"),
        Some(false) => device.invalid("allNodes", false, "must be either unset or set to true"),
        None => {}
    }
    match given.len() {
        0 => device.required("", WHY),
        1 => {}
        _ => device.invalid("", format!("{{{}}}", given.join(", ")), WHY),
    }
}

/// Validates which resources of its node a device stands for.
fn mappings(device: &Part<'_>) {
    for (resource, mapping) in device.entries("nodeAllocatableResourceMappings") {
        if !is_native(resource) {
            mapping.invalid("", resource, "must be a node allocatable resource name");
        }
        if mapping.count(&["allocationMultiplier", "capacityKey"]) == 0 {
            mapping.invalid("", "", "at least one of allocationMultiplier or capacityKey must be set");
            continue;
        }
        let factor = mapping.text("allocationMultiplier");
        if Quantity::parse(factor).is_ok_and(|parsed| parsed.sign() <= 0) {
            mapping.invalid("allocationMultiplier", factor, "must be positive");
        }
        match mapping.set_text("capacityKey") {
            Some("") => mapping.invalid("capacityKey", "", "capacityKey must not be an empty string"),
            Some(key) if !device.members("capacity").any(|(name, _)| name == key) => {
                mapping.not_found("capacityKey", key);
            }
            _ => {}
        }
    }
}
