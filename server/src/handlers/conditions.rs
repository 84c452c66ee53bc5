//! Conditions in a status: set by type, with the time of their last change.

use plinth_codec::time::Timestamp;
use plinth_codec::{tree, Map, Value};

fn now() -> Value {
    Timestamp::now().to_rfc3339().into()
}

/// Sets `condition` in `status.conditions`; the time of its last change moves when its status does.
fn set(object: &mut Value, mut condition: Map) {
    let Some(status) = object.object_at_mut(&["status"]) else { return };
    let list = status.entry("conditions");
    if list.as_array().is_none() {
        *list = Value::from(Vec::new());
    }
    let Some(list) = list.as_array_mut() else { return };
    let kind = condition.get("type").cloned();
    match list.iter_mut().find(|c| c.get("type") == kind.as_ref()) {
        Some(present) => {
            let unchanged = present.get("status") == condition.get("status");
            if let (true, Some(since)) = (unchanged, present.get("lastTransitionTime")) {
                condition.insert("lastTransitionTime", since.clone());
            }
            if let Some(present) = present.as_object_mut() {
                for (key, value) in condition.iter() {
                    present.insert(key.clone(), value.clone());
                }
            }
        }
        None => list.push(Value::Object(condition)),
    }
}

/// Sets a condition of a pod (`PodCondition`); empty texts are left out.
pub(super) fn set_pod_condition(pod: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let mut condition = Map::new();
    condition.insert("type", kind);
    condition.insert("status", status);
    condition.insert("lastProbeTime", Value::Null);
    condition.insert("lastTransitionTime", now());
    for (key, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition.insert(key, text);
        }
    }
    set(pod, condition);
}

/// Sets a `metav1.Condition` with an empty message.
pub(super) fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, generation: i64) {
    let condition = tree!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": now(),
    });
    if let Value::Object(condition) = condition {
        set(object, condition);
    }
}

/// The condition of that type.
pub(super) fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let list = object.at(&["status", "conditions"]).and_then(Value::as_array)?;
    list.iter().find(|c| c.str_at(&["type"]) == Some(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let mut pod = json::parse(
            br#"{"status":{"conditions":[{"type":"A","status":"True","lastTransitionTime":"then"},{"type":"B","status":"False","lastTransitionTime":"then"}]}}"#,
        )
        .unwrap();
        for kind in ["A", "B", "C"] {
            set_pod_condition(&mut pod, kind, "True", "Why", "");
        }
        let since = |kind| find(&pod, kind).and_then(|c| c.str_at(&["lastTransitionTime"])).unwrap();
        assert_eq!(since("A"), "then");
        assert_ne!(since("B"), "then");
        assert_ne!(since("C"), "then");
        assert_eq!(find(&pod, "A").and_then(|c| c.str_at(&["reason"])), Some("Why"));
    }
}
