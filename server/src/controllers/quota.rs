//! Recounts the usage of ResourceQuotas when objects are deleted and when quotas change.
//!
//! Admission charges creates, in the object's own transaction. This controller counts at one revision and
//! writes on the condition that the quota has not changed; a concurrent charge makes it recount. So usage is
//! exact whenever the queue is empty. Upstream: kubernetes `pkg/controller/resourcequota`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_codec::time::Timestamp;
use plinth_codec::Value;
use plinth_engine::{At, Engine, Entry, Event, EventKind, KeyRange, Subscribe, Transaction};

use crate::admission::resource_quota::{
    depends_on_classes, differ, extended_resource, is_uncounted, load_device_names, Count, Counted,
};
use crate::admission::Plugins;
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{metadata_text, ApiError};
use plinth_apiserver::context::{Server, OWN_REQUEST_TIMEOUT};
use plinth_registry::{collection_prefix, prefix_range, resource_prefix, split_key, Registry, ResourceType};
use plinth_storage::{decode_object, decode_served_object, encode_object, unchanged, Fetched, Store, Stored};

/// Maximum number of concurrent workers.
const WORKERS: usize = 2;
/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(10));
/// Delay after a count: when a collection is being deleted, not every object triggers a count.
const PAUSE_AFTER_COUNT: Duration = Duration::from_millis(100);

/// The controller's name.
pub(super) const NAME: &str = "resourcequota-controller";

/// The controller; its keys are the names of namespaces.
pub(super) struct Quotas {
    server: Arc<Server>,
    plugins: Arc<Plugins>,
}

impl Quotas {
    pub(super) fn new(server: &Arc<Server>, plugins: &Arc<Plugins>) -> Quotas {
        Quotas { server: server.clone(), plugins: plugins.clone() }
    }
}

impl Reconciler for Quotas {
    type Key = String;

    fn settings(&self) -> Settings {
        Settings { name: NAME, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<String>, ApiError> {
        let prefix = resource_prefix("", "resourcequotas");
        let range = prefix_range(prefix.as_bytes());
        let pick = move |entry: &Entry<'_>| Some(split_key(&prefix, true, entry.key)?.0.to_owned());
        let (namespaces, revision) = self.server.store.scan(range, pick).await?;
        let subscribe = Subscribe::new(KeyRange::all()).after(revision).previous(true);
        Start::new(namespaces).subscribe(&self.server, subscribe)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<String>, ApiError> {
        let (registry, store) = (self.server.registry(), &self.server.store);
        let mut namespaces = Vec::new();
        for event in events {
            if changes_extended_resources(&registry, store, event) {
                namespaces.extend(self.with_limits_of_classes().await?);
            }
            let Some((resource, namespace)) = concerned(&registry, event) else { continue };
            let has_quotas =
                !self.plugins.context.collections.resource_quotas.objects(store, namespace).await?.is_empty();
            if has_quotas && asks_for_count(store, &resource, event) {
                namespaces.push(namespace.to_owned());
            }
        }
        Ok(namespaces)
    }

    async fn reconcile(&self, namespace: String) -> Result<Action, ApiError> {
        Ok(match count(&self.server, namespace).await? {
            None => Action::AwaitChange,
            // Usage ends after this second.
            Some(until) => {
                let seconds = until.seconds.saturating_sub(Timestamp::now().seconds).saturating_add(1);
                Action::RequeueAfter(Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1)))
            }
        })
    }
}

impl Quotas {
    /// Namespaces with quotas whose usage depends on device classes.
    async fn with_limits_of_classes(&self) -> Result<BTreeSet<String>, ApiError> {
        let quotas = &self.plugins.context.collections.resource_quotas;
        let quotas = quotas.objects(&self.server.store, "").await?;
        let depends = |quota: &&Arc<Value>| {
            let hard = quota.at(&["spec", "hard"]).and_then(Value::as_object);
            hard.is_some_and(|hard| hard.keys().any(|name| depends_on_classes(name)))
        };
        Ok(quotas.iter().filter(depends).map(|quota| metadata_text(quota, "namespace").to_owned()).collect())
    }
}

/// Whether a device class is there that was not, or the reverse, or its extended resource is another.
fn changes_extended_resources(registry: &Registry, store: &Store, event: &Event) -> bool {
    let is_class = |resource: &&Arc<ResourceType>| {
        !resource.is_custom() && (resource.group(), resource.plural()) == ("resource.k8s.io", "deviceclasses")
    };
    let Some(resource) = registry.of_key(&event.key).filter(is_class) else { return false };
    let (EventKind::Put { value, .. }, Some(previous)) = (&event.kind, &event.previous) else { return true };
    let tree = |value: &[u8]| decode_event(store, resource, event, value);
    match (tree(value), tree(&previous.value)) {
        (Some(new), Some(old)) => extended_resource(&new) != extended_resource(&old),
        _ => true,
    }
}

fn decode_event(store: &Store, resource: &ResourceType, event: &Event, value: &[u8]) -> Option<Value> {
    let value = store.open(&event.key, value).ok()?;
    let stored = Stored::parse(&value).ok()?;
    decode_served_object(resource, &stored, event.revision).ok()
}

/// Kinds whose updates can change their usage; of all others only the number of objects counts.
const CHANGING: [(&str, &str); 5] = [
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("", "resourcequotas"),
    ("resource.k8s.io", "resourceclaims"),
];

/// The resource and namespace of a change that may affect usage: of a deletion, or of an update of a kind
/// whose usage can change.
fn concerned<'e>(registry: &Registry, event: &'e Event) -> Option<(Arc<ResourceType>, &'e str)> {
    let resource = registry.of_key(&event.key).filter(|r| r.row.namespaced)?;
    let concerns = match &event.kind {
        EventKind::Delete => !is_uncounted(resource),
        EventKind::Put { .. } => CHANGING.contains(&(resource.group(), resource.plural())),
    };
    let prefix = resource.storage.as_ref()?.prefix.as_str();
    split_key(prefix, true, &event.key)
        .filter(|_| concerns)
        .map(|(namespace, _)| (resource.clone(), namespace))
}

