//! OpenAPI documents in protobuf, as clients written in Go request them (github.com/google/gnostic-models,
//! `openapiv2/OpenAPIv2.proto` and `openapiv3/OpenAPIv3.proto`).
//!
//! The messages mirror the JSON form, so one walk over the JSON, driven by a table of members and field
//! numbers for each message, encodes both versions. The tables have the members of this module's documents,
//! and those that CustomResourceDefinitions can add; other members are dropped, like unknown fields.

mod edition_2;
mod edition_3;
mod message;

use message::outer;

/// `/openapi/v2` in protobuf, from the JSON that [`super::v2`] writes; in other input, unexpected members are
/// dropped. Takes as much memory as the document while it runs.
///
/// # Errors
/// The input is no JSON object.
pub fn v2(json: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    outer(&edition_2::DOCUMENT, serde_json::from_slice(json)?)
}

/// A document of `/openapi/v3/…` in protobuf, from the JSON that [`super::v3`] writes.
///
/// # Errors
/// The input is no JSON object.
pub fn v3(json: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    outer(&edition_3::DOCUMENT, serde_json::from_slice(json)?)
}
