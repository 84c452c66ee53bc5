//! resource.k8s.io: claims on devices, their templates, classes and slices.

use std::collections::HashSet;

use plinth_codec::{names, Map, Value};

use super::pod::volume::driver_name;
use super::Check::{By, Each, Labels, OneOf, Positive, RequiredOneOf, RequiredText};
use super::{at, int, list, rule, text, texts, validate, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};

/// resource.k8s.io/v1 ResourceClaim.
pub const RESOURCE_CLAIM: &[Check] =
    &[By(|claim, _, errors| claim_spec(claim, format_args!("spec."), errors))];
/// resource.k8s.io/v1 ResourceClaimTemplate.
pub const RESOURCE_CLAIM_TEMPLATE: &[Check] = &[
    Labels("spec.metadata.labels"),
    By(|template, _, errors| {
        let nothing = Value::object();
        claim_spec(at(template, "spec").unwrap_or(&nothing), format_args!("spec.spec."), errors);
    }),
];
/// resource.k8s.io/v1 DeviceClass.
pub const DEVICE_CLASS: &[Check] = &[
    By(|class, _, errors| selectors(class, "spec.selectors", format_args!("spec.selectors"), errors)),
    By(|class, _, errors| {
        for (i, config) in list(class, "spec.config").iter().enumerate() {
            opaque(config, format_args!("spec.config[{i}]"), errors);
        }
    }),
];

