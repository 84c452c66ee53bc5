//! Writing JSON: texts, cells and trees, compact.

use super::cell::Cell;
pub(super) use crate::json::write_minimal_string as text;
use crate::Value;
use std::io::Write;

/// Formats into the buffer.
pub(super) fn number(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    // A `Vec` takes any write.
    let _ = out.write_fmt(arguments);
}

pub(super) fn cell(cell: &Cell<'_>, out: &mut Vec<u8>) {
    match cell {
        Cell::Null => out.extend_from_slice(b"null"),
        Cell::Bool(b) => number(out, format_args!("{b}")),
        Cell::Int(n) => number(out, format_args!("{n}")),
        Cell::Float(n) => number(out, format_args!("{n}")),
        Cell::Text(t) => text(t, out),
    }
}

/// A tree, with the members of objects in key order. Its depth is bounded by the parser.
pub(super) fn value(value_: &Value, out: &mut Vec<u8>) {
    match value_ {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(b) => number(out, format_args!("{b}")),
        Value::Int(n) => number(out, format_args!("{n}")),
        Value::Float(n) => number(out, format_args!("{n}")),
        Value::String(s) => text(s, out),
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                value(item, out);
            }
            out.push(b']');
        }
        Value::Encoded(encoded) => out.extend_from_slice(encoded.text().as_bytes()),
        Value::Object(map) => {
            out.push(b'{');
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                text(key, out);
                out.push(b':');
                value(item, out);
            }
            out.push(b'}');
        }
    }
}
