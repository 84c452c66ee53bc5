//! VolumeAttributesClass (`storage.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::Check::{self, By};
use crate::path::{at, text};
use crate::storage::class::{parameters, provisioner};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    checks: CHECKS,
    validate_update,
    columns: &[Column::NAME, Column::text("DriverName", "driverName", ""), Column::AGE],
    ..BASE
};

const CHECKS: &[Check] = &[
    By(|class, _, errors| provisioner(text(class, "driverName"), format_args!("driverName"), errors)),
    By(|class, _, errors| parameters(class, "parameters", false, errors)),
];

/// Driver and parameters are immutable.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let changed = ["driverName", "parameters"].into_iter().filter(|key| at(new, key) != at(old, key));
    changed.map(|key| field::forbidden(key, &format!("updates to {key} are forbidden."))).collect()
}
