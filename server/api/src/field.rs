//! Field errors: the causes of a 422, in upstream's words
//! (k8s.io/apimachinery `pkg/util/validation/field/errors.go`).

use std::fmt::{self, Display};

use plinth_codec::field::{DisplayValue, FieldError};
use plinth_codec::Value;

use crate::api_error::Cause;

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

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Cause {
        Cause { reason: error.reason.as_str(), message: error.message, field: error.field }
    }
}

/// An error of a field. An empty path stays empty, as upstream's built-in kinds name the object; that of a
/// [`FieldError`] would be `<nil>`.
fn cause(field: impl Display, error: FieldError) -> Cause {
    Cause { field: field.to_string(), ..error.into() }
}

/// A bad value as shown in a message. See [`DisplayValue`].
pub fn shown_value(value: &Value) -> String {
    DisplayValue(value).to_string()
}

impl Cause {
    /// See [`FieldError::invalid`].
    pub fn invalid(field: impl Display, value: impl Into<Value>, why: &str) -> Cause {
        cause(field, FieldError::invalid("", &value.into(), why))
    }

    /// See [`FieldError::invalid_shown`].
    pub fn invalid_shown(field: impl Display, shown: &str, why: &str) -> Cause {
        cause(field, FieldError::invalid_shown("", shown, why))
    }

    /// See [`FieldError::duplicate_shown`].
    pub fn duplicate_shown(field: impl Display, shown: &str) -> Cause {
        cause(field, FieldError::duplicate_shown("", shown))
    }

    /// See [`FieldError::required`].
    pub fn required(field: impl Display, why: &str) -> Cause {
        cause(field, FieldError::required("", why))
    }

    /// See [`FieldError::forbidden`].
    pub fn forbidden(field: impl Display, why: &str) -> Cause {
        cause(field, FieldError::forbidden("", why))
    }

    /// See [`FieldError::duplicate`].
    pub fn duplicate(field: impl Display, value: impl Into<Value>) -> Cause {
        cause(field, FieldError::duplicate("", &value.into()))
    }

    /// See [`FieldError::not_supported`]; `supported` is sorted.
    pub fn not_supported(field: impl Display, value: impl Into<Value>, supported: &[&str]) -> Cause {
        cause(field, FieldError::not_supported("", &value.into(), supported))
    }

    /// See [`FieldError::too_long`].
    pub fn too_long(field: impl Display, most: usize) -> Cause {
        cause(field, FieldError::too_long("", signed(most)))
    }

    /// See [`FieldError::too_many`].
    pub fn too_many(field: impl Display, there_are: usize, most: usize) -> Cause {
        cause(field, FieldError::too_many("", signed(there_are), signed(most)))
    }

    /// See [`FieldError::not_found`].
    pub fn not_found(field: impl Display, value: impl Into<Value>) -> Cause {
        cause(field, FieldError::not_found("", &value.into()))
    }
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
