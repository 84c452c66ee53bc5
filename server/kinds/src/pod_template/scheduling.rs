//! Validation of affinity, node selectors, topology spread constraints and tolerations.

use std::collections::{HashMap, HashSet};

use plinth_api::{Cause, FieldPath, ParentPath};
use plinth_codec::{names, Value};

use crate::checks::Check::{self, Always, AnyText, By, Each, Enum, In, MustBe, OneOf, Required, Selector};
use crate::checks::Part;
use crate::path::text;

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks of `affinity`.
pub(crate) const AFFINITY_CHECKS: &[Check] = &[
    In(
        "nodeAffinity",
        &[
            In("requiredDuringSchedulingIgnoredDuringExecution", NODE_SELECTOR_CHECKS),
            Each(
                "preferredDuringSchedulingIgnoredDuringExecution",
                &[By(weight), In("preference", &[By(|term| node_term(term, false))])],
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
        &[By(weight), Always("podAffinityTerm", POD_TERM_CHECKS)],
    ),
];

/// Checks of a node selector.
pub(crate) const NODE_SELECTOR_CHECKS: &[Check] = &[
    Required("nodeSelectorTerms", "must have at least one node selector term"),
    Each("nodeSelectorTerms", &[By(|term| node_term(term, true))]),
];

const POD_TERM_CHECKS: &[Check] = &[
    Selector("labelSelector"),
    Selector("namespaceSelector"),
    By(|term| {
        for name in term.texts("namespaces") {
            term.check_text("namespace", name, names::dns1123_label_errors);
        }
    }),
    By(label_keys),
    Required("topologyKey", "can not be empty"),
    AnyText("topologyKey", names::qualified_name_errors),
];

fn weight(term: &Part<'_>) {
    let weight = term.number("weight");
    if !(1..=100).contains(&weight) {
        term.invalid("weight", weight, "must be in the range 1-100");
    }
}

fn node_term(term: &Part<'_>, check_values: bool) {
    for wanted in term.each("matchExpressions") {
        requirement(&wanted, check_values);
    }
    for wanted in term.each("matchFields") {
        match wanted.text("operator") {
            "In" | "NotIn" if wanted.list("values").len() != 1 => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                wanted.required("values", why);
            }
            "In" | "NotIn" => {}
            other => wanted.invalid("operator", other, "not a valid selector operator"),
        }
        match wanted.text("key") {
            "metadata.name" => {
                wanted.check(&[Each("values", &[AnyText("", names::dns1123_subdomain_errors)])]);
            }
            other => wanted.invalid("key", other, "not a valid field selector key"),
        }
    }
}

fn requirement(wanted: &Part<'_>, check_values: bool) {
    match (wanted.text("operator"), wanted.list("values").len()) {
        ("In" | "NotIn", 0) => {
            wanted.required("values", "must be specified when `operator` is 'In' or 'NotIn'");
        }
        ("Exists" | "DoesNotExist", 1..) => {
            wanted.forbidden("values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        ("Gt" | "Lt", count) if count != 1 => {
            wanted.required("values", "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt", _) => {}
        (other, _) => wanted.invalid("operator", other, "not a valid selector operator"),
    }
    wanted.check(&[AnyText("key", names::qualified_name_errors)]);
    if check_values {
        wanted.check(&[Each("values", &[AnyText("", names::label_value_errors)])]);
    }
}

fn label_keys(term: &Part<'_>) {
    let mismatched: HashSet<&str> = term.texts("mismatchLabelKeys").into_iter().collect();
    for part in ["matchLabelKeys", "mismatchLabelKeys"] {
        if !term.list(part).is_empty() && !term.has("labelSelector") {
            term.forbidden(part, "must not be specified when labelSelector is not set");
        } else {
            term.check(&[Each(part, &[AnyText("", names::qualified_name_errors)])]);
        }
    }
    keys_in_selector(term);
    for key in term.each("matchLabelKeys").filter(|key| mismatched.contains(key.text(""))) {
        key.invalid("", key.text(""), "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

/// A key of `matchLabelKeys` is merged into the selector when a pod is created, once; further requirements
/// for it are an error. The path is upstream's: that of the term followed by the key's index.
fn keys_in_selector(term: &Part<'_>) {
    let keys: HashMap<&str, usize> =
        term.texts("matchLabelKeys").into_iter().enumerate().map(|(i, key)| (key, i)).collect();
    if keys.is_empty() {
        return;
    }
    let mut selected: HashSet<&str> = term.members("labelSelector.matchLabels").map(|(key, _)| key).collect();
    for expression in term.list("labelSelector.matchExpressions") {
        let key = text(expression, "key");
        if let (false, Some(i)) = (selected.insert(key), keys.get(key)) {
            let why = "exists in both matchLabelKeys and labelSelector";
            term.invalid(format_args!("[{i}]"), key, why);
        }
    }
}

/// Validates `topologySpreadConstraints`.
pub(crate) fn spread_constraints(spec: &Part<'_>) {
    const POLICIES: &[&str] = &["Honor", "Ignore"];
    fn kind(constraint: &Value) -> (&str, &str) {
        (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"))
    }
    let all = spec.list("topologySpreadConstraints").iter().enumerate();
    let last: HashMap<(&str, &str), usize> = all.map(|(i, constraint)| (kind(constraint), i)).collect();
    for (i, constraint) in spec.each("topologySpreadConstraints").enumerate() {
        let (key, action) = kind(constraint.value());
        constraint.check(&[
            Check::Positive("maxSkew"),
            Required("topologyKey", "can not be empty"),
            MustBe("whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
        ]);
        if last.get(&(key, action)) != Some(&i) {
            constraint.duplicate("{topologyKey, whenUnsatisfiable}", format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint.int("minDomains") {
            constraint.check(&[Check::Positive("minDomains")]);
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                constraint.invalid("minDomains", domains, &why);
            }
        }
        constraint.check(&[
            Enum("nodeAffinityPolicy", POLICIES),
            Enum("nodeTaintsPolicy", POLICIES),
            By(label_keys),
            Selector("labelSelector"),
        ]);
    }
}

/// Appends the errors of the `tolerations` of a holder; `path` ends in a dot.
pub fn tolerations(holder: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    Part::within(holder, &ParentPath(path).to_string(), errors, validate_tolerations);
}

/// Validates the `tolerations` of a pod or a RuntimeClass.
pub(crate) fn validate_tolerations(holder: &Part<'_>) {
    for toleration in holder.each("tolerations") {
        let (key, value) = (toleration.text("key"), toleration.text("value"));
        let (operator, effect) = (toleration.text("operator"), toleration.text("effect"));
        if !key.is_empty() {
            toleration.check_text("key", key, names::qualified_name_errors);
        } else if operator != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            toleration.invalid("operator", operator, why);
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            toleration.invalid(
                "effect",
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator {
            "Equal" | "" => {
                let bad = names::label_value_errors(value);
                if !bad.is_empty() {
                    toleration.invalid("operator", value, &bad.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                toleration.invalid("operator", value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => toleration.not_supported("operator", operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => toleration.not_supported("operator", operator, &["Equal", "Exists"]),
        }
        toleration.check(&[OneOf("effect", EFFECTS)]);
    }
}
