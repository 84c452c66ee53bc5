//! Served versions that are not the stored one. `v1beta2` has the form of `v1`. `v1beta1` has another one
//! (requests without `exactly`, devices with `basic`) and is not served: defaults, admission and validation
//! run on the form that a client sends.

use crate::strategy::Conversion;

/// Of kinds that are stored as `v1`.
pub(crate) const TO_V1BETA2: &[Conversion] = &[Conversion::same("v1beta2", ("resource.k8s.io", "v1"))];

/// Rules of taints are stored as upstream stores them.
pub(crate) const OF_TAINT_RULES: &[Conversion] =
    &[Conversion::same("v1beta2", ("resource.k8s.io", "v1alpha3"))];
