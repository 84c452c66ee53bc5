//! Namespaces carry the finalizer of their lifecycle from birth.

use plinth_codec::{tree, Value};

/// The finalizer and the label of a new namespace.
pub fn prepare_for_create(object: &mut Value) {
    if let Some(spec) = object.object_at_mut(&["spec"]) {
        spec.insert("finalizers", tree!(["kubernetes"]));
    }
    if let Some(status) = object.object_at_mut(&["status"]) {
        *status = plinth_codec::Map::new();
        status.insert("phase", "Active");
    }
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default().to_owned();
    if let Some(labels) = object.object_at_mut(&["metadata", "labels"]) {
        labels.insert("kubernetes.io/metadata.name", name);
    }
}
