//! Points in time and spans as the API writes them.
//!
//! `metav1.Time` is RFC 3339 in UTC with whole seconds, `metav1.MicroTime` with six digits of fraction,
//! `metav1.Duration` is Go's `time.Duration` text (`1h0m0s`). Errors have the messages of Go's `time`
//! package. [`human`] is the age column of kubectl.

mod duration;
mod timestamp;

pub use duration::{format_duration, human, parse_duration};
pub use timestamp::{civil_from_days, days_from_civil, Timestamp};

/// Why a text is not a time or duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// A part of a time that does not match the layout.
    #[error(
        "parsing time {} as {layout:?}: cannot parse {} as {part:?}",
        crate::quoted::quoted(text),
        crate::quoted::quoted(rest)
    )]
    Layout {
        /// The whole text.
        text: String,
        /// Go's layout.
        layout: &'static str,
        /// The remaining text.
        rest: String,
        /// The part of the layout that does not fit.
        part: &'static str,
    },
    /// A value out of range, such as month 13.
    #[error("parsing time {}: {what} out of range", crate::quoted::quoted(text))]
    Range {
        /// The whole text.
        text: String,
        /// `month`, `day`, `hour`, `minute`, `second`.
        what: &'static str,
    },
    /// Something after the time.
    #[error("parsing time {}: extra text: {}", crate::quoted::quoted(text), crate::quoted::quoted(rest))]
    Extra {
        /// The whole text.
        text: String,
        /// The extra text.
        rest: String,
    },
    /// A malformed duration.
    #[error("time: {what} {}", crate::quoted::quoted(text))]
    Duration {
        /// `invalid duration`, `missing unit in duration`, `unknown unit "x" in duration`.
        what: String,
        /// The whole text.
        text: String,
    },
}
