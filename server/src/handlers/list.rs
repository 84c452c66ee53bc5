//! list: a collection at one revision, whole or in chunks.
//!
//! A list is written from the engine's snapshot into chunks of [`CHUNK`] bytes by a task that may block, through a channel
//! of [`CHUNKS_IN_FLIGHT`], so that memory does not grow with its length. A list that fits into the first chunk goes
//! out with `Content-Length`. In a list with `limit` the metadata comes after the items where the encoding lets it, because
//! where it ends and what remains is known only then. Protobuf states the length of a list in front and CBOR the
//! number of items: there a first walk over the same snapshot finds that out.

use bytes::Bytes;
use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_engine::{At, Engine, KeyRange, Revision, Snapshot};
use tokio::sync::oneshot;

use super::get::{not_a_revision, wait_until_there};
use super::{key_namespace, respond, Context};
use crate::custom_resources::present;
use crate::field;
use crate::http::body::{Body, BodyError};
use crate::http::chunks;
use crate::http::compression::{self, Gzip};
use crate::representation::{Ahead, Item, ListMeta, ListWriter, Representation, Totals};
use crate::selection::Selection;
use crate::status::{ApiError, Cause};
use crate::storage::continue_token::Position;
use crate::storage::stored::Head;
use crate::storage::{key, parse_resource_version};

/// Bytes that are collected before they are handed to the connection.
const CHUNK: usize = 128 << 10;
/// Chunks that may wait for a slow client; bounds the memory of one list.
const CHUNKS_IN_FLIGHT: usize = 4;

pub(super) async fn list(cx: Context) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::List)?;
    validate_options(&cx)?;
    let selection = Selection::parse(&cx.resource, &cx.query, &cx.info.name)?;
    let plan = plan(&cx, selection).await?;
    let content_type = representation.content_type(Shape::List);
    let gzip = cx.accepts_gzip();
    let body = stream(&cx, plan, representation, gzip).await?;
    let compressed = gzip && matches!(body, Body::Channel { .. });
    let mut response = respond(StatusCode::OK, content_type, body);
    if compressed {
        compression::mark(&mut response);
    }
    Ok(response)
}

/// What is read: where from, at which state, how much.
struct Plan {
    at: At,
    range: KeyRange,
    /// The resource's prefix, to make continue tokens relative.
    prefix: String,
    /// What all keys of the collection start with.
    collection: Vec<u8>,
    /// Items that the pages before this one have shown.
    returned: u64,
    /// 0 for all.
    limit: u64,
    /// Whether a token said where to go on.
    continues: bool,
    selection: Selection,
    resource: std::sync::Arc<crate::registry::ResourceType>,
    server: std::sync::Arc<crate::server::Server>,
}

