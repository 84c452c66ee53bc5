//! Publishes an object to every namespace: created with the namespace, recreated when it is deleted, repaired
//! when it is changed.
//!
//! Upstream: kubernetes `pkg/controller/serviceaccount/serviceaccounts_controller.go` and
//! `pkg/controller/certificates/rootcacertpublisher/publisher.go`.

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{tree, Map, Value};
use plinth_engine::{Entry, Event};

use super::accounts::{self, Account};
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{is_deleting, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal;
use plinth_registry::{prefix_range, resource_prefix, split_key};
use plinth_storage::{decode_object, Header};

/// The controllers' names.
pub(super) const SERVICE_ACCOUNT: &str = "serviceaccount-controller";
pub(super) const ROOT_CA: &str = "root-ca-certificate-publisher-controller";
/// Maximum number of concurrent workers.
const WORKERS: usize = 4;
/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// An object of the core group that every namespace has.
#[derive(Debug)]
struct NamespaceDefault {
    plural: &'static str,
    name: &'static str,
    /// The desired object; its metadata is only used to create it.
    object: Value,
}

/// The controller of one such object; its keys are the names of namespaces.
pub(super) struct Publisher {
    /// The controller's name.
    name: &'static str,
    account: Account,
    server: Arc<Server>,
    default: NamespaceDefault,
    namespaces_prefix: String,
    objects_prefix: String,
}

/// The controller of pods' default ServiceAccount.
pub(super) fn default_service_account(server: &Arc<Server>) -> Publisher {
    Publisher::new((SERVICE_ACCOUNT, accounts::SERVICE_ACCOUNTS), server, service_account_object())
}

/// The controller of the certificate authority that pods trust.
pub(super) fn root_ca(server: &Arc<Server>, pem: &str) -> Publisher {
    Publisher::new((ROOT_CA, accounts::ROOT_CA), server, root_ca_object(pem))
}

fn service_account_object() -> NamespaceDefault {
    let object = tree!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": tree!({ "name": "default" }),
    });
    NamespaceDefault { plural: "serviceaccounts", name: "default", object }
}

fn root_ca_object(pem: &str) -> NamespaceDefault {
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

impl Publisher {
    fn new(
        (name, account): (&'static str, Account),
        server: &Arc<Server>,
        default: NamespaceDefault,
    ) -> Publisher {
        let namespaces_prefix = resource_prefix("", "namespaces");
        let objects_prefix = resource_prefix("", default.plural);
        Publisher { name, account, server: server.clone(), default, namespaces_prefix, objects_prefix }
    }
}

impl Reconciler for Publisher {
    type Key = String;

    fn settings(&self) -> Settings {
        Settings { name: self.name, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<String>, ApiError> {
        let prefix = self.namespaces_prefix.clone();
        let pick = move |entry: &Entry<'_>| {
            let is_active = Header::parse(entry.value).is_ok_and(|stored| !stored.deleting());
            let (_, name) = split_key(&prefix, false, entry.key).filter(|_| is_active)?;
            Some(name.to_owned())
        };
        let range = prefix_range(self.namespaces_prefix.as_bytes());
        let (names, revision) = self.server.store.scan(range, pick).await?;
        Start::new(names).watch(&self.server, &self.namespaces_prefix, revision)?.watch(
            &self.server,
            &self.objects_prefix,
            revision,
        )
    }

    /// Namespaces that changed or whose object changed. Absent and terminating ones are skipped later.
    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<String>, ApiError> {
        let namespace = |event: &Arc<Event>| match split_key(&self.namespaces_prefix, false, &event.key) {
            Some((_, namespace)) => Some(namespace.to_owned()),
            None => {
                let (namespace, name) = split_key(&self.objects_prefix, true, &event.key)?;
                (name == self.default.name).then(|| namespace.to_owned())
            }
        };
        Ok(events.iter().filter_map(namespace).collect())
    }

    async fn reconcile(&self, namespace: String) -> Result<Action, ApiError> {
        publish(&self.server, self.account, &self.default, &namespace).await.map(|()| Action::AwaitChange)
    }
}

/// Reconciles the object in one namespace.
async fn publish(
    server: &Arc<Server>,
    account: Account,
    default: &NamespaceDefault,
    namespace: &str,
) -> Result<(), ApiError> {
    let resource = ("", "v1", default.plural);
    let cx = account.request(server, resource, namespace, default.name, Verb::Update)?;
    let Some(form) = &cx.resource.storage else { return Ok(()) };
    let Some(live) = server.store.get(form, namespace, default.name).await? else {
        if !is_active(server, namespace).await? {
            return Ok(());
        }
        let create = account.request(server, resource, namespace, default.name, Verb::Create)?;
        let outcome = internal::ensure_as(&create, default.object.clone()).await;
        return match outcome {
            // The namespace was deleted, or is terminating: the feed delivers its change. Whatever else
            // refuses may do so for a while.
            Err(_) if !is_active(server, namespace).await? => Ok(()),
            outcome => outcome,
        };
    };
    let live = decode_object(&cx.resource, &live)?;
    if is_deleting(&live) || default.is_applied_to(&live) {
        return Ok(());
    }
    let outcome = internal::update(&cx, &|live| Ok(default.apply_to(live.unwrap_or(&Value::Null)))).await;
    match outcome {
        // Deleted concurrently: the feed delivers that change, too.
        Err(error) if error.is_not_found() => Ok(()),
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
        let default = root_ca_object("PEM");
        let live = tree!({
            "metadata": tree!({ "name": "kube-root-ca.crt", "labels": tree!({ "own": "kept" }) }),
            "data": tree!({ "ca.crt": "forged", "more": "x" }),
        });
        assert!(!default.is_applied_to(&live));
        let repaired = default.apply_to(&live);
        assert!(default.is_applied_to(&repaired));
        assert_eq!(repaired.str_at(&["metadata", "labels", "own"]), Some("kept"));
        assert_eq!(repaired.at(&["data", "more"]), None);
        let account = service_account_object();
        assert!(account.is_applied_to(&tree!({ "metadata": tree!({ "name": "default" }) })));
    }
}
