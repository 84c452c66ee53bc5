//! From a [`Tape`] to wire bytes, written from the end to the start.
//!
//! The presence rules are those of the code that gogo-proto generates for upstream: a Go field that is no
//! pointer is always written, zero or not; a pointer when it is set; lists and maps element by element,
//! map entries by ascending key. Unknown members are left out, as Go leaves them out when it decodes.

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine;

use super::layout::{FieldLayout, Form, Layouts, Message, Shape, Step};
use super::tape::{Node, Tape};
use super::wire::{ReverseBuffer, WireType};
use super::{EncodeError, MAX_DEPTH};
use crate::schema::{SchemaOr, TypeId};
use crate::time::{parse_duration, Timestamp};

/// In a slot: the member is absent or `null`.
const ABSENT: u32 = u32::MAX;

/// Encodes a tape as the message of a struct, without an envelope.
pub(crate) fn encode_tape(
    layouts: &Layouts,
    tape: &Tape<'_>,
    id: TypeId,
    out: ReverseBuffer,
) -> Result<ReverseBuffer, EncodeError> {
    let message = layouts.message(id).ok_or(EncodeError::NotAMessage)?;
    let mut encoder = Encoder { layouts, tape, out, slots: Vec::with_capacity(128), scratch: Vec::new() };
    match tape.node(0) {
        Node::Object { .. } => encoder.message(message, 0, 0)?,
        other => return Err(mismatch("object", other)),
    }
    Ok(encoder.out)
}

/// What the zero value of a struct is on the wire. The messages that it holds by value must have theirs.
pub(super) fn empty_message(layouts: &Layouts, message: &Message) -> Vec<u8> {
    let Ok(tape) = Tape::from_json(b"{}") else { return Vec::new() };
    let out = ReverseBuffer::with_capacity(64);
    let mut encoder = Encoder { layouts, tape: &tape, out, slots: Vec::new(), scratch: Vec::new() };
    encoder.slots.resize(message.fields.len(), ABSENT);
    match encoder.part(message, 0, 0, 0) {
        Ok(()) => encoder.out.as_slice().to_vec(),
        Err(_) => Vec::new(),
    }
}

struct Encoder<'e, 'a> {
    layouts: &'e Layouts,
    tape: &'e Tape<'a>,
    out: ReverseBuffer,
    /// A stack of node indices: the members of the structs, lists and maps that are being written.
    slots: Vec<u32>,
    /// For decoded base64 and rewritten JSON.
    scratch: Vec<u8>,
}

fn mismatch(expected: &'static str, found: Node<'_>) -> EncodeError {
    EncodeError::Type { path: String::new(), expected, found: found.type_name() }
}

fn invalid(what: &'static str, text: &str) -> EncodeError {
    EncodeError::Value { path: String::new(), what, text: text.chars().take(64).collect() }
}

