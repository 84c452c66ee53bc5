//! Which replica runs the controllers: one at a time, as a rule. It holds a lease, the key
//! `replicas/controllers`, which it renews and which expires. Nothing depends on it: what controllers write
//! has conditions, so that two doing the same is harmless, and only work for nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_api::ApiError;
use plinth_apiserver::context::Server;
use plinth_engine::{Condition, Transaction};
use plinth_journal::record::ReplicaId;
use plinth_storage::{unchanged, Store};
use tokio::task::JoinHandle;

use crate::members;

const KEY: &[u8] = b"replicas/controllers";
/// Interval of renewals, and the longest time that one takes.
const PERIOD: Duration = Duration::from_secs(3);
/// The lease expires after this time: another replica takes over then.
const EXPIRES_AFTER: Duration = Duration::from_secs(15);
/// A holder that could not renew the lease for this long stops its controllers: two more periods pass at most
/// until it notices, so that it is before the lease expires.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(8);

/// Runs the tasks that `begin` starts while this replica holds the lease, until the server stops.
pub fn start(
    server: &Arc<Server>,
    id: ReplicaId,
    begin: impl Fn() -> Vec<JoinHandle<()>> + Send + Sync + 'static,
) {
    let store = server.store.clone();
    server.spawn(async move {
        let mut held = Lease { tasks: Vec::new(), renewed: Instant::now() };
        loop {
            let began = Instant::now();
            match renew(&store, id).await {
                Ok(true) => {
                    held.renewed = began;
                    if held.tasks.is_empty() {
                        tracing::info!(replica = id.0, "this replica runs the controllers");
                        held.tasks = begin();
                    }
                }
                Ok(false) => held.stop(id),
                Err(error) => {
                    tracing::debug!(%error, "the lease of the controllers could not be renewed");
                    if held.renewed.elapsed() >= GIVEN_UP_AFTER {
                        held.stop(id);
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    });
}

/// The controllers that run here. They end with it.
struct Lease {
    tasks: Vec<JoinHandle<()>>,
    renewed: Instant,
}

impl Lease {
    fn stop(&mut self, id: ReplicaId) {
        if !self.tasks.is_empty() {
            tracing::info!(replica = id.0, "this replica does not run the controllers any more");
        }
        self.tasks.drain(..).for_each(|task| task.abort());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }
}

/// Takes the lease if nobody holds it, or renews it. Returns whether this replica holds it.
async fn renew(store: &Store, id: ReplicaId) -> Result<bool, ApiError> {
    let own = id.0.to_string();
    let condition = match members::newest(store, KEY.to_vec()).await? {
        None => Condition::Absent(KEY.into()),
        Some(record) if record.value == own => unchanged(&record),
        Some(_) => return Ok(false),
    };
    let transaction = Transaction::new().require(condition).put_expiring(KEY, own, EXPIRES_AFTER);
    let committed = store.commit_by(transaction, Instant::now().checked_add(PERIOD)).await?;
    Ok(committed.is_some())
}

/// Releases the lease, if this replica holds it.
///
/// # Errors
/// When the journal does not answer in time.
pub async fn release(store: &Store, id: ReplicaId, deadline: Instant) -> Result<(), ApiError> {
    match members::newest(store, KEY.to_vec()).await? {
        Some(record) if record.value == id.0.to_string() => {
            let transaction = Transaction::new().require(unchanged(&record)).delete(KEY);
            store.commit_by(transaction, Some(deadline)).await.map(|_| ())
        }
        _ => Ok(()),
    }
}
