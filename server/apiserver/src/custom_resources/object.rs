//! Custom resources: conforms request bodies, encodes objects for storage, and upgrades stored objects.
//!
//! A stored object carries the stamp of the schema that it was conformed to. While that is the schema of the
//! requested version, the stored bytes are served as they are, as with built-in kinds. Objects stored under
//! another schema or in another version are upgraded when they are read: conformed to and defaulted by the
//! schema of their own version, converted, conformed again (as `crdConversionRESTOptionsGetter` of
//! k8s.io/apiextensions-apiserver does).

use std::time::Instant;

use bytes::Bytes;
use plinth_codec::error::StrictError;
use plinth_codec::{json, Map, Value};
use plinth_structural::{Conform, ConformError};

use super::{webhook, Converter};
use plinth_api::ApiError;
use plinth_registry::{ConversionStrategy, CustomVersion, Definition, DefinitionVersion, ResourceType};
use plinth_storage::{Header, HeaderFields, Stored, BODY_START};

/// Conforms a decoded object to the schema of its version and applies defaults; returns unknown fields.
///
/// # Errors
/// The decoder's error for metadata of a wrong type.
pub fn conform(
    custom: &CustomVersion,
    tree: &mut Value,
    strict: bool,
) -> Result<Result<Vec<StrictError>, ConformError>, ApiError> {
    let Some(compiled) = custom.compiled()? else { return Ok(Ok(Vec::new())) };
    if custom.definition.preserves_unknown {
        return Ok(Ok(Vec::new()));
    }
    let options = Conform { strict, drop_invalid_metadata: false };
    let outcome = compiled.structural.conform(tree, &options);
    if outcome.is_ok() {
        compiled.structural.default(tree);
    }
    Ok(outcome)
}

/// Completes the result of an apply: defaults, and metadata as the decoder would produce it.
///
/// # Errors
/// 500 when the schema cannot be compiled.
pub fn complete(custom: &CustomVersion, tree: &mut Value) -> Result<(), ApiError> {
    if let Some(compiled) = custom.compiled()? {
        compiled.structural.default(tree);
        compiled.structural.normalize(tree);
    }
    Ok(())
}

/// How a stored value becomes the served one.
pub enum ReadOutcome {
    /// The stored value is what the resource serves.
    AsStored,
    /// The converted value.
    Converted(Bytes),
    /// The webhook must convert this tree, then [`finish`].
    NeedsWebhook(Value),
}

/// Whether a stored value is what the resource serves, according to its header.
pub fn is_current(custom: &CustomVersion, header: &Header<'_>) -> bool {
    let wanted = custom.version();
    header.schema() == wanted.schema.stamp() && (header.version() == wanted.name || custom.converts_by_name())
}

/// Converts a decrypted stored value as far as possible without the webhook.
///
/// # Errors
/// 500 when it cannot be decoded, or is in a version that the definition does not have.
pub fn read(custom: &CustomVersion, value: &[u8]) -> Result<ReadOutcome, ApiError> {
    let stored = Stored::parse(value).map_err(ApiError::internal)?;
    if is_current(custom, &stored) {
        return Ok(ReadOutcome::AsStored);
    }
    let target = custom.version();
    let same_version = stored.version() == target.name;
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
    complete_stored(&custom.definition, from, &mut tree)?;
    if same_version {
        return Ok(ReadOutcome::Converted(encode(from, tree)?));
    }
    if !custom.converts_by_name() {
        return Ok(ReadOutcome::NeedsWebhook(tree));
    }
    set_type(&custom.definition, &mut tree, target);
    finish(custom, tree).map(ReadOutcome::Converted)
}

/// The stored form of an object that another API server has stored in that version: conformed to and
/// defaulted by its schema, as a read does.
///
/// # Errors
/// 500 when it cannot be conformed.
pub fn adopt(
    definition: &Definition,
    version: &DefinitionVersion,
    mut tree: Value,
) -> Result<Bytes, ApiError> {
    complete_stored(definition, version, &mut tree)?;
    encode(version, tree)
}

/// Conforms and encodes a converted tree.
///
/// # Errors
/// 500 when it cannot be conformed.
pub fn finish(custom: &CustomVersion, mut tree: Value) -> Result<Bytes, ApiError> {
    normalize(&custom.definition, custom.version(), &mut tree, false)?;
    encode(custom.version(), tree)
}

/// The stored form of a tree in the resource's own version.
///
/// # Errors
/// 500 when it cannot be converted.
pub async fn to_stored(
    converter: &Converter,
    resource: &ResourceType,
    tree: Value,
) -> Result<Bytes, ApiError> {
    let Some(custom) = &resource.custom else { return plinth_storage::encode_object(resource, tree) };
    let (own, target) = (custom.version(), custom.stored());
    if own.name == target.name {
        return encode(target, tree);
    }
    let mut tree =
        convert(converter, custom, target, vec![tree]).await?.into_iter().next().unwrap_or_default();
    normalize(&custom.definition, target, &mut tree, false)?;
    encode(target, tree)
}

