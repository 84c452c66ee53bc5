//! What becomes of definitions: names are granted, APIs opened and closed, objects of deleted definitions removed.
//!
//! One task follows the definitions and decides; nobody else publishes registries. For each change it grants names,
//! builds rows for what changed, publishes the registry, and only then writes the status that tells of it: whoever
//! has seen `Established` finds the API there. Removing the objects of a deleted definition may take long and is done
//! by a task of its own per definition.
//!
//! Upstream: k8s.io/apiextensions-apiserver `pkg/controller/{status,establish,apiapproval,finalizer}`. The condition
//! NonStructuralSchema has no place here: only definitions of v1beta1 could have such a schema.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::time::Timestamp;
use plinth_codec::{tree, Map, Value};
use plinth_engine::{At, Engine, EventKind, Feed, KeyRange, Revision, Subscribe};
use smol_str::SmolStr;

use super::approval::{approval, is_protected_group, Approval};
use super::definition::{fingerprint, is_condition_true, spec_digest, Definition, Names, RESOURCE};
use super::naming::{self, NameConflict, Taken};
use super::rows;
use crate::handlers::{delete, write, Context};
use crate::metadata;
use crate::outward::webhook::is_ca_bundle;
use crate::registry::CustomRows;
use crate::request_info::Verb;
use crate::server::Server;
use crate::status::ApiError;
use crate::storage::key;
use crate::storage::stored::Stored;

/// Whom the status of definitions belongs to.
const MANAGER: &str = "kube-apiserver";
/// The finalizer of definitions whose objects have to go first.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// First and longest pause between looks at objects that finalizers hold.
const CLEANUP_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Pause before the controller starts again after its feed broke off, or a status could not be written.
const RESTART: Duration = Duration::from_secs(1);

/// A definition as it was last seen, and what was made of it.
struct Known {
    /// Without the schemas of its versions once there are rows, which keep them compressed: as trees they would be most
    /// of what a definition takes.
    tree: Value,
    /// Whether the schemas have been taken out.
    bare: bool,
    revision: Revision,
    /// Of the UID and the whole spec.
    spec_digest: [u8; 32],
    /// The names that it has been granted.
    granted: Names,
    conflict: Option<NameConflict>,
    fingerprint: [u8; 32],
    /// None when it cannot be served.
    rows: Option<(Arc<Definition>, CustomRows)>,
}

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
    let server = server.clone();
    let mut stopping = server.stopping.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => {}
            () = lead(server, definitions, revision) => {}
        }
    });
    Ok(())
}

