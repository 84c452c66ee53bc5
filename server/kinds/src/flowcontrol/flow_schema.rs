//! FlowSchema (`flowcontrol.apiserver.k8s.io`).

use plinth_codec::names;
use plinth_codec::table::Column;

use crate::checks::Check::{self, By, Each, Required, Text};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Ensure, NonZero};
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
    By(|rule| {
        if rule.is_empty("resourceRules") && rule.is_empty("nonResourceRules") {
            rule.required("", "at least one of resourceRules and nonResourceRules has to be non-empty");
        }
    }),
    Each("resourceRules", RESOURCE_RULE),
    Each("nonResourceRules", &[By(verbs), By(urls)]),
];

const RESOURCE_RULE: &[Check] = &[
    By(verbs),
    Required("apiGroups", "resource rules must supply at least one api group"),
    By(|rule| wildcard(rule, "apiGroups", "api groups")),
    Required("resources", "resource rules must supply at least one resource"),
    By(|rule| wildcard(rule, "resources", "resources")),
    By(namespaces),
];

fn precedence(schema: &Part<'_>) {
    const PATH: &str = "spec.matchingPrecedence";
    const MAX: i64 = 10_000;
    let precedence = schema.number(PATH);
    let refuse = |why: &str| schema.invalid(PATH, precedence, why);
    if precedence <= 0 {
        refuse("must be a positive value");
    }
    if precedence > MAX {
        refuse(&format!("must not be greater than {MAX}"));
    }
    if precedence == 1 && schema.text("metadata.name") != "exempt" {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1");
    }
}

fn distinguisher(schema: &Part<'_>) {
    const KINDS: &[&str] = &["ByNamespace", "ByUser"];
    let kind = schema.text("spec.distinguisherMethod.type");
    if schema.has("spec.distinguisherMethod") && !KINDS.contains(&kind) {
        // Upstream reports the struct with its Go field names.
        let shown = plinth_codec::tree!({ "Type": kind });
        schema.not_supported("spec.distinguisherMethod.type", shown, KINDS);
    }
}

fn level(schema: &Part<'_>) {
    const PATH: &str = "spec.priorityLevelConfiguration.name";
    schema.required_text(PATH, "must reference a priority level", names::dns1123_subdomain_errors);
}

fn subject(subject: &Part<'_>) {
    // Kind, its field, and upstream's order of the fields that it forbids.
    const KINDS: [(&str, &str, [&str; 2]); 3] = [
        ("ServiceAccount", "serviceAccount", ["user", "group"]),
        ("User", "user", ["serviceAccount", "group"]),
        ("Group", "group", ["serviceAccount", "user"]),
    ];
    let given = subject.text("kind");
    let Some((kind, key, others)) = KINDS.iter().find(|(kind, ..)| *kind == given) else {
        return subject.not_supported("kind", given, &["Group", "ServiceAccount", "User"]);
    };
    match subject.get(key) {
        None => subject.required(key, &format!("{key} is required when subject kind is '{kind}'")),
        Some(part) => {
            part.check(&[Required("name", "")]);
            if *kind == "ServiceAccount" {
                if part.text("name") != "*" {
                    part.check(&[Text("name", names::dns1123_subdomain_errors)]);
                }
                let why = "must specify namespace for service account";
                part.required_text("namespace", why, names::dns1123_label_errors);
            }
        }
    }
    for other in others.iter().filter(|other| subject.has(other)) {
        let of = KINDS.iter().find(|(_, key, _)| key == other).map_or("", |(kind, ..)| kind);
        subject.forbidden(other, &format!("{other} is forbidden when subject kind is not '{of}'"));
    }
}

/// `*` may only be the single element of a list.
fn wildcard(rule: &Part<'_>, key: &str, others: &str) {
    let given = rule.texts(key);
    if given.len() > 1 && given.contains(&"*") {
        let why = format!("if '*' is present, must not specify other {others}");
        rule.invalid(key, rule.list(key).to_vec(), &why);
    }
}

fn verbs(rule: &Part<'_>) {
    rule.check(&[Required("verbs", "verbs must contain at least one value")]);
    wildcard(rule, "verbs", "verbs");
    let given = rule.texts("verbs");
    if !given.contains(&"*") && !given.iter().all(|verb| VERBS.contains(verb)) {
        rule.not_supported("verbs", rule.list("verbs").to_vec(), VERBS);
    }
}

fn namespaces(rule: &Part<'_>) {
    let given = rule.texts("namespaces");
    if given.is_empty() && !rule.is_true("clusterScope") {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        rule.required("namespaces", why);
    }
    wildcard(rule, "namespaces", "namespaces");
    if given.contains(&"*") {
        return;
    }
    for name in rule.each("namespaces") {
        for why in names::dns1123_label_errors(name.text("")) {
            let why = format!("each member of this list must be '*' or a DNS-1123 label; {why}");
            name.invalid("", name.text(""), &why);
        }
    }
}

fn urls(rule: &Part<'_>) {
    const KEY: &str = "nonResourceURLs";
    rule.check(&[Required(KEY, "nonResourceURLs must contain at least one value")]);
    wildcard(rule, KEY, "non-resource URLs");
    if rule.texts(KEY).contains(&"*") {
        return;
    }
    for url in rule.each(KEY) {
        let why = match url.text("") {
            "" => "must not be empty",
            "/" => continue,
            text if !text.starts_with('/') => "must start with slash",
            text if text.contains(' ') => "must not contain white-space",
            text if text.contains("//") => "must not contain double slash",
            text => match text.find('*') {
                Some(at) if at + 1 != text.len() => "wildcard can only do suffix matching",
                Some(at) if !text[..at].ends_with('/') => {
                    "wildcard '*' must be preceded by a slash and be the last character"
                }
                _ => continue,
            },
        };
        url.invalid("", url.text(""), why);
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
