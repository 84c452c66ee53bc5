//! ResourceClaimTemplate (`resource.k8s.io`).

use plinth_codec::table::Column;

use crate::checks::template_metadata::template_metadata;
use crate::checks::Check::{self, By};
use crate::defaults::DefaultRule::{self, Ensure, IfPresent};
use crate::resource::claim_spec::{claim_devices, SPEC_DEFAULTS};
use crate::resource::conversion;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    create_checks: CREATE_CHECKS,
    immutable: &["spec"],
    columns: &[Column::NAME, Column::AGE],
    conversions: conversion::TO_V1BETA2,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[Ensure("spec.metadata", &[]), IfPresent("spec.spec", SPEC_DEFAULTS)];

const CREATE_CHECKS: &[Check] = &[
    By(|template| template_metadata(&template.field("spec.metadata"))),
    By(|template| claim_devices(&template.field("spec.spec.devices"))),
];
