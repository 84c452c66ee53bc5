//! VolumeAttributesClass (`storage.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::Check::{self, By};
use crate::checks::Part;
use crate::path::at;
use crate::storage::class::{parameters, provisioner};
use crate::strategy::{Conversion, Deprecation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    checks: CHECKS,
    validate_update,
    columns: &[Column::NAME, Column::text("DriverName", "driverName", ""), Column::AGE],
    deprecations: &[Deprecation::new("v1beta1", "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass", "1.37"),
],
    conversions: &[Conversion::same("v1beta1", ("storage.k8s.io", "v1"))],
    ..BASE
};

const CHECKS: &[Check] =
    &[By(|class| provisioner(class, "driverName")), By(|class| parameters(class, false))];

/// Driver and parameters are immutable.
fn validate_update(new: &Part<'_>, old: &Value) {
    for key in ["driverName", "parameters"].into_iter().filter(|key| new.at(key) != at(old, key)) {
        new.forbidden(key, &format!("updates to {key} are forbidden."));
    }
}
