//! Admission policies and their bindings, and the match conditions of webhooks
//! (kubernetes `pkg/apis/admissionregistration/validation`).
//!
//! What an object says in CEL is compiled when it is written, with the variables that it will see. The match conditions of
//! an object that is there are compiled only when a change touches them.

use std::collections::HashSet;

use plinth_codec::cel::{Environment, Output};
use plinth_codec::{names, Value};

use super::Check::{self, By, Each, In, Need, NeedOneOf, OneOf, Selector};
use super::{at, list, text};
use crate::admission::expressions::environment;
use crate::field;
use crate::metadata;
use crate::status::Cause;

/// admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy.
pub const VALIDATING_POLICY: &[Check] = &[
    NeedOneOf("spec.failurePolicy", &["Fail", "Ignore"]),
    In("spec.paramKind", &[By(param_kind)]),
    Need("spec.matchConstraints", ""),
    In("spec.matchConstraints", MATCH_RESOURCES),
    In("spec.matchConstraints", &[Need("resourceRules", "")]),
];

/// admissionregistration.k8s.io/v1 MutatingAdmissionPolicy.
pub const MUTATING_POLICY: &[Check] = &[
    NeedOneOf("spec.failurePolicy", &["Fail", "Ignore"]),
    In("spec.paramKind", &[By(param_kind)]),
    Need("spec.matchConstraints", ""),
    In("spec.matchConstraints", MATCH_RESOURCES),
    In("spec.matchConstraints", &[Need("resourceRules", ""), By(operations_with_an_object)]),
];

/// admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding.
pub const MUTATING_BINDING: &[Check] = &[
    Check::Name("spec.policyName", names::dns1123_subdomain_faults),
    In("spec.paramRef", &[By(param_ref)]),
    In("spec.matchResources", MATCH_RESOURCES),
    In("spec.matchResources", &[By(operations_with_an_object)]),
];

/// admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding.
pub const VALIDATING_BINDING: &[Check] = &[
    Check::Name("spec.policyName", names::dns1123_subdomain_faults),
    In("spec.paramRef", &[By(param_ref)]),
    In("spec.matchResources", MATCH_RESOURCES),
    By(validation_actions),
];

const MATCH_RESOURCES: &[Check] = &[
    NeedOneOf("matchPolicy", &["Equivalent", "Exact"]),
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

/// Most match conditions.
const MAX_CONDITIONS: usize = 64;
/// Most audit annotations of a policy.
const MAX_ANNOTATIONS: usize = 20;
/// Most bytes of the expression of one.
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;

fn texts<'v>(owner: &'v Value, key: &str) -> Vec<&'v str> {
    list(owner, key).iter().filter_map(Value::as_str).collect()
}

fn resource_names(rule: &Value, path: &str, faults: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, name) in texts(rule, "resourceNames").into_iter().enumerate() {
        let path = format!("{path}resourceNames[{i}]");
        let bad = names::path_segment_faults(name);
        faults.extend(bad.iter().map(|why| field::invalid(path.as_str(), name, why)));
        if !seen.insert(name) {
            faults.push(field::duplicate(path, name));
        }
    }
}

/// A list of texts that must not be empty and in which `*` stands alone.
fn with_wildcard(rule: &Value, path: &str, key: &str, what: &str, faults: &mut Vec<Cause>) {
    let given = texts(rule, key);
    if given.is_empty() {
        faults.push(field::required(format!("{path}{key}"), ""));
    }
    if given.len() > 1 && given.contains(&"*") {
        let why = format!("if '*' is present, must not specify other {what}");
        faults.push(field::invalid(format!("{path}{key}"), at(rule, key).cloned().unwrap_or_default(), &why));
    }
}

fn operations(rule: &Value, path: &str, faults: &mut Vec<Cause>) {
    const SUPPORTED: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    with_wildcard(rule, path, "operations", "operations", faults);
    for (i, operation) in texts(rule, "operations").into_iter().enumerate() {
        if !SUPPORTED.contains(&operation) {
            faults.push(field::not_supported(format!("{path}operations[{i}]"), operation, &SUPPORTED));
        }
    }
}

/// A deletion has no object that could be changed.
fn operations_with_an_object(constraints: &Value, path: &str, faults: &mut Vec<Cause>) {
    const SUPPORTED: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    for rule in list(constraints, "resourceRules") {
        for operation in texts(rule, "operations") {
            if !SUPPORTED.contains(&operation) {
                let path = format!("{path}resourceRules.operations");
                faults.push(field::not_supported(path, operation, &SUPPORTED));
            }
        }
    }
}

