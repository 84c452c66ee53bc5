//! `PodTopologyLabels`: copies the zone and region labels of the node to a pod when it is bound.
//!
//! Upstream: kubernetes `plugin/pkg/admission/podtopologylabels`.

use plinth_codec::Value;

use super::call::Call;
use plinth_api::ApiError;
use plinth_storage::decode_object;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Copies the labels into a binding, or into a pod that is created with its node.
///
/// # Errors
/// When the node cannot be read.
pub(super) async fn admit(call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
    let binding = object.str_at(&["kind"]) == Some("Binding");
    let node = match binding {
        true if object.str_at(&["target", "kind"]) != Some("Node") => None,
        true => object.str_at(&["target", "name"]),
        false => object.str_at(&["spec", "nodeName"]),
    };
    let Some(node) = node.filter(|node| !node.is_empty()) else { return Ok(()) };
    let nodes = call.cx.registry.internal("", "v1", "nodes").ok_or_else(ApiError::no_such_resource)?;
    let Some(form) = &nodes.storage else { return Ok(()) };
    // An invalid name has no node.
    let Some(record) = call.cx.stored(form, "", node).await? else { return Ok(()) };
    let node = decode_object(nodes, &record)?;
    for key in LABELS {
        let Some(value) = node.str_at(&["metadata", "labels", key]) else { continue };
        if let Some(labels) = object.object_at_mut(&["metadata", "labels"]) {
            labels.insert(key, value);
        }
    }
    Ok(())
}
