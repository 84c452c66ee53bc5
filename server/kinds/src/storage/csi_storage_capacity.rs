//! CSIStorageCapacity (`storage.k8s.io`).

use plinth_codec::{names, Value};

use crate::checks::Check::{self, AnyText, NonNegativeQuantity};
use crate::path::{at, list};
use crate::strategy::{Strategy, BASE};
use crate::warnings::node_labels::{deprecated_keys, warn_expressions};
use crate::warnings::Warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    checks: CHECKS,
    immutable: &["nodeTopology", "storageClassName"],
    warnings,
    ..BASE
};

const CHECKS: &[Check] = &[
    AnyText("storageClassName", names::dns1123_subdomain_errors),
    Check::Selector("nodeTopology"),
    NonNegativeQuantity("capacity"),
];

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    warn_expressions(list(new, "nodeTopology.matchExpressions"), "nodeTopology", &mut found);
    for (key, why) in deprecated_keys(at(new, "nodeTopology.matchLabels")) {
        found.add(format!("nodeTopology.matchLabels.{key}: {why}"));
    }
    found.into_vec()
}
