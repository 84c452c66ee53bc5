//! Outputs of the decoder: an object tree or JSON text.

use std::borrow::Cow;

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine;
use smol_str::SmolStr;

use crate::json;
use crate::json::{Tape, TapeNode};
use crate::schema::layout::FieldLayout;
use crate::value::{Map, Value};

/// Receives an object in document order. Each member is a [`Sink::field`] or [`Sink::key`], then one value.
pub(crate) trait Sink {
    fn begin_object(&mut self);
    fn end_object(&mut self);
    fn begin_array(&mut self);
    fn end_array(&mut self);
    /// The key of a struct's member.
    fn field(&mut self, field: &FieldLayout);
    /// The key of a map's member.
    fn key(&mut self, key: &str);
    fn null(&mut self);
    fn bool(&mut self, b: bool);
    fn int(&mut self, n: i64);
    /// Neither NaN nor infinite.
    fn float(&mut self, x: f64);
    fn string(&mut self, text: &str);
    /// Text of the wire, which may be invalid UTF-8: see [`wire_text`].
    fn wire_string(&mut self, bytes: &[u8]);
    /// Bytes, which JSON and the tree hold as base64 text.
    fn base64(&mut self, bytes: &[u8]);
    /// A whole value.
    fn tape(&mut self, tape: &Tape<'_>);
}

/// Text with each invalid byte replaced by U+FFFD, as Go's JSON encoder does.
pub(crate) fn wire_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let mut text = String::with_capacity(bytes.len() + 8);
            json::push_lossy(&mut text, bytes);
            Cow::Owned(text)
        }
    }
}

/// Writes compact JSON. A comma follows each value and is removed at the end of a container.
pub(crate) struct JsonSink<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> JsonSink<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>) -> JsonSink<'o> {
        JsonSink { out }
    }

    /// Removes the last comma.
    pub(super) fn finish(self) {
        if self.out.last() == Some(&b',') {
            self.out.pop();
        }
    }

    #[inline]
    fn end(&mut self, close: u8) {
        match self.out.last_mut() {
            Some(last) if *last == b',' => *last = close,
            _ => self.out.push(close),
        }
        self.out.push(b',');
    }
}

impl Sink for JsonSink<'_> {
    #[inline]
    fn begin_object(&mut self) {
        self.out.push(b'{');
    }

    #[inline]
    fn end_object(&mut self) {
        self.end(b'}');
    }

    #[inline]
    fn begin_array(&mut self) {
        self.out.push(b'[');
    }

    #[inline]
    fn end_array(&mut self) {
        self.end(b']');
    }

    #[inline]
    fn field(&mut self, field: &FieldLayout) {
        self.out.extend_from_slice(field.key.as_bytes());
    }

    #[inline]
    fn key(&mut self, key: &str) {
        self.string(key);
        if let Some(comma) = self.out.last_mut() {
            *comma = b':';
        }
    }

    fn null(&mut self) {
        self.out.extend_from_slice(b"null,");
    }

    fn bool(&mut self, b: bool) {
        self.out.extend_from_slice(if b { b"true," } else { b"false," });
    }

    #[inline]
    fn int(&mut self, n: i64) {
        json::write_integer(n, self.out);
        self.out.push(b',');
    }

    fn float(&mut self, x: f64) {
        json::write_number(x, self.out);
        self.out.push(b',');
    }

    #[inline]
    fn string(&mut self, text: &str) {
        self.wire_string(text.as_bytes());
    }

    #[inline]
    fn wire_string(&mut self, bytes: &[u8]) {
        if !json::write_plain(bytes, self.out) {
            json::write_string(&wire_text(bytes), self.out);
        }
        self.out.push(b',');
    }

    fn base64(&mut self, bytes: &[u8]) {
        self.out.push(b'"');
        let start = self.out.len();
        self.out.resize(start + bytes.len().div_ceil(3) * 4, 0);
        // The slice has the length of the text, so this cannot fail.
        let written = BASE64.encode_slice(bytes, &mut self.out[start..]).unwrap_or(0);
        self.out.truncate(start + written);
        self.out.extend_from_slice(b"\",");
    }

    fn tape(&mut self, tape: &Tape<'_>) {
        tape.write_json(0, self.out);
        self.out.push(b',');
    }
}

