//! What Kubernetes API objects are and how they look on the wire. No storage, no sockets.
//!
//! | module | subject |
//! |---|---|
//! | [`value`] | the object tree between two representations |
//! | [`schema`] | the one schema model: fields, types, protobuf numbers, merge rules |
//! | [`resources`] | the resource table: names, scope, verbs, subresources |
//! | [`json`] | JSON in (checked against the schema) and out (in upstream's order and omission) |
//! | [`yaml`] | YAML 1.1 as upstream reads it, in and out |
//! | [`protobuf`] | Kubernetes protobuf: envelope, objects, lists, watch frames |
//! | [`cbor`] | CBOR with upstream's choices |
//! | [`convert`] | from any of the four encodings to any |
//! | [`patch`] | JSON Patch, JSON Merge Patch, strategic merge patch |
//! | [`apply`] | server-side apply: field sets, managers, merge |
//! | [`cel`] | CEL: types from schemas, costs, evaluation; the rules of custom resources |
//! | [`selector`] | label and field selectors |
//! | [`negotiate`] | `Accept` and `Content-Type` |
//! | [`structural`] | custom resources: schemas of definitions, pruning, defaults, validation |
//! | [`table`] | Tables and PartialObjectMetadata |
//! | [`openapi`] | OpenAPI v2 and v3 documents from the schema |
//! | [`names`] | name rules: DNS labels and subdomains, label keys and values |
//! | [`regexp`] | regular expressions in Go's syntax |
//! | [`quantity`] and [`time`] | the scalars with a canonical form |
//! | `blocks` | stepping over strings and containers, many bytes at a time |
//! | [`error`] | what can be wrong with a body, in upstream's words |
//! | [`field`] | what can be wrong with a field: paths and causes |

pub mod apply;
mod blocks;
pub mod cbor;
pub mod cel;
pub mod convert;
pub mod error;
pub mod field;
pub mod json;
pub mod names;
pub mod negotiate;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod regexp;
pub mod resources;
pub mod schema;
pub mod selector;
pub mod structural;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod time;
mod url;
pub mod value;
pub mod yaml;

pub use error::{DecodeError, StrictError};
pub use value::{Map, Value};
