//! The controller of CustomResourceDefinitions: accepts names, starts and ends serving, deletes objects of
//! deleted definitions.
//!
//! The controller's loop is the only one that publishes registries. For each change it accepts names, builds
//! changed rows and publishes the registry; only then a worker writes the status: a client that sees
//! `Established` can use the API. Discovery waits for that write. Deleting the objects of a deleted
//! definition may take long and is a task of its own.
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
mod status;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_engine::{Entry, Event, EventKind, Revision};
use smol_str::SmolStr;

use self::removal::remove_objects;
use self::state::{group_of, DefinitionState, StoredDefinition};
use self::status::update_status;
use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use plinth_api::{metadata_text, ApiError};
use plinth_apiserver::context::Server;
use plinth_registry::{
    prefix_range, resource_prefix, split_key, Current, CustomRows, DefinitionNames, TakenNames,
    DEFINITION_RESOURCE,
};

/// Maximum number of concurrent workers.
const WORKERS: usize = 32;
/// First and longest delay before a status is written again, or between passes over objects with finalizers.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// The definitions by name.
#[derive(Default)]
struct Definitions {
    states: BTreeMap<SmolStr, DefinitionState>,
}

struct Controller {
    server: Arc<Server>,
    /// Changed by the controller's loop alone, read by workers.
    definitions: Mutex<Definitions>,
    /// The revision of the definitions that were loaded; taken by the first start.
    loaded: Mutex<Option<Revision>>,
}

/// A task for one definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    /// Writes the status.
    Status,
    /// Deletes the objects, then the finalizer.
    Removal,
}

/// Loads the definitions, publishes the registry with their rows, and starts the controller. To be called
/// before anything is served.
///
/// # Errors
/// When the store cannot be read.
pub async fn start(server: &Arc<Server>) -> Result<(), ApiError> {
    let (definitions, loaded) = (Mutex::default(), Mutex::default());
    let controller = Controller { server: server.clone(), definitions, loaded };
    let revision = controller.load().await?;
    *controller.loaded.lock() = Some(revision);
    reconciler::spawn(server, controller);
    Ok(())
}

impl Reconciler for Controller {
    type Key = (SmolStr, Task);

    fn settings(&self) -> Settings {
        let name = "customresourcedefinition-controller";
        Settings { name, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<Self::Key>, ApiError> {
        let loaded = self.loaded.lock().take();
        let revision = match loaded {
            Some(revision) => revision,
            None => self.load().await?,
        };
        let definitions = self.definitions.lock();
        Start::new(definitions.tasks(definitions.states.keys())).watch(&self.server, &prefix(), revision)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<Self::Key>, ApiError> {
        let (prefix, mut touched) = (prefix(), BTreeSet::new());
        let mut definitions = self.definitions.lock();
        for event in events {
            let Some((_, name)) = split_key(&prefix, false, &event.key) else { continue };
            match &event.kind {
                EventKind::Put { value, .. } => {
                    let value = self.server.store.open(&event.key, value)?;
                    definitions.put(name, StoredDefinition::parse(&value, event.revision)?);
                }
                EventKind::Delete => drop(definitions.states.remove(name)),
            }
            touched.insert(SmolStr::from(name));
        }
        let registry = self.server.store.current_registry();
        let concerned = definitions.sync(registry, &touched);
        if let Some(last) = events.last() {
            registry.note_reached(last.revision);
        }
        Ok(definitions.tasks(&concerned))
    }

    async fn reconcile(&self, (name, task): Self::Key) -> Result<Action, ApiError> {
        let outcome = match task {
            Task::Status => self.write_status(&name).await,
            Task::Removal => return self.remove(&name).await.map(|()| Action::AwaitChange),
        };
        match outcome {
            // The feed delivers the change that was made between.
            Err(error) if !error.has_changed() => Err(error),
            _ => Ok(Action::AwaitChange),
        }
    }
}

impl Controller {
    /// Loads all definitions and publishes the registry. One definition is a tree at a time: those of five
    /// hundred would be a hundred megabytes, which the allocator then retains.
    async fn load(&self) -> Result<Revision, ApiError> {
        let (prefix, store) = (prefix(), self.server.store.clone());
        let range = prefix_range(prefix.as_bytes());
        let pick = move |entry: &Entry<'_>| {
            let (_, name) = split_key(&prefix, false, entry.key)?;
            let value = store.open(entry.key, entry.value);
            let stored = value.and_then(|value| StoredDefinition::parse(&value, entry.mod_revision));
            Some((SmolStr::from(name), stored))
        };
        let (found, revision) = self.server.store.scan(range, pick).await?;
        let found = found.into_iter().map(|(name, stored)| Ok((name, stored?)));
        let found = found.collect::<Result<_, ApiError>>()?;
        let registry = self.server.store.current_registry();
        self.definitions.lock().replace(registry, found);
        registry.note_reached(revision);
        Ok(revision)
    }

    /// Writes the status of a definition if it differs from the desired one.
    async fn write_status(&self, name: &SmolStr) -> Result<(), ApiError> {
        let (status, read_at) = {
            let definitions = self.definitions.lock();
            let Some(state) = definitions.states.get(name) else { return Ok(()) };
            let (status, tree) = (state.status(), &state.stored.tree);
            if tree.get("status") == Some(&status) {
                return Ok(());
            }
            (status, metadata_text(tree, "resourceVersion").to_owned())
        };
        update_status(&self.server, name, &|definition| {
            if metadata_text(definition, "resourceVersion") != read_at {
                return Err(ApiError::modified(DEFINITION_RESOURCE.0, DEFINITION_RESOURCE.2, name));
            }
            if let Some(object) = definition.as_object_mut() {
                object.insert("status", status.clone());
            }
            Ok(())
        })
        .await
    }

    /// Deletes the objects of a definition that is being deleted.
    async fn remove(&self, name: &SmolStr) -> Result<(), ApiError> {
        let rows = {
            let definitions = self.definitions.lock();
            let Some(state) = definitions.states.get(name).filter(|state| state.is_removed()) else {
                return Ok(());
            };
            if let Some((definition, _)) = &state.rows {
                definition.set_terminating();
            }
            state.rows.as_ref().filter(|_| state.is_established()).map(|(_, rows)| rows.clone())
        };
        remove_objects(&self.server, name, rows).await
    }
}

fn prefix() -> String {
    resource_prefix(DEFINITION_RESOURCE.0, DEFINITION_RESOURCE.2)
}

impl Definitions {
    /// The tasks for the definitions with the given names.
    fn tasks<'n>(&self, names: impl IntoIterator<Item = &'n SmolStr>) -> Vec<(SmolStr, Task)> {
        let tasks = |name: &'n SmolStr| {
            let removal = self.states.get(name).is_some_and(DefinitionState::is_removed);
            let removal = removal.then(|| (name.clone(), Task::Removal));
            [(name.clone(), Task::Status)].into_iter().chain(removal)
        };
        names.into_iter().flat_map(tasks).collect()
    }

