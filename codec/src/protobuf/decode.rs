//! Decodes wire bytes to a [`Sink`]: an object tree or canonical JSON.
//!
//! A message is read in two steps, because its fields may be in any order while JSON has them in that of the
//! schema. A scan records where the value of each field is, without decoding it; then the fields are emitted
//! in JSON order with upstream's omission rules. Nested messages are scanned only as they are emitted, so
//! each byte is visited about twice, at any depth.
//!
//! A duplicate message in a singular field is merged, as protobuf requires: its pieces are concatenated,
//! which is equivalent, and scanned again.

use std::borrow::Cow;

use super::scan::{
    entry, is_null, merge, raw_content, scan, string_field, timestamp, varints, wire_type, wrapped_items,
    MapEntry, ScannedField,
};
use super::sink::{wire_text, Sink};
use super::wire::{WireReader, WireType};
use super::{layouts, Envelope, ProtobufError, MAGIC, MAX_DEPTH};
use crate::cbor;
use crate::json::Tape;
use crate::quantity::Quantity;
use crate::schema::layout::{FieldLayout, FieldSet, Form, Layouts, Message, ValueLayout};
use crate::schema::{Omit, Schema, SchemaOr, TypeId, GVK};
use crate::time::format_duration;

/// Decodes messages against a schema.
pub(crate) struct Decoder<'s, 'a> {
    schema: &'s Schema,
    layouts: &'s Layouts,
    /// A stack of the scanned fields of the messages that are being emitted.
    seen: Vec<ScannedField<'a>>,
}

impl<'s, 'a> Decoder<'s, 'a> {
    pub(super) fn new(schema: &'s Schema) -> Decoder<'s, 'a> {
        Decoder { schema, layouts: layouts(schema), seen: Vec::with_capacity(128) }
    }

    /// Emits an object.
    pub(super) fn object<S: Sink>(
        &mut self,
        raw: &'a [u8],
        type_meta: Option<&GVK>,
        id: TypeId,
        sink: &mut S,
    ) -> Result<(), ProtobufError> {
        self.object_at(raw, type_meta, id, sink, 0)
    }

    fn object_at<S: Sink>(
        &mut self,
        raw: &'a [u8],
        type_meta: Option<&GVK>,
        id: TypeId,
        sink: &mut S,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let message = self.layouts.message(id).ok_or(ProtobufError::NotAMessage)?;
        self.message(raw, message, type_meta, sink, depth)
    }

    fn message<S: Sink>(
        &mut self,
        bytes: &'a [u8],
        message: &'s Message,
        type_meta: Option<&GVK>,
        sink: &mut S,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if depth > MAX_DEPTH {
            return Err(ProtobufError::TooDeep);
        }
        let base = self.seen.len();
        self.seen.resize(base + message.fields.len(), ScannedField::default());
        let mut found = message.always;
        if !scan(bytes, message, 0, &mut self.seen[base..], &mut found)? {
            self.seen.truncate(base);
            let merged = merge(bytes, message, 0)?;
            return Decoder::new(self.schema).message(&merged, message, type_meta, sink, depth);
        }
        sink.begin_object();
        if let Some(gvk) = type_meta {
            message.fields.iter().filter(|f| f.number == 0).for_each(|f| type_meta_field(f, gvk, sink));
        }
        for i in found {
            let seen = self.seen[base + i];
            self.field(&message.fields[i], seen, sink, depth)?;
        }
        sink.end_object();
        self.seen.truncate(base);
        Ok(())
    }

    fn field<S: Sink>(
        &mut self,
        field: &'s FieldLayout,
        seen: ScannedField<'a>,
        sink: &mut S,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let nil = match seen.count {
            0 => field.pointer || field.form != Form::One || field.shape == ValueLayout::Bytes,
            _ => field.pointer && field.form == Form::One && is_null(field.shape, seen.bytes)?,
        };
        if nil {
            if field.omit == Omit::Never {
                sink.field(field);
                sink.null();
            }
            return Ok(());
        }
        match field.form {
            Form::One => {
                if !field.pointer && self.left_out(field, seen)? {
                    return Ok(());
                }
                sink.field(field);
                self.value(field, seen.bytes, seen.scalar, sink, depth)
            }
            Form::List => {
                sink.field(field);
                sink.begin_array();
                self.elements(field, field.number, seen, sink, depth)?;
                sink.end_array();
                Ok(())
            }
            Form::Wrapped => {
                let items = wrapped_items(seen.bytes)?;
                if items.count == 0 && field.omit != Omit::Never {
                    return Ok(());
                }
                sink.field(field);
                sink.begin_array();
                self.elements(field, 1, items, sink, depth)?;
                sink.end_array();
                Ok(())
            }
            Form::Map | Form::MapOfWrapped => {
                sink.field(field);
                self.map(field, seen, sink, depth)
            }
        }
    }

