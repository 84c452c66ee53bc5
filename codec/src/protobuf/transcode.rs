//! Stored JSON to wire bytes in one pass, without a tree or a tape.
//!
//! Stored JSON has the fields of a struct in declaration order, which is nearly always that of their numbers.
//! So bytes are written as text is read, with unset fields that are always on the wire inserted; the length
//! of a message is inserted before it when it is known. Fields out of order, and structs with embedded
//! messages, are rearranged when the struct ends. Presence rules are those of the encoder
//! ([`mod@super::encode`]).

use super::encode::encode_value;
use super::envelope::ITEMS;
use super::leaf::mismatch;
use super::wire::{push_varint, varint, ReverseBuffer, WireType};
use super::{EncodeError, MAX_DEPTH};
use crate::json::tape::{begin, cursor, Tape};
use crate::json::Cursor;
use crate::schema::layout::{FieldLayout, FieldSet, FieldStep, Form, Layouts, Message, ValueLayout};
use crate::schema::TypeId;

/// The member whose object is written to the wire as JSON text (`metav1.FieldsV1`): half of a typical object.
const RAW_MEMBER: &str = "fieldsV1";

/// Appends the bare message of an object. Leaves `out` as it was when it fails.
pub(super) fn message(
    json: &[u8],
    layouts: &Layouts,
    id: TypeId,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write(json, layouts, None, out, |transcoder| transcoder.root(id))
}

/// Appends an object as an item of a list; `revision` is the `resourceVersion` if the text has none.
pub(super) fn item(
    json: &[u8],
    revision: Option<&str>,
    layouts: &Layouts,
    id: TypeId,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write(json, layouts, revision, out, |transcoder| {
        let begin = transcoder.open(ITEMS);
        transcoder.root(id)?;
        transcoder.close(begin);
        Ok(())
    })
}

fn write<'e>(
    json: &'e [u8],
    layouts: &'e Layouts,
    revision: Option<&'e str>,
    out: &'e mut Vec<u8>,
    run: impl FnOnce(&mut Transcoder<'e, '_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let before = out.len();
    let (cursor, pieces, scratch) = (cursor(json)?, Vec::with_capacity(64), Vec::new());
    let (leaf, revision) = (ReverseBuffer::with_capacity(64), revision.map(str::as_bytes));
    let mut transcoder = Transcoder { layouts, cursor, out: &mut *out, revision, pieces, scratch, leaf };
    let done = run(&mut transcoder).and_then(|()| Ok(transcoder.cursor.end()?));
    if done.is_err() {
        out.truncate(before);
    }
    done
}

/// The position in `out` of a piece that may have to be moved.
#[derive(Clone, Copy)]
struct Piece {
    /// The field index of a struct's member, or the offset of a map entry's key in the text.
    what: u32,
    start: usize,
    end: usize,
}

struct Transcoder<'e, 'o> {
    layouts: &'e Layouts,
    cursor: Cursor<'e>,
    out: &'o mut Vec<u8>,
    /// The `resourceVersion` of the object's metadata if the text has none.
    revision: Option<&'e [u8]>,
    /// A stack of the pieces of open structs and maps.
    pieces: Vec<Piece>,
    /// For reordering.
    scratch: Vec<u8>,
    /// For values that are small messages.
    leaf: ReverseBuffer,
}

