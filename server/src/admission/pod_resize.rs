//! `NodeDeclaredFeatureValidator` and `PodResizeValidator`: a pod that runs is changed only as its node
//! allows.
//!
//! Upstream: kubernetes `plugin/pkg/admission/nodedeclaredfeatures` and `podresize`.

use plinth_codec::Value;

use super::call::Call;
use super::resource_list::{self, ResourceList, Total};
use plinth_api::{ApiError, Cause};
use plinth_codec::quantity::Quantity;
use plinth_storage::decode_object;

/// The node of a pod whose specification changes; `None` for others.
async fn node_of(call: &Call<'_>, pod: &Value) -> Result<Option<Value>, ApiError> {
    let Some(old) = call.request.old else { return Ok(None) };
    let name = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
    if name.is_empty() || pod.get("spec") == old.get("spec") {
        return Ok(None);
    }
    let nodes = call.cx.registry.internal("", "v1", "nodes").ok_or_else(ApiError::no_such_resource)?;
    let Some(form) = &nodes.storage else { return Ok(None) };
    match call.cx.stored(form, "", name).await? {
        Some(record) => decode_object(nodes, &record).map(Some),
        None => Err(call.forbidden(pod, &format!("node {name:?} not found"))),
    }
}

fn text<'v>(object: &'v Value, path: &[&str]) -> &'v str {
    object.str_at(path).unwrap_or_default()
}

/// Refuses changes that need features of the kubelet which its node does not declare.
///
/// # Errors
/// 403.
pub(super) async fn check_features(call: &Call<'_>, pod: &Value) -> Result<(), ApiError> {
    let required = match call.request.old {
        Some(old) => required_features(pod, old),
        None => Vec::new(),
    };
    if required.is_empty() {
        return Ok(());
    }
    let Some(node) = node_of(call, pod).await? else { return Ok(()) };
    let declared = node.list_at(&["status", "declaredFeatures"]);
    let is_missing = |feature: &&str| !declared.iter().any(|declared| declared.as_str() == Some(*feature));
    let missing: Vec<&str> = required.into_iter().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (features, node) = (missing.join(", "), text(&node, &["metadata", "name"]));
    let why = format!("pod update requires features {features} which are not available on node {node:?}");
    Err(call.forbidden(pod, &why))
}

/// What a change of a pod needs of its node, by name.
fn required_features(pod: &Value, old: &Value) -> Vec<&'static str> {
    let mut required = Vec::new();
    let resources =
        |pod: &Value| ["requests", "limits"].map(|part| ResourceList::of(pod.at(&["resources", part])));
    let of_pod = |pod: &Value| pod.get("spec").map(resources);
    if of_pod(pod) != of_pod(old) {
        required.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let pairs = old.list_at(&["spec", "initContainers"]).iter().zip(pod.list_at(&["spec", "initContainers"]));
    let is_resized = |(old, new): (&Value, &Value)| {
        text(old, &["restartPolicy"]) != "Always" && resources(old) != resources(new)
    };
    if pairs.into_iter().any(is_resized) {
        required.push("InPlacePodVerticalScalingInitContainers");
    }
    required
}

/// Refuses a resize to more than the node has, and on nodes of other systems.
///
/// # Errors
/// 403.
pub(super) async fn check_node(call: &Call<'_>, pod: &Value) -> Result<(), ApiError> {
    let Some(node) = node_of(call, pod).await? else { return Ok(()) };
    let refused = |why: &str, reason: &'static str| {
        let cause = Cause { reason, message: String::new(), field: String::new() };
        call.forbidden(pod, why).with_causes(vec![cause])
    };
    let system = node.str_at(&["metadata", "labels", "kubernetes.io/os"]);
    if let Some(system) = system.filter(|system| *system != "linux") {
        let node = text(&node, &["metadata", "name"]);
        let why = format!("pod resize is only supported on linux nodes, node {node:?} is {system:?}");
        return Err(refused(&why, "UnsupportedPlatform"));
    }
    match too_much(pod, &node) {
        None => Ok(()),
        Some(why) => {
            let why = format!("node didn't have enough allocatable resources: {why}");
            Err(refused(&why, "NodeCapacity"))
        }
    }
}

/// What a pod requests above what its node has.
fn too_much(pod: &Value, node: &Value) -> Option<String> {
    let requests = resource_list::of_pod(pod, "requests", Total::WithOverhead);
    let allocatable = ResourceList::of(node.at(&["status", "allocatable"]));
    let mut found = Vec::new();
    for (name, scale) in [("cpu", -3), ("memory", 0)] {
        let amount = |list: &ResourceList| list.get(name).unwrap_or(Quantity::ZERO);
        let (requested, available) = (amount(&requests), amount(&allocatable));
        if requested > available {
            let (requested, available) = (requested.value(scale), available.value(scale));
            found.push(format!("{name}, requested: {requested}, allocatable: {available}"));
        }
    }
    (!found.is_empty()).then(|| found.join("; "))
}

#[cfg(test)]
mod tests {
    use plinth_codec::json;

    use super::*;

    fn pod(spec: &str) -> Value {
        json::parse(format!("{{\"spec\":{spec}}}").as_bytes()).unwrap()
    }

    #[test]
    fn features_that_changes_need() {
        let old = r#"{"initContainers":[{"name":"i","resources":{"requests":{"cpu":"1"}}},{"name":"s","restartPolicy":"Always"}]}"#;
        for (new, features) in [
            (old.to_owned(), &[][..]),
            (old.replace(r#""cpu":"1""#, r#""cpu":"1000m""#), &[]),
            (old.replace(r#""cpu":"1""#, r#""cpu":"2""#), &["InPlacePodVerticalScalingInitContainers"]),
            (old.replace(r#""Always""#, r#""Always","resources":{"requests":{"cpu":"1"}}"#), &[]),
            (
                old.replacen('{', r#"{"resources":{"limits":{"cpu":"3"}},"#, 1),
                &["InPlacePodLevelResourcesVerticalScaling"],
            ),
        ] {
            assert_eq!(required_features(&pod(&new), &pod(old)), features, "{new}");
        }
    }

    #[test]
    fn requests_fit_the_node() {
        let node = json::parse(br#"{"status":{"allocatable":{"cpu":"2","memory":"1Ki"}}}"#).unwrap();
        let requests = |cpu: &str, memory: &str| {
            pod(&format!(
                r#"{{"containers":[{{"resources":{{"requests":{{"cpu":"{cpu}","memory":"{memory}"}}}}}}]}}"#
            ))
        };
        assert_eq!(too_much(&requests("2", "1Ki"), &node), None);
        let both = "cpu, requested: 2001, allocatable: 2000; memory, requested: 2048, allocatable: 1024";
        assert_eq!(too_much(&requests("2001m", "2Ki"), &node).as_deref(), Some(both));
    }
}
