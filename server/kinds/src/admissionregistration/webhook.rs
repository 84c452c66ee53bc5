//! What MutatingWebhookConfiguration and ValidatingWebhookConfiguration share.

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::admissionregistration::expressions::match_conditions;
use crate::admissionregistration::match_resources::RULE_DEFAULTS;
use crate::checks::ports::{is_port, PORT};
use crate::checks::Check::{self, By, Each, Enum, MustBe, Selector};
use crate::checks::{check_text, validate};
use crate::defaults::DefaultRule::{self, Field, ForEach, IfPresent};
use crate::defaults::Literal::{EmptyObject, Int, OptionalStr};
use crate::defaults::SERVICE_REFERENCE;
use crate::path::{at, int, list, text, texts};

pub(crate) const WEBHOOK_DEFAULTS: &[DefaultRule] = &[
    Field("failurePolicy", OptionalStr("Fail")),
    Field("matchPolicy", OptionalStr("Equivalent")),
    Field("namespaceSelector", EmptyObject),
    Field("objectSelector", EmptyObject),
    Field("timeoutSeconds", Int(10)),
    ForEach("rules", RULE_DEFAULTS),
    IfPresent("clientConfig.service", SERVICE_REFERENCE),
];

/// Errors of the match conditions of a new webhook configuration.
pub(crate) fn validate_create(configuration: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    for (i, hook) in list(configuration, "webhooks").iter().enumerate() {
        match_conditions(hook, format_args!("webhooks[{i}]."), false, &mut errors);
    }
    errors
}

/// Errors of the match conditions of an updated webhook configuration; if any changed, all are compiled.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let conditions = |configuration| -> Vec<&[Value]> {
        list(configuration, "webhooks").iter().map(|hook| list(hook, "matchConditions")).collect()
    };
    match conditions(new) == conditions(old) {
        true => Vec::new(),
        false => validate_create(new),
    }
}

/// Checks of webhook configurations.
pub(crate) const CONFIGURATION_CHECKS: &[Check] = &[
    Check::Unique("webhooks", "name"),
    Each(
        "webhooks",
        &[
            By(name),
            Each("rules", RULE_CHECKS),
            Enum("failurePolicy", &["Fail", "Ignore"]),
            Enum("matchPolicy", &["Equivalent", "Exact"]),
            By(side_effects),
            Enum("reinvocationPolicy", &["IfNeeded", "Never"]),
            By(timeout),
            Selector("namespaceSelector"),
            Selector("objectSelector"),
            By(client),
            By(versions),
        ],
    ),
];

/// Checks of a rule that matches requests.
const RULE_CHECKS: &[Check] = &[
    By(|r, p, f| wildcard(r, "apiGroups", false, "must not specify other API groups", p, f)),
    By(|r, p, f| wildcard(r, "apiVersions", true, "must not specify other API versions", p, f)),
    By(|r, p, f| wildcard(r, "operations", false, "must not specify other operations", p, f)),
    By(operations),
    By(resources),
    Enum("scope", &["*", "Cluster", "Namespaced"]),
];

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

fn wildcard(
    rule: &Value,
    key: &str,
    not_empty: bool,
    why: &str,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    let given = texts(rule, key);
    if given.is_empty() {
        errors.push(field::required(format_args!("{path}{key}"), ""));
    }
    if given.len() > 1 && given.contains(&"*") {
        let shown = at(rule, key).cloned().unwrap_or_default();
        errors.push(field::invalid(format_args!("{path}{key}"), shown, &format!("if '*' is present, {why}")));
    }
    for (i, _) in given.iter().enumerate().filter(|(_, given)| not_empty && given.is_empty()) {
        errors.push(field::required(format_args!("{path}{key}[{i}]"), ""));
    }
}

fn operations(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, given) in texts(rule, "operations").iter().enumerate() {
        if !OPERATIONS.contains(given) {
            errors.push(field::not_supported(format_args!("{path}operations[{i}]"), *given, OPERATIONS));
        }
    }
}

/// Validates resources: `*`, `*/*`, `pods`, `pods/*`, `*/status`; none may be covered by another one.
fn resources(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let given = texts(rule, "resources");
    let here = format_args!("{path}resources");
    if given.is_empty() {
        errors.push(field::required(here, ""));
    }
    let (mut with_all_parts, mut parts_of_all) = (HashSet::new(), HashSet::new());
    let (mut all, mut everything) = (false, false);
    for (i, resource) in given.iter().enumerate() {
        let here = format_args!("{here}[{i}]");
        match *resource {
            "" => {
                errors.push(field::required(here, ""));
                continue;
            }
            "*/*" => everything = true,
            "*" => all = true,
            resource => {
                let (name, part) = resource.split_once('/').unwrap_or((resource, ""));
                if part == "*" {
                    with_all_parts.insert(name);
                } else if with_all_parts.contains(name) && !part.is_empty() {
                    let why = format!("if '{name}/*' is present, must not specify {resource}");
                    errors.push(field::invalid(here, resource, &why));
                } else if parts_of_all.contains(part) && !part.is_empty() {
                    let why = format!("if '*/{part}' is present, must not specify {resource}");
                    errors.push(field::invalid(here, resource, &why));
                } else if name == "*" {
                    parts_of_all.insert(part);
                }
            }
        }
    }
    let shown = || at(rule, "resources").cloned().unwrap_or_default();
    if everything && given.len() > 1 {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(field::invalid(here, shown(), why));
    }
    if all && given.iter().any(|resource| *resource != "*" && !resource.is_empty() && !resource.contains('/'))
    {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(field::invalid(here, shown(), why));
    }
}

