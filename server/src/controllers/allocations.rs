//! Restores allocations of cluster addresses and node ports that Services use: when the server starts, and when an IPAddress is deleted.
//!
//! A write that gives a Service an address or port allocates it in the same transaction. One that is not allocated, and that another
//! Service could get, too, is left by a repair of a damaged store and by the deletion of an IPAddress. Upstream: kubernetes
//! `pkg/registry/core/service/ipallocator/controller/repairip.go` and `pkg/registry/core/service/portallocator/controller`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_engine::{At, EventKind, Feed, Revision, Subscribe};

use plinth_api::api_error::ApiError;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{end_if_over, Context, Server};
use plinth_apiserver::kind_handlers::service_allocations;
use plinth_registry::key;

const NAME: &str = "service-ip-repair-controllers";
/// Pause before a restart after its feed ended.
const RESTART: Duration = Duration::from_secs(1);

/// Allocates the addresses and node ports of all Services that are not allocated.
///
/// # Errors
/// When the Services or the allocations cannot be read. A Service that is damaged, or for which the write fails, is logged.
pub async fn restore(server: &Arc<Server>) -> Result<(), ApiError> {
    let cx = services(server)?;
    let range = key::range(key::resource_prefix("", "services").as_bytes());
    let (records, _) = server.store.records(range).await?;
    let allocated = service_allocations::allocated_keys(&cx).await?;
    for record in records {
        let restored = service_allocations::restore_allocations(&cx, &record, &allocated).await;
        if let Err(error) = restored {
            // One damaged Service keeps no other from its addresses.
            let key = String::from_utf8_lossy(&record.key);
            end_if_over().await;
            tracing::warn!(%error, %key, "could not restore the allocations of a Service");
        }
    }
    Ok(())
}

/// Watches deletions of IPAddresses, from the revision at which `restore` began if it was done; restarts from the current state when
/// the feed ends.
pub async fn run(server: Arc<Server>, restored: Option<Revision>) {
    let restored = Mutex::new(restored);
    super::again(NAME, RESTART, || follow(&server, restored.lock().take())).await;
}

async fn follow(server: &Arc<Server>, restored: Option<Revision>) -> Result<Infallible, ApiError> {
    let cx = services(server)?;
    let revision = restored.unwrap_or(server.store.engine().current_revision());
    if restored.is_none() {
        restore(server).await?;
    }
    let addresses = key::range(key::resource_prefix("networking.k8s.io", "ipaddresses").as_bytes());
    let mut feed = server.store.engine().subscribe(Subscribe::new(addresses).after(revision))?;
    loop {
        let Feed::Events(events) = feed.next().await? else { continue };
        for event in events.iter().filter(|event| matches!(event.kind, EventKind::Delete)) {
            let before = At::Exact(event.revision.previous());
            let key = event.key.clone();
            let Some(record) = server.store.read(move |engine| engine.get(&key, before)).await? else {
                continue;
            };
            // Usually the Service was deleted in the same transaction.
            let Some((namespace, name)) = service_allocations::owner_of(&cx, record) else { continue };
            let service = key::object(&key::resource_prefix("", "services"), &namespace, &name);
            if let Some(service) = server.store.newest(service).await? {
                let allocated = service_allocations::allocated_keys(&cx).await?;
                service_allocations::restore_allocations(&cx, &service, &allocated).await?;
            }
        }
    }
}

fn services(server: &Arc<Server>) -> Result<Context, ApiError> {
    Context::internal(server, ("", "v1", "services"), "", "", Verb::Update)
}
