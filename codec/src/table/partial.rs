//! PartialObjectMetadata of a row.

use super::json;
use crate::negotiate::MetaVersion;

/// Appends a PartialObjectMetadata as JSON, made from the metadata object of a stored body: `{"name":…}`,
/// braces included, without a resourceVersion. An empty `resource_version` adds none (the metadata has its
/// own, or none). A copy; nothing is parsed.
pub(crate) fn write_partial_metadata(
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
