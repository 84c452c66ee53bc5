//! ResourceSlice (`resource.k8s.io`).

use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{
    self, AnyText, By, Each, EachUniqueElement, ExactlyOne, Is, Positive, Text, Within,
};
use crate::checks::{Part, PartError};
use crate::path::text;
use crate::resource::device::attribute_name;
use crate::resource::OLDER_VERSIONS;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    returns_deleted_object: true,
    checks: CHECKS,
    immutable: &["spec.driver", "spec.pool.name", "spec.nodeName"],
    warnings,
    columns: COLUMNS,
    selectable: SELECTABLE,
    conversions: OLDER_VERSIONS,
    ..BASE
};

const CHECKS: &[Check] = &[
    By(node_selection),
    Is("spec.driver", csi_driver_name),
    By(pool),
    Each("spec.devices", &[AnyText("name", names::dns1123_label_errors), By(attributes)]),
    EachUniqueElement("spec.devices", "name", &[]),
];

fn node_selection(slice: &Part<'_>) {
    const WHY: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match slice.set_text("spec.nodeName") {
        Some("") => {
            slice.invalid("spec.nodeName", "", "must be either unset or set to a non-empty string");
        }
        _ => slice.check(&[Text("spec.nodeName", names::dns1123_subdomain_errors)]),
    }
    let given = [
        !slice.text("spec.nodeName").is_empty(),
        slice.has("spec.nodeSelector"),
        slice.is_true("spec.allNodes"),
        slice.is_true("spec.perDeviceNodeSelection"),
    ];
    match given.iter().filter(|set| **set).count() {
        0 => slice.required("spec", WHY),
        1 => {}
        _ => slice.invalid("spec", Value::Null, &format!("{WHY}, but multiple fields are set")),
    }
}

fn pool(slice: &Part<'_>) {
    const PATH: &str = "spec.pool.name";
    match slice.text(PATH) {
        "" => slice.required(PATH, ""),
        name => {
            slice.at_most_bytes(PATH, name, 253);
            for part in name.split('/') {
                slice.check_text(PATH, part, names::dns1123_subdomain_errors);
            }
        }
    }
    slice.check(&[
        Positive("spec.pool.resourceSliceCount"),
        Within("spec.pool.generation", 0, i64::MAX, "must be greater than or equal to zero"),
    ]);
}

const ONE_VALUE: Check = ExactlyOne(
    &["int", "bool", "string", "version"],
    PartError::Invalid("exactly one value must be specified"),
    PartError::Invalid("exactly one value must be specified"),
    &[],
);

fn attributes(device: &Part<'_>) {
    const MAX_LENGTH: usize = 64;
    const SEMVER: &str = "must be a string compatible with semver.org spec 2.0.0";
    const PATTERN: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$";
    for (name, attribute) in device.entries("attributes") {
        attribute_name(name, false, &attribute);
        attribute.check(&[ONE_VALUE]);
        for key in ["string", "version"] {
            attribute.at_most_bytes(key, attribute.text(key), MAX_LENGTH);
        }
        if let Some(version) = attribute.set_text("version") {
            if !plinth_codec::regexp::is_match(PATTERN, version) {
                attribute.invalid("version", version, SEMVER);
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
