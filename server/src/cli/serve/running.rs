//! A running server in this process, and how it ends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_journal::record::ReplicaId;
use tokio::sync::watch;

use super::super::exit_code::STORAGE_FAILED;
use super::error::ServeError;
use crate::bootstrap::DataDir;
use crate::controllers::identity_lease::IdentityLease;
use crate::members;
use crate::replica::controller_lease;
use plinth_apiserver::context::Server;
use plinth_apiserver::endpoints;

/// Time limit for recording that a replica stops.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for background tasks to end.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server whose storage has failed continues to answer: long enough for the responses to writes in
/// progress, and for a probe to see that it is unhealthy.
const ANSWER_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Time limit for closing connections afterwards.
const STOP_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A running server in this process. If dropped, it runs until the runtime ends, and then stops as if killed:
/// nothing that was acknowledged is lost.
pub struct Running {
    pub(super) address: SocketAddr,
    pub(super) kubeconfig: PathBuf,
    pub(super) stop: watch::Sender<bool>,
    pub(super) serving: tokio::task::JoinHandle<()>,
    pub(super) server: Arc<Server>,
    /// This replica, where it is one.
    pub(super) replica: Option<ReplicaId>,
    /// What shows that it is there.
    pub(super) lease: Option<IdentityLease>,
    /// Holds the lock on the directory.
    pub(super) _dir: DataDir,
}

impl Running {
    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Waits until the storage engine has failed. The server then rejects writes and reports itself
    /// unhealthy; the process should exit and be restarted.
    pub async fn failed(&self) -> plinth_engine::Failure {
        self.server.store.engine().failed().await
    }

    /// Why the server does not work, if it does not: see [`endpoints::check_liveness`].
    pub(super) async fn check_liveness(&self) -> Result<(), String> {
        endpoints::check_liveness(&self.server).await
    }

    /// Reports itself as not ready, and serves on for `delay`, so that load balancers send requests to other
    /// servers before this one refuses them. Ends early where the storage fails.
    pub async fn drain(&self, delay: Duration) -> Option<plinth_engine::Failure> {
        self.server.is_draining.store(true, Ordering::Relaxed);
        if delay.is_zero() {
            return None;
        }
        tracing::info!(duration_ms = delay.as_millis() as u64, "shutdown is delayed, /readyz fails");
        tokio::select! {
            () = tokio::time::sleep(delay) => None,
            failure = self.failed() => Some(failure),
        }
    }

    /// Logs the failure and advice, and finishes requests in progress. The store is not closed: it must not
    /// be written to any more.
    pub(super) async fn stop_after_failure(self, failure: &plinth_engine::Failure) {
        tracing::error!(
            error = %failure,
            exit_code = STORAGE_FAILED,
            "storage engine has failed and takes no more writes, the process ends: {}",
            advice(failure),
        );
        tokio::time::sleep(ANSWER_AFTER_FAILURE).await;
        // Fails if the listener has ended already.
        let _ = self.stop.send(true);
        let leave = async {
            // The listener's own result is irrelevant now.
            let _ = self.serving.await;
            self.server.audit.drain().await;
        };
        // Remaining connections are dropped.
        let _ = tokio::time::timeout(STOP_AFTER_FAILURE, leave).await;
    }

