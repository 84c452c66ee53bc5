//! ResourceQuota (`core`).

use std::collections::BTreeSet;

use plinth_codec::quantity::Quantity;
use plinth_codec::table::{pairs, Cell, Column, Now};
use plinth_codec::Value;

use crate::checks::immutable::IMMUTABLE;
use crate::checks::Check::{self, By};
use crate::checks::{quantities, Part};
use crate::defaults::DefaultRule::{self, RoundQuantities};
use crate::path::{at, texts};
use crate::strategy::{Strategy, BASE};
use crate::warnings::Warnings;

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    warnings,
    validate_update,
    status_checks: STATUS_CHECKS,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] =
    &[RoundQuantities("spec.hard"), RoundQuantities("status.hard"), RoundQuantities("status.used")];

const CHECKS: &[Check] = &[By(|quota| hard(quota, "spec.hard")), By(scopes), By(scope_selector)];

const STATUS_CHECKS: &[Check] =
    &[By(|quota| hard(quota, "status.hard")), By(|quota| hard(quota, "status.used"))];

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// Resources that quotas with scopes of pods can limit.
const OF_PODS: &[&str] = &[
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
    "pods",
    "ephemeral-storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
];

/// Whether a quota can limit the resource without a domain in its name.
fn is_of_quotas(name: &str) -> bool {
    quantities::is_standard(name) && name != "storage"
}

fn hard(quota: &Part<'_>, path: &str) {
    for (name, amount) in quota.entries(path) {
        quantities::resource_name(name, &amount);
        if !name.contains('/') && !is_of_quotas(name) {
            amount.invalid("", name, "must be a standard resource for quota");
        }
        quantities::amount(name, &amount);
    }
}

fn applies(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => {
            OF_PODS.contains(&resource)
                || quantities::is_huge(resource)
                || resource.starts_with("requests.hugepages-")
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

/// How many of the limited resources the scope does not apply to.
fn misapplied(quota: &Part<'_>, scope: &str) -> usize {
    let named = quota.members("spec.hard").map(|(name, _)| name);
    named.filter(|name| is_of_quotas(name) && !applies(scope, name)).count()
}

fn conflicting(scopes: &[&str]) -> usize {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))).count()
}

fn scopes(quota: &Part<'_>) {
    const PATH: &str = "spec.scopes";
    let given = quota.texts(PATH);
    let refuse = |why: &str| quota.invalid(PATH, quota.list(PATH).to_vec(), why);
    for scope in &given {
        if !SCOPES.contains(scope) {
            refuse("unsupported scope");
        }
        for _ in 0..misapplied(quota, scope) {
            refuse("unsupported scope applied to resource");
        }
    }
    for _ in 0..conflicting(&given) {
        refuse("conflicting scopes");
    }
}

fn scope_selector(quota: &Part<'_>) {
    const PATH: &str = "spec.scopeSelector.matchExpressions";
    let mut named = Vec::new();
    for wanted in quota.each(PATH) {
        let (scope, operator) = (wanted.text("scopeName"), wanted.text("operator"));
        let values = wanted.list("values");
        // Upstream omits the index in these paths.
        let indexless = wanted.without_index();
        if !SCOPES.contains(&scope) {
            indexless.invalid("scopeName", scope, "unsupported scope");
        }
        for _ in 0..misapplied(quota, scope) {
            let shown = quota.shown("spec.scopeSelector");
            indexless.invalid("", shown, "unsupported scope applied to resource");
        }
        let needs_no_value = matches!(
            scope,
            "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
        );
        if needs_no_value && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            indexless.invalid("operator", operator, why);
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                indexless.required("values", why);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                indexless.invalid("values", values.to_vec(), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => indexless.invalid("operator", other, "not a valid selector operator"),
        }
        named.push(scope);
    }
    for _ in 0..conflicting(&named) {
        quota.invalid(PATH, quota.list("spec.scopes").to_vec(), "conflicting scopes");
    }
}

/// The scopes are immutable.
fn validate_update(new: &Part<'_>, old: &Value) {
    const PATH: &str = "spec.scopes";
    let set = |scopes: Vec<&str>| -> BTreeSet<String> { scopes.into_iter().map(str::to_owned).collect() };
    if set(new.texts(PATH)) != set(texts(old, PATH)) {
        new.invalid(PATH, new.list(PATH).to_vec(), IMMUTABLE);
    }
}

/// Warnings about requests that exceed limits.
fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let amount = |key: String| {
        let shown = new.str_at(&["spec", "hard", &key])?;
        Some((Quantity::parse(shown).ok()?, shown.to_owned()))
    };
    let mut found = Warnings::default();
    // For CPU and memory, `requests.` can be omitted.
    let rows = [("cpu", true), ("memory", true), ("storage", false), ("ephemeral-storage", false)];
    for (resource, bare) in rows {
        let mut name = format!("requests.{resource}");
        let mut request = amount(name.clone());
        if request.is_none() && bare {
            name = resource.to_owned();
            request = amount(name.clone());
        }
        let pair = request.zip(amount(format!("limits.{resource}")));
        if let Some(((_, request), (_, limit))) = pair.filter(|((request, _), (limit, _))| request > limit) {
            found.add(format!(
                "ResourceQuota {name} ({request}) should be less than limits.{resource} ({limit})"
            ));
        }
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Request", &["status.hard", "status.used"], requests_cell),
    Column::computed("Limit", &["status.hard", "status.used"], limits_cell),
    Column::AGE,
];

fn requests_cell(object: &Value, _: Now) -> Cell<'_> {
    quota(object, false).into()
}

fn limits_cell(object: &Value, _: Now) -> Cell<'_> {
    quota(object, true).into()
}

/// Used and hard quantities of the quota's resources, those of limits or the others.
fn quota(object: &Value, limits: bool) -> String {
    let used = at(object, "status.used");
    let entries: Vec<String> = pairs(object, "status.hard")
        .filter(|(resource, _)| resource.starts_with("limits.") == limits)
        .map(|(resource, hard)| {
            let used = used.and_then(|u| u.get(resource)).and_then(Value::as_str).unwrap_or("0");
            format!("{resource}: {used}/{hard}")
        })
        .collect();
    entries.join(", ")
}
