//! Resource names, their quantities, and requests against limits.

use std::collections::{BTreeSet, HashSet};

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Map, Value};

use crate::checks::check_text;
use crate::path::{list, text};

/// Whose resources are validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A container.
    Container,
    /// A pod as a whole.
    Pod,
}

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Standard resource names, which need no domain.
const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Whether a resource name is a standard one, which needs no domain.
pub(crate) fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("requests.hugepages-") || is_huge(name)
}

/// Whether the resource is huge pages of some size.
pub(crate) fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether the resource is native to Kubernetes (`IsNativeResource`).
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the resource is an extended resource (`IsExtendedResourceName`).
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name_errors(&format!("requests.{name}")).is_empty()
}

/// Validates a resource name: qualified, and with a domain unless it is a standard one.
pub(crate) fn resource_name(name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let before = errors.len();
    check_text(path, name, names::qualified_name_errors, errors);
    if errors.len() == before && !name.contains('/') && !is_standard(name) {
        let why = "must be a standard resource type or fully qualified";
        errors.push(field::invalid(path, name, why));
    }
}

/// Validates the name of a resource that containers can request.
pub(crate) fn container_resource_name(name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    resource_name(name, path, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge(name) {
            errors.push(field::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(field::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

/// Validates a quantity: not negative, and an integer for countable resources.
pub(crate) fn amount(name: &str, shown: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Ok(amount) = Quantity::parse(shown) else { return };
    if amount.sign() < 0 {
        errors.push(field::invalid(path, shown, NOT_NEGATIVE));
    }
    if (COUNTED.contains(&name) || is_extended(name)) && amount.as_int().is_none() {
        errors.push(field::invalid(path, shown, "must be an integer"));
    }
}

/// Validates requests and limits of a container or a pod; `path` is that of the requirements.
pub(crate) fn requirements(
    given: &Value,
    kind: Kind,
    claims: &BTreeSet<&str>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    let amounts = |part: &str| given.get(part).and_then(Value::as_object);
    for part in ["limits", "requests"] {
        for (name, shown) in amounts(part).into_iter().flat_map(Map::iter) {
            let here = format_args!("{path}.{part}[{name}]");
            match kind {
                Kind::Container => container_resource_name(name, here, errors),
                Kind::Pod => pod_resource_name(name, here, errors),
            }
            let shown = shown.as_str().unwrap_or_default();
            amount(name, shown, here, errors);
            if part == "requests" {
                within_limit(name, shown, amounts("limits"), path, errors);
            }
            huge_pages(name, shown, here, errors);
        }
    }
    let has = |wanted: fn(&str) -> bool| {
        let both = ["limits", "requests"].into_iter().filter_map(amounts);
        both.flat_map(Map::iter).any(|(name, _)| wanted(name))
    };
    if has(is_huge) && !has(|name| matches!(name, "cpu" | "memory")) {
        errors.push(field::forbidden(path, "HugePages require cpu or memory"));
    }
    claim_names(given, claims, path, errors);
}

fn pod_resource_name(name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let before = errors.len();
    resource_name(name, path, errors);
    if errors.len() == before && !matches!(name, "cpu" | "memory") && !is_huge(name) {
        errors.push(field::not_supported(path, name, &["cpu", "hugepages-", "memory"]));
    }
}

fn within_limit(name: &str, shown: &str, limits: Option<&Map>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let may_exceed = is_native(name) && !is_huge(name);
    let Some(limit) = limits.and_then(|limits| limits.get(name)).and_then(Value::as_str) else {
        if !may_exceed {
            let why = "Limit must be set for non overcommitable resources";
            errors.push(field::required(format_args!("{path}.limits"), why));
        }
        return;
    };
    let (Ok(most), Ok(asked)) = (Quantity::parse(limit), Quantity::parse(shown)) else { return };
    let relation = match may_exceed {
        false if asked != most => "equal to",
        true if asked > most => "less than or equal to",
        _ => return,
    };
    let why = format!("must be {relation} {name} limit of {limit}");
    errors.push(field::invalid(format_args!("{path}.requests"), shown, &why));
}

/// A quantity of huge pages must be a multiple of the page size.
fn huge_pages(name: &str, shown: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(size) = name.strip_prefix("hugepages-") else { return };
    let size = Quantity::parse(size).ok().and_then(|size| size.as_int()).filter(|size| *size > 0);
    let Ok(amount) = Quantity::parse(shown) else { return };
    if size.is_none_or(|size| amount.value(0) % size != 0) {
        let why = format!("{shown} is not positive integer multiple of {name}");
        errors.push(field::invalid(path, shown, &why));
    }
}

/// Joins names for a message. Bounded, since many errors of one object may repeat the list.
fn listed(names: &BTreeSet<&str>) -> String {
    const MAX: usize = 100;
    let shown: Vec<&str> = names.iter().copied().take(MAX).collect();
    shown.join(", ") + if names.len() > MAX { ", ..." } else { "" }
}

fn claim_names(given: &Value, known: &BTreeSet<&str>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen: HashSet<String> = HashSet::new();
    // Claims that are referenced with a request.
    let mut in_part = HashSet::new();
    for (i, claim) in list(given, "claims").iter().enumerate() {
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        let here = format_args!("{path}.claims[{i}]");
        if name.is_empty() {
            errors.push(field::required(here, ""));
            continue;
        }
        let key = match request {
            "" => name.to_owned(),
            request => {
                check_text(format_args!("{here}.request"), request, names::dns1123_label_errors, errors);
                in_part.insert(name);
                format!("{name}/{request}")
            }
        };
        let overlaps = request.is_empty() && in_part.contains(name);
        if seen.contains(name) {
            errors.push(field::duplicate(here, name));
        } else if overlaps || !seen.insert(key.clone()) {
            errors.push(field::duplicate(here, key));
        }
        if !known.contains(name) && errors.len() < field::MOST_ERRORS {
            let mut error = field::not_found(here, name);
            error.message += ": must be one of the names in pod.spec.resourceClaims";
            match known.is_empty() {
                true => error.message += " which is empty",
                false => error.message += &format!(": {}", listed(known)),
            }
            errors.push(error);
        }
    }
}
