//! The controller of CustomResourceDefinitions: accepts names, starts and ends serving, deletes objects of
//! deleted definitions.
//!
//! One task watches the definitions and is the only one that publishes registries. For each change it accepts
//! names, builds changed rows, publishes the registry, and then writes the status: a client that sees
//! `Established` can use the API. Deleting the objects of a deleted definition may take long and runs in its
//! own task per definition.
//!
//! Upstream: k8s.io/apiextensions-apiserver `pkg/controller/{status,establish,apiapproval,finalizer}`. The
//! condition NonStructuralSchema does not exist here: only definitions of v1beta1 could have such a schema.
//!
//! | module | subject |
//! |---|---|
//! | `state` | one definition: whether it is served, its rows, its status |
//! | `removal` | the objects of a deleted definition |

mod removal;
mod state;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;
use plinth_engine::{Entry, EventKind, Feed, Revision, Subscribe};
use smol_str::SmolStr;

use self::removal::remove_objects;
use self::state::{group_of, DefinitionState, StoredDefinition};
use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{end_if_over, Context, Server};
use plinth_apiserver::handlers::internal;
use plinth_kinds::custom_resource_definition::FINALIZER;
use plinth_registry::custom::definition::{Names, RESOURCE};
use plinth_registry::custom::naming::{self, Taken};
use plinth_registry::key;
use plinth_registry::CustomRows;

/// The field manager of the definitions' status.
const MANAGER: &str = "kube-apiserver";
/// Delay before a restart after the feed failed, or a status could not be written.
const RESTART: Duration = Duration::from_secs(1);

/// The definitions by name. Owned by the controller's task.
#[derive(Default)]
pub struct Definitions {
    states: BTreeMap<SmolStr, DefinitionState>,
    /// Definitions whose objects are being deleted.
    cleaning: HashSet<SmolStr>,
}

/// Loads the definitions, publishes the registry with their rows, and starts the controller. To be called
/// before anything is served.
///
/// # Errors
/// When the store cannot be read.
pub async fn start(server: &Arc<Server>) -> Result<(), ApiError> {
    let mut definitions = Definitions::default();
    let revision = definitions.load(server).await?;
    server.spawn(run(server.clone(), definitions, revision));
    Ok(())
}

async fn run(server: Arc<Server>, mut definitions: Definitions, mut revision: Revision) {
    loop {
        if let Err(error) = watch(&server, &mut definitions, revision).await {
            end_if_over().await;
            tracing::warn!(%error, "controller of custom resources failed, restarting");
        }
        tokio::time::sleep(RESTART).await;
        match definitions.load(&server).await {
            Ok(loaded) => revision = loaded,
            Err(error) => {
                end_if_over().await;
                tracing::warn!(%error, "failed to load CustomResourceDefinitions, retrying");
            }
        }
    }
}

async fn watch(
    server: &Arc<Server>,
    definitions: &mut Definitions,
    revision: Revision,
) -> Result<(), ApiError> {
    let prefix = prefix();
    let mut feed =
        server.store.engine().subscribe(Subscribe::new(key::range(prefix.as_bytes())).after(revision))?;
    // Work that was unfinished when the server stopped.
    let mut changed: BTreeSet<SmolStr> = definitions.states.keys().cloned().collect();
    let (cleaned, mut done) = tokio::sync::mpsc::unbounded_channel::<SmolStr>();
    loop {
        let mut retry = false;
        for name in std::mem::take(&mut changed) {
            if let Err(error) = definitions.write_status(server, &name).await {
                tracing::debug!(%error, name = %name, "failed to write status of CustomResourceDefinition, retrying");
                retry |= error.code != 409 && error.code != 404;
                changed.insert(name.clone());
            }
            definitions.clean(server, &name, &cleaned);
        }
        // After a conflict, or if the object is missing, the feed delivers another change.
        if !retry {
            changed.clear();
        }
        tokio::select! {
            events = feed.next() => {
                let Feed::Events(events) = events? else { continue };
                let mut touched = BTreeSet::new();
                for event in events.iter() {
                    let Some((_, name)) = key::split(&prefix, false, &event.key) else { continue };
                    match &event.kind {
                        EventKind::Put { value, .. } => {
                            let value = server.store.open(&event.key, value)?;
                            definitions.put(name, StoredDefinition::parse(&value, event.revision)?);
                        }
                        EventKind::Delete => definitions.remove(name),
                    }
                    touched.insert(SmolStr::from(name));
                }
                changed.extend(definitions.sync(server, &touched));
            }
            Some(name) = done.recv() => {
                definitions.cleaning.remove(&name);
                changed.insert(name);
            }
            () = tokio::time::sleep(RESTART), if retry => {}
        }
    }
}

fn prefix() -> String {
    key::resource_prefix(RESOURCE.0, RESOURCE.2)
}

