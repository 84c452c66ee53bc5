//! Objects of custom resources: from a body to a tree, from a tree to what is stored, from there to what is served.
//!
//! A stored object carries the stamp of the schema that it was brought to. As long as that schema is the one of the
//! version asked for, the bytes stored are the bytes served, as with built-in kinds. Objects that were stored under
//! another schema or in another version are brought to the present one when they are read: conformed to and defaulted by
//! the schema of their own version, converted, conformed again (as `crdConversionRESTOptionsGetter` of
//! k8s.io/apiextensions-apiserver does).

use bytes::Bytes;
use plinth_codec::error::StrictError;
use plinth_codec::{json, Map, Value};
use plinth_structural::{Conform, ConformError};

use super::{webhook, Presenter};
use plinth_api::api_error::ApiError;
use plinth_registry::custom::definition::{Conversion, Version};
use plinth_registry::custom::CustomVersion;
use plinth_registry::ResourceType;
use plinth_storage::stored::{Head, Header, Stored, BODY_START};

/// Brings a decoded object to the schema of its version and fills in defaults; gives back unknown fields.
///
/// # Errors
/// What the decoder has to say of metadata of a wrong type.
pub fn conform(
    custom: &CustomVersion,
    tree: &mut Value,
    strict: bool,
) -> Result<Result<Vec<StrictError>, ConformError>, ApiError> {
    let Some(compiled) = custom.compiled()? else { return Ok(Ok(Vec::new())) };
    if custom.definition.preserves_unknown {
        return Ok(Ok(Vec::new()));
    }
    let how = Conform { strict, drop_invalid_metadata: false };
    let outcome = compiled.structural.conform(tree, &how);
    if outcome.is_ok() {
        compiled.structural.default(tree);
    }
    Ok(outcome)
}

/// What an apply has merged, with defaults, and its metadata as if decoded.
///
/// # Errors
/// 500 when the schema cannot be compiled.
pub fn complete(custom: &CustomVersion, tree: &mut Value) -> Result<(), ApiError> {
    if let Some(compiled) = custom.compiled()? {
        compiled.structural.default(tree);
        compiled.structural.settle(tree);
    }
    Ok(())
}

/// What it takes to serve a stored value.
pub enum Reading {
    /// Nothing: the value is what the resource serves.
    AsStored,
    /// This value.
    Made(Bytes),
    /// The conversion of this tree by the webhook, then [`finish`].
    Remote(Value),
}

/// Whether what is stored is what the resource serves, which the header tells.
pub fn is_current(custom: &CustomVersion, head: &Head<'_>) -> bool {
    let wanted = custom.version();
    head.schema() == wanted.schema.stamp() && (head.version() == wanted.name || custom.converts_by_name())
}

/// Looks at a stored value in plain text.
///
/// # Errors
/// 500 when it cannot be read, or is in a version that the definition does not have.
pub fn read(custom: &CustomVersion, value: &[u8]) -> Result<Reading, ApiError> {
    let stored = Stored::parse(value).map_err(ApiError::internal)?;
    if is_current(custom, &stored) {
        return Ok(Reading::AsStored);
    }
    let wanted = custom.version();
    let same_version = stored.version() == wanted.name;
    let Some(from) = custom.definition.position(stored.version()) else {
        return Err(ApiError::internal(format!(
            "request to convert CR from an invalid group/version: {}/{}",
            custom.definition.group,
            stored.version()
        )));
    };
    let from = &custom.definition.versions[from];
    let mut tree =
        json::parse(stored.body()).map_err(|e| ApiError::internal(format!("stored object: {e}")))?;
    set_type(custom, &mut tree, from);
    normalise(custom, from, &mut tree, true)?;
    if let Some(compiled) = from.schema.compiled()? {
        compiled.structural.default(&mut tree);
    }
    if same_version {
        return Ok(Reading::Made(encode(from, tree)?));
    }
    if !custom.converts_by_name() {
        return Ok(Reading::Remote(tree));
    }
    set_type(custom, &mut tree, wanted);
    finish(custom, tree).map(Reading::Made)
}

/// What a converted tree becomes.
///
/// # Errors
/// 500 when it cannot be brought to the schema.
pub fn finish(custom: &CustomVersion, mut tree: Value) -> Result<Bytes, ApiError> {
    normalise(custom, custom.version(), &mut tree, false)?;
    encode(custom.version(), tree)
}

