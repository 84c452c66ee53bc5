//! Validation of custom resources
//! (k8s.io/apiextensions-apiserver, `pkg/registry/customresource/validator.go`).

use plinth_codec::{names, patch::goprint, Value};

use crate::custom::definition::{JsonPath, ScalePaths};
use crate::custom::version::CustomVersion;
use crate::resource_type::ResourceType;
use plinth_api::{finalizers, is_standard_or_qualified_finalizer, ApiError, Cause};

/// Validates an object beyond its metadata. `old` is the object that it replaces; `subresource` selects the
/// validated part. None when the rules of the definition cost more units than `inline_limit`.
///
/// # Errors
/// 500 when the schema cannot be compiled.
pub fn definition_errors(
    resource: &ResourceType,
    custom: &CustomVersion,
    new: &Value,
    old: Option<&Value>,
    subresource: &str,
    inline_limit: Option<u64>,
) -> Result<Option<Vec<Cause>>, ApiError> {
    let mut errors = type_errors(resource, new);
    let Some(compiled) = custom.compiled()? else { return Ok(Some(errors)) };
    let schema = &compiled.structural;
    let found = match (old, subresource) {
        (None, _) => schema.validate_inline(new, inline_limit),
        (Some(old), "status") => schema.validate_status_update_inline(new, old, inline_limit),
        (Some(old), _) => schema.validate_update_inline(new, old, inline_limit),
    };
    let Some(found) = found else { return Ok(None) };
    errors.extend(found.into_iter().map(Cause::from));
    if let Some(scale) = custom.scale() {
        errors.extend(scale_errors(scale, new, subresource == "status"));
    }
    Ok(Some(errors))
}

fn type_errors(resource: &ResourceType, new: &Value) -> Vec<Cause> {
    let text = |key: &str| new.str_at(&[key]).unwrap_or_default();
    let mut errors = Vec::new();
    for (key, wanted) in [("kind", resource.row.kind.as_str()), ("apiVersion", resource.api_version.as_str())]
    {
        if text(key) != wanted {
            errors.push(Cause::invalid(key, text(key), &format!("must be {wanted}")));
        }
    }
    errors
}

/// Validates the fields that the subresource `scale` reads.
fn scale_errors(scale: &ScalePaths, object: &Value, status_only: bool) -> Vec<Cause> {
    let mut errors = Vec::new();
    if !status_only {
        errors.extend(replicas_error(&scale.spec, object));
    }
    errors.extend(replicas_error(&scale.status, object));
    if let Some(path) = &scale.selector {
        if let Err(why) = find(path, object, "string", |v| v.as_str().is_some()) {
            errors.push(Cause::invalid(path.text.as_str(), "", &why));
        }
    }
    errors
}

fn replicas_error(path: &JsonPath, object: &Value) -> Option<Cause> {
    let value = match find(path, object, "int64", |v| v.as_int().is_some()) {
        Ok(value) => value?.as_int()?,
        Err(why) => return Some(Cause::invalid(path.text.as_str(), 0, &why)),
    };
    let why = match value {
        n if n < 0 => "should be a non-negative integer".to_owned(),
        n if n > i64::from(i32::MAX) => format!("should be less than or equal to {}", i32::MAX),
        _ => return None,
    };
    Some(Cause::invalid(path.text.as_str(), value, &why))
}

/// The value at a path; `None` if absent. `expected` is upstream's name for the type that `fits` checks.
///
/// # Errors
/// When a value along the path, or at its end, has another type.
fn find<'v>(
    path: &JsonPath,
    object: &'v Value,
    expected: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Option<&'v Value>, String> {
    let mut at = object;
    for step in path.steps() {
        at = match at {
            Value::Null => return Ok(None),
            Value::Object(members) => match members.get(step) {
                Some(next) => next,
                None => return Ok(None),
            },
            other => return Err(accessor_error(path, other, "map[string]interface{}")),
        };
    }
    match fits(at) {
        true => Ok(Some(at)),
        false => Err(accessor_error(path, at, expected)),
    }
}

fn accessor_error(path: &JsonPath, value: &Value, expected: &str) -> String {
    format!(
        ".{} accessor error: {} is of the type {}, expected {expected}",
        path.steps().join("."),
        goprint::value(value),
        goprint::type_name(value)
    )
}

/// Rejects a create if the definition is being deleted (`forbidCreateAdmission` upstream).
///
/// # Errors
/// 403.
pub fn definition_stays(resource: &ResourceType, name: &str) -> Result<(), ApiError> {
    match &resource.custom {
        Some(custom) if custom.definition.is_terminating() => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(ApiError::forbidden(resource.group(), resource.plural(), name, why))
        }
        _ => Ok(()),
    }
}

/// Warnings for new finalizers that are not domain-qualified: custom resources may have them, but they may
/// collide.
pub fn finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    const PATH: &str = "metadata.finalizers";
    let before = old.map(finalizers).unwrap_or_default();
    let mut added: Vec<&str> = finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for finalizer in added {
        let errors = names::qualified_name_errors(finalizer);
        warnings.extend(errors.iter().map(|why| format!("{PATH}: {finalizer:?}: {why}")));
        if !is_standard_or_qualified_finalizer(finalizer) {
            let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
            warnings.push(format!(
                "{PATH}: {finalizer:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn replicas_by_table() {
        let path = JsonPath { text: ".spec.replicas".into() };
        let rows = [
            (r#"{}"#, None),
            (r#"{"spec":{"replicas":3}}"#, None),
            (r#"{"spec":{"replicas":-1}}"#, Some("Invalid value: -1: should be a non-negative integer")),
            (
                r#"{"spec":{"replicas":2147483648}}"#,
                Some("Invalid value: 2147483648: should be less than or equal to 2147483647"),
            ),
            (
                r#"{"spec":{"replicas":"many"}}"#,
                Some("Invalid value: 0: .spec.replicas accessor error: many is of the type string, expected int64"),
            ),
            (
                r#"{"spec":"none"}"#,
                Some("Invalid value: 0: .spec.replicas accessor error: none is of the type string, expected map[string]interface{}"),
            ),
            // Whether null is allowed is validated by the schema.
            (r#"{"spec":null}"#, None),
        ];
        for (object, expected) in rows {
            let error = replicas_error(&path, &json::parse(object.as_bytes()).unwrap());
            assert_eq!(error.map(|f| f.message).as_deref(), expected, "{object}");
        }
    }
}
