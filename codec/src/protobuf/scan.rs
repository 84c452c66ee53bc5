//! Scanning a message without decoding its fields: the position of each field, and the contents of small
//! messages that represent scalars.

use std::borrow::Cow;

use smol_str::SmolStr;

use super::sink::wire_text;
use super::wire::{push_varint, WireReader, WireType};
use super::ProtobufError;
use crate::cbor;
use crate::schema::layout::{FieldLayout, FieldSet, FieldStep, Form, Message, ValueLayout};
use crate::schema::SchemaOr;
use crate::time::Timestamp;

/// A field as found by a scan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScannedField<'a> {
    /// The value of a length-delimited field; of a list or map the message from its first element on.
    pub bytes: &'a [u8],
    /// The value of a numeric field.
    pub scalar: u64,
    /// Number of occurrences of the field.
    pub count: u32,
}

/// The wire type of a value of that shape.
#[inline]
pub(super) fn wire_type(shape: ValueLayout) -> WireType {
    match shape {
        ValueLayout::Bool | ValueLayout::Int32 | ValueLayout::Int64 => WireType::Varint,
        ValueLayout::Double => WireType::Fixed64,
        _ => WireType::Bytes,
    }
}

/// Whether a second occurrence is merged into the first. Times and quantities have decoders of their own
/// upstream; for those, and for numbers and strings, the last one counts.
pub(super) fn merges(field: &FieldLayout) -> bool {
    match field.form {
        Form::One => {
            matches!(
                field.shape,
                ValueLayout::Message(_)
                    | ValueLayout::SchemaOr(..)
                    | ValueLayout::IntOrString
                    | ValueLayout::Duration
            )
        }
        Form::Wrapped => true,
        _ => false,
    }
}

/// Records the positions of the fields of one part of a message. False when duplicates must be merged first.
pub(super) fn scan<'a>(
    bytes: &'a [u8],
    message: &Message,
    part: usize,
    seen: &mut [ScannedField<'a>],
    found: &mut FieldSet,
) -> Result<bool, ProtobufError> {
    let layout = &message.parts[part];
    let mut parts = FieldSet::default();
    let mut reader = WireReader::new(bytes);
    while !reader.is_empty() {
        let rest = reader.rest();
        let (number, wire) = reader.tag()?;
        match layout.step(number) {
            None if wire == WireType::EndGroup => return Err(ProtobufError::EndGroup),
            None => reader.skip(wire)?,
            Some(FieldStep::Part { part, .. }) => {
                if wire != WireType::Bytes {
                    return Err(ProtobufError::FieldType { field: message.name.clone(), wire: wire as u8 });
                }
                let inner = reader.bytes()?;
                if !parts.add(part as usize) || !scan(inner, message, part as usize, seen, found)? {
                    return Ok(false);
                }
            }
            Some(FieldStep::Field(index)) => {
                let field = &message.fields[index as usize];
                let seen = &mut seen[index as usize];
                found.add(index as usize);
                let expected = match field.form {
                    Form::One | Form::List => wire_type(field.shape),
                    _ => WireType::Bytes,
                };
                let many = matches!(field.form, Form::List | Form::Map | Form::MapOfWrapped);
                let packed = field.form == Form::List && wire == WireType::Bytes;
                if wire != expected && !packed {
                    return Err(ProtobufError::FieldType { field: field.name.clone(), wire: wire as u8 });
                }
                match wire {
                    WireType::Varint => seen.scalar = reader.varint()?,
                    WireType::Fixed64 => seen.scalar = reader.fixed64()?,
                    _ => {
                        let value = reader.bytes()?;
                        if !many {
                            if seen.count > 0 && merges(field) {
                                return Ok(false);
                            }
                            seen.bytes = value;
                        }
                    }
                }
                if many && seen.count == 0 {
                    seen.bytes = rest;
                }
                seen.count += 1;
            }
        }
    }
    Ok(true)
}

/// The message with the pieces of each singular message field concatenated.
pub(super) fn merge(bytes: &[u8], message: &Message, part: usize) -> Result<Vec<u8>, ProtobufError> {
    let layout = &message.parts[part];
    let mut out = Vec::with_capacity(bytes.len());
    let mut pieces: Vec<(u32, Option<u16>, Vec<u8>)> = Vec::new();
    let mut reader = WireReader::new(bytes);
    while !reader.is_empty() {
        let rest = reader.rest();
        let (number, wire) = reader.tag()?;
        let step = layout.step(number);
        let merged = match step {
            Some(FieldStep::Part { .. }) => true,
            Some(FieldStep::Field(index)) => merges(&message.fields[index as usize]),
            None => false,
        };
        if !merged || wire != WireType::Bytes {
            reader.skip(wire)?;
            let length = rest.len() - reader.rest().len();
            out.extend_from_slice(&rest[..length]);
            continue;
        }
        let value = reader.bytes()?;
        let part = match step {
            Some(FieldStep::Part { part, .. }) => Some(part),
            _ => None,
        };
        match pieces.iter_mut().find(|(n, _, _)| *n == number) {
            Some((_, _, piece)) => piece.extend_from_slice(value),
            None => pieces.push((number, part, value.to_vec())),
        }
    }
    for (number, part, mut piece) in pieces {
        if let Some(part) = part {
            piece = merge(&piece, message, part as usize)?;
        }
        push_varint(&mut out, (number as u64) << 3 | WireType::Bytes as u64);
        push_varint(&mut out, piece.len() as u64);
        out.extend_from_slice(&piece);
    }
    Ok(out)
}

