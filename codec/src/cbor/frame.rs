//! Framing of encoded objects: lists and watch events.

use super::encode::{push_bytes, push_head};
use super::SELF_DESCRIBED;
use crate::schema::GVK;

/// The bytes around the items of a list that is streamed: [`CborListFrame::head`], the items as
/// [`super::encode_bare`] writes them, [`CborListFrame::tail`]. Members are in the order of their encoded
/// keys: `kind`, `items`, `metadata`, `apiVersion`.
#[derive(Debug)]
pub struct CborListFrame {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl CborListFrame {
    /// The frame of a list of `count` items; `metadata` is the list's metadata as [`super::encode_bare`]
    /// writes it.
    pub fn new(gvk: &GVK, metadata: &[u8], count: u64) -> CborListFrame {
        let mut head = SELF_DESCRIBED.to_vec();
        push_head(&mut head, 5, 4);
        push_bytes(&mut head, b"kind");
        push_bytes(&mut head, gvk.kind.as_bytes());
        push_bytes(&mut head, b"items");
        push_head(&mut head, 4, count);
        let mut tail = Vec::with_capacity(metadata.len() + 48);
        push_bytes(&mut tail, b"metadata");
        tail.extend_from_slice(metadata);
        push_bytes(&mut tail, b"apiVersion");
        push_bytes(&mut tail, gvk.api_version().as_bytes());
        CborListFrame { head, tail }
    }

    /// The bytes before the items.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The bytes after the items.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }
}

/// Appends an event of a watch, an item of an `application/cbor-seq` stream. `object` is a document with its
/// self-described tag.
pub fn write_watch_event(event_type: &str, object: &[u8], out: &mut Vec<u8>) {
    out.reserve(object.len() + event_type.len() + 24);
    out.extend_from_slice(SELF_DESCRIBED);
    push_head(out, 5, 2);
    push_bytes(out, b"type");
    push_bytes(out, event_type.as_bytes());
    push_bytes(out, b"object");
    out.extend_from_slice(object);
}
