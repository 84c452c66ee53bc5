//! [`Server`]: listeners, and the tasks beside them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plinth_http::{connection_limits, Connections};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Accepted, GRACE};
use crate::grpc::Services;
use crate::keepalive::Keepalive;
use crate::listeners::{self, Listener, Socket};
use crate::maintenance::Identity;
use crate::member::{Limits, Member};
use crate::options::{EtcdOptions, EXTENSIVE_METRICS};
use crate::serves::Serves;
use crate::start_error::StartError;
use crate::{compaction, expiry, peers};

/// Connections at a time, and of these from one address.
const CONNECTIONS: usize = 16_384;
const CONNECTIONS_PER_PEER: usize = CONNECTIONS / 2;
/// How often the size of the store is looked at.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
/// How often changes are applied to the numbers of keys: the engine keeps some megabytes of them in memory.
const COUNTS_INTERVAL: Duration = Duration::from_millis(20);

/// A server whose store is open and whose addresses are bound.
pub struct Server {
    services: Arc<Services>,
    listeners: Vec<Listener>,
    retention: crate::options::Retention,
    keepalive: Keepalive,
}

impl Server {
    /// Opens the store in `dir` and binds the addresses of the options.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(options: &EtcdOptions, dir: &Path) -> Result<Server, StartError> {
        let retention = options
            .retention()
            .map_err(|reason| StartError::Flag { flag: "--auto-compaction-retention", reason })?;
        peers::check(options)?;
        let listeners = listeners::bind(options).await?;
        let limits = Limits {
            request_bytes: options.max_request_bytes,
            response_bytes: options.max_inflight_response_bytes,
            txn_operations: options.max_txn_ops,
            quota_bytes: options.quota(),
        };
        let (dir, is_extensive) = (dir.to_owned(), options.metrics == EXTENSIVE_METRICS);
        let auth = options.auth().map_err(|reason| StartError::Flag { flag: "--auth-token", reason })?;
        let opened =
            tokio::task::spawn_blocking(move || Member::open(&dir, limits, auth, is_extensive)).await;
        let member = opened.map_err(|_| plinth_engine::Error::Closed)??;
        let client_urls = match options.advertise_client_urls.is_empty() {
            true => options.listen_client_urls.clone(),
            false => options.advertise_client_urls.clone(),
        };
        let services = Services {
            member: Arc::new(member),
            identity: Identity { name: options.name.clone(), client_urls, peer_urls: peers::urls(options) },
            progress_interval: options.progress_interval(),
            stop: CancellationToken::new(),
        };
        let keepalive = options.keepalive();
        Ok(Server { services: Arc::new(services), listeners, retention, keepalive })
    }

    /// The addresses that it serves clients on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses_for(Serves::Clients)
    }

    /// The addresses of `--listen-metrics-urls`.
    pub fn metrics_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_for(Serves::Metrics)
    }

    fn addresses_for(&self, serves: Serves) -> Vec<SocketAddr> {
        let listeners = self.listeners.iter().filter(|listener| listener.serves == serves);
        let addresses = listeners.filter_map(|listener| match &listener.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            Socket::Unix(_) => None,
        });
        addresses.collect()
    }

    /// The sockets in the file system that it serves clients on.
    pub fn unix_sockets(&self) -> Vec<&Path> {
        let sockets = self.listeners.iter().filter_map(|listener| match &listener.socket {
            Socket::Unix(socket) if listener.serves == Serves::Clients => Some(socket.path.as_path()),
            _ => None,
        });
        sockets.collect()
    }

    /// The newest revision.
    pub fn revision(&self) -> i64 {
        self.services.member.revision()
    }

    /// Resolves when the store has failed for good.
    pub fn failed(&self) -> plinth_engine::Failed {
        self.services.member.engine.failed()
    }

    /// Serves until `stop` resolves, then ends what is in progress and closes the store.
    ///
    /// # Errors
    /// The error of closing the store.
    pub async fn serve(
        self,
        stop: impl std::future::Future<Output = ()>,
    ) -> Result<(), plinth_engine::Error> {
        let Server { services, listeners, retention, keepalive } = self;
        let (member, token) = (Arc::clone(&services.member), services.stop.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(expiry::run(Arc::clone(&member), token.clone()));
        tasks.spawn(compaction::run(Arc::clone(&member), retention, token.clone()));
        tasks.spawn(measure(Arc::clone(&member), token.clone()));
        tasks.spawn(advance_counts(Arc::clone(&member), token.clone()));
        let limits = connection_limits(CONNECTIONS, None, false);
        limits.warn_below(CONNECTIONS);
        let connections = Connections::new(limits.accepted, CONNECTIONS_PER_PEER);
        let shared = Shared { services, connections, keepalive, tasks: tasks.clone() };
        for listener in listeners {
            tasks.spawn(accept(listener, shared.clone()));
        }
        drop(shared);
        stop.await;
        token.cancel();
        tasks.close();
        if tokio::time::timeout(GRACE, tasks.wait()).await.is_err() {
            tracing::warn!("some calls did not end; their connections are closed");
        }
        let engine = member.engine.clone();
        match tokio::task::spawn_blocking(move || engine.close()).await {
            Ok(closed) => closed,
            Err(_) => Err(plinth_engine::Error::Closed),
        }
    }
}

/// Looks at the size of the store in intervals.
async fn measure(member: Arc<Member>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(MEASURE_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        if crate::maintenance::measure(&member).await.is_err() {
            return;
        }
    }
}

/// Applies changes to the numbers of keys while they are in memory.
async fn advance_counts(member: Arc<Member>, stop: CancellationToken) {
    loop {
        let next = member.engine.wait_for(member.counts.position().next());
        let committed = tokio::select! {
            committed = next => committed,
            () = stop.cancelled() => return,
        };
        if committed.is_err() {
            return;
        }
        tokio::time::sleep(COUNTS_INTERVAL).await;
        member.counts.advance();
    }
}

/// What the connections of all listeners have in common.
#[derive(Clone)]
struct Shared {
    services: Arc<Services>,
    connections: Arc<Connections>,
    keepalive: Keepalive,
    tasks: TaskTracker,
}

async fn accept(listener: Listener, shared: Shared) {
    let Shared { services, connections, keepalive, tasks } = shared;
    loop {
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            () = services.stop.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some((slot, evicted)) = connections.admit(peer) else {
            tracing::debug!(source_ip = %peer, "connection is closed, there are too many");
            continue;
        };
        let (tls, serves) = (listener.tls.clone(), listener.serves);
        let accepted = Accepted { stream, peer, tls, serves, slot, evicted };
        tasks.spawn(connection::serve(accepted, keepalive, Arc::clone(&services)));
    }
}