impl<'e> Transcoder<'e, '_> {
    fn root(&mut self, id: TypeId) -> Result<(), EncodeError> {
        let message = self.layouts.message(id).ok_or(EncodeError::NotAMessage)?;
        self.message(message, 0)
    }

    /// The error of the current value.
    #[cold]
    fn mismatch(&mut self, expected: &'static str) -> EncodeError {
        match begin(&mut self.cursor) {
            Ok(found) => mismatch(expected, found),
            Err(error) => error,
        }
    }

    /// Begins a message; returns the argument of [`Transcoder::close`].
    #[inline]
    fn open(&mut self, number: u32) -> usize {
        self.tag(number, WireType::Bytes);
        // One byte suffices for the length of most messages.
        self.out.push(0);
        self.out.len()
    }

    /// Ends a message: inserts its length before it.
    #[inline]
    fn close(&mut self, begin: usize) {
        let len = self.out.len() - begin;
        if len < 0x80 {
            self.out[begin - 1] = len as u8;
            return;
        }
        let (bytes, used) = varint(len as u64);
        self.out.extend_from_slice(&bytes[1..used]);
        self.out.copy_within(begin..begin + len, begin + used - 1);
        self.out[begin - 1..begin - 1 + used].copy_from_slice(&bytes[..used]);
    }

    #[inline]
    fn tag(&mut self, number: u32, wire: WireType) {
        self.varint(u64::from(number) << 3 | wire as u64);
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        match value < 0x80 {
            true => self.out.push(value as u8),
            false => push_varint(self.out, value),
        }
    }

    #[inline]
    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, WireType::Bytes);
        self.varint(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// The body of a message from the current object.
    fn message(&mut self, message: &'e Message, depth: usize) -> Result<(), EncodeError> {
        if self.cursor.peek() != Some(b'{') {
            return Err(self.mismatch("object"));
        }
        if depth > MAX_DEPTH {
            return Err(EncodeError::TooDeep);
        }
        self.cursor.open()?;
        let (start, base) = (self.out.len(), self.pieces.len());
        let part = &message.parts[0];
        // An object's own metadata is at depth one; deeper ones belong to templates.
        let revision = self.revision.filter(|_| depth == 1);
        let mut in_order = message.parts.len() == 1;
        // The first step that is not written yet, and the previous field plus one.
        let (mut next, mut after) = (0, 0);
        let mut first = true;
        while self.cursor.member(first)? {
            first = false;
            let Some(index) = self.field_at_hand(message, after)? else {
                self.cursor.skip_value()?;
                continue;
            };
            after = index + 1;
            let field = &message.fields[index];
            if field.number == 0 || field.shape == ValueLayout::None {
                self.cursor.skip_value()?;
                continue;
            }
            let place = usize::from(field.place);
            in_order &= place >= next;
            if in_order {
                self.fill(message, part.filled.between(next, place), revision);
                next = place + 1;
            }
            let start = self.out.len();
            self.field(field, depth).map_err(|e| e.in_field(&field.name))?;
            self.pieces.push(Piece { what: index as u32, start, end: self.out.len() });
        }
        match in_order {
            true => self.fill(message, part.filled.between(next, FieldSet::MAX), revision),
            false => self.arrange(message, start, base, revision),
        }
        self.pieces.truncate(base);
        Ok(())
    }

    /// The field index of the current key; `None` for unknown keys.
    #[inline]
    fn field_at_hand(&mut self, message: &Message, after: usize) -> Result<Option<usize>, EncodeError> {
        if let Some(index) = message.successors.expected(after) {
            if self.cursor.takes_quoted_key(&message.fields[index].key) {
                return Ok(Some(index));
            }
        }
        let found = message.field(&self.cursor.key()?);
        if let Some(index) = found {
            message.successors.record(index, after);
        }
        Ok(found)
    }

    /// Writes steps whose fields are not set.
    #[inline]
    fn fill(&mut self, message: &Message, steps: FieldSet, revision: Option<&[u8]>) {
        for step in steps {
            if let FieldStep::Field(field) = message.parts[0].steps[step] {
                push_absent(message, field, revision, self.out);
            }
        }
    }

    /// Orders the pieces of a message that begins at `start`, inserts missing fields, and moves the fields of
    /// embedded messages into those.
    fn arrange(&mut self, message: &Message, start: usize, base: usize, revision: Option<&[u8]>) {
        // The last piece of each field, which is the one that counts.
        let mut last = [u32::MAX; FieldSet::MAX];
        for (i, piece) in self.pieces[base..].iter().enumerate() {
            last[piece.what as usize] = (base + i) as u32;
        }
        let mut arranged = std::mem::take(&mut self.scratch);
        arranged.clear();
        self.arrange_part(message, 0, &last, revision, &mut arranged);
        self.out.truncate(start);
        self.out.extend_from_slice(&arranged);
        self.scratch = arranged;
    }

    fn arrange_part(
        &self,
        message: &Message,
        part: usize,
        last: &[u32],
        revision: Option<&[u8]>,
        arranged: &mut Vec<u8>,
    ) {
        for step in &message.parts[part].steps {
            match *step {
                FieldStep::Field(field) => match self.pieces.get(last[usize::from(field)] as usize) {
                    Some(piece) => arranged.extend_from_slice(&self.out[piece.start..piece.end]),
                    None => push_absent(message, field, revision, arranged),
                },
                FieldStep::Part { number, part } => {
                    let mut inner = Vec::new();
                    self.arrange_part(message, usize::from(part), last, revision, &mut inner);
                    push_varint(arranged, u64::from(number) << 3 | WireType::Bytes as u64);
                    push_varint(arranged, inner.len() as u64);
                    arranged.extend_from_slice(&inner);
                }
            }
        }
    }

    fn field(&mut self, field: &'e FieldLayout, depth: usize) -> Result<(), EncodeError> {
        if self.cursor.peek() == Some(b'n') {
            self.cursor.literal("null")?;
            self.out.extend_from_slice(&field.zero);
            return Ok(());
        }
        match field.form {
            Form::One
                if field.shape == ValueLayout::Raw
                    && field.name == RAW_MEMBER
                    && self.cursor.peek() == Some(b'{') =>
            {
                let text = self.skipped()?;
                let begin = self.open(field.number);
                self.bytes(1, text.as_bytes());
                self.close(begin);
                Ok(())
            }
            Form::One => self.value(field.number, field.shape, depth),
            Form::List => self.list(field.number, field.shape, depth),
            Form::Wrapped => self.wrapped(field.number, field.shape, depth),
            Form::Map | Form::MapOfWrapped => self.map(field, depth),
        }
    }

    /// Skips a value; returns its text.
    fn skipped(&mut self) -> Result<&'e str, EncodeError> {
        self.cursor.peek();
        let start = self.cursor.at();
        self.cursor.skip_value()?;
        Ok(self.cursor.text_since(start).unwrap_or_default())
    }

    fn wrapped(&mut self, number: u32, shape: ValueLayout, depth: usize) -> Result<(), EncodeError> {
        let begin = self.open(number);
        self.list(1, shape, depth)?;
        self.close(begin);
        Ok(())
    }

    fn list(&mut self, number: u32, shape: ValueLayout, depth: usize) -> Result<(), EncodeError> {
        if self.cursor.peek() != Some(b'[') {
            return Err(self.mismatch("array"));
        }
        self.cursor.open()?;
        let mut index = 0;
        while self.cursor.element(index == 0)? {
            self.element(number, shape, depth).map_err(|e| e.at_index(index))?;
            index += 1;
        }
        Ok(())
    }

    /// An element of a list or the value of a map entry: `null` is the zero value there.
    fn element(&mut self, number: u32, shape: ValueLayout, depth: usize) -> Result<(), EncodeError> {
        if self.cursor.peek() != Some(b'n') {
            return self.value(number, shape, depth);
        }
        self.cursor.literal("null")?;
        self.leaf.put_zero(number, shape, self.layouts);
        self.take_leaf();
        Ok(())
    }

    /// Appends the contents of `leaf`.
    #[inline]
    fn take_leaf(&mut self) {
        self.out.extend_from_slice(self.leaf.as_slice());
        self.leaf.clear();
    }

    fn map(&mut self, field: &'e FieldLayout, depth: usize) -> Result<(), EncodeError> {
        if self.cursor.peek() != Some(b'{') {
            return Err(self.mismatch("object"));
        }
        self.cursor.open()?;
        let (start, base) = (self.out.len(), self.pieces.len());
        let (mut in_order, mut previous) = (true, None);
        let mut first = true;
        while self.cursor.member(first)? {
            first = false;
            let what = self.cursor.at() as u32;
            let text = self.cursor.key()?;
            in_order &= previous.as_ref().is_none_or(|previous| *previous < text);
            let start = self.out.len();
            let begin = self.open(field.number);
            self.bytes(1, text.as_bytes());
            let is_null = self.cursor.peek() == Some(b'n');
            let written = match field.form {
                Form::MapOfWrapped if is_null => {
                    self.cursor.literal("null")?;
                    self.bytes(2, b"");
                    Ok(())
                }
                Form::MapOfWrapped => self.wrapped(2, field.shape, depth),
                _ => self.element(2, field.shape, depth),
            };
            written.map_err(|e| e.in_field(&text))?;
            self.close(begin);
            self.pieces.push(Piece { what, start, end: self.out.len() });
            previous = Some(text);
        }
        if !in_order {
            self.sort(start, base);
        }
        self.pieces.truncate(base);
        Ok(())
    }

    /// Sorts the entries of a map by key, each key once, the last one.
    #[cold]
    fn sort(&mut self, start: usize, base: usize) {
        let cursor = self.cursor;
        // The keys were parsed before, so they are valid.
        let key = |piece: &Piece| cursor.moved_to(piece.what as usize).key().unwrap_or_default();
        let mut entries: Vec<_> = self.pieces[base..].iter().map(|piece| (key(piece), *piece)).collect();
        // Stable: of equal keys the last one stays last.
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let mut sorted = Vec::with_capacity(self.out.len() - start);
        for (i, (key, piece)) in entries.iter().enumerate() {
            if entries.get(i + 1).is_none_or(|(next, _)| next != key) {
                sorted.extend_from_slice(&self.out[piece.start..piece.end]);
            }
        }
        self.out.truncate(start);
        self.out.extend_from_slice(&sorted);
    }

    /// One value that is not `null`.
    #[inline]
    fn value(&mut self, number: u32, shape: ValueLayout, depth: usize) -> Result<(), EncodeError> {
        match shape {
            ValueLayout::String => {
                if self.cursor.peek() != Some(b'"') {
                    return Err(self.mismatch("string"));
                }
                let text = self.cursor.string()?;
                self.bytes(number, text.as_bytes());
            }
            ValueLayout::Message(id) => {
                let message = self.layouts.message(id).ok_or(EncodeError::NotAMessage)?;
                let begin = self.open(number);
                self.message(message, depth + 1)?;
                self.close(begin);
            }
            // Rare, and encoded by way of a tree.
            ValueLayout::Raw | ValueLayout::SchemaOr(..) => {
                let tape = Tape::from_json(self.skipped()?.as_bytes())?;
                let written = encode_value(self.layouts, &tape, number, shape, depth)?;
                self.out.extend_from_slice(written.as_slice());
            }
            _ => {
                let value = begin(&mut self.cursor)?;
                self.leaf.put_leaf(number, shape, value)?;
                self.take_leaf();
            }
        }
        Ok(())
    }
}

