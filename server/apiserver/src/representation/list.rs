//! Lists, encoded item by item, so that memory does not grow with their length.
//!
//! | form | how |
//! |---|---|
//! | JSON, Tables in JSON | spliced or projected from the stored bytes |
//! | indented JSON | the same bytes through an indenter |
//! | YAML | one item's tree at a time; keys are in goyaml's order, so the items follow `apiVersion` |
//! | protobuf, CBOR | encoded from the stored JSON; a prefix states the length or number of the items |
//!
//! The last row needs two scans of the collection: see [`FirstPass`].

use std::ops::Deref;

use bytes::Bytes;
use plinth_codec::json::Indenter;
use plinth_codec::negotiate::{Encoding, Transform};
use plinth_codec::protobuf::ListFrame;
use plinth_codec::schema::{Schema, TypeId, GVK};
use plinth_codec::{cbor, json as text, protobuf, tree as tree_of, yaml, Map, Value};

use super::item::{Item, ListMeta};
use super::negotiated::Representation;
use super::{json, table, tree};
use plinth_api::ApiError;
use plinth_storage::Lengths;

/// Writes one list: [`start`](ListWriter::start), [`item`](ListWriter::item) for each,
/// [`end`](ListWriter::end), all into a buffer that the caller may flush at any time. `R` is a reference or a
/// reference count.
pub struct ListWriter<R> {
    representation: R,
    form: ListForm,
    /// Whether no item has been written yet.
    first: bool,
    /// Rows of a Table that are not sorted by key, with their sort keys; they are written at the end. Few
    /// kinds have such rows, and few objects.
    waiting: Vec<((i64, String), Vec<u8>)>,
    /// JSON of an item that is being transcoded.
    json: Vec<u8>,
}

