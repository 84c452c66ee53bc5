//! Errors of decoding and encoding, with upstream's messages.
//!
//! Clients match on these messages, so `Display` gives them exactly as kube-apiserver's decoders do; the
//! server only wraps them into a `Status`.

use smol_str::SmolStr;

use crate::quantity::QuantityError;
pub use crate::quoted::{is_printable, quoted, quoted_list, short_escape};
use crate::time::TimeError;

/// Why a body cannot be decoded. Small, since every step of a decoder returns a `Result` with it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON. Upstream reads the type of an object first and so prefixes this, for bodies of
    /// objects, with `couldn't get version/kind; json parse error: `.
    #[error("{message}")]
    Syntax {
        /// The error, like `unexpected end of JSON input`.
        message: Box<str>,
        /// How many bytes were read, the offending one included.
        offset: usize,
    },
    /// The text is not YAML (message as `yaml: line 2: …`).
    #[error("{message}")]
    Yaml {
        /// The error with its position.
        message: Box<str>,
    },
    /// A value has the wrong type for its field; the first such value.
    #[error(transparent)]
    Type(Box<TypeError>),
    /// Bytes that are not base64.
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    /// A malformed quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A malformed time or duration.
    #[error(transparent)]
    Time(Box<TimeError>),
    /// A value of an `apiextensions` union type that is neither alternative.
    #[error("boolean or JSON schema expected")]
    SchemaOrBool,
    /// An object without a kind. Upstream repeats the body.
    #[error("Object 'Kind' is missing in '{0}'")]
    MissingKind(Box<str>),
    /// An object without a version. Upstream repeats the body.
    #[error("Object 'apiVersion' is missing in '{0}'")]
    MissingVersion(Box<str>),
}

impl From<TimeError> for DecodeError {
    fn from(error: TimeError) -> DecodeError {
        DecodeError::Time(Box::new(error))
    }
}

/// A value of a wrong type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("json: cannot unmarshal {found} into Go {place} of type {expected}", place = self.place())]
pub struct TypeError {
    /// The type found: `string`, `number 1.5`, `object`, …
    pub found: String,
    /// Go's name of the struct that has the field; empty at the top.
    pub structure: String,
    /// Field names from the root, joined with dots; list indices and map keys are not part of it.
    pub path: String,
    /// Go's name of the type that the field has.
    pub expected: String,
}

impl TypeError {
    fn place(&self) -> String {
        match self.structure.is_empty() && self.path.is_empty() {
            true => "value".to_string(),
            false => format!("struct field {}.{}", self.structure, self.path),
        }
    }
}

/// Why an object cannot be written as protobuf or CBOR.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// The JSON text is malformed.
    #[error("invalid JSON at byte {offset}: {problem}")]
    Json {
        /// Where, in bytes from the start.
        offset: usize,
        /// What is wrong there.
        problem: Box<str>,
    },
    /// A value is of the wrong JSON type.
    #[error("{path}: expected {expected}, got {found}")]
    Type {
        /// Where: `spec.containers[0].name`.
        path: String,
        /// The type in the schema.
        expected: &'static str,
        /// The JSON type that was found.
        found: &'static str,
    },
    /// A string does not have the form that the schema requires.
    #[error("{path}: invalid {what} {text:?}")]
    Value {
        /// The path of the field, as `spec.replicas`.
        path: String,
        /// What was expected: `time`, `base64`.
        what: &'static str,
        /// The start of the string.
        text: String,
    },
    /// Nested deeper than [`MAX_DEPTH`](crate::protobuf::MAX_DEPTH) messages or 10,000 levels of JSON.
    #[error("exceeded max depth")]
    TooDeep,
    /// More than two thousand million nodes.
    #[error("object too large")]
    TooLarge,
    /// The type has no protobuf form.
    #[error("the type has no protobuf form")]
    NotAMessage,
}

impl From<DecodeError> for EncodeError {
    fn from(error: DecodeError) -> EncodeError {
        let offset = if let DecodeError::Syntax { offset, .. } = error { offset } else { 0 };
        EncodeError::Json { offset, problem: error.to_string().into() }
    }
}

impl EncodeError {
    fn path_mut(&mut self) -> Option<&mut String> {
        match self {
            EncodeError::Type { path, .. } | EncodeError::Value { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Prepends a field's name to the path.
    pub(crate) fn in_field(mut self, name: &str) -> EncodeError {
        if let Some(path) = self.path_mut() {
            let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            *path = format!("{name}{dot}{path}");
        }
        self
    }

    pub(crate) fn at_index(mut self, index: usize) -> EncodeError {
        if let Some(path) = self.path_mut() {
            let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            *path = format!("[{index}]{dot}{path}");
        }
        self
    }
}

/// An error of strict field validation. The object is decoded nevertheless: unknown fields are dropped, of
/// duplicate ones the last counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StrictError {
    /// No such field in the type; with its path (`spec.containers[0].imagePullSecret`).
    UnknownField(SmolStr),
    /// A duplicate field or key; with its path.
    DuplicateField(SmolStr),
    /// A duplicate key in YAML, with the YAML reader's message.
    Yaml(SmolStr),
}

impl StrictError {
    /// The error of a part as that of the whole, in which the part is at a path.
    #[must_use]
    pub fn below(self, path: &str) -> StrictError {
        let below = |inner: &str| SmolStr::from(format!("{path}.{inner}"));
        match self {
            StrictError::UnknownField(inner) => StrictError::UnknownField(below(&inner)),
            StrictError::DuplicateField(inner) => StrictError::DuplicateField(below(&inner)),
            message @ StrictError::Yaml(_) => message,
        }
    }
}

/// Maximum number of strict errors reported for one body.
pub const MAX_STRICT_ERRORS: usize = 100;

impl std::fmt::Display for StrictError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StrictError::UnknownField(path) => write!(f, "unknown field {}", quoted(path)),
            StrictError::DuplicateField(path) => write!(f, "duplicate field {}", quoted(path)),
            StrictError::Yaml(message) => f.write_str(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_small() {
        assert!(std::mem::size_of::<DecodeError>() <= 32);
    }

    #[test]
    fn sentences_are_those_of_upstream() {
        let mut error = TypeError {
            found: "string".into(),
            structure: "DeploymentSpec".into(),
            path: "spec.replicas".into(),
            expected: "int32".into(),
        };
        assert_eq!(
            error.to_string(),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        );
        error.structure.clear();
        error.path.clear();
        assert_eq!(error.to_string(), "json: cannot unmarshal string into Go value of type int32");
        assert_eq!(StrictError::UnknownField("a.\"b".into()).to_string(), r#"unknown field "a.\"b""#);
    }
}
