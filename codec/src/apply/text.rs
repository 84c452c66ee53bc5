//! The JSON text inside of path elements (`k:{"name":"a"}`, `v:"a"`), and strings for display.

use smol_str::SmolStr;

use crate::blocks::plain_prefix;
use crate::json;
use crate::Value;

/// Parses all of a text. `None` when it is not JSON.
pub(super) fn parse(text: &str) -> Option<Value> {
    // Fast path for a string without escapes.
    if let Some(inner) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        if plain_prefix(inner.as_bytes()) == inner.len() {
            return Some(inner.into());
        }
    }
    json::parse(text.as_bytes()).ok()
}

/// A prefix and the output of `write`, as text.
pub(super) fn written(prefix: &str, write: impl FnOnce(&mut Vec<u8>)) -> SmolStr {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(prefix.as_bytes());
    write(&mut out);
    // Prefix and JSON are both UTF-8, so nothing is ever replaced.
    String::from_utf8_lossy(&out).into()
}

/// Appends a quoted string for display, without HTML escapes.
pub(super) fn write_quoted(s: &str, out: &mut String) {
    use std::fmt::Write;
    out.push('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // A `String` takes any write.
            c if (c as u32) < 0x20 => drop(write!(out, "\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}
