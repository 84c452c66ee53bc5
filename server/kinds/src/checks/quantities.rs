//! Resource names, their quantities, and requests against limits.

use std::collections::{BTreeSet, HashSet};

use plinth_api::{Cause, MOST_ERRORS};
use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Value};

use crate::checks::Part;
use plinth_codec::tree;

pub(crate) use crate::checks::messages::NOT_NEGATIVE;

/// Whose resources are validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Container,
    /// A pod as a whole.
    Pod,
}

/// Standard resource names, which need no domain, of amounts.
const MEASURED: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
    "requests.storage",
];

/// Standard resource names of numbers of objects.
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
    MEASURED.contains(&name)
        || COUNTED.contains(&name)
        || name.starts_with("requests.hugepages-")
        || is_huge(name)
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
pub(crate) fn resource_name(name: &str, at: &Part<'_>) {
    let before = at.errors();
    at.check_text("", name, names::qualified_name_errors);
    if at.errors() == before && !name.contains('/') && !is_standard(name) {
        at.invalid("", name, "must be a standard resource type or fully qualified");
    }
}

/// Validates the name of a resource that containers can request.
pub(crate) fn container_resource_name(name: &str, at: &Part<'_>) {
    resource_name(name, at);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge(name) {
            at.invalid("", name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        at.invalid("", name, "doesn't follow extended resource name standard");
    }
}

/// Validates a quantity: not negative, and an integer for countable resources.
pub(crate) fn amount(name: &str, amount: &Part<'_>) {
    let shown = amount.text("");
    let Ok(parsed) = Quantity::parse(shown) else { return };
    if parsed.sign() < 0 {
        amount.invalid("", shown, NOT_NEGATIVE);
    }
    if (COUNTED.contains(&name) || is_extended(name)) && parsed.as_int().is_none() {
        amount.invalid("", shown, "must be an integer");
    }
}

/// Validates the quantity of a resource of a volume: not negative.
pub(crate) fn resource_quantity(given: &Part<'_>) {
    if let Some(amount) = Quantity::parse(given.text("")).ok().filter(|amount| amount.sign() < 0) {
        given.invalid("", amount.value(0), "must be a valid resource quantity");
    }
}

/// Validates requests and limits of a container or a pod.
pub(crate) fn requirements(resources: &Part<'_>, kind: Kind, claims: &BTreeSet<&str>) {
    for part in ["limits", "requests"] {
        for (name, given) in resources.entries(part) {
            match kind {
                Kind::Container => container_resource_name(name, &given),
                Kind::Pod => pod_resource_name(name, &given),
            }
            amount(name, &given);
            if part == "requests" {
                within_limit(name, given.text(""), resources);
            }
            huge_pages(name, &given);
        }
    }
    let has = |wanted: fn(&str) -> bool| {
        ["limits", "requests"]
            .into_iter()
            .flat_map(|part| resources.members(part))
            .any(|(name, _)| wanted(name))
    };
    if has(is_huge) && !has(|name| matches!(name, "cpu" | "memory")) {
        resources.forbidden("", "HugePages require cpu or memory");
    }
    claim_names(resources, claims);
}

/// Validates the overhead of a pod or a RuntimeClass as the limits of a container.
pub(crate) fn overhead(holder: &Part<'_>, key: &str) {
    if let Some(overhead) = holder.at(key) {
        let limits = tree!({ "limits": overhead.clone() });
        holder.with_value(&limits, "overhead", |limits| {
            requirements(limits, Kind::Container, &BTreeSet::new());
        });
    }
}

fn pod_resource_name(name: &str, at: &Part<'_>) {
    let before = at.errors();
    resource_name(name, at);
    if at.errors() == before && !matches!(name, "cpu" | "memory") && !is_huge(name) {
        at.not_supported("", name, &["cpu", "hugepages-", "memory"]);
    }
}

fn within_limit(name: &str, shown: &str, resources: &Part<'_>) {
    let may_exceed = is_native(name) && !is_huge(name);
    let limit = resources.at("limits").and_then(|limits| limits.get(name)).and_then(Value::as_str);
    let Some(limit) = limit else {
        if !may_exceed {
            resources.required("limits", "Limit must be set for non overcommitable resources");
        }
        return;
    };
    let (Ok(most), Ok(requested)) = (Quantity::parse(limit), Quantity::parse(shown)) else { return };
    let relation = match may_exceed {
        false if requested != most => "equal to",
        true if requested > most => "less than or equal to",
        _ => return,
    };
    resources.invalid("requests", shown, &format!("must be {relation} {name} limit of {limit}"));
}

/// A quantity of huge pages must be a multiple of the page size.
fn huge_pages(name: &str, amount: &Part<'_>) {
    let Some(size) = name.strip_prefix("hugepages-") else { return };
    let size = Quantity::parse(size).ok().and_then(|size| size.as_int()).filter(|size| *size > 0);
    let shown = amount.text("");
    let Ok(parsed) = Quantity::parse(shown) else { return };
    if size.is_none_or(|size| parsed.value(0) % size != 0) {
        amount.invalid("", shown, &format!("{shown} is not positive integer multiple of {name}"));
    }
}

/// Joins names for a message. Bounded, since many errors of one object may repeat the list.
fn listed(names: &BTreeSet<&str>) -> String {
    const MAX: usize = 100;
    let shown: Vec<&str> = names.iter().copied().take(MAX).collect();
    shown.join(", ") + if names.len() > MAX { ", ..." } else { "" }
}

fn claim_names(resources: &Part<'_>, known: &BTreeSet<&str>) {
    let mut seen: HashSet<String> = HashSet::new();
    // Claims that are referenced with a request.
    let mut in_part = HashSet::new();
    for claim in resources.each("claims") {
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            claim.required("", "");
            continue;
        }
        let key = match request {
            "" => name.to_owned(),
            request => {
                claim.check_text("request", request, names::dns1123_label_errors);
                in_part.insert(name);
                format!("{name}/{request}")
            }
        };
        let overlaps = request.is_empty() && in_part.contains(name);
        if seen.contains(name) {
            claim.duplicate("", name);
        } else if overlaps || !seen.insert(key.clone()) {
            claim.duplicate("", key);
        }
        if !known.contains(name) && claim.errors() < MOST_ERRORS {
            let mut error = Cause::not_found(claim.path(""), name);
            error.message += ": must be one of the names in pod.spec.resourceClaims";
            match known.is_empty() {
                true => error.message += " which is empty",
                false => error.message += &format!(": {}", listed(known)),
            }
            claim.push(error);
        }
    }
}
