//! What the subresources of a pod that write a part of it share (kubernetes
//! `pkg/registry/core/pod/strategy.go`).

use plinth_codec::Value;

use crate::pod_template::MIRROR_ANNOTATION;

pub(crate) fn name(object: &Value) -> &str {
    object.str_at(&["name"]).unwrap_or_default()
}

/// The old object with the metadata of the write: `resourceVersion`, `uid` and `managedFields`.
pub(crate) fn old_with_write(new: &Value, old: &Value) -> Value {
    let mut kept = old.clone();
    if let Some(target) = kept.object_at_mut(&["metadata"]) {
        for key in ["resourceVersion", "uid", "managedFields"] {
            if let Some(value) = new.at(&["metadata", key]) {
                target.insert(key, value.clone());
            }
        }
    }
    kept
}

pub(crate) fn is_static(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", MIRROR_ANNOTATION]).is_some()
}
