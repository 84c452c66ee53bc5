//! Objects that webhooks and policies have mutated.

use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::schema::{self, Schema, TypeId, GVK};
use plinth_codec::Value;

use super::call::Call;
use plinth_api::ApiError;
use plinth_apiserver::context::Operation;
use plinth_apiserver::custom_resources::object;
use plinth_apiserver::handlers::write::clear_status;
use plinth_registry::ResourceType;

/// The kind of the request's object: that of the resource, or of its subresource.
fn kind_of(call: &Call<'_>, resource: &ResourceType) -> GVK {
    let subresource = resource.row.subresource(&call.cx.info.subresource);
    subresource.map_or_else(|| resource.row.gvk(), |subresource| subresource.gvk.clone())
}

/// Whether the request is for a subresource whose objects are of another kind than the resource.
pub(super) fn has_own_kind(call: &Call<'_>, resource: &ResourceType) -> bool {
    kind_of(call, resource) != resource.row.gvk()
}

/// The type of the object in the version of `matched`, with all its fields.
///
/// # Errors
/// With upstream's message, when the kind is not described by the schema of its group version.
pub(super) fn type_of<'r>(
    call: &Call<'_>,
    matched: &'r ResourceType,
) -> Result<(&'r Schema, TypeId), String> {
    let kind = kind_of(call, matched);
    if kind == matched.row.gvk() {
        return Ok(matched.types());
    }
    let (builtin, api_version) = (schema::builtin(), kind.api_version());
    let of_group = builtin.kind(&kind).filter(|_| api_version == matched.api_version.as_str());
    of_group
        .map(|root| (builtin, root))
        .ok_or_else(|| format!("no corresponding type for {api_version}, Kind={}", kind.kind))
}

/// A mutated object, in the version of `matched`: decoded and defaulted like a client's. With `strict` an
/// unknown field of a built-in kind is an error, else it is dropped.
///
/// # Errors
/// 500 when it cannot be decoded.
pub(super) fn decode(
    call: &Call<'_>,
    matched: &ResourceType,
    mut made: Value,
    strict: bool,
) -> Result<Value, ApiError> {
    if has_own_kind(call, matched) {
        return Ok(made);
    }
    if call.operation == Operation::Create && call.cx.info.subresource.is_empty() {
        clear_status(call.cx, &mut made);
    }
    if let Some(custom) = &matched.custom {
        object::conform(custom, &mut made, false)?.map_err(ApiError::internal)?;
        return Ok(made);
    }
    let decoded = json::conform(made, matched.schema, matched.root, &DecodeOptions { strict });
    let decoded = decoded.map_err(ApiError::internal)?;
    if !decoded.strict.is_empty() {
        let errors: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
        return Err(ApiError::internal(format!("strict decoding error: {}", errors.join(", "))));
    }
    let mut made = decoded.value;
    matched.strategy.default(&mut made);
    Ok(made)
}

/// A patch of a webhook or policy cannot change the kind of an object.
///
/// # Errors
/// 500 with upstream's message.
pub(super) fn check_kind(object: &Value, patched: &Value) -> Result<(), ApiError> {
    let kind = |object: &'_ Value| {
        ["apiVersion", "kind"].map(|key| object.str_at(&[key]).unwrap_or_default().to_owned())
    };
    let ([_, own], [api_version, other]) = (kind(object), kind(patched));
    match kind(object) == kind(patched) {
        true => Ok(()),
        false => Err(ApiError::internal(format!(
            "no kind {other:?} is registered for version {api_version:?} in the scope of {own}"
        ))),
    }
}
