//! JSON encoding: bytes equal to those of Go's `encoding/json`.

use std::io::Write;

use crate::schema::{Scalar, Schema, StructType, Type, TypeId};
use crate::value::{level, Map, Value};

/// Writes a value of a type in upstream's order: the fields of structs as they are declared (`kind`,
/// `apiVersion`, `metadata`, …), the keys of maps sorted. Unknown members follow, sorted. No line break at
/// the end.
///
/// The tree is written unchanged; zero values were omitted or filled in by [`decode`](super::decode).
pub fn write(value: &Value, schema: &Schema, id: TypeId, out: &mut Vec<u8>) {
    match (value, schema.get(id)) {
        (Value::Object(map), Type::Struct(s)) => level(|| write_struct(map, schema, s, out)),
        (Value::Array(list), Type::List { element, .. }) => {
            level(|| write_list(list, out, |value, out| write(value, schema, *element, out)));
        }
        (Value::Object(map), Type::Map { value, .. }) => {
            let inner = *value;
            level(|| write_members(map.iter(), out, |value, out| write(value, schema, inner, out)));
        }
        (Value::Object(map), Type::Scalar(Scalar::SchemaOr(_, id))) => match schema.get(*id) {
            Type::Struct(s) => level(|| write_struct(map, schema, s, out)),
            _ => write_untyped(value, out),
        },
        (Value::Array(list), Type::Scalar(Scalar::SchemaOr(_, id))) => {
            level(|| write_list(list, out, |value, out| write(value, schema, *id, out)));
        }
        _ => write_untyped(value, out),
    }
}

/// As [`write()`], indented by two spaces (`pretty=true`).
pub fn write_pretty(value: &Value, schema: &Schema, id: TypeId, out: &mut Vec<u8>) {
    let mut compact = Vec::new();
    write(value, schema, id, &mut compact);
    Indenter::default().push(&compact, out);
}

/// Writes a value without a schema: all keys sorted. Recursive in the depth of the tree, which is safe (see
/// [`crate::value::level`]).
pub fn write_untyped(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(n) => write_integer(*n, out),
        Value::Float(n) => write_number(*n, out),
        Value::String(text) => write_string(text, out),
        Value::Array(list) => level(|| write_list(list, out, write_untyped)),
        Value::Object(map) => level(|| write_members(map.iter(), out, write_untyped)),
        Value::Encoded(encoded) => out.extend_from_slice(encoded.text().as_bytes()),
    }
}

fn write_struct(map: &Map, schema: &Schema, s: &StructType, out: &mut Vec<u8>) {
    // Both sides are sorted by name, so one merge of both finds each member.
    let mut order: Vec<(u16, &Value)> = Vec::with_capacity(map.len());
    let mut unknown = Vec::new();
    let mut rank = 0;
    for (key, value) in map.iter() {
        while rank < s.by_name.len() && s.names[rank] < *key {
            rank += 1;
        }
        if rank < s.by_name.len() && s.names[rank] == *key {
            order.push((s.by_name[rank], value));
            rank += 1;
        } else {
            unknown.push((key, value));
        }
    }
    order.sort_unstable_by_key(|(place, _)| *place);
    out.push(b'{');
    let mut first = true;
    for (place, value) in order {
        let field = &s.fields[usize::from(place)];
        if !std::mem::replace(&mut first, false) {
            out.push(b',');
        }
        write_string(&field.name, out);
        out.push(b':');
        write(value, schema, field.type_id, out);
    }
    for (key, value) in unknown {
        if !std::mem::replace(&mut first, false) {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        write_untyped(value, out);
    }
    out.push(b'}');
}

fn write_list(list: &[Value], out: &mut Vec<u8>, mut element: impl FnMut(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (i, value) in list.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        element(value, out);
    }
    out.push(b']');
}

fn write_members<'v>(
    members: impl Iterator<Item = (&'v smol_str::SmolStr, &'v Value)>,
    out: &mut Vec<u8>,
    mut member: impl FnMut(&Value, &mut Vec<u8>),
) {
    out.push(b'{');
    for (i, (key, value)) in members.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        member(value, out);
    }
    out.push(b'}');
}

fn write_integer(n: i64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    drop(write!(out, "{n}"));
}

/// Writes a double as Go does: the shortest digits that read back equal, with an exponent below 1e-6 and from
/// 1e21 on.
pub fn write_number(n: f64, out: &mut Vec<u8>) {
    let size = n.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{n:e}");
        // Go writes the sign of a positive exponent.
        match text.split_once('e') {
            Some((digits, power)) if !power.starts_with('-') => drop(write!(out, "{digits}e+{power}")),
            _ => out.extend_from_slice(text.as_bytes()),
        }
        return;
    }
    drop(write!(out, "{n}"));
}

/// Writes a string in quotes, escaped as Go's encoder does: control characters, and also `<`, `>`, `&`,
/// U+2028 and U+2029, so that the text can be embedded in HTML.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut plain = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        if !ESCAPED[usize::from(byte)] {
            continue;
        }
        if byte == 0xe2 && !matches!(bytes.get(i..i + 3), Some([_, 0x80, 0xa8 | 0xa9])) {
            continue;
        }
        out.extend_from_slice(&bytes[plain..i]);
        plain = i + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\x08' => out.extend_from_slice(b"\\b"),
            b'\x0c' => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0xe2 => {
                out.extend_from_slice(if bytes[i + 2] == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                plain = i + 3;
            }
            byte => drop(write!(out, "\\u{byte:04x}")),
        }
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}

/// Bytes that are escaped, or may begin an escaped character.
const ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    table[0xe2] = true;
    table
};

/// Indents compact JSON by two spaces as `json.MarshalIndent` does, piece by piece: a piece may end anywhere.
#[derive(Clone, Debug, Default)]
pub struct Indenter {
    depth: usize,
    in_string: bool,
    /// The last byte was a backslash in a string.
    escaped: bool,
    /// The last byte opened a container; if the next one closes it, both stay on one line.
    opened: bool,
}

impl Indenter {
    /// Appends the next piece of a text, indented. White space between tokens is dropped.
    pub fn push(&mut self, compact: &[u8], out: &mut Vec<u8>) {
        out.reserve(compact.len() + compact.len() / 2);
        for &byte in compact {
            if self.in_string {
                out.push(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'"' => self.in_string = false,
                    b'\\' => self.escaped = true,
                    _ => {}
                }
                continue;
            }
            if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                continue;
            }
            let closes = matches!(byte, b'}' | b']');
            if std::mem::take(&mut self.opened) {
                if closes {
                    out.push(byte);
                    continue;
                }
                self.depth += 1;
                self.new_line(out);
            } else if closes {
                self.depth = self.depth.saturating_sub(1);
                self.new_line(out);
            }
            match byte {
                b':' => out.extend_from_slice(b": "),
                b',' => {
                    out.push(byte);
                    self.new_line(out);
                }
                byte => out.push(byte),
            }
            self.in_string = byte == b'"';
            self.opened = matches!(byte, b'{' | b'[');
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}
