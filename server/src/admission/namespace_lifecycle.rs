//! `NamespaceLifecycle`: denies creates in absent or terminating namespaces, and deletion of system
//! namespaces.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/namespace/lifecycle`.

use plinth_codec::Value;

use super::call::Call;
use plinth_api::{ApiError, Cause};
use plinth_apiserver::context::Operation;
use plinth_storage::Header;

/// Namespaces that cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// Checks that the namespace of a namespaced object exists and is not terminating.
///
/// # Errors
/// 404 with `details.kind` `namespaces`; 403 with cause `NamespaceTerminating`; 403 for a namespace that may
/// not be deleted.
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
    // Local reviews are not stored; custom resources of their group are.
    let is_review = cx.resource.group() == "authorization.k8s.io" && cx.resource.storage.is_none();
    if !cx.resource.row.namespaced || is_review {
        return Ok(());
    }
    let name = cx.info.namespace.as_str();
    let is_terminating = |namespace: Header<'_>| namespace.deleting();
    let Some(terminating) = cx.server.namespaces.read(&cx.server.store, name, is_terminating).await? else {
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
