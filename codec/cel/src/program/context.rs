//! The state of an evaluation: variables and cost.

use std::collections::HashMap;
use std::sync::Arc;

use plinth_codec::regexp;
use regex::Regex;
use smol_str::SmolStr;

use super::EvalError;
use crate::expression::Activation;
use crate::library::authz::{AuthorizationDecision, AuthorizationRequest};
use crate::value::{self, Entries, Key, List, Val};

/// Nodes visited or created per unit of cost.
const WORK_PER_UNIT: u64 = 20;
/// Bytes of text copied per unit of cost.
const BYTES_PER_UNIT: u64 = 20;
/// Cost of compiling a regular expression that is not a literal, in addition to its length.
const REGEX_COMPILE: u64 = 200;
/// Number of compiled regular expressions that an evaluation keeps.
const REGEXES: usize = 16;

/// The source of the values of variables.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// By index; absent ones are errors.
    Values(&'a [Option<Val<'a>>]),
    /// Values and expressions, and authorization decisions.
    Activation(&'a Activation<'a>),
}

impl<'a> Source<'a> {
    pub(super) fn value(&self, variable: usize) -> Result<Option<Val<'a>>, EvalError> {
        match self {
            Source::Values(values) => Ok(values.get(variable).cloned().flatten()),
            Source::Activation(activation) => activation.value(variable),
        }
    }
}

/// The state of one evaluation.
pub(crate) struct Context<'a> {
    pub(super) source: Source<'a>,
    /// The variables of comprehensions.
    pub(super) stack: Vec<Val<'a>>,
    cost: u64,
    work: u64,
    limit: u64,
    /// The cost limit without the inline limit.
    full: u64,
    regexes: HashMap<SmolStr, Regex>,
}

impl<'a> Context<'a> {
    pub(super) fn new(source: Source<'a>, limit: u64, full: u64) -> Context<'a> {
        Context { source, stack: Vec::new(), cost: 0, work: 0, limit, full, regexes: HashMap::new() }
    }

    pub(super) fn spent(&self) -> u64 {
        self.cost.saturating_add(self.work / WORK_PER_UNIT)
    }

    pub(super) fn exhausted(&self) -> bool {
        self.spent() > self.limit
    }

    pub(super) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        match self.exhausted() {
            true => Err(self.over()),
            false => Ok(()),
        }
    }

    /// The error of an evaluation that has passed its limit.
    pub(super) fn over(&self) -> EvalError {
        match self.limit < self.full {
            true => EvalError::Long,
            false => EvalError::CostLimit,
        }
    }

    /// Raises the limit by the cost of an authorization check, which takes no time here.
    pub(super) fn make_room(&mut self, cost: u64) {
        self.limit = self.limit.saturating_add(cost).min(self.full);
    }

    /// Charges nodes visited or created beyond upstream's cost.
    pub(crate) fn work(&mut self, parts: u64) -> Result<(), EvalError> {
        self.work = self.work.saturating_add(parts);
        self.charge(0)
    }

    /// Charges text that is created.
    pub(crate) fn text(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.work((bytes as u64).saturating_mul(WORK_PER_UNIT) / BYTES_PER_UNIT)
    }

    /// Runs a walk that counts the nodes it visits.
    pub(crate) fn counting<T>(
        &mut self,
        walk: impl FnOnce(&mut u64, u64) -> Option<T>,
    ) -> Result<T, EvalError> {
        let left = self.limit.saturating_sub(self.spent());
        let mut visited = 0;
        let result = walk(&mut visited, left.saturating_mul(WORK_PER_UNIT));
        self.work(visited)?;
        result.ok_or_else(|| self.too_costly())
    }

    /// Uses up the budget: the operation would take more than any evaluation may.
    pub(crate) fn too_costly(&mut self) -> EvalError {
        self.cost = u64::MAX;
        self.over()
    }

    /// Whether the values are equal.
    pub(crate) fn equal(&mut self, a: &Val<'a>, b: &Val<'a>) -> Result<bool, EvalError> {
        self.counting(|visited, limit| a.equals(b, visited, limit))
    }

    /// Whether the list has an equal element.
    pub(crate) fn contains(&mut self, list: &List<'a>, value: &Val<'a>) -> Result<bool, EvalError> {
        self.counting(|visited, limit| value::contains(list, value, visited, limit))
    }

    /// Inserts an entry into a map; each key once.
    pub(crate) fn insert(
        &mut self,
        map: &mut Entries<'a>,
        key: Val<'a>,
        value: Val<'a>,
    ) -> Result<(), EvalError> {
        let index = key
            .to_key()
            .ok_or_else(|| EvalError::Other(format!("unsupported key type: {}", key.type_name()).into()))?;
        if map.contains_key(&index) {
            let shown = match &index {
                Key::Bool(b) => b.to_string(),
                Key::Int(n) => n.to_string(),
                Key::String(s) => s.to_string(),
            };
            return Err(EvalError::Other(format!("insert failed: key {shown} already exists").into()));
        }
        map.insert(index, (key, value));
        Ok(())
    }

    /// Keeps a regular expression that was compiled with the program.
    pub(super) fn keep(&mut self, pattern: &str, regex: &Regex) {
        if !self.regexes.contains_key(pattern) && self.regexes.len() < REGEXES {
            self.regexes.insert(SmolStr::new(pattern), regex.clone());
        }
    }

    /// A compiled regular expression of this evaluation.
    pub(crate) fn regex(&mut self, pattern: &str) -> Result<Regex, EvalError> {
        if let Some(regex) = self.regexes.get(pattern) {
            return Ok(regex.clone());
        }
        self.charge(REGEX_COMPILE.saturating_add(pattern.len() as u64))?;
        let regex = regexp::compile(pattern).map_err(|why| EvalError::Other(why.to_string().into()))?;
        if self.regexes.len() < REGEXES {
            self.regexes.insert(SmolStr::new(pattern), regex.clone());
        }
        Ok(regex)
    }

    /// The decision of an authorization check.
    pub(crate) fn answer(
        &self,
        question: AuthorizationRequest,
    ) -> Result<Arc<AuthorizationDecision>, EvalError> {
        let decision = match self.source {
            Source::Values(_) => None,
            Source::Activation(activation) => activation.decision(&question),
        };
        decision.ok_or_else(|| EvalError::Unanswered(Box::new(question)))
    }
}
