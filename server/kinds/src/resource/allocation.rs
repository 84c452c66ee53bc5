//! The status of a claim: which devices are allocated, for whom, and what drivers report about them.

use std::collections::HashSet;

use plinth_api::{Cause, MOST_ERRORS};
use plinth_codec::{names, Value};

use crate::checks::conditions::conditions;
use crate::checks::immutable::IMMUTABLE;
use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, AnyText, By, Is, Required, RequiredOneOf};
use crate::checks::{address, Part};
use crate::path::{at, list};
use crate::pod_template::scheduling::NODE_SELECTOR_CHECKS;
use crate::resource::claim_spec::{RequestNames, MAX_CONFIG};
use crate::resource::device::{
    binding_conditions, each_of, each_of_set, opaque_config, pool_name, raw_object, uuid,
};
use crate::resource::selector::Written;

/// Maximum number of those a claim is reserved for.
const MAX_CONSUMERS: usize = 256;

/// Maximum number of allocated devices.
const MAX_RESULTS: usize = 32;

/// Maximum number of conditions of a device.
const MAX_CONDITIONS: usize = 8;

/// Maximum number of addresses of a network device.
const MAX_ADDRESSES: usize = 16;

/// Driver, pool, device and share.
pub(crate) type DeviceId<'a> = [&'a str; 4];

/// Which device an allocation or a report is about.
pub(crate) fn device_id(object: &Value) -> DeviceId<'_> {
    ["driver", "pool", "device", "shareID"].map(|member| object.str_at(&[member]).unwrap_or_default())
}

/// A device as upstream shows it in an error.
fn shown([driver, pool, device, share]: DeviceId<'_>) -> String {
    let [driver, pool, device, share] = [driver, pool, device, share].map(plinth_codec::error::quoted);
    format!("{{\"Driver\":{driver},\"Pool\":{pool},\"Device\":{device},\"ShareID\":{share}}}")
}

/// Errors of an update of the status: an allocation can be removed but not changed, and only allocated
/// devices can be reserved or reported (kubernetes `pkg/apis/resource/validation`,
/// `validateResourceClaimStatusUpdate`).
pub(crate) fn validate_status(claim: &Part<'_>, old: &Value) {
    const ALLOCATION: &str = "allocation";
    const RESERVED: &str = "reservedFor";
    let status = claim.field("status");
    each_of_set(&status, RESERVED, MAX_CONSUMERS, "uid", |consumer| consumer.check(CONSUMER));
    reported_devices(&status);
    let reserved = status.list(RESERVED);
    let is_new = |consumer: &Value| !list(old, "status.reservedFor").contains(consumer);
    if !reserved.is_empty() && !status.has(ALLOCATION) {
        status.forbidden(RESERVED, "may not be specified when `allocated` is not set");
    } else if claim.has("metadata.deletionTimestamp") && reserved.iter().any(is_new) {
        let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        status.forbidden(RESERVED, why);
    }
    match (status.get(ALLOCATION), at(old, "status.allocation")) {
        (Some(now), Some(before)) if now.value() != before => {
            now.invalid("", now.value().clone(), IMMUTABLE);
        }
        (Some(now), None) => allocation(&now, &RequestNames::of(&claim.field("spec.devices"))),
        _ => {}
    }
}

const CONSUMER: &[Check] = &[Required("resource", ""), Required("name", ""), Required("uid", "")];

fn reported_devices(status: &Part<'_>) {
    const DEVICES: &str = "devices";
    let allocated: HashSet<DeviceId<'_>> =
        status.list("allocation.devices.results").iter().map(device_id).collect();
    for device in status.each(DEVICES) {
        if device.errors() >= MOST_ERRORS {
            return;
        }
        reported_device(&device, &allocated);
    }
    let mut seen = HashSet::new();
    for device in status.each(DEVICES) {
        let id = device_id(device.value());
        if !seen.insert(id) {
            device.push(Cause::duplicate_shown(device.path(""), &shown(id)));
        }
    }
}

const DEVICE: &[Check] = &[
    Is("driver", csi_driver_name),
    Is("pool", pool_name),
    AnyText("device", names::dns1123_label_errors),
    By(|device| {
        if device.has("shareID") {
            device.apply("shareID", uuid);
        }
    }),
];

fn reported_device(device: &Part<'_>, allocated: &HashSet<DeviceId<'_>>) {
    device.check(DEVICE);
    let id = device_id(device.value());
    if !allocated.contains(&id) {
        let why = "must be an allocated device in the claim";
        device.push(Cause::invalid_shown(device.path(""), &shown(id), why));
    }
    device.at_most_items("conditions", MAX_CONDITIONS);
    conditions(device, "conditions");
    if device.has("data") {
        raw_object(device, "data", Written::New);
    }
    if let Some(network) = device.get("networkData") {
        network.at_most_bytes("interfaceName", network.text("interfaceName"), 256);
        network.at_most_bytes("hardwareAddress", network.text("hardwareAddress"), 128);
        each_of_set(&network, "ips", MAX_ADDRESSES, "", |ip| ip.apply("", address::of_interface));
    }
}

/// Validates a new allocation.
fn allocation(allocation: &Part<'_>, requests: &RequestNames<'_>) {
    let devices = allocation.field("devices");
    each_of(&devices, "results", MAX_RESULTS, |result| {
        requests.validate(result, "request");
        result.check(&DEVICE[..3]);
        binding_conditions(result);
        result.check(&DEVICE[3..]);
    });
    // Those of the class and those of the claim.
    each_of(&devices, "config", 2 * MAX_CONFIG, |config| {
        config.check(&[RequiredOneOf("source", &["FromClaim", "FromClass"])]);
        requests.validate_list(config);
        opaque_config(config, Written::New);
    });
    if let Some(nodes) = allocation.get("nodeSelector") {
        nodes.check(NODE_SELECTOR_CHECKS);
    }
}
