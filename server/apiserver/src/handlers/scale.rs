//! The scale subresource: `autoscaling/v1` Scale for all resources with replicas.

use hyper::{Response, StatusCode};
use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::negotiate::Shape;
use plinth_codec::schema::{self, TypeId, GVK};
use plinth_codec::selector::LabelSelector;
use plinth_codec::{tree, Map, Value};

use super::patch::PatchedType;
use super::respond::respond;
use super::write::{self, ManagedFields, ShownAs, Update, Updated};
use super::{body, patch, Context};
use crate::managed_fields::ScaleOwners;
use crate::representation::{Item, Representation};
use plinth_api::{metadata_mut, metadata_text, timestamp_now, ApiError, Cause, Verb};
use plinth_http::{Body, RequestBody};
use plinth_registry::ResourceType;
use plinth_storage::decode_object;

pub(super) async fn scale(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    match cx.info.verb {
        Verb::Get => {
            let record = cx.newest(&cx.info.object_key(&cx.resource)?).await?;
            let record = cx.convert_record(record.ok_or_else(|| cx.not_found())?).await?;
            let object = decode_object(&cx.resource, &record)?;
            let scale = to_scale(&cx.resource, &object);
            if !paths(&cx.resource).is_set(&object) {
                let path = &paths(&cx.resource).spec;
                return Err(ApiError::internal(format!(
                    "the spec replicas field \".{}\" does not exist",
                    path.join(".")
                )));
            }
            answer(&representation, &scale)
        }
        Verb::Update => {
            cx.query.check_write_options("UpdateOptions")?;
            let (gvk, root) = kind()?;
            let scale = body::read_as(&cx, incoming, (&gvk, root)).await?;
            set(&cx, &representation, ScaleChange::Replace(&scale)).await
        }
        Verb::Patch => {
            let patch = patch::read(&cx, incoming).await?;
            set(&cx, &representation, ScaleChange::Patch(&patch)).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The kind of Scale and its type.
fn kind() -> Result<(GVK, TypeId), ApiError> {
    body::builtin_kind("autoscaling", "v1", "Scale")
}

/// A change of a Scale.
#[derive(Clone, Copy)]
enum ScaleChange<'a> {
    /// Replace it by this one.
    Replace(&'a Value),
    /// Apply this patch.
    Patch(&'a patch::Patch),
}

impl ScaleChange<'_> {
    /// The Scale after the change, with its owners; `None` when nothing changes.
    fn make(self, cx: &Context, owners: &ScaleOwners<'_>, before: &Value) -> Result<Option<Value>, ApiError> {
        let (gvk, root) = kind()?;
        let (kind, now) = ((&gvk, root), timestamp_now());
        let mut after = match self {
            ScaleChange::Replace(scale) => {
                write::check_name(scale, &cx.info.name)?;
                scale.clone()
            }
            ScaleChange::Patch(patch) if patch.is_apply() => {
                let force = cx.query.force == Some(true);
                let Some(scale) = owners.apply(before, patch.document(), force, kind, &now)? else {
                    return Ok(None);
                };
                let decoded = json::conform(scale, schema::builtin(), root, &DecodeOptions::default());
                return decoded.map(|d| Some(d.value)).map_err(|e| ApiError::bad_request(e.to_string()));
            }
            ScaleChange::Patch(patch) => {
                let target = PatchedType { schema: schema::builtin(), root, gvk: &gvk };
                let (scale, warnings) = patch::apply(cx, patch, before, &target)?;
                warnings.into_iter().for_each(|text| cx.warnings.add(text));
                scale
            }
        };
        owners.track(before, &mut after, kind, &now);
        Ok(Some(after))
    }
}

async fn set(
    cx: &Context,
    representation: &Representation,
    change: ScaleChange<'_>,
) -> Result<Response<Body>, ApiError> {
    let owners = ScaleOwners::new(cx, |resource| {
        let scales = match &resource.custom {
            Some(custom) => custom.scale().is_some(),
            None => resource.row.subresource("scale").is_some(),
        };
        scales.then(|| paths(resource).spec)
    });
    let mut transform = |live: Option<&Value>| {
        let live = live.unwrap_or(&Value::Null);
        let mut before = to_scale(&cx.resource, live);
        owners.copy_to_scale(live, &mut before)?;
        let Some(after) = change.make(cx, &owners, &before)? else { return Ok(live.clone()) };
        let mut new = replace_replicas(cx, live, &after)?;
        owners.store_in_parent(&after, &mut new)?;
        Ok(new)
    };
    let update = Update {
        transform: &mut transform,
        uid_is_precondition: true,
        creates: false,
        // The owners have already been copied from the Scale.
        managed_fields: ManagedFields::Applied,
        shown_as: Some(&Scaled { cx, owners: &owners }),
    };
    let (Updated::Existing(written) | Updated::Created(written)) = write::update_object(cx, update).await?;
    let item = Item::new(&written.value, written.revision.unwrap_or_default())?;
    answer(representation, &to_scale(&cx.resource, &representation.tree(&item)?))
}

/// The Scale in place of what is scaled.
struct Scaled<'a> {
    cx: &'a Context,
    owners: &'a ScaleOwners<'a>,
}

impl ShownAs for Scaled<'_> {
    fn show(&self, object: &Value) -> Result<Value, ApiError> {
        let mut scale = to_scale(&self.cx.resource, object);
        self.owners.copy_to_scale(object, &mut scale)?;
        Ok(scale)
    }

    fn store(&self, shown: Value, object: &mut Value) -> Result<(), ApiError> {
        let (_, root) = kind()?;
        let scale = json::conform(shown, schema::builtin(), root, &DecodeOptions::default());
        let scale = scale.map_err(ApiError::internal)?.value;
        *object = replace_replicas(self.cx, object, &scale)?;
        self.owners.store_in_parent(&scale, object)
    }
}

fn answer(representation: &Representation, scale: &Value) -> Result<Response<Body>, ApiError> {
    let mut out = Vec::with_capacity(512);
    representation.scale(scale, &mut out)?;
    Ok(respond(StatusCode::OK, representation.content_type(Shape::Object), out))
}

/// Paths of the fields that Scale shows.
struct Paths<'a> {
    spec: Vec<&'a str>,
    status: Vec<&'a str>,
    /// A string in a custom resource, a selector in a built-in one.
    selector: Option<Vec<&'a str>>,
    is_custom: bool,
}

