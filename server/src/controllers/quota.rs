//! What is used of each ResourceQuota, counted again when objects go and when quotas change.
//!
//! Admission charges what is created, in the object's own transaction. This counts everything at one moment and
//! writes on the condition that the quota is as it was then; a charge that comes between makes it count again. So
//! usage is exact whenever nothing waits here. Upstream: kubernetes `pkg/controller/resourcequota`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;
use plinth_engine::{At, Engine, Event, EventKind, Feed, KeyRange, Subscribe, Transaction};

use super::workers::Workers;
use crate::admission::resource_quota::{differ, is_uncounted, Count, Counted};
use crate::admission::Plugins;
use plinth_api::api_error::ApiError;
use plinth_apiserver::context::Server;
use plinth_registry::key;
use plinth_registry::{Registry, ResourceType};
use plinth_storage::object_cache::ObjectCache;
use plinth_storage::stored::Stored;
use plinth_storage::{object, unchanged, Fetched, Store};

/// Namespaces that are counted at a time.
const WORKERS: usize = 2;
/// First and longest pause before what failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(10));
/// Pause after a namespace was counted: a collection that is being deleted is not counted for each object.
const REST: Duration = Duration::from_millis(100);
/// Pause before the controller starts again after its feed broke off.
const RESTART: Duration = Duration::from_secs(1);

const NAME: &str = "resourcequota-controller";

/// Counts; starts again from the present state when the feed breaks off.
pub(super) async fn lead(server: Arc<Server>, plugins: Arc<Plugins>) {
    super::again(NAME, RESTART, || follow(&server, &plugins.resource_quotas)).await;
}

async fn follow(server: &Arc<Server>, known: &ObjectCache) -> Result<Infallible, ApiError> {
    let mut workers = Workers::new(NAME, WORKERS, RETRY);
    let prefix = key::resource_prefix("", "resourcequotas");
    let (quotas, revision) = server.store.records(key::range(prefix.as_bytes())).await?;
    for quota in quotas {
        if let Some((namespace, _)) = key::split(&prefix, true, &quota.key) {
            workers.add(namespace.to_owned());
        }
    }
    let subscribe = Subscribe::new(KeyRange::all()).after(revision).previous(true);
    let mut feed = server.store.engine().subscribe(subscribe)?;
    loop {
        tokio::select! {
            changes = feed.next() => {
                let Feed::Events(events) = changes? else { continue };
                let registry = server.registry();
                for event in events.iter() {
                    let Some((resource, namespace)) = concerned(&registry, event) else { continue };
                    let has_quotas = !known.objects(&server.store, namespace).await?.is_empty();
                    if has_quotas && asks_for_count(&server.store, &resource, event) {
                        workers.add(namespace.to_owned());
                    }
                }
            }
            () = workers.advance(|namespace| count(server.clone(), namespace)) => {}
        }
    }
}

/// Kinds whose changes can change what they use; of all others only the number counts.
const CHANGING: [&str; 4] = ["pods", "services", "persistentvolumeclaims", "resourcequotas"];

/// The resource and namespace of a change that may concern usage: of a deletion, or of a change of a kind that can use more
/// or less.
fn concerned<'e>(registry: &Registry, event: &'e Event) -> Option<(Arc<ResourceType>, &'e str)> {
    let resource = registry.of_key(&event.key).filter(|r| r.row.namespaced)?;
    let concerns = match &event.kind {
        EventKind::Delete => !is_uncounted(resource),
        EventKind::Put { .. } => resource.group().is_empty() && CHANGING.contains(&resource.plural()),
    };
    let prefix = resource.storage.as_ref()?.prefix.as_str();
    key::split(prefix, true, &event.key)
        .filter(|_| concerns)
        .map(|(namespace, _)| (resource.clone(), namespace))
}

/// Whether a change asks for a new count. What is created has been charged by admission.
fn asks_for_count(store: &Store, resource: &ResourceType, event: &Event) -> bool {
    let EventKind::Put { value, .. } = &event.kind else { return true };
    let tree = |value: &[u8]| {
        let value = store.open(&event.key, value).ok()?;
        let stored = Stored::parse(&value).ok()?;
        object::served_tree(resource, &stored, event.revision).ok()
    };
    let (new, old) = (tree(value), event.previous.as_ref().and_then(|previous| tree(&previous.value)));
    match (resource.plural(), new, old) {
        ("resourcequotas", Some(new), Some(old)) => {
            let hard = |quota: &Value| quota.at(&["status", "hard"]).cloned();
            new.get("spec") != old.get("spec") || hard(&new) != new.at(&["spec", "hard"]).cloned()
        }
        ("resourcequotas", ..) | (_, None, _) => true,
        (_, Some(_), None) => false,
        (_, Some(new), Some(old)) => differ(Counted::new(resource), &new, &old),
    }
}

/// Counts a namespace and writes what its quotas say of it.
async fn count(server: Arc<Server>, namespace: String) -> Result<(), ApiError> {
    let registry = server.registry();
    let store = server.store.clone();
    let counted =
        server.store.read(move |engine| Ok(recount(&store, engine, &registry, &namespace))).await??;
    for (record, value) in counted {
        let transaction = Transaction::new()
            .require(unchanged(&record))
            .put(record.key.clone(), server.store.seal(&record.key, value)?)
            .having_read(record.into_record());
        if server.store.commit(transaction).await?.is_none() {
            return Err(ApiError::conflict(
                "",
                "resourcequotas",
                "",
                "a quota was changed while it was counted",
            ));
        }
    }
    tokio::time::sleep(REST).await;
    Ok(())
}

/// The quotas of a namespace that say something else than what is there at one moment, with what they ought to say. Blocks;
/// costs a walk over the namespace's objects of the resources that its quotas are about.
fn recount(
    store: &Store,
    engine: &Engine,
    registry: &Registry,
    namespace: &str,
) -> Result<Vec<(Fetched, bytes::Bytes)>, ApiError> {
    let snapshot = engine.snapshot(At::Latest)?;
    let range = |resource: &ResourceType| {
        let form = resource.storage.as_ref();
        form.map(|form| key::range(&key::collection(&form.prefix, namespace)))
    };
    let quotas = registry.get("", "v1", "resourcequotas").ok_or_else(ApiError::no_such_resource)?;
    let Some(own) = range(quotas) else { return Ok(Vec::new()) };
    let mut counts = Vec::new();
    let mut entries = snapshot.range(&own);
    while let Some(entry) = entries.next()? {
        let record = store.fetched(entry.to_record())?;
        let tree = object::to_tree(quotas, &record)?;
        counts.push((record, Count::new(tree)));
    }
    for resource in registry.stored().filter(|r| r.row.namespaced) {
        let counted = Counted::new(resource);
        if !counts.iter().any(|(_, count)| count.is_about(counted)) {
            continue;
        }
        let Some(range) = range(resource) else { continue };
        let mut entries = snapshot.range(&range);
        while let Some(entry) = entries.next()? {
            let tree = object::to_tree(resource, &store.fetched(entry.to_record())?)?;
            for (_, count) in counts.iter_mut().filter(|(_, count)| count.is_about(counted)) {
                count.add(counted, &tree);
            }
        }
    }
    let mut changed = Vec::new();
    for (record, count) in counts {
        let value = object::to_stored(quotas, count.finish())?;
        if value != record.value {
            changed.push((record, value));
        }
    }
    Ok(changed)
}
