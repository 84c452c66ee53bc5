//! DeviceClass (`resource.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::checks::quantities::is_extended;
use crate::checks::Check::{self, By};
use crate::checks::Part;
use crate::path::at;
use crate::resource::conversion;
use crate::resource::device::{each_of, opaque_config, selectors};
use crate::resource::selector::Written;
use crate::strategy::{Deprecation, Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    returns_deleted_object: true,
    create_checks: CREATE_CHECKS,
    validate_update: |class, old| spec(class, Some(old)),
    columns: &[Column::NAME, Column::AGE],
    deprecations: &[
        Deprecation::new(
            "v1beta2",
            "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+",
            "1.39",
        ),
        Deprecation::new(
            "v1beta1",
            "resource.k8s.io/v1beta1 DeviceClass is deprecated in v1.35+, unavailable in v1.38+",
            "1.38",
        ),
    ],
    conversions: conversion::OF_CLASSES,
    ..BASE
};

const CREATE_CHECKS: &[Check] = &[By(|class| spec(class, None))];

/// Maximum number of configurations.
const MAX_CONFIG: usize = 32;

fn spec(class: &Part<'_>, old: Option<&Value>) {
    let written = |path: &str| match old {
        Some(old) if at(old, path) == class.at(path) => Written::Stored,
        _ => Written::New,
    };
    let spec = class.field("spec");
    selectors(&spec, written("spec.selectors"));
    let config = written("spec.config");
    each_of(&spec, "config", MAX_CONFIG, |element| opaque_config(element, config));
    if let Some(name) = spec.set_text("extendedResourceName").filter(|name| !is_extended(name)) {
        spec.invalid("extendedResourceName", name, "must be a valid extended resource name");
    }
}
