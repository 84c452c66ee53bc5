//! A watch stream: creates, cancels and polls its watches, one response after the other.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::{FuturesUnordered, Stream};
use plinth_engine::{Error, Feed, KeyRange, Revision, Subscribe, Subscription};
use prometheus::IntGauge;
use tokio::sync::Notify;
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::queue::{queue, Queue};
use super::response::{responses, Selection};
use crate::auth::{Credentials, Needs};
use crate::errors;
use crate::keys::{owned, Keys};
use crate::member::Member;
use crate::permitted::permit;
use crate::value::to_etcd;
use crate::wire::watch::watch_request::Request;
use crate::wire::watch::{WatchCreateRequest, WatchRequest, WatchResponse};

/// The id of a response that is about all watches of a stream, or about none.
const ALL: i64 = -1;
/// What a response may have beyond the largest request: gRPC's overhead in etcd.
pub(crate) const OVERHEAD: usize = 512 << 10;

/// Progress is reported for the stream.
const OF_STREAM: u8 = 1;
/// Progress is reported for the watch.
const OF_WATCH: u8 = 2;

/// A watch as its stream knows it.
struct Handle {
    abort: AbortHandle,
    signal: Arc<Signal>,
    start: i64,
    /// Whether progress is reported in intervals.
    notify: bool,
    /// Whether there were no events since the last interval.
    is_quiet: bool,
}

/// What a stream asks of a watch.
#[derive(Default)]
struct Signal {
    wanted: AtomicU8,
    notify: Notify,
}

impl Signal {
    fn ask(&self, wanted: u8) {
        self.wanted.fetch_or(wanted, Ordering::AcqRel);
        self.notify.notify_one();
    }
}

/// A watch that waits for events.
struct Watch {
    id: i64,
    subscription: Subscription,
    selection: Selection,
    signal: Arc<Signal>,
    /// While later revisions are there than it was given.
    behind: Option<Counted>,
    slow_watchers: IntGauge,
    _counted: Counted,
}

impl Watch {
    async fn next(&mut self) -> Result<Feed, Error> {
        std::future::poll_fn(|cx| {
            let polled = self.subscription.poll_next(cx);
            let is_behind = self.subscription.lag() > 0;
            if is_behind != self.behind.is_some() {
                self.behind = is_behind.then(|| Counted::new(&self.slow_watchers));
            }
            polled
        })
        .await
    }
}

/// Counts a value in a gauge while it exists.
struct Counted(IntGauge);