async fn lead(server: Arc<Server>, mut definitions: Definitions, mut revision: Revision) {
    loop {
        if let Err(fault) = follow(&server, &mut definitions, revision).await {
            tracing::warn!(%fault, "the controller of custom resources starts again");
        }
        tokio::time::sleep(RESTART).await;
        match definitions.load(&server).await {
            Ok(loaded) => revision = loaded,
            Err(fault) => tracing::warn!(%fault, "definitions of custom resources cannot be read"),
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
            if let Err(fault) = definitions.tell(server, &name).await {
                tracing::debug!(%fault, definition = %name, "the status is written again");
                again |= fault.code != 409 && fault.code != 404;
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
                            definitions.put(name, &value, event.revision)?;
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

fn group_of(tree: &Value) -> &str {
    tree.str_at(&["spec", "group"]).unwrap_or_default()
}

fn read(value: &[u8], revision: Revision) -> Result<Value, ApiError> {
    let stored = Stored::parse(value).map_err(ApiError::internal)?;
    let mut tree = plinth_codec::json::parse(stored.body()).map_err(ApiError::internal)?;
    if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
        metadata.insert("resourceVersion", revision.to_string());
    }
    Ok(tree)
}

impl Definitions {
    /// Reads all definitions and publishes the registry.
    async fn load(&mut self, server: &Arc<Server>) -> Result<Revision, ApiError> {
        let prefix = prefix();
        let range: KeyRange = key::range(prefix.as_bytes());
        let (values, revision) = server
            .store
            .read(move |engine: &Engine| {
                let snapshot = engine.snapshot(At::Latest)?;
                let mut values = Vec::new();
                let mut entries = snapshot.range(&range);
                while let Some(entry) = entries.next()? {
                    values.push(entry.to_record());
                }
                Ok((values, snapshot.revision()))
            })
            .await?;
        let present: HashSet<SmolStr> = values
            .iter()
            .filter_map(|r| key::split(&prefix, false, &r.key).map(|(_, name)| SmolStr::from(name)))
            .collect();
        self.known.retain(|name, _| present.contains(name));
        for record in values {
            if let Some((_, name)) = key::split(&prefix, false, &record.key) {
                let value = server.store.open(&record.key, &record.value)?;
                self.put(name, &value, record.mod_revision)?;
            }
        }
        self.settle(server, &present.into_iter().collect());
        Ok(revision)
    }

    fn put(&mut self, name: &str, value: &[u8], revision: Revision) -> Result<(), ApiError> {
        let tree = read(value, revision)?;
        match self.known.get_mut(name) {
            Some(known) if known.revision >= revision => {}
            Some(known) => {
                // A definition that was deleted and made anew between two looks has nothing of the old one.
                if metadata::text(&known.tree, "uid") != metadata::text(&tree, "uid") {
                    known.granted = Names::default();
                }
                known.spec_digest = spec_digest(&tree);
                known.tree = tree;
                known.bare = false;
                known.revision = revision;
                // The same spec makes the same rows.
                if known.rows.is_some()
                    && known.fingerprint == fingerprint(&known.spec_digest, &known.granted)
                {
                    known.take_schemas();
                }
            }
            None => {
                let granted = Names::of(tree.at(&["status", "acceptedNames"]));
                let known = Known {
                    spec_digest: spec_digest(&tree),
                    tree,
                    bare: false,
                    revision,
                    granted,
                    conflict: None,
                    fingerprint: [0; 32],
                    rows: None,
                };
                self.known.insert(name.into(), known);
            }
        }
        Ok(())
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
            server.registry.publish(Arc::new(server.registry().with_custom(&rows)));
        }
        concerned
    }

    fn grant(&mut self, name: &SmolStr) {
        let Some(known) = self.known.get(name) else { return };
        let wanted = Names::of(known.tree.at(&["spec", "names"]));
        let mut taken = Taken::default();
        for other in self.known.values().filter(|o| group_of(&o.tree) == group_of(&known.tree)) {
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
        if known.tree.get("status") == Some(&status) {
            return Ok(());
        }
        let read_at = metadata::text(&known.tree, "resourceVersion").to_owned();
        update_status(server, name, &|tree| {
            if metadata::text(tree, "resourceVersion") != read_at {
                return Err(ApiError::modified(RESOURCE.0, RESOURCE.2, name));
            }
            Ok(status.clone())
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
        let deleting =
            metadata::is_deleting(&known.tree) && metadata::finalizers(&known.tree).contains(&FINALIZER);
        if !deleting || !self.cleaning.insert(name.clone()) {
            return;
        }
        if let Some((definition, _)) = &known.rows {
            definition.set_terminating();
        }
        let rows = known.rows.as_ref().map(|(_, rows)| rows.clone());
        let established = is_condition_true(&known.tree, "Established");
        let (server, name, cleaned) = (server.clone(), name.clone(), cleaned.clone());
        tokio::spawn(async move {
            if let Err(fault) = remove_objects(&server, &name, rows.filter(|_| established)).await {
                tracing::warn!(%fault, definition = %name, "objects cannot be removed yet");
                tokio::time::sleep(RESTART).await;
            }
            // The controller has gone only when the server stops.
            let _ = cleaned.send(name);
        });
    }
}

fn versions_mut(tree: &mut Value) -> impl Iterator<Item = &mut Map> {
    let versions = tree.object_at_mut(&["spec"]).and_then(|spec| spec.get_mut("versions"));
    let versions = versions.and_then(Value::as_array_mut);
    versions.into_iter().flatten().filter_map(Value::as_object_mut)
}

impl Known {
    fn storage_version(&self) -> Option<&str> {
        let versions = self.tree.at(&["spec", "versions"]).and_then(Value::as_array)?;
        let stored = versions.iter().find(|v| v.get("storage").and_then(Value::as_bool) == Some(true));
        stored?.str_at(&["name"])
    }

    /// Whether there is an API: names once accepted are kept through later conflicts.
    fn is_served(&self) -> bool {
        let was_established = is_condition_true(&self.tree, "Established");
        self.granted.is_complete() && (was_established || self.conflict.is_none()) && !self.has_bad_bundle()
    }

    /// Whether the webhook's certificates are none, which keeps a definition from being established.
    fn has_bad_bundle(&self) -> bool {
        let bundle = self.tree.str_at(&["spec", "conversion", "webhook", "clientConfig", "caBundle"]);
        !is_condition_true(&self.tree, "Established") && bundle.is_some_and(|bundle| !is_ca_bundle(bundle))
    }

    /// Brings the rows up to date; whether they are others now.
    fn make_rows(&mut self) -> bool {
        if !self.is_served() {
            self.put_schemas_back();
            return self.rows.take().is_some();
        }
        let fingerprint = fingerprint(&self.spec_digest, &self.granted);
        if self.rows.is_some() && fingerprint == self.fingerprint {
            return false;
        }
        self.put_schemas_back();
        let definition = Arc::new(Definition::new(&self.tree, self.granted.clone()));
        if let Some((old, _)) = &self.rows {
            for version in &definition.versions {
                let before = old.position(&version.name).and_then(|i| old.versions.get(i));
                if let Some(before) = before {
                    version.schema.share(&before.schema);
                }
            }
        }
        let made = self.storage_version().and_then(|storage| rows::of(&definition, storage));
        self.fingerprint = fingerprint;
        self.rows = made.map(|rows| (definition, rows));
        if self.rows.is_some() {
            self.take_schemas();
        }
        true
    }

    /// Takes the schemas out of the tree: the rows have them.
    fn take_schemas(&mut self) {
        for version in versions_mut(&mut self.tree) {
            version.remove("schema");
        }
        self.bare = true;
    }

    /// Puts back into the tree what was taken out of it.
    fn put_schemas_back(&mut self) {
        let (true, Some((definition, _))) = (std::mem::take(&mut self.bare), &self.rows) else { return };
        for version in versions_mut(&mut self.tree) {
            let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
            let made = definition.position(name).and_then(|i| definition.versions.get(i));
            if let Some(source) = made.and_then(|made| made.schema.source()) {
                version.insert("schema", tree!({ "openAPIV3Schema": source }));
            }
        }
    }

    /// The status that the definition should have.
    fn status(&self) -> Value {
        let mut status = self.tree.get("status").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
        status.insert("acceptedNames", self.granted.to_value());
        let mut conditions = Conditions::of(&self.tree);
        match &self.conflict {
            Some(conflict) => conditions.set("NamesAccepted", "False", conflict.reason, &conflict.message),
            None => conditions.set("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        }
        if !is_condition_true(&self.tree, "Established") {
            match (self.conflict.is_some(), self.has_bad_bundle()) {
                (true, _) => {
                    conditions.set("Established", "False", "NotAccepted", "not all names are accepted");
                }
                (false, true) => conditions.set(
                    "Established",
                    "False",
                    "InvalidCABundle",
                    "The conversion webhook CABundle is invalid",
                ),
                (false, false) => conditions.set(
                    "Established",
                    "True",
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                ),
            }
        }
        if is_protected_group(group_of(&self.tree)) {
            let (state, why) = approval(&self.tree);
            let (status, reason) = match state {
                Approval::Invalid => ("False", "InvalidAnnotation"),
                Approval::Missing => ("False", "MissingAnnotation"),
                Approval::Approved => ("True", "ApprovedAnnotation"),
                Approval::Bypassed => ("False", "UnapprovedAnnotation"),
            };
            conditions.set("KubernetesAPIApprovalPolicyConformant", status, reason, &why);
        }
        status.insert("conditions", conditions.list);
        Value::Object(status)
    }
}

/// `status.conditions` that are being set.
struct Conditions {
    list: Vec<Value>,
}

impl Conditions {
    fn of(tree: &Value) -> Conditions {
        let list = tree.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
        Conditions { list: list.to_vec() }
    }

    /// Sets a condition; the time of the transition stays while the status does.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let place = self.list.iter().position(|c| c.str_at(&["type"]) == Some(kind));
        let old = place.and_then(|i| self.list.get(i));
        let same = old.is_some_and(|c| c.str_at(&["status"]) == Some(status));
        let time = old.filter(|_| same).and_then(|c| c.get("lastTransitionTime")).cloned();
        let time = time.unwrap_or_else(|| Timestamp::now().to_rfc3339().into());
        let new = tree!({
            "type": kind,
            "status": status,
            "lastTransitionTime": time,
            "reason": reason,
            "message": message,
        });
        match place.and_then(|i| self.list.get_mut(i)) {
            Some(old) => *old = new,
            None => self.list.push(new),
        }
    }
}

/// Marks a definition that a client deletes: its objects go first.
pub fn mark_deleted(definition: &mut Value) {
    let mut conditions = Conditions::of(definition);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    conditions.set("Terminating", "True", "InstanceDeletionPending", message);
    if let Some(status) = definition.object_at_mut(&["status"]) {
        status.insert("conditions", conditions.list);
    }
    let mut finalizers: Vec<Value> = metadata::finalizers(definition).into_iter().map(Value::from).collect();
    if !finalizers.iter().any(|f| f.as_str() == Some(FINALIZER)) {
        finalizers.push(FINALIZER.into());
    }
    if let Some(metadata) = definition.object_at_mut(&["metadata"]) {
        metadata.insert("deletionTimestamp", Timestamp::now().to_rfc3339());
        metadata.insert("finalizers", finalizers);
    }
}

/// Writes `/status` of a definition: `make` gives the new status of the live object.
async fn update_status(
    server: &Arc<Server>,
    name: &str,
    make: &(dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync),
) -> Result<(), ApiError> {
    let mut cx = Context::internal(server, RESOURCE, "", name, Verb::Update)?;
    cx.info.subresource = "status".into();
    cx.query.field_manager = Some(MANAGER.into());
    let transform = |live: Option<&Value>| {
        let mut tree = live.cloned().unwrap_or_default();
        let status = make(&tree)?;
        if let Some(object) = tree.as_object_mut() {
            object.insert("status", status);
        }
        Ok(tree)
    };
    write::update(&cx, &transform).await
}

/// Removes the objects of a definition, then its finalizer.
async fn remove_objects(server: &Arc<Server>, name: &str, rows: Option<CustomRows>) -> Result<(), ApiError> {
    let Some(rows) = rows else {
        return finish(server, name, "NeverEstablished", "resource was never established").await;
    };
    terminating(server, name, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
        .await?;
    let mut pause = CLEANUP_PAUSE.0;
    loop {
        let registry = server.registry();
        let cx = Context::of_resource(server, &registry, &rows.stored, ("", ""), Verb::DeleteCollection);
        match delete::delete_all(&cx).await {
            Ok(0) => break,
            Ok(held) => {
                tracing::debug!(held, definition = name, "waits for the finalizers of objects");
            }
            Err(fault) => {
                let message = format!("could not issue all deletes: {fault}");
                terminating(server, name, "True", "InstanceDeletionFailed", &message).await?;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(CLEANUP_PAUSE.1);
    }
    finish(server, name, "InstanceDeletionCompleted", "removed all instances").await
}

async fn terminating(
    server: &Arc<Server>,
    name: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Result<(), ApiError> {
    update_status(server, name, &|tree| {
        let mut conditions = Conditions::of(tree);
        conditions.set("Terminating", status, reason, message);
        let mut status = tree.get("status").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
        status.insert("conditions", conditions.list);
        Ok(Value::Object(status))
    })
    .await
}

/// Says how it ended and takes the finalizer off, with which the definition goes.
async fn finish(server: &Arc<Server>, name: &str, reason: &str, message: &str) -> Result<(), ApiError> {
    terminating(server, name, "False", reason, message).await?;
    let mut cx = Context::internal(server, RESOURCE, "", name, Verb::Update)?;
    cx.query.field_manager = Some(MANAGER.into());
    let transform = |live: Option<&Value>| {
        let mut tree = live.cloned().unwrap_or_default();
        let left: Vec<Value> =
            metadata::finalizers(&tree).into_iter().filter(|f| *f != FINALIZER).map(Value::from).collect();
        let metadata = metadata::of(&mut tree)?;
        match left.is_empty() {
            true => metadata.remove("finalizers"),
            false => metadata.insert("finalizers", left),
        };
        Ok(tree)
    };
    match write::update(&cx, &transform).await {
        Err(fault) if fault.code == 404 => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::super::definition::condition;
    use super::*;

    fn known(text: &str) -> Known {
        let tree = plinth_codec::json::parse(text.as_bytes()).unwrap();
        let granted = Names::of(tree.at(&["spec", "names"]));
        Known {
            spec_digest: spec_digest(&tree),
            tree,
            bare: false,
            revision: Revision::ZERO,
            granted,
            conflict: None,
            fingerprint: [0; 32],
            rows: None,
        }
    }

    const SAMPLE: &str = r#"{"metadata":{"name":"cars.example.com"},"spec":{"group":"example.com","scope":"Cluster",
        "names":{"plural":"cars","singular":"car","kind":"Car","listKind":"CarList"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]},
        "status":{"storedVersions":["v1"]}}"#;

    #[test]
    fn conditions_say_what_was_decided() {
        let of = |known: &Known, kind: &str| {
            let tree = tree!({ "status": known.status() });
            let c = condition(&tree, kind).cloned().unwrap_or_default();
            let text = |key: &str| c.str_at(&[key]).unwrap_or_default().to_owned();
            (text("status"), text("reason"))
        };
        let mut car = known(SAMPLE);
        assert_eq!(of(&car, "NamesAccepted"), ("True".into(), "NoConflicts".into()));
        assert_eq!(of(&car, "Established"), ("True".into(), "InitialNamesAccepted".into()));
        car.conflict = Some(NameConflict { reason: "PluralConflict", message: String::new() });
        assert_eq!(of(&car, "NamesAccepted"), ("False".into(), "PluralConflict".into()));
        assert_eq!(of(&car, "Established"), ("False".into(), "NotAccepted".into()));
        let broken = SAMPLE.replacen(
            "\"spec\":{",
            r#""spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"caBundle":"eA=="}}},"#,
            1,
        );
        assert_eq!(of(&known(&broken), "Established"), ("False".into(), "InvalidCABundle".into()));
        let community = SAMPLE.replace("example.com", "x.k8s.io");
        let (status, reason) = of(&known(&community), "KubernetesAPIApprovalPolicyConformant");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "MissingAnnotation"));
    }

    #[test]
    fn rows_are_made_anew_only_when_the_spec_changes() {
        let mut car = known(SAMPLE);
        assert!(car.make_rows());
        assert!(!car.make_rows());
        let mut change = |from: &str, to: &str| {
            car.tree = plinth_codec::json::parse(SAMPLE.replace(from, to).as_bytes()).unwrap();
            car.spec_digest = spec_digest(&car.tree);
            car.make_rows()
        };
        assert!(!change("[\"v1\"]", "[\"v0\",\"v1\"]"), "the status has nothing to do with them");
        assert!(change("Cluster", "Namespaced"));
    }
}
