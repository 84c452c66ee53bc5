//! MutatingAdmissionPolicyBinding (`admissionregistration.k8s.io`).

use plinth_codec::names;

use crate::admissionregistration::match_resources::{
    operations_with_an_object, BINDING_DEFAULTS, MATCH_RESOURCES,
};
use crate::admissionregistration::params::{param_ref, BINDING_COLUMNS};
use crate::admissionregistration::{OLDER_VERSIONS, REGISTRATION};
use crate::checks::Check::{self, By, In};
use crate::strategy::{Deprecation, Strategy};

pub(crate) const STRATEGY: Strategy = Strategy {
    defaults: BINDING_DEFAULTS,
    checks: CHECKS,
    columns: BINDING_COLUMNS,
    deprecations: &[Deprecation::new("v1alpha1", "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicyBinding is deprecated in v1.35+, unavailable in v1.38+", "1.38"),
],
    conversions: OLDER_VERSIONS,
    ..REGISTRATION
};

const CHECKS: &[Check] = &[
    Check::RequiredText("spec.policyName", names::dns1123_subdomain_errors),
    In("spec.paramRef", &[By(param_ref)]),
    In("spec.matchResources", MATCH_RESOURCES),
    In("spec.matchResources", &[By(operations_with_an_object)]),
];
