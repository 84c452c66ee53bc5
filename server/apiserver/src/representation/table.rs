//! Tables: rows projected from the stored bytes, written as JSON.

use plinth_codec::negotiate::{Encoding, MetaVersion};
use plinth_codec::table::{self as codec, IncludeObject, RowObject, Writer};
use plinth_codec::yaml;
use plinth_codec::{json, Value};

use super::item::{Item, ListMeta};
use super::negotiated::Representation;
use super::{json as spliced, tree};
use plinth_api::ApiError;
use plinth_kinds::scale;

fn writer(r: &Representation, version: MetaVersion) -> Writer<'_> {
    Writer::new(&r.resource.table, version, r.now.into())
}

/// Writes everything before the rows. Metadata that is not known yet is omitted and written at the end.
pub(super) fn start(r: &Representation, version: MetaVersion, meta: Option<&ListMeta>, out: &mut Vec<u8>) {
    writer(r, version).begin(meta.map(borrowed).as_ref(), true, out);
}

fn borrowed(meta: &ListMeta) -> codec::TableMeta<'_> {
    codec::TableMeta {
        resource_version: &meta.resource_version,
        continue_token: &meta.continue_token,
        remaining_item_count: meta.remaining_item_count,
    }
}

/// Sort key of rows that are not sorted by object key.
pub(super) fn rank(r: &Representation, item: &Item<'_>) -> Result<Option<(i64, String)>, ApiError> {
    let Some(path) = r.resource.strategy.rows_sorted_by else { return Ok(None) };
    let tree = json::parse(item.stored.body()).map_err(ApiError::internal)?;
    let number = tree.at(path).and_then(Value::as_int).unwrap_or(0);
    Ok(Some((number, tree.str_at(&["metadata", "name"]).unwrap_or_default().to_owned())))
}

/// One row.
pub(super) fn row(
    r: &Representation,
    version: MetaVersion,
    item: &Item<'_>,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let revision = item.revision.to_string();
    let metadata = item.stored.metadata();
    let whole;
    let object = match r.include {
        IncludeObject::None => RowObject::None,
        IncludeObject::Metadata => RowObject::Metadata(metadata),
        IncludeObject::Object => {
            whole = [object(r, item)?];
            RowObject::Object(&[&whole[0]])
        }
    };
    // A writer puts the comma itself from its second row on; the list has already written it.
    writer(r, version)
        .row(item.stored.body(), &revision, object, out)
        .map_err(|_| ApiError::internal("stored object is not JSON"))
}

fn object(r: &Representation, item: &Item<'_>) -> Result<Vec<u8>, ApiError> {
    let mut out = Vec::new();
    if r.is_served_version(item) {
        spliced::whole(r, item, &mut out);
    } else {
        json::write(&r.tree(item)?, r.resource.schema, r.resource.root, &mut out);
    }
    Ok(out)
}

/// A Table of one object, with or without column definitions.
pub(super) fn of_one(
    r: &Representation,
    version: MetaVersion,
    item: &Item<'_>,
    with_columns: bool,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let meta = ListMeta { resource_version: item.revision.to_string(), ..ListMeta::default() };
    written(r, out, |text| {
        writer(r, version).begin(Some(&borrowed(&meta)), with_columns, text);
        row(r, version, item, text)
    })
}

/// Completes a Table whose start and rows are written by `write`, and encodes it.
fn written(
    r: &Representation,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let mut text = Vec::with_capacity(1024);
    let target = if r.accepted.encoding == Encoding::Json && !r.pretty { &mut *out } else { &mut text };
    write(target)?;
    target.extend_from_slice(b"]}");
    if text.is_empty() {
        // As Go's encoder ends what it writes in one piece.
        out.push(b'\n');
    } else {
        let tree = json::parse(&text).map_err(ApiError::internal)?;
        match r.accepted.encoding {
            Encoding::Yaml => yaml::write(&tree, out),
            _ => tree::write(&tree, r.resource.schema, r.accepted.encoding, r.pretty, out)?,
        }
    }
    Ok(())
}

/// A table of objects that are not stored.
pub(super) fn of_trees(
    r: &Representation,
    version: MetaVersion,
    items: &[Value],
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    of_rows(r, writer(r, version), codec::TableMeta::default(), items, out)
}

/// The Table of a Scale, which has its own columns.
pub(super) fn of_scale(
    r: &Representation,
    version: MetaVersion,
    scale: &Value,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let resource_version = scale.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
    let meta = codec::TableMeta { resource_version, ..codec::TableMeta::default() };
    let writer = Writer::new(&scale::TABLE, version, r.now.into());
    of_rows(r, writer, meta, std::slice::from_ref(scale), out)
}

fn of_rows(
    r: &Representation,
    mut writer: Writer<'_>,
    meta: codec::TableMeta<'_>,
    items: &[Value],
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let mut text = Vec::with_capacity(1024);
    writer.begin(Some(&meta), true, &mut text);
    for item in items {
        let (mut metadata, mut whole) = (Vec::new(), Vec::new());
        let object = match r.include {
            IncludeObject::None => RowObject::None,
            IncludeObject::Metadata => {
                json::write_untyped(item.get("metadata").unwrap_or(&Value::Null), &mut metadata);
                RowObject::Metadata(&metadata)
            }
            IncludeObject::Object => {
                tree::write(item, r.resource.schema, Encoding::Json, false, &mut whole)?;
                RowObject::Object(&[whole.trim_ascii_end()])
            }
        };
        writer.row_of(item, "", object, &mut text);
    }
    writer.end(&mut text);
    match (r.accepted.encoding, r.pretty) {
        (Encoding::Json, false) => out.append(&mut text),
        (encoding, pretty) => {
            let tree = json::parse(&text).map_err(ApiError::internal)?;
            tree::write(&tree, r.resource.schema, encoding, pretty, out)?;
        }
    }
    Ok(())
}

/// A bookmark in a watch of Tables: one row without cells that carries the object.
pub(super) fn bookmark(r: &Representation, version: MetaVersion, bookmark: Value) -> Value {
    use plinth_codec::{tree, Map};
    let partial = tree::partial(bookmark.clone(), version);
    let object = match r.include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial,
        IncludeObject::Object => bookmark,
    };
    let revision = object.str_at(&["metadata", "resourceVersion"]).unwrap_or_default().to_owned();
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", revision);
    let cells = vec![Value::Null; r.resource.table.columns().len()];
    tree!({
        "kind": "Table",
        "apiVersion": version.api_version(),
        "metadata": metadata,
        "columnDefinitions": Value::Null,
        "rows": tree!([tree!({ "cells": cells, "object": object })]),
    })
}
