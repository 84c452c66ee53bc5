//! Migration from client-side `kubectl apply`: its annotation holds the configuration that was applied last.

use super::compare::compare;
use super::context::Context;
use super::extract::field_set;
use super::set::Set;
use super::{text, validate};
use crate::json;
use crate::value::Value;

/// The manager to which this applies; another name opts out.
pub const KUBECTL: &str = "kubectl";

/// Holds the configuration that was applied last.
pub const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Maximum total size of the annotations of an object in bytes, keys and values.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The fields of the last client-side configuration that still have its values: kubectl may take these from
/// any manager. `None` without a readable annotation of the same version.
pub(super) fn fields(live: &Value, context: &Context<'_>) -> Option<Set> {
    let annotation = live.str_at(&["metadata", "annotations", ANNOTATION]).filter(|a| !a.is_empty())?;
    let last = text::parse(annotation)?;
    if last.get("apiVersion")?.as_str()? != context.kind.api_version() {
        return None;
    }
    if validate::errors(context.schema, context.root, &last).is_some() {
        return None;
    }
    let set = field_set(context.schema, context.root, &last);
    let since = compare(context.schema, context.root, &last, live);
    Some(set.difference(&since.modified).difference(&since.added).difference(&since.removed))
}

/// Updates an existing annotation with the applied configuration. Returns whether it changed.
pub(super) fn update(object: &mut Value, applied: &Value) -> bool {
    if object.str_at(&["metadata", "annotations", ANNOTATION]).is_none_or(str::is_empty) {
        return false;
    }
    let mut config = applied.clone();
    if let Some(Value::Object(annotations)) =
        config.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"))
    {
        annotations.remove(ANNOTATION);
    }
    let text = text::written("", |out| {
        json::write_untyped(&config, out);
        out.push(b'\n');
    });

    let Some(annotations) = object.object_at_mut(&["metadata", "annotations"]) else { return false };
    let old = annotations.insert(ANNOTATION, text);
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
    old.as_ref() != annotations.get(ANNOTATION)
}
