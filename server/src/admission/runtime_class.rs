//! `RuntimeClass`: sets overhead, node selector and tolerations of a pod from its RuntimeClass.
//!
//! Upstream: kubernetes `plugin/pkg/admission/runtimeclass`.

use std::sync::Arc;

use plinth_codec::Value;

use super::call::Call;
use super::resource_list::ResourceList;
use super::tolerations::{merge, normal};
use plinth_api::ApiError;
use plinth_storage::ObjectCache;

/// The RuntimeClass of the pod.
async fn class_of(
    call: &Call<'_>,
    classes: &ObjectCache,
    pod: &Value,
) -> Result<Option<Arc<Value>>, ApiError> {
    let Some(name) = pod.str_at(&["spec", "runtimeClassName"]) else { return Ok(None) };
    let server = &call.cx.server;
    match classes.object(&server.store, name).await? {
        Some(class) => Ok(Some(class)),
        None => Err(call.forbidden(pod, &format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

/// Applies its class to a new pod.
///
/// # Errors
/// 403 for an unknown class, or values that differ from the class.
pub(super) async fn admit(call: &Call<'_>, classes: &ObjectCache, pod: &mut Value) -> Result<(), ApiError> {
    let Some(class) = class_of(call, classes, pod).await? else { return Ok(()) };
    apply_class(pod, &class).map_err(|why| call.forbidden(pod, &why))
}

/// Checks that the overhead is that of the class.
///
/// # Errors
/// 403.
pub(super) async fn validate(call: &Call<'_>, classes: &ObjectCache, pod: &Value) -> Result<(), ApiError> {
    let class = class_of(call, classes, pod).await?;
    let expected = class.as_ref().and_then(|class| class.at(&["overhead"]));
    let given = pod.at(&["spec", "overhead"]);
    match expected {
        Some(overhead) if ResourceList::of(overhead.get("podFixed")) != ResourceList::of(given) => {
            Err(call.forbidden(pod, MISMATCH))
        }
        None if given.is_some() => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            Err(call.forbidden(pod, why))
        }
        _ => Ok(()),
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn apply_class(pod: &mut Value, class: &Value) -> Result<(), String> {
    let Some(spec) = pod.object_at_mut(&["spec"]) else { return Ok(()) };
    if let Some(overhead) = class.at(&["overhead"]) {
        let fixed = overhead.get("podFixed");
        let given = spec.get("overhead").filter(|given| given.as_object().is_some_and(|m| !m.is_empty()));
        if given.is_some() && ResourceList::of(given) != ResourceList::of(fixed) {
            return Err(MISMATCH.to_owned());
        }
        if let Some(fixed) = fixed {
            spec.insert("overhead", fixed.clone());
        }
    }
    let wanted = class.at(&["scheduling", "nodeSelector"]).and_then(Value::as_object);
    if let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) {
        let mut selector = spec.get("nodeSelector").and_then(Value::as_object).cloned().unwrap_or_default();
        for (key, value) in wanted.iter() {
            let (theirs, own) =
                (value.as_str().unwrap_or_default(), selector.get(key).and_then(Value::as_str));
            if let Some(own) = own.filter(|own| *own != theirs) {
                return Err(format!("conflict: runtimeClass.scheduling.nodeSelector[{key}] = {theirs}; pod.spec.nodeSelector[{key}] = {own}"));
            }
            selector.insert(key.clone(), theirs);
        }
        spec.insert("nodeSelector", selector);
    }
    if let Some(scheduling) = class.get("scheduling").filter(|scheduling| !scheduling.is_null()) {
        let all = |tolerations: &[Value]| tolerations.iter().map(normal).collect::<Vec<_>>();
        let given = all(spec.get("tolerations").and_then(Value::as_array).unwrap_or_default());
        let merged = merge(&given, &all(scheduling.list_at(&["tolerations"])));
        if !merged.is_empty() {
            spec.insert("tolerations", merged);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_pod_gets_the_settings_of_its_class() {
        const CLASS: &str = r#"{"overhead":{"podFixed":{"cpu":"100m"}},"scheduling":{"nodeSelector":{"a":"b"},"tolerations":[{"key":"t"}]}}"#;
        // spec, spec afterwards or refusal
        let rows = [
            (
                r#"{"tolerations":[{"key":"t"}]}"#,
                Ok(r#"{"nodeSelector":{"a":"b"},"overhead":{"cpu":"100m"},"tolerations":[{"key":"t"}]}"#),
            ),
            (
                r#"{"overhead":{"cpu":"0.1"},"nodeSelector":{"c":"d"}}"#,
                Ok(
                    r#"{"nodeSelector":{"a":"b","c":"d"},"overhead":{"cpu":"100m"},"tolerations":[{"key":"t"}]}"#,
                ),
            ),
            (
                r#"{"tolerations":[{"key":"t","operator":"Exists"},{"key":"o","operator":"Exists","effect":"NoExecute"},{"key":"o","operator":"Exists"}]}"#,
                Ok(
                    r#"{"nodeSelector":{"a":"b"},"overhead":{"cpu":"100m"},"tolerations":[{"key":"t","operator":"Exists"},{"key":"o","operator":"Exists"}]}"#,
                ),
            ),
            (r#"{"overhead":{"cpu":"1"}}"#, Err(MISMATCH)),
            (
                r#"{"nodeSelector":{"a":"x"}}"#,
                Err("conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = x"),
            ),
        ];
        let class = json::parse(CLASS.as_bytes()).unwrap();
        for (spec, expected) in rows {
            let mut pod = json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
            let outcome = apply_class(&mut pod, &class);
            match expected {
                Ok(text) => {
                    assert_eq!(pod.get("spec"), Some(&json::parse(text.as_bytes()).unwrap()), "{spec}")
                }
                Err(why) => assert_eq!(outcome, Err(why.to_owned()), "{spec}"),
            }
        }
    }
}
