//! Encodes a [`Tape`] to wire bytes, from the end to the start.
//!
//! The presence rules are those of the code that gogo-proto generates for upstream: a Go field that is not a
//! pointer is always written, even if zero; a pointer when it is set; lists and maps element by element, map
//! entries by ascending key. Unknown members are dropped, as by Go's decoder.

use super::leaf::mismatch;
use super::wire::ReverseBuffer;
use super::{EncodeError, MAX_DEPTH};
use crate::json::{Tape, TapeNode};
use crate::schema::layout::{FieldLayout, FieldStep, Form, Layouts, Message, ValueLayout};
use crate::schema::{SchemaOr, TypeId};

/// Slot value of a member that is absent or `null`.
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
        TapeNode::Object { .. } => encoder.message(message, 0, 0)?,
        other => return Err(mismatch("object", other)),
    }
    Ok(encoder.out)
}

/// The wire form of a struct's zero value. Those of messages that it holds by value must be known.
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

/// Encodes the root of a tape as a field.
pub(super) fn encode_value(
    layouts: &Layouts,
    tape: &Tape<'_>,
    number: u32,
    shape: ValueLayout,
    depth: usize,
) -> Result<ReverseBuffer, EncodeError> {
    let out = ReverseBuffer::with_capacity(256);
    let mut encoder = Encoder { layouts, tape, out, slots: Vec::new(), scratch: Vec::new() };
    encoder.value(number, shape, 0, depth)?;
    Ok(encoder.out)
}

struct Encoder<'e, 'a> {
    layouts: &'e Layouts,
    tape: &'e Tape<'a>,
    out: ReverseBuffer,
    /// A stack of node indices: the members of the structs, lists and maps that are being written.
    slots: Vec<u32>,
    /// For rewritten JSON.
    scratch: Vec<u8>,
}

impl<'e> Encoder<'e, '_> {
    /// The body of a message from an object node.
    fn message(&mut self, message: &'e Message, node: u32, depth: usize) -> Result<(), EncodeError> {
        let TapeNode::Object { end } = self.tape.node(node) else {
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
                TapeNode::Text(name) => message.field(name),
                escaped => escaped.text().and_then(|name| message.field(&name)),
            };
            if let Some(field) = field {
                let absent = self.tape.node(value) == TapeNode::Null;
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
                FieldStep::Field(index) => {
                    let field = &message.fields[index as usize];
                    let node = self.slots[base + index as usize];
                    self.field(field, node, depth).map_err(|e| e.in_field(&field.name))?;
                }
                FieldStep::Part { number, part } => {
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
            if field.is_filled() {
                self.out.put_zero(field.number, field.shape, self.layouts);
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

    fn list(&mut self, number: u32, shape: ValueLayout, node: u32, depth: usize) -> Result<(), EncodeError> {
        let TapeNode::Array { end } = self.tape.node(node) else {
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
    fn element(
        &mut self,
        number: u32,
        shape: ValueLayout,
        node: u32,
        depth: usize,
    ) -> Result<(), EncodeError> {
        match self.tape.node(node) {
            TapeNode::Null => {
                self.out.put_zero(number, shape, self.layouts);
                Ok(())
            }
            _ => self.value(number, shape, node, depth),
        }
    }

    fn map(&mut self, field: &'e FieldLayout, node: u32, depth: usize) -> Result<(), EncodeError> {
        let TapeNode::Object { end } = self.tape.node(node) else {
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
                (Form::MapOfWrapped, TapeNode::Null) => {
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
    fn value(&mut self, number: u32, shape: ValueLayout, node: u32, depth: usize) -> Result<(), EncodeError> {
        match shape {
            ValueLayout::Message(id) => {
                let message = self.layouts.message(id).ok_or(EncodeError::NotAMessage)?;
                let end = self.out.len();
                self.message(message, node, depth + 1)?;
                self.out.put_message_prefix(number, end);
            }
            ValueLayout::Raw => {
                let mut json = std::mem::take(&mut self.scratch);
                json.clear();
                self.tape.write_json(node, &mut json);
                let end = self.out.len();
                self.out.put_bytes_field(1, &json);
                self.out.put_message_prefix(number, end);
                self.scratch = json;
            }
            ValueLayout::SchemaOr(or, id) => {
                let end = self.out.len();
                self.schema_or(or, id, node, depth)?;
                self.out.put_message_prefix(number, end);
            }
            _ => self.out.put_leaf(number, shape, self.tape.node(node))?,
        }
        Ok(())
    }

    /// The body of one of apiextensions' unions.
    fn schema_or(&mut self, or: SchemaOr, id: TypeId, node: u32, depth: usize) -> Result<(), EncodeError> {
        let schema_number = if or == SchemaOr::Bool { 2 } else { 1 };
        match (or, self.tape.node(node)) {
            (_, TapeNode::Object { .. }) => {
                self.value(schema_number, ValueLayout::Message(id), node, depth)?;
                if or == SchemaOr::Bool {
                    self.out.put_varint_field(1, 1);
                }
                Ok(())
            }
            (SchemaOr::Bool, TapeNode::Bool(allows)) => {
                self.out.put_varint_field(1, allows as u64);
                Ok(())
            }
            (SchemaOr::Array, TapeNode::Array { .. }) => self.list(2, ValueLayout::Message(id), node, depth),
            (SchemaOr::StringArray, TapeNode::Array { .. }) => self.list(2, ValueLayout::String, node, depth),
            (SchemaOr::Bool, other) => Err(mismatch("schema or bool", other)),
            (SchemaOr::Array, other) => Err(mismatch("schema or array", other)),
            (SchemaOr::StringArray, other) => Err(mismatch("schema or array of strings", other)),
        }
    }
}
