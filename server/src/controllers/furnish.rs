//! An object that every namespace has: made with the namespace, made again when it is deleted, put right when it is
//! changed.
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
use plinth_storage::stored::Head;

/// Namespaces that are worked on at a time.
const WORKERS: usize = 4;
/// First and longest pause before what failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// What every namespace has: an object of the core group.
#[derive(Debug)]
pub(super) struct Furniture {
    plural: &'static str,
    name: &'static str,
    /// The object; parts other than its metadata are kept as they are here.
    object: Value,
}

/// The account that pods run as when they name none.
pub(super) fn default_service_account() -> Furniture {
    let object = tree!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": tree!({ "name": "default" }),
    });
    Furniture { plural: "serviceaccounts", name: "default", object }
}

/// The authority that pods trust.
pub(super) fn root_ca(pem: &str) -> Furniture {
    const NAME: &str = "kube-root-ca.crt";
    const DESCRIPTION: &str = "The certificate authority by which clients inside of the cluster check the API server's certificate.";
    let annotations = tree!({ "kubernetes.io/description": DESCRIPTION });
    let object = tree!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": tree!({ "name": NAME, "annotations": annotations }),
        "data": tree!({ "ca.crt": pem }),
    });
    Furniture { plural: "configmaps", name: NAME, object }
}

/// Furnishes namespaces; starts again from the present state when a feed breaks off.
pub(super) async fn lead(server: Arc<Server>, furniture: Furniture) {
    let furniture = Arc::new(furniture);
    super::again(furniture.name, RETRY.1, || follow(&server, &furniture)).await;
}

async fn follow(server: &Arc<Server>, furniture: &Arc<Furniture>) -> Result<Infallible, ApiError> {
    let namespaces_prefix = key::resource_prefix("", "namespaces");
    let objects_prefix = key::resource_prefix("", furniture.plural);
    let subscribe = |prefix: &str, revision: Revision| {
        server.store.engine().subscribe(Subscribe::new(key::range(prefix.as_bytes())).after(revision))
    };
    let mut workers = Workers::new(furniture.name, WORKERS, RETRY);
    let (names, revision) = active_namespaces(server, &namespaces_prefix).await?;
    names.into_iter().for_each(|name| workers.add(name));
    let mut namespaces = subscribe(&namespaces_prefix, revision)?;
    let mut objects = subscribe(&objects_prefix, revision)?;
    loop {
        tokio::select! {
            // A namespace that is gone or going is found to need nothing.
            found = changed(&mut namespaces, |key| Some(key::split(&namespaces_prefix, false, key)?.1)) => {
                found?.into_iter().for_each(|name| workers.add(name));
            }
            found = changed(&mut objects, |key| {
                let (namespace, name) = key::split(&objects_prefix, true, key)?;
                (name == furniture.name).then_some(namespace)
            }) => found?.into_iter().for_each(|name| workers.add(name)),
            () = workers.advance(|name| furnish(server.clone(), furniture.clone(), name)) => {}
        }
    }
}

/// The namespaces that are not Terminating, and the revision that this is true at.
async fn active_namespaces(server: &Server, prefix: &str) -> Result<(Vec<String>, Revision), ApiError> {
    let (range, prefix) = (key::range(prefix.as_bytes()), prefix.to_owned());
    let pick = move |entry: &Entry<'_>| {
        let is_active = Head::parse(entry.value).is_ok_and(|stored| !stored.deleting());
        let (_, name) = key::split(&prefix, false, entry.key).filter(|_| is_active)?;
        Some(name.to_owned())
    };
    server.store.survey(range, pick).await
}

/// The namespaces that the next events concern.
async fn changed<'a>(
    feed: &mut Subscription,
    namespace_of: impl Fn(&[u8]) -> Option<&str> + 'a,
) -> Result<Vec<String>, ApiError> {
    let Feed::Events(events) = feed.next().await? else { return Ok(Vec::new()) };
    Ok(events.iter().filter_map(|event| namespace_of(&event.key).map(str::to_owned)).collect())
}

/// Makes one namespace have its object as it should be.
async fn furnish(server: Arc<Server>, furniture: Arc<Furniture>, namespace: String) -> Result<(), ApiError> {
    let resource = ("", "v1", furniture.plural);
    let cx = Context::internal(&server, resource, &namespace, furniture.name, Verb::Update)?;
    let Some(form) = &cx.resource.storage else { return Ok(()) };
    let Some(live) = server.store.get(form, &namespace, furniture.name).await? else {
        if !is_active(&server, &namespace).await? {
            return Ok(());
        }
        let outcome = internal::ensure(&server, resource, &namespace, furniture.object.clone()).await;
        // The namespace has gone, or begun to, since it was looked at: then its own change comes by.
        return match outcome {
            Err(error) if matches!(error.code, 403 | 404) => Ok(()),
            outcome => outcome,
        };
    };
    let live = object::to_tree(&cx.resource, &live)?;
    if metadata::is_deleting(&live) || furniture.is_in(&live) {
        return Ok(());
    }
    let outcome = internal::update(&cx, &|live| Ok(furniture.put_into(live.unwrap_or(&Value::Null)))).await;
    match outcome {
        // Deleted since: that change comes by too.
        Err(error) if error.code == 404 => Ok(()),
        outcome => outcome,
    }
}

async fn is_active(server: &Arc<Server>, namespace: &str) -> Result<bool, ApiError> {
    let cx = Context::internal(server, ("", "v1", "namespaces"), "", namespace, Verb::Get)?;
    let Some(form) = &cx.resource.storage else { return Ok(false) };
    let record = server.store.get(form, "", namespace).await?;
    Ok(record.is_some_and(|r| Head::parse(&r.value).is_ok_and(|stored| !stored.deleting())))
}

impl Furniture {
    /// The parts whose values matter: all but type and metadata.
    fn parts(&self) -> impl Iterator<Item = (&smol_str::SmolStr, &Value)> {
        let members = self.object.as_object().into_iter().flat_map(Map::iter);
        members.filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"))
    }

    fn annotations(&self) -> impl Iterator<Item = (&smol_str::SmolStr, &Value)> {
        let annotations = self.object.at(&["metadata", "annotations"]).and_then(Value::as_object);
        annotations.into_iter().flat_map(Map::iter)
    }

    /// Whether a live object is as it should be.
    fn is_in(&self, live: &Value) -> bool {
        let has = |key: &str| live.str_at(&["metadata", "annotations", key]).is_some_and(|t| !t.is_empty());
        self.parts().all(|(key, value)| live.get(key) == Some(value))
            && self.annotations().all(|(key, _)| has(key))
    }

    fn put_into(&self, live: &Value) -> Value {
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
    fn what_differs_is_put_right_and_the_rest_kept() {
        let furniture = root_ca("PEM");
        let live = tree!({
            "metadata": tree!({ "name": "kube-root-ca.crt", "labels": tree!({ "own": "kept" }) }),
            "data": tree!({ "ca.crt": "forged", "more": "x" }),
        });
        assert!(!furniture.is_in(&live));
        let healed = furniture.put_into(&live);
        assert!(furniture.is_in(&healed));
        assert_eq!(healed.str_at(&["metadata", "labels", "own"]), Some("kept"));
        assert_eq!(healed.at(&["data", "more"]), None);
        let account = default_service_account();
        assert!(account.is_in(&tree!({ "metadata": tree!({ "name": "default" }) })));
    }
}
