//! Managed fields: maintains `metadata.managedFields` in every write.

use std::sync::Arc;

use plinth_codec::apply::path::PathElement;
use plinth_codec::apply::{self, ApplyError, NoOtherVersions, Reset, Versions};
use plinth_codec::schema::{self, Schema, TypeId, GVK};
use plinth_codec::Value;

use crate::context::Context;
use crate::custom_resources::object::convert_now;
use plinth_api::{metadata_mut, ApiError, Cause, Reason};
use plinth_registry::{convert_between, Registry, ResourceType};

/// The other served versions of a resource, for fields that were written through them.
struct ServedVersions<'a> {
    server: &'a crate::context::Server,
    registry: &'a Registry,
    resource: &'a ResourceType,
}

impl ServedVersions<'_> {
    /// The resource in another version: another view of the same stored objects.
    fn other(&self, api_version: &str) -> Option<&ResourceType> {
        let prefix = &self.resource.storage.as_ref()?.prefix;
        let same = |r: &&std::sync::Arc<ResourceType>| {
            r.api_version == api_version && r.storage.as_ref().is_some_and(|s| s.prefix == *prefix)
        };
        self.registry.resources.iter().find(same).map(AsRef::as_ref)
    }
}

impl Versions for ServedVersions<'_> {
    fn typed(&self, api_version: &str) -> Option<(&Schema, TypeId)> {
        self.other(api_version).map(ResourceType::types)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let from = self.other(object.str_at(&["apiVersion"])?)?;
        let to = self.other(api_version)?;
        if let Some(custom) = &to.custom {
            return convert_now(&self.server.reader.converter, custom, custom.version(), object.clone());
        }
        convert_between(object.clone(), from, to).ok()
    }
}

/// Calls `with` with the codec's context of this write.
fn with_context<T>(cx: &Context, now: &str, with: impl FnOnce(&apply::Context<'_>) -> T) -> T {
    let resource = &cx.resource;
    let has_status = resource.row.subresource("status").is_some();
    let subresource = cx.info.subresource.as_str();
    let reset = &resource.strategy.reset(subresource, has_status);
    let kind: GVK = resource.row.gvk();
    let manager = cx.field_manager();
    let (schema, root) = resource.types();
    with(&apply::Context {
        manager: &manager,
        time: now,
        kind: &kind,
        subresource,
        schema,
        root,
        reset,
        versions: &ServedVersions { server: &cx.server, registry: &cx.registry, resource },
    })
}

/// Updates managedFields after a create, update or patch. `new` is normalized and defaulted.
pub fn track(cx: &Context, live: Option<&Value>, new: &mut Value, now: &str) {
    with_context(cx, now, |context| apply::track_update(live, new, context));
}

/// Updates managedFields of a new object that is sent to a subresource and has a built-in kind of its own,
/// like a TokenRequest; it is not stored.
pub(crate) fn track_as(cx: &Context, (kind, root): (&GVK, TypeId), new: &mut Value, now: &str) {
    let manager = cx.field_manager();
    let (server, registry) = (&cx.server, &cx.registry);
    let versions = &ServedVersions { server, registry, resource: &cx.resource };
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
pub fn apply(
    cx: &Context,
    live: Option<&Value>,
    applied: &Value,
    force: bool,
    now: &str,
) -> Result<Option<Value>, ApiError> {
    let outcome = with_context(cx, now, |context| apply::apply(live, applied, force, context));
    outcome.map_err(refused)
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
