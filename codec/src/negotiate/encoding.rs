//! Encodings, and how lists of them are written.

use std::fmt;

/// An encoding of objects on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/cbor`
    Cbor,
}

impl Encoding {
    /// Every encoding, in the server's order of preference.
    pub const ALL: [Encoding; 4] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf, Encoding::Cbor];

    /// The media type, without parameters.
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Cbor => "application/cbor",
        }
    }

    /// The media type of a watch in this encoding; `None` for YAML, which has no framing.
    pub fn watch_media_type(self) -> Option<&'static str> {
        match self {
            Encoding::Json => Some("application/json"),
            Encoding::Yaml => None,
            Encoding::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
            Encoding::Cbor => Some("application/cbor-seq"),
        }
    }
}

/// Writes a list with `, ` between its items.
pub(super) struct CommaSeparated<'a>(pub(super) &'a [&'a str]);

impl fmt::Display for CommaSeparated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_joined(f, self.0)
    }
}

pub(super) fn write_joined(f: &mut fmt::Formatter<'_>, items: &[&str]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        f.write_str(item)?;
    }
    Ok(())
}
