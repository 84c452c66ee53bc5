//! ResourceQuotas and LimitRanges.

use std::collections::BTreeSet;

use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Map, Value};

use super::Check::{By, Each};
use super::{amounts, at, list, rule, text, texts, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Place};

/// core/v1 ResourceQuota.
pub const RESOURCE_QUOTA: &[Check] =
    &[By(|quota, _, errors| hard(quota, "spec.hard", errors)), By(scopes), By(scope_selector)];

/// Its status.
pub const RESOURCE_QUOTA_STATUS: &[Check] = &[
    By(|quota, _, errors| hard(quota, "status.hard", errors)),
    By(|quota, _, errors| hard(quota, "status.used", errors)),
];

/// core/v1 LimitRange.
pub const LIMIT_RANGE: &[Check] = &[By(types), Each("spec.limits", &[By(limit)])];

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Resources of pods that quotas of running pods count.
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
/// Whether a quota can name a resource without a domain.
fn is_of_quotas(name: &str) -> bool {
    amounts::is_standard(name) && name != "storage"
}

fn hard(quota: &Value, path: &str, errors: &mut Vec<Cause>) {
    for (name, shown) in at(quota, path).and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        let here = format_args!("{path}[{name}]");
        amounts::resource_name(name, here, errors);
        if !name.contains('/') && !is_of_quotas(name) {
            let why = "must be a standard resource for quota";
            errors.push(field::invalid(here, name.clone(), why));
        }
        amounts::amount(name, shown.as_str().unwrap_or_default(), here, errors);
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
                || amounts::is_huge(resource)
                || resource.starts_with("requests.hugepages-")
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

/// How many of the amounts that a quota bounds the scope does not know.
fn misapplied(quota: &Value, scope: &str) -> usize {
    let hard = at(quota, "spec.hard").and_then(Value::as_object);
    let named = hard.into_iter().flat_map(Map::iter).map(|(name, _)| name.as_str());
    named.filter(|name| is_of_quotas(name) && !applies(scope, name)).count()
}

fn conflicting(scopes: &[&str]) -> usize {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))).count()
}

fn scopes(quota: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.scopes";
    let given = texts(quota, PATH);
    let mut refuse = |why: &str| errors.push(field::invalid(PATH, list(quota, PATH).to_vec(), why));
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

fn scope_selector(quota: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    const PATH: &str = "spec.scopeSelector.matchExpressions";
    let mut named = Vec::new();
    for wanted in list(quota, PATH) {
        let (scope, operator) = (text(wanted, "scopeName"), text(wanted, "operator"));
        let values = list(wanted, "values");
        // Upstream leaves the index out of the paths.
        if !SCOPES.contains(&scope) {
            errors.push(field::invalid(format_args!("{PATH}.scopeName"), scope, "unsupported scope"));
        }
        for _ in 0..misapplied(quota, scope) {
            let shown = at(quota, "spec.scopeSelector").cloned().unwrap_or_default();
            errors.push(field::invalid(PATH, shown, "unsupported scope applied to resource"));
        }
        let needs_no_value = matches!(
            scope,
            "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
        );
        if needs_no_value && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(field::invalid(format_args!("{PATH}.operator"), operator, why));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(field::required(format_args!("{PATH}.values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(field::invalid(format_args!("{PATH}.values"), values.to_vec(), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(field::invalid(
                    format_args!("{PATH}.operator"),
                    other,
                    "not a valid selector operator",
                ));
            }
        }
        named.push(scope);
    }
    for _ in 0..conflicting(&named) {
        errors.push(field::invalid(PATH, list(quota, "spec.scopes").to_vec(), "conflicting scopes"));
    }
}

/// What a quota counts stays.
pub fn quota_update(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.scopes";
    let set =
        |quota: &Value| -> BTreeSet<String> { texts(quota, PATH).iter().map(|s| (*s).to_owned()).collect() };
    match set(new) == set(old) {
        true => Vec::new(),
        false => vec![field::invalid(PATH, list(new, PATH).to_vec(), "field is immutable")],
    }
}

