//! `Priority`: sets a pod's priority and preemption policy from its PriorityClass; allows one default class.
//!
//! Upstream: kubernetes `plugin/pkg/admission/priority`.

use std::sync::Arc;

use plinth_codec::Value;

use super::call::Call;
use plinth_api::{metadata_text, ApiError};
use plinth_apiserver::context::Operation;
use plinth_storage::ObjectCache;

/// Sets priority and preemption policy of a new pod, and keeps them on an update that omits them.
///
/// # Errors
/// 403 for an unknown class, or values that differ from the class.
pub(super) async fn admit_pod(
    call: &Call<'_>,
    classes: &ObjectCache,
    pod: &mut Value,
) -> Result<(), ApiError> {
    if call.operation == Operation::Update {
        keep_old_values(call.old, pod);
        return Ok(());
    }
    let class = class_of(call, classes, pod).await?;
    let refused = apply_class(pod, class.as_deref());
    refused.map_err(|why| call.forbidden(pod, &why))
}

fn keep_old_values(old: Option<&Value>, pod: &mut Value) {
    for key in ["priority", "preemptionPolicy"] {
        let before = old.and_then(|old| old.at(&["spec", key])).filter(|v| !v.is_null());
        let absent = pod.at(&["spec", key]).is_none_or(Value::is_null);
        if let (Some(before), true, Some(spec)) = (before, absent, pod.object_at_mut(&["spec"])) {
            spec.insert(key, before.clone());
        }
    }
}

/// The PriorityClass of the pod, or the default one.
async fn class_of(
    call: &Call<'_>,
    classes: &ObjectCache,
    pod: &Value,
) -> Result<Option<Arc<Value>>, ApiError> {
    let server = &call.cx.server;
    let name = pod.str_at(&["spec", "priorityClassName"]).unwrap_or_default();
    if name.is_empty() {
        return Ok(default_class(&classes.objects(&server.store, "").await?));
    }
    match classes.object(&server.store, name).await? {
        Some(class) => Ok(Some(class)),
        None => Err(call.forbidden(pod, &format!("no PriorityClass with name {name} was found"))),
    }
}

/// Of several default classes the one with the lowest value.
fn default_class(classes: &[Arc<Value>]) -> Option<Arc<Value>> {
    let defaults = classes.iter().filter(|c| c.get("globalDefault").and_then(Value::as_bool) == Some(true));
    defaults.min_by_key(|class| value(class)).cloned()
}

fn value(class: &Value) -> i64 {
    class.get("value").and_then(Value::as_int).unwrap_or(0)
}

fn apply_class(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let priority = class.map_or(0, value);
    let policy = match class {
        Some(class) => class.str_at(&["preemptionPolicy"]).map(str::to_owned),
        None => Some("PreemptLowerPriority".to_owned()),
    };
    let Some(spec) = pod.object_at_mut(&["spec"]) else { return Ok(()) };
    if let Some(class) = class {
        spec.insert("priorityClassName", metadata_text(class, "name"));
    }
    if let Some(given) = spec.get("priority").and_then(Value::as_int).filter(|given| *given != priority) {
        return Err(format!("the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"));
    }
    spec.insert("priority", priority);
    let Some(policy) = policy else { return Ok(()) };
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str).filter(|given| *given != policy)
    {
        return Err(format!("the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"));
    }
    spec.insert("preemptionPolicy", policy);
    Ok(())
}

/// Denies a second default class.
///
/// # Errors
/// 403 where another class is the global default.
pub(super) async fn validate_class(
    call: &Call<'_>,
    classes: &ObjectCache,
    class: &Value,
) -> Result<(), ApiError> {
    if class.get("globalDefault").and_then(Value::as_bool) != Some(true) {
        return Ok(());
    }
    let server = &call.cx.server;
    let present = default_class(&classes.objects(&server.store, "").await?);
    let Some(present) = present else { return Ok(()) };
    let name = metadata_text(&present, "name");
    if call.operation == Operation::Update && name == metadata_text(class, "name") {
        return Ok(());
    }
    let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
    Err(call.forbidden(class, &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_class_gives_number_and_policy() {
        const CLASS: &str = r#"{"metadata":{"name":"high"},"value":7,"preemptionPolicy":"Never"}"#;
        // spec, class, spec afterwards or refusal
        let rows = [
            ("{}", None, Ok(r#"{"preemptionPolicy":"PreemptLowerPriority","priority":0}"#)),
            (
                "{}",
                Some(CLASS),
                Ok(r#"{"preemptionPolicy":"Never","priority":7,"priorityClassName":"high"}"#),
            ),
            (
                r#"{"priority":7}"#,
                Some(CLASS),
                Ok(r#"{"preemptionPolicy":"Never","priority":7,"priorityClassName":"high"}"#),
            ),
            (r#"{"priority":8}"#, Some(CLASS), Err("the integer value of priority (8)")),
            (r#"{"preemptionPolicy":"X"}"#, Some(CLASS), Err("the string value of PreemptionPolicy (X)")),
        ];
        for (spec, class, expected) in rows {
            let mut pod = json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
            let class = class.map(|class| json::parse(class.as_bytes()).unwrap());
            match (apply_class(&mut pod, class.as_ref()), expected) {
                (Ok(()), Ok(text)) => {
                    assert_eq!(pod.get("spec"), Some(&json::parse(text.as_bytes()).unwrap()))
                }
                (Err(why), Err(start)) => assert!(why.starts_with(start), "{why}"),
                (outcome, _) => panic!("{spec}: {outcome:?}"),
            }
        }
    }
}
