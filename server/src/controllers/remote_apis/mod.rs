//! Remote APIs: APIServices whose Service is another API server.
//!
//! | module | subject |
//! |---|---|
//! | this | which versions are remote: follows the APIServices and publishes the registry |
//! | `documents` | what their servers publish: discovery, OpenAPI |
//! | `availability` | the condition `Available` |
//! | `contents` | their objects in a namespace that is deleted |
//!
//! Documents are read again every minute and after each change of the APIService; while a server is down, the
//! last ones stay and are marked as stale. No request waits for another server's documents.
//!
//! Upstream: k8s.io/kube-aggregator `pkg/apiserver/{apiservice_controller,handler_discovery}.go`,
//! `pkg/controllers/openapi`, `pkg/controllers/openapiv3`.

mod api_service;
mod availability;
pub(super) mod contents;
mod documents;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_engine::{Event, EventKind, Revision};
use smol_str::SmolStr;

use self::api_service::{prefix, resource, RESOURCE};
use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use plinth_api::{metadata_text, ApiError};
use plinth_apiserver::context::Server;
use plinth_registry::{prefix_range, split_key, Registry, RemoteDocuments, RemoteVersion, RemoteVersions};
use plinth_storage::{decode_object, decode_served_object, Stored};

/// Interval at which the documents of a server are read again.
const REFRESH: Duration = Duration::from_secs(60);
/// First and longest delay before they are read again after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), REFRESH);
/// Documents that are read at a time.
const WORKERS: usize = 4;

/// Publishes the registry with the remote versions and starts the controllers. To be called before anything
/// is served.
///
/// # Errors
/// When the store cannot be read.
pub async fn start(server: &Arc<Server>) -> Result<(), ApiError> {
    let registration = Registration {
        server: server.clone(),
        loaded: Mutex::default(),
        parser: documents::Parser::default(),
    };
    let revision = registration.load().await?;
    *registration.loaded.lock() = Some(revision);
    reconciler::spawn(server, registration);
    reconciler::spawn(server, availability::Availability::new(server));
    Ok(())
}

/// Follows the APIServices. Its loop alone changes which versions are remote, its workers their documents;
/// the keys are the names of APIServices whose documents are to be read.
struct Registration {
    server: Arc<Server>,
    /// The revision of the APIServices that were loaded; taken by the first start.
    loaded: Mutex<Option<Revision>>,
    parser: documents::Parser,
}

impl Reconciler for Registration {
    type Key = SmolStr;

    fn settings(&self) -> Settings {
        Settings {
            name: "apiservice-discovery-controller",
            workers: WORKERS,
            retry: RETRY,
            gather: Duration::ZERO,
        }
    }

    async fn start(&self) -> Result<Start<SmolStr>, ApiError> {
        let loaded = self.loaded.lock().take();
        let revision = match loaded {
            Some(revision) => revision,
            None => self.load().await?,
        };
        let registry = self.server.registry();
        let names = registry.remote_versions().values().map(|remote| remote.api_service().into());
        Start::new(names).watch(&self.server, &prefix(), revision)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<SmolStr>, ApiError> {
        let (prefix, mut changed) = (prefix(), Vec::new());
        let resource = resource(&self.server)?;
        for event in events {
            let Some((_, name)) = split_key(&prefix, false, &event.key) else { continue };
            let remote = match &event.kind {
                EventKind::Put { value, .. } => {
                    let value = self.server.store.open(&event.key, value)?;
                    let stored = Stored::parse(&value).map_err(ApiError::internal)?;
                    RemoteVersion::of(&decode_served_object(&resource, &stored, event.revision)?)
                }
                EventKind::Delete => None,
            };
            changed.push((SmolStr::from(name), remote));
        }
        let names =
            changed.iter().filter(|(_, remote)| remote.is_some()).map(|(name, _)| name.clone()).collect();
        self.server.store.current_registry().update(|registry| apply(registry, changed));
        Ok(names)
    }

    async fn reconcile(&self, name: SmolStr) -> Result<Action, ApiError> {
        let registry = self.server.registry();
        let Some(remote) = find(&registry, &name) else { return Ok(Action::AwaitChange) };
        let (read, error) = documents::read(&self.server, &self.parser, remote).await;
        let (server, remote) = (self.server.clone(), remote.clone());
        // To compare them takes a while where they are long: not on a thread that serves requests, and not
        // while the registry is locked.
        let publish = move || {
            if read != remote.documents {
                server.store.current_registry().update(|registry| with_documents(registry, &remote, read));
            }
        };
        tokio::task::spawn_blocking(publish).await.map_err(ApiError::internal)?;
        match error {
            None => Ok(Action::RequeueAfter(REFRESH)),
            // Not worth a line at each attempt: the condition of the APIService shows it.
            Some(why) => Err(ApiError::conflict(RESOURCE.0, RESOURCE.2, &name, &why)),
        }
    }
}

impl Registration {
    /// Publishes the registry with the remote versions of all APIServices.
    async fn load(&self) -> Result<Revision, ApiError> {
        let resource = resource(&self.server)?;
        let (records, revision) = self.server.store.records(prefix_range(prefix().as_bytes())).await?;
        let mut found = Vec::new();
        for record in &records {
            // One that is damaged must not keep the server from starting.
            let Ok(api_service) = decode_object(&resource, record) else { continue };
            let name = SmolStr::from(metadata_text(&api_service, "name"));
            found.push((name, RemoteVersion::of(&api_service)));
        }
        self.server.store.current_registry().update(|registry| {
            let is_found = |name: &str| found.iter().any(|(found, _)| found == name);
            let names = registry.remote_versions().values().map(|remote| SmolStr::from(remote.api_service()));
            let deleted: Vec<_> = names.filter(|name| !is_found(name)).map(|name| (name, None)).collect();
            apply(registry, deleted.into_iter().chain(found.clone()).collect())
        });
        Ok(revision)
    }
}

/// The remote version of an APIService.
fn find<'r>(registry: &'r Registry, api_service: &str) -> Option<&'r Arc<RemoteVersion>> {
    let (version, group) = api_service.split_once('.')?;
    registry.remote(group, version)
}

