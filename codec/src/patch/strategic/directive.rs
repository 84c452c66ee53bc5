//! Directives of a patch, and errors of them.

use super::super::{goprint, PatchError};
use crate::value::Value;

pub(super) const DIRECTIVE: &str = "$patch";

pub(super) const SET_ORDER: &str = "$setElementOrder";

pub(super) fn unmergeable(text: impl Into<String>) -> PatchError {
    PatchError::Unmergeable(text.into())
}

pub(super) fn bad_type(expected: &str, got: &Value) -> PatchError {
    unmergeable(format!("expected a {expected}, but received a {}", goprint::type_name(got)))
}
