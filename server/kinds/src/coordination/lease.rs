//! Lease (`coordination.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::Check::{self, AtLeast, By};
use crate::path::at;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    checks: CHECKS,
    columns: COLUMNS,
    ..BASE
};

const CHECKS: &[Check] = &[By(lease_duration), AtLeast("spec.leaseTransitions", 0)];

fn lease_duration(lease: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if let Some(seconds) = at(lease, "spec.leaseDurationSeconds").and_then(Value::as_int).filter(|n| *n <= 0)
    {
        errors.push(field::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
}

const COLUMNS: &[Column] = &[Column::NAME, Column::text("Holder", "spec.holderIdentity", ""), Column::AGE];
