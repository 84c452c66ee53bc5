//! The JSON text inside of path elements (`k:{"name":"a"}`, `v:"a"`) and of kubectl's annotation: compact, keys
//! sorted.
//!
//! Kept apart from [`crate::json`], which writes by the schema: these are schemaless, mostly a few bytes long, and on
//! the hot path of every write.

use std::fmt::Write;

use crate::Value;

/// Levels that a text may nest.
const MAX_DEPTH: usize = 120;

/// Parses all of a text. `None` when it is not JSON or nests too deep.
pub(super) fn parse(text: &str) -> Option<Value> {
    // By hand what nearly every element is: a short string without escapes, or an integer.
    if let Some(inner) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        if !inner.bytes().any(|b| b == b'"' || b == b'\\' || b < 0x20) {
            return Some(inner.into());
        }
    }
    convert(serde_json::from_str(text).ok()?, 0)
}

fn convert(v: serde_json::Value, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match v {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(b) => b.into(),
        serde_json::Value::Number(n) => match n.as_i64() {
            Some(i) => i.into(),
            None => Value::Float(n.as_f64()?),
        },
        serde_json::Value::String(s) => s.into(),
        serde_json::Value::Array(items) => {
            items.into_iter().map(|v| convert(v, depth + 1)).collect::<Option<Vec<_>>>()?.into()
        }
        serde_json::Value::Object(members) => {
            let members = members.into_iter().map(|(k, v)| Some((k.into(), convert(v, depth + 1)?)));
            Value::Object(members.collect::<Option<Vec<_>>>()?.into_iter().collect())
        }
    })
}

/// Appends a value.
pub(super) fn write(v: &Value, out: &mut String) {
    match v {
        Value::Null => out.push_str("null"),
        // A `String` takes any write.
        Value::Bool(b) => drop(write!(out, "{b}")),
        Value::Int(n) => drop(write!(out, "{n}")),
        Value::Float(n) => drop(write!(out, "{n}")),
        Value::String(s) => write_string(s, out),
        Value::Array(items) => {
            out.push('[');
            for (i, v) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(v, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (i, (key, v)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write(v, out);
            }
            out.push('}');
        }
    }
}

/// Appends a string in quotes, escaped as Go's encoder does by default (`<`, `>` and `&` too).
pub(super) fn write_string(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => drop(write!(out, "\\u{:04x}", c as u32)),
            c => push_char(c, out),
        }
    }
    out.push('"');
}

/// Appends a string in quotes for people to read.
pub(super) fn write_quoted(s: &str, out: &mut String) {
    out.push('"');
    s.chars().for_each(|c| push_char(c, out));
    out.push('"');
}

fn push_char(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if (c as u32) < 0x20 => drop(write!(out, "\\u{:04x}", c as u32)),
        c => out.push(c),
    }
}
