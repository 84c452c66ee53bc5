//! `matchConstraints` of admission policies and `matchResources` of their bindings
//! (kubernetes `pkg/apis/admissionregistration/validation`).

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::{names, Value};

use crate::checks::check_text;
use crate::checks::Check::{self, By, Each, OneOf, RequiredOneOf, Selector};
use crate::defaults::DefaultRule::{self, Field, ForEach, IfPresent};
use crate::defaults::Literal::{EmptyObject, Str};
use crate::path::{at, list};

pub(crate) const RULE_DEFAULTS: &[DefaultRule] = &[Field("scope", Str("*"))];

/// Defaults of ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
pub(crate) const POLICY_DEFAULTS: &[DefaultRule] =
    &[Field("spec.failurePolicy", Str("Fail")), IfPresent("spec.matchConstraints", MATCH_RESOURCES_DEFAULTS)];

/// Defaults of the bindings of policies.
pub(crate) const BINDING_DEFAULTS: &[DefaultRule] =
    &[IfPresent("spec.matchResources", MATCH_RESOURCES_DEFAULTS)];

const MATCH_RESOURCES_DEFAULTS: &[DefaultRule] = &[
    Field("matchPolicy", Str("Equivalent")),
    Field("namespaceSelector", EmptyObject),
    Field("objectSelector", EmptyObject),
    ForEach("resourceRules", RULE_DEFAULTS),
    ForEach("excludeResourceRules", RULE_DEFAULTS),
];

pub(crate) const MATCH_RESOURCES: &[Check] = &[
    RequiredOneOf("matchPolicy", &["Equivalent", "Exact"]),
    Selector("namespaceSelector"),
    Selector("objectSelector"),
    Each("resourceRules", NAMED_RULE),
    Each("excludeResourceRules", NAMED_RULE),
];

const NAMED_RULE: &[Check] = &[
    By(resource_names),
    By(operations),
    By(groups_and_versions),
    By(resources),
    OneOf("scope", &["*", "Cluster", "Namespaced"]),
];

pub(crate) fn present_texts<'v>(owner: &'v Value, key: &str) -> Vec<&'v str> {
    list(owner, key).iter().filter_map(Value::as_str).collect()
}

fn resource_names(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, name) in present_texts(rule, "resourceNames").into_iter().enumerate() {
        let path = format_args!("{path}resourceNames[{i}]");
        check_text(path, name, names::path_segment_errors, errors);
        if !seen.insert(name) {
            errors.push(field::duplicate(path, name));
        }
    }
}

/// Validates a list: not empty, and `*` only as the single element.
fn with_wildcard(rule: &Value, path: FieldPath<'_>, key: &str, what: &str, errors: &mut Vec<Cause>) {
    let given = present_texts(rule, key);
    if given.is_empty() {
        errors.push(field::required(format_args!("{path}{key}"), ""));
    }
    if given.len() > 1 && given.contains(&"*") {
        let why = format!("if '*' is present, must not specify other {what}");
        errors.push(field::invalid(
            format_args!("{path}{key}"),
            at(rule, key).cloned().unwrap_or_default(),
            &why,
        ));
    }
}

fn operations(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const SUPPORTED: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    with_wildcard(rule, path, "operations", "operations", errors);
    for (i, operation) in present_texts(rule, "operations").into_iter().enumerate() {
        if !SUPPORTED.contains(&operation) {
            errors.push(field::not_supported(format_args!("{path}operations[{i}]"), operation, &SUPPORTED));
        }
    }
}

/// Mutating policies cannot match `DELETE`, which has no object to change.
pub(crate) fn operations_with_an_object(constraints: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const SUPPORTED: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    for rule in list(constraints, "resourceRules") {
        for operation in present_texts(rule, "operations") {
            if !SUPPORTED.contains(&operation) {
                let path = format_args!("{path}resourceRules.operations");
                errors.push(field::not_supported(path, operation, &SUPPORTED));
            }
        }
    }
}

fn groups_and_versions(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    with_wildcard(rule, path, "apiGroups", "API groups", errors);
    with_wildcard(rule, path, "apiVersions", "API versions", errors);
    for (i, version) in present_texts(rule, "apiVersions").into_iter().enumerate() {
        if version.is_empty() {
            errors.push(field::required(format_args!("{path}apiVersions[{i}]"), ""));
        }
    }
}

/// Validates resources: `pods`, `pods/log`, `pods/*`, `*/scale`, `*`, `*/*`; none may be covered by another
/// one.
fn resources(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let given = present_texts(rule, "resources");
    let path = format_args!("{path}resources");
    if given.is_empty() {
        errors.push(field::required(path, ""));
    }
    let (mut all_of, mut of_all) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for (i, pattern) in given.iter().enumerate() {
        let path = format_args!("{path}[{i}]");
        if pattern.is_empty() {
            errors.push(field::required(path, ""));
            continue;
        }
        let Some((resource, subresource)) = pattern.split_once('/') else {
            plain = *pattern != "*";
            continue;
        };
        if all_of.contains(resource) {
            let why = format!("if '{resource}/*' is present, must not specify {pattern}");
            errors.push(field::invalid(path, *pattern, &why));
        }
        if of_all.contains(subresource) {
            let why = format!("if '*/{subresource}' is present, must not specify {pattern}");
            errors.push(field::invalid(path, *pattern, &why));
        }
        if subresource == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            of_all.insert(subresource);
        }
    }
    let mut all = |why: &str| {
        let shown = at(rule, "resources").cloned().unwrap_or_default();
        errors.push(field::invalid(path, shown, why));
    };
    if given.len() > 1 && given.contains(&"*/*") {
        all("if '*/*' is present, must not specify other resources");
    }
    if plain && given.contains(&"*") {
        all("if '*' is present, must not specify other resources without subresources");
    }
}
