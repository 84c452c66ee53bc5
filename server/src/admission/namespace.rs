//! The namespace of a request, for the plugins that act by what is in it.

use plinth_api::ApiError;
use plinth_codec::Value;

use super::call::Call;

/// The namespace of the request; `None` if it does not exist.
pub(super) async fn namespace_of(call: &Call<'_>) -> Result<Option<Value>, ApiError> {
    let namespaces =
        call.cx.registry.internal("", "v1", "namespaces").ok_or_else(ApiError::no_such_resource)?;
    let Some(form) = &namespaces.storage else { return Ok(None) };
    match call.cx.stored(form, "", call.namespace).await? {
        Some(record) => Ok(Some(plinth_storage::decode_object(namespaces, &record)?)),
        None => Ok(None),
    }
}