/// The stored form of a tree in the resource's own version.
///
/// # Errors
/// 500 when it cannot be converted.
pub async fn to_stored(
    presenter: &Presenter,
    resource: &ResourceType,
    tree: Value,
) -> Result<Bytes, ApiError> {
    let Some(custom) = &resource.custom else { return plinth_storage::object::to_stored(resource, tree) };
    let (own, target) = (custom.version(), custom.stored());
    if own.name == target.name {
        return encode(target, tree);
    }
    let mut tree =
        convert(presenter, custom, target, vec![tree]).await?.into_iter().next().unwrap_or_default();
    normalise(custom, target, &mut tree, false)?;
    encode(target, tree)
}

/// Trees of one version in another version of their definition.
///
/// # Errors
/// 500 when the webhook fails.
pub async fn convert(
    presenter: &Presenter,
    custom: &CustomVersion,
    to: &Version,
    mut trees: Vec<Value>,
) -> Result<Vec<Value>, ApiError> {
    match &custom.definition.conversion {
        Conversion::None => {
            trees.iter_mut().for_each(|tree| set_type(custom, tree, to));
            Ok(trees)
        }
        Conversion::Webhook(webhook) => {
            let api_version = format!("{}/{}", custom.definition.group, to.name);
            // On the heap, so that the state of every request need not have room for it.
            Box::pin(webhook::convert(webhook, presenter, &api_version, trees)).await
        }
    }
}

/// A tree in another version, for field ownership, which cannot wait.
///
/// A webhook is waited for on a thread of the runtime, whose other tasks go on elsewhere meanwhile. There are not threads without
/// end for that, so only so many wait at once, and none is also an answer.
pub fn convert_now(
    presenter: &Presenter,
    custom: &CustomVersion,
    to: &Version,
    mut tree: Value,
) -> Option<Value> {
    match custom.converts_by_name() {
        true => set_type(custom, &mut tree, to),
        false => {
            let handle = tokio::runtime::Handle::try_current().ok()?;
            let work = convert(presenter, custom, to, vec![tree]);
            let waited =
                presenter.remote_waits.block_on(|| tokio::task::block_in_place(|| handle.block_on(work)));
            tree = waited.ok()?.ok()?.into_iter().next()?;
        }
    }
    normalise(custom, to, &mut tree, false).ok()?;
    Some(tree)
}

fn set_type(custom: &CustomVersion, tree: &mut Value, version: &Version) {
    if let Some(object) = tree.as_object_mut() {
        object.insert("apiVersion", format!("{}/{}", custom.definition.group, version.name));
        object.insert("kind", custom.definition.names.kind.clone());
    }
}

/// Conforms a tree to the schema of its version.
fn normalise(
    custom: &CustomVersion,
    version: &Version,
    tree: &mut Value,
    lenient: bool,
) -> Result<(), ApiError> {
    if custom.definition.preserves_unknown {
        return Ok(());
    }
    if let Some(compiled) = version.schema.compiled()? {
        let how = Conform { strict: false, drop_invalid_metadata: lenient };
        compiled.structural.conform(tree, &how).map_err(ApiError::internal)?;
    }
    Ok(())
}

/// Header and body of a tree that is in that version and conforms to its schema. The stamp is left out where reading
/// still has defaults to fill in: those of a status that a create has cleared.
fn encode(version: &Version, tree: Value) -> Result<Bytes, ApiError> {
    let lacks_defaults = match version.schema.compiled()? {
        Some(compiled) if compiled.structural.has_defaults() => {
            compiled.structural.default(&mut tree.clone())
        }
        _ => false,
    };
    let stamp = if lacks_defaults { "" } else { version.schema.stamp() };
    let Value::Object(mut object) = tree else { return Err(ApiError::internal("an object that is none")) };
    let Some(Value::Object(mut metadata)) = object.remove("metadata") else {
        return Err(ApiError::internal("object without metadata"));
    };
    metadata.remove("resourceVersion");
    let mut body = Vec::with_capacity(2048);
    // The metadata comes first in a stored body; the other members follow in order.
    body.extend_from_slice(&BODY_START[..BODY_START.len() - 1]);
    let metadata = Value::Object(metadata);
    json::write_untyped(&metadata, &mut body);
    let length = body.len() + 1 - BODY_START.len();
    let object = Value::Object(object);
    for (key, value) in object.as_object().into_iter().flat_map(Map::iter) {
        if matches!(key.as_str(), "apiVersion" | "kind") {
            continue;
        }
        body.push(b',');
        json::write_string(key, &mut body);
        body.push(b':');
        json::write_untyped(value, &mut body);
    }
    body.push(b'}');
    let fields = plinth_registry::custom::rows::selected(version, &object);
    let header =
        Header { version: &version.name, schema: stamp, fields, ..Header::of_metadata(metadata.as_object()) };
    Ok(header.encode(length, &body))
}
