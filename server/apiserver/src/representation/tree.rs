//! Encodings of object trees: YAML, protobuf, CBOR, indented JSON, bookmarks, errors.

use plinth_codec::negotiate::{Encoding, MetaVersion, Transform};
use plinth_codec::protobuf::{self, WatchEvent};
use plinth_codec::schema::{self, Schema, TypeId, GVK};
use plinth_codec::yaml;
use plinth_codec::{cbor, json, tree, Map, Value};
use plinth_engine::Revision;

use super::item::{EventType, Item, ListMeta};
use super::negotiated::Representation;
use plinth_api::ApiError;

/// Writes a tree with type metadata.
///
/// # Errors
/// 500 when the encoding has no form for the kind, or the tree does not match its kind.
pub fn write(
    tree: &Value,
    own: &Schema,
    encoding: Encoding,
    pretty: bool,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let gvk = gvk_of(tree);
    let found = find_type(own, &gvk);
    match (encoding, found) {
        (Encoding::Json, Some((schema, root))) if pretty => json::write_pretty(tree, schema, root, out),
        (Encoding::Json, Some((schema, root))) => {
            json::write(tree, schema, root, out);
            out.push(b'\n');
        }
        (Encoding::Json, None) if pretty => {
            let mut compact = Vec::new();
            json::write_untyped(tree, &mut compact);
            json::Indenter::default().push(&compact, out);
        }
        (Encoding::Json, None) => {
            json::write_untyped(tree, out);
            out.push(b'\n');
        }
        (Encoding::Yaml, Some((schema, root))) => {
            // Round trip, so that YAML omits and includes the same members as JSON.
            let mut text = Vec::with_capacity(2048);
            json::write(tree, schema, root, &mut text);
            let tree = json::parse(&text).map_err(ApiError::internal)?;
            yaml::write(&tree, out);
        }
        (Encoding::Yaml, None) => yaml::write(tree, out),
        (Encoding::Protobuf, Some((schema, root))) => {
            protobuf::encode(tree, &gvk, schema, root, out).map_err(ApiError::internal)?;
        }
        (Encoding::Protobuf, None) => {
            return Err(ApiError::internal(format!("{} has no protobuf form", gvk.kind)));
        }
        (Encoding::Cbor, found) => cbor::encode(tree, found, out).map_err(ApiError::internal)?,
    }
    Ok(())
}

/// Writes a document whose kind is given separately: discovery sometimes omits `apiVersion`.
///
/// # Errors
/// 500 when the encoding has no form for it.
pub fn write_document(
    document: &plinth_registry::DiscoveryDocument,
    schema: &Schema,
    accepted: &plinth_codec::negotiate::Accepted,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    match (accepted.encoding, schema.kind(&document.kind)) {
        (Encoding::Json, Some(root)) if accepted.pretty => {
            json::write_pretty(&document.tree, schema, root, out);
        }
        (Encoding::Json, Some(root)) => {
            json::write(&document.tree, schema, root, out);
            out.push(b'\n');
        }
        (Encoding::Protobuf, Some(root)) => {
            protobuf::encode(&document.tree, &document.kind, schema, root, out)
                .map_err(ApiError::internal)?;
        }
        _ => write(&document.tree, schema, accepted.encoding, accepted.pretty, out)?,
    }
    Ok(())
}

/// The schema type of an encoded object, if it has one.
pub(super) fn served_type(r: &Representation) -> Option<(&'static Schema, TypeId)> {
    match r.accepted.transform {
        Transform::PartialObjectMetadata(v) | Transform::PartialObjectMetadataList(v) => {
            let (group, version) = v.api_version().rsplit_once('/')?;
            find_type(r.resource.schema, &GVK::new(group, version, "PartialObjectMetadata"))
        }
        _ if r.resource.is_custom() => None,
        _ => Some((r.resource.schema, r.resource.root)),
    }
}

/// The tree after `as=PartialObjectMetadata`.
pub(super) fn transformed(r: &Representation, item: &Item<'_>) -> Result<Value, ApiError> {
    let tree = r.tree(item)?;
    Ok(match r.accepted.transform {
        Transform::PartialObjectMetadata(v) | Transform::PartialObjectMetadataList(v) => partial(tree, v),
        _ => tree,
    })
}

