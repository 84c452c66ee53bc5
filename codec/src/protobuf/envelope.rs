//! Framing of messages: the `k8s\0` envelope of objects, the frame of lists, watch frames.

use std::borrow::Cow;

use smol_str::SmolStr;

use super::sink::wire_text;
use super::wire::{push_varint, varint, WireReader, WireType};
use super::ProtobufError;
use crate::schema::{Schema, TypeId, GVK};

/// The four bytes before every object; the last one is the encoding style, of which only one exists.
pub const MAGIC: &[u8] = b"k8s\0";

// Tags of runtime.Unknown and its TypeMeta, of lists and of WatchEvent: number << 3 | 2.
const TYPE_META: u8 = 1 << 3 | 2;
const RAW: u8 = 2 << 3 | 2;
const CONTENT_ENCODING: u8 = 3 << 3 | 2;
const CONTENT_TYPE: u8 = 4 << 3 | 2;
const API_VERSION: u8 = 1 << 3 | 2;
const KIND: u8 = 2 << 3 | 2;
const LIST_META: u8 = 1 << 3 | 2;
pub(super) const ITEMS: u32 = 2;
const EVENT_TYPE: u8 = 1 << 3 | 2;
const EVENT_OBJECT: u8 = 2 << 3 | 2;
const RAW_EXTENSION_RAW: u8 = 1 << 3 | 2;

/// An object in its envelope, the message `runtime.Unknown`: the type metadata and the object's own message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope<'a> {
    /// `apps/v1`.
    pub api_version: Cow<'a, str>,
    /// `Deployment`.
    pub kind: Cow<'a, str>,
    /// The object's message.
    pub raw: &'a [u8],
    /// Empty in all that upstream writes.
    pub content_encoding: Cow<'a, str>,
    /// Empty in all that upstream writes.
    pub content_type: Cow<'a, str>,
}

impl<'a> Envelope<'a> {
    /// Parses an envelope without copying.
    pub fn parse(bytes: &'a [u8]) -> Result<Envelope<'a>, ProtobufError> {
        if bytes.is_empty() {
            return Err(ProtobufError::Empty);
        }
        let body = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
        if body.is_empty() {
            return Err(ProtobufError::EmptyBody);
        }
        let mut envelope = Envelope::default();
        for_each_field(body, "Unknown", |number, value| {
            match number {
                1 => envelope.type_meta(value)?,
                2 => envelope.raw = value,
                3 => envelope.content_encoding = wire_text(value),
                4 => envelope.content_type = wire_text(value),
                _ => {}
            }
            Ok(())
        })?;
        Ok(envelope)
    }

    fn type_meta(&mut self, bytes: &'a [u8]) -> Result<(), ProtobufError> {
        for_each_field(bytes, "typeMeta", |number, value| {
            match number {
                1 => self.api_version = wire_text(value),
                2 => self.kind = wire_text(value),
                _ => {}
            }
            Ok(())
        })
    }

    /// Group, version and kind. A version without a slash is one of the core group.
    pub fn gvk(&self) -> GVK {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        GVK::new(group, version, &*self.kind)
    }

    /// The kind and its type in a schema.
    pub fn resolve(&self, schema: &Schema) -> Result<(GVK, TypeId), ProtobufError> {
        if self.kind.is_empty() {
            return Err(ProtobufError::MissingKind);
        }
        if self.api_version.is_empty() {
            return Err(ProtobufError::MissingVersion);
        }
        let gvk = self.gvk();
        match schema.kind(&gvk) {
            Some(id) => Ok((gvk, id)),
            None => Err(ProtobufError::UnknownKind(gvk)),
        }
    }

    /// The envelope as bytes, magic number first.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.raw.len() + self.api_version.len() + self.kind.len() + 32);
        head(&self.api_version, &self.kind, self.raw.len(), &mut out);
        out.extend_from_slice(self.raw);
        push_field(&mut out, CONTENT_ENCODING, self.content_encoding.as_bytes());
        push_field(&mut out, CONTENT_TYPE, self.content_type.as_bytes());
        out
    }

    /// Appends a message with the envelope that upstream puts around it.
    pub fn write(api_version: &str, kind: &str, raw: &[u8], out: &mut Vec<u8>) {
        out.reserve(raw.len() + api_version.len() + kind.len() + 32);
        head(api_version, kind, raw.len(), out);
        out.extend_from_slice(raw);
        out.extend_from_slice(TAIL);
    }
}

