//! The event stream of a watch: polled by the connection's own task, or by the task of a WebSocket.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_engine::{Event, EventKind, Feed, Revision, Subscription};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::batch::{Batch, BATCH};
use super::initial::InitialState;
use crate::context::Server;
use crate::large_requests;
use crate::metrics::Scope;
use crate::representation::{EventType, Item, Representation, RepresentationKey};
use crate::selection::Selection;
use crate::stored_objects::read::{self, ServedEvent};
use plinth_api::ApiError;
use plinth_http::{BodyError, ChunkStream, PacedReader, UnreadStream};
use plinth_registry::{Registry, ResourceType};
use plinth_storage::Header;

/// Interval of bookmarks for an idle watch; upstream's.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Time between the last bookmark and the end of the watch, as upstream's.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// The initial state as ADDED events.
pub(super) type InitialEvents = PacedReader<InitialState>;

/// The immutable parameters of a watch.
pub(super) struct WatchTarget {
    pub(super) resource: Arc<ResourceType>,
    pub(super) server: Arc<Server>,
    pub(super) selection: Arc<Selection>,
    pub(super) representation: Arc<Representation>,
    /// When the watch ends.
    pub(super) deadline: Instant,
    /// Whether the client accepts bookmarks.
    pub(super) bookmarks: bool,
    /// When it was requested, and of what, for metrics.
    pub(super) begun: Instant,
    /// See `begun`.
    pub(super) scope: Scope,
}

/// A running watch. Its states, in order: `initial` (ADDED events of the state), then `subscription`
/// (changes), until the deadline, the server's stop, or an error, which is sent as an ERROR event. Owned by
/// the task that polls it.
pub(super) struct WatchStream {
    target: WatchTarget,
    initial: Option<InitialEvents>,
    announce_end_of_initial: bool,
    subscription: Option<Subscription>,
    failed: Option<ApiError>,
    bookmark_due: bool,
    /// In a watch of Tables only the first event has column definitions.
    columns_sent: bool,
    alarms: Alarms,
    /// For custom resources: ready when the resource is no longer served as before.
    withdrawn: Option<BoxedFuture<()>>,
    /// Whether the events that are ready now are the last ones.
    is_final_poll: bool,
    /// Events that are being converted by the webhook.
    converting: Option<BoxedFuture<Result<Vec<ServedEvent>, ApiError>>>,
    /// Encoded pieces that the connection sends next.
    pieces: VecDeque<Bytes>,
    /// Counts them until they are sent.
    counted: Option<Arc<UnreadStream>>,
    metrics: crate::metrics::WatchSeries,
}

