//! Lease (`coordination.k8s.io`).

use plinth_codec::table::Column;

use crate::checks::Check::{self, AtLeast, By};
use crate::checks::Part;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    checks: CHECKS,
    columns: COLUMNS,
    ..BASE
};

const CHECKS: &[Check] = &[By(lease_duration), AtLeast("spec.leaseTransitions", 0)];

fn lease_duration(lease: &Part<'_>) {
    if let Some(seconds) = lease.int("spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        lease.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
}

const COLUMNS: &[Column] = &[Column::NAME, Column::text("Holder", "spec.holderIdentity", ""), Column::AGE];