fn paths(resource: &ResourceType) -> Paths<'_> {
    match resource.custom.as_ref().and_then(|custom| custom.scale()) {
        Some(scale) => Paths {
            spec: scale.spec.steps(),
            status: scale.status.steps(),
            selector: scale.selector.as_ref().map(|path| path.steps()),
            is_custom: true,
        },
        None => Paths {
            spec: vec!["spec", "replicas"],
            status: vec!["status", "replicas"],
            selector: Some(vec!["spec", "selector"]),
            is_custom: false,
        },
    }
}

impl Paths<'_> {
    /// Whether the object has replicas; built-in kinds have a default.
    fn is_set(&self, object: &Value) -> bool {
        !self.is_custom || object.at(&self.spec).is_some()
    }

    fn selector(&self, object: &Value) -> String {
        let found = self.selector.as_ref().and_then(|path| object.at(path));
        match self.is_custom {
            true => found.and_then(Value::as_str).unwrap_or_default().to_owned(),
            false => selector_text(found),
        }
    }
}

/// The Scale of an object.
fn to_scale(resource: &ResourceType, object: &Value) -> Value {
    let paths = paths(resource);
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at(&["metadata", key]) {
            metadata.insert(key, value.clone());
        }
    }
    let number = |path: &[&str]| object.at(path).and_then(Value::as_int).unwrap_or(0);
    let mut status = Map::new();
    status.insert("replicas", number(&paths.status));
    let selector = paths.selector(object);
    if !selector.is_empty() {
        status.insert("selector", selector);
    }
    let mut spec = Map::new();
    if number(&paths.spec) != 0 {
        spec.insert("replicas", number(&paths.spec));
    }
    tree!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    })
}

/// The selector in query syntax: a replication controller's is a plain map.
fn selector_text(selector: Option<&Value>) -> String {
    let is_selector_object =
        selector.is_some_and(|s| s.get("matchLabels").is_some() || s.get("matchExpressions").is_some());
    let parsed = match (selector.and_then(Value::as_object), is_selector_object) {
        (Some(labels), false) => LabelSelector::from_map(
            labels.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))),
        ),
        _ => LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing()),
    };
    parsed.to_string()
}

fn replace_replicas(cx: &Context, live: &Value, scale: &Value) -> Result<Value, ApiError> {
    let replicas = scale.at(&["spec", "replicas"]).and_then(Value::as_int).unwrap_or(0);
    // For custom resources their own validation reports it, with their path.
    if replicas < 0 && !cx.resource.is_custom() {
        let why = "must be greater than or equal to 0";
        let cause = Cause::invalid("spec.replicas", replicas, why);
        return Err(ApiError::invalid("autoscaling", "Scale", &cx.info.name, vec![cause]));
    }
    let mut new = live.clone();
    let paths = paths(&cx.resource);
    if let Some((last, way)) = paths.spec.split_last() {
        if let Some(parent) = new.object_at_mut(way) {
            parent.insert(*last, replicas);
        }
    }
    let given = [
        ("name", metadata_text(scale, "name")),
        ("namespace", metadata_text(scale, "namespace")),
        ("resourceVersion", metadata_text(scale, "resourceVersion")),
        ("uid", metadata_text(scale, "uid")),
    ];
    let target = metadata_mut(&mut new)?;
    for (key, value) in given.into_iter().filter(|(_, value)| !value.is_empty()) {
        target.insert(key, value);
    }
    Ok(new)
}