/// A boxed future.
type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl WatchStream {
    /// Starts a watch with `initial`, if the state is to be sent, followed by the subscription; or with an
    /// error.
    pub(super) fn new(
        target: WatchTarget,
        initial: Option<InitialEvents>,
        subscription: Result<Subscription, ApiError>,
        stopping: watch::Receiver<bool>,
        metrics: crate::metrics::WatchSeries,
    ) -> WatchStream {
        let (subscription, failed) = match subscription {
            Ok(subscription) => (Some(subscription), None),
            Err(error) => (None, Some(error)),
        };
        let now = Instant::now();
        let first = if target.bookmarks { next_bookmark(now, target.deadline) } else { target.deadline };
        WatchStream {
            announce_end_of_initial: initial.is_some() && target.bookmarks,
            columns_sent: initial.is_some(),
            withdrawn: target.resource.is_custom().then(|| withdrawn(&target)),
            is_final_poll: false,
            converting: None,
            pieces: VecDeque::new(),
            counted: None,
            target,
            initial,
            subscription,
            failed,
            bookmark_due: false,
            alarms: Alarms::new(first, stopping),
            metrics,
        }
    }

    /// The next events; `None` when the watch has ended.
    pub(super) fn poll_events(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Batch>> {
        let polled = self.poll_batch(cx);
        if let Poll::Ready(Some(batch)) = &polled {
            batch.event_lengths().for_each(|bytes| self.metrics.sent(bytes));
        }
        polled
    }

    fn poll_batch(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Batch>> {
        if self.alarms.poll_stop(cx) {
            return Poll::Ready(None);
        }
        if !self.is_final_poll && self.withdrawn.as_mut().is_some_and(|w| w.as_mut().poll(cx).is_ready()) {
            // The objects were deleted before the definition: their DELETED events are in the feed and must
            // still be sent.
            self.is_final_poll = true;
        }
        if self.initial.is_some() {
            match self.poll_initial(cx) {
                Poll::Ready(Some(batch)) => return Poll::Ready(Some(batch)),
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.failed.is_some() {
            return Poll::Ready(self.final_error());
        }
        self.poll_changes(cx)
    }

    /// The ERROR event, which ends the watch.
    fn final_error(&mut self) -> Option<Batch> {
        self.subscription = None;
        let error = self.failed.take()?;
        let mut batch = Batch::default();
        batch.write(|out| self.target.representation.error_event(&error, out)).ok()?;
        Some(batch)
    }

    /// The next part of the initial state; `Ready(None)` when it is complete.
    fn poll_initial(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Batch>> {
        let Some(batches) = &mut self.initial else { return Poll::Ready(None) };
        match batches.poll_next(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(batch))) => Poll::Ready(Some(batch)),
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
                let target = &self.target;
                target.server.metrics.watches.initial_state_sent(
                    &target.resource,
                    target.scope,
                    target.begun.elapsed(),
                );
                let revision = self.subscription.as_ref().map_or(Revision::ZERO, Subscription::position);
                let mut batch = Batch::default();
                match batch.write(|out| self.target.representation.bookmark(revision, true, out)) {
                    Ok(()) => Poll::Ready(Some(batch)),
                    Err(error) => {
                        self.failed = Some(error);
                        Poll::Ready(None)
                    }
                }
            }
        }
    }

    /// Collects ready events, up to [`BATCH`].
    fn poll_changes(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Batch>> {
        let mut batch = Batch::default();
        while self.failed.is_none() {
            if let Some(converting) = &mut self.converting {
                match converting.as_mut().poll(cx) {
                    Poll::Ready(changes) => {
                        self.converting = None;
                        let written = changes.and_then(|changes| {
                            changes.iter().try_for_each(|change| self.write_change(change, &mut batch))
                        });
                        self.failed = written.err();
                        continue;
                    }
                    Poll::Pending if batch.len() > 0 => return Poll::Ready(Some(batch)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let Some(subscription) = &mut self.subscription else { return Poll::Ready(None) };
            match subscription.poll_next(cx) {
                Poll::Ready(Ok(Feed::Events(events))) => {
                    let (server, resource) = (&self.target.server, &self.target.resource);
                    match read::needs_webhook(resource, events.iter()) {
                        Ok(true) => {
                            let events = events.iter().cloned().collect();
                            let changes =
                                read::convert_events(server.reader.clone(), resource.clone(), events);
                            self.converting = Some(Box::pin(changes));
                        }
                        Ok(false) => {
                            let mut write = |event| self.write_event(event, &mut batch);
                            self.failed = events.iter().try_for_each(&mut write).err();
                        }
                        Err(error) => self.failed = Some(error),
                    }
                }
                Poll::Ready(Ok(Feed::Progress(revision))) => {
                    self.bookmark_due = false;
                    self.failed =
                        batch.write(|out| self.target.representation.bookmark(revision, false, out)).err();
                }
                Poll::Ready(Err(error)) => self.failed = Some(watch_error(error)),
                Poll::Pending if batch.len() > 0 => return Poll::Ready(Some(batch)),
                Poll::Pending if self.is_final_poll => return Poll::Ready(None),
                Poll::Pending => match self.poll_alarm(cx) {
                    Poll::Ready(false) => return Poll::Ready(None),
                    // A progress mark was requested: it is ready, or comes with the next events.
                    Poll::Ready(true) => {}
                    Poll::Pending => return Poll::Pending,
                },
            }
            if batch.len() >= BATCH {
                return Poll::Ready(Some(batch));
            }
        }
        // Events before the error are sent first; the error waits for the next call.
        Poll::Ready(if batch.len() > 0 { Some(batch) } else { self.final_error() })
    }

    /// Ready with `false` at the deadline, with `true` when a bookmark was requested.
    fn poll_alarm(&mut self, cx: &mut TaskContext<'_>) -> Poll<bool> {
        if self.alarms.poll_timer(cx).is_pending() {
            return Poll::Pending;
        }
        let (now, deadline) = (Instant::now(), self.target.deadline);
        if now >= deadline {
            return Poll::Ready(false);
        }
        let next = if self.target.bookmarks { next_bookmark(now, deadline) } else { deadline };
        self.alarms.set(next.max(now + Duration::from_millis(1)));
        if let Some(subscription) =
            self.subscription.as_mut().filter(|_| self.target.bookmarks && !self.bookmark_due)
        {
            self.bookmark_due = true;
            subscription.request_progress();
        }
        Poll::Ready(true)
    }

    fn write_event(&mut self, event: &Arc<Event>, batch: &mut Batch) -> Result<(), ApiError> {
        if self.target.resource.is_custom() {
            let change =
                ServedEvent::without_webhook(&self.target.server.store, &self.target.resource, event)?;
            return self.write_change(&change, batch);
        }
        let previous = event.previous.as_ref().map(|record| &record.value);
        let current = match &event.kind {
            EventKind::Put { value, .. } => Some(value),
            EventKind::Delete => None,
        };
        self.write_values(event, previous, current, batch)
    }

    fn write_change(&mut self, change: &ServedEvent, batch: &mut Batch) -> Result<(), ApiError> {
        self.write_values(&change.event, change.previous.as_ref(), change.current.as_ref(), batch)
    }

    fn write_values(
        &mut self,
        event: &Arc<Event>,
        previous: Option<&Bytes>,
        current: Option<&Bytes>,
        batch: &mut Batch,
    ) -> Result<(), ApiError> {
        let Some((kind, value)) = transition(&self.target, &event.key, previous, current)? else {
            return Ok(());
        };
        let with_columns = !std::mem::replace(&mut self.columns_sent, true);
        let now;
        let representation = match self.target.representation.is_table() {
            // Ages are relative to the time of the event.
            true => {
                now = self.target.representation.at(SystemTime::now());
                &now
            }
            false => &*self.target.representation,
        };
        let encode = || {
            let mut out = Vec::with_capacity(value.len() + 160);
            let value = self.target.server.store.open(&event.key, value)?;
            representation.event(kind, &Item::new(&value, event.revision)?, with_columns, &mut out)?;
            Ok(Bytes::from(out))
        };
        let Some(cache) = event.extension.get_or_init(EncodedEvents::default) else {
            batch.push(large_requests::in_place(value.len(), encode)?);
            return Ok(());
        };
        let form = (representation.event_key(with_columns), kind);
        batch.push(match cache.find(&form) {
            Some(encoded) => encoded,
            None => {
                let resource = &self.target.resource;
                large_requests::in_place(value.len(), || cache.get_or_encode(form, resource, encode))?
            }
        });
        Ok(())
    }
}

impl ChunkStream for WatchStream {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let stream = self.get_mut();
        while stream.pieces.is_empty() {
            match stream.poll_events(cx) {
                Poll::Ready(Some(batch)) => {
                    stream.pieces = batch.into_pieces();
                    if let Some(counted) = &stream.counted {
                        stream
                            .pieces
                            .iter_mut()
                            .for_each(|piece| *piece = counted.count(std::mem::take(piece)));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(stream.pieces.pop_front().map(Ok))
    }

    fn count_in(self: Pin<&mut Self>, counted: &Arc<UnreadStream>) -> bool {
        let stream = self.get_mut();
        if let Some(initial) = &mut stream.initial {
            initial.count_in(counted);
        }
        stream.counted = Some(counted.clone());
        true
    }
}

/// The event that a change means for a watch: an object that enters the selection is ADDED, one that leaves
/// it is DELETED with its previous content at the change's revision.
fn transition<'a>(
    target: &WatchTarget,
    key: &[u8],
    previous: Option<&'a Bytes>,
    current: Option<&'a Bytes>,
) -> Result<Option<(EventType, &'a [u8])>, ApiError> {
    let filter = |value: Option<&'a Bytes>| -> Result<Option<&'a [u8]>, ApiError> {
        let Some(value) = value else { return Ok(None) };
        if target.selection.is_everything() {
            return Ok(Some(value));
        }
        let header = Header::parse(value).map_err(ApiError::internal)?;
        Ok(target.selection.matches(&target.resource, key, &header).then_some(&value[..]))
    };
    Ok(match (filter(previous)?, filter(current)?) {
        (None, None) => None,
        (None, Some(new)) => Some((EventType::Added, new)),
        (Some(_), Some(new)) => Some((EventType::Modified, new)),
        (Some(old), None) => Some((EventType::Deleted, old)),
    })
}

/// Ready when the definition of a custom resource has been deleted or changed: clients must watch again.
fn withdrawn(target: &WatchTarget) -> BoxedFuture<()> {
    let (mut registries, resource) =
        (target.server.store.current_registry().subscribe(), target.resource.clone());
    // The request's registry may be older than the current one.
    registries.mark_changed();
    Box::pin(async move {
        let row = &resource.row;
        let serves_another = |registry: &Arc<Registry>| {
            let now = registry.get(&row.group, &row.version, &row.plural);
            now.is_none_or(|now| !now.serves_as(&resource))
        };
        // The sender lives as long as the server.
        let _ = registries.wait_for(serves_another).await;
    })
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|t| *t > now);
    let next = now + BOOKMARK_PERIOD;
    last.map_or(deadline, |last| next.min(last))
}

/// Wakes a watch at its timer and at the server's stop. An event wakes a thousand watches, each of which
/// would poll both; they are polled only if comparing the clock or a flag is not sufficient.
struct Alarms {
    timer: Pin<Box<Sleep>>,
    /// When the timer fires.
    due: Instant,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    flag: watch::Receiver<bool>,
    /// The wakers registered with timer and stop.
    wakers: [Option<Waker>; 2],
}

impl Alarms {
    fn new(due: Instant, flag: watch::Receiver<bool>) -> Alarms {
        let mut stopping = flag.clone();
        let stop = Box::pin(async move {
            // A dropped sender means stop, too.
            let _ = stopping.wait_for(|stop| *stop).await;
        });
        Alarms { timer: Box::pin(tokio::time::sleep_until(due)), due, stop, flag, wakers: [None, None] }
    }

    fn set(&mut self, due: Instant) {
        self.due = due;
        self.timer.as_mut().reset(due);
        self.wakers[0] = None;
    }

    fn poll_timer(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.wakers[0].as_ref().is_some_and(|w| w.will_wake(cx.waker())) && Instant::now() < self.due {
            return Poll::Pending;
        }
        self.wakers[0] = Some(cx.waker().clone());
        self.timer.as_mut().poll(cx)
    }

    /// Whether the server stops.
    fn poll_stop(&mut self, cx: &mut TaskContext<'_>) -> bool {
        // The flag changes only once, to true.
        let unchanged = self.flag.has_changed().is_ok_and(|changed| !changed);
        if unchanged && self.wakers[1].as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            return false;
        }
        self.wakers[1] = Some(cx.waker().clone());
        self.stop.as_mut().poll(cx).is_ready()
    }
}

/// An event in the representations requested so far, stored in the event's extension slot. The lock is held
/// during encoding, so that a thousand watchers encode it once; where the event is large, the threads that
/// encode it or wait for that leave their other tasks to others.
#[derive(Default)]
struct EncodedEvents {
    forms: Mutex<Vec<EncodedForm>>,
}

struct EncodedForm {
    form: (RepresentationKey, EventType),
    bytes: Bytes,
    /// The key identifies the resource by its address; holding it keeps the address from being reused.
    _resource: Arc<ResourceType>,
}

impl EncodedEvents {
    /// The event in that form; none where it is not there, or is being encoded.
    fn find(&self, form: &(RepresentationKey, EventType)) -> Option<Bytes> {
        let forms = self.forms.try_lock()?;
        forms.iter().find(|encoded| encoded.form == *form).map(|encoded| encoded.bytes.clone())
    }

    fn get_or_encode(
        &self,
        form: (RepresentationKey, EventType),
        resource: &Arc<ResourceType>,
        encode: impl FnOnce() -> Result<Bytes, ApiError>,
    ) -> Result<Bytes, ApiError> {
        let mut forms = self.forms.lock();
        if let Some(encoded) = forms.iter().find(|encoded| encoded.form == form) {
            return Ok(encoded.bytes.clone());
        }
        let bytes = encode()?;
        // Later watchers get later ages.
        forms.retain(|encoded| encoded.form.1 != form.1 || !encoded.form.0.differs_in_second(&form.0));
        forms.push(EncodedForm { form, bytes: bytes.clone(), _resource: resource.clone() });
        Ok(bytes)
    }
}

/// Upstream's message for history that has been compacted.
pub(super) fn watch_error(error: plinth_engine::Error) -> ApiError {
    match error {
        plinth_engine::Error::Compacted { requested, oldest } => {
            ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_come_each_minute_and_shortly_before_the_end() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let deadline = at(150);
        for (now, next) in [(0, 60), (60, 120), (100, 148), (120, 148), (148, 150), (149, 150)] {
            assert_eq!(next_bookmark(at(now), deadline), at(next), "after {now} s");
        }
        assert_eq!(next_bookmark(begin, begin + Duration::from_secs(1)), at(1), "a watch too short for one");
    }

    #[tokio::test]
    async fn alarms_fire_though_they_are_not_polled_each_time() {
        let (stop, flag) = watch::channel(false);
        let mut alarms = Alarms::new(Instant::now() + Duration::from_secs(3600), flag);
        std::future::poll_fn(|cx| {
            for _ in 0..3 {
                assert!(alarms.poll_timer(cx).is_pending());
                assert!(!alarms.poll_stop(cx));
            }
            Poll::Ready(())
        })
        .await;
        alarms.set(Instant::now() + Duration::from_millis(20));
        std::future::poll_fn(|cx| alarms.poll_timer(cx)).await;
        let stopped = tokio::spawn(std::future::poll_fn(move |cx| match alarms.poll_stop(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }));
        tokio::task::yield_now().await;
        stop.send(true).unwrap();
        stopped.await.unwrap();
    }
}
