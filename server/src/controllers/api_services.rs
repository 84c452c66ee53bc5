//! APIServices of the server's own group versions, built in or defined by CustomResourceDefinitions, so that
//! clients that list APIServices find all APIs. They contain where the API is served (locally) and the order
//! of discovery; the server itself does not use them.
//!
//! Upstream: k8s.io/kube-aggregator `pkg/controllers/autoregister`, kubernetes
//! `pkg/controlplane/controller/crdregistration`. Those of built-in group versions are created at start;
//! those of definitions follow the registry, and are deleted when no definition has the version any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{tree, Map, Value};
use tokio::sync::{watch, Mutex};

use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use plinth_api::{metadata_text, set_condition, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::documents::local_catalog;
use plinth_apiserver::handlers::delete;
use plinth_apiserver::handlers::internal::{self, NewObject};
use plinth_registry::Registry;

const RESOURCE: (&str, &str, &str) = ("apiregistration.k8s.io", "v1", "apiservices");
/// Label of managed objects: created once at each start, or following the definitions.
const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
const ON_START: &str = "onstart";
const FOLLOWS: &str = "true";
/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Delay to batch a burst of changes.
const GATHER: Duration = Duration::from_millis(100);

/// Creates what is missing and starts the controller.
///
/// # Errors
/// When an object could not be written; the controller retries it.
pub async fn start(server: &Arc<Server>) -> Result<(), ApiError> {
    let registries = Mutex::new(server.store.current_registry().subscribe());
    let controller =
        ApiServices { server: server.clone(), registries, created_at_start: AtomicBool::new(false) };
    let first = controller.reconcile(()).await;
    reconciler::spawn(server, controller);
    first.map(drop)
}

/// The controller; its only key stands for all APIServices.
struct ApiServices {
    server: Arc<Server>,
    registries: Mutex<watch::Receiver<Arc<Registry>>>,
    /// Whether the objects of built-in group versions were reconciled since the start.
    created_at_start: AtomicBool,
}

impl Reconciler for ApiServices {
    type Key = ();

    fn settings(&self) -> Settings {
        Settings { name: "apiservice-registration-controller", workers: 1, retry: RETRY, gather: GATHER }
    }

    async fn start(&self) -> Result<Start<()>, ApiError> {
        Ok(Start::new([()]))
    }

    async fn notified(&self) {
        if self.registries.lock().await.changed().await.is_err() {
            // The registry's sender is dropped when the server stops.
            std::future::pending().await
        }
    }

    async fn reconcile(&self, (): ()) -> Result<Action, ApiError> {
        let first = !self.created_at_start.load(Ordering::Relaxed);
        reconcile(&self.server, &self.server.registry(), first).await?;
        self.created_at_start.store(true, Ordering::Relaxed);
        Ok(Action::AwaitChange)
    }
}

/// Creates missing APIServices, repairs changed ones, deletes those of versions that are not served.
async fn reconcile(server: &Arc<Server>, registry: &Registry, first: bool) -> Result<(), ApiError> {
    let wanted = wanted(registry);
    let Some(resource) = registry.internal(RESOURCE.0, RESOURCE.1, RESOURCE.2) else { return Ok(()) };
    let live: BTreeMap<String, Value> = server
        .store
        .objects(resource, "")
        .await?
        .into_iter()
        .map(|object| (metadata_text(&object, "name").to_owned(), object))
        .collect();
    let mut objects = Vec::new();
    for (name, object) in wanted.iter().filter(|(_, object)| first || label(object) == FOLLOWS) {
        match live.get(name) {
            None => {
                let cx = Context::internal(server, RESOURCE, "", name, Verb::Create)?;
                objects.push(NewObject { cx, tree: available(object) });
            }
            Some(live) => repair(server, name, object, live).await?,
        }
    }
    internal::create_together(server, objects).await?;
    // A built-in version that is no longer served was switched off before this start.
    let follows = |object: &Value| label(object) == FOLLOWS || (first && label(object) == ON_START);
    let gone = |name: &str, object: &Value| follows(object) && !wanted.contains_key(name);
    for (name, object) in live.iter().filter(|(name, object)| gone(name, object)) {
        let cx = Context::internal(server, RESOURCE, "", name, Verb::Delete)?;
        match delete::delete_one(&cx, "Background", metadata_text(object, "uid"), None).await {
            Err(error) if !error.has_changed() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn label(object: &Value) -> &str {
    object.str_at(&["metadata", "labels", LABEL]).unwrap_or_default()
}

/// The desired objects by name.
fn wanted(registry: &Registry) -> BTreeMap<String, Value> {
    let catalog = local_catalog(registry);
    // APIServices' own group is excluded: it belongs to the aggregator.
    let groups = catalog.group("").into_iter().chain(catalog.named_groups().filter(|g| g.name != RESOURCE.0));
    groups
        .flat_map(|group| group.versions.iter())
        .filter(|version| !version.resources.is_empty())
        .map(|version| {
            let name = format!("{}.{}", version.name, version.group);
            let mut labels = Map::new();
            labels.insert(LABEL, if version.custom { FOLLOWS } else { ON_START });
            let mut object = tree!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": tree!({
                    "name": name.as_str(),
                    "labels": labels,
                }),
                "spec": tree!({
                    "version": version.name,
                    "groupPriorityMinimum": i64::from(version.group_priority),
                    "versionPriority": i64::from(version.priority),
                }),
            });
            if let (false, Some(spec)) = (version.group.is_empty(), object.object_at_mut(&["spec"])) {
                spec.insert("group", version.group);
            }
            (name, object)
        })
        .collect()
}

/// The object with the status of a local API.
fn available(object: &Value) -> Value {
    let mut new = object.clone();
    set_condition(&mut new, "Available", "True", "Local", "Local APIServices are always available");
    new
}

/// Repairs the spec of an object. Objects without the label are managed by someone else and not changed.
async fn repair(server: &Arc<Server>, name: &str, wanted: &Value, live: &Value) -> Result<(), ApiError> {
    if label(live).is_empty() || live.get("spec") == wanted.get("spec") {
        return Ok(());
    }
    let cx = Context::internal(server, RESOURCE, "", name, Verb::Update)?;
    let transform = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        if let Some(object) = new.as_object_mut() {
            object.insert("spec", wanted.get("spec").cloned().unwrap_or_default());
        }
        Ok(new)
    };
    internal::update(&cx, &transform).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_version_has_one() {
        let wanted = wanted(&Registry::builtin());
        // name, group, priorities
        let rows = [
            ("v1.", None, 18_000, 1),
            ("v1.apps", Some("apps"), 17_800, 15),
            ("v2.autoscaling", Some("autoscaling"), 17_500, 30),
            ("v1.resource.k8s.io", Some("resource.k8s.io"), 16_200, 21),
        ];
        for (name, group, group_priority, priority) in rows {
            let spec = wanted.get(name).and_then(|object| object.get("spec")).unwrap();
            assert_eq!(spec.str_at(&["group"]), group, "{name}");
            assert_eq!(
                spec.get("groupPriorityMinimum").and_then(Value::as_int),
                Some(group_priority),
                "{name}"
            );
            assert_eq!(spec.get("versionPriority").and_then(Value::as_int), Some(priority), "{name}");
        }
        assert!(!wanted.contains_key("v1.apiregistration.k8s.io"), "the aggregator's own group has none");
    }
}
