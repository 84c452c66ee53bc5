//! ValidatingAdmissionPolicy (`admissionregistration.k8s.io`).

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_api::metadata;
use plinth_cel::{Environment, Output};
use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::admissionregistration::environment::environment;
use crate::admissionregistration::expressions::{
    conditions_changed, expression_error, match_conditions, variables,
};
use crate::admissionregistration::match_resources::{MATCH_RESOURCES, POLICY_DEFAULTS};
use crate::admissionregistration::params::{param_kind, PARAM_KIND_COLUMN};
use crate::checks::validate;
use crate::checks::Check::{self, By, In, OneOf, Required, RequiredOneOf};
use crate::path::{at, list, text};
use crate::strategy::{Generation, Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};
use crate::warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    defaults: POLICY_DEFAULTS,
    checks: CHECKS,
    validate_create,
    warnings: warnings::reserved_name_warnings,
    validate_update,
    status_keeps: STATUS_KEEPS_METADATA,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

/// Maximum number of audit annotations of a policy.
const MAX_ANNOTATIONS: usize = 20;

/// Maximum size of the expression of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;

/// Errors of the expressions of a new policy.
fn validate_create(policy: &Value) -> Vec<Cause> {
    validate_expressions(policy, true)
}

/// Errors of the expressions of an updated policy.
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
    let environment = variables(spec, environment(params, true).clone(), &mut errors);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let why = "validations or auditAnnotations must contain at least one item";
            errors.push(field::required(format_args!("spec.{key}"), why));
        }
    }
    let silent = environment.clone().without("authorizer").without("authorizer.requestResource");
    for (i, validation) in validations.iter().enumerate() {
        validation_errors(
            validation,
            format_args!("spec.validations[{i}]"),
            &environment,
            &silent,
            &mut errors,
        );
    }
    if annotations.len() > MAX_ANNOTATIONS {
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        let shown = at(spec, "auditAnnotations").cloned().unwrap_or_default();
        errors.push(field::invalid("spec.auditAnnotations", shown, &why));
    }
    let mut seen = HashSet::new();
    for (i, annotation) in annotations.iter().enumerate() {
        let path = format_args!("spec.auditAnnotations[{i}]");
        annotation_errors(annotation, path, metadata::text(policy, "name"), &environment, &mut errors);
        let key = text(annotation, "key");
        if !seen.insert(key) {
            errors.push(field::duplicate(format_args!("{path}.key"), key));
        }
    }
    errors
}

fn validation_errors(
    validation: &Value,
    path: FieldPath<'_>,
    environment: &Environment,
    silent: &Environment,
    errors: &mut Vec<Cause>,
) {
    let source = text(validation, "expression");
    match source.trim() {
        "" => errors.push(field::required(format_args!("{path}.expression"), "expression is not specified")),
        _ => expression_error(environment, format!("{path}.expression"), source, &[Output::Bool], errors),
    }
    let source = text(validation, "messageExpression");
    let at_source = format!("{path}.messageExpression");
    match source.trim() {
        "" if source.is_empty() => {}
        "" => errors.push(field::invalid(at_source, source, "must be non-empty if specified")),
        _ => expression_error(silent, at_source, source, &[Output::Text], errors),
    }
    let message = text(validation, "message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(field::invalid(
            format_args!("{path}.message"),
            message,
            "must be non-empty if specified",
        ));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(field::invalid(format_args!("{path}.message"), message, "must not contain line breaks"));
    }
    const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
    validate(&[OneOf("reason", REASONS)], validation, format_args!("{path}."), errors);
}

fn annotation_errors(
    annotation: &Value,
    path: FieldPath<'_>,
    policy: &str,
    environment: &Environment,
    errors: &mut Vec<Cause>,
) {
    let key = text(annotation, "key");
    match policy {
        "" => {
            let why = "requires metadata.name be non-empty";
            errors.push(field::invalid(format_args!("{path}.key"), key, why));
        }
        policy => {
            let full = format!("{policy}/{key}");
            let bad = names::qualified_name_errors(&full);
            errors
                .extend(bad.iter().map(|why| field::invalid(format_args!("{path}.key"), full.as_str(), why)));
        }
    }
    let at_source = format!("{path}.valueExpression");
    match text(annotation, "valueExpression").trim() {
        "" => errors.push(field::required(at_source, "valueExpression is not specified")),
        source if source.len() > MAX_ANNOTATION_BYTES => {
            let why = format!("must not exceed {MAX_ANNOTATION_BYTES} bytes in length");
            errors.push(field::required(at_source, &why));
        }
        source => expression_error(environment, at_source, source, &[Output::Text, Output::Null], errors),
    }
}

const CHECKS: &[Check] = &[
    RequiredOneOf("spec.failurePolicy", &["Fail", "Ignore"]),
    In("spec.paramKind", &[By(param_kind)]),
    Required("spec.matchConstraints", ""),
    In("spec.matchConstraints", MATCH_RESOURCES),
    In("spec.matchConstraints", &[Required("resourceRules", "")]),
];

const COLUMNS: &[Column] =
    &[Column::NAME, Column::count("Validations", "spec.validations"), PARAM_KIND_COLUMN, Column::AGE];
