//! PartialObjectMetadata and its list.

use super::json;
use super::table_meta::TableMeta;
use crate::negotiate::MetaVersion;
use crate::{Map, Value};

/// Appends a PartialObjectMetadata as JSON, made from the metadata object of a stored body: `{"name":…}`,
/// braces included, without a resourceVersion. An empty `resource_version` adds none (the metadata has its
/// own, or none). A copy; nothing is parsed.
pub fn write_partial_metadata(
    metadata: &[u8],
    resource_version: &str,
    version: MetaVersion,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(b"\",\"metadata\":{");
    // The text between the braces.
    let members = metadata.get(1..).unwrap_or_default();
    if !resource_version.is_empty() {
        out.extend_from_slice(b"\"resourceVersion\":");
        json::text(resource_version, out);
        if members != b"}" && !members.is_empty() {
            out.push(b',');
        }
    }
    out.extend_from_slice(if members.is_empty() { b"}" } else { members });
    out.push(b'}');
}

/// Appends a PartialObjectMetadataList up to its first item. Items follow, with commas between them.
pub fn partial_list_begin(metadata: &TableMeta<'_>, version: MetaVersion, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"");
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    metadata.write(out);
    out.extend_from_slice(b",\"items\":[");
}

/// Appends what follows the last item. No line end.
pub fn partial_list_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}

/// The PartialObjectMetadata of an object tree, for the encodings that are made from trees.
pub fn partial_metadata(object: &Value, version: MetaVersion) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(Value::object);
    Value::Object(Map::from_iter([
        ("apiVersion".into(), version.api_version().into()),
        ("kind".into(), "PartialObjectMetadata".into()),
        ("metadata".into(), metadata),
    ]))
}