/// Builds an object tree.
#[derive(Default)]
pub(crate) struct TreeSink {
    /// Containers that are open, each with its key in the enclosing one.
    open: Vec<(SmolStr, Container)>,
    key: SmolStr,
    root: Value,
}

enum Container {
    Object(Vec<(SmolStr, Value)>),
    Array(Vec<Value>),
}

impl TreeSink {
    /// The tree that was built.
    pub(super) fn finish(self) -> Value {
        self.root
    }

    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.root = value,
            Some((_, Container::Object(members))) => members.push((std::mem::take(&mut self.key), value)),
            Some((_, Container::Array(elements))) => elements.push(value),
        }
    }

    fn begin(&mut self, container: Container) {
        self.open.push((std::mem::take(&mut self.key), container));
    }

    fn end(&mut self) {
        if let Some((key, container)) = self.open.pop() {
            self.key = key;
            self.put(match container {
                Container::Object(members) => Value::Object(Map::from_members(members).0),
                Container::Array(elements) => Value::Array(elements),
            });
        }
    }
}

impl Sink for TreeSink {
    fn begin_object(&mut self) {
        self.begin(Container::Object(Vec::new()));
    }

    fn end_object(&mut self) {
        self.end();
    }

    fn begin_array(&mut self) {
        self.begin(Container::Array(Vec::new()));
    }

    fn end_array(&mut self) {
        self.end();
    }

    fn field(&mut self, field: &FieldLayout) {
        self.key = field.name.clone();
    }

    fn key(&mut self, key: &str) {
        self.key = SmolStr::new(key);
    }

    fn null(&mut self) {
        self.put(Value::Null);
    }

    fn bool(&mut self, b: bool) {
        self.put(Value::Bool(b));
    }

    fn int(&mut self, n: i64) {
        self.put(Value::Int(n));
    }

    fn float(&mut self, x: f64) {
        self.put(Value::Float(x));
    }

    fn string(&mut self, text: &str) {
        self.put(Value::String(SmolStr::new(text)));
    }

    fn wire_string(&mut self, bytes: &[u8]) {
        self.string(&wire_text(bytes));
    }

    fn base64(&mut self, bytes: &[u8]) {
        self.put(Value::String(BASE64.encode(bytes).into()));
    }

    fn tape(&mut self, tape: &Tape<'_>) {
        let mut ends: Vec<u32> = Vec::new();
        let mut index = 0;
        let mut is_key = false;
        let end = tape.after(0);
        while index < end {
            let node = tape.node(index);
            index += 1;
            if is_key {
                self.key = node.text().map(SmolStr::from).unwrap_or_default();
                is_key = false;
                continue;
            }
            match node {
                TapeNode::Null => self.null(),
                TapeNode::Bool(b) => self.bool(b),
                TapeNode::Int(n) => self.int(n),
                TapeNode::Float(x) => self.float(x),
                TapeNode::Number(text) => match node.integer() {
                    Some(n) => self.int(n),
                    None => self.float(text.parse().unwrap_or_default()),
                },
                TapeNode::Text(text) => self.string(text),
                TapeNode::Escaped(_) => self.string(&node.text().unwrap_or_default()),
                TapeNode::Array { end } => {
                    self.begin_array();
                    ends.push(end);
                }
                TapeNode::Object { end } => {
                    self.begin_object();
                    ends.push(end);
                }
            }
            while ends.last() == Some(&index) {
                ends.pop();
                self.end();
            }
            is_key = !ends.is_empty() && matches!(self.open.last(), Some((_, Container::Object(_))));
        }
    }
}
