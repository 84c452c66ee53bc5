//! Conversion between stored and served versions of built-in kinds.
//!
//! Few built-in kinds have two served versions that differ: Events (core/v1 and events.k8s.io/v1 serve the
//! same objects) and HorizontalPodAutoscalers (v1 and v2).

mod autoscaling;
mod events;

use plinth_codec::Value;

use super::{ResourceType, StorageForm};
use plinth_api::api_error::ApiError;

/// Converts an object in place; type metadata is set by the caller.
type Convert = fn(&mut Value);

/// Group and version of the stored form, of the served form, kind, and both directions.
struct Row {
    stored: (&'static str, &'static str),
    served: (&'static str, &'static str),
    kind: &'static str,
    to_served: Convert,
    to_stored: Convert,
}

const ROWS: &[Row] = &[
    Row {
        stored: ("", "v1"),
        served: ("events.k8s.io", "v1"),
        kind: "Event",
        to_served: events::to_events_v1,
        to_stored: events::to_core_v1,
    },
    Row {
        stored: ("autoscaling", "v2"),
        served: ("autoscaling", "v1"),
        kind: "HorizontalPodAutoscaler",
        to_served: autoscaling::to_v1,
        to_stored: autoscaling::to_v2,
    },
];

/// Whether objects of a kind are stored in another version than the served one.
pub fn is_stored_as(kind: &str, stored: (&str, &str), served: (&str, &str)) -> bool {
    ROWS.iter().any(|row| row.kind == kind && row.stored == stored && row.served == served)
}

fn row(resource: &ResourceType, stored: (&str, &str)) -> Option<&'static Row> {
    ROWS.iter().find(|row| {
        row.kind == resource.row.kind
            && row.stored == stored
            && row.served == (resource.row.group.as_str(), resource.row.version.as_str())
    })
}

/// Converts a stored tree to the resource's own version.
///
/// # Errors
/// 500 when there is no conversion between the two.
pub fn convert(mut tree: Value, stored: (&str, &str), resource: &ResourceType) -> Result<Value, ApiError> {
    let Some(row) = row(resource, stored) else {
        let (group, version) = stored;
        let name = &resource.row.plural;
        return Err(ApiError::internal(format!("{name} stored as {group}/{version} has no conversion")));
    };
    (row.to_served)(&mut tree);
    Ok(tree)
}

/// Converts a tree of the resource's own version to the storage version.
///
/// # Errors
/// 500 when there is no conversion between the two.
pub fn to_storage(mut tree: Value, resource: &ResourceType, form: &StorageForm) -> Result<Value, ApiError> {
    let Some(row) = row(resource, (&form.group, &form.version)) else {
        return Err(ApiError::internal(format!("{} has no conversion to storage", resource.row.plural)));
    };
    (row.to_stored)(&mut tree);
    Ok(tree)
}

/// Converts a tree from one served version to another one of the same stored objects.
///
/// # Errors
/// 500 when there is no conversion between the two.
pub fn between(tree: Value, from: &ResourceType, to: &ResourceType) -> Result<Value, ApiError> {
    let mut tree = match (&from.storage, from.is_storage_version()) {
        (Some(form), false) => to_storage(tree, from, form)?,
        _ => tree,
    };
    if let (Some(form), false) = (&to.storage, to.is_storage_version()) {
        tree = convert(tree, (&form.group, &form.version), to)?;
    }
    if let Some(object) = tree.as_object_mut() {
        object.insert("apiVersion", to.api_version.as_str());
        object.insert("kind", to.row.kind.clone());
    }
    Ok(tree)
}
