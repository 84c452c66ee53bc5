//! What becomes of definitions: names are granted, APIs opened and closed, objects of deleted definitions removed.
//!
//! One task follows the definitions and decides; nobody else publishes registries. For each change it grants names,
//! builds rows for what changed, publishes the registry, and only then writes the status that tells of it: whoever
//! has seen `Established` finds the API there. Removing the objects of a deleted definition may take long and is done
//! by a task of its own per definition.
//!
//! Upstream: k8s.io/apiextensions-apiserver `pkg/controller/{status,establish,apiapproval,finalizer}`. The condition
//! NonStructuralSchema has no place here: only definitions of v1beta1 could have such a schema.
//!
//! | module | subject |
//! |---|---|
//! | `known` | one definition: whether it is served, its rows, its status |
//! | `removal` | the objects of a deleted definition |

mod known;
mod removal;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;
use plinth_engine::{Entry, EventKind, Feed, Revision, Subscribe};
use smol_str::SmolStr;

use self::known::{group_of, Known, Seen};
use self::removal::remove_objects;
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

/// Whom the status of definitions belongs to.
const MANAGER: &str = "kube-apiserver";
/// Pause before the controller starts again after its feed broke off, or a status could not be written.
const RESTART: Duration = Duration::from_secs(1);

/// The definitions by name. Belongs to the controller's task.
#[derive(Default)]
pub struct Definitions {
    known: BTreeMap<SmolStr, Known>,
    /// Definitions whose objects are being removed.
    cleaning: HashSet<SmolStr>,
}

/// Loads the definitions, publishes the registry with their rows, and starts the controller. To be called before
/// anything is served.
///
/// # Errors
/// When the store cannot be read.
pub async fn start(server: &Arc<Server>) -> Result<(), ApiError> {
    let mut definitions = Definitions::default();
    let revision = definitions.load(server).await?;
    server.spawn(lead(server.clone(), definitions, revision));
    Ok(())
}

async fn lead(server: Arc<Server>, mut definitions: Definitions, mut revision: Revision) {
    loop {
        if let Err(error) = follow(&server, &mut definitions, revision).await {
            end_if_over().await;
            tracing::warn!(%error, "the controller of custom resources starts again");
        }
        tokio::time::sleep(RESTART).await;
        match definitions.load(&server).await {
            Ok(loaded) => revision = loaded,
            Err(error) => {
                end_if_over().await;
                tracing::warn!(%error, "definitions of custom resources cannot be read");
            }
        }
    }
}

async fn follow(
    server: &Arc<Server>,
    definitions: &mut Definitions,
    revision: Revision,
) -> Result<(), ApiError> {
    let prefix = prefix();
    let mut feed =
        server.store.engine().subscribe(Subscribe::new(key::range(prefix.as_bytes())).after(revision))?;
    // What was unfinished when the server stopped.
    let mut changed: BTreeSet<SmolStr> = definitions.known.keys().cloned().collect();
    let (cleaned, mut done) = tokio::sync::mpsc::unbounded_channel::<SmolStr>();
    loop {
        let mut again = false;
        for name in std::mem::take(&mut changed) {
            if let Err(error) = definitions.tell(server, &name).await {
                tracing::debug!(%error, definition = %name, "the status is written again");
                again |= error.code != 409 && error.code != 404;
                changed.insert(name.clone());
            }
            definitions.clean(server, &name, &cleaned);
        }
        // A conflict or a missing object means news that the feed brings.
        if !again {
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
                            definitions.put(name, Seen::parse(&value, event.revision)?);
                        }
                        EventKind::Delete => definitions.remove(name),
                    }
                    touched.insert(SmolStr::from(name));
                }
                changed.extend(definitions.settle(server, &touched));
            }
            Some(name) = done.recv() => {
                definitions.cleaning.remove(&name);
                changed.insert(name);
            }
            () = tokio::time::sleep(RESTART), if again => {}
        }
    }
}

fn prefix() -> String {
    key::resource_prefix(RESOURCE.0, RESOURCE.2)
}

