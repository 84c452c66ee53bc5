//! The body of a watch: polled by the connection's own task, or by the task of a WebSocket.

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

use super::batch::Batch;
use super::initial::State;
use super::watch_error;
use crate::context::Server;
use crate::custom_resources::present::{self, Change};
use crate::representation::{EventType, Item, Representation, RepresentationKey};
use crate::selection::Selection;
use plinth_api::api_error::ApiError;
use plinth_http::body::{BodyError, ChunkStream};
use plinth_http::pull::Reader;
use plinth_registry::{Registry, ResourceType};
use plinth_storage::stored::Header;

/// Events are collected into batches of about this many bytes while more are ready.
pub(super) const BATCH: usize = 64 << 10;
/// How often an idle watch that allows bookmarks gets one; upstream's period.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A last bookmark comes this long before the watch ends, as upstream's.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// The present state as ADDED events.
pub(super) type InitialEvents = Reader<State>;

/// What a watch is about; everything that does not change while it lasts.
pub(super) struct Watched {
    pub(super) resource: Arc<ResourceType>,
    pub(super) server: Arc<Server>,
    pub(super) selection: Arc<Selection>,
    pub(super) representation: Arc<Representation>,
    /// When it ends.
    pub(super) ends: Instant,
    /// Whether the client takes bookmarks.
    pub(super) bookmarks: bool,
}

/// A watch under way. Its states, in order: `initial` (ADDED events of the state), then `subscription` (changes), until
/// the time is up, the server stops, or `failed` sends an ERROR event and ends it. Owned by the task that polls it.
pub(super) struct WatchStream {
    watched: Watched,
    initial: Option<InitialEvents>,
    announce_end_of_initial: bool,
    subscription: Option<Subscription>,
    failed: Option<ApiError>,
    bookmark_due: bool,
    /// In a watch of Tables the first event alone says what the columns are.
    heads_sent: bool,
    alarms: Alarms,
    /// Of custom resources: ready when the resource is not served as it was.
    withdrawn: Option<Waiting<()>>,
    /// Whether what the feed has ready is the last that is delivered.
    is_last_look: bool,
    /// Events that a webhook is converting.
    converting: Option<Waiting<Result<Vec<Change>, ApiError>>>,
    /// Pieces that the connection takes next.
    pieces: VecDeque<Bytes>,
    metrics: crate::metrics::WatchGuard,
}

