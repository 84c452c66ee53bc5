//! The bounds (k8s.io/apiserver `pkg/apis/cel/config.go`, k8s.io/apiextensions-apiserver
//! `pkg/apis/apiextensions/validation`). A cost unit is about 50 ns of upstream's time.

use super::cost::CHECK;

/// Cost limit of one evaluation of one expression.
pub(crate) const PER_CALL_LIMIT: u64 = 1_000_000;
/// Cost limit of all rules together for one object.
pub(crate) const OBJECT_BUDGET: i64 = 10_000_000;
/// Cost limit of the match conditions of one webhook or policy for one object.
pub const MATCH_CONDITIONS_BUDGET: i64 = 2_500_000;
/// Limit of the estimated cost of a rule, all its evaluations for one object together.
pub(crate) const ESTIMATED_RULE_LIMIT: u64 = 10_000_000;
/// Limit of the estimated cost of the rules of one schema.
pub(crate) const ESTIMATED_SCHEMA_LIMIT: u64 = 100_000_000;
/// The largest request, which bounds data that the schema does not.
pub(crate) const MAX_REQUEST_BYTES: i64 = 3 * 1024 * 1024;
/// Maximum length of the result of a `messageExpression` in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// Maximum length of an expression in code points.
pub(crate) const MAX_EXPRESSION_LENGTH: usize = 100_000;
/// Maximum nesting of the parser.
pub(crate) const MAX_EXPRESSION_DEPTH: u16 = 250;
/// Maximum depth of a syntax tree: chains like `a + b + c` are deeper than they are nested.
pub(crate) const MAX_DEPTH: usize = 1000;

/// The remaining cost budget of the rules of one object.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    remaining: i64,
    inline_limit: Option<u64>,
    is_long: bool,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(OBJECT_BUDGET)
    }
}

impl Budget {
    /// A budget of so many units.
    pub fn new(units: i64) -> Budget {
        Budget { remaining: units, inline_limit: None, is_long: false }
    }

    /// Sets the inline limit of evaluations in units, authorization checks not counted; an evaluation that
    /// exceeds it ends with [`Interruption::Long`](crate::Interruption::Long), and is not charged. `None` is
    /// no limit.
    pub fn set_inline_limit(&mut self, units: Option<u64>) {
        self.inline_limit = units;
    }

    /// The remaining inline limit.
    pub fn inline_limit(&self) -> Option<u64> {
        self.inline_limit
    }

    /// Whether rules exceeded the inline limit: their results are to be discarded, and no further rule may be
    /// evaluated.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    pub(crate) fn run_long(&mut self) {
        self.is_long = true;
    }

    /// Cost limit of the next evaluation.
    pub(crate) fn limit(&self) -> u64 {
        self.inline_limit.map_or(PER_CALL_LIMIT, |limit| limit.min(PER_CALL_LIMIT))
    }

    /// Whether the budget is used up: no further rule may be evaluated.
    pub fn is_exhausted(&self) -> bool {
        self.remaining < 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remaining <= 0
    }

    /// Charges the cost of one evaluation. `false`, with the budget used up, when it was not enough.
    pub(crate) fn charge(&mut self, cost: u64) -> bool {
        // An inline evaluation costs less than an authorization check.
        self.inline_limit = self.inline_limit.map(|limit| limit.saturating_sub(cost % CHECK));
        match i64::try_from(cost) {
            Ok(cost) if cost <= self.remaining => {
                self.remaining -= cost;
                true
            }
            _ => {
                self.exhaust();
                false
            }
        }
    }

    pub(crate) fn exhaust(&mut self) {
        self.remaining = -1;
    }
}
