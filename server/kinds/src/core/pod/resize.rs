//! The subresource `pods/resize`.

use plinth_codec::quantity::Quantity;
use plinth_codec::{Map, Value};
use smol_str::SmolStr;

use crate::checks::Part;
use crate::core::pod::qos::quality_of_service;
use crate::core::pod::subresources::{is_static, name, old_with_write};
use crate::path::list;

/// Resets everything but pod-level resources and the resources and resize policies of containers.
pub(crate) fn prepare(new: &mut Value, old: &Value) {
    let mut kept = old_with_write(new, old);
    if let Some(spec) = kept.object_at_mut(&["spec"]) {
        match new.at(&["spec", "resources"]) {
            Some(resources) => spec.insert("resources", resources.clone()),
            None => spec.remove("resources"),
        };
    }
    for part in ["containers", "initContainers"] {
        let wanted = new.list_at(&["spec", part]);
        // Containers that were added, removed or reordered are left for validation to refuse.
        let same = wanted.len() == old.list_at(&["spec", part]).len()
            && wanted.iter().zip(old.list_at(&["spec", part])).all(|(a, b)| name(a) == name(b));
        if !same {
            if let Some(spec) = kept.object_at_mut(&["spec"]) {
                spec.insert(part, wanted.to_vec());
            }
            continue;
        }
        let containers = kept.get_mut("spec").and_then(|s| s.get_mut(part)).and_then(Value::as_array_mut);
        for (container, wanted) in containers.into_iter().flatten().zip(wanted) {
            let Some(container) = container.as_object_mut() else { continue };
            for key in ["resources", "resizePolicy"] {
                match wanted.get(key) {
                    Some(value) => container.insert(key, value.clone()),
                    None => container.remove(key),
                };
            }
        }
    }
    *new = kept;
}

const IMMUTABLE: &str = "only cpu and memory resources are mutable";

/// Errors of a resize after [`prepare`], when only resources and resize policies can differ (kubernetes
/// `pkg/apis/core/validation`, `ValidatePodResize`).
pub(crate) fn validate(pod: &Part<'_>, old: &Value) {
    if is_static(old) {
        pod.forbidden("", "static pods cannot be resized");
        return;
    }
    if old.str_at(&["spec", "os", "name"]) == Some("windows") {
        pod.forbidden("", "windows pods cannot be resized");
        return;
    }
    let new = pod.value();
    let class = quality_of_service(old);
    if quality_of_service(new) != class {
        pod.invalid("spec", class, "Pod QOS Class may not change as a result of resizing");
    }
    let running = old.list_at(&["status", "containerStatuses"]);
    let running =
        running.iter().find(|status| status.at(&["state", "running"]).is_some_and(|r| !r.is_null()));
    if running.is_some_and(|status| status.get("resources").is_none_or(Value::is_null)) {
        pod.forbidden("spec", "Pod running on node without support for resize");
    }
    let [now, before] = [new, old].map(|pod| pod.at(&["spec", "resources"]).filter(|r| !r.is_null()));
    let has_amounts =
        |resources: &&Value| amounts(resources, "requests").chain(amounts(resources, "limits")).count() > 0;
    match now.iter().chain(&before).any(has_amounts) {
        true => pod_resources(pod, now, before),
        false if now != before => pod.forbidden("spec", IMMUTABLE),
        false => {}
    }
    if !old.list_at(&["status", "nodeAllocatableResourceClaimStatuses"]).is_empty() {
        pod.forbidden("spec", "pods with node allocatable resource claims cannot be resized");
    }
    let before_order = pod.errors();
    order(pod, old);
    if pod.errors() > before_order {
        return;
    }
    let pairs = |part: &'static str| pod.each(part).zip(list(old, part));
    for part in ["spec.initContainers", "spec.containers"] {
        for (now, before) in pairs(part) {
            for amounts in ["requests", "limits"] {
                if is_removed(now.at("resources"), before.get("resources"), amounts) {
                    let why = format!("resource {amounts} cannot be removed");
                    now.forbidden(format_args!("resources.{amounts}"), &why);
                }
            }
        }
    }
    let policy = |container: &Value| container.list_at(&["resizePolicy"]).to_vec();
    let is_fixed = |now: &Value, before: &Value| {
        let others = |container: &Value| container.get("resources").map(fixed_resources).unwrap_or_default();
        others(now) == others(before) && policy(now) == policy(before)
    };
    for _ in pairs("spec.containers").filter(|(now, before)| !is_fixed(now.value(), before)) {
        pod.forbidden("spec", IMMUTABLE);
    }
    for (now, before) in pairs("spec.initContainers") {
        if !is_fixed(now.value(), before) {
            now.forbidden("", "only cpu and memory resources for init or sidecar containers are mutable");
        }
        if now.value() != before && now.text("restartPolicy") != "Always" {
            let restarts = |policy: &Part<'_>| policy.text("restartPolicy") == "RestartContainer";
            for _ in now.each("resizePolicy").filter(restarts) {
                let why =
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                now.forbidden("", why);
            }
        }
    }
}

