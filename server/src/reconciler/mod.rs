//! The one loop of all controllers: what wakes a controller puts keys into a work queue, workers reconcile
//! them, failures are retried with exponential backoff.
//!
//! A controller implements [`Reconciler`] and is started by [`spawn`]. The terms are those of client-go's
//! `workqueue` and of controller-runtime; [`Action`] is kube-rs's.

mod queue;
mod workers;

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{poll_fn, Future};
use std::hash::Hash;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use plinth_engine::{Event, Feed, Revision, Subscribe, Subscription};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use self::workers::{Action, Settings};

use self::workers::Workers;
use plinth_api::ApiError;
use plinth_apiserver::context::{return_if_stopping, Server};
use plinth_apiserver::metrics::QueueMetrics;
use plinth_registry::prefix_range;

/// First and longest delay before a controller is restarted from the current state after its feed failed.
const RESTART: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Number of keys that are due beyond which no more changes are read; history on disk buffers them.
const MOST_DUE: usize = 1 << 16;

/// A controller: what it watches, and what it does about one key.
///
/// Reconciliation depends on the current state alone, not on the change that led to it: keys are
/// deduplicated, retried, and found again by [`Reconciler::start`] after a restart.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// A unit of work that is not done twice concurrently: an object, or a task of the controller.
    type Key: Clone + Ord + Hash + Debug + Send + 'static;

    /// Name and limits.
    fn settings(&self) -> Settings;

    /// Reads the current state. Called at start, and again after a feed failed.
    fn start(&self) -> impl Future<Output = Result<Start<Self::Key>, ApiError>> + Send;

    /// The keys that a feed's next changes affect.
    fn changed(
        &self,
        _events: &[Arc<Event>],
    ) -> impl Future<Output = Result<Vec<Self::Key>, ApiError>> + Send {
        async { Ok(Vec::new()) }
    }

    /// Waits for a key from a source other than the engine's feeds. Cancel-safe.
    fn notified(&self) -> impl Future<Output = Self::Key> + Send {
        std::future::pending()
    }

    /// Reconciles one key. An error is retried; a conflict (409) is no failure and only logged for debugging.
    fn reconcile(&self, key: Self::Key) -> impl Future<Output = Result<Action, ApiError>> + Send;
}

/// What a controller begins with.
pub(crate) struct Start<K> {
    keys: Vec<K>,
    feeds: Vec<Subscription>,
}

impl<K> Start<K> {
    /// Begins with the keys of unfinished work.
    pub(crate) fn new(keys: impl IntoIterator<Item = K>) -> Start<K> {
        Start { keys: keys.into_iter().collect(), feeds: Vec::new() }
    }

    /// Watches the keys with a prefix, after the revision of the state that was read.
    pub(crate) fn watch(self, server: &Server, prefix: &str, after: Revision) -> Result<Start<K>, ApiError> {
        self.subscribe(server, Subscribe::new(prefix_range(prefix.as_bytes())).after(after))
    }

    /// Watches what `subscribe` returns.
    pub(crate) fn subscribe(mut self, server: &Server, subscribe: Subscribe) -> Result<Start<K>, ApiError> {
        self.feeds.push(server.store.engine().subscribe(subscribe)?);
        Ok(self)
    }
}

/// Runs a controller until the server stops or its storage fails.
pub(crate) fn spawn(server: &Server, reconciler: impl Reconciler) -> JoinHandle<()> {
    let metrics = server.metrics.workqueues.queue(reconciler.settings().name);
    server.spawn(run(Arc::new(reconciler), RESTART, Some(metrics)))
}

async fn run(
    reconciler: Arc<impl Reconciler>,
    restart: (Duration, Duration),
    metrics: Option<Arc<QueueMetrics>>,
) {
    let name = reconciler.settings().name;
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let Err(error) = watch(&reconciler, metrics.clone()).await;
        return_if_stopping().await;
        tracing::warn!(%error, controller = name, "controller failed, restarting");
        failures = if began.elapsed() > restart.1 { 0 } else { failures + 1 };
        tokio::time::sleep(queue::backoff(restart, failures)).await;
    }
}

