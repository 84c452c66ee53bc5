//! JSON, spliced from stored bytes. Hot path: no parsing, no allocation except the output buffer.

use plinth_codec::json as codec;
use plinth_codec::negotiate::Transform;
use plinth_codec::Value;

use super::item::{EventType, Item, ListMeta};
use super::negotiated::Representation;
use super::tree;
use plinth_api::ApiError;

/// One object with its type metadata.
pub(super) fn object(r: &Representation, item: &Item<'_>, out: &mut Vec<u8>) {
    match r.accepted.transform {
        Transform::PartialObjectMetadata(v) | Transform::PartialObjectMetadataList(v) => {
            partial(v.api_version(), item, out);
        }
        _ => whole(r, item, out),
    }
}

/// One object, untransformed, with its type metadata.
pub(super) fn whole(r: &Representation, item: &Item<'_>, out: &mut Vec<u8>) {
    splice(&r.resource.object_start, item, item.stored.after_splice(), out);
}

/// One item of a list. A PartialObjectMetadata has type metadata even there, as upstream's.
pub(super) fn item(r: &Representation, item: &Item<'_>, out: &mut Vec<u8>) {
    match r.accepted.transform {
        Transform::PartialObjectMetadata(v) | Transform::PartialObjectMetadataList(v) => {
            partial(v.api_version(), item, out);
        }
        _ => splice(&r.resource.item_start, item, item.stored.after_splice(), out),
    }
}

/// One object, untransformed, without type metadata.
pub(super) fn untyped(item: &Item<'_>, out: &mut Vec<u8>) {
    splice(METADATA_START, item, item.stored.after_splice(), out);
}

const METADATA_START: &[u8] = b"{\"metadata\":{\"resourceVersion\":\"";

fn partial(api_version: &str, item: &Item<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(api_version.as_bytes());
    out.extend_from_slice(b"\",");
    splice(&METADATA_START[1..], item, item.stored.metadata_after_splice(), out);
    out.push(b'}');
}

fn splice(start: &[u8], item: &Item<'_>, rest: &[u8], out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    let revision = digits.format(item.revision.get());
    out.reserve(start.len() + revision.len() + 2 + rest.len());
    out.extend_from_slice(start);
    out.extend_from_slice(revision.as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(rest);
}

/// An item that had to be converted: built-in kinds have no type metadata in lists, but for their metadata
/// alone, which is a kind of its own.
pub(super) fn item_tree(r: &Representation, mut tree: Value, out: &mut Vec<u8>) {
    if !r.resource.is_custom() && matches!(r.accepted.transform, Transform::None) {
        if let Some(object) = tree.as_object_mut() {
            object.remove("kind");
            object.remove("apiVersion");
        }
    }
    match r.accepted.transform {
        Transform::None => codec::write(&tree, r.resource.schema, r.resource.root, out),
        _ => codec::write_untyped(&tree, out),
    }
}

pub(super) fn list_start(r: &Representation, meta: Option<&ListMeta>, out: &mut Vec<u8>) {
    let (kind, api_version) = tree::list_type_meta(r);
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(api_version.as_bytes());
    out.extend_from_slice(b"\",");
    if let Some(meta) = meta {
        list_meta(r, meta, out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"items\":[");
}

pub(super) fn list_end(r: &Representation, meta: Option<&ListMeta>, out: &mut Vec<u8>) {
    out.push(b']');
    if let Some(meta) = meta {
        out.push(b',');
        list_meta(r, meta, out);
    }
    out.extend_from_slice(b"}\n");
}

/// `"metadata":{...}` of a list. Nothing in it needs escaping: digits and base64url.
pub(super) fn list_meta(r: &Representation, meta: &ListMeta, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
    out.extend_from_slice(meta.resource_version.as_bytes());
    out.push(b'"');
    if !meta.continue_token.is_empty() || tree::states_continue(r) {
        out.extend_from_slice(b",\"continue\":\"");
        out.extend_from_slice(meta.continue_token.as_bytes());
        out.push(b'"');
    }
    if let Some(count) = meta.remaining_item_count {
        out.extend_from_slice(b",\"remainingItemCount\":");
        out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    }
    out.push(b'}');
}

/// One event, terminated by a newline; `object` appends the object.
pub(super) fn event(
    kind: EventType,
    out: &mut Vec<u8>,
    object: impl FnOnce(&mut Vec<u8>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_str().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(out)?;
    if out.last() == Some(&b'\n') {
        out.pop();
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}
