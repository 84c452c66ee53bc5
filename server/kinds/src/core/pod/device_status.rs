//! What the status of a pod has about its devices: claims that were made for it, extended resources that are
//! backed by one, and the health of what its containers have (kubernetes `pkg/apis/core/validation`).

use std::collections::{HashMap, HashSet};

use plinth_codec::{names, Value};

use crate::checks::Part;
use crate::path::{at, list, text};

/// Validates the claims of the pod.
pub(crate) fn claims(pod: &Part<'_>) {
    let known: HashSet<&str> =
        pod.list("spec.resourceClaims").iter().map(|claim| text(claim, "name")).collect();
    let mut seen = HashSet::new();
    for status in pod.each("status.resourceClaimStatuses") {
        let name = status.text("name");
        if !known.contains(name) {
            status.invalid("name", name, "must match the name of an entry in `spec.resourceClaims`");
        }
        status.unique("name", name, &mut seen);
        if let Some(claim) = status.set_text("resourceClaimName") {
            status.check_text("resourceClaimName", claim, names::dns1123_subdomain_errors);
        }
    }
    if let Some(extended) = pod.get("status.extendedResourceClaimStatus") {
        extended_resources(&extended, pod);
    }
}

/// Validates the claim that stands for extended resources.
fn extended_resources(status: &Part<'_>, pod: &Part<'_>) {
    const MAPPINGS: &str = "requestMappings";
    const NO_RESOURCE: &str = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
    const NO_CONTAINER: &str =
        "must match the name of an entry in spec.initContainers.name or spec.containers.name";
    const KEY: [&str; 3] = ["containerName", "resourceName", "requestName"];
    let named =
        |containers| pod.list(containers).iter().map(|container| (text(container, "name"), container));
    let containers: HashMap<&str, &Value> =
        named("spec.initContainers").chain(named("spec.containers")).collect();
    if status.list(MAPPINGS).is_empty() {
        status.required(MAPPINGS, "at least one request mapping is required");
    }
    let mut seen = HashSet::new();
    for mapping in status.each(MAPPINGS) {
        let key @ [container, resource, request] = KEY.map(|member| mapping.text(member));
        match containers.get(container) {
            None => mapping.invalid("containerName", container, NO_CONTAINER),
            Some(container) if requests(container).all(|name| name != resource) => {
                mapping.invalid("resourceName", resource, NO_RESOURCE);
            }
            Some(_) => {}
        }
        status.check_text("requestName", request, names::dns1123_label_errors);
        if !seen.insert(key) {
            KEY.into_iter().zip(key).for_each(|(member, value)| mapping.duplicate(member, value));
        }
    }
    status.required_text("resourceClaimName", "", names::dns1123_subdomain_errors);
}

/// The names of the resources that a container requests.
fn requests(container: &Value) -> impl Iterator<Item = &str> {
    let requests = at(container, "resources.requests").and_then(Value::as_object);
    requests.into_iter().flat_map(|requests| requests.keys().map(|name| name.as_str()))
}

/// Validates the health of what the containers have; ephemeral ones have nothing.
pub(crate) fn health(pod: &Part<'_>) {
    for (statuses, containers) in [
        ("status.containerStatuses", "spec.containers"),
        ("status.initContainerStatuses", "spec.initContainers"),
    ] {
        let containers: HashMap<&str, &Value> =
            pod.list(containers).iter().rev().map(|container| (text(container, "name"), container)).collect();
        for status in pod.each(statuses) {
            for allocated in status.each("allocatedResourcesStatus") {
                // Upstream lets statuses of unknown containers pass.
                if let Some(container) = containers.get(status.text("name")) {
                    allocated_name(&allocated, container);
                }
                devices(&allocated);
            }
        }
    }
    for status in pod.each("status.ephemeralContainerStatuses") {
        if !status.is_empty("allocatedResourcesStatus") {
            status.forbidden("allocatedResourcesStatus", "must not be specified in container status");
        }
    }
}

/// A resource that the container requests, or a claim that it refers to.
fn allocated_name(allocated: &Part<'_>, container: &Value) {
    const NO_CLAIM: &str = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
    const NO_REQUEST: &str = "must match one of the container's resource requests";
    let name = allocated.text("name");
    let (found, why) = match name.strip_prefix("claim:") {
        Some(claim) => {
            let is_it = |known: &Value| match text(known, "request") {
                "" => claim == text(known, "name"),
                request => {
                    claim.strip_suffix(request).and_then(|claim| claim.strip_suffix('/'))
                        == Some(text(known, "name"))
                }
            };
            (list(container, "resources.claims").iter().any(is_it), NO_CLAIM)
        }
        None => (requests(container).any(|known| known == name), NO_REQUEST),
    };
    if !found {
        allocated.invalid("name", name, why);
    }
}

