//! Upstream's errors for a patched object with values of wrong types.
//!
//! After a strategic merge patch upstream converts to its typed object without JSON (k8s.io/apimachinery
//! `runtime.DefaultUnstructuredConverter`), with other messages than its decoder: it follows the order of
//! Go's fields, stops at the first error and names no path. It also takes `2.0` for an integer.

use crate::json::{self, go_type, DecodeOptions};
use crate::schema::{Scalar, Schema, Type, TypeId};
use crate::value::level;
use crate::Value;

/// Converts numbers without a fraction to integers where the type requires it.
///
/// # Errors
/// The message for the first value of a wrong type.
pub fn restore(value: &mut Value, schema: &Schema, id: TypeId) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    let kind = kind(value);
    match schema.get(id) {
        Type::Struct(s) => {
            if value.as_object().is_none() {
                return Err(format!("cannot restore struct from: {kind}"));
            }
            s.fields.iter().try_for_each(|field| match value.get_mut(&field.name) {
                Some(member) => level(|| restore(member, schema, field.type_id)),
                None => Ok(()),
            })
        }
        Type::Map { value: inner, .. } => match value.as_object_mut() {
            Some(map) => map.iter_mut().try_for_each(|(_, member)| level(|| restore(member, schema, *inner))),
            None => Err(format!("cannot restore map from {kind}")),
        },
        Type::List { element, .. } => match value.as_array_mut() {
            Some(list) => list.iter_mut().try_for_each(|item| level(|| restore(item, schema, *element))),
            None => Err(format!("cannot restore slice from {kind}")),
        },
        Type::Scalar(scalar) => leaf(value, scalar, schema, id),
    }
}

fn leaf(value: &mut Value, scalar: &Scalar, schema: &Schema, id: TypeId) -> Result<(), String> {
    let convert = |from: &str| Err(format!("cannot convert {from} to {}", go_type(schema, id)));
    let unrecognized = |kind: &str| Err(format!("unrecognized type: {kind}"));
    match (scalar, &*value) {
        (Scalar::Any, _) | (Scalar::Bool, Value::Bool(_)) => Ok(()),
        (Scalar::Int32 | Scalar::Int64, Value::Int(_))
        | (Scalar::Double, Value::Int(_) | Value::Float(_)) => Ok(()),
        (Scalar::Int32 | Scalar::Int64, Value::Float(n)) => {
            if n.fract() != 0.0 {
                return convert("float64");
            }
            // Values out of range are left for the decoder to refuse; upstream truncates them.
            if n.abs() < i64::MAX as f64 {
                *value = Value::Int(*n as i64);
            }
            Ok(())
        }
        (Scalar::String { .. }, Value::String(_)) => Ok(()),
        (Scalar::String { .. }, Value::Int(_)) => convert("int64"),
        (Scalar::String { .. }, _) => unrecognized("string"),
        (Scalar::Bool, _) => unrecognized("bool"),
        (Scalar::Int32, _) => unrecognized("int32"),
        (Scalar::Int64, _) => unrecognized("int64"),
        (Scalar::Double, _) => unrecognized("float64"),
        (Scalar::Bytes, Value::Array(_)) => decoded(value, schema, id),
        (Scalar::Bytes, Value::String(_)) => {
            decoded(value, schema, id).map_err(|why| format!("error decoding from json: {why}"))
        }
        (Scalar::Bytes, other) => Err(format!("cannot restore slice from {}", kind(other))),
        // These types decode JSON themselves, in upstream as well.
        _ => decoded(value, schema, id),
    }
}

fn decoded(value: &Value, schema: &Schema, id: TypeId) -> Result<(), String> {
    let outcome = json::conform(value.clone(), schema, id, &DecodeOptions::default());
    outcome.map(drop).map_err(|error| error.to_string())
}

/// Go's kind of a decoded value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) | Value::Encoded(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{self, GVK};

    fn restored(group: &str, version: &str, kind: &str, object: &str) -> Result<Value, String> {
        let schema = schema::builtin();
        let root = schema.kind(&GVK::new(group, version, kind)).unwrap();
        let mut value = json::parse(object.as_bytes()).unwrap();
        restore(&mut value, schema, root).map(|()| value)
    }

    #[test]
    fn values_of_wrong_types_by_table() {
        // kube-apiserver's messages for a Deployment.
        let rows = [
            (r#"{"kind":1}"#, "cannot convert int64 to string"),
            (r#"{"metadata":[]}"#, "cannot restore struct from: slice"),
            (r#"{"metadata":1e30}"#, "cannot restore struct from: float64"),
            (r#"{"metadata":{"labels":[]}}"#, "cannot restore map from slice"),
            (r#"{"metadata":{"labels":{"a":1}}}"#, "cannot convert int64 to string"),
            (r#"{"metadata":{"labels":{"a":true}}}"#, "unrecognized type: string"),
            (r#"{"metadata":{"finalizers":"x"}}"#, "cannot restore slice from string"),
            (r#"{"metadata":{"finalizers":{}}}"#, "cannot restore slice from map"),
            (r#"{"metadata":{"ownerReferences":[{"uid":1}]}}"#, "cannot convert int64 to types.UID"),
            (
                r#"{"metadata":{"creationTimestamp":1}}"#,
                "json: cannot unmarshal number into Go value of type string",
            ),
            (r#"{"spec":{"replicas":"1"}}"#, "unrecognized type: int32"),
            (r#"{"spec":{"replicas":1.5}}"#, "cannot convert float64 to int32"),
            (r#"{"spec":{"paused":1}}"#, "unrecognized type: bool"),
            (
                r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":{}}}}}"#,
                "json: cannot unmarshal object into Go value of type int32",
            ),
            // The first in the order of Go's fields.
            (r#"{"spec":{"paused":1,"replicas":"1"},"metadata":{"name":{}}}"#, "unrecognized type: string"),
        ];
        for (object, text) in rows {
            assert_eq!(restored("apps", "v1", "Deployment", object), Err(text.to_owned()), "{object}");
        }
        let secret = r#"{"data":{"a":"%"}}"#;
        let text = "error decoding from json: illegal base64 data at input byte 0";
        assert_eq!(restored("", "v1", "Secret", secret), Err(text.to_owned()));
    }

    #[test]
    fn whole_numbers_are_integers() {
        let object = r#"{"spec":{"replicas":2.0,"selector":null}}"#;
        let value = restored("apps", "v1", "Deployment", object).unwrap();
        assert_eq!(value.at(&["spec", "replicas"]), Some(&Value::Int(2)));
    }
}
