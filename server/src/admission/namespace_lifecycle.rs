//! `NamespaceLifecycle`: nothing is created in a namespace that is absent or going, and some namespaces stay.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/namespace/lifecycle`.

use plinth_codec::Value;

use super::{Call, Operation};
use crate::handlers::Context;
use crate::status::{ApiError, Cause};
use crate::storage::stored::Head;

/// Namespaces that nobody may delete.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// The namespace of a namespaced object must exist and stay.
///
/// # Errors
/// 404 with `details.kind` `namespaces`; 403 with cause `NamespaceTerminating`; 403 for a namespace that may not be deleted.
pub(super) async fn admit(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let cx = call.cx;
    if call.operation == Operation::Delete {
        return match IMMORTAL.contains(&call.name) {
            true => {
                Err(ApiError::forbidden("", "namespaces", call.name, "this namespace may not be deleted"))
            }
            false => Ok(()),
        };
    }
    // A review asks, it makes nothing.
    if !cx.resource.row.namespaced || cx.resource.group() == "authorization.k8s.io" {
        return Ok(());
    }
    let name = cx.info.namespace.as_str();
    let Some(terminating) = is_terminating(cx, name).await? else {
        return Err(ApiError::not_found("", "namespaces", name));
    };
    if !terminating {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let cause = Cause {
        reason: "NamespaceTerminating",
        message: format!("namespace {name} is being terminated"),
        field: "metadata.namespace".into(),
    };
    Err(call.forbidden(object, &why).with_causes(vec![cause]))
}

/// Whether a namespace is going; `None` when there is none of that name.
async fn is_terminating(cx: &Context, name: &str) -> Result<Option<bool>, ApiError> {
    let namespaces = cx.registry.get("", "v1", "namespaces").and_then(|n| n.storage.as_ref());
    let Some(namespaces) = namespaces else { return Ok(None) };
    match cx.server.store.get(namespaces, "", name).await? {
        Some(record) => Ok(Some(Head::parse(&record.value).map_err(ApiError::internal)?.deleting())),
        None => Ok(None),
    }
}
