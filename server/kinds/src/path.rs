//! Reads fields by dotted paths.

use plinth_codec::Value;

/// Splits a dotted path into its first key and the rest. Paths are short and mostly one key, so comparing
/// byte by byte is faster than `memchr`.
pub(crate) fn first_key(path: &str) -> (&str, Option<&str>) {
    match path.bytes().position(|byte| byte == b'.') {
        Some(dot) => (&path[..dot], Some(&path[dot + 1..])),
        None => (path, None),
    }
}

/// The value at a dotted path.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    match first_key(path) {
        (key, None) => object.get(key).filter(|value| !value.is_null()),
        (key, Some(rest)) => at(object.get(key)?, rest),
    }
}

pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).unwrap_or_default()
}

pub(crate) fn int(object: &Value, path: &str) -> Option<i64> {
    at(object, path).and_then(Value::as_int)
}

pub(crate) fn texts<'a>(object: &'a Value, path: &str) -> Vec<&'a str> {
    list(object, path).iter().map(|text| text.as_str().unwrap_or_default()).collect()
}

pub(crate) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

pub(crate) fn int_or_zero(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_int).unwrap_or(0)
}

/// The truth value at a dotted path; false when absent.
pub(crate) fn flag(object: &Value, path: &str) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or_default()
}
