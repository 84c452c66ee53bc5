//! The types of Kubernetes API objects and their encodings. No storage, no sockets.
//!
//! ```
//! use plinth_codec::json::{self, DecodeOptions};
//! use plinth_codec::schema::{self, GVK};
//! use plinth_codec::{patch, protobuf, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (schema, gvk) = (schema::builtin(), GVK::new("", "v1", "Service"));
//! let id = schema.kind(&gvk).ok_or("not a built-in kind")?;
//!
//! // Input is checked against the schema; unknown fields are reported and dropped.
//! let body = br#"{"spec":{"ports":[{"port":80,"name":"a"},{"port":443,"name":"b"}],"portz":[]}}"#;
//! let read = json::decode(body, schema, id, &DecodeOptions { strict: true })?;
//! assert_eq!(read.strict[0].to_string(), r#"unknown field "spec.portz""#);
//!
//! // A strategic merge patch finds the port by its merge key.
//! let change = json::parse(br#"{"spec":{"ports":[{"port":443,"name":"tls"}]}}"#)?;
//! let patched = patch::strategic_merge(read.value, change, schema, id)?;
//! let ports = patched.at(&["spec", "ports"]).and_then(Value::as_array).ok_or("no ports")?;
//! let names: Vec<_> = ports.iter().map(|port| port.str_at(&["name"])).collect();
//! assert_eq!(names, [Some("a"), Some("tls")]);
//!
//! let mut wire = Vec::new();
//! protobuf::encode(&patched, &gvk, schema, id, &mut wire)?;
//! assert!(wire.starts_with(protobuf::MAGIC));
//! # Ok(())
//! # }
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`value`] | the object tree |
//! | [`schema`] | the one schema model: fields, types, protobuf numbers, merge rules |
//! | [`resources`] | the resource table: names, scope, verbs, subresources |
//! | [`json`] | JSON decoding (checked against the schema) and encoding (with upstream's order and omission rules) |
//! | [`yaml`] | YAML 1.1 as upstream reads and writes it |
//! | [`protobuf`] | Kubernetes protobuf: envelope, objects, lists, watch frames |
//! | [`cbor`] | CBOR with upstream's options |
//! | [`convert`] | conversion between the four encodings |
//! | [`patch`] | JSON Patch, JSON Merge Patch, strategic merge patch |
//! | [`apply`] | server-side apply: field sets, managers, merge |
//! | [`selector`] | label and field selectors |
//! | [`negotiate`] | `Accept` and `Content-Type` |
//! | [`table`] | Tables and PartialObjectMetadata |
//! | [`openapi`] | OpenAPI v2 and v3 documents from the schema |
//! | [`names`] | name rules: DNS labels and subdomains, label keys and values |
//! | [`regexp`] | regular expressions in Go's syntax |
//! | [`url`] | URLs as Go reads them |
//! | [`pem`] | PEM blocks |
//! | [`base64_text`] | base64 as Go reads and writes it |
//! | [`hex`] | bytes in hexadecimal |
//! | [`quantity`] and [`time`] | the scalars with a canonical form |
//! | `quoted` | text in quotes, as Go writes it |
//! | `blocks` | skipping strings and containers, many bytes at a time |
//! | [`error`] | decoding errors, with upstream's messages |
//! | [`field`] | field errors: paths and causes |

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tables of tests"))]

pub mod apply;
pub mod base64_text;
mod blocks;
pub mod cbor;
pub mod convert;
pub mod error;
pub mod field;
pub mod hex;
pub mod json;
pub mod names;
pub mod negotiate;
pub mod openapi;
pub mod patch;
pub mod pem;
pub mod protobuf;
pub mod quantity;
mod quoted;
pub mod regexp;
pub mod resources;
pub mod schema;
pub mod selector;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod time;
pub mod url;
pub mod value;
pub mod yaml;

pub use error::{DecodeError, StrictError};
pub use value::{Map, Value};
