//! The protobuf layout of a schema, compiled once: fields in wire order, embedded messages as a tree, the
//! bytes of each empty message.
//!
//! The schema model lists fields in JSON order with embedded structs flattened; the wire format has them in
//! the order of their numbers, embedded messages nested. A [`Message`] holds both views of one struct:
//! `fields` in JSON order, which the decoder emits by, and `parts`, which the encoder writes by and the
//! decoder finds fields by.

use smol_str::SmolStr;

use super::{Omit, SchemaOr, Successors, TypeId};

/// The layouts of all structs of a schema. Immutable once built; shared with the schema that owns it.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    /// By [`TypeId`]; `None` for types that are no structs and for structs without a protobuf form.
    pub messages: Vec<Option<Message>>,
}

/// One struct as a protobuf message.
#[derive(Debug)]
pub(crate) struct Message {
    /// The struct's name, for error texts.
    pub name: SmolStr,
    /// The fields in JSON order, as in [`super::StructType::fields`].
    pub fields: Box<[FieldLayout]>,
    /// The struct's own message first, then the messages embedded in it.
    pub parts: Box<[Part]>,
    /// The wire form of the struct's zero value: upstream always writes fields that are not pointers.
    pub empty: Box<[u8]>,
    /// The fields that JSON has even when they are absent on the wire.
    pub always: FieldSet,
    pub(super) names: NameTable,
    /// The usual successor of each field in stored JSON.
    pub successors: Successors,
    /// The index of `resourceVersion` in an object's metadata, which stored JSON lacks.
    pub revision: Option<u16>,
}

/// A set of indices into [`Message::fields`], [`Message::parts`] or [`Part::steps`], iterated in ascending
/// order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldSet(u64);

impl FieldSet {
    /// How many fields and embedded messages a struct may have. Upstream's largest has fewer than fifty.
    pub(crate) const MAX: usize = u64::BITS as usize;

    /// Adds an index; returns whether it is new.
    #[inline]
    pub(crate) fn add(&mut self, index: usize) -> bool {
        let bit = 1u64.checked_shl(index as u32).unwrap_or(0);
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }

    /// The indices in a range.
    #[inline]
    pub(crate) fn between(self, from: usize, to: usize) -> FieldSet {
        let below = |index: usize| 1u64.checked_shl(index as u32).map_or(u64::MAX, |bit| bit - 1);
        FieldSet(self.0 & below(to) & !below(from))
    }
}

impl Iterator for FieldSet {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let index = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(index)
    }
}

/// One field.
#[derive(Debug)]
pub(crate) struct FieldLayout {
    /// JSON name.
    pub name: SmolStr,
    /// The name as a JSON key: quoted, with its colon.
    pub key: Box<str>,
    /// Number in its message; 0 when protobuf does not carry the field.
    pub number: u32,
    pub shape: ValueLayout,
    pub form: Form,
    pub omit: Omit,
    pub pointer: bool,
    /// Its index among the steps of its part.
    pub place: u8,
    /// The wire form of an unset field.
    pub zero: Box<[u8]>,
}

impl FieldLayout {
    /// Whether the wire has the field even if unset, because Go holds it by value.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.form == Form::One && !self.pointer
    }

    /// Whether Go's JSON has the field when it is not set.
    pub(super) fn written_when_absent(&self) -> bool {
        match self.omit {
            Omit::Never => true,
            Omit::Zero => false,
            // `omitempty` never omits a struct.
            Omit::Empty => self.is_filled() && !self.shape.is_go_scalar(),
        }
    }
}

impl ValueLayout {
    /// Whether Go holds it in a scalar or slice, not in a struct.
    fn is_go_scalar(self) -> bool {
        matches!(
            self,
            ValueLayout::Bool
                | ValueLayout::Int32
                | ValueLayout::Int64
                | ValueLayout::Double
                | ValueLayout::String
                | ValueLayout::Bytes
                | ValueLayout::None
        )
    }
}

/// How often the field's value occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It occurs once at most.
    One,
    /// Repeated, each element a field of its own.
    List,
    /// A message whose field 1 is repeated: Go slices that may be nil or empty (`Verbs`).
    Wrapped,
    /// Repeated entries of key (1) and value (2).
    Map,
    /// A map whose values are wrapped lists (`ExtraValue`).
    MapOfWrapped,
}

/// The type of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueLayout {
    Bool,
    Int32,
    Int64,
    Double,
    String,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Duration,
    /// A message with JSON text in field 1: `RawExtension`, `JSON`, `FieldsV1`. `RawExtension` may hold other
    /// encodings.
    Raw,
    SchemaOr(SchemaOr, TypeId),
    Message(TypeId),
    /// No protobuf form.
    None,
}

/// A message or an embedded part of one.
#[derive(Debug)]
pub(crate) struct Part {
    /// By ascending number.
    pub steps: Box<[FieldStep]>,
    /// The fields that are always on the wire.
    pub filled: FieldSet,
    /// Index into `steps` plus one, by number; 0 where there is no such field.
    pub(super) by_number: Box<[u16]>,
}

/// What a field number refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldStep {
    /// An index into [`Message::fields`].
    Field(u16),
    /// An embedded message: its number and its index in [`Message::parts`].
    Part { number: u32, part: u16 },
}

impl Part {
    #[inline]
    pub(crate) fn step(&self, number: u32) -> Option<FieldStep> {
        let place = *self.by_number.get(number as usize)?;
        self.steps.get((place as usize).checked_sub(1)?).copied()
    }
}

impl Message {
    /// The index of the field with that JSON name.
    #[inline]
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.names.find(name, &self.fields)
    }
}

impl Layouts {
    /// The message of a type.
    #[inline]
    pub(crate) fn message(&self, id: TypeId) -> Option<&Message> {
        self.messages.get(id.0 as usize)?.as_ref()
    }
}

/// Finds a field by name in about one comparison: open addressing over a hash of the name's length and
/// a few of its bytes, at most half full.
#[derive(Debug)]
pub(super) struct NameTable {
    /// Field index plus one; 0 where free. The length is a power of two.
    slots: Box<[u16]>,
}

impl NameTable {
    pub(super) fn new(fields: &[FieldLayout]) -> NameTable {
        let mut slots = vec![0u16; (fields.len() * 2 + 1).next_power_of_two()];
        let mask = slots.len() - 1;
        for (i, field) in fields.iter().enumerate() {
            let mut at = hash(&field.name) & mask;
            while slots[at] != 0 {
                at = (at + 1) & mask;
            }
            slots[at] = i as u16 + 1;
        }
        NameTable { slots: slots.into() }
    }

    #[inline]
    pub(super) fn find(&self, name: &str, fields: &[FieldLayout]) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash(name) & mask;
        loop {
            let index = (self.slots[at] as usize).checked_sub(1)?;
            if fields[index].name == name {
                return Some(index);
            }
            at = (at + 1) & mask;
        }
    }
}

#[inline]
fn hash(name: &str) -> usize {
    let bytes = name.as_bytes();
    let byte = |i: usize| bytes.get(i).copied().unwrap_or(0) as usize;
    let (len, middle) = (bytes.len(), bytes.len() / 2);
    let mixed = len + (byte(0) << 5) + (byte(middle) << 2) + byte(len.wrapping_sub(1)).wrapping_mul(37);
    mixed ^ mixed >> 7
}
