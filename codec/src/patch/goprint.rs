//! Values and type names as Go's `fmt` prints them, for upstream's error messages.

use std::fmt::Write;

use crate::value::level;
use crate::{field, Map, Value};

/// Maximum length of a print in bytes: error messages end up in statuses and logs.
const MAX_PRINT: usize = 4096;

/// The value as `%v` prints it: `map[a:1 b:[x y]]`, cut after `MAX_PRINT` bytes.
pub fn value(v: &Value) -> String {
    value_within(v, MAX_PRINT)
}

/// As [`value`], cut after `most` bytes.
pub fn value_within(v: &Value, most: usize) -> String {
    Printer::printed(most, |printer| printer.print(v))
}

/// The value in Go's own syntax, as `%#v` prints it: `map[string]interface {}{"a":1}`, cut after `MAX_PRINT`
/// bytes.
pub fn syntax(v: &Value) -> String {
    Printer::printed(MAX_PRINT, |printer| printer.syntax(v))
}

/// The value as `%s` prints it: values other than strings are marked (`%!s(int64=1)`), cut after `MAX_PRINT`
/// bytes.
pub fn text(v: &Value) -> String {
    Printer::printed(MAX_PRINT, |printer| {
        printer.texts = true;
        printer.print(v);
    })
}

/// A list as `%v` prints it: `[x y]`, cut after `MAX_PRINT` bytes.
pub fn list(items: &[Value]) -> String {
    Printer::printed(MAX_PRINT, |printer| printer.list(items))
}

struct Printer {
    out: String,
    most: usize,
    /// Whether scalars are printed with `%s`.
    texts: bool,
}

impl Printer {
    fn printed(most: usize, walk: impl FnOnce(&mut Printer)) -> String {
        let mut printer = Printer { out: String::new(), most, texts: false };
        walk(&mut printer);
        let mut out = printer.out;
        if out.len() > most {
            out.truncate(out.floor_char_boundary(most));
            out.push('…');
        }
        out
    }

    /// Whether further output would be cut off.
    fn is_full(&self) -> bool {
        self.out.len() > self.most
    }

    fn print(&mut self, v: &Value) {
        match v {
            Value::Null if self.texts => self.out.push_str("%!s(<nil>)"),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) if self.texts => {
                let _ = write!(self.out, "%!s({}={})", type_name(v), value(v));
            }
            Value::Null => self.out.push_str("<nil>"),
            // A `String` takes any write.
            Value::Bool(b) => drop(write!(self.out, "{b}")),
            Value::Int(n) => drop(write!(self.out, "{n}")),
            Value::Float(n) => self.out.push_str(&field::go_float(*n)),
            Value::String(s) => self.out.push_str(s),
            Value::Array(items) => level(|| self.list(items)),
            Value::Object(map) => level(|| self.map(map)),
            Value::Encoded(encoded) => level(|| self.map(encoded.members())),
        }
    }

    fn syntax(&mut self, v: &Value) {
        match v {
            Value::Null => self.out.push_str("interface {}(nil)"),
            // A `String` takes any write.
            Value::String(s) => drop(write!(self.out, "{s:?}")),
            Value::Array(items) => {
                self.out.push_str("[]interface {}{");
                for (i, v) in items.iter().enumerate() {
                    self.out.push_str(if i > 0 { ", " } else { "" });
                    level(|| self.syntax(v));
                    if self.is_full() {
                        return;
                    }
                }
                self.out.push('}');
            }
            Value::Object(_) | Value::Encoded(_) => {
                self.out.push_str("map[string]interface {}{");
                for (i, (key, v)) in v.as_object().into_iter().flat_map(Map::iter).enumerate() {
                    self.out.push_str(if i > 0 { ", " } else { "" });
                    let _ = write!(self.out, "{key:?}:");
                    level(|| self.syntax(v));
                    if self.is_full() {
                        return;
                    }
                }
                self.out.push('}');
            }
            scalar => self.print(scalar),
        }
    }

    fn map(&mut self, map: &Map) {
        self.out.push_str("map[");
        for (i, (key, v)) in map.iter().enumerate() {
            if i > 0 {
                self.out.push(' ');
            }
            self.out.push_str(key);
            self.out.push(':');
            self.print(v);
            if self.is_full() {
                return;
            }
        }
        self.out.push(']');
    }

    fn list(&mut self, items: &[Value]) {
        self.out.push('[');
        for (i, v) in items.iter().enumerate() {
            if i > 0 {
                self.out.push(' ');
            }
            self.print(v);
            if self.is_full() {
                return;
            }
        }
        self.out.push(']');
    }
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
        let floats = [0.5, 1e6, 1e-7].map(Value::Float);
        assert_eq!(value(&Value::Array(floats.to_vec())), "[0.5 1e+06 1e-07]");
        let long = Value::Array(vec!["0123456789".into(); 100_000]);
        assert!(value(&long).len() < MAX_PRINT + 20);
        let deep = (0..9_990).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        assert_eq!(value_within(&deep, 100), format!("{}…", "[".repeat(100)));
    }
}