impl Definitions {
    /// Loads all definitions and publishes the registry. One definition is a tree at a time: those of five
    /// hundred would be a hundred megabytes, which the allocator then retains.
    async fn load(&mut self, server: &Arc<Server>) -> Result<Revision, ApiError> {
        let prefix = prefix();
        let range = key::range(prefix.as_bytes());
        let store = server.store.clone();
        let pick = move |entry: &Entry<'_>| {
            let (_, name) = key::split(&prefix, false, entry.key)?;
            let value = store.open(entry.key, entry.value);
            let stored = value.and_then(|value| StoredDefinition::parse(&value, entry.mod_revision));
            Some((SmolStr::from(name), stored))
        };
        let (found, revision) = server.store.scan(range, pick).await?;
        let present: BTreeSet<SmolStr> = found.iter().map(|(name, _)| name.clone()).collect();
        self.states.retain(|name, _| present.contains(name));
        for (name, stored) in found {
            self.put(&name, stored?);
        }
        self.sync(server, &present);
        Ok(revision)
    }

    fn put(&mut self, name: &str, stored: StoredDefinition) {
        match self.states.get_mut(name) {
            Some(state) if state.stored.revision >= stored.revision => {}
            Some(state) => state.update(stored),
            None => drop(self.states.insert(name.into(), DefinitionState::new(stored))),
        }
    }

    fn remove(&mut self, name: &str) {
        self.states.remove(name);
    }

    /// Accepts names, builds rows and publishes the registry; returns the definitions whose status may have
    /// changed.
    fn sync(&mut self, server: &Server, touched: &BTreeSet<SmolStr>) -> BTreeSet<SmolStr> {
        // Another definition of the group may have waited for a name that is released.
        let group = |name: &SmolStr| name.split_once('.').map_or("", |(_, group)| group).to_owned();
        let groups: HashSet<String> = touched.iter().map(group).collect();
        let concerned: BTreeSet<SmolStr> =
            self.states.keys().filter(|name| groups.contains(&group(name))).cloned().collect();
        // Changed definitions come last, so that a new one does not take a name in use.
        for name in concerned.difference(touched).chain(touched.intersection(&concerned)) {
            self.accept_names(name);
        }
        let mut rows_changed = touched.iter().any(|name| !self.states.contains_key(name));
        for name in &concerned {
            if let Some(state) = self.states.get_mut(name) {
                rows_changed |= state.update_rows();
            }
        }
        if rows_changed {
            let rows: Vec<CustomRows> =
                self.states.values().filter_map(|k| k.rows.as_ref()).map(|(_, rows)| rows.clone()).collect();
            server.store.current_registry().publish(Arc::new(server.registry().with_custom(&rows)));
        }
        concerned
    }

    fn accept_names(&mut self, name: &SmolStr) {
        let Some(state) = self.states.get(name) else { return };
        let wanted = Names::of(state.stored.tree.at(&["spec", "names"]));
        let mut taken = Taken::default();
        for other in self.states.values().filter(|o| group_of(&o.stored.tree) == group_of(&state.stored.tree))
        {
            taken.add(&other.accepted);
        }
        let (accepted, conflict) = naming::accept(&wanted, &state.accepted, &taken);
        if let Some(state) = self.states.get_mut(name) {
            state.accepted = accepted;
            state.conflict = conflict;
        }
    }

    /// Writes the status of a definition if it differs from the desired one.
    async fn write_status(&self, server: &Arc<Server>, name: &SmolStr) -> Result<(), ApiError> {
        let Some(state) = self.states.get(name) else { return Ok(()) };
        let status = state.status();
        if state.stored.tree.get("status") == Some(&status) {
            return Ok(());
        }
        let read_at = metadata::text(&state.stored.tree, "resourceVersion").to_owned();
        update_status(server, name, &|definition| {
            if metadata::text(definition, "resourceVersion") != read_at {
                return Err(ApiError::modified(RESOURCE.0, RESOURCE.2, name));
            }
            if let Some(object) = definition.as_object_mut() {
                object.insert("status", status.clone());
            }
            Ok(())
        })
        .await
    }

    /// Starts to delete the objects of a deleted definition, unless that is in progress.
    fn clean(
        &mut self,
        server: &Arc<Server>,
        name: &SmolStr,
        cleaned: &tokio::sync::mpsc::UnboundedSender<SmolStr>,
    ) {
        let Some(state) = self.states.get(name) else { return };
        let deleting = metadata::is_deleting(&state.stored.tree)
            && metadata::finalizers(&state.stored.tree).contains(&FINALIZER);
        if !deleting || !self.cleaning.insert(name.clone()) {
            return;
        }
        if let Some((definition, _)) = &state.rows {
            definition.set_terminating();
        }
        let rows = state.rows.as_ref().map(|(_, rows)| rows.clone());
        let established = state.is_established();
        let (remover, name, cleaned) = (server.clone(), name.clone(), cleaned.clone());
        server.spawn(async move {
            if let Err(error) = remove_objects(&remover, &name, rows.filter(|_| established)).await {
                end_if_over().await;
                tracing::warn!(%error, name = %name, "failed to delete objects of CustomResourceDefinition, retrying");
                tokio::time::sleep(RESTART).await;
            }
            // The receiver is dropped only when the server stops.
            let _ = cleaned.send(name);
        });
    }
}

/// Writes `/status` of a definition with `change`.
async fn update_status(
    server: &Arc<Server>,
    name: &str,
    change: &(dyn Fn(&mut Value) -> Result<(), ApiError> + Send + Sync),
) -> Result<(), ApiError> {
    let mut cx = Context::internal(server, RESOURCE, "", name, Verb::Update)?.at_subresource("status");
    cx.query.field_manager = Some(MANAGER.into());
    let transform = |live: Option<&Value>| {
        let mut definition = live.cloned().unwrap_or_default();
        change(&mut definition)?;
        Ok(definition)
    };
    internal::update(&cx, &transform).await
}
