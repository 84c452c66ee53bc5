//! Decisions of authorizers.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The verdict of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed; no further authorizer runs.
    Allow,
    /// Denied; no further authorizer runs.
    Deny,
    /// The next authorizer decides; after the last one the request is denied.
    NoOpinion,
}

/// A verdict with its reason.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Allowed, denied or no opinion.
    pub verdict: Verdict,
    /// Shown in denials, reviews and the audit log.
    pub reason: Reason,
    /// An error during the decision; a request that is not allowed is then answered 500.
    pub error: Option<String>,
}

/// The reason of a decision. It is formatted only where it is shown.
#[derive(Clone)]
pub enum Reason {
    /// No reason.
    None,
    /// A complete text.
    Text(Cow<'static, str>),
    /// Formatted on demand.
    Lazy(Arc<dyn fmt::Display + Send + Sync>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::None => Ok(()),
            Reason::Text(text) => f.write_str(text),
            Reason::Lazy(what) => what.fmt(f),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Decision {
    /// Allows without a reason.
    pub const ALLOW: Decision = Decision { verdict: Verdict::Allow, reason: Reason::None, error: None };
    /// No opinion, without a reason.
    pub(crate) const NO_OPINION: Decision =
        Decision { verdict: Verdict::NoOpinion, reason: Reason::None, error: None };

    /// No opinion, with a reason.
    pub(crate) fn no_opinion(reason: impl Into<Cow<'static, str>>) -> Decision {
        Decision { reason: Reason::Text(reason.into()), ..Decision::NO_OPINION }
    }

    /// Denies with a reason.
    pub fn deny(reason: impl Into<Cow<'static, str>>) -> Decision {
        Decision { verdict: Verdict::Deny, ..Decision::no_opinion(reason) }
    }

    /// Whether the request is allowed.
    pub fn allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }
}

/// Joins errors (k8s.io/apimachinery `pkg/util/errors`, `Aggregate`): a single one is returned as is, several
/// in brackets without duplicates.
pub fn aggregate<T: AsRef<str>>(errors: &[T]) -> String {
    let mut distinct: Vec<&str> = Vec::with_capacity(errors.len());
    for error in errors.iter().map(AsRef::as_ref) {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}
