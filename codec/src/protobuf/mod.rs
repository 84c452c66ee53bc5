//! Kubernetes protobuf: envelope, objects, lists, watch frames.
//!
//! All code is driven by the schema: its fields carry protobuf numbers, so no kind has code of its own.
//! Output is upstream's byte for byte. Sources: `k8s.io/apimachinery/pkg/runtime/serializer/protobuf`, the
//! `generated.proto` files of `k8s.io/api`, and the presence rules of gogo-proto.
//!
//! Wire primitives are not `prost`'s: the encoder writes from the end to the start, which saves the sizing
//! pass but is not possible with `prost::encoding`; and the decoder has the tolerance of upstream's generated
//! code, which differs from prost's (padded varints, groups, merging).
//!
//! ```
//! use plinth_codec::protobuf::Envelope;
//!
//! let bytes = Envelope { api_version: "v1".into(), kind: "Pod".into(), ..Envelope::default() }.to_bytes();
//! assert!(bytes.starts_with(b"k8s\0"));
//! assert_eq!(Envelope::parse(&bytes).unwrap().kind, "Pod");
//! ```

mod decode;
mod empty;
mod encode;
mod envelope;
mod error;
mod leaf;
mod scan;
mod sink;
mod transcode;
mod wire;

#[cfg(test)]
mod tests;

pub use crate::error::EncodeError;
use crate::json::Tape;
use crate::schema::{Schema, TypeId, GVK};
use crate::value::Value;
use decode::Decoder;
use empty::layouts;
pub use envelope::{Envelope, ListFrame, WatchEvent, MAGIC};
pub use error::{ProtobufError, MAX_DEPTH};
use sink::{JsonSink, TreeSink};
pub(crate) use wire::push_varint;
use wire::ReverseBuffer;

/// Appends an object with its envelope: the body of a request or response, or a value of etcd.
///
/// `object` is normalized (quantities and times canonical); its `apiVersion` and `kind` are ignored, the
/// envelope has those of `gvk`. Leaves `out` as it was when it fails.
pub fn encode(
    value: &Value,
    gvk: &GVK,
    schema: &Schema,
    id: TypeId,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let body = message(value, schema, id)?;
    Envelope::write(&gvk.api_version(), &gvk.kind, body.as_slice(), out);
    Ok(())
}

/// Appends the bare message of an object, without an envelope: an item of a list.
pub fn encode_message(
    value: &Value,
    schema: &Schema,
    id: TypeId,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let body = message(value, schema, id)?;
    out.extend_from_slice(body.as_slice());
    Ok(())
}

fn message(value: &Value, schema: &Schema, id: TypeId) -> Result<ReverseBuffer, EncodeError> {
    let tape = Tape::from_value(value)?;
    encode::encode_tape(layouts(schema), &tape, id, ReverseBuffer::with_capacity(4096))
}

/// Appends an object with its envelope, straight from stored JSON: one pass over the text, no object tree.
///
/// The text must be canonical, as [`crate::json`] writes it: quantities are copied, not parsed.
pub fn transcode_json(
    json: &[u8],
    gvk: &GVK,
    schema: &Schema,
    id: TypeId,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let mut body = Vec::with_capacity(json.len());
    transcode::message(json, layouts(schema), id, &mut body)?;
    Envelope::write(&gvk.api_version(), &gvk.kind, &body, out);
    Ok(())
}

/// Appends the bare message of an object straight from stored JSON; see [`transcode_json`].
pub fn transcode_json_message(
    json: &[u8],
    schema: &Schema,
    id: TypeId,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    transcode::message(json, layouts(schema), id, out)
}

/// Appends an object as an item of a list (see [`ListFrame`]), with its prefix, straight from stored JSON;
/// see [`transcode_json`]. `revision` becomes the `resourceVersion` of its metadata if the text has none, so
/// that stored objects need not be copied to add it.
pub fn transcode_json_item(
    json: &[u8],
    revision: Option<&str>,
    schema: &Schema,
    id: TypeId,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    transcode::item(json, revision, layouts(schema), id, out)
}

/// Whether a type has a protobuf form. Custom resources have none, nor do Tables.
pub fn supports(schema: &Schema, id: TypeId) -> bool {
    layouts(schema).message(id).is_some()
}

/// Parses the envelope.
pub fn decode(bytes: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    Envelope::parse(bytes)
}

/// The object tree of a bare message, equal to the tree of the object's canonical JSON. `type_meta` adds
/// `apiVersion` and `kind`; items of lists have none.
pub fn decode_object(
    raw: &[u8],
    type_meta: Option<&GVK>,
    schema: &Schema,
    id: TypeId,
) -> Result<Value, ProtobufError> {
    let mut sink = TreeSink::default();
    Decoder::new(schema).object(raw, type_meta, id, &mut sink)?;
    Ok(sink.finish())
}

/// Appends the canonical JSON of a bare message, without an object tree; see [`decode_object`].
pub fn transcode_to_json(
    raw: &[u8],
    type_meta: Option<&GVK>,
    schema: &Schema,
    id: TypeId,
    out: &mut Vec<u8>,
) -> Result<(), ProtobufError> {
    let mut sink = JsonSink::new(out);
    Decoder::new(schema).object(raw, type_meta, id, &mut sink)?;
    sink.finish();
    Ok(())
}
