//! Lease (`coordination.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::Check::{self, AtLeast, Within};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    prepare_for_create: |lease| drop_election(lease, &Value::Null),
    prepare_for_update: drop_election,
    checks: CHECKS,
    columns: COLUMNS,
    ..BASE
};

/// Drops what belongs to coordinated leader election, whose feature gate is off.
fn drop_election(new: &mut Value, old: &Value) {
    for field in ["strategy", "preferredHolder"] {
        let spec = new.get_mut("spec").and_then(Value::as_object_mut);
        let is_new = old.at(&["spec", field]).is_none_or(Value::is_null);
        if let (Some(spec), true) = (spec, is_new) {
            spec.remove(field);
        }
    }
}

const CHECKS: &[Check] = &[
    Within("spec.leaseDurationSeconds", 1, i64::MAX, "must be greater than 0"),
    AtLeast("spec.leaseTransitions", 0),
];

const COLUMNS: &[Column] = &[Column::NAME, Column::text("Holder", "spec.holderIdentity", ""), Column::AGE];

#[cfg(test)]
mod tests {
    use plinth_codec::tree;

    use super::*;

    #[test]
    fn fields_of_leader_election_are_dropped() {
        let lease =
            || tree!({ "spec": tree!({ "holderIdentity": "a", "strategy": "b", "preferredHolder": "c" }) });
        let plain = tree!({ "spec": tree!({ "holderIdentity": "a" }) });
        let (mut created, mut updated, mut kept) = (lease(), lease(), lease());
        (STRATEGY.prepare_for_create)(&mut created);
        (STRATEGY.prepare_for_update)(&mut updated, &plain);
        (STRATEGY.prepare_for_update)(&mut kept, &lease());
        assert_eq!((created, updated, kept), (plain.clone(), plain, lease()));
    }
}
