//! Validation of affinity, node selectors, topology spread constraints and tolerations.

use std::collections::{HashMap, HashSet};

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::{names, Map, Value};

use crate::checks::Check::{self, By, Each, Enum, In, MustBe, Selector};
use crate::checks::{check_text, validate};
use crate::path::{at, int, list, text, texts};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks of `affinity`.
pub(crate) const AFFINITY_CHECKS: &[Check] = &[
    In(
        "nodeAffinity",
        &[
            In("requiredDuringSchedulingIgnoredDuringExecution", NODE_SELECTOR_CHECKS),
            Each(
                "preferredDuringSchedulingIgnoredDuringExecution",
                &[By(weight), In("preference", &[By(|t, p, f| node_term(t, false, p, f))])],
            ),
        ],
    ),
    In("podAffinity", POD_AFFINITY_CHECKS),
    In("podAntiAffinity", POD_AFFINITY_CHECKS),
];

const POD_AFFINITY_CHECKS: &[Check] = &[
    Each("requiredDuringSchedulingIgnoredDuringExecution", POD_TERM_CHECKS),
    Each(
        "preferredDuringSchedulingIgnoredDuringExecution",
        &[
            By(weight),
            By(|weighted, path, errors| {
                let nothing = Value::object();
                let term = at(weighted, "podAffinityTerm").unwrap_or(&nothing);
                validate(POD_TERM_CHECKS, term, format_args!("{path}podAffinityTerm."), errors);
            }),
        ],
    ),
];

/// Checks of a node selector.
pub(crate) const NODE_SELECTOR_CHECKS: &[Check] = &[
    Check::Required("nodeSelectorTerms", "must have at least one node selector term"),
    Each("nodeSelectorTerms", &[By(|t, p, f| node_term(t, true, p, f))]),
];

const POD_TERM_CHECKS: &[Check] = &[
    Selector("labelSelector"),
    Selector("namespaceSelector"),
    By(namespaces),
    By(label_keys),
    By(topology_key),
];

fn weight(term: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let weight = int(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(field::invalid(format_args!("{path}weight"), weight, "must be in the range 1-100"));
    }
}

fn node_term(term: &Value, check_values: bool, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, wanted) in list(term, "matchExpressions").iter().enumerate() {
        requirement(wanted, check_values, format_args!("{path}matchExpressions[{i}]."), errors);
    }
    for (i, wanted) in list(term, "matchFields").iter().enumerate() {
        let path = format_args!("{path}matchFields[{i}].");
        let values = texts(wanted, "values");
        match text(wanted, "operator") {
            "In" | "NotIn" if values.len() != 1 => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(field::required(format_args!("{path}values"), why));
            }
            "In" | "NotIn" => {}
            other => bad_operator(other, path, errors),
        }
        match text(wanted, "key") {
            "metadata.name" => {
                for (j, value) in values.iter().enumerate() {
                    check_text(
                        format_args!("{path}values[{j}]"),
                        value,
                        names::dns1123_subdomain_errors,
                        errors,
                    );
                }
            }
            other => {
                errors.push(field::invalid(
                    format_args!("{path}key"),
                    other,
                    "not a valid field selector key",
                ));
            }
        }
    }
}

fn bad_operator(operator: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    errors.push(field::invalid(format_args!("{path}operator"), operator, "not a valid selector operator"));
}

fn requirement(wanted: &Value, check_values: bool, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let values = texts(wanted, "values");
    let here = format_args!("{path}values");
    match (text(wanted, "operator"), values.len()) {
        ("In" | "NotIn", 0) => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(field::required(here, why));
        }
        ("Exists" | "DoesNotExist", 1..) => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(field::forbidden(here, why));
        }
        ("Gt" | "Lt", count) if count != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(field::required(here, why));
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt", _) => {}
        (other, _) => bad_operator(other, path, errors),
    }
    check_text(format_args!("{path}key"), text(wanted, "key"), names::qualified_name_errors, errors);
    for (i, value) in values.iter().enumerate().filter(|_| check_values) {
        check_text(format_args!("{here}[{i}]"), value, names::label_value_errors, errors);
    }
}

fn namespaces(term: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for name in texts(term, "namespaces") {
        check_text(format_args!("{path}namespace"), name, names::dns1123_label_errors, errors);
    }
}

fn topology_key(term: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (key, here) = (text(term, "topologyKey"), format_args!("{path}topologyKey"));
    if key.is_empty() {
        errors.push(field::required(here, "can not be empty"));
    }
    check_text(here, key, names::qualified_name_errors, errors);
}