/// Pod-level resources (`validatePodLevelResourcesResize`).
fn pod_resources(pod: &Part<'_>, new: Option<&Value>, old: Option<&Value>) {
    if old.is_some() && new.is_none() {
        pod.forbidden("spec.resources", "pod-level resources cannot be removed");
        return;
    }
    for amounts in ["requests", "limits"] {
        if is_removed(new, old, amounts) {
            let why = format!("pod-level resource {amounts} cannot be removed");
            pod.forbidden(format_args!("spec.resources.{amounts}"), &why);
        }
    }
    let fixed = |resources: Option<&Value>| resources.map(fixed_resources).unwrap_or_default();
    if fixed(new) != fixed(old) {
        pod.forbidden("spec", "only cpu and memory resources are mutable at pod-level");
    }
}

/// Reports containers that were added, removed or reordered.
fn order(pod: &Part<'_>, old: &Value) {
    let spec = pod.field("spec");
    for part in ["containers", "initContainers"] {
        let before = old.list_at(&["spec", part]);
        if spec.list(part).len() != before.len() {
            spec.forbidden(part, &format!("{part} may not be added or removed on resize"));
            continue;
        }
        let why = format!("{part} may not be renamed or reordered on resize");
        for (now, _) in spec.each(part).zip(before).filter(|(now, before)| now.text("name") != name(before)) {
            now.forbidden("name", &why);
        }
    }
}

fn amounts<'a>(resources: &'a Value, part: &str) -> impl Iterator<Item = (&'a SmolStr, &'a Value)> {
    resources.get(part).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// The part of resources that a resize cannot change: everything but quantities of CPU and memory.
#[derive(Default, PartialEq)]
struct FixedResources {
    amounts: Vec<(&'static str, SmolStr, SmolStr)>,
    claims: Vec<Value>,
}

fn fixed_resources(resources: &Value) -> FixedResources {
    let mut fixed =
        FixedResources { claims: resources.list_at(&["claims"]).to_vec(), ..FixedResources::default() };
    for part in ["requests", "limits"] {
        let others = amounts(resources, part).filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"));
        fixed.amounts.extend(others.map(|(name, amount)| {
            let amount = amount.as_str().unwrap_or_default();
            (part, name.clone(), Quantity::canonicalize(amount).unwrap_or_else(|_| amount.into()))
        }));
    }
    fixed
}

/// Whether the quantity of some resource was removed (`resourcesRemoved`).
fn is_removed(new: Option<&Value>, old: Option<&Value>, part: &str) -> bool {
    let before = old.into_iter().flat_map(|resources| amounts(resources, part));
    before.map(|(name, _)| name).any(|name| new.is_none_or(|new| new.at(&[part, name]).is_none()))
}