/// The next registry after changes of APIServices, if they concern it. What a server has published stays
/// until it is read again from the same server. Documents are long: they are not compared here.
fn apply(registry: &Registry, changed: Vec<(SmolStr, Option<RemoteVersion>)>) -> Option<Registry> {
    let mut versions: RemoteVersions = registry.remote_versions().clone();
    let mut is_changed = false;
    for (name, remote) in changed {
        let Some((version, group)) = name.split_once('.') else { continue };
        let key = (group.to_owned(), version.to_owned());
        let before = versions.get(&key);
        match remote {
            None => is_changed |= versions.remove(&key).is_some(),
            Some(remote) if before.is_some_and(|before| before.is_described_like(&remote)) => {}
            Some(mut remote) => {
                if let Some(before) = before.filter(|before| before.service == remote.service) {
                    remote.documents = before.documents.clone();
                }
                versions.insert(key, Arc::new(remote));
                is_changed = true;
            }
        }
    }
    is_changed.then(|| registry.with_remote(versions))
}

/// The next registry with the documents of a version, which are others than those in `read_for`, if they are
/// still those of its server.
fn with_documents(
    registry: &Registry,
    read_for: &Arc<RemoteVersion>,
    documents: RemoteDocuments,
) -> Option<Registry> {
    let present = registry.remote(&read_for.group, &read_for.version)?;
    let is_known = || !Arc::ptr_eq(present, read_for) && present.documents == documents;
    if present.service != read_for.service || is_known() {
        return None;
    }
    let mut versions = registry.remote_versions().clone();
    versions.insert(present.key(), Arc::new(RemoteVersion { documents, ..(**present).clone() }));
    Some(registry.with_remote(versions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn remote(service: &str, priority: i64) -> RemoteVersion {
        let object = format!(
            r#"{{"spec":{{"group":"a.example","version":"v1","versionPriority":{priority},
            "service":{{"namespace":"n","name":"{service}"}}}}}}"#
        );
        RemoteVersion::of(&json::parse(object.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn documents_stay_as_long_as_their_server_does() {
        let name = || SmolStr::from("v1.a.example");
        let builtin = Registry::builtin();
        let first = apply(&builtin, vec![(name(), Some(remote("s", 1)))]).unwrap();
        assert!(apply(&first, vec![(name(), Some(remote("s", 1)))]).is_none(), "nothing has changed");
        let documents = RemoteDocuments { is_current: true, ..RemoteDocuments::default() };
        let read = with_documents(&first, find(&first, "v1.a.example").unwrap(), documents.clone()).unwrap();
        assert!(read.generation > first.generation);
        let changed = apply(&read, vec![(name(), Some(remote("s", 2)))]).unwrap();
        assert!(find(&changed, "v1.a.example").unwrap().documents.is_current);
        let moved = apply(&changed, vec![(name(), Some(remote("other", 2)))]).unwrap();
        assert!(!find(&moved, "v1.a.example").unwrap().documents.is_current);
        // What was read from the server before means nothing for this one.
        assert!(with_documents(&moved, find(&read, "v1.a.example").unwrap(), documents).is_none());
        let deleted = apply(&moved, vec![(name(), None)]).unwrap();
        assert!(find(&deleted, "v1.a.example").is_none() && apply(&deleted, vec![(name(), None)]).is_none());
    }
}
