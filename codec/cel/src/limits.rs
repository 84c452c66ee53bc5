//! The bounds (k8s.io/apiserver `pkg/apis/cel/config.go`, k8s.io/apiextensions-apiserver
//! `pkg/apis/apiextensions/validation`). A cost unit is about 50 ns of upstream's time.

use super::cost::CHECK;

/// Most that one evaluation of one expression may cost.
pub(crate) const PER_CALL_LIMIT: u64 = 1_000_000;
/// What all rules together may cost for one object.
pub(crate) const OBJECT_BUDGET: i64 = 10_000_000;
/// What the match conditions of one webhook or policy may cost for one object.
pub const MATCH_CONDITIONS_BUDGET: i64 = 2_500_000;
/// Most that a rule may be estimated to cost, all its evaluations for one object together.
pub(crate) const ESTIMATED_RULE_LIMIT: u64 = 10_000_000;
/// Most that the rules of one schema may be estimated to cost.
pub(crate) const ESTIMATED_SCHEMA_LIMIT: u64 = 100_000_000;
/// The largest request, which bounds what a schema leaves without bound.
pub(crate) const MAX_REQUEST_BYTES: i64 = 3 * 1024 * 1024;
/// Most bytes of what a `messageExpression` makes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// Most code points of an expression.
pub(crate) const MAX_EXPRESSION_LENGTH: usize = 100_000;
/// How deep the parser may go.
pub(crate) const MAX_EXPRESSION_DEPTH: u16 = 250;
/// How deep a syntax tree may be: chains like `a + b + c` are deeper than they are nested.
pub(crate) const MAX_DEPTH: usize = 1000;

/// What is left of what the rules of one object may cost.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    remaining: i64,
    brief: Option<u64>,
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
        Budget { remaining: units, brief: None, is_long: false }
    }

    /// Lets evaluations take so many units here and now, questions to the authorizers not counted; what takes more ends with
    /// [`Interruption::Long`](crate::Interruption::Long), and is free of charge. `None`: as long as they may.
    pub fn keep_brief(&mut self, units: Option<u64>) {
        self.brief = units;
    }

    /// What is left of that.
    pub fn brief(&self) -> Option<u64> {
        self.brief
    }

    /// Whether rules took longer than they may here and now: their verdicts so far are to be thrown away, and no further one is
    /// asked for.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    pub(crate) fn run_long(&mut self) {
        self.is_long = true;
    }

    /// What one evaluation may cost.
    pub(crate) fn limit(&self) -> u64 {
        self.brief.map_or(PER_CALL_LIMIT, |brief| brief.min(PER_CALL_LIMIT))
    }

    /// Whether nothing is left: no further rule is to be evaluated.
    pub fn is_exhausted(&self) -> bool {
        self.remaining < 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remaining <= 0
    }

    /// Takes the cost of one evaluation. `false`, and nothing is left, when there was not as much.
    pub(crate) fn charge(&mut self, cost: u64) -> bool {
        // What is brief costs less than a question.
        self.brief = self.brief.map(|brief| brief.saturating_sub(cost % CHECK));
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
