//! Repairs allocations of cluster addresses and node ports of Services: when the server starts, and when an
//! IPAddress is deleted.
//!
//! A write that assigns an address or port to a Service allocates it in the same transaction. A missing
//! allocation, which would allow another Service to get the same address, is caused by the repair of a
//! damaged store and by the deletion of an IPAddress. Upstream: kubernetes
//! `pkg/registry/core/service/ipallocator/controller/repairip.go` and
//! `pkg/registry/core/service/portallocator/controller`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_engine::{Event, Revision, Subscribe};

use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use plinth_api::{ApiError, Verb};
use plinth_apiserver::context::{return_if_stopping, Context, Server};
use plinth_apiserver::kind_handlers::service;
use plinth_registry::{object_key, prefix_range, resource_prefix};

const NAME: &str = "service-ip-repair-controllers";
/// First and longest delay before the allocations of a Service are retried.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Allocates missing addresses and node ports of all Services.
///
/// # Errors
/// When the Services or the allocations cannot be read. Errors of a single Service are logged.
pub async fn restore(server: &Arc<Server>) -> Result<(), ApiError> {
    let cx = services(server)?;
    let range = prefix_range(resource_prefix("", "services").as_bytes());
    let (records, _) = server.store.records(range).await?;
    let allocated = service::allocated_keys(&cx).await?;
    for record in records {
        let restored = service::restore_allocations(&cx, &record, &allocated).await;
        if let Err(error) = restored {
            // One damaged Service must not affect the others.
            let key = String::from_utf8_lossy(&record.key);
            return_if_stopping().await;
            tracing::warn!(%error, %key, "failed to restore allocations of Service");
        }
    }
    Ok(())
}

/// Starts the controller, which watches deletions of IPAddresses: from the revision at which [`restore`]
/// began if it was run.
pub fn start(server: &Arc<Server>, restored: Option<Revision>) {
    reconciler::spawn(server, Allocations { server: server.clone(), restored: Mutex::new(restored) });
}

/// The controller; its keys are namespaces and names of Services.
struct Allocations {
    server: Arc<Server>,
    /// Taken by the first start.
    restored: Mutex<Option<Revision>>,
}

impl Reconciler for Allocations {
    type Key = (String, String);

    fn settings(&self) -> Settings {
        Settings { name: NAME, workers: 1, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<Self::Key>, ApiError> {
        let restored = self.restored.lock().take();
        let revision = restored.unwrap_or(self.server.store.engine().current_revision());
        if restored.is_none() {
            restore(&self.server).await?;
        }
        let addresses = prefix_range(resource_prefix("networking.k8s.io", "ipaddresses").as_bytes());
        Start::new([]).subscribe(&self.server, Subscribe::new(addresses).after(revision).previous(true))
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<Self::Key>, ApiError> {
        let cx = services(&self.server)?;
        let deleted = events.iter().filter(|event| event.is_delete());
        let owner = |event: &Arc<Event>| service::owner_of(&cx.server.store, event.previous.clone()?);
        Ok(deleted.filter_map(owner).collect())
    }

    async fn reconcile(&self, (namespace, name): Self::Key) -> Result<Action, ApiError> {
        let cx = services(&self.server)?;
        let service = object_key(&resource_prefix("", "services"), &namespace, &name);
        // Usually the Service was deleted in the same transaction.
        if let Some(service) = self.server.store.newest(service).await? {
            let allocated = service::allocated_keys(&cx).await?;
            service::restore_allocations(&cx, &service, &allocated).await?;
        }
        Ok(Action::AwaitChange)
    }
}

fn services(server: &Arc<Server>) -> Result<Context, ApiError> {
    Context::internal(server, ("", "v1", "services"), "", "", Verb::Update)
}