    /// Whether Go's struct tag omits the value of a field that is not a pointer.
    fn left_out(&self, field: &FieldLayout, seen: ScannedField<'_>) -> Result<bool, ProtobufError> {
        Ok(match (field.omit, field.shape) {
            (Omit::Never, _) => false,
            (_, ValueLayout::Bool | ValueLayout::Int64) => seen.scalar == 0,
            (_, ValueLayout::Int32) => seen.scalar as i32 == 0,
            (_, ValueLayout::Double) => f64::from_bits(seen.scalar) == 0.0,
            (_, ValueLayout::String | ValueLayout::Bytes) => seen.bytes.is_empty(),
            (Omit::Empty, _) => false,
            (Omit::Zero, _) => self.is_zero(field, seen, 0)?,
        })
    }

    /// Whether a field holds its zero value, as `omitzero` asks.
    fn is_zero(
        &self,
        field: &FieldLayout,
        seen: ScannedField<'_>,
        depth: usize,
    ) -> Result<bool, ProtobufError> {
        if seen.count == 0 {
            return Ok(true);
        }
        if field.form != Form::One {
            return Ok(false);
        }
        if field.pointer {
            return is_null(field.shape, seen.bytes);
        }
        Ok(match field.shape {
            ValueLayout::Bool => seen.scalar == 0,
            ValueLayout::Int32 => seen.scalar as i32 == 0,
            ValueLayout::Int64 | ValueLayout::Double => seen.scalar == 0,
            ValueLayout::String | ValueLayout::None => seen.bytes.is_empty(),
            ValueLayout::Bytes => false,
            ValueLayout::Raw => raw_content(seen.bytes)?.is_none(),
            ValueLayout::Time | ValueLayout::MicroTime => timestamp(seen.bytes)?.is_none(),
            ValueLayout::Duration => varints(seen.bytes)?[1] == 0,
            ValueLayout::Quantity => matches!(string_field(seen.bytes, 1)?, None | Some(b"0")),
            ValueLayout::IntOrString => {
                let numbers = varints(seen.bytes)?;
                numbers[1] == 0
                    && numbers[2] == 0
                    && string_field(seen.bytes, 3)?.is_none_or(<[u8]>::is_empty)
            }
            ValueLayout::SchemaOr(..) => seen.bytes.is_empty() || seen.bytes == b"\x08\x00",
            ValueLayout::Message(id) => {
                let message = self.layouts.message(id).ok_or(ProtobufError::NotAMessage)?;
                if seen.bytes.is_empty() || seen.bytes == &*message.empty {
                    return Ok(true);
                }
                if depth > MAX_DEPTH {
                    return Err(ProtobufError::TooDeep);
                }
                let mut inner = vec![ScannedField::default(); message.fields.len()];
                if !scan(seen.bytes, message, 0, &mut inner, &mut FieldSet::default())? {
                    let merged = merge(seen.bytes, message, 0)?;
                    return self.is_zero(field, ScannedField { bytes: &merged, ..seen }, depth + 1);
                }
                for (field, seen) in message.fields.iter().zip(inner) {
                    if !self.is_zero(field, seen, depth + 1)? {
                        return Ok(false);
                    }
                }
                true
            }
        })
    }

