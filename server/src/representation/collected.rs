//! Lists that state in front what comes behind: protobuf the length of everything, CBOR the number of items.
//!
//! Each item is encoded as the walk over the collection passes it, straight from the stored JSON, and only the
//! encoded bytes are kept, in pieces that are sent without being put together. YAML, indented JSON and Tables in
//! YAML are for people; those are made from trees and rows.

use bytes::Bytes;
use plinth_codec::negotiate::{Encoding, Transform};
use plinth_codec::schema::{Schema, TypeId, GVK};
use plinth_codec::{cbor, protobuf, Value};

use super::{json, table, tree, Item, ListMeta, Representation};
use crate::status::ApiError;

/// Bytes of encoded items that are kept in one piece.
const PIECE: usize = 128 << 10;

/// A list that is being collected. Belongs to the task that walks over the collection.
pub struct Collected<'r> {
    representation: &'r Representation,
    form: Form<'r>,
    /// Encoded items, in full pieces.
    pieces: Vec<Bytes>,
    /// The piece that is being filled.
    open: Vec<u8>,
    /// Holds the JSON, then the message of one item.
    scratch: (Vec<u8>, Vec<u8>),
}

/// What is kept beside the encoded items.
enum Form<'r> {
    /// The type of an item and the length of each message.
    Protobuf { item: (&'r Schema, TypeId), lens: Vec<usize> },
    /// The type of an item, where it has one, and the number of items.
    Cbor { item: Option<(&'r Schema, TypeId)>, count: u64 },
    /// YAML and indented JSON: all items as trees.
    Trees(Vec<Value>),
    /// The rows of a Table that is not JSON on one line.
    Rows(plinth_codec::negotiate::MetaVersion),
}

impl<'r> Collected<'r> {
    /// An empty list.
    ///
    /// # Errors
    /// 500 when the kind has no protobuf form.
    pub fn new(representation: &'r Representation) -> Result<Collected<'r>, ApiError> {
        let item = || representation.served_type();
        let form = match (representation.accepted.transform, representation.accepted.encoding) {
            (Transform::Table(version), _) => Form::Rows(version),
            (_, Encoding::Protobuf) => {
                let kind = &representation.resource.row.kind;
                let item =
                    item().ok_or_else(|| ApiError::internal(format!("{kind} has no protobuf form")))?;
                Form::Protobuf { item, lens: Vec::new() }
            }
            (_, Encoding::Cbor) => Form::Cbor { item: item(), count: 0 },
            (_, Encoding::Json | Encoding::Yaml) => Form::Trees(Vec::new()),
        };
        let (pieces, open, scratch) = Default::default();
        Ok(Collected { representation, form, pieces, open, scratch })
    }

    /// Takes one item.
    ///
    /// # Errors
    /// 500 when the stored bytes cannot be read or converted.
    pub fn push(&mut self, item: &Item<'_>) -> Result<(), ApiError> {
        let r = self.representation;
        let (text, message) = &mut self.scratch;
        text.clear();
        match &mut self.form {
            Form::Protobuf { item: (schema, id), lens } => {
                message.clear();
                item_json(r, item, text)?;
                protobuf::transcode_json_message(text, schema, *id, message).map_err(ApiError::internal)?;
                let (prefix, used) = protobuf::ListFrame::item_prefix(message.len());
                lens.push(message.len());
                self.open.extend_from_slice(prefix.get(..used).unwrap_or_default());
                self.open.extend_from_slice(message);
            }
            Form::Cbor { item: id, count } => {
                item_json(r, item, text)?;
                cbor::transcode_json_bare(text, *id, &mut self.open).map_err(ApiError::internal)?;
                *count += 1;
            }
            Form::Trees(trees) => trees.push(tree::list_item(r, item)?),
            Form::Rows(version) => {
                if !self.open.is_empty() {
                    self.open.push(b',');
                }
                table::row(r, *version, item, &mut self.open)?;
            }
        }
        // The rows of a Table are read again as a whole.
        if self.open.len() >= PIECE && !matches!(self.form, Form::Rows(_)) {
            let full = std::mem::replace(&mut self.open, Vec::with_capacity(PIECE + PIECE / 4));
            self.pieces.push(Bytes::from(full));
        }
        Ok(())
    }

    /// The whole list, in pieces.
    ///
    /// # Errors
    /// 500 when the encoding fails.
    pub fn finish(mut self, meta: &ListMeta) -> Result<Vec<Bytes>, ApiError> {
        let r = self.representation;
        let (head, tail) = match self.form {
            Form::Protobuf { lens, .. } => {
                let metadata = tree::list_meta(meta).into();
                let (schema, id) = tree::list_meta_type()?;
                let mut message = Vec::new();
                protobuf::encode_message(&metadata, schema, id, &mut message).map_err(ApiError::internal)?;
                let frame = protobuf::ListFrame::new(&list_kind(r), &message, lens);
                (frame.head().to_vec(), protobuf::ListFrame::tail().to_vec())
            }
            Form::Cbor { count, .. } => {
                let mut metadata = Vec::new();
                cbor::encode_bare(&tree::list_meta(meta).into(), None, &mut metadata)
                    .map_err(ApiError::internal)?;
                let frame = cbor::ListFrame::new(&list_kind(r), &metadata, count);
                (frame.head().to_vec(), frame.tail().to_vec())
            }
            Form::Trees(trees) => {
                let mut out = Vec::with_capacity(4096);
                r.write_tree(&tree::list(r, meta, trees), &mut out)?;
                return Ok(vec![Bytes::from(out)]);
            }
            Form::Rows(version) => {
                let mut out = Vec::with_capacity(4096);
                table::of_rows(r, version, meta, &self.open, &mut out)?;
                return Ok(vec![Bytes::from(out)]);
            }
        };
        self.open.extend_from_slice(&tail);
        let mut whole = Vec::with_capacity(self.pieces.len() + 2);
        whole.push(Bytes::from(head));
        whole.append(&mut self.pieces);
        whole.push(Bytes::from(self.open));
        Ok(whole)
    }
}

/// The JSON of an item in the version asked for.
fn item_json(r: &Representation, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), ApiError> {
    if r.is_served_version(item) {
        json::item(r, item, out);
    } else {
        json::item_tree(r, r.transformed(item)?, out);
    }
    Ok(())
}

/// The kind that a list says it is.
fn list_kind(r: &Representation) -> GVK {
    let (kind, api_version) = tree::list_type_meta(r);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    GVK::new(group, version, kind)
}