impl Counted {
    fn new(gauge: &IntGauge) -> Counted {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

type Step = (Watch, Result<Feed, Error>);
type Pending = Pin<Box<dyn Future<Output = Step> + Send>>;

/// The next events or progress of a watch.
async fn advance(mut watch: Watch) -> Step {
    loop {
        let signal = Arc::clone(&watch.signal);
        tokio::select! {
            biased;
            () = signal.notify.notified() => watch.subscription.request_progress(),
            feed = watch.next() => return (watch, feed),
        }
    }
}

/// A progress request that not all watches have answered.
struct Progress {
    /// The newest revision at the request.
    target: i64,
    waiting: usize,
    /// The lowest answer.
    reached: i64,
    /// Whether it was requested again meanwhile.
    again: bool,
}

struct WatchStream {
    member: Arc<Member>,
    credentials: Credentials,
    out: Queue,
    watches: HashMap<i64, Handle>,
    active: FuturesUnordered<Abortable<Pending>>,
    next_id: i64,
    progress: Option<Progress>,
    _counted: Counted,
}

/// An error as gRPC for Go prints it: clients match on that.
fn as_go(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

/// The client has left, or the stream has failed, and the reason was sent.
struct Ended;

/// Serves a watch stream until the client leaves or `stop` is cancelled; returns its responses.
pub(crate) fn serve(
    member: Arc<Member>,
    credentials: Credentials,
    requests: Streaming<WatchRequest>,
    progress_interval: Duration,
    stop: CancellationToken,
) -> impl Stream<Item = Result<WatchResponse, Status>> + Send + 'static {
    let (out, responses) = queue(member.metrics.pending_events.clone());
    let stream = WatchStream {
        _counted: Counted::new(&member.metrics.watch_streams),
        member,
        credentials,
        out,
        watches: HashMap::new(),
        active: FuturesUnordered::new(),
        next_id: 0,
        progress: None,
    };
    tokio::spawn(stream.run(requests, progress_interval, stop));
    responses
}

impl WatchStream {
    async fn run(
        mut self,
        mut requests: Streaming<WatchRequest>,
        progress_interval: Duration,
        stop: CancellationToken,
    ) {
        let mut interval =
            tokio::time::interval_at(tokio::time::Instant::now() + progress_interval, progress_interval);
        let out = self.out.clone();
        let mut has_requests = true;
        loop {
            let handled = tokio::select! {
                request = requests.next(), if has_requests => match request {
                    Some(Ok(request)) => self.handle(request).await,
                    // The client sends no more requests, and still reads.
                    None => {
                        has_requests = false;
                        Ok(())
                    }
                    Some(Err(_)) => return,
                },
                Some(step) = futures_util::StreamExt::next(&mut self.active) => self.step(step).await,
                _ = interval.tick() => {
                    self.report_in_interval();
                    Ok(())
                }
                () = out.closed() => return,
                () = stop.cancelled() => {
                    out.end(errors::stopped());
                    return;
                }
            };
            if handled.is_err() {
                return;
            }
        }
    }

    async fn send(&mut self, response: WatchResponse) -> Result<(), Ended> {
        self.out.send(Ok(response)).await.map_err(|_| Ended)
    }

    async fn handle(&mut self, request: WatchRequest) -> Result<(), Ended> {
        match request.request {
            Some(Request::Create(request)) => self.create(request).await,
            Some(Request::Cancel(request)) => {
                if self.remove(request.watch_id).await?.is_none() {
                    return Ok(());
                }
                let header = Some(self.member.header());
                let watch_id = request.watch_id;
                self.send(WatchResponse { header, watch_id, canceled: true, ..WatchResponse::default() })
                    .await
            }
            Some(Request::Progress(_)) => self.request_progress().await,
            None => Ok(()),
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) -> Result<(), Ended> {
        // An empty key stands for the lowest one.
        let key = if request.key.is_empty() { "\0".into() } else { request.key.clone() };
        let needs = Needs::default().read(&key, &request.range_end);
        if let Err(status) = permit(&self.member, &self.credentials, needs).await {
            return self.refuse(as_go(&status)).await;
        }
        let range = match self.check(&request, &key) {
            Ok(range) => range,
            Err(reason) => return self.refuse(reason.to_owned()).await,
        };
        let watch_id = self.choose_id(request.watch_id);
        // The position is taken before the answer: what is committed after it is delivered.
        let subscribed = self.subscribe(range, &request);
        let header = Some(self.member.header());
        self.send(WatchResponse { header, watch_id, created: true, ..WatchResponse::default() }).await?;
        let subscription = match subscribed {
            Ok(subscription) => subscription,
            Err(Error::Compacted { .. }) => return self.end_compacted(watch_id).await,
            Err(error) => return self.fail(&error).await,
        };
        let (abort, registration) = AbortHandle::new_pair();
        let signal = Arc::new(Signal::default());
        let watch = Watch {
            id: watch_id,
            subscription,
            selection: Selection::of(&request),
            signal: Arc::clone(&signal),
            behind: None,
            slow_watchers: self.member.metrics.slow_watchers.clone(),
            _counted: Counted::new(&self.member.metrics.watchers),
        };
        let (start, notify) = (request.start_revision, request.progress_notify);
        self.watches.insert(watch_id, Handle { abort, signal, start, notify, is_quiet: true });
        self.active.push(Abortable::new(Box::pin(advance(watch)), registration));
        Ok(())
    }

    /// There is no watch, for a reason.
    async fn refuse(&mut self, cancel_reason: String) -> Result<(), Ended> {
        self.send(WatchResponse {
            header: Some(self.member.header()),
            watch_id: ALL,
            created: true,
            canceled: true,
            cancel_reason,
            ..WatchResponse::default()
        })
        .await
    }

    /// The keys of a watch, or why there is none.
    fn check(&self, request: &WatchCreateRequest, key: &Bytes) -> Result<KeyRange, &'static str> {
        if request.start_revision < 0 {
            return Err("etcdserver: mvcc: required revision has been compacted");
        }
        let range = Keys::of(&owned(key), &owned(&request.range_end)).to_range();
        if range.is_empty() {
            return Err("mvcc: watcher range is empty");
        }
        if request.watch_id != 0 && self.watches.contains_key(&request.watch_id) {
            return Err("mvcc: duplicate watch ID provided on the WatchStream");
        }
        Ok(range)
    }

    fn choose_id(&mut self, wanted: i64) -> i64 {
        if wanted != 0 {
            return wanted;
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    fn subscribe(&self, range: KeyRange, request: &WatchCreateRequest) -> Result<Subscription, Error> {
        let mut subscribe = Subscribe::new(range).previous(request.prev_kv);
        if request.start_revision > 0 {
            let Some(position) = self.member.position_before(request.start_revision) else {
                return Err(Error::Compacted { requested: Revision::ZERO, oldest: Revision::ZERO });
            };
            subscribe = subscribe.after(position);
        }
        self.member.engine.subscribe(subscribe)
    }

    /// Removes a watch, if there is one of this id.
    async fn remove(&mut self, watch_id: i64) -> Result<Option<()>, Ended> {
        let Some(handle) = self.watches.remove(&watch_id) else { return Ok(None) };
        handle.abort.abort();
        if handle.signal.wanted.load(Ordering::Acquire) & OF_STREAM != 0 {
            self.answered(i64::MAX).await?;
        }
        Ok(Some(()))
    }

    async fn step(&mut self, step: Result<Step, Aborted>) -> Result<(), Ended> {
        let Ok((watch, feed)) = step else { return Ok(()) };
        // A watch that was canceled after it was woken.
        if !self.watches.get(&watch.id).is_some_and(|handle| Arc::ptr_eq(&handle.signal, &watch.signal)) {
            return Ok(());
        }
        match feed {
            Ok(Feed::Events(events)) => {
                let size = self.member.limits.request_bytes.saturating_add(OVERHEAD);
                let (member, compacted) = (Arc::clone(&self.member), self.member.compacted());
                let header = |revision| member.header_at(revision);
                // Until there is room for them: a client that does not read keeps the watch from later ones.
                let _behind = watch.behind.is_none().then(|| Counted::new(&watch.slow_watchers));
                for response in responses(watch.id, &events, watch.selection, size, compacted, header) {
                    self.member.metrics.events.inc_by(response.events.len() as u64);
                    self.send(response).await?;
                    if let Some(handle) = self.watches.get_mut(&watch.id) {
                        handle.is_quiet = false;
                    }
                }
            }
            Ok(Feed::Progress(revision)) => self.progressed(&watch, to_etcd(revision)).await?,
            Err(Error::Compacted { .. }) => {
                let watch_id = watch.id;
                drop(watch);
                self.remove(watch_id).await?;
                return self.end_compacted(watch_id).await;
            }
            Err(error) => return self.fail(&error).await,
        }
        let (abort, registration) = AbortHandle::new_pair();
        if let Some(handle) = self.watches.get_mut(&watch.id) {
            handle.abort = abort;
            self.active.push(Abortable::new(Box::pin(advance(watch)), registration));
        }
        Ok(())
    }

    async fn end_compacted(&mut self, watch_id: i64) -> Result<(), Ended> {
        self.send(WatchResponse {
            // etcd's has no revision either.
            header: Some(self.member.header_at(0)),
            watch_id,
            canceled: true,
            compact_revision: self.member.compacted(),
            ..WatchResponse::default()
        })
        .await
    }

    async fn fail(&mut self, error: &Error) -> Result<(), Ended> {
        let _ = self.out.send(Err(errors::from_engine(error))).await;
        Err(Ended)
    }

    /// Asks all watches of the stream to report when they are complete.
    async fn request_progress(&mut self) -> Result<(), Ended> {
        if let Some(progress) = &mut self.progress {
            progress.again = true;
            return Ok(());
        }
        let target = self.member.revision();
        let is_future = self.watches.values().any(|handle| handle.start > target);
        if self.watches.is_empty() || is_future {
            return Ok(());
        }
        self.progress =
            Some(Progress { target, waiting: self.watches.len(), reached: i64::MAX, again: false });
        self.watches.values().for_each(|handle| handle.signal.ask(OF_STREAM));
        Ok(())
    }

    /// A watch is complete up to `revision`.
    async fn progressed(&mut self, watch: &Watch, revision: i64) -> Result<(), Ended> {
        let mut wanted = watch.signal.wanted.swap(0, Ordering::AcqRel);
        if wanted & OF_WATCH != 0 {
            let (header, watch_id) = (Some(self.member.header_at(revision)), watch.id);
            self.send(WatchResponse { header, watch_id, ..WatchResponse::default() }).await?;
        }
        let target = self.progress.as_ref().map_or(0, |progress| progress.target);
        if wanted & OF_STREAM != 0 && revision < target {
            // An answer to an earlier question.
            watch.signal.ask(OF_STREAM);
            wanted = 0;
        }
        match wanted & OF_STREAM {
            0 => Ok(()),
            _ => self.answered(revision).await,
        }
    }

    /// One watch less has to answer a progress request of the stream.
    async fn answered(&mut self, revision: i64) -> Result<(), Ended> {
        let Some(progress) = &mut self.progress else { return Ok(()) };
        progress.waiting = progress.waiting.saturating_sub(1);
        progress.reached = progress.reached.min(revision);
        if progress.waiting > 0 {
            return Ok(());
        }
        let (reached, again) = (progress.reached, progress.again);
        self.progress = None;
        if reached != i64::MAX {
            let header = Some(self.member.header_at(reached));
            self.send(WatchResponse { header, watch_id: ALL, ..WatchResponse::default() }).await?;
        }
        match again {
            true => self.request_progress().await,
            false => Ok(()),
        }
    }

    /// Asks the watches that want it, and had no events since the last interval, for their progress.
    fn report_in_interval(&mut self) {
        let current = self.member.revision();
        for handle in self.watches.values_mut().filter(|handle| handle.notify) {
            if handle.is_quiet && handle.start <= current {
                handle.signal.ask(OF_WATCH);
            }
            handle.is_quiet = true;
        }
    }
}
