//! Managed fields: maintains `metadata.managedFields` in every write.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use plinth_codec::apply::path::PathElement;
use plinth_codec::apply::{self, ApplyError, NoOtherVersions, Reset, Versions};
use plinth_codec::schema::{self, Schema, TypeId, GVK};
use plinth_codec::Value;

use crate::context::Context;
use crate::custom_resources::object;
use plinth_api::{metadata_mut, ApiError, Cause, Reason};
use plinth_registry::{convert_between, CustomVersion, Registry, ResourceType};

/// Conversions by a webhook that the codec asks for. It does not wait: what has no answer yet it takes for
/// inconvertible, and then its work is done again with the answer, until it asks for nothing more. The same
/// work with the same answers asks the same questions, so answers are given in the order of the questions.
#[derive(Default)]
struct Conversions<'a> {
    answers: Vec<Option<Value>>,
    asked: Cell<usize>,
    open: RefCell<Option<(&'a CustomVersion, Value)>>,
}

impl<'a> Conversions<'a> {
    fn ask(&self, to: &'a CustomVersion, object: &Value) -> Option<Value> {
        let next = self.asked.replace(self.asked.get() + 1);
        if next == self.answers.len() {
            self.open.replace(Some((to, object.clone())));
        }
        self.answers.get(next)?.clone()
    }

    fn answer(&mut self, answer: Option<Value>) {
        self.answers.push(answer);
        self.asked.set(0);
    }
}

/// The other served versions of a resource, for fields that were written through them.
struct ServedVersions<'a, 'c> {
    registry: &'a Registry,
    resource: &'a ResourceType,
    conversions: &'c Conversions<'a>,
}

impl<'a> ServedVersions<'a, '_> {
    /// The resource in another version: another view of the same stored objects.
    fn other(&self, api_version: &str) -> Option<&'a ResourceType> {
        let prefix = &self.resource.storage.as_ref()?.prefix;
        let same = |r: &&std::sync::Arc<ResourceType>| {
            r.api_version == api_version && r.storage.as_ref().is_some_and(|s| s.prefix == *prefix)
        };
        self.registry.resources.iter().find(same).map(AsRef::as_ref)
    }
}

impl Versions for ServedVersions<'_, '_> {
    fn typed(&self, api_version: &str) -> Option<(&Schema, TypeId)> {
        self.other(api_version).map(ResourceType::types)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let from = self.other(object.str_at(&["apiVersion"])?)?;
        let to = self.other(api_version)?;
        if let Some(custom) = &to.custom {
            return match custom.converts_by_name() {
                true => object::renamed(custom, object.clone()),
                false => self.conversions.ask(custom, object),
            };
        }
        convert_between(object.clone(), from, to).ok()
    }
}

/// Runs `work` with the codec's context of this write, again for each conversion that it has asked for.
async fn with_context<T>(cx: &Context, now: &str, mut work: impl FnMut(&apply::Context<'_>) -> T) -> T {
    let mut conversions = Conversions::default();
    loop {
        let done = work_once(cx, now, &conversions, &mut work);
        let Some((to, object)) = conversions.open.take() else { return done };
        drop(done);
        let answer = object::converted(&cx.server.reader.converter, to, object).await;
        conversions.answer(answer);
    }
}

fn work_once<'a, T>(
    cx: &'a Context,
    now: &str,
    conversions: &Conversions<'a>,
    work: &mut impl FnMut(&apply::Context<'_>) -> T,
) -> T {
    let resource = &cx.resource;
    let has_status = resource.row.subresource("status").is_some();
    let subresource = cx.info.subresource.as_str();
    let reset = &resource.strategy.reset(subresource, has_status);
    let kind: GVK = resource.row.gvk();
    let manager = cx.field_manager();
    let (schema, root) = resource.types();
    work(&apply::Context {
        manager: &manager,
        time: now,
        kind: &kind,
        subresource,
        schema,
        root,
        reset,
        versions: &ServedVersions { registry: &cx.registry, resource, conversions },
    })
}

/// Updates managedFields after a create, update or patch. `new` is normalized and defaulted.
///
/// Cancel safe only together with `new`, which is incomplete until this is done.
pub async fn track(cx: &Context, live: Option<&Value>, new: &mut Value, now: &str) {
    let by_webhook = cx.resource.custom.as_ref().is_some_and(|custom| !custom.converts_by_name());
    let sent = by_webhook.then(|| new.clone());
    let work = |context: &apply::Context<'_>| {
        if let Some(sent) = &sent {
            new.clone_from(sent);
        }
        apply::track_update(live, new, context);
    };
    with_context(cx, now, work).await;
}

/// Updates managedFields of a new object that is sent to a subresource and has a built-in kind of its own,
/// like a TokenRequest; it is not stored.
pub(crate) fn track_as(cx: &Context, (kind, root): (&GVK, TypeId), new: &mut Value, now: &str) {
    let manager = cx.field_manager();
    let conversions = &Conversions::default();
    let versions = &ServedVersions { registry: &cx.registry, resource: &cx.resource, conversions };
    let context = apply::Context {
        manager: &manager,
        time: now,
        kind,
        subresource: &cx.info.subresource,
        schema: schema::builtin(),
        root,
        reset: &Reset::Nothing,
        versions,
    };
    apply::track_update(None, new, &context);
}

