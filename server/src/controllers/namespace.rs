//! The lifecycle of namespaces: a Terminating one is emptied, then its finalizer is removed, which deletes
//! it.
//!
//! Upstream: kubernetes `pkg/controller/namespace/deletion`.

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;
use plinth_engine::{Entry, Event, EventKind};

use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::api_error::ApiError;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::{delete, internal};
use plinth_registry::key;
use plinth_storage::stored::Header;
use plinth_storage::terminating::TerminatingObject;

/// The controller's name.
pub(super) const NAME: &str = "namespace-controller";
/// The finalizer of namespaces that this controller removes.
const FINALIZER: &str = "kubernetes";
/// First and longest delay before a namespace whose contents have finalizers is retried.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The controller; its keys are the names of Terminating namespaces.
pub(super) struct Namespaces {
    server: Arc<Server>,
    prefix: String,
}

impl Namespaces {
    pub(super) fn new(server: &Arc<Server>) -> Namespaces {
        Namespaces { server: server.clone(), prefix: key::resource_prefix("", "namespaces") }
    }
}

impl Reconciler for Namespaces {
    type Key = String;

    fn settings(&self) -> Settings {
        Settings { name: NAME, workers: 1, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<String>, ApiError> {
        let prefix = self.prefix.clone();
        let pick = move |entry: &Entry<'_>| terminating_name(&prefix, entry.key, entry.value);
        let (names, revision) = self.server.store.scan(key::range(self.prefix.as_bytes()), pick).await?;
        Start::new(names).watch(&self.server, &self.prefix, revision)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<String>, ApiError> {
        let name = |event: &Arc<Event>| match &event.kind {
            EventKind::Put { value, .. } => terminating_name(&self.prefix, &event.key, value),
            EventKind::Delete => None,
        };
        Ok(events.iter().filter_map(name).collect())
    }

    async fn reconcile(&self, name: String) -> Result<Action, ApiError> {
        match end(&self.server, &name).await {
            // Deleted concurrently.
            Err(error) if error.code == 404 => Ok(Action::AwaitChange),
            outcome => outcome.map(|()| Action::AwaitChange),
        }
    }
}

fn terminating_name(prefix: &str, object_key: &[u8], value: &[u8]) -> Option<String> {
    let (_, name) = key::split(prefix, false, object_key)?;
    Header::parse(value).ok()?.deleting().then(|| name.to_owned())
}

/// Continues the deletion of a namespace. 404 when it was deleted concurrently, 409 when its contents still
/// have finalizers.
async fn end(server: &Arc<Server>, name: &str) -> Result<(), ApiError> {
    let Some(namespace) = TerminatingObject::find(&server.store, "", "namespaces", name).await? else {
        return Ok(());
    };
    if !empty(server, &namespace).await? {
        return Err(ApiError::conflict("", "namespaces", name, "some contents have finalizers"));
    }
    finalize(server, &namespace).await
}

/// Deletes the contents of a namespace; true when nothing is left.
async fn empty(server: &Arc<Server>, namespace: &TerminatingObject) -> Result<bool, ApiError> {
    let mut left = false;
    let registry = server.registry();
    for resource in registry.stored().filter(|r| r.row.namespaced) {
        let at = (namespace.name(), "");
        let cx = Context::of_resource(server, &registry, resource, at, Verb::DeleteCollection);
        left |= delete::delete_all(&cx, namespace).await? > 0;
    }
    Ok(!left)
}

/// Removes the finalizer.
async fn finalize(server: &Arc<Server>, terminating: &TerminatingObject) -> Result<(), ApiError> {
    let cx = Context::internal(server, ("", "v1", "namespaces"), "", terminating.name(), Verb::Update)?
        .at_subresource("finalize");
    let transform = |live: Option<&Value>| {
        let mut namespace = live.cloned().unwrap_or_default();
        terminating.check_live(&namespace)?;
        if let Some(finalizers) = namespace.get_mut("spec").and_then(|s| s.get_mut("finalizers")) {
            if let Some(list) = finalizers.as_array_mut() {
                list.retain(|f| f.as_str() != Some(FINALIZER));
            }
        }
        Ok(namespace)
    };
    internal::update(&cx, &transform).await
}
