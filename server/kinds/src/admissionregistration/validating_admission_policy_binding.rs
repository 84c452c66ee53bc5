//! ValidatingAdmissionPolicyBinding (`admissionregistration.k8s.io`).

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::{names, Value};

use crate::admissionregistration::match_resources::{present_texts, BINDING_DEFAULTS, MATCH_RESOURCES};
use crate::admissionregistration::params::{param_ref, BINDING_COLUMNS};
use crate::checks::Check::{self, By, In};
use crate::path::at;
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    defaults: BINDING_DEFAULTS,
    checks: CHECKS,
    warnings: warnings::reserved_name_warnings,
    columns: BINDING_COLUMNS,
    ..BASE
};

const CHECKS: &[Check] = &[
    Check::RequiredText("spec.policyName", names::dns1123_subdomain_errors),
    In("spec.paramRef", &[By(param_ref)]),
    In("spec.matchResources", MATCH_RESOURCES),
    By(validation_actions),
];

fn validation_actions(binding: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.validationActions";
    const SUPPORTED: [&str; 3] = ["Audit", "Deny", "Warn"];
    let actions = present_texts(binding, PATH);
    let mut seen = HashSet::new();
    for (i, action) in actions.iter().enumerate() {
        if !SUPPORTED.contains(action) {
            errors.push(field::not_supported(format_args!("{PATH}[{i}]"), *action, &SUPPORTED));
        }
        if !seen.insert(action) {
            errors.push(field::duplicate(format_args!("{PATH}[{i}]"), *action));
        }
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(field::invalid(PATH, at(binding, PATH).cloned().unwrap_or_default(), why));
    }
    if seen.is_empty() {
        errors.push(field::required(PATH, "at least one validation action is required"));
    }
}
