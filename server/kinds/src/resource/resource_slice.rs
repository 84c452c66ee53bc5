//! ResourceSlice (`resource.k8s.io`).

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;
use plinth_codec::{names, Map, Value};

use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, By, Each, Positive};
use crate::checks::{check_text, validate};
use crate::path::{at, int, list, text};
use crate::resource::device::attribute_name;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    returns_deleted_object: true,
    checks: CHECKS,
    immutable: &["spec.driver", "spec.pool.name", "spec.nodeName"],
    warnings,
    columns: COLUMNS,
    selectable: SELECTABLE,
    ..BASE
};

const CHECKS: &[Check] = &[
    By(node_selection),
    By(|slice, _, errors| csi_driver_name(text(slice, "spec.driver"), format_args!("spec.driver"), errors)),
    By(pool),
    Each(
        "spec.devices",
        &[
            By(|d, p, f| {
                check_text(format_args!("{p}name"), text(d, "name"), names::dns1123_label_errors, f)
            }),
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

fn node_selection(slice: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let name = at(slice, "spec.nodeName").and_then(Value::as_str);
    let flag = |key: &str| at(slice, key).and_then(Value::as_bool) == Some(true);
    if let Some(name) = name {
        if name.is_empty() {
            let why = "must be either unset or set to a non-empty string";
            errors.push(field::invalid("spec.nodeName", name, why));
        } else {
            check_text(format_args!("spec.nodeName"), name, names::dns1123_subdomain_errors, errors);
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

fn pool(slice: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX_LENGTH: usize = 253;
    const PATH: &str = "spec.pool.name";
    let name = text(slice, PATH);
    if name.is_empty() {
        errors.push(field::required(PATH, ""));
    } else {
        if name.len() > MAX_LENGTH {
            errors.push(field::too_long(PATH, MAX_LENGTH));
        }
        for part in name.split('/') {
            check_text(format_args!("{PATH}"), part, names::dns1123_subdomain_errors, errors);
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

fn attributes(device: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX_LENGTH: usize = 64;
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
            if given.len() > MAX_LENGTH {
                errors.push(field::too_long(format_args!("{here}.{key}"), MAX_LENGTH));
            }
        }
        if let Some(version) = at(attribute, "version").and_then(Value::as_str) {
            if !plinth_codec::regexp::is_match(PATTERN, version) {
                errors.push(field::invalid(format_args!("{here}.version"), version, SEMVER));
            }
        }
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
