//! watch: every change of a collection after a revision, exactly once, in order.
//!
//! A watch is a cursor into the engine's feed, polled by the connection's own task: it has no task, channel
//! or queue of its own, so that an idle watch costs a few hundred bytes and a slow client delays no other.
//! Each event is encoded once per representation and shared by all watchers through the event's extension
//! slot.
//!
//! | module | subject |
//! |---|---|
//! | this one | options and start of a watch |
//! | [`batch`] | batches of encoded events |
//! | [`initial`] | the initial state |
//! | [`stream`] | the event stream |
//! | [`websocket`] | the same over WebSocket |

mod batch;
mod initial;
mod stream;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_engine::{KeyRange, Revision, Subscribe};
use tokio::time::Instant;

use self::initial::InitialState;
use self::stream::{watch_error, InitialEvents, WatchStream, WatchTarget};
use super::get::not_a_revision;
use super::respond::respond;
use super::Context;
use crate::representation::Representation;
use crate::selection::Selection;
use plinth_api::{ApiError, Cause, Reason};
use plinth_http::{wants_websocket, Body, PacedReader};
use plinth_registry::prefix_range;
use plinth_storage::parse_resource_version;

pub(super) async fn watch(mut cx: Box<Context>) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Watch)?;
    validate_options(&cx)?;
    let selection = Selection::parse(&cx.resource, &cx.query, &cx.info.name)?;
    selection.keeps_to(cx.info.selected_name())?;
    let collection = cx.info.collection_key(&cx.resource)?;
    let q = &cx.query;
    let revision = parse_resource_version(&q.resource_version)
        .map_err(|_| ApiError::new(500, Reason::Unknown, not_a_revision(&q.resource_version)))?;
    let all_namespaces = cx.resource.row.namespaced && cx.info.namespace.is_empty();
    let range = match selection.single_name().filter(|_| !all_namespaces) {
        Some(name) => KeyRange::key([collection.as_slice(), name.as_bytes()].concat()),
        None => prefix_range(&collection),
    };
    // An unset or zero revision implies sendInitialEvents=true, as upstream since 1.34.
    let any_state = revision.is_none_or(|r| r == Revision::ZERO);
    let initial = q.send_initial_events.unwrap_or(any_state);
    let length = watch_length(cx.query.timeout_seconds, cx.server.limits.min_watch_seconds);
    let content_type = representation.content_type(Shape::Watch);
    let encoding = representation.accepted.encoding;
    let start = WatchStart {
        range,
        collection,
        selection: Arc::new(selection),
        representation: Arc::new(representation),
        after: revision.filter(|r| *r > Revision::ZERO),
        initial,
    };
    let stream = start.open(&cx, length).await;
    if wants_websocket(&cx.headers) {
        if let Some(upgrade) = cx.upgrade.take() {
            return Ok(websocket::answer(&cx.headers, upgrade, &cx.user, encoding, stream));
        }
    }
    Ok(respond(StatusCode::OK, content_type, Body::Stream(Box::pin(stream))))
}

/// `validateWatchOptions` of apimachinery, `pkg/apis/meta/internalversion/validation`.
fn validate_options(cx: &Context) -> Result<(), ApiError> {
    const MATCH: &str = "resourceVersionMatch";
    let q = &cx.query;
    let given = q.resource_version_match.as_str();
    let mut errors: Vec<Cause> = Vec::new();
    if q.send_initial_events.is_some() && given != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(Cause::forbidden(MATCH, why));
    }
    // Without a revision upstream sets sendInitialEvents itself, and so NotOlderThan.
    let implied = given.is_empty() && matches!(q.resource_version.as_str(), "" | "0");
    if implied && q.continue_token.is_some() {
        errors.push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if !given.is_empty() {
        if q.send_initial_events.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(Cause::forbidden(MATCH, why));
        }
        if given != "NotOlderThan" {
            errors.push(Cause::not_supported(MATCH, given, &["NotOlderThan"]));
        }
        if q.continue_token.is_some() {
            errors
                .push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors)),
    }
}

