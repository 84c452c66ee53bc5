//! The scale subresource: one shape (`autoscaling/v1` Scale) over every resource that has replicas.

use hyper::{Response, StatusCode};
use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::negotiate::Shape;
use plinth_codec::schema::{self, TypeId, GVK};
use plinth_codec::selector::LabelSelector;
use plinth_codec::{tree, Map, Value};

use super::patch::Target;
use super::respond::respond;
use super::write::{self, Ownership, Update, Updated};
use super::{body, patch, Context};
use crate::ownership::ScaleOwners;
use crate::representation::{Item, Representation};
use plinth_api::api_error::ApiError;
use plinth_api::field;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_http::body::Body;
use plinth_http::request_body::RequestBody;
use plinth_registry::ResourceType;
use plinth_storage::object;

pub(super) async fn scale(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    match cx.info.verb {
        Verb::Get => {
            let record = cx.newest(cx.info.object_key(&cx.resource)?).await?;
            let record = cx.present(record.ok_or_else(|| cx.not_found())?).await?;
            let object = object::to_tree(&cx.resource, &record)?;
            let scale = of(&cx.resource, &object);
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
            let bytes = body::read(&cx, incoming).await?;
            let (gvk, root) = kind()?;
            let scale = body::decode(&cx, &bytes, schema::builtin(), root, &gvk)?.tree;
            set(&cx, &representation, Change::To(&scale)).await
        }
        Verb::Patch => {
            let patch = patch::read(&cx, incoming).await?;
            set(&cx, &representation, Change::By(&patch)).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// What Scale is, and its type.
fn kind() -> Result<(GVK, TypeId), ApiError> {
    let gvk = GVK::new("autoscaling", "v1", "Scale");
    let root = schema::builtin().kind(&gvk).ok_or_else(|| ApiError::internal("no type for Scale"))?;
    Ok((gvk, root))
}

/// How a Scale is to become another one.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// That one.
    To(&'a Value),
    /// The old one with that done to it.
    By(&'a patch::Patch),
}

impl Change<'_> {
    /// The Scale after the change, with its owners, or `None` when nothing changes.
    fn make(self, cx: &Context, owners: &ScaleOwners<'_>, before: &Value) -> Result<Option<Value>, ApiError> {
        let (gvk, root) = kind()?;
        let (kind, now) = ((&gvk, root), metadata::now());
        let mut after = match self {
            Change::To(scale) => {
                write::check_name(scale, &cx.info.name)?;
                scale.clone()
            }
            Change::By(patch) if patch.is_apply() => {
                let force = cx.query.force == Some(true);
                let Some(scale) = owners.apply(before, patch.document(), force, kind, &now)? else {
                    return Ok(None);
                };
                let decoded = json::conform(scale, schema::builtin(), root, &DecodeOptions::default());
                return decoded.map(|d| Some(d.value)).map_err(|e| ApiError::bad_request(e.to_string()));
            }
            Change::By(patch) => {
                let target = Target { schema: schema::builtin(), root, gvk: &gvk };
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
    change: Change<'_>,
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
        let mut before = of(&cx.resource, live);
        owners.show(live, &mut before)?;
        let Some(after) = change.make(cx, &owners, &before)? else { return Ok(live.clone()) };
        let mut new = replace_replicas(cx, live, &after)?;
        owners.keep(&after, &mut new)?;
        Ok(new)
    };
    // The owners are written down by now, as those of the Scale.
    let ownership = Ownership::Applied;
    let update = Update { transform: &mut transform, uid_is_precondition: true, creates: false, ownership };
    let (Updated::Existing(written) | Updated::Created(written)) = write::update_object(cx, update).await?;
    let item = Item::new(&written.value, written.revision.unwrap_or_default())?;
    answer(representation, &of(&cx.resource, &representation.tree(&item)?))
}

fn answer(representation: &Representation, scale: &Value) -> Result<Response<Body>, ApiError> {
    let mut out = Vec::with_capacity(512);
    representation.scale(scale, &mut out)?;
    Ok(respond(StatusCode::OK, representation.content_type(Shape::Object), out))
}

/// Where an object has what Scale shows.
struct Paths<'a> {
    spec: Vec<&'a str>,
    status: Vec<&'a str>,
    /// Of a custom resource, a text; of a built-in one a selector.
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
    /// Whether the object says how many it wants; built-in kinds have a number for those that do not.
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
fn of(resource: &ResourceType, object: &Value) -> Value {
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

/// The selector as a query parameter would have it: a replication controller's is a plain map.
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
    // What a definition's objects may have is said with their path, by their own validation.
    if replicas < 0 && !cx.resource.is_custom() {
        let why = "must be greater than or equal to 0";
        let cause = field::invalid("spec.replicas", replicas, why);
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
        ("name", metadata::text(scale, "name")),
        ("namespace", metadata::text(scale, "namespace")),
        ("resourceVersion", metadata::text(scale, "resourceVersion")),
        ("uid", metadata::text(scale, "uid")),
    ];
    let target = metadata::of(&mut new)?;
    for (key, value) in given.into_iter().filter(|(_, value)| !value.is_empty()) {
        target.insert(key, value);
    }
    Ok(new)
}
