//! ValidatingAdmissionPolicyBinding (`admissionregistration.k8s.io`).

use std::collections::HashSet;

use plinth_codec::names;

use crate::admissionregistration::match_resources::{BINDING_DEFAULTS, MATCH_RESOURCES};
use crate::admissionregistration::params::{param_ref, BINDING_COLUMNS};
use crate::admissionregistration::REGISTRATION;
use crate::checks::Check::{self, By, In};
use crate::checks::Part;
use crate::strategy::Strategy;

pub(crate) const STRATEGY: Strategy =
    Strategy { defaults: BINDING_DEFAULTS, checks: CHECKS, columns: BINDING_COLUMNS, ..REGISTRATION };

const CHECKS: &[Check] = &[
    Check::RequiredText("spec.policyName", names::dns1123_subdomain_errors),
    In("spec.paramRef", &[By(param_ref)]),
    In("spec.matchResources", MATCH_RESOURCES),
    By(validation_actions),
];

fn validation_actions(binding: &Part<'_>) {
    const PATH: &str = "spec.validationActions";
    let mut seen = HashSet::new();
    for action in binding.each(PATH) {
        action.one_of("", &["Audit", "Deny", "Warn"]);
        action.unique("", action.text(""), &mut seen);
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        binding.invalid(PATH, binding.shown(PATH), why);
    }
    if seen.is_empty() {
        binding.required(PATH, "at least one validation action is required");
    }
}