fn groups_and_versions(rule: &Value, path: &str, faults: &mut Vec<Cause>) {
    with_wildcard(rule, path, "apiGroups", "API groups", faults);
    with_wildcard(rule, path, "apiVersions", "API versions", faults);
    for (i, version) in texts(rule, "apiVersions").into_iter().enumerate() {
        if version.is_empty() {
            faults.push(field::required(format!("{path}apiVersions[{i}]"), ""));
        }
    }
}

/// `pods`, `pods/log`, `pods/*`, `*/scale`, `*`, `*/*`; none that another one takes in.
fn resources(rule: &Value, path: &str, faults: &mut Vec<Cause>) {
    let given = texts(rule, "resources");
    let path = format!("{path}resources");
    if given.is_empty() {
        faults.push(field::required(path.as_str(), ""));
    }
    let (mut all_of, mut of_all) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for (i, pattern) in given.iter().enumerate() {
        let path = format!("{path}[{i}]");
        if pattern.is_empty() {
            faults.push(field::required(path, ""));
            continue;
        }
        let Some((resource, subresource)) = pattern.split_once('/') else {
            plain = *pattern != "*";
            continue;
        };
        if all_of.contains(resource) {
            let why = format!("if '{resource}/*' is present, must not specify {pattern}");
            faults.push(field::invalid(path.as_str(), *pattern, &why));
        }
        if of_all.contains(subresource) {
            let why = format!("if '*/{subresource}' is present, must not specify {pattern}");
            faults.push(field::invalid(path.as_str(), *pattern, &why));
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
        faults.push(field::invalid(path.as_str(), shown, why));
    };
    if given.len() > 1 && given.contains(&"*/*") {
        all("if '*/*' is present, must not specify other resources");
    }
    if plain && given.contains(&"*") {
        all("if '*' is present, must not specify other resources without subresources");
    }
}

fn param_kind(kind: &Value, path: &str, faults: &mut Vec<Cause>) {
    let (version_path, given) = (format!("{path}apiVersion"), text(kind, "apiVersion"));
    let (group, version) = given.rsplit_once('/').unwrap_or(("", given));
    let mut invalid = |value: &str, why: &str| faults.push(field::invalid(version_path.as_str(), value, why));
    if given.is_empty() {
        faults.push(field::required(version_path.as_str(), ""));
    } else if group.contains('/') {
        invalid(given, &format!("unexpected GroupVersion string: {given}"));
    } else {
        let bad = names::dns1123_subdomain_faults(group);
        if !group.is_empty() && !bad.is_empty() {
            invalid(group, &bad.join(","));
        }
        let bad = names::dns1035_label_faults(version);
        if version.is_empty() {
            invalid(given, "version must be specified");
        } else if !bad.is_empty() {
            invalid(version, &bad.join(","));
        }
    }
    let kind = text(kind, "kind");
    let bad = names::dns1035_label_faults(&kind.to_lowercase());
    if kind.is_empty() {
        faults.push(field::required(format!("{path}kind"), ""));
    } else if !bad.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", bad.join(","));
        faults.push(field::invalid(format!("{path}kind"), kind, &why));
    }
}

fn param_ref(reference: &Value, path: &str, faults: &mut Vec<Cause>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (text(reference, "name"), at(reference, "selector"));
    if !name.is_empty() {
        let bad = names::path_segment_faults(name);
        faults.extend(bad.iter().map(|why| field::invalid(format!("{path}name"), name, why)));
        if selector.is_some() {
            faults.push(field::forbidden(format!("{path}name"), EXCLUSIVE));
        }
    }
    if selector.is_some() {
        super::validate(&[Selector("selector")], reference, path, faults);
        if !name.is_empty() {
            faults.push(field::forbidden(format!("{path}selector"), EXCLUSIVE));
        }
    }
    if name.is_empty() && selector.is_none() {
        let path = path.trim_end_matches('.');
        faults.push(field::required(path, "one of name or selector must be specified"));
    }
    super::validate(&[NeedOneOf("parameterNotFoundAction", &["Deny", "Allow"])], reference, path, faults);
}

