//! `Content-Type`: the type of a request body.

use super::encoding::{write_joined, Encoding};
use super::media;
use std::fmt;

/// The type of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentType {
    /// An object in this encoding.
    Object(Encoding),
    /// JSON Patch, RFC 6902.
    JsonPatch,
    /// JSON Merge Patch, RFC 7386.
    MergePatch,
    /// Strategic merge patch; built-in kinds only.
    StrategicMergePatch,
    /// Server-side apply of a YAML (or JSON) document.
    ApplyYaml,
    /// Server-side apply of a CBOR document.
    ApplyCbor,
}

/// The body types that an endpoint accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// An object of a built-in kind, or options: POST, PUT, DELETE.
    Object,
    /// An object of a custom resource, which has no protobuf.
    CustomObject,
    /// A patch of a built-in kind.
    Patch,
    /// A patch of a custom resource, which has no strategic merge.
    CustomPatch,
}

/// The media types that a body may have, in the order in which errors name them.
const OBJECTS: [(&str, ContentType); 4] = [
    ("application/json", ContentType::Object(Encoding::Json)),
    ("application/yaml", ContentType::Object(Encoding::Yaml)),
    ("application/vnd.kubernetes.protobuf", ContentType::Object(Encoding::Protobuf)),
    ("application/cbor", ContentType::Object(Encoding::Cbor)),
];

/// The media types that a patch may have, likewise.
const PATCHES: [(&str, ContentType); 5] = [
    ("application/json-patch+json", ContentType::JsonPatch),
    ("application/merge-patch+json", ContentType::MergePatch),
    ("application/strategic-merge-patch+json", ContentType::StrategicMergePatch),
    ("application/apply-patch+yaml", ContentType::ApplyYaml),
    ("application/apply-patch+cbor", ContentType::ApplyCbor),
];

impl Accepts {
    fn types(self) -> impl Iterator<Item = &'static (&'static str, ContentType)> {
        let (table, without): (&'static [_], _) = match self {
            Accepts::Object => (&OBJECTS, None),
            Accepts::CustomObject => (&OBJECTS, Some(ContentType::Object(Encoding::Protobuf))),
            Accepts::Patch => (&PATCHES, None),
            Accepts::CustomPatch => (&PATCHES, Some(ContentType::StrategicMergePatch)),
        };
        table.iter().filter(move |(_, content_type)| Some(*content_type) != without)
    }
}

/// The media type of the body is not accepted by the endpoint: 415, reason `UnsupportedMediaType`. The text
/// is the message of the Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body of the request was in an unknown format - accepted media types include: {}", Names(.0))]
pub struct UnsupportedMediaType(pub Accepts);

struct Names<'a>(&'a Accepts);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.types().map(|(name, _)| *name).collect();
        write_joined(f, &names)
    }
}

/// Reads `Content-Type`. An object without one is treated as JSON; for a patch it is required. Parameters
/// (`charset=utf-8`) are ignored, but an object's must be well formed.
pub fn content_type(header: Option<&str>, accepts: Accepts) -> Result<ContentType, UnsupportedMediaType> {
    let header = header.map(media::trim).unwrap_or_default();
    let patch = matches!(accepts, Accepts::Patch | Accepts::CustomPatch);
    if header.is_empty() && !patch {
        return Ok(ContentType::Object(Encoding::Json));
    }
    let (name, mut parameters) = media::with_parameters(header);
    let found = accepts.types().find(|(known, _)| known.eq_ignore_ascii_case(name));
    match found {
        // A trailing `;` is not an error.
        Some((_, content_type)) if patch || parameters.all(|p| p.is_empty() || p.contains('=')) => {
            Ok(*content_type)
        }
        _ => Err(UnsupportedMediaType(accepts)),
    }
}