async fn watch<R: Reconciler>(
    reconciler: &Arc<R>,
    metrics: Option<Arc<QueueMetrics>>,
) -> Result<Infallible, ApiError> {
    let settings = reconciler.settings();
    let mut workers = Workers::new(settings);
    if let Some(metrics) = metrics {
        workers = workers.with_metrics(metrics);
    }
    let Start { keys, mut feeds } = reconciler.start().await?;
    keys.into_iter().for_each(|key| workers.add(key));
    loop {
        let has_room = workers.due() < MOST_DUE;
        tokio::select! {
            events = next(&mut feeds), if has_room => {
                let keys = reconciler.changed(&events?).await?;
                keys.into_iter().for_each(|key| workers.add_after(key, settings.gather));
            }
            key = reconciler.notified(), if has_room => workers.add_after(key, settings.gather),
            () = workers.advance(|key| {
                let reconciler = reconciler.clone();
                async move { reconciler.reconcile(key).await }
            }) => {}
        }
    }
}

/// The next events of any feed; pending without feeds. Cancel-safe.
async fn next(feeds: &mut [Subscription]) -> Result<Arc<[Arc<Event>]>, ApiError> {
    poll_fn(|cx| {
        for place in 0..feeds.len() {
            while let Poll::Ready(next) = feeds[place].poll_next(cx) {
                if let Feed::Events(events) = next? {
                    // The others come first the next time.
                    feeds.rotate_left(place + 1);
                    return Poll::Ready(Ok(events));
                }
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use plinth_engine::{Engine, KeyRange, Options, Transaction};
    use tokio::sync::mpsc;

    use super::*;

    /// Reconciles the names in a store under two prefixes; fails once per name.
    struct Names {
        engine: Engine,
        starts: AtomicUsize,
        failed: Mutex<BTreeSet<String>>,
        reconciled: mpsc::UnboundedSender<String>,
    }

    fn name(key: &[u8]) -> String {
        String::from_utf8_lossy(key).into_owned()
    }

    impl Reconciler for Names {
        type Key = String;

        fn settings(&self) -> Settings {
            let retry = (Duration::from_millis(1), Duration::from_millis(2));
            Settings { name: "test", workers: 2, retry, gather: Duration::from_millis(1) }
        }

        async fn start(&self) -> Result<Start<String>, ApiError> {
            // The first start fails, as one whose store cannot be read.
            if self.starts.fetch_add(1, Ordering::SeqCst) == 0 {
                return Err(ApiError::internal("not now"));
            }
            let snapshot = self.engine.snapshot(plinth_engine::At::Latest)?;
            let (mut found, all) = (Vec::new(), KeyRange::all());
            let mut entries = snapshot.range(&all);
            while let Some(entry) = entries.next()? {
                found.push(name(entry.key));
            }
            let mut start = Start::new(found);
            for prefix in ["a/", "b/"] {
                let subscribe = Subscribe::new(KeyRange::prefix(prefix)).after(snapshot.revision());
                start.feeds.push(self.engine.subscribe(subscribe)?);
            }
            Ok(start)
        }

        async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<String>, ApiError> {
            Ok(events.iter().map(|event| name(&event.key)).collect())
        }

        async fn reconcile(&self, key: String) -> Result<Action, ApiError> {
            if self.failed.lock().insert(key.clone()) {
                return Err(ApiError::conflict("", "names", &key, "not yet"));
            }
            self.reconciled.send(key.clone()).map_err(ApiError::internal)?;
            match key.as_str() {
                "a/periodic" => Ok(Action::RequeueAfter(Duration::from_millis(1))),
                _ => Ok(Action::AwaitChange),
            }
        }
    }

    #[tokio::test]
    async fn what_is_there_and_what_changes_is_reconciled_in_spite_of_failures() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let put = |key: &'static str| engine.transact(Transaction::new().put(key, "")).wait().unwrap();
        put("a/present");
        let (reconciled, mut done) = mpsc::unbounded_channel();
        let names = Names {
            engine: engine.clone(),
            starts: AtomicUsize::new(0),
            failed: Mutex::default(),
            reconciled,
        };
        let restart = (Duration::from_millis(1), Duration::from_secs(60));
        let running = tokio::spawn(run(Arc::new(names), restart, None));
        assert_eq!(done.recv().await.as_deref(), Some("a/present"));
        for key in ["a/later", "b/later"] {
            put(key);
            assert_eq!(done.recv().await.as_deref(), Some(key));
        }
        put("a/periodic");
        for _ in 0..3 {
            assert_eq!(done.recv().await.as_deref(), Some("a/periodic"));
        }
        running.abort();
        engine.close().unwrap();
    }
}
