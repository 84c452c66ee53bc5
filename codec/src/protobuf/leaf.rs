//! Single values on the wire, and zero values.

use super::wire::{ReverseBuffer, WireType};
use super::EncodeError;
use crate::base64_text;
use crate::json::TapeNode;
use crate::schema::layout::{Layouts, ValueLayout};
use crate::schema::SchemaOr;
use crate::time::{parse_duration, Timestamp};

pub(super) fn mismatch(expected: &'static str, found: TapeNode<'_>) -> EncodeError {
    EncodeError::Type { path: String::new(), expected, found: found.type_name() }
}

fn invalid(what: &'static str, text: &str) -> EncodeError {
    EncodeError::Value { path: String::new(), what, text: text.chars().take(64).collect() }
}

impl ReverseBuffer {
    /// One value that is not a message, list, map or JSON text, and not `null`.
    pub(crate) fn put_leaf(
        &mut self,
        number: u32,
        shape: ValueLayout,
        value: TapeNode<'_>,
    ) -> Result<(), EncodeError> {
        match shape {
            ValueLayout::String => match value {
                TapeNode::Text(text) => self.put_bytes_field(number, text.as_bytes()),
                other => {
                    let text = other.text().ok_or_else(|| mismatch("string", other))?;
                    self.put_bytes_field(number, text.as_bytes());
                }
            },
            ValueLayout::Bool => match value {
                TapeNode::Bool(b) => self.put_varint_field(number, b as u64),
                other => return Err(mismatch("bool", other)),
            },
            ValueLayout::Int32 => match value.integer() {
                Some(n) if i32::try_from(n).is_ok() => self.put_varint_field(number, n as u64),
                _ => return Err(mismatch("32-bit integer", value)),
            },
            ValueLayout::Int64 => match value.integer() {
                Some(n) => self.put_varint_field(number, n as u64),
                None => return Err(mismatch("64-bit integer", value)),
            },
            ValueLayout::Double => {
                let x = match value {
                    TapeNode::Int(n) => n as f64,
                    TapeNode::Float(x) => x,
                    TapeNode::Number(text) => text.parse().map_err(|_| invalid("number", text))?,
                    other => return Err(mismatch("number", other)),
                };
                if !x.is_finite() {
                    return Err(mismatch("finite number", value));
                }
                self.put_double(number, x);
            }
            ValueLayout::Bytes => {
                let text = value.text().ok_or_else(|| mismatch("string", value))?;
                let bytes = base64_text::decode(&text).map_err(|_| invalid("base64", &text))?;
                self.put_bytes_field(number, &bytes);
            }
            ValueLayout::Quantity => {
                let end = self.len();
                match value {
                    TapeNode::Int(n) => self.put_bytes_field(1, n.to_string().as_bytes()),
                    other => {
                        let text = other.text().ok_or_else(|| mismatch("quantity", other))?;
                        self.put_bytes_field(1, text.as_bytes());
                    }
                }
                self.put_message_prefix(number, end);
            }
            ValueLayout::IntOrString => match value.integer() {
                Some(n) if i32::try_from(n).is_ok() => self.put_int_or_string(number, 0, n, b""),
                _ => {
                    let text = value.text().ok_or_else(|| mismatch("string or 32-bit integer", value))?;
                    self.put_int_or_string(number, 1, 0, text.as_bytes());
                }
            },
            ValueLayout::Time | ValueLayout::MicroTime => {
                let text = value.text().ok_or_else(|| mismatch("string", value))?;
                // Of a Time, seconds alone go on the wire; of a MicroTime, whole microseconds.
                let (time, unit) = match shape {
                    ValueLayout::Time => (Timestamp::parse(&text), 1_000_000_000),
                    _ => (Timestamp::parse_micro(&text), 1_000),
                };
                self.put_time(number, time.map_err(|_| invalid("time", &text))?, unit);
            }
            ValueLayout::Duration => {
                let text = value.text().ok_or_else(|| mismatch("string", value))?;
                let nanos = parse_duration(&text).map_err(|_| invalid("duration", &text))?;
                let end = self.len();
                self.put_varint_field(1, nanos as u64);
                self.put_message_prefix(number, end);
            }
            ValueLayout::Message(_) | ValueLayout::Raw | ValueLayout::SchemaOr(..) | ValueLayout::None => {}
        }
        Ok(())
    }

    /// A time, its nanoseconds cut to whole units.
    fn put_time(&mut self, number: u32, time: Timestamp, unit: u32) {
        if time == Timestamp::ZERO {
            self.put_bytes_field(number, b"");
            return;
        }
        let end = self.len();
        self.put_varint_field(2, (time.nanos / unit * unit) as u64);
        self.put_varint_field(1, time.seconds as u64);
        self.put_message_prefix(number, end);
    }

    fn put_double(&mut self, number: u32, x: f64) {
        self.put(&x.to_bits().to_le_bytes());
        self.put_tag(number, WireType::Fixed64);
    }

    fn put_int_or_string(&mut self, number: u32, kind: u64, n: i64, text: &[u8]) {
        let end = self.len();
        self.put_bytes_field(3, text);
        self.put_varint_field(2, n as u64);
        self.put_varint_field(1, kind);
        self.put_message_prefix(number, end);
    }

    /// A zero value that is not a pointer.
    pub(crate) fn put_zero(&mut self, number: u32, shape: ValueLayout, layouts: &Layouts) {
        match shape {
            ValueLayout::Bool | ValueLayout::Int32 | ValueLayout::Int64 => self.put_varint_field(number, 0),
            ValueLayout::Double => self.put_double(number, 0.0),
            ValueLayout::String => self.put_bytes_field(number, b""),
            // A nil slice.
            ValueLayout::Bytes | ValueLayout::None => {}
            // A message that holds the string "0".
            ValueLayout::Quantity => self.put_bytes_field(number, b"\x0a\x010"),
            ValueLayout::IntOrString => self.put_int_or_string(number, 0, 0, b""),
            ValueLayout::Time | ValueLayout::MicroTime | ValueLayout::Raw => {
                self.put_bytes_field(number, b"")
            }
            ValueLayout::Duration | ValueLayout::SchemaOr(SchemaOr::Bool, _) => {
                self.put_bytes_field(number, b"\x08\x00")
            }
            ValueLayout::SchemaOr(..) => self.put_bytes_field(number, b""),
            ValueLayout::Message(id) => {
                let empty = layouts.message(id).map_or(&[][..], |m| &m.empty);
                self.put_bytes_field(number, empty);
            }
        }
    }
}
