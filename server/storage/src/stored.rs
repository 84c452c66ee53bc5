//! The stored form of an object: a small header and the canonical JSON body.
//!
//! The bytes stored are the bytes served. A body has no `kind`, no `apiVersion` and no
//! `metadata.resourceVersion`; `metadata` is its first member and never empty, so each body starts with
//! the 13 bytes `{"metadata":{`. Serving an object as JSON writes a prefix that belongs to the kind,
//! the revision in decimal, and the body from byte 13 on:
//!
//! ```text
//! {"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"  41  ",  "name":"web","uid":...}
//! `----------------- prefix of the kind -----------------------´ revision `--- body from byte 13 ---
//! ```
//!
//! The header contains what reads and collectors need without parsing the body:
//!
//! ```text
//! byte   format: 1, or 2 when the body is encrypted (see [`crate::encryption`])
//! byte   flags: 1 = metadata.deletionTimestamp is set
//! varint length of the header from the next byte to the body
//! varint length of the metadata object, braces included
//! text   version of the group that the body is written in (`v1`)
//! text   uid
//! varint number of labels, then per label: text key, text value, sorted by key
//! varint number of selectable fields, then per field a text, in the order of the resource's table row
//! varint number of owners, then per owner a text: its uid
//! text   stamp of the schema of a custom resource; left out where it is empty
//! ```
//!
//! `varint` is unsigned LEB128, `text` a varint length and UTF-8 bytes.

use std::ops::Deref;

use bytes::Bytes;
use plinth_codec::{Map, Value};

use crate::damaged_value::DamagedValue;
use crate::varint::{put_varint, read_varint};

const FORMAT: u8 = 1;
const FORMAT_SEALED: u8 = 2;
const FLAG_DELETING: u8 = 1;

/// Prefix of each body.
pub const BODY_START: &[u8] = b"{\"metadata\":{";

