//! APIServices of what the server serves itself: one for each group version, built in or opened by a definition, so that
//! clients that read them find all APIs there. They say where the API is (here) and in which order discovery lists it;
//! nothing in the server depends on them.
//!
//! Upstream: k8s.io/kube-aggregator `pkg/controllers/autoregister`, kubernetes
//! `pkg/controlplane/controller/crdregistration`. Those of built-in group versions are made at the start; those of
//! definitions follow the registry, and go when nothing serves the version any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{tree, Map, Value};

use plinth_api::api_error::ApiError;
use plinth_api::conditions;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::delete;
use plinth_apiserver::handlers::internal::{self, NewObject};
use plinth_apiserver::published::catalog;
use plinth_registry::Registry;

const RESOURCE: (&str, &str, &str) = ("apiregistration.k8s.io", "v1", "apiservices");
/// Whose the object is: of the server, made once at each start, or following the definitions.
const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
const ON_START: &str = "onstart";
const FOLLOWS: &str = "true";
/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// A burst of definitions is taken in at once.
const GATHER: Duration = Duration::from_millis(100);

/// Starts the task that keeps them.
pub fn start(server: &Arc<Server>) {
    let leading = server.clone();
    server.spawn(async move { lead(&leading).await });
}

async fn lead(server: &Arc<Server>) {
    let mut registries = server.store.current_registry().subscribe();
    let mut first = true;
    loop {
        let registry = registries.borrow_and_update().clone();
        match settle(server, &registry, first).await {
            Ok(()) => first = false,
            Err(error) => {
                tracing::debug!(%error, "APIServices are written again");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        }
        // The registry goes when the server does.
        if registries.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// Makes what is missing, puts right what differs, removes what nothing serves.
async fn settle(server: &Arc<Server>, registry: &Registry, first: bool) -> Result<(), ApiError> {
    let wanted = wanted(registry);
    let Some(resource) = registry.get(RESOURCE.0, RESOURCE.1, RESOURCE.2) else { return Ok(()) };
    let live: BTreeMap<String, Value> = server
        .store
        .objects(resource, "")
        .await?
        .into_iter()
        .map(|object| (metadata::text(&object, "name").to_owned(), object))
        .collect();
    let mut objects = Vec::new();
    for (name, object) in wanted.iter().filter(|(_, object)| first || label(object) == FOLLOWS) {
        match live.get(name) {
            None => {
                let cx = Context::internal(server, RESOURCE, "", name, Verb::Create)?;
                objects.push(NewObject { cx, tree: available(object) });
            }
            Some(live) => put_right(server, name, object, live).await?,
        }
    }
    internal::create_together(server, objects).await?;
    let gone = |name: &str, object: &Value| label(object) == FOLLOWS && !wanted.contains_key(name);
    for (name, object) in live.iter().filter(|(name, object)| gone(name, object)) {
        let cx = Context::internal(server, RESOURCE, "", name, Verb::Delete)?;
        match delete::delete_one(&cx, "Background", metadata::text(object, "uid"), None).await {
            Err(error) if !matches!(error.code, 404 | 409) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn label(object: &Value) -> &str {
    object.str_at(&["metadata", "labels", LABEL]).unwrap_or_default()
}

/// The objects that there should be, by name.
fn wanted(registry: &Registry) -> BTreeMap<String, Value> {
    let catalog = catalog(registry);
    // The group of APIServices themselves is the aggregator's own.
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

/// The object with the status of what is served here.
fn available(object: &Value) -> Value {
    let mut new = object.clone();
    conditions::set(&mut new, "Available", "True", "Local", "Local APIServices are always available");
    new
}

/// Gives an object the spec that it should have. One that somebody else manages is not touched.
async fn put_right(server: &Arc<Server>, name: &str, wanted: &Value, live: &Value) -> Result<(), ApiError> {
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
