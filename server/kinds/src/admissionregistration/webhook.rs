//! What MutatingWebhookConfiguration and ValidatingWebhookConfiguration share.

use std::collections::HashSet;

use plinth_api::{Cause, FieldPath};
use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::admissionregistration::expressions::match_conditions;
use crate::admissionregistration::match_resources::{with_wildcard, RULE_DEFAULTS};
use crate::checks::ports::{is_port, PORT};
use crate::checks::Check::{self, AnyText, By, Each, Enum, MustBe, Required, Selector, Set, Within};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field, ForEach, IfPresent};
use crate::defaults::Literal::{EmptyObject, Int, OptionalStr};
use crate::defaults::SERVICE_REFERENCE;
use crate::path::list;

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
pub(crate) fn validate_create(configuration: &Part<'_>) {
    configuration.each("webhooks").for_each(|webhook| match_conditions(&webhook, false));
}

/// Errors of the match conditions of an updated webhook configuration; if any changed, all are compiled.
pub(crate) fn validate_update(new: &Part<'_>, old: &Value) {
    fn conditions(webhooks: &[Value]) -> impl Iterator<Item = &[Value]> {
        webhooks.iter().map(|webhook| list(webhook, "matchConditions"))
    }
    if !conditions(new.list("webhooks")).eq(conditions(list(old, "webhooks"))) {
        validate_create(new);
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
            Set("sideEffects", "must specify one of None, NoneOnDryRun"),
            Enum("sideEffects", &["None", "NoneOnDryRun"]),
            Enum("reinvocationPolicy", &["IfNeeded", "Never"]),
            Within("timeoutSeconds", 1, 30, "the timeout value must be between 1 and 30 seconds"),
            Selector("namespaceSelector"),
            Selector("objectSelector"),
            By(client),
            By(versions),
        ],
    ),
];

/// Checks of a rule that matches requests.
const RULE_CHECKS: &[Check] = &[
    By(|rule| with_wildcard(rule, "apiGroups", "API groups")),
    By(|rule| with_wildcard(rule, "apiVersions", "API versions")),
    Each("apiVersions", &[Required("", "")]),
    By(|rule| with_wildcard(rule, "operations", "operations")),
    Each("operations", &[MustBe("", &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"])]),
    By(resources),
    Enum("scope", &["*", "Cluster", "Namespaced"]),
];

/// Validates resources: `*`, `*/*`, `pods`, `pods/*`, `*/status`; none may be covered by another one.
fn resources(rule: &Part<'_>) {
    rule.check(&[Required("resources", "")]);
    let (mut with_all_parts, mut parts_of_all) = (HashSet::new(), HashSet::new());
    let given = rule.texts("resources");
    for pattern in rule.each("resources") {
        let resource = pattern.text("");
        match resource {
            "" => pattern.required("", ""),
            "*/*" | "*" => {}
            resource => {
                let (name, part) = resource.split_once('/').unwrap_or((resource, ""));
                if part == "*" {
                    with_all_parts.insert(name);
                } else if with_all_parts.contains(name) && !part.is_empty() {
                    let why = format!("if '{name}/*' is present, must not specify {resource}");
                    pattern.invalid("", resource, &why);
                } else if parts_of_all.contains(part) && !part.is_empty() {
                    let why = format!("if '*/{part}' is present, must not specify {resource}");
                    pattern.invalid("", resource, &why);
                } else if name == "*" {
                    parts_of_all.insert(part);
                }
            }
        }
    }
    let all = |why: &str| rule.invalid("resources", rule.shown("resources"), why);
    if given.contains(&"*/*") && given.len() > 1 {
        all("if '*/*' is present, must not specify other resources");
    }
    let is_plain = |resource: &&str| *resource != "*" && !resource.is_empty() && !resource.contains('/');
    if given.contains(&"*") && given.iter().any(is_plain) {
        all("if '*' is present, must not specify other resources without subresources");
    }
}

fn name(webhook: &Part<'_>) {
    let (name, before) = (webhook.text("name"), webhook.errors());
    webhook.required_text("name", "", names::dns1123_subdomain_errors);
    if webhook.errors() == before && name.split('.').count() < 3 {
        webhook.invalid("name", name, "should be a domain with at least three segments separated by dots");
    }
}

fn client(webhook: &Part<'_>) {
    let client = webhook.field("clientConfig");
    match (client.set_text("url"), client.get("service")) {
        (Some(_), None) => client.apply("url", webhook_url),
        (None, Some(service)) => called_service(&service),
        _ => client.required("", "exactly one of url or service is required"),
    }
}

/// Validates the URL of a webhook (k8s.io/apiserver `pkg/util/webhook/validation.go`).
fn webhook_url(url: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut refuse =
        |shown: &str, why: &str| errors.push(Cause::invalid(path, shown, &format!("{why}{FORM}")));
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

fn called_service(service: &Part<'_>) {
    // Upstream reports the path of the other field where one is missing.
    for (key, shown) in [("name", "namespace"), ("namespace", "name")] {
        if service.text(key).is_empty() {
            service.required(shown, "");
        }
    }
    service_port(service);
    let given = service.text("path");
    let refuse = |why: &str| service.invalid("path", given, why);
    match given {
        "" | "/" => return,
        "//" => return refuse("segment[0] may not be empty"),
        given if !given.starts_with('/') => refuse("must start with a '/'"),
        _ => {}
    }
    // Upstream drops the first character without checking it.
    let inner = given.char_indices().nth(1).map_or("", |(i, _)| &given[i..]);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    for (i, segment) in inner.split('/').enumerate() {
        if segment.is_empty() {
            refuse(&format!("segment[{i}] may not be empty"));
            continue;
        }
        for why in names::dns1123_subdomain_errors(segment) {
            refuse(&format!("segment[{i}]: {why}"));
        }
    }
}

/// The port of a service that is called; an absent one is 443.
pub(crate) fn service_port(service: &Part<'_>) {
    let port = service.int("port").unwrap_or(443);
    if !is_port(port) {
        service.invalid("port", port, &format!("port is not valid: {PORT}"));
    }
}

fn versions(webhook: &Part<'_>) {
    const KEY: &str = "admissionReviewVersions";
    if webhook.is_empty(KEY) {
        webhook.required(KEY, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = HashSet::new();
    for version in webhook.each(KEY) {
        match seen.insert(version.text("")) {
            true => version.check(&[AnyText("", names::dns1035_label_errors)]),
            false => version.invalid("", version.text(""), "duplicate version"),
        }
    }
    if !webhook.texts(KEY).iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        webhook.invalid(KEY, webhook.shown(KEY), "must include at least one of v1, v1beta1");
    }
}

pub(crate) const WEBHOOK_COLUMNS: &[Column] =
    &[Column::NAME, Column::count("Webhooks", "webhooks"), Column::AGE];
