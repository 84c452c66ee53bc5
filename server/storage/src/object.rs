//! Conversion between stored values and object trees.

use plinth_codec::{json, Map, Value};
use plinth_engine::Revision;

use super::fetched::Fetched;
use super::stored::{HeaderFields, Stored, BODY_START};
use plinth_api::ApiError;
use plinth_registry::{convert_stored, convert_to_storage, ResourceType};

/// The tree of a stored object in the resource's own version, with type metadata and resourceVersion.
///
/// # Errors
/// 500 like `StoreReadError` when the value cannot be decoded.
pub fn decode_object(resource: &ResourceType, record: &Fetched) -> Result<Value, ApiError> {
    let stored = Stored::parse(&record.value).map_err(ApiError::internal)?;
    decode_served_object(resource, &stored, record.mod_revision)
}

/// The tree of a stored object in the version that is served, with type metadata and resourceVersion.
///
/// # Errors
/// 500 when the body cannot be decoded or converted.
pub fn decode_served_object(
    resource: &ResourceType,
    stored: &Stored<'_>,
    revision: Revision,
) -> Result<Value, ApiError> {
    let mut tree =
        json::parse_stored(stored.body()).map_err(|e| ApiError::internal(format!("stored object: {e}")))?;
    // Custom resources were converted when they were read.
    if let Some(form) = resource.storage.as_ref().filter(|_| !resource.is_custom()) {
        let is_same = form.group == resource.row.group && stored.version() == resource.row.version;
        if !is_same {
            tree = convert_stored(tree, (&form.group, stored.version()), resource)?;
        }
    }
    if let Some(object) = tree.as_object_mut() {
        object.insert("apiVersion", resource.api_version.as_str());
        object.insert("kind", resource.row.kind.clone());
    }
    if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
        metadata.insert("resourceVersion", revision.to_string());
    }
    Ok(tree)
}

/// The stored form of a tree in the resource's own version: converted to the storage version, without type
/// metadata and resourceVersion, with its header.
///
/// # Errors
/// 500 when the object has no metadata (the write path adds it before) or cannot be converted.
pub fn encode_object(resource: &ResourceType, mut tree: Value) -> Result<bytes::Bytes, ApiError> {
    let Some(form) = &resource.storage else {
        return Err(ApiError::internal(format!("{} is not stored", resource.row.plural)));
    };
    if !resource.is_storage_version() {
        tree = convert_to_storage(tree, resource, form)?;
    }
    if let Some(object) = tree.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
    }
    if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
        metadata.remove("resourceVersion");
    }
    // Most objects fit; the buffer grows a few times at most.
    let mut body = Vec::with_capacity(8 << 10);
    json::write(&tree, resource.schema, form.root, &mut body);
    let metadata_len = metadata_len(&body).ok_or_else(|| ApiError::internal("object without metadata"))?;
    let empty = Map::new();
    let metadata = tree.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    Ok(header(resource, form.version.as_str(), metadata, &tree).encode(metadata_len, &body))
}

fn header<'a>(
    resource: &ResourceType,
    version: &'a str,
    metadata: &'a Map,
    tree: &'a Value,
) -> HeaderFields<'a> {
    let fields = resource.fields.iter().map(|f| f.value(tree)).collect();
    HeaderFields { version, fields, ..HeaderFields::of_metadata(Some(metadata)) }
}

/// Length of the metadata object of a canonical body, braces included.
fn metadata_len(body: &[u8]) -> Option<usize> {
    body.starts_with(BODY_START).then(|| json::container_len(&body[BODY_START.len() - 1..])).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_ends_at_its_own_brace() {
        let metadata = r#"{"name":"a}\"{","labels":{"x":"}"}}"#;
        let body = format!(r#"{{"metadata":{metadata},"spec":{{}}}}"#);
        assert_eq!(metadata_len(body.as_bytes()), Some(metadata.len()));
        assert_eq!(metadata_len(b"{\"spec\":{}}"), None);
        assert_eq!(metadata_len(b"{\"metadata\":{\"a\":\"}"), None);
    }
}
