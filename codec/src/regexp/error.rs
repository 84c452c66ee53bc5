//! Why a pattern is refused.

/// An invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {what}: `{at}`")]
pub struct RegexpError {
    /// The error, in the words of Go.
    pub what: &'static str,
    /// The part of the pattern that is wrong.
    pub at: String,
}

pub(super) fn error(what: &'static str, at: &str) -> RegexpError {
    RegexpError { what, at: at.to_owned() }
}
