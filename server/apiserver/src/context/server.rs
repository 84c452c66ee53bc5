//! The server as a value: everything that requests share.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{watch, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::{Admission, FindKindHandler, ReplicaInfo};
use crate::authn::Authenticator;
use crate::authz::Authorizer;
use crate::documents::{DiscoveryDocuments, OpenApiDocuments};
use crate::egress::kubelets::Kubelets;
use crate::egress::remote::RemoteApis;
use crate::egress::SharedSlots;
use crate::error_log::ErrorLog;
use crate::feature_gates::FeatureGates;
use crate::flow_control::FlowControl;
use crate::large_requests::Limiter;
use crate::metrics::Metrics;
use crate::representation::list_size_cache::ListSizeCache;
use crate::stored_objects::ObjectReader;
use crate::traces::Traces;
use plinth_http::{ProducerPool, StreamThreads};
use plinth_kinds::service_ranges::Ranges;
use plinth_registry::{Registry, VersionInfo};
use plinth_storage::{ContinueTokens, Counts, Lengths, Namespaces, Store};

/// What all requests share. Behind one `Arc`; every part is immutable or locks for itself.
pub struct Server {
    /// Stored objects.
    pub store: Store,
    /// Headers of namespaces, in memory.
    pub namespaces: Namespaces,
    /// Signs and verifies continue tokens with the key of the data directory.
    pub tokens: ContinueTokens,
    /// Sizes of collections that are listed in pages.
    pub counts: Counts,
    /// Sizes of lists in encodings that state a length before the items.
    pub list_sizes: ListSizeCache,
    /// Lengths of objects in long protobuf lists.
    pub lengths: Lengths,
    /// Finds the user of a request.
    pub authenticator: Arc<Authenticator>,
    /// Decides what a user may do.
    pub authorizer: Arc<Authorizer>,
    /// The admission plugins.
    pub admission: Arc<dyn Admission>,
    /// Finds the handler of what a single kind does beside its strategy.
    pub kind_handler: FindKindHandler,
    /// Records requests for the audit log.
    pub audit: crate::audit::Audit,
    /// Traces of requests.
    pub traces: Traces,
    /// Logs internal errors, each of them once in a while.
    pub error_log: ErrorLog,
    /// Slots for steps of requests that take milliseconds.
    pub large_requests: Limiter,
    /// API priority and fairness.
    pub flow_control: FlowControl,
    /// Discovery documents, encoded on first use.
    pub discovery: DiscoveryDocuments,
    /// OpenAPI documents, encoded on first use.
    pub openapi: OpenApiDocuments,
    /// Prometheus metrics.
    pub metrics: Metrics,
    /// Producers of lists and of initial states of watches.
    pub producers: Arc<ProducerPool>,
    /// Threads that write backups and checkpoints while they are sent.
    pub stream_threads: StreamThreads,
    /// Reads objects and converts them between versions.
    pub reader: Arc<ObjectReader>,
    /// Finds and connects to kubelets.
    pub kubelets: Kubelets,
    /// Slots for connections to other servers on behalf of clients, which take descriptors from the store.
    pub forwarded: SharedSlots,
    /// Clients of the API servers of remote APIs.
    pub remote_apis: RemoteApis,
    /// Ranges of the addresses and node ports of Services.
    pub services: Ranges,
    /// This server as a replica; none where it is a single one.
    pub replica: Option<Arc<dyn ReplicaInfo>>,
    /// Replicas that join with a token through this server at once.
    pub joining: Arc<Semaphore>,
    /// Limits and durations from flags.
    pub limits: Limits,
    /// The feature gates that are on.
    pub gates: FeatureGates,
    /// The flags that the server was started with, by name, which `/flagz` shows.
    pub flags: BTreeMap<String, String>,
    /// `/version`.
    pub version: VersionInfo<'static>,
    /// Whether the first pass over the APIServices of all built-in APIs is over.
    pub has_registered_apis: AtomicBool,
    /// Whether the server is about to stop (`--shutdown-delay-duration`): it serves, and is not ready.
    pub is_draining: AtomicBool,
    /// Turns true when the server is to stop: watches end, new requests are refused.
    pub stopping: watch::Receiver<bool>,
    /// The tasks beside the requests. The store is closed when they have ended.
    pub tasks: TaskTracker,
}

