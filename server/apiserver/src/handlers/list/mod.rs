//! list: a collection at one revision, whole or in pages.
//!
//! A list is produced from the engine's snapshot in chunks (`ListProducer`), on blocking threads and at the
//! pace of its client ([`plinth_http::PacedReader`]), so that memory does not grow with its length. A list
//! that fits into the first chunk is sent with `Content-Length`. In a list with `limit` the metadata follows
//! the items if the encoding permits, because the end of the page and the remaining count are known only
//! then. Protobuf states the length of a list in advance and CBOR the number of items: it is computed by a
//! first pass over the same snapshot, or cached ([`crate::representation::list_size_cache`]).

mod listing;
pub(super) mod source;

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_engine::{At, KeyRange, Revision, Snapshot};

use self::listing::ListProducer;
use self::source::Source;
use super::get::{not_a_revision, wait_for_revision};
use super::respond::respond;
use super::Context;
use crate::representation::Representation;
use crate::selection::Selection;
use plinth_api::{ApiError, Cause};
use plinth_http::{set_compression_headers, Body, Gzip, PacedReader, ProducedBody};
use plinth_registry::prefix_range;
use plinth_storage::{parse_resource_version, ContinuePosition, ContinueTokenError};

pub(super) async fn list(cx: Box<Context>) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::List)?;
    validate_options(&cx)?;
    let selection = Selection::parse(&cx.resource, &cx.query, &cx.info.name)?;
    selection.keeps_to(cx.info.selected_name())?;
    let plan = plan(&cx, selection).await?;
    let content_type = representation.content_type(Shape::List);
    let gzip = cx.accepts_gzip();
    let body = stream(&cx, plan, representation, gzip).await?;
    let compressed = gzip && matches!(body, Body::Stream(_));
    let mut response = respond(StatusCode::OK, content_type, body);
    if compressed {
        set_compression_headers(&mut response);
    }
    Ok(response)
}

/// What is read: range, state, limit.
pub(super) struct Plan {
    pub(super) at: At,
    pub(super) range: KeyRange,
    /// The resource's prefix, to make continue tokens relative.
    prefix: String,
    /// Key prefix of the collection.
    collection: Vec<u8>,
    /// Items on the previous pages.
    returned: u64,
    /// 0 for no limit.
    pub(super) limit: u64,
    /// Whether the request has a continue token.
    continues: bool,
    pub(super) selection: Selection,
    resource: Arc<plinth_registry::ResourceType>,
    server: Arc<crate::context::Server>,
}

/// `ValidateListOptions` of apimachinery, `pkg/apis/meta/internalversion/validation`.
pub(super) fn validate_options(cx: &Context) -> Result<(), ApiError> {
    const MATCH: &str = "resourceVersionMatch";
    let q = &cx.query;
    let mut errors: Vec<Cause> = Vec::new();
    if !q.resource_version_match.is_empty() {
        if q.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(Cause::forbidden(MATCH, why));
        }
        if q.continue_token.is_some() {
            errors
                .push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        match q.resource_version_match.as_str() {
            "Exact" if q.resource_version == "0" => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(Cause::forbidden(MATCH, why));
            }
            "Exact" | "NotOlderThan" => {}
            other => errors.push(Cause::not_supported(MATCH, other, &["Exact", "NotOlderThan", ""])),
        }
    }
    if q.send_initial_events.is_some() {
        errors.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors)),
    }
}