    /// Stops the server: requests in progress are finished, the store is closed.
    ///
    /// # Errors
    /// [`ServeError::Close`] when the storage fails.
    pub async fn stop(self) -> Result<(), ServeError> {
        if let Some(id) = self.replica {
            // While requests are finished, clients learn of it. Without the journal they learn in a while.
            let deadline = Instant::now() + LEAVE_TIMEOUT;
            let store = &self.server.store;
            let left = async {
                controller_lease::release(store, id, deadline).await?;
                members::leave(store, id, deadline).await
            };
            if let Err(error) = left.await {
                tracing::debug!(%error, "the end of this replica could not be recorded");
                // Requests in progress that wait for the journal would be waited for.
                let engine = store.engine().clone();
                drop(tokio::task::spawn_blocking(move || engine.leave_journal()));
            }
        }
        // Fails if the listener has ended already.
        let _ = self.stop.send(true);
        if let Err(error) = self.serving.await {
            tracing::error!(%error, "listener failed");
        }
        self.server.tasks.close();
        // Tasks do not block, so they end at their next await. A remaining one gets errors from the closed
        // store.
        let _ = tokio::time::timeout(TASK_TIMEOUT, self.server.tasks.wait()).await;
        if let Some(lease) = &self.lease {
            // Nobody renews it any more. Without the journal it is removed when it has expired.
            let deleted = tokio::time::timeout(LEAVE_TIMEOUT, lease.delete(&self.server)).await;
            if !matches!(deleted, Ok(Ok(()))) {
                tracing::debug!("the identity Lease of this server could not be deleted");
            }
        }
        self.server.audit.drain().await;
        let tracing = self.server.clone();
        // A panic there loses spans, and nothing else.
        let _ = tokio::task::spawn_blocking(move || tracing.traces.stop()).await;
        let engine = self.server.store.engine().clone();
        tokio::task::spawn_blocking(move || engine.close())
            .await
            .map_err(|error| ServeError::Io {
                what: "cannot close the store",
                source: std::io::Error::other(error),
            })?
            .map_err(ServeError::Close)
    }
}

/// What to do after a failure.
fn advice(failure: &plinth_engine::Failure) -> &'static str {
    use plinth_engine::Failure;
    use plinth_journal::Error as JournalError;
    match failure {
        Failure::OutOfSpace { .. } => {
            "no acknowledged write is lost. Free some space on the file system of the data directory, or \
             raise its quota, then start the server again: a replica applies then what the journal has, \
             also writes that were answered with 504"
        }
        Failure::Superseded { .. } => {
            "no acknowledged write is lost. Stop one of the two processes; a replica on another machine is made \
             with \"plinth join\", not by a copy of a data directory"
        }
        Failure::Journal { error: plinth_journal::Error::Version { .. } } => {
            "the other replicas were upgraded: start a version of plinth that is as new as theirs"
        }
        Failure::Journal { error: JournalError::Closed { .. } } => {
            "stop this replica and do not start it again: \"plinth replicate --undo\" has made that one a single \
             server, which clients go to. Where that server's data is lost, make a backup of the replica \
             that is furthest, and restore it"
        }
        Failure::Journal {
            error: JournalError::Refused { .. } | JournalError::Behind { .. } | JournalError::Replaced { .. },
        } => {
            "keep the data directories of all replicas: the journal is not what it was. If it cannot be restored, \
             make a backup of the replica that is furthest, restore it, and begin a new journal with \"plinth \
             replicate\""
        }
        Failure::Journal { error: JournalError::Damaged { .. } | JournalError::OtherCluster { .. } } => {
            "the journal has a record that no replica of this cluster has written, or one that is \
             damaged, at each member that the log names above, and every replica stops at it. Keep the \
             data directories of all: make a backup of the replica that is furthest, restore it into an \
             empty directory, and begin a new journal with \"plinth replicate\". Only where other \
             replicas run, start this one again"
        }
        Failure::Journal { .. } | Failure::Diverged { .. } => {
            "start the server again: where the journal does not go back to what it has, it takes a \
             checkpoint of another replica. If it fails again while others run, move its data directory \
             aside, keep it, since it may have what others lack, and run \"plinth join\". If none runs \
             any more, keep the data directories of all: make a backup of the replica that is furthest, \
             restore it, and begin a new journal with \"plinth replicate\""
        }
        _ => {
            "no acknowledged write is lost. Check the disk and the kernel's log, then start the server again; if \
             it does not start, run \"plinth verify\""
        }
    }
}
