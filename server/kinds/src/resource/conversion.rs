//! Served versions that are not the stored one. `v1beta2` has the form of `v1`. In `v1beta1` a request has
//! the members of `exactly` itself, and a device has its own in `basic`: rules convert it first, so that
//! errors name the fields of `v1`, as upstream's do.
//!
//! Upstream: kubernetes `pkg/apis/resource/v1beta1/conversion.go`.

use plinth_codec::{Map, Value};

use crate::checks::Part;
use crate::resource::device::objects_mut;
use crate::strategy::Conversion;

const STORED: (&str, &str) = ("resource.k8s.io", "v1");

/// Of classes.
pub(crate) const OF_CLASSES: &[Conversion] =
    &[Conversion::same("v1beta2", STORED), Conversion::same("v1beta1", STORED)];

/// Of claims.
pub(crate) const OF_CLAIMS: &[Conversion] = &[
    Conversion::same("v1beta2", STORED),
    Conversion {
        version: "v1beta1",
        stored: STORED,
        to_served: |claim| flatten_requests(claim, CLAIM),
        to_stored: |claim| nest_requests(claim, CLAIM),
    },
];

/// Of templates of claims.
pub(crate) const OF_TEMPLATES: &[Conversion] = &[
    Conversion::same("v1beta2", STORED),
    Conversion {
        version: "v1beta1",
        stored: STORED,
        to_served: |template| flatten_requests(template, TEMPLATE),
        to_stored: |template| nest_requests(template, TEMPLATE),
    },
];

/// Of slices.
pub(crate) const OF_SLICES: &[Conversion] = &[
    Conversion::same("v1beta2", STORED),
    Conversion { version: "v1beta1", stored: STORED, to_served: nest_devices, to_stored: flatten_devices },
];

/// Rules of taints are stored as upstream stores them.
pub(crate) const OF_TAINT_RULES: &[Conversion] =
    &[Conversion::same("v1beta2", ("resource.k8s.io", "v1alpha3"))];

/// The requests of a claim, and of a template.
const CLAIM: &[&str] = &["spec", "devices", "requests"];
const TEMPLATE: &[&str] = &["spec", "spec", "devices", "requests"];

/// Members of `exactly`.
const EXACTLY: [&str; 7] =
    ["deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];

fn is_of_v1beta1(object: &Value) -> bool {
    object.str_at(&["apiVersion"]) == Some("resource.k8s.io/v1beta1")
}

/// Runs rules on an object as `v1`, and on what it was.
pub(crate) fn check_as_v1(
    conversions: &[Conversion],
    object: &Part<'_>,
    old: Option<&Value>,
    rules: impl FnOnce(&Part<'_>, Option<&Value>),
) {
    if !is_of_v1beta1(object.value()) {
        return rules(object, old);
    }
    let as_v1 = |object: &Value| {
        let mut object = object.clone();
        convert(conversions, |conversion| (conversion.to_stored)(&mut object));
        object
    };
    let (new, old) = (as_v1(object.value()), old.map(as_v1));
    object.with_value(&new, "", |object| rules(object, old.as_ref()));
}

/// Changes an object as `v1`, by what it was.
pub(crate) fn change_as_v1(
    conversions: &[Conversion],
    object: &mut Value,
    old: Option<&Value>,
    change: impl FnOnce(&mut Value, Option<&Value>),
) {
    if !is_of_v1beta1(object) {
        return change(object, old);
    }
    let mut old = old.cloned();
    convert(conversions, |conversion| {
        (conversion.to_stored)(object);
        old.as_mut().into_iter().for_each(conversion.to_stored);
    });
    change(object, old.as_ref());
    convert(conversions, |conversion| (conversion.to_served)(object));
}

fn convert(conversions: &[Conversion], convert: impl FnOnce(&Conversion)) {
    if let Some(conversion) = conversions.iter().find(|conversion| conversion.version == "v1beta1") {
        convert(conversion);
    }
}

fn flatten_requests(object: &mut Value, path: &[&str]) {
    for request in objects_mut(object, path) {
        if let Some(Value::Object(exactly)) = request.remove("exactly") {
            move_members(exactly, request);
        }
        // Always written.
        if !request.contains("deviceClassName") {
            request.insert("deviceClassName", "");
        }
    }
}

fn nest_requests(object: &mut Value, path: &[&str]) {
    for request in objects_mut(object, path) {
        let mut exactly = Map::new();
        for member in EXACTLY {
            if let Some(value) = request.remove(member).filter(is_set) {
                exactly.insert(member, value);
            }
        }
        if !exactly.is_empty() {
            request.insert("exactly", exactly);
        }
    }
}

fn nest_devices(slice: &mut Value) {
    for device in objects_mut(slice, &["spec", "devices"]) {
        let mut basic = std::mem::take(device);
        if let Some(name) = basic.remove("name") {
            device.insert("name", name);
        }
        device.insert("basic", basic);
    }
}

fn flatten_devices(slice: &mut Value) {
    for device in objects_mut(slice, &["spec", "devices"]) {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            move_members(basic, device);
        }
    }
    // These are no pointers in v1beta1.
    if let Some(spec) = slice.object_at_mut(&["spec"]) {
        for member in ["nodeName", "allNodes"] {
            if spec.get(member).is_some_and(|value| !is_set(value)) {
                spec.remove(member);
            }
        }
    }
}

fn move_members(from: Map, to: &mut Map) {
    for (member, value) in from {
        to.insert(member, value);
    }
}

/// Whether a value is not the zero value of its type; a boolean is, if `false` stands for none.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Int(number) => *number != 0,
        _ => true,
    }
}
