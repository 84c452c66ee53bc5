//! ValidatingAdmissionPolicy (`admissionregistration.k8s.io`).

use std::collections::HashSet;

use plinth_api::metadata_text;
use plinth_cel::{Environment, Output};
use plinth_codec::names;
use plinth_codec::table::Column;

use crate::admissionregistration::expressions::{compile, conditions_changed, validate_policy, variables};
use crate::admissionregistration::match_resources::{MATCH_RESOURCES, POLICY_DEFAULTS};
use crate::admissionregistration::params::{param_kind, PARAM_KIND_COLUMN};
use crate::admissionregistration::REGISTRATION;
use crate::checks::Check::{self, By, In, OneOf, Required, RequiredOneOf};
use crate::checks::Part;
use crate::strategy::{Strategy, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    defaults: POLICY_DEFAULTS,
    checks: CHECKS,
    validate_create: |policy| validate_policy(policy, true, validate_spec),
    validate_update: |new, old| validate_policy(new, conditions_changed(new, old), validate_spec),
    status_keeps: STATUS_KEEPS_METADATA,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..REGISTRATION
};

/// Maximum number of audit annotations of a policy.
const MAX_ANNOTATIONS: usize = 20;

/// Maximum size of the expression of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;

fn validate_spec(policy: &Part<'_>, spec: &Part<'_>, environment: Environment) {
    let environment = variables(spec, environment);
    if spec.is_empty("validations") && spec.is_empty("auditAnnotations") {
        for key in ["validations", "auditAnnotations"] {
            spec.required(key, "validations or auditAnnotations must contain at least one item");
        }
    }
    let silent = environment.clone().without("authorizer").without("authorizer.requestResource");
    for validation in spec.each("validations") {
        validate_validation(&validation, &environment, &silent);
    }
    if spec.list("auditAnnotations").len() > MAX_ANNOTATIONS {
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        spec.invalid("auditAnnotations", spec.shown("auditAnnotations"), &why);
    }
    let mut seen = HashSet::new();
    for annotation in spec.each("auditAnnotations") {
        validate_annotation(&annotation, metadata_text(policy.value(), "name"), &environment);
        annotation.unique("key", annotation.text("key"), &mut seen);
    }
}

fn validate_validation(validation: &Part<'_>, environment: &Environment, silent: &Environment) {
    let source = validation.text("expression");
    match source.trim() {
        "" => validation.required("expression", "expression is not specified"),
        _ => compile(validation, "expression", source, environment, &[Output::Bool]),
    }
    let source = validation.text("messageExpression");
    match source.trim() {
        "" if source.is_empty() => {}
        "" => validation.invalid("messageExpression", source, "must be non-empty if specified"),
        _ => compile(validation, "messageExpression", source, silent, &[Output::Text]),
    }
    let message = validation.text("message");
    if !message.is_empty() && message.trim().is_empty() {
        validation.invalid("message", message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        validation.invalid("message", message, "must not contain line breaks");
    }
    validation.check(&[OneOf("reason", &["Forbidden", "Invalid", "RequestEntityTooLarge"])]);
}

fn validate_annotation(annotation: &Part<'_>, policy: &str, environment: &Environment) {
    const SOURCE: &str = "valueExpression";
    let key = annotation.text("key");
    match policy {
        "" => annotation.invalid("key", key, "requires metadata.name be non-empty"),
        policy => annotation.check_text("key", &format!("{policy}/{key}"), names::qualified_name_errors),
    }
    match annotation.text(SOURCE).trim() {
        "" => annotation.required(SOURCE, "valueExpression is not specified"),
        source if source.len() > MAX_ANNOTATION_BYTES => {
            annotation.required(SOURCE, &format!("must not exceed {MAX_ANNOTATION_BYTES} bytes in length"));
        }
        source => compile(annotation, SOURCE, source, environment, &[Output::Text, Output::Null]),
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
