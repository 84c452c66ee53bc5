//! ResourceClaimTemplate (`resource.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::immutable::immutable;
use crate::checks::template_metadata::template_metadata;
use crate::checks::Check::{self, By};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Ensure, IfPresent};
use crate::path::at;
use crate::resource::claim_spec::{claim_devices, SPEC_DEFAULTS};
use crate::resource::conversion;
use crate::strategy::{Deprecation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    create_checks: CREATE_CHECKS,
    validate_update,
    columns: &[Column::NAME, Column::AGE],
    deprecations: &[
        Deprecation::new(
            "v1beta2",
            "resource.k8s.io/v1beta2 ResourceClaimTemplate is deprecated in v1.36+, unavailable in v1.39+",
            "1.39",
        ),
        Deprecation::new(
            "v1beta1",
            "resource.k8s.io/v1beta1 ResourceClaimTemplate is deprecated in v1.35+, unavailable in v1.38+",
            "1.38",
        ),
    ],
    conversions: conversion::OF_TEMPLATES,
    ..BASE
};

/// The spec does not change. Upstream reports what is wrong with the new one as well.
fn validate_update(new: &Part<'_>, old: &Value) {
    if new.at("spec") != at(old, "spec") {
        new.check(CREATE_CHECKS);
        immutable(&["spec"], new, old);
    }
}

const DEFAULTS: &[DefaultRule] = &[Ensure("spec.metadata", &[]), IfPresent("spec.spec", SPEC_DEFAULTS)];

const CREATE_CHECKS: &[Check] = &[
    By(|template| template_metadata(&template.field("spec.metadata"))),
    By(|template| {
        let devices = |template: &Part<'_>, _: Option<&Value>| {
            claim_devices(&template.field("spec.spec.devices"));
        };
        conversion::check_as_v1(conversion::OF_TEMPLATES, template, None, devices);
    }),
];
