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
///
/// After a failure nothing more is asked for: a request waits once for a webhook that hangs.
#[derive(Default)]
struct Conversions<'a> {
    answers: Vec<Value>,
    failure: Option<ApiError>,
    asked: Cell<usize>,
    open: RefCell<Option<(&'a CustomVersion, Value)>>,
}

impl<'a> Conversions<'a> {
    fn ask(&self, to: &'a CustomVersion, object: &Value) -> Option<Value> {
        let next = self.asked.replace(self.asked.get() + 1);
        if next == self.answers.len() && self.failure.is_none() {
            self.open.replace(Some((to, object.clone())));
        }
        self.answers.get(next).cloned()
    }

    fn answer(&mut self, answer: Result<Value, ApiError>) {
        match answer {
            Ok(answer) => self.answers.push(answer),
            Err(error) => self.failure = Some(error),
        }
        self.asked.set(0);
    }
}

/// The other versions of a resource, for fields that were written through them. As upstream, those that
/// `--runtime-config` switches off are among them.
struct OtherVersions<'a, 'c> {
    registry: &'a Registry,
    resource: &'a ResourceType,
    conversions: &'c Conversions<'a>,
}

impl<'a> OtherVersions<'a, '_> {
    /// The resource in another version: another view of the same stored objects.
    fn other(&self, api_version: &str) -> Option<&'a ResourceType> {
        let prefix = &self.resource.storage.as_ref()?.prefix;
        let same = |r: &&std::sync::Arc<ResourceType>| {
            r.api_version == api_version && r.storage.as_ref().is_some_and(|s| s.prefix == *prefix)
        };
        self.registry.known().find(same).map(AsRef::as_ref)
    }
}

impl Versions for OtherVersions<'_, '_> {
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
/// Beside its outcome the failure of a conversion, which it has taken for that of a version that is no longer
/// known.
async fn with_context<T>(
    cx: &Context,
    now: &str,
    mut work: impl FnMut(&apply::Context<'_>) -> T,
) -> (T, Option<ApiError>) {
    let mut conversions = Conversions::default();
    loop {
        let done = work_once(cx, now, &conversions, &mut work);
        let Some((to, object)) = conversions.open.take() else { return (done, conversions.failure) };
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
        versions: &OtherVersions { registry: &cx.registry, resource, conversions },
    })
}

/// Updates managedFields after a create, update or patch. `new` is normalized and defaulted. Owners in a
/// version that the webhook fails to convert to are dropped; upstream drops all owners then.
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
    if let ((), Some(error)) = with_context(cx, now, work).await {
        let (resource, name) = (cx.resource.plural(), cx.info.name.as_str());
        tracing::warn!(%error, resource, name, "owners of fields in another version are dropped");
    }
}

/// Updates managedFields of a new object that is sent to a subresource and has a built-in kind of its own,
/// like a TokenRequest; it is not stored.
pub(crate) fn track_as(cx: &Context, (kind, root): (&GVK, TypeId), new: &mut Value, now: &str) {
    let manager = cx.field_manager();
    let conversions = &Conversions::default();
    let versions = &OtherVersions { registry: &cx.registry, resource: &cx.resource, conversions };
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
    pub(crate) fn new(
        cx: &'a Context,
        replicas: fn(&'a ResourceType) -> Option<Vec<&'a str>>,
    ) -> ScaleOwners<'a> {
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
    pub(crate) fn copy_to_scale(&self, parent: &Value, scale: &mut Value) -> Result<(), ApiError> {
        let managed = apply::scale::to_scale(parent.at(&["metadata", "managedFields"]), &self.paths);
        set_managed(scale, managed.map_err(ApiError::internal)?)
    }

    /// Copies the owners of the replicas from the Scale back to the parent.
    ///
    /// # Errors
    /// When the stored managedFields cannot be decoded.
    pub(crate) fn store_in_parent(&self, scale: &Value, parent: &mut Value) -> Result<(), ApiError> {
        let managed = |object: &'_ Value| object.at(&["metadata", "managedFields"]).cloned();
        let (of_parent, of_scale) = (managed(parent), managed(scale));
        let version = self.cx.resource.api_version.as_str();
        let kept = apply::scale::to_parent(of_parent.as_ref(), of_scale.as_ref(), version, &self.paths);
        set_managed(parent, kept.map_err(ApiError::internal)?)
    }

    /// Updates managedFields after an update or a patch of the Scale.
    pub(crate) fn track(&self, before: &Value, after: &mut Value, (kind, root): (&GVK, TypeId), now: &str) {
        self.with(kind, root, now, |context| apply::track_update(Some(before), after, context));
    }

    /// Applies a configuration of the Scale; `None` when nothing changes.
    ///
    /// # Errors
    /// As [`apply()`].
    pub(crate) fn apply(
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
/// 409 with a cause per conflict, 400 for a configuration that does not match the schema, 500 when a webhook
/// fails to convert: what others own is then not known.
pub async fn apply(
    cx: &Context,
    live: Option<&Value>,
    applied: &Value,
    force: bool,
    now: &str,
) -> Result<Option<Value>, ApiError> {
    let work = |context: &apply::Context<'_>| apply::apply(live, applied, force, context);
    match with_context(cx, now, work).await {
        (_, Some(failure)) => Err(failure),
        (applied, None) => applied.map_err(refused),
    }
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

#[cfg(test)]
mod tests {
    use plinth_codec::{json, tree};
    use plinth_registry::{custom_rows, take_schemas, Definition, DefinitionNames};

    use super::*;

    #[test]
    fn a_failing_webhook_is_called_once() {
        let text = br#"{"metadata":{"name":"cars.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
            "names":{"plural":"cars","singular":"car","kind":"Car","listKind":"CarList"},"versions":[{"name":"v1",
            "served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
        let mut definition = json::parse(text).unwrap();
        let names = DefinitionNames::of(definition.at(&["spec", "names"]));
        let schemas = take_schemas(&mut definition);
        let rows = custom_rows(&Arc::new(Definition::new(&definition, &schemas, names)), "v1").unwrap();
        let version = rows.stored.custom.as_ref().unwrap();
        let mut conversions = Conversions::default();
        let object = |n: i64| tree!({ "n": n });
        assert_eq!(conversions.ask(version, &object(1)), None);
        assert!(conversions.open.take().is_some());
        conversions.answer(Ok(object(10)));
        assert_eq!(conversions.ask(version, &object(1)), Some(object(10)));
        assert_eq!(conversions.ask(version, &object(2)), None);
        assert!(conversions.open.take().is_some());
        conversions.answer(Err(ApiError::internal("it hangs")));
        assert_eq!(conversions.ask(version, &object(1)), Some(object(10)));
        assert_eq!(conversions.ask(version, &object(2)), None);
        assert_eq!(conversions.ask(version, &object(3)), None);
        assert!(conversions.open.take().is_none() && conversions.failure.is_some());
    }
}
