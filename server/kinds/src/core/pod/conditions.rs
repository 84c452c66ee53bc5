//! Conditions of a pod, which have a time of the last probe beside what all conditions have.

use plinth_api::conditions;
use plinth_codec::Value;

/// Sets a `PodCondition`; empty texts are left out.
pub fn set_condition(pod: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let mut condition = conditions::condition(kind, status, reason, message);
    condition.insert("lastProbeTime", Value::Null);
    for (key, text) in [("reason", reason), ("message", message)] {
        if text.is_empty() {
            condition.remove(key);
        }
    }
    conditions::put(pod, condition);
}