/// Whether a change requires a recount. Creates were charged by admission.
fn asks_for_count(store: &Store, resource: &ResourceType, event: &Event) -> bool {
    let EventKind::Put { value, .. } = &event.kind else { return true };
    let tree = |value: &[u8]| decode_event(store, resource, event, value);
    let (new, old) = (tree(value), event.previous.as_ref().and_then(|previous| tree(&previous.value)));
    match (resource.plural(), new, old) {
        ("resourcequotas", Some(new), Some(old)) => {
            let hard = |quota: &Value| quota.at(&["status", "hard"]).cloned();
            new.get("spec") != old.get("spec") || hard(&new) != new.at(&["spec", "hard"]).cloned()
        }
        ("resourcequotas", ..) | (_, None, _) => true,
        (_, Some(_), None) => false,
        (_, Some(new), Some(old)) => differ(Counted::new(resource), &new, &old, Timestamp::now()),
    }
}

/// Recounts a namespace and writes its quotas; returns when a usage next decreases by itself.
async fn count(server: &Arc<Server>, namespace: String) -> Result<Option<Timestamp>, ApiError> {
    let registry = server.registry();
    let store = server.store.clone();
    let Recount { changed, until } =
        server.store.read(move |engine| Ok(recount(&store, engine, &registry, &namespace))).await??;
    for (record, value) in changed {
        let transaction = Transaction::new()
            .require(unchanged(&record))
            .put(record.key.clone(), server.store.seal(&record.key, value)?)
            .having_read(record.into_record());
        if server
            .store
            .commit_by(transaction, Instant::now().checked_add(OWN_REQUEST_TIMEOUT))
            .await?
            .is_none()
        {
            return Err(ApiError::conflict("", "resourcequotas", "", "quota changed while it was counted"));
        }
    }
    tokio::time::sleep(PAUSE_AFTER_COUNT).await;
    Ok(until)
}

/// The quotas of a namespace counted at one revision.
struct Recount {
    /// Those whose usage differs, with the counted usage.
    changed: Vec<(Fetched, bytes::Bytes)>,
    /// When a usage next decreases by itself.
    until: Option<Timestamp>,
}

/// Counts the quotas of a namespace. Blocks; costs a scan of the namespace's objects of the resources that
/// its quotas limit.
fn recount(
    store: &Store,
    engine: &Engine,
    registry: &Registry,
    namespace: &str,
) -> Result<Recount, ApiError> {
    let now = Timestamp::now();
    let snapshot = engine.snapshot(At::Latest)?;
    let range = |resource: &ResourceType| {
        let form = resource.storage.as_ref();
        form.map(|form| prefix_range(&collection_prefix(&form.prefix, namespace)))
    };
    let quotas = registry.internal("", "v1", "resourcequotas").ok_or_else(ApiError::no_such_resource)?;
    let Some(own) = range(quotas) else { return Ok(Recount { changed: Vec::new(), until: None }) };
    let mut counts = Vec::new();
    let mut entries = snapshot.range(&own);
    while let Some(entry) = entries.next()? {
        let record = store.fetched(entry.to_record())?;
        let tree = decode_object(quotas, &record)?;
        counts.push((record, Count::new(tree, now)));
    }
    let depends = counts.iter().any(|(_, count)| count.depends_on_classes());
    let devices = depends.then(|| load_device_names(store, &snapshot, registry, namespace, None, now));
    let devices = devices.transpose()?;
    for resource in registry.stored().filter(|r| r.row.namespaced) {
        let counted = Counted::new(resource).with_devices(devices.as_ref());
        if !counts.iter().any(|(_, count)| count.is_about(counted)) {
            continue;
        }
        let Some(range) = range(resource) else { continue };
        let mut entries = snapshot.range(&range);
        while let Some(entry) = entries.next()? {
            let tree = decode_object(resource, &store.fetched(entry.to_record())?)?;
            for (_, count) in counts.iter_mut().filter(|(_, count)| count.is_about(counted)) {
                count.add(counted, &tree);
            }
        }
    }
    let until = counts.iter().filter_map(|(_, count)| count.until()).min();
    let mut changed = Vec::new();
    for (record, count) in counts {
        let value = encode_object(quotas, count.finish())?;
        if value != record.value {
            changed.push((record, value));
        }
    }
    Ok(Recount { changed, until })
}