enum ListForm {
    Json,
    Indented(Indenter),
    Yaml,
    /// The type of an item.
    Protobuf(&'static Schema, TypeId),
    /// The type of an item, where it has one.
    Cbor(Option<(&'static Schema, TypeId)>),
}

/// What the prefix of a list states about its items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of items.
    pub items: u64,
    /// Their encoded length.
    pub bytes: usize,
}

impl<R: Deref<Target = Representation>> ListWriter<R> {
    /// A list in that representation.
    ///
    /// # Errors
    /// 500 when the kind has no protobuf form.
    pub fn new(representation: R) -> Result<ListWriter<R>, ApiError> {
        let r = &*representation;
        let form = match (r.accepted.encoding, r.accepted.transform) {
            (Encoding::Json, _) if r.pretty => ListForm::Indented(Indenter::default()),
            (Encoding::Json, _) => ListForm::Json,
            (Encoding::Yaml, _) => ListForm::Yaml,
            (Encoding::Protobuf | Encoding::Cbor, Transform::Table(_)) => {
                return Err(ApiError::internal("a Table has no binary form"));
            }
            (Encoding::Protobuf, _) => {
                let kind = &r.resource.row.kind;
                let (schema, id) = tree::served_type(r)
                    .ok_or_else(|| ApiError::internal(format!("{kind} has no protobuf form")))?;
                ListForm::Protobuf(schema, id)
            }
            (Encoding::Cbor, _) => ListForm::Cbor(tree::served_type(r)),
        };
        let (waiting, json) = Default::default();
        Ok(ListWriter { representation, form, first: true, waiting, json })
    }

    /// Whether [`start`](ListWriter::start) needs totals and metadata.
    pub(crate) fn needs_totals(&self) -> bool {
        matches!(self.form, ListForm::Protobuf(..) | ListForm::Cbor(_))
    }

    /// Whether the prefix states the items' length; otherwise only their number.
    pub(crate) fn states_bytes(&self) -> bool {
        matches!(self.form, ListForm::Protobuf(..))
    }

    /// Appends the prefix of the list. Metadata that is known goes here, as upstream writes it;
    /// otherwise it goes to the end.
    ///
    /// # Errors
    /// 500 when the encoding fails.
    pub fn start(
        &mut self,
        meta: Option<&ListMeta>,
        totals: Totals,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let r = &*self.representation;
        match &mut self.form {
            ListForm::Json => json_start(r, meta, out),
            ListForm::Indented(indenter) => {
                self.json.clear();
                json_start(r, meta, &mut self.json);
                indenter.push(&self.json, out);
            }
            ListForm::Yaml => yaml_start(r, meta, out)?,
            ListForm::Protobuf(..) => {
                let metadata = tree::list_meta(r, meta.unwrap_or(&ListMeta::default())).into();
                let (schema, id) = tree::list_meta_type()?;
                let mut message = Vec::new();
                protobuf::encode_message(&metadata, schema, id, &mut message).map_err(ApiError::internal)?;
                let frame = ListFrame::of_total(&list_kind(r), &message, totals.bytes);
                out.extend_from_slice(frame.head());
            }
            ListForm::Cbor(_) => out.extend_from_slice(cbor_frame(r, &ListMeta::default(), totals)?.head()),
        }
        Ok(())
    }

    /// Appends one item.
    ///
    /// # Errors
    /// 500 when the stored bytes cannot be read or converted.
    pub fn item(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let r = &*self.representation;
        if let Transform::Table(_) = r.accepted.transform {
            if let Some(rank) = table::rank(r, item)? {
                let mut row = Vec::new();
                json_item(r, item, true, &mut row)?;
                self.waiting.push((rank, row));
                return Ok(());
            }
        }
        let first = std::mem::replace(&mut self.first, false);
        self.json.clear();
        match &mut self.form {
            ListForm::Json => json_item(r, item, first, out)?,
            ListForm::Indented(indenter) => {
                json_item(r, item, first, &mut self.json)?;
                indenter.push(&self.json, out);
            }
            ListForm::Yaml => {
                if first {
                    out.extend_from_slice(rows_key(r));
                    out.extend_from_slice(b":\n");
                }
                json_item(r, item, true, &mut self.json)?;
                yaml::write_element(&text::parse(&self.json).map_err(ApiError::internal)?, out);
            }
            ListForm::Protobuf(schema, id) => {
                let is_stored_form = r.accepted.transform == Transform::None && r.is_served_version(item);
                let encoded = if is_stored_form {
                    let mut digits = itoa::Buffer::new();
                    let revision = digits.format(item.revision.get());
                    protobuf::transcode_json_item(item.stored.body(), Some(revision), schema, *id, out)
                } else {
                    json_item(r, item, true, &mut self.json)?;
                    protobuf::transcode_json_item(&self.json, None, schema, *id, out)
                };
                encoded.map_err(ApiError::internal)?;
            }
            ListForm::Cbor(id) => {
                json_item(r, item, true, &mut self.json)?;
                cbor::transcode_json_bare(&self.json, *id, out).map_err(ApiError::internal)?;
            }
        }
        Ok(())
    }

    /// Appends the deferred rows, sorted.
    fn waiting_rows(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let mut rows = std::mem::take(&mut self.waiting);
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (_, row) in rows {
            let first = std::mem::replace(&mut self.first, false);
            let comma: &[u8] = if first { b"" } else { b"," };
            match &mut self.form {
                ListForm::Indented(indenter) => {
                    indenter.push(comma, out);
                    indenter.push(&row, out);
                }
                ListForm::Yaml => {
                    if first {
                        out.extend_from_slice(b"rows:\n");
                    }
                    yaml::write_element(&text::parse(&row).map_err(ApiError::internal)?, out);
                }
                _ => {
                    out.extend_from_slice(comma);
                    out.extend_from_slice(&row);
                }
            }
        }
        Ok(())
    }

    /// Appends what follows the items; `late` means that the metadata was not written at the start.
    ///
    /// # Errors
    /// 500 when the encoding fails.
    pub fn end(
        &mut self,
        meta: &ListMeta,
        late: bool,
        totals: Totals,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        self.waiting_rows(out)?;
        let r = &*self.representation;
        match &mut self.form {
            ListForm::Json => json::list_end(r, late.then_some(meta), out),
            ListForm::Indented(indenter) => {
                self.json.clear();
                json::list_end(r, late.then_some(meta), &mut self.json);
                indenter.push(&self.json, out);
            }
            ListForm::Yaml => {
                if self.first {
                    out.extend_from_slice(rows_key(r));
                    out.extend_from_slice(b": []\n");
                }
                yaml_end(r, meta, late, out);
            }
            ListForm::Protobuf(..) => out.extend_from_slice(ListFrame::tail()),
            ListForm::Cbor(_) => out.extend_from_slice(cbor_frame(r, meta, totals)?.tail()),
        }
        Ok(())
    }
}

fn json_start(r: &Representation, meta: Option<&ListMeta>, out: &mut Vec<u8>) {
    match r.accepted.transform {
        Transform::Table(version) => table::start(r, version, meta, out),
        _ => json::list_start(r, meta, out),
    }
}

/// One item in JSON, in the requested version; preceded by a comma unless it is the first.
fn json_item(r: &Representation, item: &Item<'_>, first: bool, out: &mut Vec<u8>) -> Result<(), ApiError> {
    if !first {
        out.push(b',');
    }
    match r.accepted.transform {
        Transform::Table(version) => table::row(r, version, item, out)?,
        _ if r.is_served_version(item) => json::item(r, item, out),
        _ => json::item_tree(r, tree::transformed(r, item)?, out),
    }
    Ok(())
}

fn rows_key(r: &Representation) -> &'static [u8] {
    match r.accepted.transform {
        Transform::Table(_) => b"rows",
        _ => b"items",
    }
}

/// The keys that goyaml sorts before the items.
fn yaml_start(r: &Representation, meta: Option<&ListMeta>, out: &mut Vec<u8>) -> Result<(), ApiError> {
    let Transform::Table(version) = r.accepted.transform else {
        let (_, api_version) = tree::list_type_meta(r);
        yaml::write(&tree_of!({ "apiVersion": api_version }), out);
        return Ok(());
    };
    let mut json = Vec::new();
    table::start(r, version, meta, &mut json);
    json.extend_from_slice(b"]}");
    let mut head = text::parse(&json).map_err(ApiError::internal)?;
    if let Some(head) = head.as_object_mut() {
        head.remove("rows");
    }
    yaml::write(&head, out);
    Ok(())
}

/// The keys that goyaml sorts after the items; those of a Table precede its rows if they are known by then.
fn yaml_end(r: &Representation, meta: &ListMeta, late: bool, out: &mut Vec<u8>) {
    let mut tail = Map::new();
    match r.accepted.transform {
        Transform::Table(_) if !late => return,
        Transform::Table(_) => {}
        _ => drop(tail.insert("kind", tree::list_type_meta(r).0)),
    }
    tail.insert("metadata", tree::list_meta(r, meta));
    yaml::write(&Value::Object(tail), out);
}

fn cbor_frame(r: &Representation, meta: &ListMeta, totals: Totals) -> Result<cbor::CborListFrame, ApiError> {
    let mut metadata = Vec::new();
    cbor::encode_bare(&tree::list_meta(r, meta).into(), None, &mut metadata).map_err(ApiError::internal)?;
    Ok(cbor::CborListFrame::new(&list_kind(r), &metadata, totals.items))
}

/// The kind of the list itself.
fn list_kind(r: &Representation) -> GVK {
    let (kind, api_version) = tree::list_type_meta(r);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    GVK::new(group, version, kind)
}

/// Bytes of encoded items that a first pass keeps. Shorter lists are encoded once; longer ones are encoded
/// again beyond this by the second pass.
const MAX_KEPT: usize = 4 << 20;
/// Bytes of one of their buffers.
const PIECE_BYTES: usize = 64 << 10;

/// The first pass over a collection whose list states its length in advance. It encodes the items to measure
/// them, keeps the first bytes, and caches the lengths of the other items.
pub struct FirstPass<'l> {
    lengths: &'l Lengths,
    totals: Totals,
    /// The first items, encoded, in buffers.
    pieces: Vec<Bytes>,
    open: Vec<u8>,
    kept: Totals,
    /// Key of the last kept item.
    kept_until: Vec<u8>,
    full: bool,
}

