//! FlowSchemas and PriorityLevelConfigurations.

use plinth_codec::{names, Value};

use super::Check::{By, Each, MustBe, Required, RequiredText};
use super::{at, int, is_empty, list, text, texts, validate, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Itself, Place};

/// flowcontrol.apiserver.k8s.io/v1 FlowSchema.
pub const FLOW_SCHEMA: &[Check] = &[By(precedence), By(distinguisher), By(level), Each("spec.rules", RULE)];
/// flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration.
pub const PRIORITY_LEVEL: &[Check] = &[MustBe("spec.type", &["Exempt", "Limited"]), By(kind)];

const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const RULE: &[Check] = &[
    Required("subjects", "subjects must contain at least one value"),
    Each("subjects", &[By(subject)]),
    By(|rule, path, errors| {
        if list(rule, "resourceRules").is_empty() && list(rule, "nonResourceRules").is_empty() {
            let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
            errors.push(field::required(Itself(path), why));
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

fn precedence(schema: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.matchingPrecedence";
    const MOST: i64 = 10_000;
    let precedence = int(schema, PATH).unwrap_or(0);
    let mut refuse = |why: &str| errors.push(field::invalid(PATH, precedence, why));
    if precedence <= 0 {
        refuse("must be a positive value");
    }
    if precedence > MOST {
        refuse(&format!("must not be greater than {MOST}"));
    }
    if precedence == 1 && text(schema, "metadata.name") != "exempt" {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1");
    }
}

fn distinguisher(schema: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const KINDS: &[&str] = &["ByNamespace", "ByUser"];
    let Some(method) = at(schema, "spec.distinguisherMethod") else { return };
    let kind = text(method, "type");
    if !KINDS.contains(&kind) {
        // Upstream shows the struct with its Go names.
        let shown = plinth_codec::tree!({ "Type": kind });
        errors.push(field::not_supported("spec.distinguisherMethod.type", shown, KINDS));
    }
}

fn level(schema: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.priorityLevelConfiguration.name";
    match text(schema, PATH) {
        "" => errors.push(field::required(PATH, "must reference a priority level")),
        name => super::rule(format_args!("{PATH}"), name, names::dns1123_subdomain_errors, errors),
    }
}

fn subject(subject: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
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
                    super::rule(format_args!("{here}name"), name, names::dns1123_subdomain_errors, errors);
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

/// A list that is not empty and holds nothing beside a wildcard.
fn wildcard(rule: &Value, key: &str, needed: &str, others: &str, path: Place<'_>, errors: &mut Vec<Cause>) {
    let given = texts(rule, key);
    if given.is_empty() {
        errors.push(field::required(format_args!("{path}{key}"), needed));
    } else if given.len() > 1 && given.contains(&"*") {
        let why = format!("if '*' is present, must not specify other {others}");
        errors.push(field::invalid(format_args!("{path}{key}"), list(rule, key).to_vec(), &why));
    }
}

fn verbs(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    wildcard(rule, "verbs", "verbs must contain at least one value", "verbs", path, errors);
    let given = texts(rule, "verbs");
    if !given.contains(&"*") && !given.iter().all(|verb| VERBS.contains(verb)) {
        errors.push(field::not_supported(format_args!("{path}verbs"), list(rule, "verbs").to_vec(), VERBS));
    }
}

fn namespaces(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
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

fn urls(rule: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
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

fn kind(level: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let (limited, exempt) = (at(level, "spec.limited"), at(level, "spec.exempt"));
    match text(level, "spec.type") {
        "Exempt" => {
            if limited.is_some() {
                errors.push(field::forbidden("spec.limited", "must be nil if the type is not Limited"));
            }
            if let Some(exempt) = exempt {
                shares(exempt, format_args!("spec.exempt."), errors);
            }
        }
        "Limited" => {
            if exempt.is_some() {
                errors.push(field::forbidden("spec.exempt", "must be nil if the type is Limited"));
            }
            match limited.filter(|limited| !is_empty(Some(limited))) {
                None => {
                    errors.push(field::required("spec.limited", "must not be empty when type is Limited"));
                }
                Some(limited) => bounds(limited, errors),
            }
        }
        _ => {}
    }
}

fn shares(holder: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    if let Some(shares) = int(holder, "nominalConcurrencyShares").filter(|shares| *shares < 0) {
        let why = "must be a non-negative integer";
        errors.push(field::invalid(format_args!("{path}nominalConcurrencyShares"), shares, why));
    }
    validate(&[Check::Range("lendablePercent", 0, 100)], holder, path, errors);
}

fn bounds(limited: &Value, errors: &mut Vec<Cause>) {
    shares(limited, format_args!("spec.limited."), errors);
    if let Some(percent) = int(limited, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        let why = "if specified, must be a non-negative integer";
        errors.push(field::invalid("spec.limited.borrowingLimitPercent", percent, why));
    }
    const PATH: &str = "spec.limited.limitResponse";
    let queuing = at(limited, "limitResponse.queuing");
    match text(limited, "limitResponse.type") {
        "Reject" => {
            if queuing.is_some() {
                let why = "must be nil if limited.limitResponse.type is not Limited";
                errors.push(field::forbidden(format_args!("{PATH}.queuing"), why));
            }
        }
        "Queue" => match queuing {
            None => {
                let why = "must not be empty if limited.limitResponse.type is Limited";
                errors.push(field::required(format_args!("{PATH}.queuing"), why));
            }
            Some(queuing) => queues(queuing, errors),
        },
        other => {
            errors.push(field::not_supported(format_args!("{PATH}.type"), other, &["Queue", "Reject"]));
        }
    }
}

fn queues(queuing: &Value, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.limited.limitResponse.queuing";
    const MOST: i64 = 10_000_000;
    const MOST_BITS: u32 = 60;
    let number = |key: &str| int(queuing, key).unwrap_or(0);
    let (queues, hand, length) = (number("queues"), number("handSize"), number("queueLengthLimit"));
    let mut refuse = |key: &str, value: i64, why: String| {
        errors.push(field::invalid(format_args!("{PATH}.{key}"), value, &why));
    };
    if length <= 0 {
        refuse("queueLengthLimit", length, "must be positive".into());
    }
    if queues <= 0 {
        refuse("queues", queues, "must be positive".into());
    } else if queues > MOST {
        refuse("queues", queues, format!("must not be greater than {MOST}"));
    }
    if hand <= 0 {
        refuse("handSize", hand, "must be positive".into());
    } else if hand > queues {
        refuse("handSize", hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > MOST_BITS {
        let why = format!("required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MOST_BITS}");
        refuse("handSize", hand, why);
    }
}

/// How many random bits it takes to deal a hand from the queues (k8s.io/apiserver `pkg/util/shufflesharding`).
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    let bits: f64 = (0..hand.min(64)).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as u32
}
