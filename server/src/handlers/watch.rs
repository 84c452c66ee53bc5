//! watch: every change of a collection after a revision, once, in order.
//!
//! A watch is a cursor into the engine's feed, pulled by the connection's own task: no task, channel or queue
//! of its own, so that an idle watch costs a few hundred bytes and a slow client slows nobody. Each event
//! is encoded once per representation and shared by all watchers through the event's extension slot.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use parking_lot::Mutex;
use plinth_codec::negotiate::Shape;
use plinth_engine::{At, Event, EventKind, Feed, KeyRange, Revision, Subscribe, Subscription};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep};

use super::get::not_a_revision;
use super::{key_namespace, respond, Context};
use crate::field;
use crate::http::body::{Body, ChunkStream};
use crate::registry::ResourceType;
use crate::representation::{EventType, Item, Representation, RepresentationKey};
use crate::selection::Selection;
use crate::status::{ApiError, Cause, Reason};
use crate::storage::stored::Head;
use crate::storage::{key, parse_resource_version, Store};

/// Events are collected into chunks of about this many bytes while more are ready.
const CHUNK: usize = 64 << 10;
/// How often an idle watch that allows bookmarks gets one; upstream's period.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A last bookmark comes this long before the watch ends, as upstream's.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Chunks of synthetic ADDED events that may wait for a slow client.
const INITIAL_CHUNKS: usize = 4;

pub(super) async fn watch(cx: Context) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Watch)?;
    validate_options(&cx)?;
    let selection = Selection::parse(&cx.resource, &cx.query, &cx.info.name)?;
    let Some(form) = &cx.resource.storage else { return Err(ApiError::method_not_allowed()) };
    let q = &cx.query;
    let revision = parse_resource_version(&q.resource_version)
        .map_err(|_| ApiError::new(500, Reason::Unknown, not_a_revision(&q.resource_version)))?;
    let collection = key::collection(&form.prefix, key_namespace(&cx));
    let all_namespaces = cx.resource.row.namespaced && cx.info.namespace.is_empty();
    let range = match selection.single_name().filter(|_| !all_namespaces) {
        Some(name) => KeyRange::key([collection.as_slice(), name.as_bytes()].concat()),
        None => key::range(&collection),
    };
    // An unset or zero revision behaves as sendInitialEvents=true, which upstream has had since 1.34.
    let any_state = revision.is_none_or(|r| r == Revision::ZERO);
    let initial = q.send_initial_events.unwrap_or(any_state);
    let length = watch_length(&cx);
    let content_type = representation.content_type(Shape::Watch);
    let start = WatchStart {
        range,
        selection: Arc::new(selection),
        representation: Arc::new(representation),
        after: revision.filter(|r| *r > Revision::ZERO),
        initial,
    };
    let stream = start.open(&cx, length).await;
    Ok(respond(StatusCode::OK, content_type, Body::Stream(Box::pin(stream))))
}

