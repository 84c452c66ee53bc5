//! Served versions that are not the stored one. `v1beta2` has the form of `v1`. In `v1beta1` a request has
//! the members of `exactly` itself, and a device has most of its own in `basic` (kubernetes
//! `pkg/apis/resource/v1beta1`).

use plinth_codec::{Map, Value};

use crate::resource::device::objects_mut;
use crate::strategy::Conversion;

const STORED: (&str, &str) = ("resource.k8s.io", "v1");
const SAME: Conversion = Conversion::same("v1beta2", STORED);

/// Of kinds that are alike in all versions.
pub(crate) const OF_CLASSES: &[Conversion] = &[SAME, Conversion::same("v1beta1", STORED)];

pub(crate) const OF_CLAIMS: &[Conversion] = &[
    SAME,
    Conversion {
        version: "v1beta1",
        stored: STORED,
        to_served: |claim| objects_mut(claim, OF_CLAIM).for_each(flatten_request),
        to_stored: |claim| objects_mut(claim, OF_CLAIM).for_each(nest_request),
    },
];

pub(crate) const OF_TEMPLATES: &[Conversion] = &[
    SAME,
    Conversion {
        version: "v1beta1",
        stored: STORED,
        to_served: |template| objects_mut(template, OF_TEMPLATE).for_each(flatten_request),
        to_stored: |template| objects_mut(template, OF_TEMPLATE).for_each(nest_request),
    },
];

pub(crate) const OF_SLICES: &[Conversion] = &[
    SAME,
    Conversion {
        version: "v1beta1",
        stored: STORED,
        to_served: |slice| objects_mut(slice, DEVICES).for_each(nest_device),
        to_stored: to_stored_slice,
    },
];

/// Rules of taints are stored as upstream stores them.
pub(crate) const OF_TAINT_RULES: &[Conversion] =
    &[Conversion::same("v1beta2", ("resource.k8s.io", "v1alpha3"))];

/// Where the requests are.
const OF_CLAIM: &[&str] = &["spec", "devices", "requests"];
const OF_TEMPLATE: &[&str] = &["spec", "spec", "devices", "requests"];
const DEVICES: &[&str] = &["spec", "devices"];

const EXACTLY: &str = "exactly";
const CLASS: &str = "deviceClassName";
const BASIC: &str = "basic";

/// Members of a request of `v1beta1` that are not of `exactly`.
const OWN: [&str; 2] = ["name", "firstAvailable"];

/// Moves the members of `exactly` up.
fn flatten_request(request: &mut Map) {
    let exactly = request.remove(EXACTLY);
    for (member, value) in exactly.iter().filter_map(Value::as_object).flat_map(Map::iter) {
        request.insert(member.clone(), value.clone());
    }
    // The one member that is never left out there.
    if request.get(CLASS).is_none_or(Value::is_null) {
        request.insert(CLASS, "");
    }
}

/// Moves what is not the request's own to `exactly`, if any of it is set.
fn nest_request(request: &mut Map) {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Int(0) => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let mut exactly = Map::new();
    request.retain(|member, value| {
        let is_own = OWN.contains(&member.as_str());
        if !is_own && is_set(value) {
            exactly.insert(member.clone(), value.clone());
        }
        is_own
    });
    if !exactly.is_empty() {
        if exactly.get(CLASS).is_none() {
            exactly.insert(CLASS, "");
        }
        request.insert(EXACTLY, Value::Object(exactly));
    }
}

/// Moves all but the name to `basic`.
fn nest_device(device: &mut Map) {
    let mut basic = Map::new();
    device.retain(|member, value| {
        let is_name = member == "name";
        if !is_name {
            basic.insert(member.clone(), value.clone());
        }
        is_name
    });
    device.insert(BASIC, Value::Object(basic));
}

/// Moves the members of `basic` up; an empty `nodeName` and an untrue `allNodes` are absent ones.
fn to_stored_slice(slice: &mut Value) {
    for device in objects_mut(slice, DEVICES) {
        let basic = device.remove(BASIC);
        for (member, value) in basic.iter().filter_map(Value::as_object).flat_map(Map::iter) {
            device.insert(member.clone(), value.clone());
        }
    }
    if let Some(spec) = slice.get_mut("spec").and_then(Value::as_object_mut) {
        if spec.get("nodeName").and_then(Value::as_str) == Some("") {
            spec.remove("nodeName");
        }
        if spec.get("allNodes").and_then(Value::as_bool) == Some(false) {
            spec.remove("allNodes");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    /// Object of `v1`, the same of `v1beta1`.
    const ROWS: [(&[Conversion], &str, &str); 4] = [
        (
            OF_CLAIMS,
            r#"{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"d","count":2,"adminAccess":false}},{"name":"b","firstAvailable":[{"name":"c","deviceClassName":"d"}]}]}}}"#,
            r#"{"spec":{"devices":{"requests":[{"name":"a","deviceClassName":"d","count":2,"adminAccess":false},{"name":"b","deviceClassName":"","firstAvailable":[{"name":"c","deviceClassName":"d"}]}]}}}"#,
        ),
        (
            OF_TEMPLATES,
            r#"{"spec":{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"","allocationMode":"All"}}]}}}}"#,
            r#"{"spec":{"spec":{"devices":{"requests":[{"name":"a","deviceClassName":"","allocationMode":"All"}]}}}}"#,
        ),
        (
            OF_SLICES,
            r#"{"spec":{"nodeName":"n","devices":[{"name":"a","allNodes":true,"attributes":{"b":{"int":1}}},{"name":"c"}]}}"#,
            r#"{"spec":{"nodeName":"n","devices":[{"name":"a","basic":{"allNodes":true,"attributes":{"b":{"int":1}}}},{"name":"c","basic":{}}]}}"#,
        ),
        (OF_CLASSES, r#"{"spec":{"selectors":[]}}"#, r#"{"spec":{"selectors":[]}}"#),
    ];

    #[test]
    fn objects_of_v1beta1_are_those_of_v1_in_another_form() {
        let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
        for (conversions, stored, served) in ROWS {
            let conversion = conversions.iter().find(|c| c.version == "v1beta1").unwrap();
            let mut object = parse(stored);
            (conversion.to_served)(&mut object);
            assert_eq!(object, parse(served));
            (conversion.to_stored)(&mut object);
            assert_eq!(object, parse(stored));
        }
        let mut slice = parse(r#"{"spec":{"nodeName":"","allNodes":false,"devices":[{"name":"a"}]}}"#);
        to_stored_slice(&mut slice);
        assert_eq!(slice, parse(r#"{"spec":{"devices":[{"name":"a"}]}}"#));
    }
}
