//! `status.conditions`: find and set by type, with the time of the last transition.

use plinth_codec::time::Timestamp;
use plinth_codec::{Map, Value};

/// A condition of the given type, its last transition now.
pub fn new_condition(kind: &str, status: &str, reason: &str, message: &str) -> Map {
    let mut condition = Map::new();
    for (key, text) in [("type", kind), ("status", status), ("reason", reason), ("message", message)] {
        condition.insert(key, text);
    }
    condition.insert("lastTransitionTime", Timestamp::now().to_rfc3339());
    condition
}

/// Inserts or replaces a condition in an object's status; `lastTransitionTime` changes only with the status.
pub fn put_condition(object: &mut Value, mut condition: Map) {
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

/// Sets a condition of a kind whose conditions have no `observedGeneration`.
pub fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    put_condition(object, new_condition(kind, status, reason, message));
}

/// Sets a `metav1.Condition` with an empty message.
pub fn set_observed_condition(object: &mut Value, kind: &str, status: &str, reason: &str, generation: i64) {
    let mut condition = new_condition(kind, status, reason, "");
    condition.insert("observedGeneration", generation);
    put_condition(object, condition);
}

/// The condition of the given type.
pub fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let list = object.at(&["status", "conditions"]).and_then(Value::as_array)?;
    list.iter().find(|c| c.str_at(&["type"]) == Some(kind))
}

/// Whether the condition of the given type is `True`.
pub fn is_condition_true(object: &Value, kind: &str) -> bool {
    find_condition(object, kind).is_some_and(|c| c.str_at(&["status"]) == Some("True"))
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
            set_condition(&mut pod, kind, "True", "Why", "");
        }
        let since =
            |kind| find_condition(&pod, kind).and_then(|c| c.str_at(&["lastTransitionTime"])).unwrap();
        assert_eq!(since("A"), "then");
        assert_ne!(since("B"), "then");
        assert_ne!(since("C"), "then");
        assert_eq!(find_condition(&pod, "A").and_then(|c| c.str_at(&["reason"])), Some("Why"));
    }
}
