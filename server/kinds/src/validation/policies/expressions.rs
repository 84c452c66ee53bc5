//! What policies and webhooks say in CEL, and what depends on it.

use std::collections::HashSet;

use plinth_cel::{Environment, Output};
use plinth_codec::{names, Value};

use super::environment::environment;
use crate::validation::Check::{NeedOneOf, OneOf};
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
fn expression_fault(
    environment: &Environment,
    path: String,
    source: &str,
    outputs: &[Output],
    faults: &mut Vec<Cause>,
) {
    if let Err(why) = environment.compile(source, outputs) {
        faults.push(field::invalid(path, source, &why));
    }
}

/// Faults of the match conditions of a webhook or of the spec of a policy; `path` ends in a dot.
fn match_conditions(owner: &Value, path: Place<'_>, params: bool, faults: &mut Vec<Cause>) {
    let path = format_args!("{path}matchConditions");
    let conditions = list(owner, "matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        faults.push(field::too_many(path, conditions.len(), MAX_CONDITIONS));
    }
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = format_args!("{path}[{i}]");
        match text(condition, "expression").trim() {
            "" => faults.push(field::required(format_args!("{path}.expression"), "")),
            source => {
                let environment = environment(params, true);
                expression_fault(environment, format!("{path}.expression"), source, &[Output::Bool], faults);
            }
        }
        let path = format_args!("{path}.name");
        let name = text(condition, "name");
        if name.is_empty() {
            faults.push(field::required(path, ""));
            continue;
        }
        let bad = names::qualified_name_faults(name);
        faults.extend(bad.iter().map(|why| field::invalid(path, name, why)));
        if !seen.insert(name) {
            faults.push(field::duplicate(path, name));
        }
    }
}

/// Faults of the match conditions of a new webhook configuration.
pub fn new_webhooks(configuration: &Value) -> Vec<Cause> {
    let mut faults = Vec::new();
    for (i, hook) in list(configuration, "webhooks").iter().enumerate() {
        match_conditions(hook, format_args!("webhooks[{i}]."), false, &mut faults);
    }
    faults
}

/// Faults of the match conditions of a changed webhook configuration: all or none are looked at.
pub fn changed_webhooks(new: &Value, old: &Value) -> Vec<Cause> {
    let conditions = |configuration| -> Vec<&[Value]> {
        list(configuration, "webhooks").iter().map(|hook| list(hook, "matchConditions")).collect()
    };
    match conditions(new) == conditions(old) {
        true => Vec::new(),
        false => new_webhooks(new),
    }
}

/// Faults of what a new policy says in CEL.
pub fn new_policy(policy: &Value) -> Vec<Cause> {
    policy_faults(policy, true)
}

/// Faults of what a changed policy says in CEL.
pub fn changed_policy(new: &Value, old: &Value) -> Vec<Cause> {
    policy_faults(new, conditions_changed(new, old))
}

/// Whether match conditions are other ones, or mean something else because of other parameters.
fn conditions_changed(new: &Value, old: &Value) -> bool {
    ["spec.paramKind", "spec.matchConditions"].iter().any(|path| at(new, path) != at(old, path))
}

fn policy_faults(policy: &Value, conditions: bool) -> Vec<Cause> {
    let mut faults = Vec::new();
    let Some(spec) = at(policy, "spec") else { return faults };
    let params = at(spec, "paramKind").is_some();
    if conditions {
        match_conditions(spec, format_args!("spec."), params, &mut faults);
    }
    let environment = variables(spec, environment(params, true).clone(), &mut faults);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let why = "validations or auditAnnotations must contain at least one item";
            faults.push(field::required(format_args!("spec.{key}"), why));
        }
    }
    let silent = environment.clone().without("authorizer").without("authorizer.requestResource");
    for (i, validation) in validations.iter().enumerate() {
        validation_faults(
            validation,
            format_args!("spec.validations[{i}]"),
            &environment,
            &silent,
            &mut faults,
        );
    }
    if annotations.len() > MAX_ANNOTATIONS {
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        let shown = at(spec, "auditAnnotations").cloned().unwrap_or_default();
        faults.push(field::invalid("spec.auditAnnotations", shown, &why));
    }
    let mut seen = HashSet::new();
    for (i, annotation) in annotations.iter().enumerate() {
        let path = format_args!("spec.auditAnnotations[{i}]");
        annotation_faults(annotation, path, metadata::text(policy, "name"), &environment, &mut faults);
        let key = text(annotation, "key");
        if !seen.insert(key) {
            faults.push(field::duplicate(format_args!("{path}.key"), key));
        }
    }
    faults
}

/// Faults of what a new mutating policy says in CEL, and of what it does.
pub fn new_mutating_policy(policy: &Value) -> Vec<Cause> {
    mutating_policy_faults(policy, true)
}

/// Faults of what a changed mutating policy says in CEL, and of what it does.
pub fn changed_mutating_policy(new: &Value, old: &Value) -> Vec<Cause> {
    mutating_policy_faults(new, conditions_changed(new, old))
}

