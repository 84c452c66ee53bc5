//! The encodings of stored objects on the wire.
//!
//! JSON is spliced: a prefix of the kind, the revision, the stored bytes. Every other encoding is derived
//! from the same bytes. A [`Representation`] is negotiated once per request; lists ([`ListWriter`]) and
//! watches then use it for each item.

mod json;
mod list;
pub mod list_size_cache;
mod table;
mod tree;

use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{HeaderMap, ACCEPT, USER_AGENT};
use plinth_codec::negotiate::{self, Accepted, Encoding, NotAcceptable, Offer, Shape, Transform};
use plinth_codec::schema::{Schema, TypeId, GVK};
use plinth_codec::table::IncludeObject;
use plinth_codec::{cbor, protobuf, Value};
use plinth_engine::Revision;

use plinth_api::{query_parameter, ApiError, Reason};
use plinth_registry::ResourceType;
use plinth_storage::{decode_served_object, Lengths, Stored};

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the protocol's own words
pub enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The revision of the list.
    pub resource_version: String,
    /// Token of the next page; empty on the last.
    pub continue_token: String,
    /// Number of items after this page, where that is known.
    pub remaining_item_count: Option<u64>,
}

/// Whether the answer is indented, according to query and User-Agent.
pub fn wants_pretty(accepted: &Accepted, query: Option<&str>, headers: &HeaderMap) -> bool {
    // Avoids parsing most queries.
    let parameter = query.filter(|query| query.contains("pretty")).and_then(|q| query_parameter(q, "pretty"));
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    negotiate::wants_pretty(accepted, parameter.as_deref(), agent)
}

/// 406. Where upstream's router refuses, the details are there and say nothing.
fn not_acceptable(error: NotAcceptable) -> ApiError {
    let status = ApiError::new(406, Reason::NotAcceptable, error.to_string());
    match error {
        NotAcceptable::Unknown { .. } => status.with_empty_details(),
        _ => status,
    }
}

/// A stored object to be encoded.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// Header and body.
    pub stored: Stored<'a>,
    /// Its resourceVersion: its own, or for a deletion that of the deletion.
    pub revision: Revision,
}

impl<'a> Item<'a> {
    /// Parses header and body of a stored value.
    ///
    /// # Errors
    /// 500 when the value is corrupt.
    pub fn new(value: &'a [u8], revision: Revision) -> Result<Item<'a>, ApiError> {
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        Ok(Item { stored, revision })
    }
}

/// The negotiated encoding of a request. Immutable; cheap to clone.
#[derive(Clone)]
pub struct Representation {
    /// The resource in the requested version.
    pub resource: Arc<ResourceType>,
    /// Encoding and transformation.
    pub accepted: Accepted,
    /// The object in each row of a Table.
    pub include: IncludeObject,
    /// Whether JSON is indented.
    pub pretty: bool,
    /// The time that ages in a Table are relative to.
    pub now: SystemTime,
}

/// Identity of a representation: watchers with equal keys get the same bytes for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RepresentationKey {
    resource: usize,
    encoding: Encoding,
    pretty: bool,
    transform: Transform,
    include: u8,
    /// For Tables: whether column definitions are included, and the second that ages are relative to.
    with_columns: bool,
    second: u64,
}

impl RepresentationKey {
    /// Whether two keys differ in the second only.
    pub fn differs_in_second(&self, other: &RepresentationKey) -> bool {
        self != other && RepresentationKey { second: other.second, ..*self } == *other
    }
}

impl Representation {
    /// Plain JSON.
    pub fn json(resource: Arc<ResourceType>) -> Representation {
        Representation {
            resource,
            accepted: Accepted::JSON,
            include: IncludeObject::default(),
            pretty: false,
            now: SystemTime::now(),
        }
    }

    /// What a client asks for by `Accept` and the query, and the request offers.
    ///
    /// # Errors
    /// 406; 400 of an unknown `includeObject`.
    pub fn negotiate(
        resource: &Arc<ResourceType>,
        offer: &Offer,
        headers: &HeaderMap,
        query: Option<&str>,
        include: Option<&str>,
    ) -> Result<Representation, ApiError> {
        let header = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let accepted = negotiate::accept(header, offer).map_err(not_acceptable)?;
        // A watch is read by programs, whatever they call themselves.
        let pretty = offer.shape != Shape::Watch && wants_pretty(&accepted, query, headers);
        let include = IncludeObject::parse(include).map_err(|e| ApiError::bad_request(e.to_string()))?;
        Ok(Representation { resource: resource.clone(), accepted, include, pretty, now: SystemTime::now() })
    }

    /// Identifies the bytes that this representation produces; `None` for Tables, whose ages change with
    /// the second.
    pub fn key(&self) -> Option<RepresentationKey> {
        (!self.is_table()).then(|| self.event_key(false))
    }