/// The fields of a new header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderFields<'a> {
    /// Version of the group that the body is written in.
    pub version: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.labels`, sorted by key.
    pub labels: Vec<(&'a str, &'a str)>,
    /// Values of the resource's selectable fields, in the order of its row.
    pub fields: Vec<std::borrow::Cow<'a, str>>,
    /// UIDs of `metadata.ownerReferences`.
    pub owners: Vec<&'a str>,
    /// The schema stamp that the body of a custom resource conforms to; empty for built-in kinds.
    pub schema: &'a str,
}

impl<'a> HeaderFields<'a> {
    /// The fields that are part of metadata; the rest is empty.
    pub fn of_metadata(metadata: Option<&'a Map>) -> HeaderFields<'a> {
        let text = |key: &str| metadata.and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default();
        let labels = metadata.and_then(|m| m.get("labels")).and_then(Value::as_object);
        let owners = metadata.and_then(|m| m.get("ownerReferences")).and_then(Value::as_array);
        HeaderFields {
            uid: text("uid"),
            deleting: metadata.and_then(|m| m.get("deletionTimestamp")).is_some_and(|t| !t.is_null()),
            labels: labels
                .map(|l| l.iter().filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))).collect())
                .unwrap_or_default(),
            owners: owners
                .map(|o| o.iter().filter_map(|owner| owner.str_at(&["uid"])).collect())
                .unwrap_or_default(),
            ..HeaderFields::default()
        }
    }
}

impl HeaderFields<'_> {
    /// Header and body as one value. `metadata_len` is the length of the body's metadata object.
    pub fn encode(&self, metadata_len: usize, body: &[u8]) -> Bytes {
        let mut header = Vec::with_capacity(128);
        put_varint(&mut header, metadata_len);
        put_text(&mut header, self.version);
        put_text(&mut header, self.uid);
        put_varint(&mut header, self.labels.len());
        for (key, value) in &self.labels {
            put_text(&mut header, key);
            put_text(&mut header, value);
        }
        put_varint(&mut header, self.fields.len());
        for field in &self.fields {
            put_text(&mut header, field);
        }
        put_varint(&mut header, self.owners.len());
        for owner in &self.owners {
            put_text(&mut header, owner);
        }
        if !self.schema.is_empty() {
            put_text(&mut header, self.schema);
        }
        let mut out = Vec::with_capacity(4 + header.len() + body.len());
        out.push(FORMAT);
        out.push(if self.deleting { FLAG_DELETING } else { 0 });
        put_varint(&mut out, header.len());
        out.extend_from_slice(&header);
        out.extend_from_slice(body);
        Bytes::from(out)
    }
}

/// The parsed header of a stored object; borrows the stored bytes, copies nothing. Selectors, owners and
/// collectors need nothing else, whether the body is encrypted or not.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    deleting: bool,
    version: &'a str,
    uid: &'a str,
    labels: Texts<'a>,
    fields: Texts<'a>,
    owners: Texts<'a>,
    schema: &'a str,
    metadata_len: usize,
}

/// A stored object in plain text: its [`Header`] and its body.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    header: Header<'a>,
    body: &'a [u8],
}

/// A stored value, split into the bytes before the body and the body, which is encrypted if `sealed`.
#[derive(Clone, Copy, Debug)]
pub struct SplitValue<'a> {
    /// Whether the body is encrypted.
    pub sealed: bool,
    /// Flags, header length and header: all bytes between the format and the body.
    pub header: &'a [u8],
    /// The body, encrypted or not.
    pub body: &'a [u8],
}

/// Whether the body of a stored value is encrypted.
pub(crate) fn is_sealed(value: &[u8]) -> bool {
    value.first() == Some(&FORMAT_SEALED)
}

/// Splits a stored value without parsing its header.
///
/// # Errors
/// [`DamagedValue`] when the bytes are not a stored object.
pub(crate) fn split_stored(value: &[u8]) -> Result<SplitValue<'_>, DamagedValue> {
    let [format, rest @ ..] = value else { return Err(DamagedValue::new("too short")) };
    let sealed = match *format {
        FORMAT => false,
        FORMAT_SEALED => true,
        _ => return Err(DamagedValue::new("unknown format")),
    };
    let [_flags, after @ ..] = rest else { return Err(DamagedValue::new("too short")) };
    let mut at = Reader { rest: after };
    let header_len = read_varint(&mut at.rest)?;
    let header_part_len = rest.len() - at.rest.len() + header_len;
    let (header, body) =
        rest.split_at_checked(header_part_len).ok_or(DamagedValue::new("header longer than value"))?;
    Ok(SplitValue { sealed, header, body })
}

/// The part of a stored value that [`Header::parse`] reads: all bytes before the body.
///
/// # Errors
/// [`DamagedValue`] when the bytes are not a stored object.
pub fn stored_header_bytes(value: &[u8]) -> Result<&[u8], DamagedValue> {
    let len = 1 + split_stored(value)?.header.len();
    value.get(..len).ok_or(DamagedValue::new("too short"))
}

/// Joins the parts of a split value, possibly with another body.
pub(crate) fn join_stored(sealed: bool, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + header.len() + body.len());
    out.push(if sealed { FORMAT_SEALED } else { FORMAT });
    out.extend_from_slice(header);
    out.extend_from_slice(body);
    out
}

impl<'a> Stored<'a> {
    /// Parses a stored object. Costs a pass over the header, a few dozen nanoseconds.
    ///
    /// # Errors
    /// [`DamagedValue`] when the bytes are not a stored object in plain text.
    pub fn parse(value: &'a [u8]) -> Result<Stored<'a>, DamagedValue> {
        let split = split_stored(value)?;
        if split.sealed {
            return Err(DamagedValue::new("body is encrypted"));
        }
        let (header, body) = (Header::find(&split)?, split.body);
        if !body.starts_with(BODY_START)
            || header.metadata_len < 2
            || BODY_START.len() - 1 + header.metadata_len > body.len()
        {
            return Err(DamagedValue::new("body does not start with metadata"));
        }
        Ok(Stored { header, body })
    }

    /// The canonical JSON, without type metadata and resourceVersion.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The body after [`BODY_START`]: what follows the resourceVersion on the wire.
    pub fn after_splice(&self) -> &'a [u8] {
        &self.body[BODY_START.len()..]
    }

    /// The metadata object, braces included.
    pub fn metadata(&self) -> &'a [u8] {
        &self.body[BODY_START.len() - 1..BODY_START.len() - 1 + self.header.metadata_len]
    }

    /// The metadata object's members and its closing brace: what follows the resourceVersion in a
    /// PartialObjectMetadata.
    pub fn metadata_after_splice(&self) -> &'a [u8] {
        &self.body[BODY_START.len()..BODY_START.len() - 1 + self.header.metadata_len]
    }
}

impl<'a> Deref for Stored<'a> {
    type Target = Header<'a>;

    fn deref(&self) -> &Header<'a> {
        &self.header
    }
}

impl<'a> Header<'a> {
    /// Parses the header of a stored value.
    ///
    /// # Errors
    /// [`DamagedValue`] when the bytes are not a stored object.
    pub fn parse(value: &'a [u8]) -> Result<Header<'a>, DamagedValue> {
        Header::find(&split_stored(value)?)
    }

    /// Parses the header of a split value.
    ///
    /// # Errors
    /// [`DamagedValue`] when the header is not what [`HeaderFields::encode`] wrote.
    pub fn find(split: &SplitValue<'a>) -> Result<Header<'a>, DamagedValue> {
        let [flags, rest @ ..] = split.header else { return Err(DamagedValue::new("too short")) };
        let mut at = Reader { rest };
        read_varint(&mut at.rest)?;
        let metadata_len = read_varint(&mut at.rest)?;
        let version = at.text()?;
        let uid = at.text()?;
        let labels = at.texts(2)?;
        let fields = at.texts(1)?;
        let owners = at.texts(1)?;
        let schema = if at.rest.is_empty() { "" } else { at.text()? };
        let deleting = flags & FLAG_DELETING != 0;
        Ok(Header { deleting, version, uid, labels, fields, owners, schema, metadata_len })
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn deleting(&self) -> bool {
        self.deleting
    }

    /// Version of the group that the body is written in.
    pub fn version(&self) -> &'a str {
        self.version
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &'a str {
        self.uid
    }

    /// Labels, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone {
        let mut texts = self.labels;
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    /// The value of a selectable field, by its index in the resource's row.
    pub fn field(&self, index: usize) -> Option<&'a str> {
        let mut texts = self.fields;
        (0..=index).try_fold("", |_, _| texts.next())
    }

    /// UIDs of the owners.
    pub fn owners(&self) -> impl Iterator<Item = &'a str> {
        let mut texts = self.owners;
        std::iter::from_fn(move || texts.next())
    }

    /// The stamp of the schema that the body of a custom resource conforms to; empty for built-in kinds.
    pub fn schema(&self) -> &'a str {
        self.schema
    }
}

/// A sequence of strings that was validated by [`Reader::texts`].
#[derive(Clone, Copy, Debug)]
struct Texts<'a> {
    rest: &'a [u8],
}

impl<'a> Texts<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let mut at = Reader { rest: self.rest };
        let text = at.text().ok()?;
        self.rest = at.rest;
        Some(text)
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn text(&mut self) -> Result<&'a str, DamagedValue> {
        let len = read_varint(&mut self.rest)?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or(DamagedValue::new("text ends early"))?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| DamagedValue::new("text is not UTF-8"))
    }

    /// `count` groups of `each` strings, validated once so that iteration cannot fail.
    fn texts(&mut self, each: usize) -> Result<Texts<'a>, DamagedValue> {
        let count =
            read_varint(&mut self.rest)?.checked_mul(each).ok_or(DamagedValue::new("number too large"))?;
        let start = self.rest;
        for _ in 0..count {
            self.text()?;
        }
        Ok(Texts { rest: &start[..start.len() - self.rest.len()] })
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Bytes {
        let header = HeaderFields {
            version: "v1",
            uid: "u-1",
            deleting: true,
            labels: vec![("app", "web"), ("tier", "")],
            fields: vec!["node-1".into(), "Running".into()],
            owners: vec!["o-1", "o-2"],
            schema: "s-1",
        };
        header.encode(14, br#"{"metadata":{"name":"web"},"spec":{}}"#)
    }

    #[test]
    fn header_comes_back() {
        let bytes = sample();
        let s = Stored::parse(&bytes).unwrap();
        assert!(s.deleting());
        assert_eq!((s.version(), s.uid()), ("v1", "u-1"));
        assert_eq!(s.labels().collect::<Vec<_>>(), [("app", "web"), ("tier", "")]);
        assert_eq!((s.label("tier"), s.label("none")), (Some(""), None));
        assert_eq!((s.field(0), s.field(1), s.field(2)), (Some("node-1"), Some("Running"), None));
        assert_eq!(s.owners().collect::<Vec<_>>(), ["o-1", "o-2"]);
        assert_eq!(s.schema(), "s-1");
        assert_eq!(s.after_splice(), br#""name":"web"},"spec":{}}"#);
        assert_eq!(s.metadata_after_splice(), br#""name":"web"}"#);
    }

    #[test]
    fn every_truncation_is_an_error_and_never_a_panic() {
        let bytes = sample();
        let header_end = bytes.len() - br#"{"metadata":{"name":"web"},"spec":{}}"#.len();
        for end in 0..header_end + 26 {
            assert!(Stored::parse(&bytes[..end]).is_err(), "cut at {end}");
        }
        for i in 0..bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[i] ^= 0x80;
            let _ = Stored::parse(&flipped);
        }
    }
}
