//! CSINode (`storage.k8s.io`).

use std::collections::{HashMap, HashSet};

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, By};
use crate::checks::{check_text, validate};
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

const CHECKS: &[Check] = &[By(|node, _, errors| {
    let mut seen = HashSet::new();
    for (i, driver) in list(node, "spec.drivers").iter().enumerate() {
        let path = format_args!("spec.drivers[{i}]");
        let (name, id) = (text(driver, "name"), text(driver, "nodeID"));
        csi_driver_name(name, format_args!("{path}.name"), errors);
        match id.len() {
            0 => errors.push(field::required(format_args!("{path}.nodeID"), "")),
            257.. => errors.push(field::invalid(
                format_args!("{path}.nodeID"),
                id,
                "must be 256 characters or less",
            )),
            _ => {}
        }
        validate(&[Check::AtLeast("allocatable.count", 0)], driver, format_args!("{path}."), errors);
        if !seen.insert(name) {
            errors.push(field::duplicate(format_args!("{path}.name"), name));
        }
        let mut keys = HashSet::new();
        for key in texts(driver, "topologyKeys") {
            // Upstream reports the driver once for each of its keys.
            if key.is_empty() {
                errors.push(field::required(path, ""));
            }
            if !keys.insert(key) {
                errors.push(field::duplicate(path, key));
            }
            check_text(path, key, names::qualified_name_errors, errors);
        }
    }
})];

/// Drivers can be added and removed; an existing one is immutable.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.drivers";
    let mut errors = Vec::new();
    let named: HashMap<&str, &Value> = list(new, PATH).iter().map(|now| (text(now, "name"), now)).collect();
    for before in list(old, PATH) {
        let now = named.get(text(before, "name")).copied();
        let changed = now.is_some_and(|now| {
            text(now, "nodeID") != text(before, "nodeID")
                || texts(now, "topologyKeys") != texts(before, "topologyKeys")
        });
        if changed {
            let shown = now.cloned().unwrap_or_default();
            errors.push(field::invalid(PATH, shown, "field is immutable"));
        }
    }
    errors
}
