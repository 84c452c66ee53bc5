//! Objects of a request in the versions that webhooks and policies name: each is converted once, however many
//! of them read it. A conversion may be a call of a webhook.

use std::sync::Arc;

use plinth_codec::Value;

use super::call::Call;
use super::converted::{Conversion, Versioned};
use super::mutated;
use plinth_api::ApiError;
use plinth_apiserver::custom_resources::object;
use plinth_registry::{convert_between, ResourceType};

/// Whether objects of the request are in the version of `matched` as they are. Those of a subresource that
/// has a kind of its own do not depend on the version of the resource.
fn is_same_version(call: &Call<'_>, matched: &ResourceType) -> bool {
    matched.api_version == call.cx.resource.api_version || mutated::has_own_kind(call, matched)
}

/// An object of the request in the version of `matched`.
///
/// # Errors
/// 500 when it cannot be converted.
pub(super) async fn converted<'v>(
    call: &Call<'_>,
    matched: &ResourceType,
    object: &'v Value,
) -> Result<Versioned<'v>, ApiError> {
    if is_same_version(call, matched) || object.is_null() {
        return Ok(Versioned::Own(object));
    }
    if let Some(outcome) = call.conversions.find(&matched.api_version, object) {
        return outcome.map(Versioned::Converted);
    }
    let outcome = converted_to(call, &call.cx.resource, matched, object.clone()).await.map(Arc::new);
    let (api_version, from) = (matched.api_version.to_string(), object.clone());
    call.conversions.keep(Conversion { api_version, from, outcome: outcome.clone() });
    outcome.map(Versioned::Converted)
}

/// Both objects of a request in the version of `matched`.
///
/// # Errors
/// 500 when one cannot be converted.
pub(super) async fn converted_both<'v>(
    call: &Call<'v>,
    matched: &ResourceType,
    new: &'v Value,
) -> Result<(Versioned<'v>, Versioned<'v>), ApiError> {
    let old = call.old.unwrap_or(&Value::Null);
    Ok((converted(call, matched, new).await?, converted(call, matched, old).await?))
}

/// An object in the version of `matched`, as admission has changed it, in that of the request.
///
/// # Errors
/// 500 when it cannot be converted.
pub(super) async fn converted_back(
    call: &Call<'_>,
    matched: &ResourceType,
    object: Value,
) -> Result<Value, ApiError> {
    match is_same_version(call, matched) {
        true => Ok(object),
        false => converted_to(call, matched, &call.cx.resource, object).await,
    }
}

async fn converted_to(
    call: &Call<'_>,
    from: &ResourceType,
    to: &ResourceType,
    object: Value,
) -> Result<Value, ApiError> {
    match &to.custom {
        // Boxed, so that the state of every request need not have room for it.
        Some(custom) => Box::pin(object::converted(&call.cx.server.reader.converter, custom, object)).await,
        None => convert_between(object, from, to),
    }
}