impl Server {
    /// The resources that are served now. A request takes it once and keeps it.
    pub fn registry(&self) -> Arc<Registry> {
        self.store.registry()
    }

    /// Runs a task beside the requests until the server stops or its storage fails for good. One that is at
    /// work on another thread at that moment runs to its next await, so whoever closes the store waits for
    /// [`Server::tasks`] first.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let (mut stopping, failed) = (self.stopping.clone(), self.store.engine().failed());
        let ended = async move {
            tokio::select! {
                // A sender that is gone has stopped, too.
                _ = stopping.wait_for(|stop| *stop) => {}
                _ = failed => {}
            }
        };
        self.tasks.spawn(until(ended, task))
    }

    /// Runs a request whose client has left to its end; a stop waits for it. It is dropped where too many
    /// such requests are running.
    pub(crate) fn finish_detached(&self, request: impl Future<Output: Send> + Send + 'static) {
        /// The most tasks beside the requests, these included.
        const MOST: usize = 1024;
        let Some(runtime) = Handle::try_current().ok().filter(|_| self.tasks.len() < MOST) else { return };
        // Nobody waits for the answer.
        self.tasks.spawn_on(async move { drop(request.await) }, &runtime);
    }
}

/// Awaited by a task beside the requests before it reports an error: where that comes of the server's end (a
/// closed store, or one that has failed), the task ends here.
pub async fn return_if_stopping() {
    // A task that is polled checks whether the server has stopped before it continues.
    tokio::task::yield_now().await;
}

/// Runs `task` until `ended` is ready.
///
/// `ended` is polled first, each time that the task would go on: what the task would meet after that (a
/// closed store, or one that has failed) is no error that it should warn of or start again for.
async fn until(ended: impl Future<Output = ()>, task: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = ended => {}
        () = task => {}
    }
}

/// Bounds on what one request may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest request body, in bytes.
    pub body: usize,
    /// How long a body may take to arrive.
    pub body_timeout: std::time::Duration,
    /// How long a read waits for a revision that is not there yet.
    pub future_revision_wait: std::time::Duration,
    /// The least that a watch without `timeoutSeconds` lasts (`--min-request-timeout`), in seconds; the
    /// length is random between this and twice this, so that watches do not all end at once.
    pub min_watch_seconds: u64,
    /// How long an object of a kind that expires is kept (`--event-ttl`).
    pub default_ttl: std::time::Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 3 << 20,
            body_timeout: std::time::Duration::from_secs(60),
            future_revision_wait: std::time::Duration::from_secs(3),
            min_watch_seconds: 1800,
            default_ttl: std::time::Duration::from_secs(3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_task_does_not_go_on_after_the_stop() {
        let went_on = Arc::new(AtomicUsize::new(0));
        // Often enough that an order left to chance is seen.
        for _ in 0..64 {
            let (stop, mut stopping) = watch::channel(false);
            let (closed, counter) = (Arc::new(Notify::new()), went_on.clone());
            let feed = closed.clone();
            let stopped = async move {
                let _ = stopping.wait_for(|stop| *stop).await;
            };
            let task = tokio::spawn(until(stopped, async move {
                feed.notified().await;
                counter.fetch_add(1, Ordering::Relaxed);
            }));
            tokio::task::yield_now().await;
            stop.send_replace(true);
            closed.notify_one();
            task.await.expect("it ends");
        }
        assert_eq!(went_on.load(Ordering::Relaxed), 0);
    }
}