/// The health of each device.
fn devices(allocated: &Part<'_>) {
    /// Maximum length of a message in bytes.
    const MAX_MESSAGE: usize = 1024;
    let mut seen = HashSet::new();
    for device in allocated.each("resources") {
        device.one_of("health", &["Healthy", "Unhealthy", "Unknown"]);
        match device.set_text("message") {
            Some("") => device.required("message", "must be non-empty if specified"),
            Some(message) => device.at_most_bytes("message", message, MAX_MESSAGE),
            None => {}
        }
        device.unique("resourceID", device.text("resourceID"), &mut seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ErrorList;
    use plinth_codec::json;

    #[test]
    fn health_and_claims_belong_to_what_the_pod_asks_for() {
        const SPEC: &str = r#"{"resourceClaims":[{"name":"g"}],
            "containers":[{"name":"c","resources":{"requests":{"x.io/g":"1"},"claims":[{"name":"g"},{"name":"g","request":"r"}]}}],
            "initContainers":[{"name":"i"}]}"#;
        let statuses = |of: &str, name: &str, allocated: &str| {
            format!(r#""{of}":[{{"name":"{name}","allocatedResourcesStatus":[{allocated}]}}]"#)
        };
        // status, errors as `PATH REASON`
        let rows: [(String, &[&str]); 9] = [
            (
                statuses("containerStatuses", "c", r#"{"name":"x.io/g"},{"name":"claim:g"},{"name":"claim:g/r"},{"name":"claim:g/s"},{"name":"cpu"}"#),
                &[
                    "containerStatuses[0].allocatedResourcesStatus[3].name Invalid",
                    "containerStatuses[0].allocatedResourcesStatus[4].name Invalid",
                ],
            ),
            (statuses("containerStatuses", "unknown", r#"{"name":"cpu"}"#), &[]),
            (
                statuses("initContainerStatuses", "i", r#"{"name":"cpu"}"#),
                &["initContainerStatuses[0].allocatedResourcesStatus[0].name Invalid"],
            ),
            (
                statuses("containerStatuses", "c", r#"{"name":"x.io/g","resources":[{"resourceID":"a","health":"Healthy","message":"m"},{"resourceID":"a","health":"X","message":""}]}"#),
                &[
                    "containerStatuses[0].allocatedResourcesStatus[0].resources[1].health NotSupported",
                    "containerStatuses[0].allocatedResourcesStatus[0].resources[1].message Required",
                    "containerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID Duplicate",
                ],
            ),
            (
                statuses("ephemeralContainerStatuses", "e", r#"{"name":"cpu"}"#),
                &["ephemeralContainerStatuses[0].allocatedResourcesStatus Forbidden"],
            ),
            (
                r#""resourceClaimStatuses":[{"name":"g","resourceClaimName":"A"},{"name":"g"},{"name":"h"}]"#.into(),
                &[
                    "resourceClaimStatuses[0].resourceClaimName Invalid",
                    "resourceClaimStatuses[1].name Duplicate",
                    "resourceClaimStatuses[2].name Invalid",
                ],
            ),
            (
                r#""extendedResourceClaimStatus":{}"#.into(),
                &[
                    "extendedResourceClaimStatus.requestMappings Required",
                    "extendedResourceClaimStatus.resourceClaimName Required",
                ],
            ),
            (
                r#""extendedResourceClaimStatus":{"resourceClaimName":"n","requestMappings":[{"containerName":"c","resourceName":"x.io/g","requestName":"r"}]}"#.into(),
                &[],
            ),
            (
                r#""extendedResourceClaimStatus":{"resourceClaimName":"N","requestMappings":[{"containerName":"c","resourceName":"cpu","requestName":"R"},{"containerName":"d","requestName":"r"},{"containerName":"d","requestName":"r"}]}"#.into(),
                &[
                    "extendedResourceClaimStatus.requestMappings[0].resourceName Invalid",
                    "extendedResourceClaimStatus.requestName Invalid",
                    "extendedResourceClaimStatus.requestMappings[1].containerName Invalid",
                    "extendedResourceClaimStatus.requestMappings[2].containerName Invalid",
                    "extendedResourceClaimStatus.requestMappings[2].containerName Duplicate",
                    "extendedResourceClaimStatus.requestMappings[2].resourceName Duplicate",
                    "extendedResourceClaimStatus.requestMappings[2].requestName Duplicate",
                    "extendedResourceClaimStatus.resourceClaimName Invalid",
                ],
            ),
        ];
        for (status, expected) in rows {
            let pod = json::parse(format!(r#"{{"spec":{SPEC},"status":{{{status}}}}}"#).as_bytes()).unwrap();
            let errors = ErrorList::of(&pod, |pod| {
                claims(pod);
                health(pod);
            });
            let short = |error: &plinth_api::Cause| {
                let path = error.field.trim_start_matches("status.");
                format!("{path} {}", error.reason.trim_start_matches("FieldValue"))
            };
            assert_eq!(errors.iter().map(short).collect::<Vec<_>>(), expected, "{status}");
        }
    }
}
