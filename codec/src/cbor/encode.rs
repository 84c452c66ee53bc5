//! Writing CBOR from a flat parse tree.

use super::SELF_DESCRIBED;
use crate::base64_text;
use crate::error::EncodeError;
use crate::json::{Tape, TapeNode};
use crate::schema::{Scalar, Schema, SchemaOr, Type, TypeId};
use crate::value::Value;

/// Appends an object as a document. The schema determines which strings are bytes and which integers are
/// floats; custom resources need none. Nothing is added or omitted, so the tree must be complete, as
/// [`crate::json`] writes it.
pub fn encode(
    value: &Value,
    schema: Option<(&Schema, TypeId)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write_document(&Tape::from_value(value)?, schema, out)
}

/// The same without the self-described tag: an item of a list.
pub fn encode_bare(
    value: &Value,
    schema: Option<(&Schema, TypeId)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write(&Tape::from_value(value)?, schema, out)
}

/// Appends an object as a document, straight from JSON text.
pub fn transcode_json(
    json: &[u8],
    schema: Option<(&Schema, TypeId)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write_document(&Tape::from_json(json)?, schema, out)
}

/// The same without the self-described tag: an item of a list.
pub fn transcode_json_bare(
    json: &[u8],
    schema: Option<(&Schema, TypeId)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write(&Tape::from_json(json)?, schema, out)
}

fn write_document(
    tape: &Tape<'_>,
    schema: Option<(&Schema, TypeId)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(SELF_DESCRIBED);
    write(tape, schema, out).inspect_err(|_| out.truncate(start))
}

/// How a node is interpreted.
#[derive(Clone, Copy)]
enum As {
    /// By its JSON type.
    Any,
    /// By a type of the schema.
    Typed(TypeId),
    /// A member's key.
    Key,
}

/// Writes a tape without recursion: pending nodes are on a stack, the next one on top.
fn write(tape: &Tape<'_>, schema: Option<(&Schema, TypeId)>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    let written = write_items(tape, schema, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_items(
    tape: &Tape<'_>,
    schema: Option<(&Schema, TypeId)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let root = schema.map_or(As::Any, |(_, id)| As::Typed(id));
    let schema = schema.map(|(schema, _)| schema);
    let typed = |id: TypeId| schema.map(|schema| schema.get(id));
    let mut pending = vec![(0u32, root)];
    let mut members: Vec<u32> = Vec::new();
    while let Some((index, kind)) = pending.pop() {
        let node = tape.node(index);
        let ty = match kind {
            As::Typed(id) => typed(id),
            _ => None,
        };
        match node {
            TapeNode::Null => out.push(0xf6),
            TapeNode::Bool(b) => out.push(if b { 0xf5 } else { 0xf4 }),
            TapeNode::Int(n) if matches!(ty, Some(Type::Scalar(Scalar::Double))) => push_float(out, n as f64),
            TapeNode::Int(n) if n < 0 => push_head(out, 1, !n as u64),
            TapeNode::Int(n) => push_head(out, 0, n as u64),
            TapeNode::Float(x) => push_float(out, x),
            TapeNode::Number(text) => match node.integer() {
                Some(n) if !matches!(ty, Some(Type::Scalar(Scalar::Double))) => push_head(out, 0, n as u64),
                _ => push_float(out, text.parse().unwrap_or_default()),
            },
            TapeNode::Text(_) | TapeNode::Escaped(_) => {
                let text = node.text().unwrap_or_default();
                match ty {
                    Some(Type::Scalar(Scalar::Bytes)) => push_base64(out, &text)?,
                    _ => push_bytes(out, text.as_bytes()),
                }
            }
            TapeNode::Array { end } => {
                let element = match ty {
                    Some(Type::List { element, .. }) => As::Typed(*element),
                    Some(Type::Scalar(Scalar::SchemaOr(SchemaOr::Array, id))) => As::Typed(*id),
                    _ => As::Any,
                };
                let first = pending.len();
                let mut at = index + 1;
                while at < end {
                    pending.push((at, element));
                    at = tape.after(at);
                }
                push_head(out, 4, (pending.len() - first) as u64);
                pending[first..].reverse();
            }
            TapeNode::Object { end } => {
                members.clear();
                let mut key = index + 1;
                while key < end {
                    members.push(key);
                    key = tape.after(key + 1);
                }
                sort_members(tape, &mut members);
                push_head(out, 5, members.len() as u64);
                for &key in members.iter().rev() {
                    let value = match ty {
                        Some(Type::Map { value, .. }) => As::Typed(*value),
                        Some(Type::Struct(s)) => member_type(s, tape.node(key)),
                        Some(Type::Scalar(Scalar::SchemaOr(_, id))) => match typed(*id) {
                            Some(Type::Struct(s)) => member_type(s, tape.node(key)),
                            _ => As::Any,
                        },
                        _ => As::Any,
                    };
                    pending.push((key + 1, value));
                    pending.push((key, As::Key));
                }
            }
        }
    }
    Ok(())
}