/// Key, value and numeric value of a map entry.
pub(super) type MapEntry<'a> = (Cow<'a, str>, Option<&'a [u8]>, u64);

/// Parses a map entry.
pub(super) fn entry<'a>(bytes: &'a [u8], field: &FieldLayout) -> Result<MapEntry<'a>, ProtobufError> {
    let (mut key, mut value, mut scalar) = (Cow::Borrowed(""), None, 0);
    let mut reader = WireReader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, WireType::Bytes) => key = wire_text(reader.bytes()?),
            (2, WireType::Bytes) => value = Some(reader.bytes()?),
            (2, WireType::Varint) => scalar = reader.varint()?,
            (2, WireType::Fixed64) => scalar = reader.fixed64()?,
            (1 | 2, wire) => {
                return Err(ProtobufError::FieldType { field: field.name.clone(), wire: wire as u8 })
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok((key, value, scalar))
}

/// The items of a wrapped list.
pub(super) fn wrapped_items(bytes: &[u8]) -> Result<ScannedField<'_>, ProtobufError> {
    let mut items = ScannedField::default();
    let mut reader = WireReader::new(bytes);
    while !reader.is_empty() {
        let rest = reader.rest();
        let (number, wire) = reader.tag()?;
        if number != 1 {
            reader.skip(wire)?;
            continue;
        }
        if wire != WireType::Bytes {
            return Err(ProtobufError::FieldType { field: "items".into(), wire: wire as u8 });
        }
        reader.bytes()?;
        if items.count == 0 {
            items.bytes = rest;
        }
        items.count += 1;
    }
    Ok(items)
}

/// The varint fields 1 and 2 of a small message, by number; absent ones are 0.
pub(super) fn varints(bytes: &[u8]) -> Result<[u64; 3], ProtobufError> {
    let mut values = [0; 3];
    let mut reader = WireReader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (number @ (1 | 2), WireType::Varint) => values[number as usize] = reader.varint()?,
            (number @ (1 | 2), wire) => {
                let field = if number == 1 { "type" } else { "value" };
                return Err(ProtobufError::FieldType { field: SmolStr::new_static(field), wire: wire as u8 });
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(values)
}

/// The last length-delimited field of that number in a small message.
pub(super) fn string_field(bytes: &[u8], wanted: u32) -> Result<Option<&[u8]>, ProtobufError> {
    let mut found = None;
    let mut reader = WireReader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (number, WireType::Bytes) if number == wanted => found = Some(reader.bytes()?),
            (number, wire) if number == wanted => {
                return Err(ProtobufError::FieldType { field: "string".into(), wire: wire as u8 })
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(found)
}

/// The content of a raw message; `None` when empty or `null`: Go's JSON decoder leaves such a field unset.
pub(super) fn raw_content(bytes: &[u8]) -> Result<Option<&[u8]>, ProtobufError> {
    let null = |raw: &[u8]| match raw.starts_with(cbor::SELF_DESCRIBED) {
        true => cbor::decode(raw).is_ok_and(|value| value.is_null()),
        false => matches!(raw.trim_ascii(), b"" | b"null"),
    };
    Ok(string_field(bytes, 1)?.filter(|raw| !null(raw)))
}

/// Whether a value behind a pointer is `null` in JSON. Upstream drops the pointer when it decodes that JSON
/// again, so the object tree has no such fields.
pub(super) fn is_null(shape: ValueLayout, bytes: &[u8]) -> Result<bool, ProtobufError> {
    Ok(match shape {
        ValueLayout::Raw => raw_content(bytes)?.is_none(),
        ValueLayout::Time | ValueLayout::MicroTime => timestamp(bytes)?.is_none(),
        ValueLayout::SchemaOr(SchemaOr::Array | SchemaOr::StringArray, _) => {
            let mut reader = WireReader::new(bytes);
            while !reader.is_empty() {
                let (number, wire) = reader.tag()?;
                if matches!(number, 1 | 2) {
                    return Ok(false);
                }
                reader.skip(wire)?;
            }
            true
        }
        _ => false,
    })
}

/// The time of a `Timestamp` message; `None` for Go's zero time, which is also that of an empty message.
/// Times outside the years 1 to 9999, which RFC 3339 cannot write, are an error.
pub(super) fn timestamp(bytes: &[u8]) -> Result<Option<Timestamp>, ProtobufError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let values = varints(bytes)?;
    let (seconds, nanos) = (values[1] as i64, values[2] as i32);
    if !(-62_135_596_800..253_402_300_800).contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
        return Err(ProtobufError::Value { what: "time", field: SmolStr::new_static("seconds") });
    }
    let time = Timestamp { seconds, nanos: nanos as u32 };
    Ok((time != Timestamp::ZERO).then_some(time))
}
