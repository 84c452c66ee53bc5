//! ValidatingAdmissionPolicyBinding (`admissionregistration.k8s.io`).

use plinth_codec::names;

use crate::admissionregistration::match_resources::{BINDING_DEFAULTS, MATCH_RESOURCES};
use crate::admissionregistration::params::{param_ref, BINDING_COLUMNS};
use crate::admissionregistration::REGISTRATION;
use crate::checks::Check::{self, By, EachUnique, In, MustBe, Required};
use crate::checks::Part;
use crate::strategy::Strategy;

pub(crate) const STRATEGY: Strategy =
    Strategy { defaults: BINDING_DEFAULTS, checks: CHECKS, columns: BINDING_COLUMNS, ..REGISTRATION };

const CHECKS: &[Check] = &[
    Check::RequiredText("spec.policyName", names::dns1123_subdomain_errors),
    In("spec.paramRef", &[By(param_ref)]),
    In("spec.matchResources", MATCH_RESOURCES),
    EachUnique("spec.validationActions", "", &[MustBe("", &["Audit", "Deny", "Warn"])]),
    By(validation_actions),
];

fn validation_actions(binding: &Part<'_>) {
    const PATH: &str = "spec.validationActions";
    let actions = binding.texts(PATH);
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        binding.invalid(PATH, binding.shown(PATH), why);
    }
    binding.check(&[Required(PATH, "at least one validation action is required")]);
}
