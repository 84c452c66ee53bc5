//! What policies and webhooks say in CEL, and what depends on it.

use std::collections::HashSet;

use plinth_cel::{Environment, Output};
use plinth_codec::{names, Value};

use super::environment::environment;
use crate::validation::Check::{OneOf, RequiredOneOf};
use crate::validation::{at, list, text, validate};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};
use plinth_api::metadata;

/// Most match conditions.
const MAX_CONDITIONS: usize = 64;
/// Most audit annotations of a policy.
const MAX_ANNOTATIONS: usize = 20;
/// Most bytes of the expression of one.
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;

/// What is wrong with an expression, if anything.
fn expression_error(
    environment: &Environment,
    path: String,
    source: &str,
    outputs: &[Output],
    errors: &mut Vec<Cause>,
) {
    if let Err(why) = environment.compile(source, outputs) {
        errors.push(field::invalid(path, source, &why));
    }
}

/// Errors of the match conditions of a webhook or of the spec of a policy; `path` ends in a dot.
fn match_conditions(owner: &Value, path: Place<'_>, params: bool, errors: &mut Vec<Cause>) {
    let path = format_args!("{path}matchConditions");
    let conditions = list(owner, "matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        errors.push(field::too_many(path, conditions.len(), MAX_CONDITIONS));
    }
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = format_args!("{path}[{i}]");
        match text(condition, "expression").trim() {
            "" => errors.push(field::required(format_args!("{path}.expression"), "")),
            source => {
                let environment = environment(params, true);
                expression_error(environment, format!("{path}.expression"), source, &[Output::Bool], errors);
            }
        }
        let path = format_args!("{path}.name");
        let name = text(condition, "name");
        if name.is_empty() {
            errors.push(field::required(path, ""));
            continue;
        }
        let bad = names::qualified_name_errors(name);
        errors.extend(bad.iter().map(|why| field::invalid(path, name, why)));
        if !seen.insert(name) {
            errors.push(field::duplicate(path, name));
        }
    }
}

/// Errors of the match conditions of a new webhook configuration.
pub fn new_webhooks(configuration: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    for (i, hook) in list(configuration, "webhooks").iter().enumerate() {
        match_conditions(hook, format_args!("webhooks[{i}]."), false, &mut errors);
    }
    errors
}

/// Errors of the match conditions of a changed webhook configuration: all or none are looked at.
pub fn changed_webhooks(new: &Value, old: &Value) -> Vec<Cause> {
    let conditions = |configuration| -> Vec<&[Value]> {
        list(configuration, "webhooks").iter().map(|hook| list(hook, "matchConditions")).collect()
    };
    match conditions(new) == conditions(old) {
        true => Vec::new(),
        false => new_webhooks(new),
    }
}

/// Errors of what a new policy says in CEL.
pub fn new_policy(policy: &Value) -> Vec<Cause> {
    policy_errors(policy, true)
}

/// Errors of what a changed policy says in CEL.
pub fn changed_policy(new: &Value, old: &Value) -> Vec<Cause> {
    policy_errors(new, conditions_changed(new, old))
}

/// Whether match conditions are other ones, or mean something else because of other parameters.
fn conditions_changed(new: &Value, old: &Value) -> bool {
    ["spec.paramKind", "spec.matchConditions"].iter().any(|path| at(new, path) != at(old, path))
}

fn policy_errors(policy: &Value, conditions: bool) -> Vec<Cause> {
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

/// Errors of what a new mutating policy says in CEL, and of what it does.
pub fn new_mutating_policy(policy: &Value) -> Vec<Cause> {
    mutating_policy_errors(policy, true)
}

/// Errors of what a changed mutating policy says in CEL, and of what it does.
pub fn changed_mutating_policy(new: &Value, old: &Value) -> Vec<Cause> {
    mutating_policy_errors(new, conditions_changed(new, old))
}

fn mutating_policy_errors(policy: &Value, conditions: bool) -> Vec<Cause> {
    let mut errors = Vec::new();
    let Some(spec) = at(policy, "spec") else { return errors };
    let params = at(spec, "paramKind").is_some();
    if conditions {
        match_conditions(spec, format_args!("spec."), params, &mut errors);
    }
    // Naming a variable that there is not is a error of a field here, whether or not there are others.
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

/// A mutation has the member of its type, and not that of the other one.
fn mutation_errors(mutation: &Value, path: Place<'_>, environment: &Environment, errors: &mut Vec<Cause>) {
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
    // That of its own type comes first.
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

/// The variables of a policy's expressions, with those that it makes itself added.
fn variables(spec: &Value, mut environment: Environment, errors: &mut Vec<Cause>) -> Environment {
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        let path = format_args!("spec.variables[{i}]");
        let (name, source) = (text(variable, "name"), text(variable, "expression"));
        if name.trim().is_empty() {
            errors.push(field::required(format_args!("{path}.name"), "name is not specified"));
        } else if !plinth_cel::is_identifier(name) {
            errors.push(field::invalid(format_args!("{path}.name"), name, "must be a valid CEL identifier"));
        }
        if source.trim().is_empty() {
            errors.push(field::required(format_args!("{path}.expression"), "expression is not specified"));
        } else if let Err(why) = environment.compose(name, source) {
            errors.push(field::invalid(format_args!("{path}.expression"), source, &why));
        }
    }
    environment
}

fn validation_errors(
    validation: &Value,
    path: Place<'_>,
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
    path: Place<'_>,
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