fn types(range: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (i, limit) in list(range, "spec.limits").iter().enumerate() {
        let (kind, here) = (text(limit, "type"), format_args!("spec.limits[{i}].type"));
        let before = errors.len();
        rule(here, kind, names::qualified_name_errors, errors);
        let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if errors.len() == before && !kind.contains('/') && !standard {
            let why = "must be a standard limit type or fully qualified";
            errors.push(field::invalid(here, kind, why));
        }
        if !seen.insert(kind) {
            errors.push(field::duplicate(here, kind));
        }
    }
}

fn limit(limit: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let kind = text(limit, "type");
    let mut resources = BTreeSet::new();
    for part in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let given = at(limit, part).and_then(Value::as_object).filter(|given| !given.is_empty());
        let Some(given) = given else { continue };
        if kind == "Pod" && part.starts_with("default") {
            let why = "may not be specified when `type` is 'Pod'";
            errors.push(field::forbidden(format_args!("{path}{part}"), why));
            continue;
        }
        for (name, _) in given.iter() {
            let here = format_args!("{path}{part}[{name}]");
            match kind {
                "Pod" | "Container" => amounts::container_resource_name(name, here, errors),
                _ => amounts::resource_name(name, here, errors),
            }
            resources.insert(name.as_str());
        }
    }
    let bounds_storage = |part: &str| at(limit, part).and_then(|given| given.get("storage")).is_some();
    if kind == "PersistentVolumeClaim" && !bounds_storage("min") && !bounds_storage("max") {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(field::required(format_args!("{path}limits"), why));
    }
    for name in resources {
        amounts_agree(limit, name, kind, path, errors);
    }
}

/// An amount of a limit, as it is shown and as it is.
type Amount<'a> = Option<(&'a str, Quantity)>;

fn amounts_agree(limit: &Value, name: &str, kind: &str, path: Place<'_>, errors: &mut Vec<Cause>) {
    let amount = |part: &str| -> Amount<'_> {
        let shown = at(limit, part).and_then(|given| given.get(name)).and_then(Value::as_str)?;
        Some((shown, Quantity::parse(shown).ok()?))
    };
    let of_containers = |part: &str| amount(part).filter(|_| kind != "Pod");
    let (least, most) = (amount("min"), amount("max"));
    let (default, request) = (of_containers("default"), of_containers("defaultRequest"));
    // The smaller one, the larger one, their names, the field that is named, the value that is shown.
    let rows: [(Amount<'_>, Amount<'_>, &str, &str, &str, Amount<'_>); 6] = [
        (least, most, "min value", "max value", "min", least),
        (least, request, "min value", "default request value", "defaultRequest", request),
        (request, most, "default request value", "max value", "defaultRequest", request),
        (request, default, "default request value", "default limit value", "defaultRequest", request),
        (least, default, "min value", "default value", "default", least),
        (default, most, "default value", "max value", "default", most),
    ];
    for (smaller, larger, first, second, part, shown) in rows {
        let (Some((small, a)), Some((large, b))) = (smaller, larger) else { continue };
        if a > b {
            let why = format!("{first} {small} is greater than {second} {large}");
            let shown = shown.map_or("", |(text, _)| text);
            errors.push(field::invalid(format_args!("{path}{part}[{name}]"), shown, &why));
        }
    }
    let here = format_args!("{path}maxLimitRequestRatio[{name}]");
    if let Some((shown, ratio)) = amount("maxLimitRequestRatio") {
        if ratio < Quantity::of_int(1) {
            errors.push(field::invalid(here, shown, &format!("ratio {shown} is less than 1")));
        }
        if let (Some((_, least)), Some((_, most))) = (least, most) {
            let highest = most.to_f64() / least.to_f64();
            if ratio.to_f64() > highest {
                let why = format!("ratio {shown} is greater than max/min = {highest:.6}");
                errors.push(field::invalid(here, shown, &why));
            }
        }
    }
    if let (Some((shown, a)), Some((asked, b))) = (default, request) {
        let may_exceed = amounts::is_native(name) && !amounts::is_huge(name);
        if !may_exceed && a != b {
            let why = format!("default value {shown} must equal to defaultRequest value {asked} in {name}");
            errors.push(field::invalid(format_args!("{path}defaultRequest[{name}]"), asked, &why));
        }
    }
}
