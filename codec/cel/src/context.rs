//! The state of an evaluation: variables and cost; how it fails.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::sync::Arc;

use plinth_codec::regexp;
use regex::Regex;
use smol_str::SmolStr;

use crate::opaque::{AuthorizationDecision, AuthorizationRequest};
use crate::value::{self, Entries, Key, List, Val};

/// Nodes visited or created per unit of cost.
const WORK_PER_UNIT: u64 = 20;
/// Bytes of text copied per unit of cost.
const BYTES_PER_UNIT: u64 = 20;
/// Cost of compiling a regular expression that is not a literal, in addition to its length.
const REGEX_COMPILE: u64 = 200;
/// Number of compiled regular expressions that an evaluation keeps.
const REGEXES: usize = 16;

/// Why the evaluation of an expression failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvalError {
    /// The cost limit was exceeded.
    CostLimit,
    /// The inline limit was exceeded.
    Long,
    /// A function does not take these arguments.
    NoSuchOverload,
    /// An absent field, entry or variable.
    NoSuchKey(SmolStr),
    /// A number out of range.
    Overflow(&'static str),
    /// A function's own message.
    Other(Box<str>),
    /// An authorization check without a decision.
    Unanswered(Box<AuthorizationRequest>),
}

/// The result of an operation or a function.
pub(crate) type Outcome<'a> = Result<Val<'a>, EvalError>;

impl EvalError {
    /// An error with a message of its own.
    pub(crate) fn other(why: impl Into<Box<str>>) -> EvalError {
        EvalError::Other(why.into())
    }

    pub(crate) fn is_no_such_overload(&self) -> bool {
        matches!(self, EvalError::NoSuchOverload)
    }

    /// Whether the evaluation ends, even where an operator would absorb the error.
    pub(crate) fn ends_evaluation(&self) -> bool {
        matches!(self, EvalError::CostLimit | EvalError::Long | EvalError::Unanswered(_))
    }
}

impl Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::CostLimit | EvalError::Long => {
                f.write_str("operation cancelled: actual cost limit exceeded")
            }
            EvalError::NoSuchOverload => f.write_str("no such overload"),
            EvalError::NoSuchKey(key) => write!(f, "no such key: {key}"),
            EvalError::Overflow(what) => write!(f, "{what} overflow"),
            EvalError::Other(why) => f.write_str(why),
            EvalError::Unanswered(_) => f.write_str("the authorizers were not asked"),
        }
    }
}

/// Variables that may be expressions themselves, evaluated when they are first read, and the authorization
/// decisions of a request. An interface because a program reads variables and variables are programs.
pub(crate) trait Variables<'a> {
    /// The value of a variable; `None` when it has none.
    fn value(&'a self, variable: usize) -> Result<Option<Val<'a>>, EvalError>;

    /// The decision of a check; `None` when the authorizer has not been called yet.
    fn decision(&self, check: &AuthorizationRequest) -> Option<Arc<AuthorizationDecision>>;
}

/// The source of the values of variables.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// By index; absent ones are errors.
    Values(&'a [Option<Val<'a>>]),
    /// Values and expressions, and authorization decisions.
    Variables(&'a dyn Variables<'a>),
}

impl<'a> Source<'a> {
    pub(crate) fn value(&self, variable: usize) -> Result<Option<Val<'a>>, EvalError> {
        match self {
            Source::Values(values) => Ok(values.get(variable).cloned().flatten()),
            Source::Variables(variables) => variables.value(variable),
        }
    }
}

/// The state of one evaluation.
pub(crate) struct Context<'a> {
    pub(crate) source: Source<'a>,
    /// The variables of comprehensions.
    pub(crate) stack: Vec<Val<'a>>,
    cost: u64,
    work: u64,
    limit: u64,
    /// The cost limit without the inline limit.
    full: u64,
    regexes: HashMap<SmolStr, Regex>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(source: Source<'a>, limit: u64, full: u64) -> Context<'a> {
        Context { source, stack: Vec::new(), cost: 0, work: 0, limit, full, regexes: HashMap::new() }
    }

    pub(crate) fn spent(&self) -> u64 {
        self.cost.saturating_add(self.work / WORK_PER_UNIT)
    }

    pub(crate) fn exhausted(&self) -> bool {
        self.spent() > self.limit
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        match self.exhausted() {
            true => Err(self.over()),
            false => Ok(()),
        }
    }

    /// The error of an evaluation that has passed its limit.
    pub(crate) fn over(&self) -> EvalError {
        match self.limit < self.full {
            true => EvalError::Long,
            false => EvalError::CostLimit,
        }
    }

    /// Raises the limit by the cost of an authorization check, which takes no time here.
    pub(crate) fn make_room(&mut self, cost: u64) {
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

    /// Passes the limit: the operation would take more than the evaluation may. By no more than that, since
    /// the cost is charged to the budget of all rules, which is larger.
    pub(crate) fn too_costly(&mut self) -> EvalError {
        self.cost = self.cost.max(self.limit.saturating_add(1));
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
            .ok_or_else(|| EvalError::other(format!("unsupported key type: {}", key.type_name())))?;
        if map.contains_key(&index) {
            let shown = match &index {
                Key::Bool(b) => b.to_string(),
                Key::Int(n) => n.to_string(),
                Key::String(s) => s.to_string(),
            };
            return Err(EvalError::other(format!("insert failed: key {shown} already exists")));
        }
        map.insert(index, (key, value));
        Ok(())
    }

    /// Keeps a regular expression that was compiled with the program.
    pub(crate) fn keep(&mut self, pattern: &str, regex: &Regex) {
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
        let regex = regexp::compile(pattern).map_err(|why| EvalError::other(why.to_string()))?;
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
            Source::Variables(variables) => variables.decision(&question),
        };
        decision.ok_or_else(|| EvalError::Unanswered(Box::new(question)))
    }
}
