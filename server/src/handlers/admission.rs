//! What must hold around an object before it is written: today, that its namespace exists.

use super::Context;
use crate::request_info::Verb;
use crate::status::{ApiError, Cause};
use crate::storage::stored::Head;

/// The namespace of a namespaced object must exist; nothing is created in one that is going
/// (k8s.io/apiserver `pkg/admission/plugin/namespace/lifecycle`).
///
/// # Errors
/// 404 with `details.kind` `namespaces`; 403 with cause `NamespaceTerminating`.
pub(super) async fn namespace_exists(cx: &Context, verb: Verb) -> Result<(), ApiError> {
    if !cx.resource.row.namespaced {
        return Ok(());
    }
    let name = cx.info.namespace.as_str();
    let Some(namespaces) = cx.registry.get("", "v1", "namespaces").and_then(|n| n.storage.as_ref()) else {
        return Ok(());
    };
    let record = cx.server.store.get(namespaces, "", name).await?;
    let Some(record) = record else { return Err(ApiError::not_found("", "namespaces", name)) };
    let terminating = Head::parse(&record.value).map_err(ApiError::internal)?.deleting();
    if terminating && verb == Verb::Create {
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let cause = Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {name} is being terminated"),
            field: "metadata.namespace".into(),
        };
        let object = cx.info.name.as_str();
        return Err(ApiError::forbidden(cx.resource.group(), cx.resource.plural(), object, &why)
            .with_causes(vec![cause]));
    }
    Ok(())
}