impl<'e> Encoder<'e, '_> {
    /// The body of a message from an object node.
    fn message(&mut self, message: &'e Message, node: u32, depth: usize) -> Result<(), EncodeError> {
        let Node::Object { end } = self.tape.node(node) else {
            return Err(mismatch("object", self.tape.node(node)));
        };
        if depth > MAX_DEPTH {
            return Err(EncodeError::TooDeep);
        }
        let base = self.slots.len();
        self.slots.resize(base + message.fields.len(), ABSENT);
        let mut key = node + 1;
        while key < end {
            let value = key + 1;
            let field = match self.tape.node(key) {
                Node::Text(name) => message.field(name),
                escaped => escaped.text().and_then(|name| message.field(&name)),
            };
            if let Some(field) = field {
                let absent = self.tape.node(value) == Node::Null;
                self.slots[base + field] = if absent { ABSENT } else { value };
            }
            key = self.tape.after(value);
        }
        self.part(message, 0, base, depth)?;
        self.slots.truncate(base);
        Ok(())
    }

    /// The fields of one part of a message, whose members are in the slots from `base` on.
    fn part(
        &mut self,
        message: &'e Message,
        part: usize,
        base: usize,
        depth: usize,
    ) -> Result<(), EncodeError> {
        for step in message.parts[part].steps.iter().rev() {
            match *step {
                Step::Field(index) => {
                    let field = &message.fields[index as usize];
                    let node = self.slots[base + index as usize];
                    self.field(field, node, depth).map_err(|e| e.in_field(&field.name))?;
                }
                Step::Part { number, part } => {
                    let end = self.out.len();
                    self.part(message, part as usize, base, depth)?;
                    self.out.put_message_prefix(number, end);
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &'e FieldLayout, node: u32, depth: usize) -> Result<(), EncodeError> {
        if node == ABSENT {
            if field.form == Form::One && !field.pointer {
                self.zero(field.number, field.shape);
            }
            return Ok(());
        }
        match field.form {
            Form::One => self.value(field.number, field.shape, node, depth),
            Form::List => self.list(field.number, field.shape, node, depth),
            Form::Wrapped => {
                let end = self.out.len();
                self.list(1, field.shape, node, depth)?;
                self.out.put_message_prefix(field.number, end);
                Ok(())
            }
            Form::Map | Form::MapOfWrapped => self.map(field, node, depth),
        }
    }

    fn list(&mut self, number: u32, shape: Shape, node: u32, depth: usize) -> Result<(), EncodeError> {
        let Node::Array { end } = self.tape.node(node) else {
            return Err(mismatch("array", self.tape.node(node)));
        };
        let base = self.slots.len();
        let mut element = node + 1;
        while element < end {
            self.slots.push(element);
            element = self.tape.after(element);
        }
        for i in (base..self.slots.len()).rev() {
            self.element(number, shape, self.slots[i], depth).map_err(|e| e.at_index(i - base))?;
        }
        self.slots.truncate(base);
        Ok(())
    }

    /// An element of a list or the value of a map entry: `null` is the zero value there.
    fn element(&mut self, number: u32, shape: Shape, node: u32, depth: usize) -> Result<(), EncodeError> {
        match self.tape.node(node) {
            Node::Null => {
                self.zero(number, shape);
                Ok(())
            }
            _ => self.value(number, shape, node, depth),
        }
    }

    fn map(&mut self, field: &'e FieldLayout, node: u32, depth: usize) -> Result<(), EncodeError> {
        let Node::Object { end } = self.tape.node(node) else {
            return Err(mismatch("object", self.tape.node(node)));
        };
        let base = self.slots.len();
        let mut key = node + 1;
        let mut sorted = true;
        while key < end {
            if let Some(&previous) = self.slots.get(base..).and_then(<[u32]>::last) {
                sorted &= self.tape.node(previous).text() < self.tape.node(key).text();
            }
            self.slots.push(key);
            key = self.tape.after(key + 1);
        }
        if !sorted {
            let tape = self.tape;
            // Stable: of equal keys the last one stays last, and that one counts.
            self.slots[base..].sort_by_cached_key(|&key| tape.node(key).text());
            let keys = self.slots.split_off(base);
            for (i, &key) in keys.iter().enumerate() {
                let next = keys.get(i + 1).and_then(|&next| tape.node(next).text());
                if next != tape.node(key).text() {
                    self.slots.push(key);
                }
            }
        }
        for i in (base..self.slots.len()).rev() {
            let key = self.slots[i];
            let text = self.tape.node(key).text().unwrap_or_default();
            let end = self.out.len();
            let written = match (field.form, self.tape.node(key + 1)) {
                (Form::MapOfWrapped, Node::Null) => {
                    self.out.put_message_prefix(2, end);
                    Ok(())
                }
                (Form::MapOfWrapped, _) => {
                    let list = self.list(1, field.shape, key + 1, depth);
                    self.out.put_message_prefix(2, end);
                    list
                }
                _ => self.element(2, field.shape, key + 1, depth),
            };
            written.map_err(|e| e.in_field(&text))?;
            self.out.put_bytes_field(1, text.as_bytes());
            self.out.put_message_prefix(field.number, end);
        }
        self.slots.truncate(base);
        Ok(())
    }

    /// One value that is not `null`.
    fn value(&mut self, number: u32, shape: Shape, node: u32, depth: usize) -> Result<(), EncodeError> {
        let value = self.tape.node(node);
        match shape {
            Shape::String => match value {
                Node::Text(text) => self.out.put_bytes_field(number, text.as_bytes()),
                other => {
                    let text = other.text().ok_or_else(|| mismatch("string", other))?;
                    self.out.put_bytes_field(number, text.as_bytes());
                }
            },
            Shape::Bool => match value {
                Node::Bool(b) => self.out.put_varint_field(number, b as u64),
                other => return Err(mismatch("bool", other)),
            },
            Shape::Int32 => match value.integer() {
                Some(n) if i32::try_from(n).is_ok() => self.out.put_varint_field(number, n as u64),
                _ => return Err(mismatch("32-bit integer", value)),
            },
            Shape::Int64 => match value.integer() {
                Some(n) => self.out.put_varint_field(number, n as u64),
                None => return Err(mismatch("64-bit integer", value)),
            },
            Shape::Double => {
                let x = match value {
                    Node::Int(n) => n as f64,
                    Node::Float(x) => x,
                    Node::Number(text) => text.parse().map_err(|_| invalid("number", text))?,
                    other => return Err(mismatch("number", other)),
                };
                if !x.is_finite() {
                    return Err(mismatch("finite number", value));
                }
                self.double(number, x);
            }
            Shape::Message(id) => {
                let message = self.layouts.message(id).ok_or(EncodeError::NotAMessage)?;
                let end = self.out.len();
                self.message(message, node, depth + 1)?;
                self.out.put_message_prefix(number, end);
            }
            Shape::Bytes => {
                let text = value.text().ok_or_else(|| mismatch("string", value))?;
                let mut bytes = std::mem::take(&mut self.scratch);
                bytes.clear();
                let decoded = BASE64.decode_vec(text.as_bytes(), &mut bytes);
                self.out.put_bytes_field(number, &bytes);
                self.scratch = bytes;
                decoded.map_err(|_| invalid("base64", &text))?;
            }
            Shape::Quantity => {
                let end = self.out.len();
                match value {
                    Node::Int(n) => self.out.put_bytes_field(1, n.to_string().as_bytes()),
                    other => {
                        let text = other.text().ok_or_else(|| mismatch("quantity", other))?;
                        self.out.put_bytes_field(1, text.as_bytes());
                    }
                }
                self.out.put_message_prefix(number, end);
            }
            Shape::IntOrString => match value.integer() {
                Some(n) if i32::try_from(n).is_ok() => self.int_or_string(number, 0, n, b""),
                _ => {
                    let text = value.text().ok_or_else(|| mismatch("string or 32-bit integer", value))?;
                    self.int_or_string(number, 1, 0, text.as_bytes());
                }
            },
            Shape::Time | Shape::MicroTime => {
                let text = value.text().ok_or_else(|| mismatch("string", value))?;
                // Of a Time, seconds alone go on the wire; of a MicroTime, whole microseconds.
                let (time, unit) = match shape {
                    Shape::Time => (Timestamp::parse(&text), 1_000_000_000),
                    _ => (Timestamp::parse_micro(&text), 1_000),
                };
                let time = time.map_err(|_| invalid("time", &text))?;
                let (seconds, nanos) = (time.seconds, time.nanos / unit * unit);
                if time == Timestamp::ZERO {
                    self.out.put_bytes_field(number, b"");
                    return Ok(());
                }
                let end = self.out.len();
                self.out.put_varint_field(2, nanos as u64);
                self.out.put_varint_field(1, seconds as u64);
                self.out.put_message_prefix(number, end);
            }
            Shape::Duration => {
                let text = value.text().ok_or_else(|| mismatch("string", value))?;
                let nanos = parse_duration(&text).map_err(|_| invalid("duration", &text))?;
                let end = self.out.len();
                self.out.put_varint_field(1, nanos as u64);
                self.out.put_message_prefix(number, end);
            }
            Shape::Raw => {
                if let Node::Raw(text) = value {
                    let end = self.out.len();
                    self.out.put_bytes_field(1, text.as_bytes());
                    self.out.put_message_prefix(number, end);
                    return Ok(());
                }
                let mut json = std::mem::take(&mut self.scratch);
                json.clear();
                self.tape.write_json(node, &mut json);
                let end = self.out.len();
                self.out.put_bytes_field(1, &json);
                self.out.put_message_prefix(number, end);
                self.scratch = json;
            }
            Shape::SchemaOr(or, id) => {
                let end = self.out.len();
                self.schema_or(or, id, node, depth)?;
                self.out.put_message_prefix(number, end);
            }
            Shape::None => {}
        }
        Ok(())
    }

    fn double(&mut self, number: u32, x: f64) {
        self.out.put(&x.to_bits().to_le_bytes());
        self.out.put_tag(number, WireType::Fixed64);
    }

    fn int_or_string(&mut self, number: u32, kind: u64, n: i64, text: &[u8]) {
        let end = self.out.len();
        self.out.put_bytes_field(3, text);
        self.out.put_varint_field(2, n as u64);
        self.out.put_varint_field(1, kind);
        self.out.put_message_prefix(number, end);
    }

    /// The body of one of apiextensions' unions.
    fn schema_or(&mut self, or: SchemaOr, id: TypeId, node: u32, depth: usize) -> Result<(), EncodeError> {
        let schema_number = if or == SchemaOr::Bool { 2 } else { 1 };
        match (or, self.tape.node(node)) {
            (_, Node::Object { .. }) => {
                self.value(schema_number, Shape::Message(id), node, depth)?;
                if or == SchemaOr::Bool {
                    self.out.put_varint_field(1, 1);
                }
                Ok(())
            }
            (SchemaOr::Bool, Node::Bool(allows)) => {
                self.out.put_varint_field(1, allows as u64);
                Ok(())
            }
            (SchemaOr::Array, Node::Array { .. }) => self.list(2, Shape::Message(id), node, depth),
            (SchemaOr::StringArray, Node::Array { .. }) => self.list(2, Shape::String, node, depth),
            (SchemaOr::Bool, other) => Err(mismatch("schema or bool", other)),
            (SchemaOr::Array, other) => Err(mismatch("schema or array", other)),
            (SchemaOr::StringArray, other) => Err(mismatch("schema or array of strings", other)),
        }
    }

    /// A zero value that is no pointer.
    fn zero(&mut self, number: u32, shape: Shape) {
        match shape {
            Shape::Bool | Shape::Int32 | Shape::Int64 => self.out.put_varint_field(number, 0),
            Shape::Double => self.double(number, 0.0),
            Shape::String => self.out.put_bytes_field(number, b""),
            // A nil slice.
            Shape::Bytes | Shape::None => {}
            // A message that holds the string "0".
            Shape::Quantity => self.out.put_bytes_field(number, b"\x0a\x010"),
            Shape::IntOrString => self.int_or_string(number, 0, 0, b""),
            Shape::Time | Shape::MicroTime | Shape::Raw => self.out.put_bytes_field(number, b""),
            Shape::Duration | Shape::SchemaOr(SchemaOr::Bool, _) => {
                self.out.put_bytes_field(number, b"\x08\x00")
            }
            Shape::SchemaOr(..) => self.out.put_bytes_field(number, b""),
            Shape::Message(id) => {
                let empty = self.layouts.message(id).map_or(&[][..], |m| &m.empty);
                self.out.put_bytes_field(number, empty);
            }
        }
    }
}