    /// Whether objects are encoded as Table rows.
    pub fn is_table(&self) -> bool {
        matches!(self.accepted.transform, Transform::Table(_))
    }

    /// The same at another time.
    pub fn at(&self, now: SystemTime) -> Representation {
        Representation { now, ..self.clone() }
    }

    /// Identifies the bytes of an event; `with_columns` means that a Table includes its column definitions.
    pub fn event_key(&self, with_columns: bool) -> RepresentationKey {
        let second = self.now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        RepresentationKey {
            resource: Arc::as_ptr(&self.resource) as usize,
            encoding: self.accepted.encoding,
            pretty: self.pretty,
            transform: self.accepted.transform,
            include: self.include as u8,
            with_columns: with_columns && self.is_table(),
            second: if self.is_table() { second } else { 0 },
        }
    }

    /// `Content-Type` of an answer of that shape.
    pub fn content_type(&self, shape: Shape) -> &'static str {
        self.accepted.content_type(shape)
    }

    /// Whether items are spliced from the stored bytes.
    fn splices(&self) -> bool {
        self.accepted.encoding == Encoding::Json && !self.pretty && !self.is_table()
    }

    /// Whether a stored body has the served version.
    fn is_served_version(&self, item: &Item<'_>) -> bool {
        // Custom resources were converted when they were read.
        self.resource.is_custom()
            || (self.resource.is_storage_version() && item.stored.version() == self.resource.row.version)
    }

    /// Whether an object is spliced, which takes no longer than copying it.
    pub fn copies(&self, item: &Item<'_>) -> bool {
        self.splices() && self.is_served_version(item)
    }

    /// Writes one object.
    ///
    /// # Errors
    /// 500 when the stored bytes cannot be read or converted.
    pub fn object(&self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<(), ApiError> {
        if self.copies(item) {
            json::object(self, item, out);
            return Ok(());
        }
        if let Transform::Table(version) = self.accepted.transform {
            return table::of_one(self, version, item, true, out);
        }
        if self.transcode(item, out)? {
            return Ok(());
        }
        let tree = self.transformed(item)?;
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

    /// The schema type of an encoded object, if it has one.
    fn served_type(&self) -> Option<(&'static Schema, TypeId)> {
        match self.accepted.transform {
            Transform::PartialObjectMetadata(v) | Transform::PartialObjectMetadataList(v) => {
                let (group, version) = v.api_version().rsplit_once('/')?;
                tree::find_type(self.resource.schema, &GVK::new(group, version, "PartialObjectMetadata"))
            }
            _ if self.resource.is_custom() => None,
            _ => Some((self.resource.schema, self.resource.root)),
        }
    }

    /// Writes a list of items in memory.
    ///
    /// # Errors
    /// 500 when an item cannot be read or the encoding fails.
    pub fn whole_list(&self, meta: &ListMeta, items: &[Item<'_>], out: &mut Vec<u8>) -> Result<(), ApiError> {
        let mut list = ListWriter::new(self)?;
        let lengths = Lengths::default();
        let mut first_pass = FirstPass::new(&lengths);
        if list.needs_totals() {
            items.iter().try_for_each(|item| first_pass.item(&[], item, &mut list))?;
        }
        let totals = first_pass.totals();
        list.start(Some(meta), totals, out)?;
        items.iter().try_for_each(|item| list.item(item, out))?;
        list.end(meta, false, totals, out)
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
        let tree = self.transformed(item)?;
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
    pub fn error_event(&self, error: &ApiError, out: &mut Vec<u8>) -> Result<(), ApiError> {
        tree::event(self, EventType::Error, &error.to_status(), out)
    }

    /// The tree of an item in the requested version, with type metadata and resourceVersion.
    pub fn tree(&self, item: &Item<'_>) -> Result<Value, ApiError> {
        decode_served_object(&self.resource, &item.stored, item.revision)
    }

    /// The tree after `as=PartialObjectMetadata`.
    fn transformed(&self, item: &Item<'_>) -> Result<Value, ApiError> {
        let tree = self.tree(item)?;
        Ok(match self.accepted.transform {
            Transform::PartialObjectMetadata(v) | Transform::PartialObjectMetadataList(v) => {
                tree::partial(tree, v)
            }
            _ => tree,
        })
    }

    /// Writes a tree that is not stored, an object or list with type metadata, in the negotiated form.
    ///
    /// # Errors
    /// 500 when the encoding has no form for it.
    pub fn unstored(&self, tree: Value, out: &mut Vec<u8>) -> Result<(), ApiError> {
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
    /// As [`Representation::write_tree`].
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
    pub fn write_tree(&self, tree: &Value, out: &mut Vec<u8>) -> Result<(), ApiError> {
        tree::write(tree, self.resource.schema, self.accepted.encoding, self.pretty, out)
    }
}

pub use list::{FirstPass, ListWriter, Totals};
pub use tree::{write as write_tree, write_document};
