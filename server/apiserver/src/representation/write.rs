//! Writes objects, lists and events in the negotiated encoding.

use plinth_codec::negotiate::{Encoding, Transform};
use plinth_codec::{cbor, protobuf, Value};
use plinth_engine::Revision;

use super::item::{EventType, Item};
use super::negotiated::Representation;
use super::{json, table, tree};
use plinth_api::ApiError;

impl Representation {
    /// Writes one object.
    ///
    /// # Errors
    /// 500 when the stored bytes cannot be read or converted.
    pub fn object(&self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), ApiError> {
        if self.copies(item) {
            json::object(self, item, out);
            // As Go's encoder ends each document; an event takes it back.
            out.push(b'\n');
            return Ok(());
        }
        if let Transform::Table(version) = self.accepted.transform {
            return table::of_one(self, version, item, true, out);
        }
        if self.transcode(item, out)? {
            return Ok(());
        }
        let tree = tree::transformed(self, item)?;
        self.write_tree(&tree, out)
    }

    /// Transcodes one object from the stored JSON to protobuf or CBOR, where that is possible.
    fn transcode(&self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let r = &self.resource;
        let plain = matches!(self.accepted.transform, Transform::None);
        if !plain || !self.is_served_version(item) {
            return Ok(false);
        }
        match self.accepted.encoding {
            Encoding::Protobuf => {
                let mut text = Vec::with_capacity(item.stored.body().len() + 64);
                json::untyped(item, &mut text);
                protobuf::transcode_json(&text, &r.row.gvk(), r.schema, r.root, out)
                    .map_err(ApiError::internal)?;
            }
            Encoding::Cbor => {
                let mut text = Vec::with_capacity(item.stored.body().len() + 128);
                json::whole(self, item, &mut text);
                let types = (!r.is_custom()).then_some((r.schema, r.root));
                cbor::transcode_json(&text, types, out).map_err(ApiError::internal)?;
            }
            Encoding::Json | Encoding::Yaml => return Ok(false),
        }
        Ok(true)
    }

    /// Writes one watch event with its framing; `with_columns` means that a Table includes its column
    /// definitions.
    ///
    /// # Errors
    /// 500 when the stored bytes cannot be read or converted.
    pub fn event(
        &self,
        kind: EventType,
        item: &Item<'_>,
        with_columns: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        if self.accepted.encoding == Encoding::Json {
            return json::event(kind, out, |out| match self.accepted.transform {
                Transform::Table(version) => table::of_one(self, version, item, with_columns, out),
                _ => self.object(item, out),
            });
        }
        let mut body = Vec::with_capacity(item.stored.body().len() + 128);
        if self.transcode(item, &mut body)? {
            tree::frame(self.accepted.encoding, kind, &body, out);
            return Ok(());
        }
        let tree = tree::transformed(self, item)?;
        tree::event(self, kind, &tree, out)
    }

    /// Writes a bookmark; `initial_events_end` marks the end of a streaming list.
    ///
    /// # Errors
    /// 500 when the encoding fails.
    pub fn bookmark(
        &self,
        revision: Revision,
        initial_events_end: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let bookmark = tree::bookmark(self, revision, initial_events_end);
        let tree = match self.accepted.transform {
            Transform::PartialObjectMetadata(v) | Transform::PartialObjectMetadataList(v) => {
                tree::partial(bookmark, v)
            }
            Transform::Table(v) => table::bookmark(self, v, bookmark),
            _ => bookmark,
        };
        tree::event(self, EventType::Bookmark, &tree, out)
    }

    /// Writes an ERROR event.
    ///
    /// # Errors
    /// 500 when the encoding fails.
    pub(crate) fn error_event(&self, error: &ApiError, out: &mut Vec<u8>) -> Result<(), ApiError> {
        tree::event(self, EventType::Error, &error.to_status(), out)
    }

    /// Writes a tree that is not stored, an object or list with type metadata, in the negotiated form.
    ///
    /// # Errors
    /// 500 when the encoding has no form for it.
    pub(crate) fn unstored(&self, tree: Value, out: &mut Vec<u8>) -> Result<(), ApiError> {
        match self.accepted.transform {
            Transform::Table(version) => {
                let items = tree.get("items").and_then(Value::as_array);
                table::of_trees(self, version, items.unwrap_or(std::slice::from_ref(&tree)), out)
            }
            Transform::PartialObjectMetadata(version) => self.write_tree(&tree::partial(tree, version), out),
            _ => self.write_tree(&tree, out),
        }
    }

    /// Writes a Scale of this resource, or the Table of it.
    ///
    /// # Errors
    /// When the tree cannot be encoded.
    pub fn scale(&self, scale: &Value, out: &mut Vec<u8>) -> Result<(), ApiError> {
        match self.accepted.transform {
            Transform::Table(version) => table::of_scale(self, version, scale, out),
            _ => self.write_tree(scale, out),
        }
    }

    /// Writes a tree with type metadata in the negotiated encoding.
    ///
    /// # Errors
    /// 500 when the encoding has no form for it.
    pub(crate) fn write_tree(&self, tree: &Value, out: &mut Vec<u8>) -> Result<(), ApiError> {
        tree::write(tree, self.resource.schema, self.accepted.encoding, self.pretty, out)
    }
}