/// Something that takes its time.
type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl WatchStream {
    /// A watch that begins with `initial`, if there is such a state to send, and goes on with the subscription; or with an
    /// error.
    pub(super) fn new(
        watched: Watched,
        initial: Option<InitialEvents>,
        subscription: Result<Subscription, ApiError>,
        stopping: watch::Receiver<bool>,
        metrics: crate::metrics::WatchGuard,
    ) -> WatchStream {
        let (subscription, failed) = match subscription {
            Ok(subscription) => (Some(subscription), None),
            Err(error) => (None, Some(error)),
        };
        let now = Instant::now();
        let first = if watched.bookmarks { next_bookmark(now, watched.ends) } else { watched.ends };
        WatchStream {
            announce_end_of_initial: initial.is_some() && watched.bookmarks,
            heads_sent: initial.is_some(),
            withdrawn: watched.resource.is_custom().then(|| withdrawn(&watched)),
            is_last_look: false,
            converting: None,
            pieces: VecDeque::new(),
            watched,
            initial,
            subscription,
            failed,
            bookmark_due: false,
            alarms: Alarms::new(first, stopping),
            metrics,
        }
    }

    /// The next events; none when the watch has ended.
    pub(super) fn poll_events(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Batch>> {
        if self.alarms.poll_stop(cx) {
            return Poll::Ready(None);
        }
        if !self.is_last_look && self.withdrawn.as_mut().is_some_and(|w| w.as_mut().poll(cx).is_ready()) {
            // The objects went before the definition did: their ends are in the feed and still to be told.
            self.is_last_look = true;
        }
        if self.initial.is_some() {
            match self.poll_initial(cx) {
                Poll::Ready(Some(batch)) => return Poll::Ready(Some(batch)),
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.failed.is_some() {
            return Poll::Ready(self.last_words());
        }
        self.poll_changes(cx)
    }

    /// The ERROR event, after which there is nothing more.
    fn last_words(&mut self) -> Option<Batch> {
        self.subscription = None;
        let error = self.failed.take()?;
        let mut batch = Batch::default();
        batch.write(|out| self.watched.representation.error_event(&error, out)).ok()?;
        Some(batch)
    }

    /// The next part of the initial state; `Ready(None)` when it has ended.
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
                let revision = self.subscription.as_ref().map_or(Revision::ZERO, Subscription::position);
                let mut batch = Batch::default();
                match batch.write(|out| self.watched.representation.bookmark(revision, true, out)) {
                    Ok(()) => Poll::Ready(Some(batch)),
                    Err(error) => {
                        self.failed = Some(error);
                        Poll::Ready(None)
                    }
                }
            }
        }
    }

    /// Collects what the feed has ready, up to [`BATCH`].
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
                    let (server, resource) = (&self.watched.server, &self.watched.resource);
                    match present::asks_webhook(resource, events.iter()) {
                        Ok(true) => {
                            let events = events.iter().cloned().collect();
                            let changes =
                                present::changes(server.presenter.clone(), resource.clone(), events);
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
                        batch.write(|out| self.watched.representation.bookmark(revision, false, out)).err();
                }
                Poll::Ready(Err(error)) => self.failed = Some(watch_error(error)),
                Poll::Pending if batch.len() > 0 => return Poll::Ready(Some(batch)),
                Poll::Pending if self.is_last_look => return Poll::Ready(None),
                Poll::Pending => match self.poll_alarm(cx) {
                    Poll::Ready(false) => return Poll::Ready(None),
                    // A progress mark was asked for: it is ready, or comes with the next events.
                    Poll::Ready(true) => {}
                    Poll::Pending => return Poll::Pending,
                },
            }
            if batch.len() >= BATCH {
                return Poll::Ready(Some(batch));
            }
        }
        // What came before the error goes first; the error waits for the next call.
        Poll::Ready(if batch.len() > 0 { Some(batch) } else { self.last_words() })
    }

    /// Ready with `false` when the watch's time is up, with `true` when a bookmark was asked for.
    fn poll_alarm(&mut self, cx: &mut TaskContext<'_>) -> Poll<bool> {
        if self.alarms.poll_timer(cx).is_pending() {
            return Poll::Pending;
        }
        let (now, ends) = (Instant::now(), self.watched.ends);
        if now >= ends {
            return Poll::Ready(false);
        }
        let next = if self.watched.bookmarks { next_bookmark(now, ends) } else { ends };
        self.alarms.set(next.max(now + Duration::from_millis(1)));
        if let Some(subscription) =
            self.subscription.as_mut().filter(|_| self.watched.bookmarks && !self.bookmark_due)
        {
            self.bookmark_due = true;
            subscription.request_progress();
        }
        Poll::Ready(true)
    }

    fn write_event(&mut self, event: &Arc<Event>, batch: &mut Batch) -> Result<(), ApiError> {
        if self.watched.resource.is_custom() {
            let change = Change::now(&self.watched.server.store, &self.watched.resource, event)?;
            return self.write_change(&change, batch);
        }
        let previous = event.previous.as_ref().map(|record| &record.value);
        let current = match &event.kind {
            EventKind::Put { value, .. } => Some(value),
            EventKind::Delete => None,
        };
        self.write_values(event, previous, current, batch)
    }

    fn write_change(&mut self, change: &Change, batch: &mut Batch) -> Result<(), ApiError> {
        self.write_values(&change.event, change.previous.as_ref(), change.current.as_ref(), batch)
    }

    fn write_values(
        &mut self,
        event: &Arc<Event>,
        previous: Option<&Bytes>,
        current: Option<&Bytes>,
        batch: &mut Batch,
    ) -> Result<(), ApiError> {
        let Some((kind, value)) = transition(&self.watched, &event.key, previous, current)? else {
            return Ok(());
        };
        self.metrics.delivered();
        let heads = !std::mem::replace(&mut self.heads_sent, true);
        let now;
        let representation = match self.watched.representation.is_table() {
            // Ages are counted to the moment of the event.
            true => {
                now = self.watched.representation.at(SystemTime::now());
                &now
            }
            false => &*self.watched.representation,
        };
        let encode = || {
            let mut out = Vec::with_capacity(value.len() + 160);
            let value = self.watched.server.store.open(&event.key, value)?;
            representation.event(kind, &Item::new(&value, event.revision)?, heads, &mut out)?;
            Ok(Bytes::from(out))
        };
        batch.push(match event.extension.get_or_init(EncodedEvents::default) {
            Some(cache) => cache.get_or_encode(
                (representation.event_key(heads), kind),
                &self.watched.resource,
                encode,
            )?,
            None => encode()?,
        });
        Ok(())
    }
}