impl Definitions {
    /// Reads all definitions and publishes the registry. One is a tree at a time: those of five hundred would be a
    /// hundred megabytes, which the allocator then keeps.
    async fn load(&mut self, server: &Arc<Server>) -> Result<Revision, ApiError> {
        let prefix = prefix();
        let range = key::range(prefix.as_bytes());
        let store = server.store.clone();
        let pick = move |entry: &Entry<'_>| {
            let (_, name) = key::split(&prefix, false, entry.key)?;
            let value = store.open(entry.key, entry.value);
            let seen = value.and_then(|value| Seen::parse(&value, entry.mod_revision));
            Some((SmolStr::from(name), seen))
        };
        let (found, revision) = server.store.survey(range, pick).await?;
        let present: BTreeSet<SmolStr> = found.iter().map(|(name, _)| name.clone()).collect();
        self.known.retain(|name, _| present.contains(name));
        for (name, seen) in found {
            self.put(&name, seen?);
        }
        self.settle(server, &present);
        Ok(revision)
    }

    fn put(&mut self, name: &str, seen: Seen) {
        match self.known.get_mut(name) {
            Some(known) if known.seen.revision >= seen.revision => {}
            Some(known) => known.renew(seen),
            None => drop(self.known.insert(name.into(), Known::new(seen))),
        }
    }

    fn remove(&mut self, name: &str) {
        self.known.remove(name);
    }

    /// Grants names, makes rows and publishes the registry; gives back whose status may have to be written.
    fn settle(&mut self, server: &Server, touched: &BTreeSet<SmolStr>) -> BTreeSet<SmolStr> {
        // A name that is given up may be what another definition of the group has waited for.
        let group = |name: &SmolStr| name.split_once('.').map_or("", |(_, group)| group).to_owned();
        let groups: HashSet<String> = touched.iter().map(group).collect();
        let concerned: BTreeSet<SmolStr> =
            self.known.keys().filter(|name| groups.contains(&group(name))).cloned().collect();
        // Those that were touched come after those that are settled, so that a newcomer takes nobody's name.
        for name in concerned.difference(touched).chain(touched.intersection(&concerned)) {
            self.grant(name);
        }
        let mut is_other = touched.iter().any(|name| !self.known.contains_key(name));
        for name in &concerned {
            if let Some(known) = self.known.get_mut(name) {
                is_other |= known.make_rows();
            }
        }
        if is_other {
            let rows: Vec<CustomRows> =
                self.known.values().filter_map(|k| k.rows.as_ref()).map(|(_, rows)| rows.clone()).collect();
            server.store.current_registry().publish(Arc::new(server.registry().with_custom(&rows)));
        }
        concerned
    }

    fn grant(&mut self, name: &SmolStr) {
        let Some(known) = self.known.get(name) else { return };
        let wanted = Names::of(known.seen.tree.at(&["spec", "names"]));
        let mut taken = Taken::default();
        for other in self.known.values().filter(|o| group_of(&o.seen.tree) == group_of(&known.seen.tree)) {
            taken.add(&other.granted);
        }
        let (granted, conflict) = naming::accept(&wanted, &known.granted, &taken);
        if let Some(known) = self.known.get_mut(name) {
            known.granted = granted;
            known.conflict = conflict;
        }
    }

    /// Writes the status of a definition where it differs from what has been decided.
    async fn tell(&self, server: &Arc<Server>, name: &SmolStr) -> Result<(), ApiError> {
        let Some(known) = self.known.get(name) else { return Ok(()) };
        let status = known.status();
        if known.seen.tree.get("status") == Some(&status) {
            return Ok(());
        }
        let read_at = metadata::text(&known.seen.tree, "resourceVersion").to_owned();
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

    /// Starts to remove the objects of a deleted definition, unless that is under way.
    fn clean(
        &mut self,
        server: &Arc<Server>,
        name: &SmolStr,
        cleaned: &tokio::sync::mpsc::UnboundedSender<SmolStr>,
    ) {
        let Some(known) = self.known.get(name) else { return };
        let deleting = metadata::is_deleting(&known.seen.tree)
            && metadata::finalizers(&known.seen.tree).contains(&FINALIZER);
        if !deleting || !self.cleaning.insert(name.clone()) {
            return;
        }
        if let Some((definition, _)) = &known.rows {
            definition.set_terminating();
        }
        let rows = known.rows.as_ref().map(|(_, rows)| rows.clone());
        let established = known.is_established();
        let (remover, name, cleaned) = (server.clone(), name.clone(), cleaned.clone());
        server.spawn(async move {
            if let Err(error) = remove_objects(&remover, &name, rows.filter(|_| established)).await {
                end_if_over().await;
                tracing::warn!(%error, definition = %name, "objects cannot be removed yet");
                tokio::time::sleep(RESTART).await;
            }
            // The controller has gone only when the server stops.
            let _ = cleaned.send(name);
        });
    }
}

/// Writes `/status` of a definition: `change` changes that of the live object.
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
