//! Publishes an object to every namespace: created with the namespace, recreated when it is deleted, repaired
//! when it is changed.
//!
//! Upstream: kubernetes `pkg/controller/serviceaccount/serviceaccounts_controller.go` and
//! `pkg/controller/certificates/rootcacertpublisher/publisher.go`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{tree, Map, Value};
use plinth_engine::{Entry, Feed, Revision, Subscribe, Subscription};

use super::workers::Workers;
use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal;
use plinth_registry::key;
use plinth_storage::object;
use plinth_storage::stored::Header;

/// Maximum number of concurrent workers.
const WORKERS: usize = 4;
/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// An object of the core group that every namespace has.
#[derive(Debug)]
pub(super) struct NamespaceDefault {
    plural: &'static str,
    name: &'static str,
    /// The desired object; its metadata is only used to create it.
    object: Value,
}

/// The default ServiceAccount of pods.
pub(super) fn default_service_account() -> NamespaceDefault {
    let object = tree!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": tree!({ "name": "default" }),
    });
    NamespaceDefault { plural: "serviceaccounts", name: "default", object }
}

/// The certificate authority that pods trust.
pub(super) fn root_ca(pem: &str) -> NamespaceDefault {
    const NAME: &str = "kube-root-ca.crt";
    const DESCRIPTION: &str = "The certificate authority by which clients inside of the cluster check the API server's certificate.";
    let annotations = tree!({ "kubernetes.io/description": DESCRIPTION });
    let object = tree!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": tree!({ "name": NAME, "annotations": annotations }),
        "data": tree!({ "ca.crt": pem }),
    });
    NamespaceDefault { plural: "configmaps", name: NAME, object }
}

/// Publishes the object to namespaces; restarts from the current state when a feed fails.
pub(super) async fn run(server: Arc<Server>, default: NamespaceDefault) {
    let default = Arc::new(default);
    super::run_with_restarts(default.name, RETRY.1, || watch(&server, &default)).await;
}

async fn watch(server: &Arc<Server>, default: &Arc<NamespaceDefault>) -> Result<Infallible, ApiError> {
    let namespaces_prefix = key::resource_prefix("", "namespaces");
    let objects_prefix = key::resource_prefix("", default.plural);
    let subscribe = |prefix: &str, revision: Revision| {
        server.store.engine().subscribe(Subscribe::new(key::range(prefix.as_bytes())).after(revision))
    };
    let mut workers = Workers::new(default.name, WORKERS, RETRY);
    let (names, revision) = active_namespaces(server, &namespaces_prefix).await?;
    names.into_iter().for_each(|name| workers.add(name));
    let mut namespaces = subscribe(&namespaces_prefix, revision)?;
    let mut objects = subscribe(&objects_prefix, revision)?;
    loop {
        tokio::select! {
            // Absent and terminating namespaces are skipped later.
            found = changed(&mut namespaces, |key| Some(key::split(&namespaces_prefix, false, key)?.1)) => {
                found?.into_iter().for_each(|name| workers.add(name));
            }
            found = changed(&mut objects, |key| {
                let (namespace, name) = key::split(&objects_prefix, true, key)?;
                (name == default.name).then_some(namespace)
            }) => found?.into_iter().for_each(|name| workers.add(name)),
            () = workers.advance(|name| publish(server.clone(), default.clone(), name)) => {}
        }
    }
}

/// The namespaces that are not Terminating, and the revision.
async fn active_namespaces(server: &Server, prefix: &str) -> Result<(Vec<String>, Revision), ApiError> {
    let (range, prefix) = (key::range(prefix.as_bytes()), prefix.to_owned());
    let pick = move |entry: &Entry<'_>| {
        let is_active = Header::parse(entry.value).is_ok_and(|stored| !stored.deleting());
        let (_, name) = key::split(&prefix, false, entry.key).filter(|_| is_active)?;
        Some(name.to_owned())
    };
    server.store.scan(range, pick).await
}

