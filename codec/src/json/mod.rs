//! JSON: decoding, checked against the schema, and encoding, with upstream's order and omission rules.
//!
//! | function | from | to |
//! |---|---|---|
//! | [`peek_type`] | bytes | `apiVersion` and `kind` |
//! | [`parse`], [`parse_reporting`], [`parse_stored`] | bytes | a tree, unchecked |
//! | [`decode`] | bytes | a tree as upstream would hold it |
//! | [`conform`] | a tree from YAML, CBOR or a patch | the same |
//! | [`conform_changed`] | a partly changed tree | the same |
//! | [`write()`], [`write_pretty`], [`write_untyped`] | a tree | bytes |
//! | [`Indenter`] | compact bytes, in pieces | indented bytes |
//! | [`container_len`] | stored bytes | where an object or a list ends |
//!
//! Decoding does in one pass what upstream does by decoding into Go structs and encoding those again: types
//! are checked (with Go's messages), unknown fields dropped, nulls and zero values of omitted fields removed,
//! fields that are never omitted filled in (`status: {}`), quantities, times and base64 brought into
//! canonical form. The semantics are those of sigs.k8s.io/json: names are case-sensitive, of duplicate keys
//! the last counts, integers are exact, each invalid UTF-8 byte is read as U+FFFD, and more than 10,000
//! levels are refused. One thing is simpler than upstream: a duplicate key replaces the earlier value, where
//! Go decodes the later one into the earlier one.
//!
//! ```
//! use plinth_codec::{json, schema, schema::GVK};
//! let schema = schema::builtin();
//! let config_map = schema.kind(&GVK::new("", "v1", "ConfigMap")).unwrap();
//! let body = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":null},"dta":1}"#;
//! let decoded = json::decode(body, schema, config_map, &json::DecodeOptions { strict: true }).unwrap();
//! assert_eq!(decoded.strict[0].to_string(), r#"unknown field "dta""#);
//! let mut out = Vec::new();
//! json::write(&decoded.value, schema, config_map, &mut out);
//! assert_eq!(out, br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":""}}"#);
//! ```

mod cursor;
mod go_type;
mod number;
mod peek;
mod report;
mod source;
pub(crate) mod tape;
mod text;
mod typed;
mod writer;

pub use crate::blocks::container_len;
pub(crate) use cursor::{push_lossy, unescape, Cursor, RawString};
pub(crate) use go_type::go_type;
pub use peek::{check_type, peek_type, TypeMeta};
pub(crate) use source::{Number, Source, Token};
pub(crate) use tape::{Tape, TapeNode};
pub(crate) use text::{encoded, plain_number, Reader};
pub use typed::{conform, conform_changed, decode};
pub(crate) use writer::write_number;
pub use writer::{write, write_pretty, write_string, write_untyped, Indenter};
pub(crate) use writer::{write_integer, write_minimal_string, write_plain};

use crate::error::{DecodeError, StrictError};
use crate::value::Value;

/// How to decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Whether to report unknown and duplicate fields (`fieldValidation` of `Warn` and `Strict`).
    pub strict: bool,
}

/// The result of decoding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The object as upstream would hold it.
    pub value: Value,
    /// Unknown and duplicate fields, in order of appearance, each path once, at most
    /// [`MAX_STRICT_ERRORS`](crate::error::MAX_STRICT_ERRORS).
    pub strict: Vec<StrictError>,
}

/// Reads JSON without a schema. Of duplicate keys the last one counts.
pub fn parse(body: &[u8]) -> Result<Value, DecodeError> {
    text::parse(body, &mut report::Report::new(false))
}

/// As [`parse`], of an object as this server stores it: the values of `metadata.managedFields[].fieldsV1`,
/// which are rarely needed, stay text ([`Value::Encoded`]). About a third faster than [`parse`] for a Pod.
pub fn parse_stored(body: &[u8]) -> Result<Value, DecodeError> {
    text::parse_stored(body)
}

/// As [`parse`], and reports duplicate keys.
pub fn parse_reporting(body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut report = report::Report::new(true);
    let value = text::parse(body, &mut report)?;
    Ok(Decoded { value, strict: report.errors })
}

#[cfg(test)]
mod tests;