pub(super) async fn plan(cx: &Context, selection: Selection) -> Result<Plan, ApiError> {
    let Some(form) = &cx.resource.storage else { return Err(ApiError::method_not_allowed()) };
    let q = &cx.query;
    let prefix = form.prefix.clone();
    let collection = cx.info.collection_key(&cx.resource)?;
    let mut range = match selection.single_name().filter(|_| !collection_spans_namespaces(cx)) {
        Some(name) => {
            let mut one = collection.clone();
            one.extend_from_slice(name.as_bytes());
            KeyRange::key(one)
        }
        None => prefix_range(&collection),
    };
    let revision = parse_resource_version(&q.resource_version).map_err(|_| {
        ApiError::bad_request(format!("invalid resource version: {}", not_a_revision(&q.resource_version)))
    })?;
    // resourceVersion=0 accepts any state, and upstream then ignores the limit. A continue token is still
    // used: everything after it, at its revision.
    let any_state = revision == Some(Revision::ZERO);
    let mut limit = u64::try_from(q.limit).unwrap_or(0);
    let mut returned = 0;
    let at = match &q.continue_token {
        Some(token) => {
            if revision.is_some() && !any_state {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let position = cx.server.tokens.decode(token).map_err(|error| match error {
                ContinueTokenError::Malformed => {
                    ApiError::bad_request(format!("invalid continue token: {error}"))
                }
                // The token's content is not authenticated, so no new token can be issued for it
                // (`continueExpired` in k8s.io/apiserver `pkg/storage/etcd3/errors.go`).
                ContinueTokenError::OtherKey => ApiError::expired(
                    "The provided continue parameter is too old to display a consistent list result. You \
                        must start a new list without the continue parameter.",
                ),
            })?;
            let start = [prefix.as_bytes(), position.start.as_bytes()].concat();
            range = resumed(&range, start);
            returned = position.returned;
            position.revision.map_or(At::Latest, |r| At::Exact(Revision::new(r)))
        }
        None => match revision {
            None => At::Latest,
            Some(r) if r == Revision::ZERO => At::Latest,
            Some(r) => {
                wait_for_revision(cx, r).await?;
                let exact =
                    q.resource_version_match == "Exact" || (q.resource_version_match.is_empty() && limit > 0);
                if exact {
                    At::Exact(r)
                } else {
                    At::Latest
                }
            }
        },
    };
    if any_state {
        limit = 0;
    }
    let (resource, server) = (cx.resource.clone(), cx.server.clone());
    let continues = q.continue_token.is_some();
    Ok(Plan { at, range, prefix, collection, returned, limit, continues, selection, resource, server })
}

/// The part of a range from `start` on. A token of another collection cannot extend the range.
fn resumed(range: &KeyRange, start: Vec<u8>) -> KeyRange {
    let start = Bytes::from(start).max(range.start().clone());
    match range.end() {
        Some(end) => KeyRange::between(start, end.clone()),
        None => KeyRange::from(start),
    }
}

fn collection_spans_namespaces(cx: &Context) -> bool {
    cx.resource.row.namespaced && cx.info.namespace.is_empty()
}

impl Plan {
    /// Whether the list covers all namespaces from the beginning.
    fn covers_resource(&self) -> bool {
        self.returned == 0
            && self.collection == self.prefix.as_bytes()
            && self.range.start() == self.collection.as_slice()
    }

    pub(super) fn snapshot(&self, at: At) -> Result<Snapshot, ApiError> {
        match self.server.store.engine().snapshot(at) {
            Ok(snapshot) => Ok(snapshot),
            Err(plinth_engine::Error::Compacted { requested, oldest }) => {
                Err(self.expired(requested, oldest))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the latest state of a whole collection is read, with any selection.
    fn is_latest_collection(&self) -> bool {
        self.at == At::Latest && self.limit == 0 && self.range == prefix_range(&self.collection)
    }

    /// The source of the objects. Blocks.
    fn source(&self) -> Result<Source, ApiError> {
        if self.at == At::Latest {
            let found =
                Source::find(&self.server, &self.resource, &self.selection, &self.collection, &self.range);
            if let Some(source) = found {
                return Ok(source);
            }
        }
        let snapshot = self.snapshot(self.at)?;
        // A full scan can fill the header index.
        let indexes =
            self.is_latest_collection() && source::uses_header_index(&self.resource, &self.selection);
        Ok(Source { snapshot, keys: None, indexes: indexes.then(|| self.collection.clone()) })
    }

    /// 410, with a token for continuing at the latest revision instead of restarting.
    fn expired(&self, requested: Revision, oldest: Revision) -> ApiError {
        let start = self.range.start().strip_prefix(self.prefix.as_bytes()).map(String::from_utf8_lossy);
        match (&self.at, start) {
            (At::Exact(_), Some(start)) if self.continues => {
                let mut error = ApiError::expired(
                    "The provided continue parameter is too old to display a consistent list result. You \
                        can start a new list without the continue parameter, or use the continue token in \
                        this response to retrieve the remainder of the results. Continuing with the \
                        provided token results in an inconsistent list - objects that were created, \
                        modified, or deleted between the time the first chunk was returned and now may show \
                        up in the list.",
                );
                let position =
                    ContinuePosition { revision: None, start: start.into_owned(), returned: self.returned };
                error.continue_token = Some(self.server.tokens.encode(&position));
                error
            }
            _ => ApiError::expired(format!(
                "The resourceVersion for the provided list is too old: {requested} (oldest retained: \
                    {oldest})"
            )),
        }
    }

    /// Token and remaining count of the next page, which is not empty.
    fn next_page(&self, revision: Revision, last: &[u8]) -> Result<(String, Option<u64>), ApiError> {
        let rest = self.range.after(last);
        let returned = self.returned.saturating_add(self.limit);
        // With selectors the remaining count would need a full scan (upstream omits it too).
        let remaining = match self.selection.is_everything() {
            true => {
                let snapshot = self.snapshot(At::Exact(revision))?;
                let total = self.server.counts.total(&self.collection, &snapshot)?;
                Some(total.saturating_sub(returned).max(1))
            }
            false => None,
        };
        let start = rest.start().strip_prefix(self.prefix.as_bytes()).unwrap_or_default();
        let position = ContinuePosition {
            revision: Some(revision.get()),
            start: String::from_utf8_lossy(start).into_owned(),
            returned,
        };
        Ok((self.server.tokens.encode(&position), remaining))
    }
}

/// Starts producing the list, and waits for its first chunk.
async fn stream(
    cx: &Context,
    plan: Plan,
    representation: Representation,
    gzip: bool,
) -> Result<Body, ApiError> {
    let listing = ListProducer::new(plan, representation, gzip.then(Gzip::default), cx.seat.clone())?;
    let mut chunks = PacedReader::start(cx.server.producers.clone(), listing);
    let first = match chunks.next().await {
        Some(first) => first?,
        None => return Err(ApiError::internal("a list without a beginning")),
    };
    if chunks.is_at_end() {
        return Ok(Body::Full(first));
    }
    chunks.watch(Some(cx.server.flow_control.request_timeout));
    Ok(Body::Stream(Box::pin(ProducedBody { first: Some(first), rest: chunks })))
}
