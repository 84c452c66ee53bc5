//! `NamespaceAutoProvision`: what is created in a namespace that is not there makes the namespace. Off unless a flag says otherwise.
//!
//! Upstream: kubernetes `plugin/pkg/admission/namespace/autoprovision`.

use plinth_codec::{tree, Value};

use super::Call;
use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_apiserver::handlers::internal;

/// Makes the namespace, unless nothing is to be kept of the request.
///
/// # Errors
/// 403 when it cannot be made.
pub(super) async fn admit(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let cx = call.cx;
    if call.dry_run || !cx.resource.row.namespaced {
        return Ok(());
    }
    let namespace = tree!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": tree!({ "name": cx.info.namespace.as_str() }),
    });
    let made = internal::ensure(&cx.server, ("", "v1", "namespaces"), "", namespace).await;
    made.map_err(|why| {
        let resource = &cx.resource;
        ApiError::forbidden(resource.group(), resource.plural(), metadata::text(object, "name"), &why.message)
    })
}