/// `ValidateListOptions` of apimachinery, `pkg/apis/meta/internalversion/validation`.
fn validate_options(cx: &Context) -> Result<(), ApiError> {
    const MATCH: &str = "resourceVersionMatch";
    let q = &cx.query;
    let mut faults: Vec<Cause> = Vec::new();
    if !q.resource_version_match.is_empty() {
        if q.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            faults.push(field::forbidden(MATCH, why));
        }
        if q.continue_token.is_some() {
            faults
                .push(field::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        match q.resource_version_match.as_str() {
            "Exact" if q.resource_version == "0" => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                faults.push(field::forbidden(MATCH, why));
            }
            "Exact" | "NotOlderThan" => {}
            other => faults.push(field::not_supported(MATCH, other, &["Exact", "NotOlderThan", ""])),
        }
    }
    if q.send_initial_events.is_some() {
        faults.push(field::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", faults)),
    }
}

async fn plan(cx: &Context, selection: Selection) -> Result<Plan, ApiError> {
    let Some(form) = &cx.resource.storage else { return Err(ApiError::method_not_allowed()) };
    let q = &cx.query;
    let prefix = form.prefix.clone();
    let collection = key::collection(&prefix, key_namespace(cx));
    let mut range = match selection.single_name().filter(|_| !collection_spans_namespaces(cx)) {
        Some(name) => {
            let mut one = collection.clone();
            one.extend_from_slice(name.as_bytes());
            KeyRange::key(one)
        }
        None => key::range(&collection),
    };
    let revision = parse_resource_version(&q.resource_version).map_err(|_| {
        ApiError::bad_request(format!("invalid resource version: {}", not_a_revision(&q.resource_version)))
    })?;
    // resourceVersion=0 means any state will do, and upstream then ignores the limit. A token still counts: everything from
    // there on, as it was.
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
            let position = cx
                .server
                .tokens
                .decode(token)
                .map_err(|e| ApiError::bad_request(format!("invalid continue token: {e}")))?;
            let start = [prefix.as_bytes(), position.start.as_bytes()].concat();
            range = resumed(&range, start);
            returned = position.returned;
            position.revision.map_or(At::Latest, |r| At::Exact(Revision::new(r)))
        }
        None => match revision {
            None => At::Latest,
            Some(r) if r == Revision::ZERO => At::Latest,
            Some(r) => {
                wait_until_there(cx, r).await?;
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

/// The part of a range from `start` on. A token of another collection moves nothing outside of this one.
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
    /// Whether the whole collection is walked over, in all namespaces and from its beginning.
    fn is_of_all(&self) -> bool {
        self.returned == 0
            && self.collection == self.prefix.as_bytes()
            && self.range.start() == self.collection.as_slice()
    }

    fn snapshot(&self, engine: &Engine) -> Result<Snapshot, ApiError> {
        match engine.snapshot(self.at) {
            Ok(snapshot) => Ok(snapshot),
            Err(plinth_engine::Error::Compacted { requested, oldest }) => {
                Err(self.expired(requested, oldest))
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// 410, with a token for those who would rather go on at the latest revision than start again.
    fn expired(&self, requested: Revision, oldest: Revision) -> ApiError {
        let start = self.range.start().strip_prefix(self.prefix.as_bytes()).map(String::from_utf8_lossy);
        match (&self.at, start) {
            (At::Exact(_), Some(start)) if self.continues => {
                let mut error = ApiError::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                );
                let position =
                    Position { revision: None, start: start.into_owned(), returned: self.returned };
                error.continue_token = Some(self.server.tokens.encode(&position));
                error
            }
            _ => ApiError::expired(format!(
                "The resourceVersion for the provided list is too old: {requested} (oldest retained: {oldest})"
            )),
        }
    }

    /// The token and the count of what follows after `last`. Something does.
    fn rest(&self, snapshot: &Snapshot, last: &[u8]) -> Result<(String, Option<u64>), ApiError> {
        let rest = self.range.after(last);
        let returned = self.returned.saturating_add(self.limit);
        // With selectors, what remains is unknown without looking at all of it (upstream leaves it out too).
        let remaining = match self.selection.is_everything() {
            true => {
                let total = self.server.counts.total(&self.collection, snapshot)?;
                Some(total.saturating_sub(returned).max(1))
            }
            false => None,
        };
        let start = rest.start().strip_prefix(self.prefix.as_bytes()).unwrap_or_default();
        let position = Position {
            revision: Some(snapshot.revision().get()),
            start: String::from_utf8_lossy(start).into_owned(),
            returned,
        };
        Ok((self.server.tokens.encode(&position), remaining))
    }
}

/// What a walk over the collection ended with.
struct End {
    /// Set when the limit cut the walk short.
    rest: Option<(String, Option<u64>)>,
}

/// Calls `each` with every selected item of a range and its key, until it says stop. Gives the number of objects in the
/// range when it came to its end.
fn each_selected(
    plan: &Plan,
    snapshot: &Snapshot,
    range: &KeyRange,
    mut each: impl FnMut(&[u8], &Item<'_>) -> Result<bool, ApiError>,
) -> Result<Option<u64>, ApiError> {
    let selects = |key: &[u8], head: &Head<'_>| plan.selection.matches(&plan.resource, key, head);
    let mut entries = snapshot.range(range);
    present::for_each(&plan.server, &plan.resource, &mut entries, &selects, |key, value, revision| {
        each(key, &Item::new(value, revision)?)
    })
}

/// Calls `each` with every selected item up to the limit. Stops early when `each` says so.
fn walk(
    plan: &Plan,
    snapshot: &Snapshot,
    mut each: impl FnMut(&[u8], &Item<'_>) -> Result<bool, ApiError>,
) -> Result<End, ApiError> {
    let (mut last, mut taken, mut cut) = (Vec::new(), 0u64, false);
    let seen = each_selected(plan, snapshot, &plan.range, |key, item| {
        cut = plan.limit > 0 && taken == plan.limit;
        if cut {
            return Ok(false);
        }
        taken += 1;
        if taken == plan.limit {
            last = key.to_vec();
        }
        each(key, item)
    })?;
    if let Some(seen) = seen.filter(|_| plan.is_of_all()) {
        plan.server.flow_control.sizes.note(plan.resource.group(), plan.resource.plural(), seen);
    }
    Ok(End { rest: if cut { Some(plan.rest(snapshot, &last)?) } else { None } })
}

fn meta(snapshot: &Snapshot, end: End) -> ListMeta {
    let (continue_token, remaining_item_count) = end.rest.unwrap_or_default();
    ListMeta { resource_version: snapshot.revision().to_string(), continue_token, remaining_item_count }
}

/// Starts the task that writes the list, and waits for its first chunk.
async fn stream(
    cx: &Context,
    plan: Plan,
    representation: Representation,
    gzip: bool,
) -> Result<Body, ApiError> {
    let (first_chunk, first) = oneshot::channel();
    let (more, chunks) = chunks::channel(CHUNKS_IN_FLIGHT, cx.server.flow_control.request_timeout);
    let seat = cx.seat.clone();
    let engine = cx.server.store.engine().clone();
    tokio::task::spawn_blocking(move || {
        // The list's place among the requests that are served is free when it has been handed over.
        let _seat = seat;
        let gzip = gzip.then(Gzip::default);
        let mut sink =
            Sink { first: Some(first_chunk), more, buffer: Vec::with_capacity(4096), gzip, open: true };
        let outcome = write_list(&plan, &engine, &representation, &mut sink);
        sink.finish(outcome);
    });
    match first.await {
        Ok(Ok(First::Whole(bytes))) => Ok(Body::Full(bytes)),
        Ok(Ok(First::Part(bytes))) => Ok(Body::Channel { first: Some(bytes), rest: chunks }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ApiError::internal("list task ended early")),
    }
}

fn write_list(plan: &Plan, engine: &Engine, r: &Representation, sink: &mut Sink) -> Result<(), ApiError> {
    let snapshot = plan.snapshot(engine)?;
    let mut list = ListWriter::new(r)?;
    if list.looks_ahead() {
        return write_looking_ahead(plan, &snapshot, &mut list, sink);
    }
    // Without a limit there is no next page, so the metadata is known beforehand.
    let known = (plan.limit == 0).then(|| meta(&snapshot, End { rest: None }));
    list.start(known.as_ref(), Totals::default(), &mut sink.buffer)?;
    let end = walk(plan, &snapshot, |_, item| {
        list.item(item, &mut sink.buffer)?;
        Ok(sink.flush_if_full())
    })?;
    list.end(&meta(&snapshot, end), known.is_none(), Totals::default(), &mut sink.buffer)
}

/// A list whose start says how much follows. The snapshot does not change between the walks.
fn write_looking_ahead(
    plan: &Plan,
    snapshot: &Snapshot,
    list: &mut ListWriter<'_>,
    sink: &mut Sink,
) -> Result<(), ApiError> {
    let lengths = &plan.server.lengths;
    let mut ahead = Ahead::new(lengths);
    let end = walk(plan, snapshot, |key, item| {
        ahead.item(key, item, list)?;
        Ok(sink.wanted())
    })?;
    let (meta, totals) = (meta(snapshot, end), ahead.totals());
    list.start(Some(&meta), totals, &mut sink.buffer)?;
    let (kept, rest) = ahead.kept();
    if !kept.into_iter().all(|piece| sink.push(piece)) {
        return Ok(());
    }
    if let Some((after, rest)) = rest {
        let mut written = Totals::default();
        each_selected(plan, snapshot, &plan.range.after(&after), |_, item| {
            let before = sink.buffer.len();
            list.item(item, &mut sink.buffer)?;
            written.items += 1;
            written.bytes += sink.buffer.len() - before;
            Ok(sink.flush_if_full() && written.items < rest.items)
        })?;
        // Bytes are counted for protobuf alone. A front that does not fit what follows must not look like a list.
        let fits = written.items == rest.items && (rest.bytes == 0 || written.bytes == rest.bytes);
        if sink.open && !fits {
            lengths.forget();
            return Err(ApiError::internal("a list came out otherwise the second time"));
        }
    }
    list.end(&meta, false, totals, &mut sink.buffer)
}

/// Where the blocking task puts its bytes.
struct Sink {
    /// Taken when the first chunk has gone.
    first: Option<oneshot::Sender<Result<First, ApiError>>>,
    more: chunks::Sender<Bytes, BodyError>,
    buffer: Vec<u8>,
    /// Compresses every chunk of a list that does not fit into one.
    gzip: Option<Gzip>,
    /// False when the client has gone.
    open: bool,
}

enum First {
    /// The list fitted into one chunk.
    Whole(Bytes),
    /// More follows.
    Part(Bytes),
}

impl Sink {
    /// Hands a full buffer over; false when nobody reads any more.
    fn flush_if_full(&mut self) -> bool {
        if self.buffer.len() >= CHUNK {
            let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK + CHUNK / 4));
            self.send(Bytes::from(chunk));
        }
        self.open
    }

    /// Takes a piece that is complete; a large one is handed over without a copy. False when nobody reads any more.
    fn push(&mut self, piece: Bytes) -> bool {
        if self.buffer.len() + piece.len() < CHUNK {
            self.buffer.extend_from_slice(&piece);
            return self.open;
        }
        if !self.buffer.is_empty() {
            let before = std::mem::take(&mut self.buffer);
            self.send(Bytes::from(before));
        }
        if self.open {
            self.send(piece);
        }
        self.open
    }

    /// Whether somebody still waits for the list.
    fn wanted(&self) -> bool {
        self.first.as_ref().is_none_or(|first| !first.is_closed())
    }

    fn send(&mut self, chunk: Bytes) {
        let chunk = match &mut self.gzip {
            Some(gzip) => gzip.push(&chunk),
            None => chunk,
        };
        self.open = match self.first.take() {
            Some(first) => first.send(Ok(First::Part(chunk))).is_ok(),
            None => chunk.is_empty() || self.more.send(Ok(chunk)),
        };
    }

    fn finish(self, outcome: Result<(), ApiError>) {
        let last = match (self.gzip, &self.first) {
            // The list fitted into one chunk, which is below the threshold of compression.
            (_, Some(_)) | (None, None) => Bytes::from(self.buffer),
            (Some(mut gzip), None) => {
                let mut last = gzip.push(&self.buffer).to_vec();
                last.extend_from_slice(&gzip.finish());
                Bytes::from(last)
            }
        };
        // Nobody reading is no fault: the client went away.
        let _ = match (self.first, outcome) {
            (Some(first), outcome) => first.send(outcome.map(|()| First::Whole(last))).is_ok(),
            (None, Ok(())) => self.more.send(Ok(last)),
            (None, Err(error)) => self.more.send(Err(BodyError(error.message))),
        };
    }
}
