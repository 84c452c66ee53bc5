//! The encoding that a request and its client have agreed on.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{HeaderMap, ACCEPT, USER_AGENT};
use plinth_codec::negotiate::{self, Accepted, Encoding, NotAcceptable, Offer, Shape, Transform};
use plinth_codec::table::IncludeObject;
use plinth_codec::Value;

use super::item::Item;
use plinth_api::{query_parameter, ApiError, Reason};
use plinth_registry::ResourceType;
use plinth_storage::decode_served_object;

/// Whether the answer is indented, according to query and User-Agent.
pub fn wants_pretty(accepted: &Accepted, query: Option<&str>, headers: &HeaderMap) -> bool {
    let parameter = query.and_then(|query| query_parameter(query, "pretty"));
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
    pub(crate) fn differs_in_second(&self, other: &RepresentationKey) -> bool {
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
    pub(crate) fn event_key(&self, with_columns: bool) -> RepresentationKey {
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
    pub(super) fn splices(&self) -> bool {
        self.accepted.encoding == Encoding::Json && !self.pretty && !self.is_table()
    }

    /// Whether a stored body has the served version.
    pub(super) fn is_served_version(&self, item: &Item<'_>) -> bool {
        // Custom resources were converted when they were read.
        self.resource.is_custom()
            || (self.resource.is_storage_version() && item.stored.version() == self.resource.row.version)
    }

    /// Whether an object is spliced, which takes no longer than copying it.
    pub fn copies(&self, item: &Item<'_>) -> bool {
        self.splices() && self.is_served_version(item)
    }

    /// The tree of an item in the requested version, with type metadata and resourceVersion.
    pub fn tree(&self, item: &Item<'_>) -> Result<Value, ApiError> {
        decode_served_object(&self.resource, &item.stored, item.revision)
    }
}
