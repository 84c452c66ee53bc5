//! Field errors: the causes of a 422, in upstream's words
//! (k8s.io/apimachinery `pkg/util/validation/field/errors.go`).

use std::fmt::{self, Display};

use plinth_codec::{json, Value};

use crate::api_error::Cause;

pub use crate::api_error::MOST_ERRORS;

/// Maximum size of a bad value in a message, in bytes: each error may contain the whole object.
pub const SHOWN: usize = 16 << 10;

/// Path of a value: `spec.containers[0].`, made with `format_args!` from its parents. It is formatted only
/// when an error is reported; validation of a valid object builds dozens of paths.
pub type FieldPath<'a> = fmt::Arguments<'a>;

/// The path of the value itself: without the trailing dot.
#[derive(Clone, Copy, Debug)]
pub struct ParentPath<'a>(pub FieldPath<'a>);

impl Display for ParentPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().trim_end_matches('.'))
    }
}

/// A bad value as shown in a message: strings quoted, everything else as JSON; truncated if very long.
pub fn shown(value: &Value) -> String {
    let mut shown = match value {
        Value::String(s) => format!("{:?}", s.as_str()),
        other => {
            let mut out = Vec::new();
            json::write_untyped(other, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
    };
    if shown.len() > SHOWN {
        shown.truncate(shown.floor_char_boundary(SHOWN));
        shown.push_str("...");
    }
    shown
}

impl From<plinth_codec::field::FieldError> for Cause {
    fn from(error: plinth_codec::field::FieldError) -> Cause {
        Cause { reason: error.reason.as_str(), message: error.message, field: error.field }
    }
}

/// `Invalid value: "x": why`.
pub fn invalid(field: impl Display, value: impl Into<Value>, why: &str) -> Cause {
    let message = format!("Invalid value: {}: {why}", shown(&value.into()));
    Cause { reason: "FieldValueInvalid", message, field: field.to_string() }
}

/// As [`invalid`], for a value that is formatted already: structs come in the order of their members
/// upstream.
pub fn invalid_shown(field: impl Display, shown: &str, why: &str) -> Cause {
    let message = format!("Invalid value: {shown}: {why}");
    Cause { reason: "FieldValueInvalid", message, field: field.to_string() }
}

/// As [`duplicate`], for a value that is formatted already.
pub fn duplicate_shown(field: impl Display, shown: &str) -> Cause {
    Cause {
        reason: "FieldValueDuplicate",
        message: format!("Duplicate value: {shown}"),
        field: field.to_string(),
    }
}

/// `Required value: why`, or `Required value` alone.
pub fn required(field: impl Display, why: &str) -> Cause {
    let message = match why.is_empty() {
        true => "Required value".to_owned(),
        false => format!("Required value: {why}"),
    };
    Cause { reason: "FieldValueRequired", message, field: field.to_string() }
}

/// `Forbidden: why`.
pub fn forbidden(field: impl Display, why: &str) -> Cause {
    Cause { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.to_string() }
}

/// `Duplicate value: "x"`.
pub fn duplicate(field: impl Display, value: impl Into<Value>) -> Cause {
    let message = format!("Duplicate value: {}", shown(&value.into()));
    Cause { reason: "FieldValueDuplicate", message, field: field.to_string() }
}

/// `Unsupported value: "x": supported values: "a", "b"`; `supported` is sorted.
pub fn not_supported(field: impl Display, value: impl Into<Value>, supported: &[&str]) -> Cause {
    let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
    let message =
        format!("Unsupported value: {}: supported values: {}", shown(&value.into()), quoted.join(", "));
    Cause { reason: "FieldValueNotSupported", message, field: field.to_string() }
}

/// `Too long: may not be more than N bytes`.
pub fn too_long(field: impl Display, most: usize) -> Cause {
    let message = format!("Too long: may not be more than {most} bytes");
    Cause { reason: "FieldValueTooLong", message, field: field.to_string() }
}

/// `Too many: N: must have at most M items`.
pub fn too_many(field: impl Display, there_are: usize, most: usize) -> Cause {
    let message = format!("Too many: {there_are}: must have at most {most} items");
    Cause { reason: "FieldValueTooMany", message, field: field.to_string() }
}

/// `Not found: "x"`.
pub fn not_found(field: impl Display, value: impl Into<Value>) -> Cause {
    let message = format!("Not found: {}", shown(&value.into()));
    Cause { reason: "FieldValueNotFound", message, field: field.to_string() }
}