fn name(webhook: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let name = text(webhook, "name");
    let path = format_args!("{path}name");
    if name.is_empty() {
        errors.push(field::required(path, ""));
        return;
    }
    let before = errors.len();
    check_text(path, name, names::dns1123_subdomain_errors, errors);
    if errors.len() == before && name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        errors.push(field::invalid(path, name, why));
    }
}

fn side_effects(webhook: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    match at(webhook, "sideEffects") {
        None => {
            let why = "must specify one of None, NoneOnDryRun";
            errors.push(field::required(format_args!("{path}sideEffects"), why));
        }
        Some(_) => validate(&[MustBe("sideEffects", &["None", "NoneOnDryRun"])], webhook, path, errors),
    }
}

fn timeout(webhook: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if let Some(seconds) = int(webhook, "timeoutSeconds").filter(|s| !(1..=30).contains(s)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(field::invalid(format_args!("{path}timeoutSeconds"), seconds, why));
    }
}

fn client(webhook: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let path = format_args!("{path}clientConfig");
    match (at(webhook, "clientConfig.url").and_then(Value::as_str), at(webhook, "clientConfig.service")) {
        (Some(url), None) => webhook_url(url, format_args!("{path}.url"), errors),
        (None, Some(service)) => called_service(service, format_args!("{path}.service"), errors),
        _ => errors.push(field::required(path, "exactly one of url or service is required")),
    }
}

/// Validates the URL of a webhook (k8s.io/apiserver `pkg/util/webhook/validation.go`).
fn webhook_url(url: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut refuse =
        |shown: &str, why: &str| errors.push(field::invalid(path, shown, &format!("{why}{FORM}")));
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None => ("", ""),
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if scheme != "https" {
        refuse(scheme, "'https' is the only allowed URL scheme");
    }
    if authority.is_empty() {
        refuse(authority, "host must be specified");
    }
    if let Some((user, _)) = authority.rsplit_once('@') {
        refuse(user, "user information is not permitted in the URL");
    }
    if let Some((_, fragment)) = tail.split_once('#') {
        refuse(fragment, "fragments are not permitted in the URL");
    }
    if let Some((_, query)) = tail.split('#').next().unwrap_or_default().split_once('?') {
        refuse(query, "query parameters are not permitted in the URL");
    }
}

fn called_service(service: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    // Upstream reports the path of the other field where one is missing.
    for (key, shown) in [("name", "namespace"), ("namespace", "name")] {
        if text(service, key).is_empty() {
            errors.push(field::required(format_args!("{path}.{shown}"), ""));
        }
    }
    let port = int(service, "port").unwrap_or(443);
    if !is_port(port) {
        let why = format!("port is not valid: {}", PORT);
        errors.push(field::invalid(format_args!("{path}.port"), port, &why));
    }
    let (given, here) = (text(service, "path"), format_args!("{path}.path"));
    if given.is_empty() || given == "/" {
        return;
    }
    if given == "//" {
        errors.push(field::invalid(here, given, "segment[0] may not be empty"));
        return;
    }
    if !given.starts_with('/') {
        errors.push(field::invalid(here, given, "must start with a '/'"));
    }
    // Upstream drops the first character without checking it.
    let inner = given.char_indices().nth(1).map_or("", |(i, _)| &given[i..]);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    for (i, segment) in inner.split('/').enumerate() {
        if segment.is_empty() {
            let why = format!("segment[{i}] may not be empty");
            errors.push(field::invalid(here, given, &why));
            continue;
        }
        for why in names::dns1123_subdomain_errors(segment) {
            errors.push(field::invalid(here, given, &format!("segment[{i}]: {why}")));
        }
    }
}

fn versions(webhook: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (given, here) =
        (texts(webhook, "admissionReviewVersions"), format_args!("{path}admissionReviewVersions"));
    if given.is_empty() {
        errors.push(field::required(here, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in given.iter().enumerate() {
        let here = format_args!("{here}[{i}]");
        if !seen.insert(*version) {
            errors.push(field::invalid(here, *version, "duplicate version"));
            continue;
        }
        check_text(here, version, names::dns1035_label_errors, errors);
    }
    if !given.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        let shown = at(webhook, "admissionReviewVersions").cloned().unwrap_or_default();
        errors.push(field::invalid(here, shown, "must include at least one of v1, v1beta1"));
    }
}

pub(crate) const WEBHOOK_COLUMNS: &[Column] =
    &[Column::NAME, Column::count("Webhooks", "webhooks"), Column::AGE];
