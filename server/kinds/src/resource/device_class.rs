//! DeviceClass (`resource.k8s.io`).

use plinth_codec::table::Column;

use crate::checks::Check::{self, By, Each};
use crate::resource::device::{opaque_config, SELECTOR};
use crate::resource::OLDER_VERSIONS;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    returns_deleted_object: true,
    checks: CHECKS,
    columns: &[Column::NAME, Column::AGE],
    conversions: OLDER_VERSIONS,
    ..BASE
};

const CHECKS: &[Check] = &[Each("spec.selectors", SELECTOR), Each("spec.config", &[By(opaque_config)])];
