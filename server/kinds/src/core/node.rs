//! Nodes: what their objects can no longer say.

use plinth_codec::Value;

/// Configuration of kubelets from ConfigMaps is gone: a new node has none.
pub fn prepare_for_create(node: &mut Value) {
    if let Some(spec) = node.object_at_mut(&["spec"]) {
        spec.remove("configSource");
    }
    if let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("config");
    }
}

/// A node keeps the configuration that it had, and gets none.
pub fn prepare_for_update(node: &mut Value, old: &Value) {
    if old.at(&["spec", "configSource"]).is_none() {
        if let Some(spec) = node.object_at_mut(&["spec"]) {
            spec.remove("configSource");
        }
    }
}