/// The namespaces of the next events.
async fn changed<'a>(
    feed: &mut Subscription,
    namespace_of: impl Fn(&[u8]) -> Option<&str> + 'a,
) -> Result<Vec<String>, ApiError> {
    let Feed::Events(events) = feed.next().await? else { return Ok(Vec::new()) };
    Ok(events.iter().filter_map(|event| namespace_of(&event.key).map(str::to_owned)).collect())
}

/// Reconciles the object in one namespace.
async fn publish(
    server: Arc<Server>,
    default: Arc<NamespaceDefault>,
    namespace: String,
) -> Result<(), ApiError> {
    let resource = ("", "v1", default.plural);
    let cx = Context::internal(&server, resource, &namespace, default.name, Verb::Update)?;
    let Some(form) = &cx.resource.storage else { return Ok(()) };
    let Some(live) = server.store.get(form, &namespace, default.name).await? else {
        if !is_active(&server, &namespace).await? {
            return Ok(());
        }
        let outcome = internal::ensure(&server, resource, &namespace, default.object.clone()).await;
        // The namespace was deleted, or is terminating: the feed delivers its change.
        return match outcome {
            Err(error) if matches!(error.code, 403 | 404) => Ok(()),
            outcome => outcome,
        };
    };
    let live = object::to_tree(&cx.resource, &live)?;
    if metadata::is_deleting(&live) || default.is_applied_to(&live) {
        return Ok(());
    }
    let outcome = internal::update(&cx, &|live| Ok(default.apply_to(live.unwrap_or(&Value::Null)))).await;
    match outcome {
        // Deleted concurrently: the feed delivers that change, too.
        Err(error) if error.code == 404 => Ok(()),
        outcome => outcome,
    }
}

async fn is_active(server: &Arc<Server>, namespace: &str) -> Result<bool, ApiError> {
    let cx = Context::internal(server, ("", "v1", "namespaces"), "", namespace, Verb::Get)?;
    let Some(form) = &cx.resource.storage else { return Ok(false) };
    let record = server.store.get(form, "", namespace).await?;
    Ok(record.is_some_and(|r| Header::parse(&r.value).is_ok_and(|stored| !stored.deleting())))
}

impl NamespaceDefault {
    /// The desired members: all but type and metadata.
    fn parts(&self) -> impl Iterator<Item = (&smol_str::SmolStr, &Value)> {
        let members = self.object.as_object().into_iter().flat_map(Map::iter);
        members.filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"))
    }

    fn annotations(&self) -> impl Iterator<Item = (&smol_str::SmolStr, &Value)> {
        let annotations = self.object.at(&["metadata", "annotations"]).and_then(Value::as_object);
        annotations.into_iter().flat_map(Map::iter)
    }

    /// Whether a live object has the desired members.
    fn is_applied_to(&self, live: &Value) -> bool {
        let has = |key: &str| live.str_at(&["metadata", "annotations", key]).is_some_and(|t| !t.is_empty());
        self.parts().all(|(key, value)| live.get(key) == Some(value))
            && self.annotations().all(|(key, _)| has(key))
    }

    fn apply_to(&self, live: &Value) -> Value {
        let mut new = live.clone();
        if let Some(object) = new.as_object_mut() {
            for (key, value) in self.parts() {
                object.insert(key.clone(), value.clone());
            }
        }
        if let Some(annotations) = new.object_at_mut(&["metadata", "annotations"]) {
            for (key, value) in self.annotations() {
                annotations.insert(key.clone(), value.clone());
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_repaired_and_additions_kept() {
        let default = root_ca("PEM");
        let live = tree!({
            "metadata": tree!({ "name": "kube-root-ca.crt", "labels": tree!({ "own": "kept" }) }),
            "data": tree!({ "ca.crt": "forged", "more": "x" }),
        });
        assert!(!default.is_applied_to(&live));
        let repaired = default.apply_to(&live);
        assert!(default.is_applied_to(&repaired));
        assert_eq!(repaired.str_at(&["metadata", "labels", "own"]), Some("kept"));
        assert_eq!(repaired.at(&["data", "more"]), None);
        let account = default_service_account();
        assert!(account.is_applied_to(&tree!({ "metadata": tree!({ "name": "default" }) })));
    }
}
