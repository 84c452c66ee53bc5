//! Conditions of a pod, which have a time of the last probe beside what all conditions have.

use plinth_api::{new_condition, put_condition};
use plinth_codec::Value;

/// Sets a `PodCondition`; empty texts are left out.
pub fn set_condition(pod: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let mut condition = new_condition(kind, status, reason, message);
    condition.insert("lastProbeTime", Value::Null);
    for (key, text) in [("reason", reason), ("message", message)] {
        if text.is_empty() {
            condition.remove(key);
        }
    }
    put_condition(pod, condition);
}
