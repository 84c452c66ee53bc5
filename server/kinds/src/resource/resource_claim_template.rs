//! ResourceClaimTemplate (`resource.k8s.io`).

use plinth_codec::table::Column;

use crate::checks::Check::{self, By, Labels};
use crate::defaults::DefaultRule::{self, Ensure, IfPresent};
use crate::resource::resource_claim::{claim_devices, SPEC_DEFAULTS};
use crate::resource::OLDER_VERSIONS;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    immutable: &["spec"],
    columns: &[Column::NAME, Column::AGE],
    conversions: OLDER_VERSIONS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[Ensure("spec.metadata", &[]), IfPresent("spec.spec", SPEC_DEFAULTS)];

const CHECKS: &[Check] =
    &[Labels("spec.metadata.labels"), By(|template| claim_devices(&template.field("spec.spec.devices")))];