fn mutating_policy_faults(policy: &Value, conditions: bool) -> Vec<Cause> {
    let mut faults = Vec::new();
    let Some(spec) = at(policy, "spec") else { return faults };
    let params = at(spec, "paramKind").is_some();
    if conditions {
        match_conditions(spec, format_args!("spec."), params, &mut faults);
    }
    // Naming a variable that there is not is a fault of a field here, whether or not there are others.
    let environment = environment(params, true).clone().composed();
    let environment = variables(spec, environment, &mut faults).with_patches();
    let mutations = list(spec, "mutations");
    if mutations.is_empty() {
        faults.push(field::required("spec.mutations", "mutations must contain at least one item"));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        mutation_faults(mutation, format_args!("spec.mutations[{i}]"), &environment, &mut faults);
    }
    const POLICIES: &[&str] = &["IfNeeded", "Never"];
    validate(&[NeedOneOf("reinvocationPolicy", POLICIES)], spec, format_args!("spec."), &mut faults);
    faults
}

/// A mutation has the member of its type, and not that of the other one.
fn mutation_faults(mutation: &Value, path: Place<'_>, environment: &Environment, faults: &mut Vec<Cause>) {
    const TYPES: [(&str, &str, Output); 2] = [
        ("ApplyConfiguration", "applyConfiguration", Output::Configuration),
        ("JSONPatch", "jsonPatch", Output::Patches),
    ];
    let given = text(mutation, "patchType");
    if !TYPES.iter().any(|(patch_type, ..)| *patch_type == given) {
        let types: &'static [&'static str] = &["ApplyConfiguration", "JSONPatch"];
        validate(&[NeedOneOf("patchType", types)], mutation, format_args!("{path}."), faults);
        return;
    }
    // That of its own type comes first.
    for own in [true, false] {
        for (_, member, output) in TYPES.iter().filter(|(patch_type, ..)| (*patch_type == given) == own) {
            let (at_member, found) = (format!("{path}.{member}"), at(mutation, member));
            match (own, found) {
                (true, None) => {
                    let why = format!("must be specified when patchType is {given}");
                    faults.push(field::required(at_member, &why));
                }
                (true, Some(found)) => {
                    let at_source = format!("{at_member}.expression");
                    match text(found, "expression").trim() {
                        "" => faults.push(field::required(at_source, "")),
                        source => expression_fault(environment, at_source, source, &[*output], faults),
                    }
                }
                (false, Some(_)) => {
                    let why = format!("must not be specified when patchType is {given}");
                    faults.push(field::invalid(at_member, format!("{{{member}}}"), &why));
                }
                (false, None) => {}
            }
        }
    }
}

/// The variables of a policy's expressions, with those that it makes itself added.
fn variables(spec: &Value, mut environment: Environment, faults: &mut Vec<Cause>) -> Environment {
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        let path = format_args!("spec.variables[{i}]");
        let (name, source) = (text(variable, "name"), text(variable, "expression"));
        if name.trim().is_empty() {
            faults.push(field::required(format_args!("{path}.name"), "name is not specified"));
        } else if !plinth_cel::is_identifier(name) {
            faults.push(field::invalid(format_args!("{path}.name"), name, "must be a valid CEL identifier"));
        }
        if source.trim().is_empty() {
            faults.push(field::required(format_args!("{path}.expression"), "expression is not specified"));
        } else if let Err(why) = environment.compose(name, source) {
            faults.push(field::invalid(format_args!("{path}.expression"), source, &why));
        }
    }
    environment
}

fn validation_faults(
    validation: &Value,
    path: Place<'_>,
    environment: &Environment,
    silent: &Environment,
    faults: &mut Vec<Cause>,
) {
    let source = text(validation, "expression");
    match source.trim() {
        "" => faults.push(field::required(format_args!("{path}.expression"), "expression is not specified")),
        _ => expression_fault(environment, format!("{path}.expression"), source, &[Output::Bool], faults),
    }
    let source = text(validation, "messageExpression");
    let at_source = format!("{path}.messageExpression");
    match source.trim() {
        "" if source.is_empty() => {}
        "" => faults.push(field::invalid(at_source, source, "must be non-empty if specified")),
        _ => expression_fault(silent, at_source, source, &[Output::Text], faults),
    }
    let message = text(validation, "message");
    if !message.is_empty() && message.trim().is_empty() {
        faults.push(field::invalid(
            format_args!("{path}.message"),
            message,
            "must be non-empty if specified",
        ));
    } else if message.trim().contains(['\n', '\r']) {
        faults.push(field::invalid(format_args!("{path}.message"), message, "must not contain line breaks"));
    }
    const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
    validate(&[OneOf("reason", REASONS)], validation, format_args!("{path}."), faults);
}

fn annotation_faults(
    annotation: &Value,
    path: Place<'_>,
    policy: &str,
    environment: &Environment,
    faults: &mut Vec<Cause>,
) {
    let key = text(annotation, "key");
    match policy {
        "" => {
            let why = "requires metadata.name be non-empty";
            faults.push(field::invalid(format_args!("{path}.key"), key, why));
        }
        policy => {
            let full = format!("{policy}/{key}");
            let bad = names::qualified_name_faults(&full);
            faults
                .extend(bad.iter().map(|why| field::invalid(format_args!("{path}.key"), full.as_str(), why)));
        }
    }
    let at_source = format!("{path}.valueExpression");
    match text(annotation, "valueExpression").trim() {
        "" => faults.push(field::required(at_source, "valueExpression is not specified")),
        source if source.len() > MAX_ANNOTATION_BYTES => {
            let why = format!("must not exceed {MAX_ANNOTATION_BYTES} bytes in length");
            faults.push(field::required(at_source, &why));
        }
        source => expression_fault(environment, at_source, source, &[Output::Text, Output::Null], faults),
    }
}
