//! Formats of texts and numbers.

use super::node::{Kind, Node};

/// Formats of text that are checked; dashes do not count in their names.
const TEXT_FORMATS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether a format is known for the type of a schema; others are taken for nothing.
pub(super) fn is_supported(node: &Node, format: &str) -> bool {
    let kind = match node.int_or_string {
        true => Kind::Any,
        false => node.kind,
    };
    is_known(kind, format)
}

/// As [`is_supported`], by type.
pub(super) fn is_known(kind: Kind, format: &str) -> bool {
    match kind {
        Kind::Any | Kind::String => TEXT_FORMATS.contains(&format.replace('-', "").as_str()),
        Kind::Integer => matches!(format, "int32" | "int64"),
        Kind::Number => matches!(format, "float" | "double"),
        Kind::Boolean | Kind::Array | Kind::Object => false,
    }
}
