//! What authorizers answer.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What an authorizer makes of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on; nobody else is asked.
    Allow,
    /// It is refused; nobody else is asked.
    Deny,
    /// The next authorizer is asked; when there is none, it is refused.
    NoOpinion,
}

/// An answer and why.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The answer.
    pub verdict: Verdict,
    /// Why; shown in denials, reviews and the audit log.
    pub reason: Reason,
    /// What went wrong while it was decided, for people; a request that is not allowed is then answered 500.
    pub error: Option<String>,
}

/// Why a decision came out as it did. Text is made only where it is shown.
#[derive(Clone)]
pub enum Reason {
    /// Nothing to say.
    None,
    /// A text.
    Text(Cow<'static, str>),
    /// What knows how to say it.
    Shown(Arc<dyn fmt::Display + Send + Sync>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::None => Ok(()),
            Reason::Text(text) => f.write_str(text),
            Reason::Shown(what) => what.fmt(f),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Decision {
    /// Yes, with no reason given.
    pub const ALLOW: Decision = Decision { verdict: Verdict::Allow, reason: Reason::None, error: None };
    /// The next one may decide.
    pub const NO_OPINION: Decision =
        Decision { verdict: Verdict::NoOpinion, reason: Reason::None, error: None };

    /// No opinion, and why.
    pub fn no_opinion(reason: impl Into<Cow<'static, str>>) -> Decision {
        Decision { reason: Reason::Text(reason.into()), ..Decision::NO_OPINION }
    }

    /// No, and why.
    pub fn deny(reason: impl Into<Cow<'static, str>>) -> Decision {
        Decision { verdict: Verdict::Deny, ..Decision::no_opinion(reason) }
    }

    /// Whether the request goes on.
    pub fn allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }
}
