//! Lease (`coordination.k8s.io`).

use plinth_codec::table::Column;

use crate::checks::Check::{self, AtLeast, Within};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    checks: CHECKS,
    columns: COLUMNS,
    ..BASE
};

const CHECKS: &[Check] = &[
    Within("spec.leaseDurationSeconds", 1, i64::MAX, "must be greater than 0"),
    AtLeast("spec.leaseTransitions", 0),
];

const COLUMNS: &[Column] = &[Column::NAME, Column::text("Holder", "spec.holderIdentity", ""), Column::AGE];
