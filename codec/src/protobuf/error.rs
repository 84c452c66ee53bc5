//! Why bytes are not read.

use smol_str::SmolStr;

use crate::schema::GVK;

/// Deepest nesting of messages. Only JSONSchemaProps nests freely; real ones stay below thirty.
pub const MAX_DEPTH: usize = 500;

/// Why bytes are not the protobuf form of an object.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProtobufError {
    /// No bytes at all.
    #[error("empty data")]
    Empty,
    /// Only the magic number.
    #[error("empty body")]
    EmptyBody,
    /// The four-byte magic number is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    /// The data ends within a value.
    #[error("unexpected EOF")]
    UnexpectedEnd,
    /// A varint of more than ten bytes.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length with its top bit set.
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    /// A field number of zero or above 2^31.
    #[error("proto: illegal tag {0}")]
    Tag(u64),
    /// Wire type 6 or 7.
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    /// The end of a group that was not opened.
    #[error("proto: unexpected end of group")]
    EndGroup,
    /// A known field has the wrong wire type.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    FieldType {
        /// The field's JSON name.
        field: SmolStr,
        /// The wire type found.
        wire: u8,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("exceeded max depth")]
    TooDeep,
    /// The envelope names a kind that the schema does not know.
    #[error("no kind {:?} is registered for version {:?}", .0.kind, .0.api_version())]
    UnknownKind(GVK),
    /// The envelope names no kind.
    #[error("Object 'Kind' is missing in the protobuf envelope")]
    MissingKind,
    /// The envelope names no version.
    #[error("Object 'apiVersion' is missing in the protobuf envelope")]
    MissingVersion,
    /// A value that the object tree cannot hold: a time out of range, NaN, a bad quantity, malformed
    /// embedded JSON.
    #[error("invalid {what} in field {field}")]
    Value {
        /// What it should be.
        what: &'static str,
        /// The field's JSON name.
        field: SmolStr,
    },
    /// The type has no protobuf form.
    #[error("the type has no protobuf form")]
    NotAMessage,
}
