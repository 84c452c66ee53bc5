//! Values and type names as Go's `fmt` prints them, for error texts that clients know.

use std::fmt::Write;

use crate::{Map, Value};

/// A longer print is cut here: error texts end up in statuses and logs.
const MAX_PRINT: usize = 4096;

/// The value as `%v` prints it: `map[a:1 b:[x y]]`, cut after `MAX_PRINT` bytes.
pub fn value(v: &Value) -> String {
    let mut out = String::new();
    print(v, &mut out);
    cut(out)
}

/// A list as `%v` prints it.
pub(crate) fn list(items: &[Value]) -> String {
    let mut out = String::new();
    print_list(items, &mut out);
    cut(out)
}

fn cut(mut out: String) -> String {
    if out.len() > MAX_PRINT {
        out.truncate(out.floor_char_boundary(MAX_PRINT));
        out.push('…');
    }
    out
}

fn print(v: &Value, out: &mut String) {
    // Stops the walk, and so bounds its depth too: each level prints at least five bytes.
    if out.len() > MAX_PRINT {
        return;
    }
    match v {
        Value::Null => out.push_str("<nil>"),
        // A `String` takes any write.
        Value::Bool(b) => drop(write!(out, "{b}")),
        Value::Int(n) => drop(write!(out, "{n}")),
        Value::Float(n) => drop(write!(out, "{n}")),
        Value::String(s) => out.push_str(s),
        Value::Array(items) => print_list(items, out),
        Value::Object(map) => print_map(map, out),
        Value::Encoded(encoded) => print_map(encoded.members(), out),
    }
}

fn print_map(map: &Map, out: &mut String) {
    out.push_str("map[");
    for (i, (key, v)) in map.iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        out.push_str(key);
        out.push(':');
        print(v, out);
        if out.len() > MAX_PRINT {
            return;
        }
    }
    out.push(']');
}

fn print_list(items: &[Value], out: &mut String) {
    out.push('[');
    for (i, v) in items.iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        print(v, out);
        if out.len() > MAX_PRINT {
            return;
        }
    }
    out.push(']');
}

/// The name of the Go type that upstream decodes such a value to.
pub fn type_name(v: &Value) -> &'static str {
    match v {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => LIST,
        Value::Object(_) | Value::Encoded(_) => MAP,
    }
}

/// Go's type of a decoded object.
pub(crate) const MAP: &str = "map[string]interface {}";
/// Go's type of a decoded list.
pub(crate) const LIST: &str = "[]interface {}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn prints_as_go_does_and_stays_short() {
        let v = tree!({ "b": tree!(["x", 1, true]), "a": Value::Null });
        assert_eq!(value(&v), "map[a:<nil> b:[x 1 true]]");
        let long = Value::Array(vec!["0123456789".into(); 100_000]);
        assert!(value(&long).len() < MAX_PRINT + 20);
    }
}
