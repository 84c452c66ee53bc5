//! Binding a pod to a node: POST to `pods/NAME/binding`, and to the older `bindings`.
//!
//! Upstream: kubernetes `pkg/registry/core/pod/storage/storage.go`, `BindingREST`.

use hyper::Response;
use plinth_codec::negotiate::Shape;
use plinth_codec::Value;

use crate::context::{AdmissionRequest, Context, Operation};
use crate::handlers::respond::respond_created;
use crate::handlers::{body, internal};
use plinth_api::{is_deleting, metadata_text, ApiError, Cause, Reason, Verb};
use plinth_http::{Body, RequestBody};
use plinth_registry::match_namespace;

pub(super) async fn bind(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    cx.query.check_write_options("CreateOptions")?;
    let (gvk, root) = body::builtin_kind("", "v1", "Binding")?;
    let mut binding = body::read_as(&cx, incoming, (&gvk, root)).await?;
    match_namespace(&cx.resource, &cx.info, &mut binding)?;
    let call = AdmissionRequest::new(&cx, Operation::Create, None);
    cx.server.admission.mutate(&call, &mut binding).await?;
    let name = metadata_text(&binding, "name").to_owned();
    if cx.info.resource == "pods" && name != cx.info.name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    if name.is_empty() {
        return Err(ApiError::bad_request("name must be provided"));
    }
    check(&binding)?;
    cx.server.admission.validate(&call, &binding).await?;
    let pods = cx.on_behalf(("", "v1", "pods"), &name, Verb::Update)?;
    internal::update_unchecked(&pods, cx.query.is_dry_run(), &|pod| assign(pod, &binding)).await?;
    respond_created(&representation)
}

/// Validates a binding. Upstream's errors have no reason here.
fn check(binding: &Value) -> Result<(), ApiError> {
    let text = |key: &str| binding.str_at(&["target", key]).unwrap_or_default();
    let mut errors = Vec::new();
    if !matches!(text("kind"), "" | "Node") {
        errors.push(Cause::not_supported("target.kind", text("kind"), &["Node", "<empty>"]));
    }
    if text("name").is_empty() {
        errors.push(Cause::required("target.name", ""));
    }
    let errors: Vec<String> = errors.iter().map(|f| format!("{}: {}", f.field, f.message)).collect();
    let message = match errors.as_slice() {
        [] => return Ok(()),
        [error] => error.clone(),
        errors => format!("[{}]", errors.join(", ")),
    };
    Err(ApiError::new(500, Reason::Unknown, message))
}

/// Sets the node of a pod that has none.
fn assign(pod: &mut Value, binding: &Value) -> Result<(), ApiError> {
    let name = metadata_text(pod, "name").to_owned();
    let conflict = |why: &str| Err(ApiError::conflict("", "pods/binding", &name, why));
    check_preconditions(pod, binding, &name)?;
    if is_deleting(pod) {
        return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty()) {
        return conflict(&format!("pod {name} is already assigned to node {node:?}"));
    }
    let gates = pod.list_at(&["spec", "schedulingGates"]);
    if !gates.is_empty() {
        return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let node = binding.str_at(&["target", "name"]).unwrap_or_default();
    if let Some(spec) = pod.object_at_mut(&["spec"]) {
        spec.insert("nodeName", node);
    }
    if let Some(status) = pod.object_at_mut(&["status"]) {
        // The nomination is obsolete.
        status.remove("nominatedNodeName");
    }
    for part in ["annotations", "labels"] {
        let Some(added) = binding.at(&["metadata", part]).and_then(Value::as_object) else { continue };
        if let Some(target) = pod.object_at_mut(&["metadata", part]).filter(|_| !added.is_empty()) {
            for (key, value) in added.iter() {
                target.insert(key.clone(), value.clone());
            }
        }
    }
    plinth_kinds::set_pod_condition(pod, "PodScheduled", "True", "", "");
    Ok(())
}

/// UID and resourceVersion of a binding are preconditions on the pod.
fn check_preconditions(pod: &Value, binding: &Value, name: &str) -> Result<(), ApiError> {
    let namespace = metadata_text(pod, "namespace");
    for (key, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (given, current) = (metadata_text(binding, key), metadata_text(pod, key));
        if !given.is_empty() && given != current {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: \
                /registry/pods/{namespace}/{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                failed: {label} in precondition: {given}, {label} in object meta: {current}"
            );
            return Err(ApiError::conflict("", "pods", name, &why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_pod_is_bound_once() {
        const BINDING: &str =
            r#"{"metadata":{"annotations":{"a":"new"},"labels":{"l":"1"}},"target":{"name":"node-1"}}"#;
        // pod, binding, message of the refusal
        let rows = [
            (r#"{"metadata":{"name":"p","annotations":{"a":"old","b":"kept"}}}"#, BINDING, None),
            (
                r#"{"metadata":{"name":"p"},"spec":{"nodeName":"other"}}"#,
                BINDING,
                Some("Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"other\""),
            ),
            (
                r#"{"metadata":{"name":"p","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#,
                BINDING,
                Some("Operation cannot be fulfilled on pods/binding \"p\": pod p is being deleted, cannot be assigned to a host"),
            ),
            (
                r#"{"metadata":{"name":"p"},"spec":{"schedulingGates":[{"name":"g"}]}}"#,
                BINDING,
                Some("Operation cannot be fulfilled on pods/binding \"p\": pod p has non-empty .spec.schedulingGates"),
            ),
            (
                r#"{"metadata":{"name":"p","namespace":"n","uid":"1"}}"#,
                r#"{"metadata":{"uid":"2"},"target":{"name":"x"}}"#,
                Some("Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: /registry/pods/n/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 2, UID in object meta: 1"),
            ),
        ];
        for (pod, binding, refusal) in rows {
            let mut bound = json::parse(pod.as_bytes()).unwrap();
            let outcome = assign(&mut bound, &json::parse(binding.as_bytes()).unwrap());
            assert_eq!(outcome.as_ref().err().map(|e| e.message.as_str()), refusal, "{pod}");
            if outcome.is_ok() {
                assert_eq!(bound.str_at(&["spec", "nodeName"]), Some("node-1"));
                assert_eq!(bound.str_at(&["metadata", "annotations", "a"]), Some("new"));
                assert_eq!(bound.str_at(&["metadata", "annotations", "b"]), Some("kept"));
                assert_eq!(bound.str_at(&["metadata", "labels", "l"]), Some("1"));
                let conditions = bound.at(&["status", "conditions"]).and_then(Value::as_array).unwrap();
                assert_eq!(conditions[0].str_at(&["type"]), Some("PodScheduled"));
                assert_eq!(conditions[0].str_at(&["status"]), Some("True"));
            }
        }
    }

    #[test]
    fn a_target_is_a_node_with_a_name() {
        let rows = [
            (r#"{"target":{"name":"n"}}"#, None),
            (r#"{"target":{"kind":"Node","name":"n"}}"#, None),
            (r#"{"target":{}}"#, Some("target.name: Required value")),
            (
                r#"{"target":{"kind":"Pod"}}"#,
                Some("[target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\", target.name: Required value]"),
            ),
        ];
        for (text, message) in rows {
            let outcome = check(&json::parse(text.as_bytes()).unwrap());
            assert_eq!(outcome.err().map(|e| e.message).as_deref(), message, "{text}");
        }
    }
}
