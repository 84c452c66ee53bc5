//! MutatingAdmissionPolicy (`admissionregistration.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_cel::{Environment, Output};
use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::admissionregistration::environment::environment;
use crate::admissionregistration::expressions::{
    conditions_changed, expression_error, match_conditions, variables,
};
use crate::admissionregistration::match_resources::{
    operations_with_an_object, MATCH_RESOURCES, POLICY_DEFAULTS,
};
use crate::admissionregistration::params::{param_kind, PARAM_KIND_COLUMN};
use crate::checks::validate;
use crate::checks::Check::{self, By, In, Required, RequiredOneOf};
use crate::path::{at, list, text};
use crate::strategy::{Generation, Strategy, BASE};
use crate::warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    defaults: POLICY_DEFAULTS,
    checks: CHECKS,
    validate_create,
    warnings: warnings::reserved_name_warnings,
    validate_update,
    columns: COLUMNS,
    ..BASE
};

/// Errors of the expressions and mutations of a new policy.
fn validate_create(policy: &Value) -> Vec<Cause> {
    validate_expressions(policy, true)
}

/// Errors of the expressions and mutations of an updated policy.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    validate_expressions(new, conditions_changed(new, old))
}

fn validate_expressions(policy: &Value, conditions: bool) -> Vec<Cause> {
    let mut errors = Vec::new();
    let Some(spec) = at(policy, "spec") else { return errors };
    let params = at(spec, "paramKind").is_some();
    if conditions {
        match_conditions(spec, format_args!("spec."), params, &mut errors);
    }
    // A reference to an undefined variable is an undefined field here, even where no variables are defined.
    let environment = environment(params, true).clone().composed();
    let environment = variables(spec, environment, &mut errors).with_patches();
    let mutations = list(spec, "mutations");
    if mutations.is_empty() {
        errors.push(field::required("spec.mutations", "mutations must contain at least one item"));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        mutation_errors(mutation, format_args!("spec.mutations[{i}]"), &environment, &mut errors);
    }
    const POLICIES: &[&str] = &["IfNeeded", "Never"];
    validate(&[RequiredOneOf("reinvocationPolicy", POLICIES)], spec, format_args!("spec."), &mut errors);
    errors
}

/// A mutation has the member of its patch type and no other.
fn mutation_errors(
    mutation: &Value,
    path: FieldPath<'_>,
    environment: &Environment,
    errors: &mut Vec<Cause>,
) {
    const TYPES: [(&str, &str, Output); 2] = [
        ("ApplyConfiguration", "applyConfiguration", Output::Configuration),
        ("JSONPatch", "jsonPatch", Output::Patches),
    ];
    let given = text(mutation, "patchType");
    if !TYPES.iter().any(|(patch_type, ..)| *patch_type == given) {
        let types: &'static [&'static str] = &["ApplyConfiguration", "JSONPatch"];
        validate(&[RequiredOneOf("patchType", types)], mutation, format_args!("{path}."), errors);
        return;
    }
    // Errors of the mutation's own member come first.
    for own in [true, false] {
        for (_, member, output) in TYPES.iter().filter(|(patch_type, ..)| (*patch_type == given) == own) {
            let (at_member, found) = (format!("{path}.{member}"), at(mutation, member));
            match (own, found) {
                (true, None) => {
                    let why = format!("must be specified when patchType is {given}");
                    errors.push(field::required(at_member, &why));
                }
                (true, Some(found)) => {
                    let at_source = format!("{at_member}.expression");
                    match text(found, "expression").trim() {
                        "" => errors.push(field::required(at_source, "")),
                        source => expression_error(environment, at_source, source, &[*output], errors),
                    }
                }
                (false, Some(_)) => {
                    let why = format!("must not be specified when patchType is {given}");
                    errors.push(field::invalid(at_member, format!("{{{member}}}"), &why));
                }
                (false, None) => {}
            }
        }
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