impl<'l> FirstPass<'l> {
    /// An empty pass.
    pub fn new(lengths: &'l Lengths) -> FirstPass<'l> {
        let (totals, pieces, open, kept, kept_until) = Default::default();
        FirstPass { lengths, totals, pieces, open, kept, kept_until, full: false }
    }

    /// Measures the next item.
    ///
    /// # Errors
    /// As [`ListWriter::item`].
    pub fn item<R: Deref<Target = Representation>>(
        &mut self,
        key: &[u8],
        item: &Item<'_>,
        list: &mut ListWriter<R>,
    ) -> Result<(), ApiError> {
        self.totals.items += 1;
        if self.full && matches!(list.form, ListForm::Cbor(_)) {
            // CBOR states the number only.
            return Ok(());
        }
        let owner = self.lengths.owner(key, item.revision, list.representation.key());
        if self.full {
            if let Some(length) = self.lengths.get(owner) {
                self.totals.bytes += length;
                return Ok(());
            }
            self.open.clear();
        }
        let before = self.open.len();
        list.item(item, &mut self.open)?;
        let length = self.open.len() - before;
        self.totals.bytes += length;
        if self.full {
            self.lengths.put(owner, length);
            return Ok(());
        }
        self.kept = self.totals;
        if self.open.len() >= PIECE_BYTES {
            self.pieces.push(Bytes::from(std::mem::replace(&mut self.open, Vec::with_capacity(PIECE_BYTES))));
            if self.kept.bytes >= MAX_KEPT {
                self.full = true;
                self.kept_until = key.to_vec();
                self.open = Vec::new();
            }
        }
        Ok(())
    }

    /// Totals of all items.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The kept items, and where the second pass continues: the key of the last kept item and the totals of
    /// the rest; `None` when all items were kept.
    pub fn kept(mut self) -> (Vec<Bytes>, Option<(Vec<u8>, Totals)>) {
        if !self.full {
            self.pieces.push(Bytes::from(self.open));
            return (self.pieces, None);
        }
        let rest =
            Totals { items: self.totals.items - self.kept.items, bytes: self.totals.bytes - self.kept.bytes };
        (self.pieces, (rest.items > 0).then_some((self.kept_until, rest)))
    }
}
