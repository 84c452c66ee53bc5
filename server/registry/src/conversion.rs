//! Conversion between stored and served versions of built-in kinds, by the conversions of their strategies.

use plinth_codec::Value;

use super::{ResourceType, StorageForm};
use plinth_api::ApiError;
use plinth_kinds::Conversion;

fn of(resource: &ResourceType, stored: (&str, &str)) -> Option<&'static Conversion> {
    resource.strategy.conversion(&resource.row.version, stored)
}

/// Converts a stored tree to the resource's own version.
///
/// # Errors
/// 500 when there is no conversion between the two.
pub fn convert_stored(
    mut tree: Value,
    stored: (&str, &str),
    resource: &ResourceType,
) -> Result<Value, ApiError> {
    let Some(conversion) = of(resource, stored) else {
        let (group, version) = stored;
        let name = &resource.row.plural;
        return Err(ApiError::internal(format!("{name} stored as {group}/{version} has no conversion")));
    };
    (conversion.to_served)(&mut tree);
    Ok(tree)
}

/// Converts a tree of the resource's own version to the storage version.
///
/// # Errors
/// 500 when there is no conversion between the two.
pub fn convert_to_storage(
    mut tree: Value,
    resource: &ResourceType,
    form: &StorageForm,
) -> Result<Value, ApiError> {
    let Some(conversion) = of(resource, (&form.group, &form.version)) else {
        return Err(ApiError::internal(format!("{} has no conversion to storage", resource.row.plural)));
    };
    (conversion.to_stored)(&mut tree);
    Ok(tree)
}

/// Converts a tree from one served version to another one of the same stored objects.
///
/// # Errors
/// 500 when there is no conversion between the two.
pub fn convert_between(tree: Value, from: &ResourceType, to: &ResourceType) -> Result<Value, ApiError> {
    let mut tree = match (&from.storage, from.is_storage_version()) {
        (Some(form), false) => convert_to_storage(tree, from, form)?,
        _ => tree,
    };
    if let (Some(form), false) = (&to.storage, to.is_storage_version()) {
        tree = convert_stored(tree, (&form.group, &form.version), to)?;
    }
    if let Some(object) = tree.as_object_mut() {
        object.insert("apiVersion", to.api_version.as_str());
        object.insert("kind", to.row.kind.clone());
    }
    Ok(tree)
}