    /// Replaces all definitions and publishes the registry.
    fn replace(&mut self, registry: &Current, found: Vec<(SmolStr, StoredDefinition)>) {
        // Those that were deleted meanwhile have changed, too.
        let mut touched: BTreeSet<SmolStr> = self.states.keys().cloned().collect();
        let present: BTreeSet<SmolStr> = found.iter().map(|(name, _)| name.clone()).collect();
        self.states.retain(|name, _| present.contains(name));
        touched.extend(present);
        for (name, stored) in found {
            self.put(&name, stored);
        }
        self.sync(registry, &touched);
    }

    fn put(&mut self, name: &str, stored: StoredDefinition) {
        match self.states.get_mut(name) {
            Some(state) if state.stored.revision >= stored.revision => {}
            Some(state) => state.update(stored),
            None => drop(self.states.insert(name.into(), DefinitionState::new(stored))),
        }
    }

    /// Accepts names, builds rows and publishes the registry; returns the definitions whose status may have
    /// changed.
    fn sync(&mut self, registry: &Current, touched: &BTreeSet<SmolStr>) -> BTreeSet<SmolStr> {
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
        let is_ahead = |state: &DefinitionState| state.rows.is_some() && !state.is_established();
        registry.note_ahead(self.states.values().any(is_ahead));
        if rows_changed {
            let rows: Vec<CustomRows> =
                self.states.values().filter_map(|k| k.rows.as_ref()).map(|(_, rows)| rows.clone()).collect();
            registry.update(|current| Some(current.with_custom(&rows)));
        }
        concerned
    }

    fn accept_names(&mut self, name: &SmolStr) {
        let Some(state) = self.states.get(name) else { return };
        let wanted = DefinitionNames::of(state.stored.tree.at(&["spec", "names"]));
        let mut taken = TakenNames::default();
        for other in self.states.values().filter(|o| group_of(&o.stored.tree) == group_of(&state.stored.tree))
        {
            taken.add(&other.accepted);
        }
        let (accepted, conflict) = plinth_registry::accept_names(&wanted, &state.accepted, &taken);
        if let Some(state) = self.states.get_mut(name) {
            state.accepted = accepted;
            state.conflict = conflict;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_that_is_gone_after_a_reload_is_not_served() {
        const CARS: &str = r#"{"metadata":{"name":"cars.example.com"},"spec":{"group":"example.com","scope":"Cluster",
            "names":{"plural":"cars","singular":"car","kind":"Car","listKind":"CarList"},
            "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
        let (mut definitions, registry) = (Definitions::default(), Current::default());
        let is_served = || registry.snapshot().get("example.com", "v1", "cars").is_some();
        let cars = StoredDefinition::new(plinth_codec::json::parse(CARS.as_bytes()).unwrap(), Revision::ZERO);
        definitions.replace(&registry, vec![("cars.example.com".into(), cars)]);
        assert!(is_served());
        definitions.replace(&registry, Vec::new());
        assert!(!is_served());
    }
}
