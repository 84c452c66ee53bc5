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

/// Writes an integer.
pub(crate) fn write_integer(n: i64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = n.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes a double as Go does: the shortest digits that read back equal, with an exponent below 1e-6 and from
/// 1e21 on.
pub(crate) fn write_number(n: f64, out: &mut Vec<u8>) {
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
    if !write_plain(text.as_bytes(), out) {
        write_escaped(text, &GO_ESCAPES, out);
    }
}

/// As [`write_string`], and escapes only what JSON requires.
pub(crate) fn write_minimal_string(text: &str, out: &mut Vec<u8>) {
    if !write_plain(text.as_bytes(), out) {
        write_escaped(text, &REQUIRED_ESCAPES, out);
    }
}

/// Writes text in quotes if nothing in it has to be escaped; returns whether it did.
#[inline]
pub(crate) fn write_plain(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let plain = is_plain(bytes);
    if plain {
        out.reserve(bytes.len() + 3);
        out.push(b'"');
        out.extend_from_slice(bytes);
        out.push(b'"');
    }
    plain
}

fn write_escaped(text: &str, escapes: &[u8; 256], out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut plain = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        let (escape, len) = match escapes[usize::from(byte)] {
            0 => continue,
            LINE_SEPARATOR => match bytes.get(i + 1..i + 3) {
                Some([0x80, last @ (0xa8 | 0xa9)]) => (0x2028 + u32::from(last - 0xa8), 3),
                _ => continue,
            },
            b'u' => (u32::from(byte), 1),
            letter => {
                out.extend_from_slice(&bytes[plain..i]);
                out.extend_from_slice(&[b'\\', letter]);
                plain = i + 1;
                continue;
            }
        };
        out.extend_from_slice(&bytes[plain..i]);
        // Writing to a vector cannot fail.
        drop(write!(out, "\\u{escape:04x}"));
        plain = i + len;
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}

/// The escape of a byte that begins U+2028 and U+2029, and other characters that have none.
const LINE_SEPARATOR: u8 = 0xe2;

/// By byte what follows the backslash: a letter, `u` for the character's number; 0 for bytes without escape.
const GO_ESCAPES: [u8; 256] = escapes(b"\x08b\x0cf<u>u&u\xe2\xe2");
const REQUIRED_ESCAPES: [u8; 256] = escapes(b"");

const fn escapes(more: &[u8]) -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    let (pairs, mut i) = ([b"\"\"\\\\\nn\rr\tt", more], 0);
    while i < pairs.len() {
        let mut at = 0;
        while at < pairs[i].len() {
            table[pairs[i][at] as usize] = pairs[i][at + 1];
            at += 2;
        }
        i += 1;
    }
    table
}

/// Whether text needs no escapes in JSON: ASCII without control characters, quote, backslash, `<`, `>` and
/// `&`. Eight bytes at a time; two characters that differ in one bit share a test.
#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let has_zero = |x: u64| x.wrapping_sub(ONES) & !x & HIGH;
    let special = |word: u64| {
        (word & HIGH)
            | (word.wrapping_sub(ONES * 0x20) & !word & HIGH)
            | has_zero((word & !(ONES * (b'"' ^ b'&') as u64)) ^ (ONES * (b'"' & b'&') as u64))
            | has_zero((word & !(ONES * (b'<' ^ b'>') as u64)) ^ (ONES * (b'<' & b'>') as u64))
            | has_zero(word ^ (ONES * b'\\' as u64))
    };
    let (words, tail) = bytes.as_chunks::<8>();
    let mut last = [b'a'; 8];
    last[..tail.len()].copy_from_slice(tail);
    words.iter().all(|word| special(u64::from_le_bytes(*word)) == 0) && special(u64::from_le_bytes(last)) == 0
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_what_needs_no_escape() {
        for byte in 0..=255u8 {
            let plain = (0x20..0x80).contains(&byte) && !b"\"\\<>&".contains(&byte);
            for place in 0..20 {
                let mut text = [b'x'; 20];
                text[place] = byte;
                assert_eq!(is_plain(&text), plain, "{byte} at {place}");
            }
        }
        assert!(is_plain(b""));
    }

    #[test]
    fn escapes_are_those_of_go_or_only_what_json_requires() {
        let text = "a\"\\\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}<>&\u{2027}\u{2028}\u{2029}\u{202a}é\u{2028}";
        let written = |write: fn(&str, &mut Vec<u8>)| {
            let mut out = Vec::new();
            write(text, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            written(write_string),
            "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}\\u003c\\u003e\\u0026\u{2027}\\u2028\\u2029\u{202a}é\\u2028\""
        );
        assert_eq!(
            written(write_minimal_string),
            "\"a\\\"\\\\\\u0008\\u000c\\n\\r\\t\\u0000\\u001f\u{7f}<>&\u{2027}\u{2028}\u{2029}\u{202a}é\u{2028}\""
        );
    }

    #[test]
    fn integers_are_written_as_rust_writes_them() {
        for n in [0, 1, -1, 9, 10, i64::from(i32::MIN), i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            write_integer(n, &mut out);
            assert_eq!(out, n.to_string().as_bytes());
        }
    }
}