fn validation_actions(binding: &Value, _: &str, faults: &mut Vec<Cause>) {
    const PATH: &str = "spec.validationActions";
    const SUPPORTED: [&str; 3] = ["Audit", "Deny", "Warn"];
    let actions = texts(binding, PATH);
    let mut seen = HashSet::new();
    for (i, action) in actions.iter().enumerate() {
        if !SUPPORTED.contains(action) {
            faults.push(field::not_supported(format!("{PATH}[{i}]"), *action, &SUPPORTED));
        }
        if !seen.insert(action) {
            faults.push(field::duplicate(format!("{PATH}[{i}]"), *action));
        }
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        faults.push(field::invalid(PATH, at(binding, PATH).cloned().unwrap_or_default(), why));
    }
    if seen.is_empty() {
        faults.push(field::required(PATH, "at least one validation action is required"));
    }
}

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
fn match_conditions(owner: &Value, path: &str, params: bool, faults: &mut Vec<Cause>) {
    let path = format!("{path}matchConditions");
    let conditions = list(owner, "matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        faults.push(field::too_many(path.as_str(), conditions.len(), MAX_CONDITIONS));
    }
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{i}]");
        match text(condition, "expression").trim() {
            "" => faults.push(field::required(format!("{path}.expression"), "")),
            source => {
                let environment = environment(params, true);
                expression_fault(environment, format!("{path}.expression"), source, &[Output::Bool], faults);
            }
        }
        let path = format!("{path}.name");
        let name = text(condition, "name");
        if name.is_empty() {
            faults.push(field::required(path, ""));
            continue;
        }
        let bad = names::qualified_name_faults(name);
        faults.extend(bad.iter().map(|why| field::invalid(path.as_str(), name, why)));
        if !seen.insert(name) {
            faults.push(field::duplicate(path, name));
        }
    }
}

/// Faults of the match conditions of a new webhook configuration.
pub fn new_webhooks(configuration: &Value) -> Vec<Cause> {
    let mut faults = Vec::new();
    for (i, hook) in list(configuration, "webhooks").iter().enumerate() {
        match_conditions(hook, &format!("webhooks[{i}]."), false, &mut faults);
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
    let same = |path| at(new, path) == at(old, path);
    policy_faults(new, !same("spec.paramKind") || !same("spec.matchConditions"))
}

fn policy_faults(policy: &Value, conditions: bool) -> Vec<Cause> {
    let mut faults = Vec::new();
    let Some(spec) = at(policy, "spec") else { return faults };
    let params = at(spec, "paramKind").is_some();
    if conditions {
        match_conditions(spec, "spec.", params, &mut faults);
    }
    let environment = variables(spec, environment(params, true).clone(), &mut faults);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let why = "validations or auditAnnotations must contain at least one item";
            faults.push(field::required(format!("spec.{key}"), why));
        }
    }
    let silent = environment.clone().without("authorizer").without("authorizer.requestResource");
    for (i, validation) in validations.iter().enumerate() {
        validation_faults(validation, &format!("spec.validations[{i}]"), &environment, &silent, &mut faults);
    }
    if annotations.len() > MAX_ANNOTATIONS {
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        let shown = at(spec, "auditAnnotations").cloned().unwrap_or_default();
        faults.push(field::invalid("spec.auditAnnotations", shown, &why));
    }
    let mut seen = HashSet::new();
    for (i, annotation) in annotations.iter().enumerate() {
        let path = format!("spec.auditAnnotations[{i}]");
        annotation_faults(annotation, &path, metadata::text(policy, "name"), &environment, &mut faults);
        let key = text(annotation, "key");
        if !seen.insert(key) {
            faults.push(field::duplicate(format!("{path}.key"), key));
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
    let same = |path| at(new, path) == at(old, path);
    mutating_policy_faults(new, !same("spec.paramKind") || !same("spec.matchConditions"))
}

fn mutating_policy_faults(policy: &Value, conditions: bool) -> Vec<Cause> {
    let mut faults = Vec::new();
    let Some(spec) = at(policy, "spec") else { return faults };
    let params = at(spec, "paramKind").is_some();
    if conditions {
        match_conditions(spec, "spec.", params, &mut faults);
    }
    // Naming a variable that there is not is a fault of a field here, whether or not there are others.
    let environment = environment(params, true).clone().composed();
    let environment = variables(spec, environment, &mut faults).with_patches();
    let mutations = list(spec, "mutations");
    if mutations.is_empty() {
        faults.push(field::required("spec.mutations", "mutations must contain at least one item"));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        mutation_faults(mutation, &format!("spec.mutations[{i}]"), &environment, &mut faults);
    }
    const POLICIES: &[&str] = &["IfNeeded", "Never"];
    super::validate(&[NeedOneOf("reinvocationPolicy", POLICIES)], spec, "spec.", &mut faults);
    faults
}

/// A mutation has the member of its type, and not that of the other one.
fn mutation_faults(mutation: &Value, path: &str, environment: &Environment, faults: &mut Vec<Cause>) {
    const TYPES: [(&str, &str, Output); 2] = [
        ("ApplyConfiguration", "applyConfiguration", Output::Configuration),
        ("JSONPatch", "jsonPatch", Output::Patches),
    ];
    let given = text(mutation, "patchType");
    if !TYPES.iter().any(|(patch_type, ..)| *patch_type == given) {
        let types: &'static [&'static str] = &["ApplyConfiguration", "JSONPatch"];
        super::validate(&[NeedOneOf("patchType", types)], mutation, &format!("{path}."), faults);
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
        let path = format!("spec.variables[{i}]");
        let (name, source) = (text(variable, "name"), text(variable, "expression"));
        if name.trim().is_empty() {
            faults.push(field::required(format!("{path}.name"), "name is not specified"));
        } else if !plinth_codec::cel::is_identifier(name) {
            faults.push(field::invalid(format!("{path}.name"), name, "must be a valid CEL identifier"));
        }
        if source.trim().is_empty() {
            faults.push(field::required(format!("{path}.expression"), "expression is not specified"));
        } else if let Err(why) = environment.compose(name, source) {
            faults.push(field::invalid(format!("{path}.expression"), source, &why));
        }
    }
    environment
}

