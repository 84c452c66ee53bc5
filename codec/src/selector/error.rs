//! Why a selector cannot be used.

use std::fmt::{self, Write};

use crate::error::quoted;

/// A selector that cannot be used: 400 BadRequest with this text as message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A label selector has an unexpected token.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The token found.
        found: String,
        /// The tokens expected.
        expected: &'static str,
    },
    /// A requirement of a label selector is invalid.
    #[error("unable to parse requirement: {0}")]
    Requirement(RequirementError),
    /// A selector object has an invalid requirement.
    #[error(transparent)]
    Object(RequirementError),
    /// A selector object has an unknown operator.
    #[error("{} is not a valid label selector operator", quoted(.0))]
    Operator(String),
    /// A part of a selector object has the wrong type.
    #[error("label selector: {0} has the wrong type")]
    Type(&'static str),
    /// A term of a field selector has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The term without an operator.
        term: String,
    },
    /// A value of a field selector has an invalid escape.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A value of a field selector has an unescaped `,` or `=`, given as its code point.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
    /// The resource cannot be selected by a field; the message is the resource's.
    #[error("{0}")]
    Field(String),
}

/// An error in one requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// An unexpected token.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The token found.
        found: String,
        /// The tokens expected.
        expected: &'static str,
    },
    /// `in` or `notin` is not followed by a list.
    #[error("found '{0}' expected: '('")]
    List(String),
    /// Keys or values break the rules of labels.
    #[error("{}", LabelErrors(.0))]
    Invalid(Vec<LabelError>),
}

/// A key or value that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelError {
    /// The field path: `values[0][app]`; `<nil>` for a key of the query parameter.
    pub path: String,
    /// The value, quoted.
    pub value: String,
    /// The rules that it breaks.
    pub detail: String,
}

impl LabelError {
    pub(super) fn new(path: impl Into<String>, value: &str, detail: &str) -> LabelError {
        LabelError { path: path.into(), value: quoted(value), detail: detail.into() }
    }

    /// An error with all messages of a name rule about the value, or none.
    pub(super) fn of(path: &str, value: &str, errors: &[String]) -> Option<LabelError> {
        (!errors.is_empty()).then(|| LabelError::new(path, value, &errors.join("; ")))
    }
}

impl fmt::Display for LabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: Invalid value: {}: {}", self.path, self.value, self.detail)
    }
}

/// Formats one error plainly, several in brackets, as Go's aggregate of errors.
struct LabelErrors<'a>(&'a [LabelError]);

impl fmt::Display for LabelErrors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [one] => one.fmt(f),
            many => {
                f.write_char('[')?;
                for (i, error) in many.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    error.fmt(f)?;
                }
                f.write_char(']')
            }
        }
    }
}