impl ChunkStream for WatchStream {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let stream = self.get_mut();
        while stream.pieces.is_empty() {
            match stream.poll_events(cx) {
                Poll::Ready(Some(batch)) => stream.pieces = batch.into_pieces(),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(stream.pieces.pop_front().map(Ok))
    }
}

/// What a change means for a watch: an object that enters the selection is ADDED, one that leaves it is DELETED with its
/// previous content at the change's revision.
fn transition<'a>(
    watched: &Watched,
    key: &[u8],
    previous: Option<&'a Bytes>,
    current: Option<&'a Bytes>,
) -> Result<Option<(EventType, &'a [u8])>, ApiError> {
    let selects = |value: Option<&'a Bytes>| -> Result<Option<&'a [u8]>, ApiError> {
        let Some(value) = value else { return Ok(None) };
        if watched.selection.is_everything() {
            return Ok(Some(value));
        }
        let head = Header::parse(value).map_err(ApiError::internal)?;
        Ok(watched.selection.matches(&watched.resource, key, &head).then_some(&value[..]))
    };
    Ok(match (selects(previous)?, selects(current)?) {
        (None, None) => None,
        (None, Some(new)) => Some((EventType::Added, new)),
        (Some(_), Some(new)) => Some((EventType::Modified, new)),
        (Some(old), None) => Some((EventType::Deleted, old)),
    })
}

/// Ready when the definition of a custom resource has gone or says something else: whoever watched asks again.
fn withdrawn(watched: &Watched) -> Waiting<()> {
    let (mut registries, resource) =
        (watched.server.store.current_registry().subscribe(), watched.resource.clone());
    // The one of the request may be older than the present one.
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

fn next_bookmark(now: Instant, ends: Instant) -> Instant {
    let last = ends.checked_sub(BOOKMARK_BEFORE_END).filter(|t| *t > now);
    let next = now + BOOKMARK_PERIOD;
    last.map_or(ends, |last| next.min(last))
}

/// What wakes a watch besides events: its timer and the server's stop. A thousand watches that an event wakes ask each of
/// these a thousand times, so both are only looked at where a glance at the clock or a flag does not answer.
struct Alarms {
    timer: Pin<Box<Sleep>>,
    /// When the timer goes off.
    due: Instant,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    flag: watch::Receiver<bool>,
    /// Who is woken by the timer, and by the stop.
    wakes: [Option<Waker>; 2],
}

impl Alarms {
    fn new(due: Instant, flag: watch::Receiver<bool>) -> Alarms {
        let mut stopping = flag.clone();
        let stop = Box::pin(async move {
            // The sender lives as long as the server; its end means stop, too.
            let _ = stopping.wait_for(|stop| *stop).await;
        });
        Alarms { timer: Box::pin(tokio::time::sleep_until(due)), due, stop, flag, wakes: [None, None] }
    }

    fn set(&mut self, due: Instant) {
        self.due = due;
        self.timer.as_mut().reset(due);
        self.wakes[0] = None;
    }

    fn poll_timer(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.wakes[0].as_ref().is_some_and(|w| w.will_wake(cx.waker())) && Instant::now() < self.due {
            return Poll::Pending;
        }
        self.wakes[0] = Some(cx.waker().clone());
        self.timer.as_mut().poll(cx)
    }

    /// Whether the server stops.
    fn poll_stop(&mut self, cx: &mut TaskContext<'_>) -> bool {
        // The flag changes once, and only to true.
        let unchanged = self.flag.has_changed().is_ok_and(|changed| !changed);
        if unchanged && self.wakes[1].as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            return false;
        }
        self.wakes[1] = Some(cx.waker().clone());
        self.stop.as_mut().poll(cx).is_ready()
    }
}

/// An event in the forms that watchers asked for so far; lives in the event's extension slot. The lock is held
/// while a form is made, so that a thousand watchers make it once.
#[derive(Default)]
struct EncodedEvents {
    forms: Mutex<Vec<EncodedForm>>,
}

struct EncodedForm {
    form: (RepresentationKey, EventType),
    bytes: Bytes,
    /// The key tells resources apart by where they lie in memory; as long as this one is kept nothing else can lie there.
    _resource: Arc<ResourceType>,
}

impl EncodedEvents {
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
        // Whoever comes later is told later ages.
        forms.retain(|encoded| encoded.form.1 != form.1 || !encoded.form.0.differs_in_second(&form.0));
        forms.push(EncodedForm { form, bytes: bytes.clone(), _resource: resource.clone() });
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_come_each_minute_and_shortly_before_the_end() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let ends = at(150);
        for (now, next) in [(0, 60), (60, 120), (100, 148), (120, 148), (148, 150), (149, 150)] {
            assert_eq!(next_bookmark(at(now), ends), at(next), "after {now} s");
        }
        assert_eq!(next_bookmark(begin, begin + Duration::from_secs(1)), at(1), "a watch too short for one");
    }

    #[tokio::test]
    async fn alarms_go_off_though_they_are_not_asked_each_time() {
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
        let begin = Instant::now();
        alarms.set(begin + Duration::from_millis(20));
        std::future::poll_fn(|cx| alarms.poll_timer(cx)).await;
        assert!(begin.elapsed() >= Duration::from_millis(20));
        let stopped = tokio::spawn(std::future::poll_fn(move |cx| match alarms.poll_stop(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }));
        tokio::task::yield_now().await;
        stop.send(true).unwrap();
        stopped.await.unwrap();
    }
}