fn validation_faults(
    validation: &Value,
    path: &str,
    environment: &Environment,
    silent: &Environment,
    faults: &mut Vec<Cause>,
) {
    let source = text(validation, "expression");
    match source.trim() {
        "" => faults.push(field::required(format!("{path}.expression"), "expression is not specified")),
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
        faults.push(field::invalid(format!("{path}.message"), message, "must be non-empty if specified"));
    } else if message.trim().contains(['\n', '\r']) {
        faults.push(field::invalid(format!("{path}.message"), message, "must not contain line breaks"));
    }
    const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
    super::validate(&[OneOf("reason", REASONS)], validation, &format!("{path}."), faults);
}

fn annotation_faults(
    annotation: &Value,
    path: &str,
    policy: &str,
    environment: &Environment,
    faults: &mut Vec<Cause>,
) {
    let key = text(annotation, "key");
    match policy {
        "" => {
            let why = "requires metadata.name be non-empty";
            faults.push(field::invalid(format!("{path}.key"), key, why));
        }
        policy => {
            let full = format!("{policy}/{key}");
            let bad = names::qualified_name_faults(&full);
            faults.extend(bad.iter().map(|why| field::invalid(format!("{path}.key"), full.as_str(), why)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn object(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    /// Path and reason of each fault.
    fn told(faults: &[Cause]) -> Vec<(&str, &str)> {
        faults.iter().map(|f| (f.field.as_str(), f.reason.trim_start_matches("FieldValue"))).collect()
    }

    const MATCHING: &str = r#""matchConstraints":{"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},
        "resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}"#;

    #[test]
    fn policies_by_table() {
        let policy = |spec: &str| object(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{spec}}}}}"#));
        let whole = |more: &str| {
            format!(r#""failurePolicy":"Fail",{MATCHING},"validations":[{{"expression":"true"}}]{more}"#)
        };
        let rows: Vec<(String, Vec<(&str, &str)>)> = vec![
            (whole(""), vec![]),
            (
                String::new(),
                vec![
                    ("spec.failurePolicy", "Required"),
                    ("spec.matchConstraints", "Required"),
                    ("spec.validations", "Required"),
                    ("spec.auditAnnotations", "Required"),
                ],
            ),
            (whole("").replace("Fail", "Nope"), vec![("spec.failurePolicy", "NotSupported")]),
            (whole("").replace(r#""resourceRules":["#, r#""other":["#), vec![("spec.matchConstraints.resourceRules", "Required")]),
            (whole("").replace(r#"["CREATE"]"#, r#"["*","MAKE"]"#), vec![
                ("spec.matchConstraints.resourceRules[0].operations", "Invalid"),
                ("spec.matchConstraints.resourceRules[0].operations[1]", "NotSupported"),
            ]),
            (whole("").replace(r#"["pods"]"#, r#"["pods/*","pods/log","*","x"]"#), vec![
                ("spec.matchConstraints.resourceRules[0].resources[1]", "Invalid"),
                ("spec.matchConstraints.resourceRules[0].resources", "Invalid"),
            ]),
            (whole("").replace(r#"["v1"]"#, "[]"), vec![("spec.matchConstraints.resourceRules[0].apiVersions", "Required")]),
            (whole(r#","paramKind":{"apiVersion":"a/b/c","kind":""}"#), vec![
                ("spec.paramKind.apiVersion", "Invalid"),
                ("spec.paramKind.kind", "Required"),
            ]),
            (whole(r#","matchConditions":[{"name":"a","expression":"params.x"},{"name":"a","expression":" "}]"#), vec![
                ("spec.matchConditions[0].expression", "Invalid"),
                ("spec.matchConditions[1].expression", "Required"),
                ("spec.matchConditions[1].name", "Duplicate"),
            ]),
            (whole(r#","variables":[{"name":"a-b","expression":"1"},{"name":"c","expression":"variables.d"},{"name":"d","expression":"1"}]"#), vec![
                ("spec.variables[0].name", "Invalid"),
                ("spec.variables[1].expression", "Invalid"),
            ]),
            (
                whole("").replace(r#"{"expression":"true"}"#, r#"{"expression":"1"},{"expression":"object.a == 1","reason":"Gone","message":"a\nb","messageExpression":"authorizer.path('/').check('get').reason()"},{"expression":""}"#),
                vec![
                    ("spec.validations[0].expression", "Invalid"),
                    ("spec.validations[1].messageExpression", "Invalid"),
                    ("spec.validations[1].message", "Invalid"),
                    ("spec.validations[1].reason", "NotSupported"),
                    ("spec.validations[2].expression", "Required"),
                ],
            ),
            (whole(r#","auditAnnotations":[{"key":"a","valueExpression":"'x'"},{"key":"a","valueExpression":"1"},{"key":"?","valueExpression":"null"}]"#), vec![
                ("spec.auditAnnotations[1].valueExpression", "Invalid"),
                ("spec.auditAnnotations[1].key", "Duplicate"),
                ("spec.auditAnnotations[2].key", "Invalid"),
            ]),
        ];
        for (spec, expected) in rows {
            let policy = policy(&spec);
            let mut faults = Vec::new();
            crate::strategy::validation::validate(VALIDATING_POLICY, &policy, "", &mut faults);
            faults.extend(new_policy(&policy));
            assert_eq!(told(&faults), expected, "{spec}\n{faults:?}");
        }
    }

    #[test]
    fn mutating_policies_by_table() {
        let whole = |mutations: &str| {
            format!(
                r#""failurePolicy":"Fail","reinvocationPolicy":"Never",{MATCHING},"mutations":[{mutations}]"#
            )
        };
        let apply = |expression: &str| {
            let expression = Value::from(expression);
            let mut text = Vec::new();
            json::write_untyped(&expression, &mut text);
            let expression = String::from_utf8(text).unwrap();
            whole(&format!(
                r#"{{"patchType":"ApplyConfiguration","applyConfiguration":{{"expression":{expression}}}}}"#
            ))
        };
        let jsonpatch = r#"{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/a', value: variables.v}]"}}"#;
        // spec, faults
        let rows: Vec<(String, Vec<(&str, &str)>)> = vec![
            (apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"), vec![]),
            (whole(jsonpatch) + r#","variables":[{"name":"v","expression":"1"}]"#, vec![]),
            (whole(jsonpatch), vec![("spec.mutations[0].jsonPatch.expression", "Invalid")]),
            (
                String::new(),
                vec![
                    ("spec.failurePolicy", "Required"),
                    ("spec.matchConstraints", "Required"),
                    ("spec.mutations", "Required"),
                    ("spec.reinvocationPolicy", "Required"),
                ],
            ),
            (apply("Object{}").replace("Never", "Often"), vec![("spec.reinvocationPolicy", "NotSupported")]),
            (
                apply("Object{}").replace(r#"["CREATE"]"#, r#"["CREATE","DELETE"]"#),
                vec![("spec.matchConstraints.resourceRules.operations", "NotSupported")],
            ),
            (apply(" "), vec![("spec.mutations[0].applyConfiguration.expression", "Required")]),
            (apply("Object.spec{}"), vec![("spec.mutations[0].applyConfiguration.expression", "Invalid")]),
            (whole("{}"), vec![("spec.mutations[0].patchType", "Required")]),
            (whole(r#"{"patchType":"Merge"}"#), vec![("spec.mutations[0].patchType", "NotSupported")]),
            (whole(r#"{"patchType":"JSONPatch"}"#), vec![("spec.mutations[0].jsonPatch", "Required")]),
            (
                whole(
                    r#"{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"},"jsonPatch":{"expression":"[]"}}"#,
                ),
                vec![("spec.mutations[0].jsonPatch", "Invalid")],
            ),
            (
                apply("Object{}")
                    + r#","matchConditions":[{"name":"a","expression":"Object{} == Object{}"}],"variables":[{"name":"v","expression":"Object{}"}]"#,
                vec![
                    ("spec.matchConditions[0].expression", "Invalid"),
                    ("spec.variables[0].expression", "Invalid"),
                ],
            ),
        ];
        for (spec, expected) in rows {
            let policy = object(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{spec}}}}}"#));
            let mut faults = Vec::new();
            crate::strategy::validation::validate(MUTATING_POLICY, &policy, "", &mut faults);
            faults.extend(new_mutating_policy(&policy));
            assert_eq!(told(&faults), expected, "{spec}\n{faults:?}");
        }
        let binding = object(
            r#"{"spec":{"policyName":"p","matchResources":{"matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{},"resourceRules":[{"operations":["DELETE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}}}"#,
        );
        let mut faults = Vec::new();
        crate::strategy::validation::validate(MUTATING_BINDING, &binding, "", &mut faults);
        assert_eq!(told(&faults), [("spec.matchResources.resourceRules.operations", "NotSupported")]);
    }

    #[test]
    fn bindings_by_table() {
        // spec, faults
        let rows: [(&str, &[(&str, &str)]); 7] = [
            (r#""policyName":"p","validationActions":["Deny","Audit"]"#, &[]),
            ("", &[("spec.policyName", "Required"), ("spec.validationActions", "Required")]),
            (
                r#""policyName":"P","validationActions":["Deny","Warn","Deny","Tell"]"#,
                &[
                    ("spec.policyName", "Invalid"),
                    ("spec.validationActions[2]", "Duplicate"),
                    ("spec.validationActions[3]", "NotSupported"),
                    ("spec.validationActions", "Invalid"),
                ],
            ),
            (
                r#""policyName":"p","validationActions":["Deny"],"paramRef":{"name":"a","parameterNotFoundAction":"Allow"}"#,
                &[],
            ),
            (
                r#""policyName":"p","validationActions":["Deny"],"paramRef":{"name":"a","selector":{}}"#,
                &[
                    ("spec.paramRef.name", "Forbidden"),
                    ("spec.paramRef.selector", "Forbidden"),
                    ("spec.paramRef.parameterNotFoundAction", "Required"),
                ],
            ),
            (
                r#""policyName":"p","validationActions":["Deny"],"paramRef":{"parameterNotFoundAction":"Ask"}"#,
                &[("spec.paramRef", "Required"), ("spec.paramRef.parameterNotFoundAction", "NotSupported")],
            ),
            (
                r#""policyName":"p","validationActions":["Deny"],"matchResources":{"matchPolicy":"Some"}"#,
                &[("spec.matchResources.matchPolicy", "NotSupported")],
            ),
        ];
        for (spec, expected) in rows {
            let binding = object(&format!(r#"{{"spec":{{{spec}}}}}"#));
            let mut faults = Vec::new();
            crate::strategy::validation::validate(VALIDATING_BINDING, &binding, "", &mut faults);
            assert_eq!(told(&faults), expected, "{spec}");
        }
    }

    #[test]
    fn unchanged_conditions_are_not_compiled_again() {
        let hooks = |expression: &str, timeout: i64| {
            object(&format!(
                r#"{{"webhooks":[{{"timeoutSeconds":{timeout},"matchConditions":[{{"name":"a","expression":"{expression}"}}]}}]}}"#
            ))
        };
        let path = [("webhooks[0].matchConditions[0].expression", "Invalid")];
        assert_eq!(told(&new_webhooks(&hooks("request.name == 'x'", 1))), []);
        assert_eq!(told(&new_webhooks(&hooks("nope", 1))), path);
        assert_eq!(told(&changed_webhooks(&hooks("nope", 2), &hooks("nope", 1))), []);
        assert_eq!(told(&changed_webhooks(&hooks("nope", 1), &hooks("true", 1))), path);
    }
}
