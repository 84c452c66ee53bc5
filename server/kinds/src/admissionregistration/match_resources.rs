//! `matchConstraints` of admission policies and `matchResources` of their bindings
//! (kubernetes `pkg/apis/admissionregistration/validation`).

use std::collections::HashSet;

use plinth_codec::names;

use crate::checks::Check::{
    self, AnyText, By, Each, EachUnique, MustBe, OneOf, Required, RequiredOneOf, Selector,
};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field, ForEach, IfPresent};
use crate::defaults::Literal::{EmptyObject, Str};

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
    EachUnique("resourceNames", "", &[AnyText("", names::path_segment_errors)]),
    By(|rule| with_wildcard(rule, "operations", "operations")),
    Each("operations", &[MustBe("", &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"])]),
    By(|rule| with_wildcard(rule, "apiGroups", "API groups")),
    By(|rule| with_wildcard(rule, "apiVersions", "API versions")),
    Each("apiVersions", &[Required("", "")]),
    By(resources),
    OneOf("scope", &["*", "Cluster", "Namespaced"]),
];

/// Validates a list: not empty, and `*` only as the single element.
pub(crate) fn with_wildcard(rule: &Part<'_>, key: &str, what: &str) {
    let given = rule.texts(key);
    if given.is_empty() {
        rule.required(key, "");
    }
    if given.len() > 1 && given.contains(&"*") {
        rule.invalid(key, rule.shown(key), &format!("if '*' is present, must not specify other {what}"));
    }
}

/// Mutating policies cannot match `DELETE`, which has no object to change.
pub(crate) fn operations_with_an_object(constraints: &Part<'_>) {
    for rule in constraints.each("resourceRules") {
        let rule = rule.without_index();
        for operation in rule.each("operations") {
            operation.without_index().one_of("", &["*", "CONNECT", "CREATE", "UPDATE"]);
        }
    }
}

/// Validates resources: `pods`, `pods/log`, `pods/*`, `*/scale`, `*`, `*/*`; none may be covered by another
/// one.
fn resources(rule: &Part<'_>) {
    rule.check(&[Required("resources", "")]);
    let given = rule.texts("resources");
    let (mut all_of, mut of_all) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for part in rule.each("resources") {
        let pattern = part.text("");
        if pattern.is_empty() {
            part.required("", "");
            continue;
        }
        let Some((resource, subresource)) = pattern.split_once('/') else {
            plain = pattern != "*";
            continue;
        };
        if all_of.contains(resource) {
            part.invalid("", pattern, &format!("if '{resource}/*' is present, must not specify {pattern}"));
        }
        if of_all.contains(subresource) {
            part.invalid(
                "",
                pattern,
                &format!("if '*/{subresource}' is present, must not specify {pattern}"),
            );
        }
        if subresource == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            of_all.insert(subresource);
        }
    }
    let all = |why: &str| rule.invalid("resources", rule.shown("resources"), why);
    if given.len() > 1 && given.contains(&"*/*") {
        all("if '*/*' is present, must not specify other resources");
    }
    if plain && given.contains(&"*") {
        all("if '*' is present, must not specify other resources without subresources");
    }
}