/// Appends the wire form of an unset field.
#[inline]
fn push_absent(message: &Message, field: u16, revision: Option<&[u8]>, out: &mut Vec<u8>) {
    let layout = &message.fields[usize::from(field)];
    match revision.filter(|_| message.revision == Some(field)) {
        Some(revision) => {
            push_varint(out, u64::from(layout.number) << 3 | WireType::Bytes as u64);
            push_varint(out, revision.len() as u64);
            out.extend_from_slice(revision);
        }
        None => out.extend_from_slice(&layout.zero),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{self, layouts};
    use crate::schema::{self, GVK};

    fn pod() -> (&'static schema::Schema, TypeId) {
        let schema = schema::builtin();
        (schema, schema.kind(&GVK::new("", "v1", "Pod")).unwrap())
    }

    /// The result by way of a tree.
    fn by_tree(json: &str) -> Vec<u8> {
        let (schema, id) = pod();
        let options = crate::json::DecodeOptions { strict: false };
        let tree = crate::json::decode(json.as_bytes(), schema, id, &options).unwrap().value;
        let mut out = Vec::new();
        protobuf::encode_message(&tree, schema, id, &mut out).unwrap();
        out
    }

    fn transcoded(json: &str) -> Vec<u8> {
        let (schema, id) = pod();
        let mut out = Vec::new();
        message(json.as_bytes(), layouts(schema), id, &mut out).unwrap();
        out
    }

    #[test]
    fn fields_in_any_order_and_maps_too() {
        let container = |order: [usize; 4]| {
            let members = [
                r#""name":"c""#,
                r#""image":"i""#,
                r#""env":[{"value":"v","name":"n"}]"#,
                r#""livenessProbe":{"periodSeconds":3,"exec":{"command":["a","b"]},"timeoutSeconds":1}"#,
            ];
            let members: Vec<_> = order.iter().map(|i| members[*i]).collect();
            format!(
                r#"{{"spec":{{"containers":[{{{}}}],"nodeName":"n"}},"metadata":{{"uid":"u","labels":{{"b":"1","a":"2","c":"3"}},"name":"x"}}}}"#,
                members.join(",")
            )
        };
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [0, 1, 2, 3]] {
            let json = container(order);
            assert_eq!(transcoded(&json), by_tree(&json), "{json}");
        }
    }

    #[test]
    fn of_fields_and_keys_that_come_twice_the_last_one_counts() {
        let json = r#"{"metadata":{"name":"a","labels":{"b":"1","a":"1","b":"2"},"name":"b"},"spec":{"nodeName":"x","nodeName":"y"}}"#;
        let once = r#"{"metadata":{"name":"b","labels":{"a":"1","b":"2"}},"spec":{"nodeName":"y"}}"#;
        assert_eq!(transcoded(json), transcoded(once));
        assert_eq!(transcoded(once), by_tree(once));
        let escaped = r#"{"metadata":{"n\u0061me":"b","labels":{"\u0061":"1","b":"2"},"unknown":[{"}":"]"}]},"spec":{"nodeName":"y"}}"#;
        assert_eq!(transcoded(escaped), transcoded(once));
    }

    #[test]
    fn the_revision_stands_where_the_text_would_have_it() {
        let (schema, id) = pod();
        for metadata in [r#""name":"x","uid":"u""#, r#""uid":"u","name":"x""#, r#""creationTimestamp":null"#]
        {
            let rest = r#""spec":{"volumes":[{"name":"v","ephemeral":{"volumeClaimTemplate":{"metadata":{"name":"t"}}}}]}"#;
            let without = format!(r#"{{"metadata":{{{metadata}}},{rest}}}"#);
            let with = format!(r#"{{"metadata":{{{metadata},"resourceVersion":"12345"}},{rest}}}"#);
            let item = |json: &str, revision| {
                let mut out = Vec::new();
                item(json.as_bytes(), revision, layouts(schema), id, &mut out).unwrap();
                out
            };
            assert_eq!(item(&without, Some("12345")), item(&with, None), "{metadata}");
            assert_ne!(item(&without, None), item(&with, None));
        }
    }

    #[test]
    fn what_is_cut_or_wrong_is_refused_and_leaves_nothing() {
        let (schema, id) = pod();
        let json = r#"{"metadata":{"name":"x","labels":{"a":"1"},"managedFields":[{"fieldsV1":{"f:a":{}}}]},"spec":{"priority":1,"hostNetwork":true,"containers":[{"name":"c"}]}}"#;
        let mut out = b"before".to_vec();
        for end in 0..json.len() {
            assert!(message(&json.as_bytes()[..end], layouts(schema), id, &mut out).is_err(), "cut at {end}");
        }
        for wrong in [
            r#"{"metadata":[]}"#,
            r#"{"metadata":{"name":1}}"#,
            r#"{"metadata":{"name":{}}}"#,
            r#"{"spec":{"priority":"1"}}"#,
            r#"{"spec":{"priority":4294967296}}"#,
            r#"{"spec":{"containers":{}}}"#,
            r#"{"spec":{"hostNetwork":{}}}"#,
            r#"{"metadata":{"labels":[]}}"#,
            r#"{"metadata":{},}"#,
            r#"{"metadata":{}}}"#,
            r#"[]"#,
            r#"null"#,
            "",
        ] {
            assert!(message(wrong.as_bytes(), layouts(schema), id, &mut out).is_err(), "{wrong}");
        }
        assert_eq!(out, b"before");
        let error = message(br#"{"spec":{"containers":[{},{"name":[]}]}}"#, layouts(schema), id, &mut out);
        assert_eq!(error.unwrap_err().to_string(), "spec.containers[1].name: expected string, got array");
    }
}
