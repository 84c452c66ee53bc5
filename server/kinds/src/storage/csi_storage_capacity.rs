//! CSIStorageCapacity (`storage.k8s.io`).

use plinth_api::field;
use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Value};

use crate::checks::check_text;
use crate::checks::Check::{self, By};
use crate::path::{at, list, text};
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
    By(|capacity, _, errors| {
        check_text(
            format_args!("storageClassName"),
            text(capacity, "storageClassName"),
            names::dns1123_subdomain_errors,
            errors,
        );
    }),
    Check::Selector("nodeTopology"),
    By(|capacity, _, errors| {
        let shown = text(capacity, "capacity");
        if Quantity::parse(shown).is_ok_and(|amount| amount.sign() < 0) {
            errors.push(field::invalid("capacity", shown, "must be greater than or equal to 0"));
        }
    }),
];

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    warn_expressions(list(new, "nodeTopology.matchExpressions"), "nodeTopology", &mut found);
    for (key, why) in deprecated_keys(at(new, "nodeTopology.matchLabels")) {
        found.add(format!("nodeTopology.matchLabels.{key}: {why}"));
    }
    found.into_vec()
}
