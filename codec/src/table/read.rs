//! Reading an object tree by dotted paths, with the zero values that Go's structs have for absent fields.
//!
//! The trees are complete, or reduced by [`super::project`] to what a table reads, with lists and maps
//! replaced by their length where only that is read.

use crate::Value;

/// The value at a dotted path; `None` when absent or `null`.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let (mut value, mut rest) = (object, path);
    // Paths are short; `str::split` costs more to set up than this takes.
    while let Some(dot) = rest.bytes().position(|b| b == b'.') {
        value = value.get(&rest[..dot])?;
        rest = &rest[dot + 1..];
    }
    value.get(rest).filter(|v| !v.is_null())
}

/// The text at a path; empty when absent.
pub(super) fn str_at<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a path; 0 when absent.
pub(super) fn int_at(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_int).unwrap_or_default()
}

/// The list at a path; empty when absent.
pub(super) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).unwrap_or_default()
}

/// The members of the map at a path with text for values; none when absent.
pub fn pairs<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = at(object, path).and_then(Value::as_object);
    map.into_iter().flat_map(|m| m.iter()).map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()))
}

/// How many elements the list or map at a path has; 0 when absent.
pub fn count(object: &Value, path: &str) -> i64 {
    match at(object, path) {
        Some(Value::Array(items)) => items.len() as i64,
        Some(Value::Object(map)) => map.len() as i64,
        Some(Value::Int(n)) => *n,
        _ => 0,
    }
}

/// Texts joined by a separator.
pub fn join<'a>(texts: impl Iterator<Item = &'a str>, separator: &str) -> String {
    let mut out = String::new();
    for (i, text) in texts.enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
    }
    out
}

/// The first condition of a type; `None` when there is none.
pub fn condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|c| str_at(c, "type") == kind)
}