/// Converts trees of one version to another version of their definition.
///
/// # Errors
/// 500 when the webhook fails.
pub async fn convert(
    converter: &Converter,
    custom: &CustomVersion,
    to: &DefinitionVersion,
    mut trees: Vec<Value>,
) -> Result<Vec<Value>, ApiError> {
    match &custom.definition.conversion {
        ConversionStrategy::None => {
            trees.iter_mut().for_each(|tree| set_type(&custom.definition, tree, to));
            Ok(trees)
        }
        ConversionStrategy::Webhook(webhook) => {
            let api_version = format!("{}/{}", custom.definition.group, to.name);
            // Boxed, so that the state of every request need not have room for it.
            let from = trees.first().and_then(|tree| tree.str_at(&["apiVersion"])).unwrap_or_default();
            let from = from.rsplit('/').next().unwrap_or_default().to_owned();
            let begun = Instant::now();
            let outcome = Box::pin(webhook::convert(webhook, converter, &api_version, trees)).await;
            if from != to.name {
                let versions = [from.as_str(), to.name.as_str()];
                converter.metrics.converted(
                    &custom.definition.name,
                    versions,
                    outcome.is_ok(),
                    begun.elapsed(),
                );
            }
            outcome
        }
    }
}

/// A tree of another version in the resource's own, where versions differ in their name only. `None` when it
/// does not fit the schema.
pub(crate) fn renamed(custom: &CustomVersion, mut tree: Value) -> Option<Value> {
    set_type(&custom.definition, &mut tree, custom.version());
    normalize(&custom.definition, custom.version(), &mut tree, false).ok()?;
    Some(tree)
}

/// A tree of another version in the resource's own, by the webhook where the definition has one.
///
/// # Errors
/// 500 when it fails, or when its answer does not fit the schema.
pub async fn converted(
    converter: &Converter,
    custom: &CustomVersion,
    tree: Value,
) -> Result<Value, ApiError> {
    let mut trees = convert(converter, custom, custom.version(), vec![tree]).await?;
    let mut tree = trees.pop().unwrap_or_default();
    normalize(&custom.definition, custom.version(), &mut tree, false)?;
    Ok(tree)
}

fn set_type(definition: &Definition, tree: &mut Value, version: &DefinitionVersion) {
    if let Some(object) = tree.as_object_mut() {
        object.insert("apiVersion", format!("{}/{}", definition.group, version.name));
        object.insert("kind", definition.names.kind.clone());
    }
}

/// Brings a stored tree to what its own version's schema requires.
fn complete_stored(
    definition: &Definition,
    version: &DefinitionVersion,
    tree: &mut Value,
) -> Result<(), ApiError> {
    set_type(definition, tree, version);
    normalize(definition, version, tree, true)?;
    if let Some(compiled) = version.schema.compiled()? {
        compiled.structural.default(tree);
    }
    Ok(())
}

/// Conforms a tree to the schema of its version.
fn normalize(
    definition: &Definition,
    version: &DefinitionVersion,
    tree: &mut Value,
    lenient: bool,
) -> Result<(), ApiError> {
    if definition.preserves_unknown {
        return Ok(());
    }
    if let Some(compiled) = version.schema.compiled()? {
        let options = Conform { strict: false, drop_invalid_metadata: lenient };
        compiled.structural.conform(tree, &options).map_err(ApiError::internal)?;
    }
    Ok(())
}

/// Stamp of an object that lacks defaults: that of no schema, so that it is conformed whenever it is read. An
/// empty one is that of built-in kinds, by which encryption at rest knows them.
const LACKS_DEFAULTS: &str = "-";

/// Header and body of a tree that is in that version and conforms to its schema. Where reading still
/// has to apply defaults, those of a status that a create has cleared, the stamp is [`LACKS_DEFAULTS`].
fn encode(version: &DefinitionVersion, tree: Value) -> Result<Bytes, ApiError> {
    let lacks_defaults = match version.schema.compiled()? {
        Some(compiled) if compiled.structural.has_defaults() => {
            compiled.structural.default(&mut tree.clone())
        }
        _ => false,
    };
    let stamp = if lacks_defaults { LACKS_DEFAULTS } else { version.schema.stamp() };
    let Value::Object(mut object) = tree else { return Err(ApiError::internal("an object that is none")) };
    let Some(Value::Object(mut metadata)) = object.remove("metadata") else {
        return Err(ApiError::internal("object without metadata"));
    };
    metadata.remove("resourceVersion");
    let mut body = Vec::with_capacity(2048);
    // A stored body starts with the metadata; the other members follow in order.
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
    let fields = plinth_registry::selected_fields(version, &object);
    let header = HeaderFields {
        version: &version.name,
        schema: stamp,
        fields,
        ..HeaderFields::of_metadata(metadata.as_object())
    };
    Ok(header.encode(length, &body))
}
