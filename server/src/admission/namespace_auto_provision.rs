//! `NamespaceAutoProvision`: creates a missing namespace when an object is created in it. Off by default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/namespace/autoprovision`.

use plinth_codec::{tree, Value};

use super::call::Call;
use plinth_api::{metadata_text, ApiError};
use plinth_apiserver::handlers::internal;

/// Creates the namespace, except for dry runs.
///
/// # Errors
/// 403 when it cannot be created.
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
        ApiError::forbidden(resource.group(), resource.plural(), metadata_text(object, "name"), &why.message)
    })
}