fn label_keys(term: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let selector = at(term, "labelSelector");
    let mismatched: HashSet<&str> = texts(term, "mismatchLabelKeys").into_iter().collect();
    for part in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = texts(term, part);
        if !keys.is_empty() && selector.is_none() {
            let why = "must not be specified when labelSelector is not set";
            errors.push(field::forbidden(format_args!("{path}{part}"), why));
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            check_text(format_args!("{path}{part}[{i}]"), key, names::qualified_name_errors, errors);
        }
    }
    keys_in_selector(term, path, errors);
    for (i, key) in texts(term, "matchLabelKeys").iter().enumerate() {
        if mismatched.contains(key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(field::invalid(format_args!("{path}matchLabelKeys[{i}]"), *key, why));
        }
    }
}

/// A key of `matchLabelKeys` is merged into the selector when a pod is created, once; further requirements
/// for it are an error. The path is upstream's: that of the term followed by the key's index.
fn keys_in_selector(term: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let keys: HashMap<&str, usize> =
        texts(term, "matchLabelKeys").into_iter().enumerate().map(|(i, key)| (key, i)).collect();
    if keys.is_empty() {
        return;
    }
    let labels = at(term, "labelSelector.matchLabels").and_then(Value::as_object);
    let mut selected: HashSet<&str> =
        labels.into_iter().flat_map(Map::iter).map(|(key, _)| key.as_str()).collect();
    for expression in list(term, "labelSelector.matchExpressions") {
        let key = text(expression, "key");
        if let (false, Some(i)) = (selected.insert(key), keys.get(key)) {
            let here = format_args!("{}[{i}]", ParentPath(path));
            errors.push(field::invalid(here, key, "exists in both matchLabelKeys and labelSelector"));
        }
    }
}

/// Validates `topologySpreadConstraints`.
pub(crate) fn spread_constraints<'a>(spec: &'a Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const POLICIES: &[&str] = &["Honor", "Ignore"];
    let all = list(spec, "topologySpreadConstraints");
    let kind =
        |constraint: &'a Value| (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
    let last: HashMap<(&str, &str), usize> =
        all.iter().enumerate().map(|(i, constraint)| (kind(constraint), i)).collect();
    for (i, constraint) in all.iter().enumerate() {
        let path = format_args!("{path}topologySpreadConstraints[{i}].");
        let (key, action) = kind(constraint);
        validate(
            &[
                Check::Positive("maxSkew"),
                Check::Required("topologyKey", "can not be empty"),
                MustBe("whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
            ],
            constraint,
            path,
            errors,
        );
        if last.get(&(key, action)) != Some(&i) {
            let here = format_args!("{path}{{topologyKey, whenUnsatisfiable}}");
            errors.push(field::duplicate(here, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = int(constraint, "minDomains") {
            validate(&[Check::Positive("minDomains")], constraint, path, errors);
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(field::invalid(format_args!("{path}minDomains"), domains, &why));
            }
        }
        validate(
            &[
                Enum("nodeAffinityPolicy", POLICIES),
                Enum("nodeTaintsPolicy", POLICIES),
                By(label_keys),
                Selector("labelSelector"),
            ],
            constraint,
            path,
            errors,
        );
    }
}

/// Validates `tolerations`, of a pod or a RuntimeClass; `path` ends in a dot.
pub fn tolerations(holder: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, toleration) in list(holder, "tolerations").iter().enumerate() {
        let path = format_args!("{path}tolerations[{i}].");
        let (key, value) = (text(toleration, "key"), text(toleration, "value"));
        let (operator, effect) = (text(toleration, "operator"), text(toleration, "effect"));
        let here = format_args!("{path}operator");
        if !key.is_empty() {
            check_text(format_args!("{path}key"), key, names::qualified_name_errors, errors);
        } else if operator != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(field::invalid(here, operator, why));
        }
        if at(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(field::invalid(format_args!("{path}effect"), effect, why));
        }
        match operator {
            "Equal" | "" => {
                let bad = names::label_value_errors(value);
                if !bad.is_empty() {
                    errors.push(field::invalid(here, value, &bad.join(";")));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.push(field::invalid(here, value, "value must be empty when `operator` is 'Exists'"));
            }
            "Exists" => {}
            "Lt" | "Gt" => {
                let supported = &["Equal", "Exists", "Lt", "Gt"];
                errors.push(field::not_supported(here, operator, supported));
            }
            _ => errors.push(field::not_supported(here, operator, &["Equal", "Exists"])),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(field::not_supported(format_args!("{path}effect"), effect, EFFECTS));
        }
    }
}