/// `validateWatchOptions` of apimachinery, `pkg/apis/meta/internalversion/validation`.
fn validate_options(cx: &Context) -> Result<(), ApiError> {
    const MATCH: &str = "resourceVersionMatch";
    let q = &cx.query;
    let given = q.resource_version_match.as_str();
    let mut faults: Vec<Cause> = Vec::new();
    if q.send_initial_events.is_some() && given != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        faults.push(field::forbidden(MATCH, why));
    }
    // Without a revision upstream asks itself for the initial events, and so for NotOlderThan.
    let implied = given.is_empty() && matches!(q.resource_version.as_str(), "" | "0");
    if implied && q.continue_token.is_some() {
        faults.push(field::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if !given.is_empty() {
        if q.send_initial_events.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            faults.push(field::forbidden(MATCH, why));
        }
        if given != "NotOlderThan" {
            faults.push(field::not_supported(MATCH, given, &["NotOlderThan"]));
        }
        if q.continue_token.is_some() {
            faults
                .push(field::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", faults)),
    }
}

/// How long the watch lasts: as asked, else random between the minimum and twice it, so that the watches of a
/// control plane do not all end in the same second.
fn watch_length(cx: &Context) -> Duration {
    match cx.query.timeout_seconds {
        Some(seconds) if seconds > 0 => {
            Duration::from_secs(seconds.unsigned_abs()).min(Duration::from_secs(u64::from(u32::MAX)))
        }
        _ => {
            let least = cx.server.limits.min_watch_seconds;
            let spread = u64::from(uuid::Uuid::new_v4().as_fields().0) % least.max(1);
            Duration::from_secs(least + spread)
        }
    }
}

/// A watch that is about to begin.
struct WatchStart {
    range: KeyRange,
    selection: Arc<Selection>,
    representation: Arc<Representation>,
    /// Deliver what happened after this revision; none for any state.
    after: Option<Revision>,
    /// Whether the state comes first, as ADDED events.
    initial: bool,
}

impl WatchStart {
    /// Errors from here on are ERROR events of a 200 answer, as upstream's.
    async fn open(self, cx: &Context, length: Duration) -> WatchStream {
        let engine = cx.server.store.engine();
        let mut failed = None;
        let mut initial = None;
        let mut after = self.after;
        if self.initial {
            match self.send_state(cx).await {
                Ok((chunks, revision)) => {
                    initial = Some(chunks);
                    after = Some(revision);
                }
                Err(error) => failed = Some(error),
            }
        }
        let mut subscribe = Subscribe::new(self.range).previous(true);
        subscribe.after = after;
        let subscription = match engine.subscribe(subscribe) {
            Ok(subscription) => Some(subscription),
            Err(fault) => {
                failed = failed.or(Some(watch_error(fault)));
                None
            }
        };
        let now = Instant::now();
        let ends = now.checked_add(length).unwrap_or(now);
        let bookmarks = cx.query.allow_watch_bookmarks;
        let first_timer = if bookmarks { next_bookmark(now, ends) } else { ends };
        WatchStream {
            resource: cx.resource.clone(),
            store: cx.server.store.clone(),
            key: self.representation.key(),
            selection: self.selection,
            representation: self.representation,
            initial,
            announce_end_of_initial: self.initial && bookmarks,
            subscription: subscription.filter(|_| failed.is_none()),
            failed,
            bookmarks,
            bookmark_due: false,
            heads_sent: self.initial,
            timer: Box::pin(tokio::time::sleep_until(first_timer)),
            ends,
            stopping: Stopping::new(cx.server.stopping.clone()),
            metrics: cx.server.metrics.watch(cx.resource.group(), cx.resource.plural()),
        }
    }

    /// Starts sending the present state as ADDED events; gives the revision that it shows.
    async fn send_state(
        &self,
        cx: &Context,
    ) -> Result<(mpsc::Receiver<Result<Bytes, ApiError>>, Revision), ApiError> {
        if let Some(revision) = self.after {
            super::get::wait_until_there(cx, revision).await?;
        }
        let snapshot = cx.server.store.read(|engine| engine.snapshot(At::Latest)).await?;
        let revision = snapshot.revision();
        let (send, chunks) = mpsc::channel(INITIAL_CHUNKS);
        let (range, resource, store) = (self.range.clone(), cx.resource.clone(), cx.server.store.clone());
        let (selection, representation) = (self.selection.clone(), self.representation.clone());
        tokio::task::spawn_blocking(move || {
            let mut buffer = Vec::new();
            let mut first = true;
            let mut entries = snapshot.range(&range);
            let outcome = loop {
                let entry = match entries.next() {
                    Ok(Some(entry)) => entry,
                    Ok(None) => break Ok(()),
                    Err(fault) => break Err(ApiError::from(fault)),
                };
                match Head::parse(entry.value) {
                    Ok(head) if !selection.matches(&resource, entry.key, &head) => continue,
                    Ok(_) => {}
                    Err(fault) => break Err(ApiError::internal(fault)),
                }
                let value = match store.open(entry.key, entry.value) {
                    Ok(value) => value,
                    Err(fault) => break Err(fault),
                };
                let item = match Item::new(&value, entry.mod_revision) {
                    Ok(item) => item,
                    Err(fault) => break Err(fault),
                };
                if let Err(fault) = representation.event(EventType::Added, &item, first, &mut buffer) {
                    break Err(fault);
                }
                first = false;
                if buffer.len() >= CHUNK
                    && send.blocking_send(Ok(Bytes::from(std::mem::take(&mut buffer)))).is_err()
                {
                    return;
                }
            };
            // Nobody reading is no fault: the client went away.
            if !buffer.is_empty() && send.blocking_send(Ok(Bytes::from(buffer))).is_err() {
                return;
            }
            if let Err(fault) = outcome {
                let _ = send.blocking_send(Err(fault));
            }
        });
        Ok((chunks, revision))
    }
}

fn next_bookmark(now: Instant, ends: Instant) -> Instant {
    let last = ends.checked_sub(BOOKMARK_BEFORE_END).filter(|t| *t > now);
    let next = now + BOOKMARK_PERIOD;
    last.map_or(ends, |last| next.min(last))
}

/// The words that clients know for history that is gone.
fn watch_error(fault: plinth_engine::Error) -> ApiError {
    match fault {
        plinth_engine::Error::Compacted { requested, oldest } => {
            ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        other => other.into(),
    }
}

/// Becomes ready once, when the server stops.
struct Stopping {
    changed: Pin<Box<dyn std::future::Future<Output = ()> + Send>>,
}

impl Stopping {
    fn new(mut stopping: watch::Receiver<bool>) -> Stopping {
        let changed = Box::pin(async move {
            // The sender lives as long as the server; its end means stop, too.
            let _ = stopping.wait_for(|stop| *stop).await;
        });
        Stopping { changed }
    }

    fn poll(&mut self, cx: &mut TaskContext<'_>) -> bool {
        self.changed.as_mut().poll(cx).is_ready()
    }
}

/// The body of a watch. Owned and polled by the connection's task. Its states, in order: `initial` (ADDED
/// events of the state), then `subscription` (changes), until the time is up, the server stops, or
/// `failed` sends an ERROR event and ends it.
struct WatchStream {
    resource: Arc<ResourceType>,
    store: Store,
    selection: Arc<Selection>,
    representation: Arc<Representation>,
    key: Option<RepresentationKey>,
    initial: Option<mpsc::Receiver<Result<Bytes, ApiError>>>,
    announce_end_of_initial: bool,
    subscription: Option<Subscription>,
    failed: Option<ApiError>,
    bookmarks: bool,
    bookmark_due: bool,
    /// In a watch of Tables the first event alone says what the columns are.
    heads_sent: bool,
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    stopping: Stopping,
    metrics: crate::metrics::WatchGuard,
}

impl ChunkStream for WatchStream {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        if this.stopping.poll(cx) {
            return Poll::Ready(None);
        }
        if this.initial.is_some() {
            match this.poll_initial(cx) {
                Poll::Ready(Some(chunk)) => return Poll::Ready(Some(chunk)),
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        if let Some(error) = this.failed.take() {
            this.subscription = None;
            let mut out = Vec::new();
            return match this.representation.error_event(&error, &mut out) {
                Ok(()) => Poll::Ready(Some(Bytes::from(out))),
                Err(_) => Poll::Ready(None),
            };
        }
        this.poll_changes(cx)
    }
}

impl WatchStream {
    /// The next chunk of the initial state; `Ready(None)` when it has ended.
    fn poll_initial(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Bytes>> {
        let Some(chunks) = &mut self.initial else { return Poll::Ready(None) };
        match chunks.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(chunk))) => Poll::Ready(Some(chunk)),
            Poll::Ready(Some(Err(error))) => {
                self.failed = Some(error);
                self.initial = None;
                Poll::Ready(None)
            }
            Poll::Ready(None) => {
                self.initial = None;
                if !self.announce_end_of_initial {
                    return Poll::Ready(None);
                }
                let revision = self.subscription.as_ref().map_or(Revision::ZERO, Subscription::position);
                let mut out = Vec::new();
                match self.representation.bookmark(revision, true, &mut out) {
                    Ok(()) => Poll::Ready(Some(Bytes::from(out))),
                    Err(error) => {
                        self.failed = Some(error);
                        Poll::Ready(None)
                    }
                }
            }
        }
    }

    fn poll_changes(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Bytes>> {
        let mut chunk = Chunk::default();
        loop {
            let Some(subscription) = &mut self.subscription else { return Poll::Ready(chunk.take()) };
            match subscription.poll_next(cx) {
                Poll::Ready(Ok(Feed::Events(events))) => {
                    for event in events.iter() {
                        if let Err(error) = self.write_event(event, &mut chunk) {
                            self.subscription = None;
                            self.failed = Some(error);
                            cx.waker().wake_by_ref();
                            break;
                        }
                    }
                    if chunk.len >= CHUNK {
                        return Poll::Ready(chunk.take());
                    }
                }
                Poll::Ready(Ok(Feed::Progress(revision))) => {
                    self.bookmark_due = false;
                    let mut out = Vec::new();
                    if self.representation.bookmark(revision, false, &mut out).is_ok() {
                        chunk.push(Bytes::from(out));
                    }
                }
                Poll::Ready(Err(fault)) => {
                    self.subscription = None;
                    self.failed = Some(watch_error(fault));
                    cx.waker().wake_by_ref();
                    return match chunk.take() {
                        Some(chunk) => Poll::Ready(Some(chunk)),
                        None => Poll::Pending,
                    };
                }
                Poll::Pending => {
                    if chunk.len > 0 {
                        return Poll::Ready(chunk.take());
                    }
                    match self.poll_timer(cx) {
                        Poll::Ready(false) => return Poll::Ready(None),
                        // A progress mark was asked for: it is ready, or comes with the next events.
                        Poll::Ready(true) => {}
                        Poll::Pending => return Poll::Pending,
                    }
                }
            }
        }
    }

    /// Ready with `false` when the watch's time is up, with `true` when a bookmark was asked for.
    fn poll_timer(&mut self, cx: &mut TaskContext<'_>) -> Poll<bool> {
        use std::future::Future;
        if self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let now = Instant::now();
        if now >= self.ends {
            return Poll::Ready(false);
        }
        let next = if self.bookmarks { next_bookmark(now, self.ends) } else { self.ends };
        self.timer.as_mut().reset(next.max(now + Duration::from_millis(1)));
        if let Some(subscription) =
            self.subscription.as_mut().filter(|_| self.bookmarks && !self.bookmark_due)
        {
            self.bookmark_due = true;
            subscription.request_progress();
        }
        Poll::Ready(true)
    }

    fn write_event(&mut self, event: &Arc<Event>, chunk: &mut Chunk) -> Result<(), ApiError> {
        let Some((kind, value)) = self.transition(event)? else { return Ok(()) };
        self.metrics.delivered();
        let heads = !std::mem::replace(&mut self.heads_sent, true);
        if let Some(key) = self.key {
            let cache = event.extension.get_or_init(EncodedEvents::default);
            if let Some(cache) = cache {
                chunk.push(cache.get_or_encode((key, kind), || self.encode(event, kind, value, heads))?);
                return Ok(());
            }
        }
        chunk.push(self.encode(event, kind, value, heads)?);
        Ok(())
    }

    fn encode(&self, event: &Event, kind: EventType, value: &[u8], heads: bool) -> Result<Bytes, ApiError> {
        let mut out = Vec::with_capacity(value.len() + 160);
        let value = self.store.open(&event.key, value)?;
        self.representation.event(kind, &Item::new(&value, event.revision)?, heads, &mut out)?;
        Ok(Bytes::from(out))
    }

    /// What a change means for this watch: an object that enters the selection is ADDED, one that leaves it is
    /// DELETED with its previous content at the change's revision.
    fn transition<'a>(&self, event: &'a Event) -> Result<Option<(EventType, &'a [u8])>, ApiError> {
        let previous = event.previous.as_ref().map(|record| &record.value);
        let current = match &event.kind {
            EventKind::Put { value, .. } => Some(value),
            EventKind::Delete => None,
        };
        let selects = |value: Option<&'a Bytes>| -> Result<Option<&'a [u8]>, ApiError> {
            let Some(value) = value else { return Ok(None) };
            if self.selection.is_everything() {
                return Ok(Some(value));
            }
            let head = Head::parse(value).map_err(ApiError::internal)?;
            Ok(self.selection.matches(&self.resource, &event.key, &head).then_some(&value[..]))
        };
        Ok(match (selects(previous)?, selects(current)?) {
            (None, None) => None,
            (None, Some(new)) => Some((EventType::Added, new)),
            (Some(_), Some(new)) => Some((EventType::Modified, new)),
            (Some(old), None) => Some((EventType::Deleted, old)),
        })
    }
}

/// An event in the forms that watchers asked for so far; lives in the event's extension slot. The lock is held
/// while a form is made, so that a thousand watchers make it once.
#[derive(Default)]
struct EncodedEvents {
    forms: Mutex<Vec<((RepresentationKey, EventType), Bytes)>>,
}

impl EncodedEvents {
    fn get_or_encode(
        &self,
        form: (RepresentationKey, EventType),
        encode: impl FnOnce() -> Result<Bytes, ApiError>,
    ) -> Result<Bytes, ApiError> {
        let mut forms = self.forms.lock();
        if let Some((_, bytes)) = forms.iter().find(|(f, _)| *f == form) {
            return Ok(bytes.clone());
        }
        let bytes = encode()?;
        forms.push((form, bytes.clone()));
        Ok(bytes)
    }
}

/// Bytes on their way out: one event is passed on as it is, several are put together so that they travel in
/// one frame.
#[derive(Default)]
struct Chunk {
    first: Option<Bytes>,
    joined: Vec<u8>,
    len: usize,
}

impl Chunk {
    fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        match (self.first.take(), self.joined.is_empty()) {
            (None, true) => self.first = Some(bytes),
            (None, false) => self.joined.extend_from_slice(&bytes),
            (Some(first), _) => {
                self.joined.reserve(first.len() + bytes.len());
                self.joined.extend_from_slice(&first);
                self.joined.extend_from_slice(&bytes);
            }
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        self.len = 0;
        match self.first.take() {
            Some(first) => Some(first),
            None if self.joined.is_empty() => None,
            None => Some(Bytes::from(std::mem::take(&mut self.joined))),
        }
    }
}
