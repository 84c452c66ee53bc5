//! FlowSchema (`flowcontrol.apiserver.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::checks::Check::{self, By, Each, Required, RequiredText};
use crate::checks::{check_text, validate};
use crate::defaults::DefaultRule::{self, Ensure, NonZero};
use crate::path::{at, int, list, text, texts};
use crate::strategy::{Generation, Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    checks: CHECKS,
    status_keeps: STATUS_KEEPS_METADATA,
    rows_sorted_by: Some(&["spec", "matchingPrecedence"]),
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[Ensure("spec", &[NonZero("matchingPrecedence", 1000)])];

const CHECKS: &[Check] = &[By(precedence), By(distinguisher), By(level), Each("spec.rules", RULE)];

const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

const RULE: &[Check] = &[
    Required("subjects", "subjects must contain at least one value"),
    Each("subjects", &[By(subject)]),
    By(|rule, path, errors| {
        if list(rule, "resourceRules").is_empty() && list(rule, "nonResourceRules").is_empty() {
            let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
            errors.push(field::required(ParentPath(path), why));
        }
    }),
    Each(
        "resourceRules",
        &[
            By(verbs),
            By(|r, p, f| {
                wildcard(
                    r,
                    "apiGroups",
                    "resource rules must supply at least one api group",
                    "api groups",
                    p,
                    f,
                )
            }),
            By(|r, p, f| {
                wildcard(
                    r,
                    "resources",
                    "resource rules must supply at least one resource",
                    "resources",
                    p,
                    f,
                )
            }),
            By(namespaces),
        ],
    ),
    Each("nonResourceRules", &[By(verbs), By(urls)]),
];

fn precedence(schema: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.matchingPrecedence";
    const MAX: i64 = 10_000;
    let precedence = int(schema, PATH).unwrap_or(0);
    let mut refuse = |why: &str| errors.push(field::invalid(PATH, precedence, why));
    if precedence <= 0 {
        refuse("must be a positive value");
    }
    if precedence > MAX {
        refuse(&format!("must not be greater than {MAX}"));
    }
    if precedence == 1 && text(schema, "metadata.name") != "exempt" {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1");
    }
}

fn distinguisher(schema: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const KINDS: &[&str] = &["ByNamespace", "ByUser"];
    let Some(method) = at(schema, "spec.distinguisherMethod") else { return };
    let kind = text(method, "type");
    if !KINDS.contains(&kind) {
        // Upstream reports the struct with its Go field names.
        let shown = plinth_codec::tree!({ "Type": kind });
        errors.push(field::not_supported("spec.distinguisherMethod.type", shown, KINDS));
    }
}

fn level(schema: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.priorityLevelConfiguration.name";
    match text(schema, PATH) {
        "" => errors.push(field::required(PATH, "must reference a priority level")),
        name => check_text(format_args!("{PATH}"), name, names::dns1123_subdomain_errors, errors),
    }
}

fn subject(subject: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    // Kind, its field, and upstream's order of the fields that it forbids.
    const KINDS: [(&str, &str, [&str; 2]); 3] = [
        ("ServiceAccount", "serviceAccount", ["user", "group"]),
        ("User", "user", ["serviceAccount", "group"]),
        ("Group", "group", ["serviceAccount", "user"]),
    ];
    let given = text(subject, "kind");
    let Some((kind, key, others)) = KINDS.iter().find(|(kind, ..)| *kind == given) else {
        let supported = &["Group", "ServiceAccount", "User"];
        errors.push(field::not_supported(format_args!("{path}kind"), given, supported));
        return;
    };
    match at(subject, key) {
        None => {
            let why = format!("{key} is required when subject kind is '{kind}'");
            errors.push(field::required(format_args!("{path}{key}"), &why));
        }
        Some(part) => {
            let here = format_args!("{path}{key}.");
            match (*kind, text(part, "name")) {
                (_, "") => errors.push(field::required(format_args!("{here}name"), "")),
                ("ServiceAccount", name) if name != "*" => {
                    check_text(format_args!("{here}name"), name, names::dns1123_subdomain_errors, errors);
                }
                _ => {}
            }
            if *kind == "ServiceAccount" {
                match text(part, "namespace") {
                    "" => {
                        let why = "must specify namespace for service account";
                        errors.push(field::required(format_args!("{here}namespace"), why));
                    }
                    _ => validate(
                        &[RequiredText("namespace", names::dns1123_label_errors)],
                        part,
                        here,
                        errors,
                    ),
                }
            }
        }
    }
    for other in others.iter().filter(|other| at(subject, other).is_some()) {
        let of = KINDS.iter().find(|(_, key, _)| key == other).map_or("", |(kind, ..)| kind);
        let why = format!("{other} is forbidden when subject kind is not '{of}'");
        errors.push(field::forbidden(format_args!("{path}{other}"), &why));
    }
}

/// Validates a list: not empty, and `*` only as the single element.
fn wildcard(
    rule: &Value,
    key: &str,
    needed: &str,
    others: &str,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    let given = texts(rule, key);
    if given.is_empty() {
        errors.push(field::required(format_args!("{path}{key}"), needed));
    } else if given.len() > 1 && given.contains(&"*") {
        let why = format!("if '*' is present, must not specify other {others}");
        errors.push(field::invalid(format_args!("{path}{key}"), list(rule, key).to_vec(), &why));
    }
}

fn verbs(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    wildcard(rule, "verbs", "verbs must contain at least one value", "verbs", path, errors);
    let given = texts(rule, "verbs");
    if !given.contains(&"*") && !given.iter().all(|verb| VERBS.contains(verb)) {
        errors.push(field::not_supported(format_args!("{path}verbs"), list(rule, "verbs").to_vec(), VERBS));
    }
}

fn namespaces(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (given, here) = (texts(rule, "namespaces"), format_args!("{path}namespaces"));
    if given.is_empty() {
        if at(rule, "clusterScope").and_then(Value::as_bool) != Some(true) {
            let why = "resource rules that are not cluster scoped must supply at least one namespace";
            errors.push(field::required(here, why));
        }
        return;
    }
    if given.contains(&"*") {
        if given.len() > 1 {
            let why = "if '*' is present, must not specify other namespaces";
            errors.push(field::invalid(here, list(rule, "namespaces").to_vec(), why));
        }
        return;
    }
    for (i, name) in given.iter().enumerate() {
        for why in names::dns1123_label_errors(name) {
            let why = format!("each member of this list must be '*' or a DNS-1123 label; {why}");
            errors.push(field::invalid(format_args!("{here}[{i}]"), *name, &why));
        }
    }
}

fn urls(rule: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let key = "nonResourceURLs";
    let needed = "nonResourceURLs must contain at least one value";
    wildcard(rule, key, needed, "non-resource URLs", path, errors);
    let given = texts(rule, key);
    if given.contains(&"*") {
        return;
    }
    for (i, url) in given.iter().enumerate() {
        let why = match url {
            &"" => "must not be empty",
            &"/" => continue,
            url if !url.starts_with('/') => "must start with slash",
            url if url.contains(' ') => "must not contain white-space",
            url if url.contains("//") => "must not contain double slash",
            url => match url.find('*') {
                Some(at) if at + 1 != url.len() => "wildcard can only do suffix matching",
                Some(at) if !url[..at].ends_with('/') => {
                    "wildcard '*' must be preceded by a slash and be the last character"
                }
                _ => continue,
            },
        };
        errors.push(field::invalid(format_args!("{path}{key}[{i}]"), *url, why));
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("PriorityLevel", "spec.priorityLevelConfiguration.name", ""),
    Column::int("MatchingPrecedence", "spec.matchingPrecedence").declared("string"),
    Column::text("DistinguisherMethod", "spec.distinguisherMethod.type", "<none>"),
    Column::AGE,
    Column::condition("MissingPL", "status.conditions", "Dangling"),
];
