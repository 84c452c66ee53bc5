//! Admission policies and their bindings, and the match conditions of webhooks
//! (kubernetes `pkg/apis/admissionregistration/validation`).
//!
//! What an object says in CEL is compiled when it is written, with the variables that it will see. The match conditions of
//! an object that is there are compiled only when a change touches them.
//!
//! Here are the rows of what objects look like; `expressions` checks what they say in CEL.

pub mod environment;
mod expressions;

use std::collections::HashSet;

use plinth_codec::{names, Value};

use super::Check::{self, By, Each, In, OneOf, Required, RequiredOneOf, Selector};
use super::{at, list, text};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Itself, Place};

pub use expressions::{
    changed_mutating_policy, changed_policy, changed_webhooks, new_mutating_policy, new_policy, new_webhooks,
};

/// admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy.
pub const VALIDATING_POLICY: &[Check] = &[
    RequiredOneOf("spec.failurePolicy", &["Fail", "Ignore"]),
    In("spec.paramKind", &[By(param_kind)]),
    Required("spec.matchConstraints", ""),
    In("spec.matchConstraints", MATCH_RESOURCES),
    In("spec.matchConstraints", &[Required("resourceRules", "")]),
];

/// admissionregistration.k8s.io/v1 MutatingAdmissionPolicy.
pub const MUTATING_POLICY: &[Check] = &[
    RequiredOneOf("spec.failurePolicy", &["Fail", "Ignore"]),
    In("spec.paramKind", &[By(param_kind)]),
    Required("spec.matchConstraints", ""),
    In("spec.matchConstraints", MATCH_RESOURCES),
    In("spec.matchConstraints", &[Required("resourceRules", ""), By(operations_with_an_object)]),
];

/// admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding.
pub const MUTATING_BINDING: &[Check] = &[
    Check::RequiredText("spec.policyName", names::dns1123_subdomain_errors),
    In("spec.paramRef", &[By(param_ref)]),
    In("spec.matchResources", MATCH_RESOURCES),
    In("spec.matchResources", &[By(operations_with_an_object)]),
];

/// admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding.
pub const VALIDATING_BINDING: &[Check] = &[
    Check::RequiredText("spec.policyName", names::dns1123_subdomain_errors),
    In("spec.paramRef", &[By(param_ref)]),
    In("spec.matchResources", MATCH_RESOURCES),
    By(validation_actions),
];

const MATCH_RESOURCES: &[Check] = &[
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

fn texts<'v>(owner: &'v Value, key: &str) -> Vec<&'v str> {
    list(owner, key).iter().filter_map(Value::as_str).collect()
}

fn resource_names(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, name) in texts(rule, "resourceNames").into_iter().enumerate() {
        let path = format_args!("{path}resourceNames[{i}]");
        let bad = names::path_segment_errors(name);
        errors.extend(bad.iter().map(|why| field::invalid(path, name, why)));
        if !seen.insert(name) {
            errors.push(field::duplicate(path, name));
        }
    }
}

/// A list of texts that must not be empty and in which `*` stands alone.
fn with_wildcard(rule: &Value, path: Place<'_>, key: &str, what: &str, errors: &mut Vec<Cause>) {
    let given = texts(rule, key);
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

fn operations(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const SUPPORTED: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    with_wildcard(rule, path, "operations", "operations", errors);
    for (i, operation) in texts(rule, "operations").into_iter().enumerate() {
        if !SUPPORTED.contains(&operation) {
            errors.push(field::not_supported(format_args!("{path}operations[{i}]"), operation, &SUPPORTED));
        }
    }
}

/// A deletion has no object that could be changed.
fn operations_with_an_object(constraints: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const SUPPORTED: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    for rule in list(constraints, "resourceRules") {
        for operation in texts(rule, "operations") {
            if !SUPPORTED.contains(&operation) {
                let path = format_args!("{path}resourceRules.operations");
                errors.push(field::not_supported(path, operation, &SUPPORTED));
            }
        }
    }
}

fn groups_and_versions(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    with_wildcard(rule, path, "apiGroups", "API groups", errors);
    with_wildcard(rule, path, "apiVersions", "API versions", errors);
    for (i, version) in texts(rule, "apiVersions").into_iter().enumerate() {
        if version.is_empty() {
            errors.push(field::required(format_args!("{path}apiVersions[{i}]"), ""));
        }
    }
}

/// `pods`, `pods/log`, `pods/*`, `*/scale`, `*`, `*/*`; none that another one takes in.
fn resources(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let given = texts(rule, "resources");
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

fn param_kind(kind: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let (version_path, given) = (format!("{path}apiVersion"), text(kind, "apiVersion"));
    let (group, version) = given.rsplit_once('/').unwrap_or(("", given));
    let mut invalid = |value: &str, why: &str| errors.push(field::invalid(version_path.as_str(), value, why));
    if given.is_empty() {
        errors.push(field::required(version_path.as_str(), ""));
    } else if group.contains('/') {
        invalid(given, &format!("unexpected GroupVersion string: {given}"));
    } else {
        let bad = names::dns1123_subdomain_errors(group);
        if !group.is_empty() && !bad.is_empty() {
            invalid(group, &bad.join(","));
        }
        let bad = names::dns1035_label_errors(version);
        if version.is_empty() {
            invalid(given, "version must be specified");
        } else if !bad.is_empty() {
            invalid(version, &bad.join(","));
        }
    }
    let kind = text(kind, "kind");
    let bad = names::dns1035_label_errors(&kind.to_lowercase());
    if kind.is_empty() {
        errors.push(field::required(format_args!("{path}kind"), ""));
    } else if !bad.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", bad.join(","));
        errors.push(field::invalid(format_args!("{path}kind"), kind, &why));
    }
}

fn param_ref(reference: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (text(reference, "name"), at(reference, "selector"));
    if !name.is_empty() {
        let bad = names::path_segment_errors(name);
        errors.extend(bad.iter().map(|why| field::invalid(format_args!("{path}name"), name, why)));
        if selector.is_some() {
            errors.push(field::forbidden(format_args!("{path}name"), EXCLUSIVE));
        }
    }
    if selector.is_some() {
        super::validate(&[Selector("selector")], reference, path, errors);
        if !name.is_empty() {
            errors.push(field::forbidden(format_args!("{path}selector"), EXCLUSIVE));
        }
    }
    if name.is_empty() && selector.is_none() {
        let path = Itself(path);
        errors.push(field::required(path, "one of name or selector must be specified"));
    }
    super::validate(&[RequiredOneOf("parameterNotFoundAction", &["Deny", "Allow"])], reference, path, errors);
}

fn validation_actions(binding: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.validationActions";
    const SUPPORTED: [&str; 3] = ["Audit", "Deny", "Warn"];
    let actions = texts(binding, PATH);
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

#[cfg(test)]
mod tests;