/// Content encoding and content type, both empty.
const TAIL: &[u8] = &[CONTENT_ENCODING, 0, CONTENT_TYPE, 0];

/// The part of an envelope before its message.
fn head(api_version: &str, kind: &str, raw_len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    out.push(TYPE_META);
    push_varint(out, (field_len(api_version.len()) + field_len(kind.len())) as u64);
    push_field(out, API_VERSION, api_version.as_bytes());
    push_field(out, KIND, kind.as_bytes());
    out.push(RAW);
    push_varint(out, raw_len as u64);
}

fn push_field(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    push_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// The length of a length-delimited field with a one-byte tag.
fn field_len(len: usize) -> usize {
    1 + varint(len as u64).1 + len
}

/// Calls `take` with number and value of each length-delimited field.
fn for_each_field<'a>(
    bytes: &'a [u8],
    what: &'static str,
    mut take: impl FnMut(u32, &'a [u8]) -> Result<(), ProtobufError>,
) -> Result<(), ProtobufError> {
    let mut reader = WireReader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (number, WireType::Bytes) => {
                take(number, reader.bytes()?)?;
            }
            (1..=4, wire) => {
                return Err(ProtobufError::FieldType { field: SmolStr::new_static(what), wire: wire as u8 })
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(())
}

/// The bytes around the items of a list, for a list that is streamed: first [`ListFrame::head`], then each
/// item with its prefix ([`super::transcode_json_item`]), then [`ListFrame::tail`].
///
/// The envelope states the length of the whole list before the first item, so the lengths of all items
/// must be known when the frame is made: from a first pass, or from a cache of transcoded items.
#[derive(Debug)]
pub struct ListFrame {
    head: Vec<u8>,
}

impl ListFrame {
    /// The frame of a list: `list_meta` is the message of its `metadata` (see
    /// [`super::encode_message`]), `item_lens` the length of each item's bare message.
    pub fn new(gvk: &GVK, list_meta: &[u8], item_lens: impl IntoIterator<Item = usize>) -> ListFrame {
        ListFrame::of_total(gvk, list_meta, item_lens.into_iter().map(ListFrame::item_len).sum())
    }

    /// The frame of a list whose items take `items` bytes together: the sum of their `ListFrame::item_len`.
    pub fn of_total(gvk: &GVK, list_meta: &[u8], items: usize) -> ListFrame {
        let mut out = Vec::with_capacity(list_meta.len() + 64);
        head(&gvk.api_version(), &gvk.kind, field_len(list_meta.len()) + items, &mut out);
        push_field(&mut out, LIST_META, list_meta);
        ListFrame { head: out }
    }

    /// The bytes before the items.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The length of an item with a bare message of that length, prefix included.
    pub(crate) fn item_len(len: usize) -> usize {
        field_len(len)
    }

    /// The bytes after the items.
    pub fn tail() -> &'static [u8] {
        TAIL
    }
}

/// An event of a watch in protobuf: a frame of a 4-byte big-endian length and a bare `WatchEvent`; only the
/// object within carries an envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub event_type: Cow<'a, str>,
    /// The object in its envelope.
    pub object: &'a [u8],
}

impl<'a> WatchEvent<'a> {
    /// Appends a frame. `object` is an object with its envelope.
    pub fn write(event_type: &str, object: &[u8], out: &mut Vec<u8>) {
        let raw = field_len(object.len());
        let len = field_len(event_type.len()) + field_len(raw);
        out.reserve(len + 4);
        // An object beyond 4 GiB cannot be stored, so the length always fits.
        out.extend_from_slice(&(len as u32).to_be_bytes());
        push_field(out, EVENT_TYPE, event_type.as_bytes());
        out.push(EVENT_OBJECT);
        push_varint(out, raw as u64);
        push_field(out, RAW_EXTENSION_RAW, object);
    }

    /// Reads the first frame of a stream. `None` when it is incomplete. The second result is how many bytes
    /// the frame took. Frames longer than `max` bytes are refused.
    pub fn read(bytes: &'a [u8], max: usize) -> Result<Option<(WatchEvent<'a>, usize)>, ProtobufError> {
        let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        if len > max {
            return Err(ProtobufError::Overflow);
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let mut event = WatchEvent { event_type: Cow::Borrowed(""), object: &[] };
        for_each_field(body, "WatchEvent", |number, value| {
            match number {
                1 => event.event_type = wire_text(value),
                2 => for_each_field(value, "object", |number, raw| {
                    if number == 1 {
                        event.object = raw;
                    }
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(Some((event, len + 4)))
    }
}
