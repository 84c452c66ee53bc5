//! DeviceClass (`resource.k8s.io`).

use plinth_codec::table::Column;

use crate::checks::Check::{self, By};
use crate::path::list;
use crate::resource::device::{opaque_config, selectors};
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    returns_deleted_object: true,
    checks: CHECKS,
    columns: &[Column::NAME, Column::AGE],
    ..BASE
};

const CHECKS: &[Check] = &[
    By(|class, _, errors| selectors(class, "spec.selectors", format_args!("spec.selectors"), errors)),
    By(|class, _, errors| {
        for (i, config) in list(class, "spec.config").iter().enumerate() {
            opaque_config(config, format_args!("spec.config[{i}]"), errors);
        }
    }),
];