/// Owners of the number of replicas, as shown in Scale and as stored in the scaled object. Upstream:
/// k8s.io/apimachinery `pkg/util/managedfields/scalehandler.go`.
pub(crate) struct ScaleOwners<'a> {
    cx: &'a Context,
    /// Each served version with the path of its replicas; `None` for one without.
    paths: Vec<(&'a str, Option<Vec<PathElement>>)>,
}

impl<'a> ScaleOwners<'a> {
    /// For writes through `/scale`; `replicas` returns the path of a version's replicas.
    pub fn new(cx: &'a Context, replicas: fn(&'a ResourceType) -> Option<Vec<&'a str>>) -> ScaleOwners<'a> {
        let prefix = cx.resource.storage.as_ref().map(|storage| &storage.prefix);
        let same_storage =
            |r: &&'a Arc<ResourceType>| r.storage.as_ref().map(|storage| &storage.prefix) == prefix;
        let path = |r: &'a Arc<ResourceType>| {
            let steps = replicas(r).map(|steps| steps.into_iter().map(PathElement::field).collect());
            (r.api_version.as_str(), steps)
        };
        ScaleOwners { cx, paths: cx.registry.resources.iter().filter(same_storage).map(path).collect() }
    }

    /// Copies the owners of the parent's replicas to its Scale.
    ///
    /// # Errors
    /// When the stored managedFields cannot be decoded.
    pub fn copy_to_scale(&self, parent: &Value, scale: &mut Value) -> Result<(), ApiError> {
        let managed = apply::scale::to_scale(parent.at(&["metadata", "managedFields"]), &self.paths);
        set_managed(scale, managed.map_err(ApiError::internal)?)
    }

    /// Copies the owners of the replicas from the Scale back to the parent.
    ///
    /// # Errors
    /// When the stored managedFields cannot be decoded.
    pub fn store_in_parent(&self, scale: &Value, parent: &mut Value) -> Result<(), ApiError> {
        let managed = |object: &'_ Value| object.at(&["metadata", "managedFields"]).cloned();
        let (of_parent, of_scale) = (managed(parent), managed(scale));
        let version = self.cx.resource.api_version.as_str();
        let kept = apply::scale::to_parent(of_parent.as_ref(), of_scale.as_ref(), version, &self.paths);
        set_managed(parent, kept.map_err(ApiError::internal)?)
    }

    /// Updates managedFields after an update or a patch of the Scale.
    pub fn track(&self, before: &Value, after: &mut Value, (kind, root): (&GVK, TypeId), now: &str) {
        self.with(kind, root, now, |context| apply::track_update(Some(before), after, context));
    }

    /// Applies a configuration of the Scale; `None` when nothing changes.
    ///
    /// # Errors
    /// As [`apply()`].
    pub fn apply(
        &self,
        before: &Value,
        applied: &Value,
        force: bool,
        (kind, root): (&GVK, TypeId),
        now: &str,
    ) -> Result<Option<Value>, ApiError> {
        let run = |context: &apply::Context<'_>| apply::apply(Some(before), applied, force, context);
        self.with(kind, root, now, run).map_err(refused)
    }

    fn with<T>(&self, kind: &GVK, root: TypeId, now: &str, run: impl FnOnce(&apply::Context<'_>) -> T) -> T {
        run(&apply::Context {
            manager: &self.cx.field_manager(),
            time: now,
            kind,
            subresource: &self.cx.info.subresource,
            schema: schema::builtin(),
            root,
            reset: &Reset::Nothing,
            versions: &NoOtherVersions,
        })
    }
}

fn set_managed(object: &mut Value, managed: Option<Value>) -> Result<(), ApiError> {
    let metadata = metadata_mut(object)?;
    match managed {
        Some(managed) => metadata.insert("managedFields", managed),
        None => metadata.remove("managedFields"),
    };
    Ok(())
}

/// Restores the old timestamps of managedFields when a write changes nothing else.
pub fn keep_times(old: &Value, new: &mut Value) {
    apply::keep_times(old, new);
}

/// Applies a configuration; `None` when nothing changes.
///
/// # Errors
/// 409 with a cause per conflict, 400 for a configuration that does not match the schema.
pub async fn apply(
    cx: &Context,
    live: Option<&Value>,
    applied: &Value,
    force: bool,
    now: &str,
) -> Result<Option<Value>, ApiError> {
    let work = |context: &apply::Context<'_>| apply::apply(live, applied, force, context);
    with_context(cx, now, work).await.map_err(refused)
}

fn refused(error: ApplyError) -> ApiError {
    match &error {
        ApplyError::Conflicts(conflicts) => {
            let cause = |c: &apply::Conflict| Cause {
                reason: "FieldManagerConflict",
                message: c.message(),
                field: c.field(),
            };
            let causes = conflicts.0.iter().map(cause).collect();
            ApiError::new(409, Reason::Conflict, error.to_string()).with_causes(causes)
        }
        _ if error.code() == 400 => ApiError::bad_request(error.to_string()),
        _ => ApiError::internal(error),
    }
}
