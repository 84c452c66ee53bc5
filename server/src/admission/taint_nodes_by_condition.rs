//! `TaintNodesByCondition`: taints new nodes as not ready until their controller finds them ready.
//!
//! Upstream: kubernetes `plugin/pkg/admission/nodetaint`.

use plinth_codec::{tree, Value};

const KEY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

/// Adds the taint if it is missing.
pub(super) fn admit(node: &mut Value) {
    let Some(spec) = node.object_at_mut(&["spec"]) else { return };
    let mut taints = spec.get("taints").and_then(Value::as_array).unwrap_or_default().to_vec();
    let is_it = |t: &Value| t.str_at(&["key"]) == Some(KEY) && t.str_at(&["effect"]) == Some(EFFECT);
    if !taints.iter().any(is_it) {
        taints.push(tree!({ "key": KEY, "effect": EFFECT }));
        spec.insert("taints", taints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_is_there_once() {
        let mut node = tree!({ "spec": tree!({}) });
        admit(&mut node);
        admit(&mut node);
        assert_eq!(node.at(&["spec", "taints"]).and_then(Value::as_array).map(<[Value]>::len), Some(1));
    }
}
