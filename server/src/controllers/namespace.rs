//! The lifecycle of namespaces: a Terminating one is emptied, then its finalizer is removed, which deletes
//! it.
//!
//! Upstream: kubernetes `pkg/controller/namespace/deletion`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;
use plinth_engine::{Entry, Event, EventKind};

use super::accounts;
use super::remote_apis::contents;
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{set_condition, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::delete::{self, Remaining};
use plinth_apiserver::handlers::internal;
use plinth_registry::{prefix_range, resource_prefix, split_key, ResourceType};
use plinth_storage::{Header, TerminatingObject};

/// The controller's name.
pub(super) const NAME: &str = "namespace-controller";
/// The finalizer of namespaces that this controller removes.
const FINALIZER: &str = "kubernetes";
/// First and longest delay before a namespace whose contents have finalizers is retried.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Namespaces that are emptied at a time: one that waits for another API server does not hold up all others.
const WORKERS: usize = 4;

/// The controller; its keys are the names of Terminating namespaces.
pub(super) struct Namespaces {
    server: Arc<Server>,
    prefix: String,
}

impl Namespaces {
    pub(super) fn new(server: &Arc<Server>) -> Namespaces {
        Namespaces { server: server.clone(), prefix: resource_prefix("", "namespaces") }
    }
}

impl Reconciler for Namespaces {
    type Key = String;

    fn settings(&self) -> Settings {
        Settings { name: NAME, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<String>, ApiError> {
        let prefix = self.prefix.clone();
        let pick = move |entry: &Entry<'_>| terminating_name(&prefix, entry.key, entry.value);
        let (names, revision) = self.server.store.scan(prefix_range(self.prefix.as_bytes()), pick).await?;
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
            Err(error) if error.is_not_found() => Ok(Action::AwaitChange),
            outcome => outcome.map(|()| Action::AwaitChange),
        }
    }
}

fn terminating_name(prefix: &str, object_key: &[u8], value: &[u8]) -> Option<String> {
    let (_, name) = split_key(prefix, false, object_key)?;
    Header::parse(value).ok()?.deleting().then(|| name.to_owned())
}

/// Continues the deletion of a namespace. 404 when it was deleted concurrently, 409 when its contents still
/// have finalizers.
async fn end(server: &Arc<Server>, name: &str) -> Result<(), ApiError> {
    let Some(namespace) = TerminatingObject::find(&server.store, "", "namespaces", name).await? else {
        return Ok(());
    };
    let contents = empty(server, &namespace).await?;
    report(server, &namespace, &contents).await?;
    match contents.is_empty() {
        true => finalize(server, &namespace).await,
        false => Err(ApiError::conflict("", "namespaces", name, &contents.message())),
    }
}

/// What is left of the contents of a namespace after a pass.
#[derive(Debug, Default)]
struct Contents {
    /// Objects that are held, by the resource's name and group.
    resources: BTreeMap<String, u64>,
    /// How many of them each finalizer holds.
    finalizers: BTreeMap<String, u64>,
    /// Why objects could not be deleted.
    errors: Vec<String>,
    /// Versions of other API servers whose resources are not known.
    undiscovered: Vec<String>,
}

impl Contents {
    fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.errors.is_empty() && self.undiscovered.is_empty()
    }

    fn message(&self) -> String {
        match self.errors.first() {
            Some(error) => format!("some contents could not be deleted: {error}"),
            None if !self.undiscovered.is_empty() => self.discovery_failure(),
            None => format!("some contents remain: {}", listed(&self.resources, "has")),
        }
    }

    /// The message of a discovery that failed for some versions, as of client-go `discovery`.
    fn discovery_failure(&self) -> String {
        let failed: Vec<String> = self
            .undiscovered
            .iter()
            .map(|version| format!("{version}: stale GroupVersion discovery: {version}"))
            .collect();
        format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            failed.len(),
            failed.join(", ")
        )
    }

    /// Adds what is left of the objects of other API servers.
    fn add_remote(&mut self, remote: contents::RemoteContents) {
        self.resources.extend(remote.resources);
        for (finalizer, objects) in remote.finalizers {
            *self.finalizers.entry(finalizer).or_default() += objects;
        }
        self.errors.extend(remote.errors);
        self.undiscovered.extend(remote.undiscovered);
    }

    fn add(&mut self, resource: &ResourceType, outcome: Result<Remaining, ApiError>) {
        let remaining = match outcome {
            Ok(remaining) => remaining,
            Err(error) => return self.errors.push(error.to_string()),
        };
        if remaining.objects > 0 {
            let name = format!("{}.{}", resource.plural(), resource.group());
            self.resources.insert(name, remaining.objects);
        }
        for (finalizer, objects) in remaining.finalizers {
            *self.finalizers.entry(finalizer).or_default() += objects;
        }
    }

    /// The conditions that say so: type, status, reason and message (kubernetes
    /// `pkg/controller/namespace/deletion/status_condition_utils.go`).
    fn conditions(&self) -> [(&'static str, &'static str, &'static str, String); 5] {
        let ok = |kind, reason, message: &str| (kind, "False", reason, message.to_owned());
        let failed = |kind, reason, message| (kind, "True", reason, message);
        let (discovery, deletion) = ("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionContentFailure");
        let (content, finalizers) = ("NamespaceContentRemaining", "NamespaceFinalizersRemaining");
        [
            match self.undiscovered.is_empty() {
                true => ok(discovery, "ResourcesDiscovered", "All resources successfully discovered"),
                false => failed(discovery, "DiscoveryFailed", self.discovery_failure()),
            },
            ok(
                "NamespaceDeletionGroupVersionParsingFailure",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            match self.errors.is_empty() {
                true => ok(
                    deletion,
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
                false => {
                    let (count, errors) = (self.errors.len(), self.errors.join(", "));
                    let message = format!("Failed to delete all resource types, {count} remaining: {errors}");
                    failed(deletion, "ContentDeletionFailed", message)
                }
            },
            match self.resources.is_empty() {
                true => ok(content, "ContentRemoved", "All content successfully removed"),
                false => {
                    let resources = listed(&self.resources, "has");
                    failed(
                        content,
                        "SomeResourcesRemain",
                        format!("Some resources are remaining: {resources}"),
                    )
                }
            },
            match self.finalizers.is_empty() {
                true => {
                    ok(finalizers, "ContentHasNoFinalizers", "All content-preserving finalizers finished")
                }
                false => {
                    let list = listed(&self.finalizers, "in");
                    let message = format!("Some content in the namespace has finalizers remaining: {list}");
                    failed(finalizers, "SomeFinalizersRemain", message)
                }
            },
        ]
    }
}

fn listed(counts: &BTreeMap<String, u64>, verb: &str) -> String {
    let parts = counts.iter().map(|(name, objects)| format!("{name} {verb} {objects} resource instances"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Deletes the contents of a namespace: pods first, and nothing else while some of them remain, because what
/// they use and what restricts them is to outlive them (KEP-5080, ordered namespace deletion).
///
/// Objects with finalizers whose resource `--runtime-config` switches off do not hold the namespace, since no
/// client could remove those. They wait to be deleted until it is served again.
async fn empty(server: &Arc<Server>, namespace: &TerminatingObject) -> Result<Contents, ApiError> {
    let mut contents = Contents::default();
    let registry = server.registry();
    let is_pods = |r: &&Arc<ResourceType>| r.group().is_empty() && r.plural() == "pods";
    let resources = || registry.stored().filter(|r| r.row.namespaced);
    for resource in resources().filter(is_pods).chain(resources().filter(|r| !is_pods(r))) {
        let at = (namespace.name(), "");
        let cx = Context::of_resource(server, &registry, resource, at, Verb::DeleteCollection);
        let cx = cx.acting_as(accounts::NAMESPACES.user());
        match delete::delete_all(&cx, namespace, delete::Admits::Yes).await {
            // It was deleted concurrently.
            Err(error) if error.is_not_found() => return Err(error),
            Ok(held) if registry.is_switched_off(resource) && held.waits_for_finalizers_only() => {}
            outcome => contents.add(resource, outcome),
        }
        if is_pods(&resource) && !contents.is_empty() {
            return Ok(contents);
        }
    }
    contents.add_remote(contents::delete_all(server, namespace.name()).await);
    Ok(contents)
}

/// Sets the conditions of the namespace to what holds it. One that goes without delay gets none.
async fn report(
    server: &Arc<Server>,
    terminating: &TerminatingObject,
    contents: &Contents,
) -> Result<(), ApiError> {
    let cx = Context::internal(server, ("", "v1", "namespaces"), "", terminating.name(), Verb::Update)?
        .at_subresource("status")
        .acting_as(accounts::NAMESPACES.user());
    let transform = |live: Option<&Value>| {
        let mut namespace = live.cloned().unwrap_or_default();
        terminating.check_live(&namespace)?;
        let finalizers = namespace.at(&["spec", "finalizers"]).and_then(Value::as_array).unwrap_or_default();
        let has_own = finalizers.iter().any(|finalizer| finalizer.as_str() != Some(FINALIZER));
        let is_reported = namespace.at(&["status", "conditions"]).is_some();
        if !contents.is_empty() || has_own || is_reported {
            for (kind, status, reason, message) in contents.conditions() {
                set_condition(&mut namespace, kind, status, reason, &message);
            }
        }
        Ok(namespace)
    };
    internal::update(&cx, &transform).await
}

/// Removes the finalizer.
async fn finalize(server: &Arc<Server>, terminating: &TerminatingObject) -> Result<(), ApiError> {
    let cx = Context::internal(server, ("", "v1", "namespaces"), "", terminating.name(), Verb::Update)?
        .at_subresource("finalize")
        .acting_as(accounts::NAMESPACES.user());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_say_what_remains() {
        let counts = |list: &[(&str, u64)]| list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let contents = Contents {
            resources: counts(&[("pods.", 2), ("deployments.apps", 1)]),
            finalizers: counts(&[("example.com/hold", 1)]),
            errors: vec!["one".to_owned(), "two".to_owned()],
            undiscovered: vec!["a.example/v1".to_owned()],
        };
        let [.., failure, content, finalizers] = contents.conditions();
        assert_eq!(failure.3, "Failed to delete all resource types, 2 remaining: one, two");
        let what = "deployments.apps has 1 resource instances, pods. has 2 resource instances";
        assert_eq!(content.3, format!("Some resources are remaining: {what}"));
        let what = "example.com/hold in 1 resource instances";
        assert_eq!(finalizers.3, format!("Some content in the namespace has finalizers remaining: {what}"));
        let what = "a.example/v1: stale GroupVersion discovery: a.example/v1";
        assert!(contents.conditions()[0].3.ends_with(&format!("server APIs: {what}")));
        assert!(contents.conditions()[2..].iter().all(|condition| condition.1 == "True"));
        assert!(Contents::default().conditions().iter().all(|condition| condition.1 == "False"));
    }
}
