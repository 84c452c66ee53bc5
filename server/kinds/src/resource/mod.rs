//! Kinds of `resource.k8s.io`.

pub(crate) mod device;
pub(crate) mod device_class;
pub(crate) mod resource_claim;
pub(crate) mod resource_claim_template;
pub(crate) mod resource_slice;

use crate::strategy::Conversion;

/// Versions that are off by default.
const OLDER_VERSIONS: &[Conversion] = &[Conversion::same("v1beta2", ("resource.k8s.io", "v1"))];
