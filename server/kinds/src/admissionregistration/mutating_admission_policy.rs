//! MutatingAdmissionPolicy (`admissionregistration.k8s.io`).

use plinth_cel::{Environment, Output};
use plinth_codec::table::Column;

use crate::admissionregistration::expressions::{compile, conditions_changed, validate_policy, variables};
use crate::admissionregistration::match_resources::{
    operations_with_an_object, MATCH_RESOURCES, POLICY_DEFAULTS,
};
use crate::admissionregistration::params::{param_kind, PARAM_KIND_COLUMN};
use crate::admissionregistration::{OLDER_VERSIONS, REGISTRATION};
use crate::checks::Check::{self, By, In, Required, RequiredOneOf};
use crate::checks::Part;
use crate::strategy::{Deprecation, Strategy};

pub(crate) const STRATEGY: Strategy = Strategy {
    defaults: POLICY_DEFAULTS,
    checks: CHECKS,
    validate_create: |policy| validate_policy(policy, true, validate_spec),
    validate_update: |new, old| validate_policy(new, conditions_changed(new, old), validate_spec),
    columns: COLUMNS,
    deprecations: &[Deprecation::new("v1alpha1", "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy is deprecated in v1.35+, unavailable in v1.38+", "1.38"),
],
    conversions: OLDER_VERSIONS,
    ..REGISTRATION
};

fn validate_spec(_: &Part<'_>, spec: &Part<'_>, environment: Environment) {
    // A reference to an undefined variable is an undefined field here, even where no variables are defined.
    let environment = variables(spec, environment.composed()).with_patches();
    spec.check(&[Required("mutations", "mutations must contain at least one item")]);
    for mutation in spec.each("mutations") {
        validate_mutation(&mutation, &environment);
    }
    spec.check(&[RequiredOneOf("reinvocationPolicy", &["IfNeeded", "Never"])]);
}

/// A mutation has the member of its patch type and no other.
fn validate_mutation(mutation: &Part<'_>, environment: &Environment) {
    const TYPES: [(&str, &str, Output); 2] = [
        ("ApplyConfiguration", "applyConfiguration", Output::Configuration),
        ("JSONPatch", "jsonPatch", Output::Patches),
    ];
    let given = mutation.text("patchType");
    let Some((_, own, output)) = TYPES.iter().find(|(patch_type, ..)| *patch_type == given) else {
        return mutation.check(&[RequiredOneOf("patchType", &["ApplyConfiguration", "JSONPatch"])]);
    };
    match mutation.get(own) {
        None => mutation.required(own, &format!("must be specified when patchType is {given}")),
        Some(found) => match found.text("expression").trim() {
            "" => found.required("expression", ""),
            source => compile(&found, "expression", source, environment, &[*output]),
        },
    }
    for (_, other, _) in TYPES.iter().filter(|(_, member, _)| member != own && mutation.has(member)) {
        let why = format!("must not be specified when patchType is {given}");
        mutation.invalid(other, format!("{{{other}}}"), &why);
    }
}

const CHECKS: &[Check] = &[
    RequiredOneOf("spec.failurePolicy", &["Fail", "Ignore"]),
    In("spec.paramKind", &[By(param_kind)]),
    Required("spec.matchConstraints", ""),
    In("spec.matchConstraints", MATCH_RESOURCES),
    In("spec.matchConstraints", &[Required("resourceRules", ""), By(operations_with_an_object)]),
];

const COLUMNS: &[Column] =
    &[Column::NAME, Column::count("Mutations", "spec.mutations"), PARAM_KIND_COLUMN, Column::AGE];