    /// The elements of a list: `seen.count` fields of that number, from the first one on.
    fn elements<S: Sink>(
        &mut self,
        field: &'s FieldLayout,
        number: u32,
        seen: ScannedField<'a>,
        sink: &mut S,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let mut reader = WireReader::new(seen.bytes);
        let mut left = seen.count;
        while left > 0 {
            let (found, wire) = reader.tag()?;
            if found != number {
                reader.skip(wire)?;
                continue;
            }
            left -= 1;
            match wire {
                WireType::Varint => {
                    let scalar = reader.varint()?;
                    self.value(field, &[], scalar, sink, depth)?;
                }
                WireType::Fixed64 => {
                    let scalar = reader.fixed64()?;
                    self.value(field, &[], scalar, sink, depth)?;
                }
                _ => {
                    let bytes = reader.bytes()?;
                    match wire_type(field.shape) {
                        WireType::Bytes => self.value(field, bytes, 0, sink, depth)?,
                        // Numbers may also be packed.
                        packed => {
                            let mut inner = WireReader::new(bytes);
                            while !inner.is_empty() {
                                let scalar = match packed {
                                    WireType::Fixed64 => inner.fixed64()?,
                                    _ => inner.varint()?,
                                };
                                self.value(field, &[], scalar, sink, depth)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn map<S: Sink>(
        &mut self,
        field: &'s FieldLayout,
        seen: ScannedField<'a>,
        sink: &mut S,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let mut entries: Vec<MapEntry<'a>> = Vec::with_capacity(seen.count.min(1024) as usize);
        let mut reader = WireReader::new(seen.bytes);
        let mut left = seen.count;
        while left > 0 {
            let (found, wire) = reader.tag()?;
            if found != field.number {
                reader.skip(wire)?;
                continue;
            }
            left -= 1;
            entries.push(entry(reader.bytes()?, field)?);
        }
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            // Stable, so that of equal keys the last one stays last; that one counts.
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    std::mem::swap(later, earlier);
                }
                same
            });
        }
        sink.begin_object();
        for (key, bytes, scalar) in entries {
            sink.key(&key);
            match (field.form, bytes) {
                (Form::MapOfWrapped, bytes) => {
                    let items = wrapped_items(bytes.unwrap_or_default())?;
                    sink.begin_array();
                    self.elements(field, 1, items, sink, depth)?;
                    sink.end_array();
                }
                (_, bytes) => self.value(field, bytes.unwrap_or_default(), scalar, sink, depth)?,
            }
        }
        sink.end_object();
        Ok(())
    }

    /// One value, zero values included.
    fn value<S: Sink>(
        &mut self,
        field: &'s FieldLayout,
        bytes: &'a [u8],
        scalar: u64,
        sink: &mut S,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let bad = |what| ProtobufError::Value { what, field: field.name.clone() };
        match field.shape {
            ValueLayout::String => sink.wire_string(bytes),
            ValueLayout::Bool => sink.bool(scalar != 0),
            ValueLayout::Int32 => sink.int(scalar as i32 as i64),
            ValueLayout::Int64 => sink.int(scalar as i64),
            ValueLayout::Double => match f64::from_bits(scalar) {
                x if x.is_finite() => sink.float(x),
                _ => return Err(bad("number")),
            },
            ValueLayout::Bytes => sink.base64(bytes),
            ValueLayout::Message(id) => {
                let message = self.layouts.message(id).ok_or(ProtobufError::NotAMessage)?;
                self.message(bytes, message, None, sink, depth + 1)?;
            }
            ValueLayout::Quantity => match string_field(bytes, 1)? {
                None => sink.string("0"),
                Some(bytes) => {
                    let text = wire_text(bytes);
                    sink.string(&Quantity::canonicalize(&text).map_err(|_| bad("quantity"))?);
                }
            },
            ValueLayout::IntOrString => {
                let numbers = varints(bytes)?;
                match numbers[1] {
                    0 => sink.int(numbers[2] as i32 as i64),
                    1 => sink.wire_string(string_field(bytes, 3)?.unwrap_or_default()),
                    _ => return Err(bad("IntOrString")),
                }
            }
            ValueLayout::Time | ValueLayout::MicroTime => match timestamp(bytes).map_err(|_| bad("time"))? {
                None => sink.null(),
                Some(time) if field.shape == ValueLayout::Time => sink.string(&time.to_rfc3339()),
                Some(time) => sink.string(&time.to_rfc3339_micro()),
            },
            ValueLayout::Duration => sink.string(&format_duration(varints(bytes)?[1] as i64)),
            ValueLayout::Raw => match raw_content(bytes)? {
                None => sink.null(),
                Some(raw) => self.raw(field, raw, sink, depth)?,
            },
            ValueLayout::SchemaOr(or, id) => self.schema_or(field, or, id, bytes, sink, depth)?,
            ValueLayout::None => sink.null(),
        }
        Ok(())
    }

    /// An embedded object: usually JSON; in a watch event or `v1.List` protobuf, from a dynamic client CBOR.
    fn raw<S: Sink>(
        &mut self,
        field: &FieldLayout,
        raw: &'a [u8],
        sink: &mut S,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let bad = |what| ProtobufError::Value { what, field: field.name.clone() };
        if raw.starts_with(MAGIC) {
            let envelope = Envelope::parse(raw)?;
            let (gvk, id) = envelope.resolve(self.schema)?;
            return self.object_at(envelope.raw, Some(&gvk), id, sink, depth + 1);
        }
        if raw.starts_with(cbor::SELF_DESCRIBED) {
            let value = cbor::decode(raw).map_err(|_| bad("embedded CBOR"))?;
            let tape = Tape::from_value(&value).map_err(|_| bad("embedded CBOR"))?;
            sink.tape(&tape);
            return Ok(());
        }
        let tape = Tape::from_json(raw).map_err(|_| bad("embedded JSON"))?;
        sink.tape(&tape);
        Ok(())
    }

    fn schema_or<S: Sink>(
        &mut self,
        field: &'s FieldLayout,
        or: SchemaOr,
        id: TypeId,
        bytes: &'a [u8],
        sink: &mut S,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if depth > MAX_DEPTH {
            return Err(ProtobufError::TooDeep);
        }
        let message = self.layouts.message(id).ok_or(ProtobufError::NotAMessage)?;
        let Union { schema, allows, mut alternatives } = Union::scan(field, or, bytes)?;
        if alternatives.count > 0 {
            sink.begin_array();
            let mut reader = WireReader::new(alternatives.bytes);
            while alternatives.count > 0 {
                let (number, wire) = reader.tag()?;
                if number != 2 {
                    reader.skip(wire)?;
                    continue;
                }
                alternatives.count -= 1;
                let element = reader.bytes()?;
                match or {
                    SchemaOr::StringArray => sink.wire_string(element),
                    _ => self.message(element, message, None, sink, depth + 1)?,
                }
            }
            sink.end_array();
            return Ok(());
        }
        match schema {
            Some(Cow::Borrowed(piece)) => self.message(piece, message, None, sink, depth + 1),
            Some(Cow::Owned(pieces)) => {
                Decoder::new(self.schema).message(&pieces, message, None, sink, depth + 1)
            }
            None if or == SchemaOr::Bool => {
                sink.bool(allows);
                Ok(())
            }
            None => {
                sink.null();
                Ok(())
            }
        }
    }
}

/// The fields of a [`SchemaOr`] on the wire.
#[derive(Default)]
struct Union<'a> {
    /// Pieces of one schema, merged by concatenation.
    schema: Option<Cow<'a, [u8]>>,
    allows: bool,
    alternatives: ScannedField<'a>,
}

impl<'a> Union<'a> {
    fn scan(field: &FieldLayout, or: SchemaOr, bytes: &'a [u8]) -> Result<Union<'a>, ProtobufError> {
        let schema_number = if or == SchemaOr::Bool { 2 } else { 1 };
        let mut union = Union::default();
        let mut reader = WireReader::new(bytes);
        while !reader.is_empty() {
            let rest = reader.rest();
            let (number, wire) = reader.tag()?;
            let expect = |expected| match wire == expected {
                true => Ok(()),
                false => Err(ProtobufError::FieldType { field: field.name.clone(), wire: wire as u8 }),
            };
            if number == schema_number {
                expect(WireType::Bytes)?;
                let piece = reader.bytes()?;
                match &mut union.schema {
                    None => union.schema = Some(Cow::Borrowed(piece)),
                    Some(pieces) => pieces.to_mut().extend_from_slice(piece),
                }
            } else if number == 1 {
                expect(WireType::Varint)?;
                union.allows = reader.varint()? != 0;
            } else if number == 2 {
                expect(WireType::Bytes)?;
                reader.bytes()?;
                if union.alternatives.count == 0 {
                    union.alternatives.bytes = rest;
                }
                union.alternatives.count += 1;
            } else {
                reader.skip(wire)?;
            }
        }
        Ok(union)
    }
}

fn type_meta_field<S: Sink>(field: &FieldLayout, gvk: &GVK, sink: &mut S) {
    let text = match field.name.as_str() {
        "kind" => gvk.kind.clone(),
        "apiVersion" => gvk.api_version(),
        _ => return,
    };
    if !text.is_empty() {
        sink.field(field);
        sink.string(&text);
    }
}