fn member_type(structure: &crate::schema::StructType, key: TapeNode<'_>) -> As {
    match key.text().and_then(|name| structure.field(&name)) {
        Some(field) => As::Typed(field.type_id),
        None => As::Any,
    }
}

/// Sorts members by their encoded keys, which is by length, then by bytes; of equal keys the last counts.
fn sort_members(tape: &Tape<'_>, members: &mut Vec<u32>) {
    let order = |key: &u32| {
        let text = tape.node(*key).text().unwrap_or_default();
        (text.len(), text)
    };
    if members.is_sorted_by(|a, b| order(a) < order(b)) {
        return;
    }
    members.sort_by_cached_key(order);
    members.dedup_by(|later, earlier| {
        let same = tape.node(*later).text() == tape.node(*earlier).text();
        if same {
            *earlier = *later;
        }
        same
    });
}

/// The first byte or bytes of an item: its major type and its argument, as short as can be.
pub(super) fn push_head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let major = major << 5;
    match argument {
        0..24 => out.push(major | argument as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, argument as u8]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend_from_slice(&(argument as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend_from_slice(&(argument as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&argument.to_be_bytes());
        }
    }
}

pub(super) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_head(out, 2, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The bytes of a base64 text, with the tag that makes readers show them so.
fn push_base64(out: &mut Vec<u8>, text: &str) -> Result<(), EncodeError> {
    let bytes = base64_text::decode(text).map_err(|_| EncodeError::Value {
        path: String::new(),
        what: "base64",
        text: text.chars().take(64).collect(),
    })?;
    out.push(0xd6);
    push_bytes(out, &bytes);
    Ok(())
}

/// The shortest float of 16, 32 or 64 bits that is the same number.
fn push_float(out: &mut Vec<u8>, x: f64) {
    let single = x as f32;
    if f64::from(single) != x {
        out.push(0xfb);
        out.extend_from_slice(&x.to_bits().to_be_bytes());
        return;
    }
    match half(single) {
        Some(bits) => {
            out.push(0xf9);
            out.extend_from_slice(&bits.to_be_bytes());
        }
        None => {
            out.push(0xfa);
            out.extend_from_slice(&single.to_bits().to_be_bytes());
        }
    }
}

/// The half-precision form of a finite number that has one.
fn half(x: f32) -> Option<u16> {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let exponent = (bits >> 23 & 0xff) as i32 - 127;
    let fraction = bits & 0x7f_ffff;
    match exponent {
        -127 if fraction == 0 => Some(sign),
        // Normal: 5 bits of exponent, 10 of fraction.
        -14..=15 if fraction & 0x1fff == 0 => {
            Some(sign | ((exponent + 15) as u16) << 10 | (fraction >> 13) as u16)
        }
        // Subnormal: a multiple of 2^-24.
        -24..=-15 => {
            let shift = (-1 - exponent) as u32;
            let whole = fraction | 0x80_0000;
            (whole.trailing_zeros() >= shift).then(|| sign | (whole >> shift) as u16)
        }
        _ => None,
    }
}
