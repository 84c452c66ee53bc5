//! ResourceClaimTemplate (`resource.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::Check::{self, By, Labels};
use crate::defaults::DefaultRule::{self, Ensure, IfPresent};
use crate::path::at;
use crate::resource::resource_claim::{claim_spec, SPEC_DEFAULTS};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    immutable: &["spec"],
    columns: &[Column::NAME, Column::AGE],
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[Ensure("spec.metadata", &[]), IfPresent("spec.spec", SPEC_DEFAULTS)];

const CHECKS: &[Check] = &[
    Labels("spec.metadata.labels"),
    By(|template, _, errors| {
        let nothing = Value::object();
        claim_spec(at(template, "spec").unwrap_or(&nothing), format_args!("spec.spec."), errors);
    }),
];