/// The status of a ResourceClaim: an allocation never changes but goes, and nobody holds or reports what is not allocated.
/// (Upstream: kubernetes `pkg/apis/resource/validation`, `validateResourceClaimStatusUpdate`.)
pub fn claim_status(new: &Value, old: &Value) -> Vec<Cause> {
    let allocation = |claim| at(claim, "status.allocation").filter(|value| !value.is_null());
    let mut errors = Vec::new();
    let reserved = list(new, "status.reservedFor");
    if reserved.len() > MOST_CONSUMERS {
        errors.push(field::too_many("status.reservedFor", reserved.len(), MOST_CONSUMERS));
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

const MOST_CONSUMERS: usize = 256;
const MODES: &[&str] = &["All", "ExactCount"];
const MOST_REQUESTS: usize = 32;
const MOST_ALTERNATIVES: usize = 8;

/// The spec of a claim; `path` ends in a dot.
fn claim_spec(claim: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let requests = list(claim, "spec.devices.requests");
    let here = format_args!("{path}devices.requests");
    if requests.len() > MOST_REQUESTS {
        errors.push(field::too_many(here, requests.len(), MOST_REQUESTS));
    }
    let mut known: HashSet<String> = HashSet::new();
    for (i, wanted) in requests.iter().enumerate() {
        request(wanted, format_args!("{here}[{i}]"), &mut known, errors);
    }
    for (i, constraint) in list(claim, "spec.devices.constraints").iter().enumerate() {
        let here = format_args!("{path}devices.constraints[{i}]");
        named_requests(constraint, &known, here, errors);
        let keys = ["matchAttribute", "distinctAttribute"];
        // Of none upstream says the same as of several.
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
        opaque(config, here, errors);
    }
}

fn request(wanted: &Value, path: Place<'_>, known: &mut HashSet<String>, errors: &mut Vec<Cause>) {
    let name = text(wanted, "name");
    rule(format_args!("{path}.name"), name, names::dns1123_label_errors, errors);
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
    if alternatives.len() > MOST_ALTERNATIVES {
        let here = format_args!("{path}.firstAvailable");
        errors.push(field::too_many(here, alternatives.len(), MOST_ALTERNATIVES));
    }
    for (j, alternative) in alternatives.iter().enumerate() {
        let here = format_args!("{path}.firstAvailable[{j}]");
        let inner = text(alternative, "name");
        rule(format_args!("{here}.name"), inner, names::dns1123_label_errors, errors);
        if !known.insert(format!("{name}/{inner}")) {
            errors.push(field::duplicate(here, inner));
        }
        one_request(alternative, here, errors);
    }
}

fn one_request(wanted: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
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

/// Which taints of devices a request is fine with.
const TOLERATION: &[Check] = &[
    By(|toleration, path, errors| {
        let (key, value) = (text(toleration, "key"), text(toleration, "value"));
        if !key.is_empty() {
            rule(format_args!("{path}key"), key, names::qualified_name_errors, errors);
        }
        let here = format_args!("{path}value");
        match text(toleration, "operator") {
            "Exists" if !value.is_empty() => {
                errors.push(field::invalid(here, value, "must be empty for operator `Exists`"));
            }
            "Equal" => rule(here, value, names::label_value_errors, errors),
            _ => {}
        }
    }),
    RequiredOneOf("operator", &["Equal", "Exists"]),
    OneOf("effect", &["NoExecute", "NoSchedule", "None"]),
];

fn selectors(holder: &Value, key: &str, path: Place<'_>, errors: &mut Vec<Cause>) {
    for (i, selector) in list(holder, key).iter().enumerate() {
        if at(selector, "cel").is_none() {
            errors.push(field::required(format_args!("{path}[{i}].cel"), ""));
        }
    }
}

fn opaque(config: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let Some(opaque) = at(config, "opaque") else {
        errors.push(field::required(format_args!("{path}.opaque"), ""));
        return;
    };
    driver_name(text(opaque, "driver"), format_args!("{path}.opaque.driver"), errors);
    if at(opaque, "parameters").is_none() {
        errors.push(field::required(format_args!("{path}.opaque.parameters"), ""));
    }
}

fn named_requests(holder: &Value, known: &HashSet<String>, path: Place<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, name) in texts(holder, "requests").iter().enumerate() {
        let here = format_args!("{path}.requests[{i}]");
        for part in name.splitn(2, '/') {
            rule(here, part, names::dns1123_label_errors, errors);
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

/// The name of an attribute: a C identifier, after a domain and a slash where it is not the driver's own.
fn attribute_name(name: &str, qualified: bool, path: Place<'_>, errors: &mut Vec<Cause>) {
    const LONGEST_DOMAIN: usize = 63;
    const LONGEST_NAME: usize = 32;
    const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
    if name.is_empty() {
        errors.push(field::required(path, "name required"));
        return;
    }
    let (domain, own) = match name.split_once('/') {
        Some((domain, own)) => (Some(domain), own),
        None => (None, name),
    };
    match domain {
        None if qualified => {
            let why = "a fully qualified name must be a domain and a name separated by a slash";
            errors.push(field::invalid(path, name, why));
        }
        Some("") => errors.push(field::required(path, "the domain must not be empty")),
        Some(domain) => {
            if domain.len() > LONGEST_DOMAIN {
                errors.push(field::too_long(path, LONGEST_DOMAIN));
            }
            rule(path, domain, names::dns1123_subdomain_errors, errors);
        }
        None => {}
    }
    if own.is_empty() {
        errors.push(field::required(path, "the name must not be empty"));
        return;
    }
    if own.len() > LONGEST_NAME {
        errors.push(field::too_long(path, LONGEST_NAME));
    }
    let starts = own.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !own.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        errors.push(field::invalid(path, own, IDENTIFIER));
    }
}

/// resource.k8s.io/v1 ResourceSlice.
pub const RESOURCE_SLICE: &[Check] = &[
    By(where_it_is),
    By(|slice, _, errors| driver_name(text(slice, "spec.driver"), format_args!("spec.driver"), errors)),
    By(pool),
    Each(
        "spec.devices",
        &[
            By(|d, p, f| rule(format_args!("{p}name"), text(d, "name"), names::dns1123_label_errors, f)),
            By(attributes),
        ],
    ),
    By(|slice, _, errors| {
        let mut seen = HashSet::new();
        for (i, device) in list(slice, "spec.devices").iter().enumerate() {
            let name = text(device, "name");
            if !seen.insert(name) {
                errors.push(field::duplicate(format_args!("spec.devices[{i}]"), name));
            }
        }
    }),
];

fn where_it_is(slice: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let name = at(slice, "spec.nodeName").and_then(Value::as_str);
    let flag = |key: &str| at(slice, key).and_then(Value::as_bool) == Some(true);
    if let Some(name) = name {
        if name.is_empty() {
            let why = "must be either unset or set to a non-empty string";
            errors.push(field::invalid("spec.nodeName", name, why));
        } else {
            rule(format_args!("spec.nodeName"), name, names::dns1123_subdomain_errors, errors);
        }
    }
    let given = [
        name.is_some_and(|name| !name.is_empty()),
        at(slice, "spec.nodeSelector").is_some(),
        flag("spec.allNodes"),
        flag("spec.perDeviceNodeSelection"),
    ];
    const WHY: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match given.iter().filter(|set| **set).count() {
        0 => errors.push(field::required("spec", WHY)),
        1 => {}
        _ => {
            let why = format!("{WHY}, but multiple fields are set");
            errors.push(field::invalid("spec", Value::Null, &why));
        }
    }
}

fn pool(slice: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const LONGEST: usize = 253;
    const PATH: &str = "spec.pool.name";
    let name = text(slice, PATH);
    if name.is_empty() {
        errors.push(field::required(PATH, ""));
    } else {
        if name.len() > LONGEST {
            errors.push(field::too_long(PATH, LONGEST));
        }
        for part in name.split('/') {
            rule(format_args!("{PATH}"), part, names::dns1123_subdomain_errors, errors);
        }
    }
    validate(&[Positive("spec.pool.resourceSliceCount")], slice, format_args!(""), errors);
    if let Some(generation) = int(slice, "spec.pool.generation").filter(|generation| *generation < 0) {
        errors.push(field::invalid(
            "spec.pool.generation",
            generation,
            "must be greater than or equal to zero",
        ));
    }
}

fn attributes(device: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const LONGEST: usize = 64;
    const SEMVER: &str = "must be a string compatible with semver.org spec 2.0.0";
    const PATTERN: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$";
    let all = at(device, "attributes").and_then(Value::as_object);
    for (name, attribute) in all.into_iter().flat_map(Map::iter) {
        let here = format_args!("{path}attributes[{name}]");
        attribute_name(name, false, here, errors);
        let values = ["int", "bool", "string", "version"];
        if values.iter().filter(|key| at(attribute, key).is_some()).count() != 1 {
            errors.push(field::invalid(here, attribute.clone(), "exactly one value must be specified"));
        }
        for key in ["string", "version"] {
            let given = at(attribute, key).and_then(Value::as_str).unwrap_or_default();
            if given.len() > LONGEST {
                errors.push(field::too_long(format_args!("{here}.{key}"), LONGEST));
            }
        }
        if let Some(version) = at(attribute, "version").and_then(Value::as_str) {
            if !plinth_codec::regexp::is_match(PATTERN, version) {
                errors.push(field::invalid(format_args!("{here}.version"), version, SEMVER));
            }
        }
    }
}

/// A slice stays of its driver, its pool and its node.
pub fn slice_update(new: &Value, old: &Value) -> Vec<Cause> {
    const FIXED: &[&str] = &["spec.driver", "spec.pool.name", "spec.nodeName"];
    let mut errors = Vec::new();
    super::update::immutable(FIXED, new, old, &mut errors);
    errors
}
