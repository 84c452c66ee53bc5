//! CSINode (`storage.k8s.io`).

use std::collections::{HashMap, HashSet};

use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::checks::immutable::IMMUTABLE;
use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, AtLeast, By, Is, Required, Text};
use crate::checks::Part;
use crate::path::{list, text, texts};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    returns_deleted_object: true,
    checks: CHECKS,
    validate_update,
    columns: &[Column::NAME, Column::count("Drivers", "spec.drivers"), Column::AGE],
    ..BASE
};

const DRIVER: &[Check] = &[
    Is("name", csi_driver_name),
    Required("nodeID", ""),
    Text("nodeID", node_id_errors),
    AtLeast("allocatable.count", 0),
];

fn node_id_errors(id: &str) -> Vec<String> {
    const MAX: usize = 256;
    if id.len() > MAX {
        return vec![format!("must be {MAX} characters or less")];
    }
    Vec::new()
}

const CHECKS: &[Check] = &[By(|node| {
    let mut seen = HashSet::new();
    for driver in node.each("spec.drivers") {
        driver.check(DRIVER);
        driver.unique("name", driver.text("name"), &mut seen);
        let mut keys = HashSet::new();
        for key in driver.texts("topologyKeys") {
            // Upstream reports the driver once for each of its keys.
            if key.is_empty() {
                driver.required("", "");
            }
            driver.unique("", key, &mut keys);
            driver.check_text("", key, names::qualified_name_errors);
        }
    }
})];

/// Drivers can be added and removed; an existing one is immutable.
fn validate_update(new: &Part<'_>, old: &Value) {
    const PATH: &str = "spec.drivers";
    let named: HashMap<&str, &Value> = new.list(PATH).iter().map(|now| (text(now, "name"), now)).collect();
    for before in list(old, PATH) {
        let Some(now) = named.get(text(before, "name")) else { continue };
        if text(now, "nodeID") != text(before, "nodeID")
            || texts(now, "topologyKeys") != texts(before, "topologyKeys")
        {
            new.invalid(PATH, (*now).clone(), IMMUTABLE);
        }
    }
}