/// The duration of the watch: as requested, otherwise random between the minimum and twice it, so that the
/// watches of a control plane do not all end at the same time.
fn watch_length(requested: Option<i64>, minimum: u64) -> Duration {
    match requested {
        Some(seconds) if seconds > 0 => {
            Duration::from_secs(seconds.unsigned_abs()).min(Duration::from_secs(u64::from(u32::MAX)))
        }
        _ => {
            let spread = u64::from(uuid::Uuid::new_v4().as_fields().0) % minimum.max(1);
            Duration::from_secs(minimum + spread)
        }
    }
}

/// A watch before its start.
struct WatchStart {
    range: KeyRange,
    /// Key prefix of the collection.
    collection: Vec<u8>,
    selection: Arc<Selection>,
    representation: Arc<Representation>,
    /// Deliver changes after this revision; `None` for any state.
    after: Option<Revision>,
    /// Whether the initial state is sent, as ADDED events.
    initial: bool,
}

impl WatchStart {
    /// From here on errors are ERROR events of a 200 response, as upstream's.
    async fn open(self, cx: &Context, length: Duration) -> WatchStream {
        let mut failed = None;
        let mut initial = None;
        let mut after = self.after;
        if self.initial {
            match self.send_initial_state(cx).await {
                Ok((batches, revision)) => {
                    initial = Some(batches);
                    after = Some(revision);
                }
                Err(error) => failed = Some(error),
            }
        }
        let mut subscribe = Subscribe::new(self.range).previous(true);
        subscribe.after = after;
        let subscription = match failed {
            Some(error) => Err(error),
            None => cx.server.store.engine().subscribe(subscribe).map_err(watch_error),
        };
        let now = Instant::now();
        let target = WatchTarget {
            resource: cx.resource.clone(),
            server: cx.server.clone(),
            selection: self.selection,
            representation: self.representation,
            deadline: now.checked_add(length).unwrap_or(now),
            bookmarks: cx.query.allow_watch_bookmarks,
            begun: now,
            scope: crate::metrics::Scope::of(&cx.info),
        };
        let metrics = cx.server.metrics.watches.series(&cx.resource);
        WatchStream::new(target, initial, subscription, cx.server.stopping.clone(), metrics)
    }

    /// Starts sending the current state as ADDED events; returns its revision.
    async fn send_initial_state(&self, cx: &Context) -> Result<(InitialEvents, Revision), ApiError> {
        if let Some(revision) = self.after {
            super::get::wait_for_revision(cx, revision).await?;
        }
        let (server, resource) = (cx.server.clone(), cx.resource.clone());
        let (range, collection) = (self.range.clone(), self.collection.clone());
        let (selection, representation) = (self.selection.clone(), self.representation.clone());
        let seat = cx.seat.clone();
        let opened = tokio::task::spawn_blocking(move || {
            InitialState::open(server, resource, &collection, range, selection, representation, seat)
        });
        let state =
            opened.await.map_err(|error| ApiError::internal(format!("storage read failed: {error}")))??;
        let revision = state.revision();
        let mut events = PacedReader::start(cx.server.producers.clone(), &cx.user.counted_as(), state);
        // A slow client is not disconnected: its state can be read while its history is retained.
        events.watch(None);
        Ok((events, revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_without_a_timeout_lasts_between_the_minimum_and_twice_it() {
        for requested in [None, Some(0), Some(-1)] {
            for _ in 0..100 {
                let seconds = watch_length(requested, 1800).as_secs();
                assert!((1800..3600).contains(&seconds), "{seconds}");
            }
        }
        assert_eq!(watch_length(Some(5), 1800), Duration::from_secs(5));
        assert_eq!(watch_length(None, 0), Duration::ZERO);
    }
}