fn gvk_of(tree: &Value) -> GVK {
    let api_version = tree.str_at(&["apiVersion"]).unwrap_or_default();
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    GVK::new(group, version, tree.str_at(&["kind"]).unwrap_or_default())
}

pub(super) fn find_type<'a>(own: &'a Schema, gvk: &GVK) -> Option<(&'a Schema, TypeId)> {
    let in_own = own.kind(gvk).map(|root| (own, root));
    in_own.or_else(|| {
        let builtin = schema::builtin();
        // Types such as Status and ListMeta are the same in every group.
        let common = GVK::new("", "v1", gvk.kind.clone());
        builtin.kind(gvk).or_else(|| builtin.kind(&common)).map(|root| (builtin, root))
    })
}

/// `kind` and `apiVersion` of a list.
pub(super) fn list_type_meta(r: &Representation) -> (&str, &str) {
    use plinth_codec::negotiate::Transform;
    match r.accepted.transform {
        Transform::PartialObjectMetadata(v) | Transform::PartialObjectMetadataList(v) => {
            ("PartialObjectMetadataList", v.api_version())
        }
        _ => (r.resource.row.list_kind.as_str(), r.resource.api_version.as_str()),
    }
}

/// The type of a list's metadata.
pub(super) fn list_meta_type() -> Result<(&'static Schema, TypeId), ApiError> {
    let builtin = schema::builtin();
    let id = builtin.named("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");
    id.map(|id| (builtin, id)).ok_or_else(|| ApiError::internal("the schema has no ListMeta"))
}

/// Whether a list has an empty `continue` on its last page. Lists of custom resources do, unless they are
/// transformed: they have no type to omit the member (k8s.io/apimachinery `unstructured.UnstructuredList`).
pub(super) fn states_continue(r: &Representation) -> bool {
    use plinth_codec::negotiate::Transform;
    r.resource.is_custom() && matches!(r.accepted.transform, Transform::None)
}

pub(super) fn list_meta(r: &Representation, meta: &ListMeta) -> Map {
    let mut map = Map::new();
    map.insert("resourceVersion", meta.resource_version.as_str());
    if !meta.continue_token.is_empty() || states_continue(r) {
        map.insert("continue", meta.continue_token.as_str());
    }
    if let Some(count) = meta.remaining_item_count {
        map.insert("remainingItemCount", i64::try_from(count).unwrap_or(i64::MAX));
    }
    map
}

/// The metadata of an object as a PartialObjectMetadata.
pub(super) fn partial(mut tree: Value, version: MetaVersion) -> Value {
    let metadata = tree.as_object_mut().and_then(|o| o.remove("metadata")).unwrap_or_default();
    tree!({ "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata })
}

/// A bookmark: an object of the watched kind with nothing but a resourceVersion.
pub(super) fn bookmark(r: &Representation, revision: Revision, initial_events_end: bool) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", revision.to_string());
    if initial_events_end {
        metadata.insert("annotations", tree!({ "k8s.io/initial-events-end": "true" }));
    }
    tree!({
        "kind": r.resource.row.kind.clone(),
        "apiVersion": r.resource.api_version.as_str(),
        "metadata": metadata,
    })
}

/// One watch event of an object tree, framed for the encoding.
pub(super) fn event(
    r: &Representation,
    kind: EventType,
    object: &Value,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let mut body = Vec::with_capacity(1024);
    write(object, r.resource.schema, r.accepted.encoding, false, &mut body)?;
    frame(r.accepted.encoding, kind, &body, out);
    Ok(())
}

/// Frames an encoded object as a watch event.
pub(super) fn frame(encoding: Encoding, kind: EventType, body: &[u8], out: &mut Vec<u8>) {
    match encoding {
        Encoding::Protobuf => WatchEvent::write(kind.as_str(), body, out),
        Encoding::Cbor => cbor::write_watch_event(kind.as_str(), body, out),
        Encoding::Json | Encoding::Yaml => {
            let body = body.strip_suffix(b"\n").unwrap_or(body);
            out.extend_from_slice(b"{\"type\":\"");
            out.extend_from_slice(kind.as_str().as_bytes());
            out.extend_from_slice(b"\",\"object\":");
            out.extend_from_slice(body);
            out.extend_from_slice(b"}\n");
        }
    }
}
