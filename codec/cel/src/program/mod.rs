//! Compiled expressions and their evaluation.
//!
//! A program is a tree of operations whose names, functions and constants are resolved. Evaluation walks it, counts
//! what it costs in upstream's units before each operation is done, and ends with [`EvalError::CostLimit`] when the
//! limit is passed. Work that upstream counts too low (comparing whole objects costs 1 there) is counted
//! beside, `WORK_PER_UNIT` parts as one unit, so that time and memory are bounded whatever the expression and data.
//!
//! | module | subject |
//! |---|---|
//! | `compile` | from the checked syntax tree to operations |
//! | `context` | what an evaluation knows and has spent |
//! | `evaluate` | the operations |
//! | `fold` | macros over lists and maps |

mod compile;
mod context;
mod evaluate;
mod fold;

use std::fmt::{self, Display};

use regex::Regex;
use smol_str::SmolStr;

use self::compile::compile;
use super::check::check;
use super::declare::DeclType;
use super::estimate::estimate;
use super::library::authz::AuthorizationRequest;
use super::library::Function;
use super::message::MessageTypes;
use super::parse::{describe, parse};
use super::types::Type;
use super::value::Val;

pub(crate) use self::context::{Context, Source};

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvalError {
    /// It costs more than it may.
    CostLimit,
    /// It costs more than it may where it is to be brief.
    Long,
    /// A function does not take these arguments.
    NoSuchOverload,
    /// A field, entry or variable that is not there.
    NoSuchKey(SmolStr),
    /// A number out of range.
    Overflow(&'static str),
    /// In a function's own words.
    Other(Box<str>),
    /// It hangs on an answer of the authorizers that nobody has given yet.
    Unanswered(Box<AuthorizationRequest>),
}

impl EvalError {
    pub(crate) fn is_no_such_overload(&self) -> bool {
        matches!(self, EvalError::NoSuchOverload)
    }

    /// Whether the evaluation ends, whatever an operator would make of a error.
    fn ends_evaluation(&self) -> bool {
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

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompileError {
    /// Of syntax or types: the text of all errors, each with its place.
    Compilation(String),
    /// A part that is evaluated beforehand has no value.
    Instantiation(String),
}

/// A compiled expression. Immutable; shared by all threads.
#[derive(Debug)]
pub(crate) struct Program {
    root: Op,
    output: Type,
    estimated_cost: u64,
    /// Which variables it looks at.
    used: Vec<bool>,
}

impl Program {
    /// Compiles an expression over variables of these names and types; sizes are looked up in `root`, the declaration
    /// of the data.
    pub(crate) fn compile(
        source: &str,
        variables: &[(&str, Type)],
        root: Option<&DeclType>,
    ) -> Result<Program, CompileError> {
        Program::compile_with(source, variables, root, MessageTypes::None)
    }

    /// As [`Program::compile`], for expressions that can make objects by name.
    pub(crate) fn compile_with(
        source: &str,
        variables: &[(&str, Type)],
        root: Option<&DeclType>,
        messages: MessageTypes,
    ) -> Result<Program, CompileError> {
        let errors = |issues: Vec<_>| CompileError::Compilation(describe(source, &issues));
        let tree = parse(source).map_err(errors)?;
        let checked = check(&tree, variables, messages).map_err(errors)?;
        let estimated_cost = estimate(&tree.root, &checked, root);
        let (root, used) = compile(&tree.root, &checked, variables.len())?;
        let output = checked.types[tree.root.id].clone();
        Ok(Program { root, output, estimated_cost, used })
    }

    /// The type of the value.
    pub(crate) fn output(&self) -> &Type {
        &self.output
    }

    /// The most that an evaluation may cost, as far as the schema tells.
    pub(crate) fn estimated_cost(&self) -> u64 {
        self.estimated_cost
    }

    /// Whether the expression looks at the variable of this number.
    pub(crate) fn uses(&self, variable: usize) -> bool {
        self.used.get(variable).copied().unwrap_or(false)
    }

    /// Evaluates. The second result is what it cost, at most a little more than `limit`.
    pub(crate) fn evaluate<'a>(
        &'a self,
        variables: &'a [Option<Val<'a>>],
        limit: u64,
    ) -> (Result<Val<'a>, EvalError>, u64) {
        self.run(Source::Values(variables), limit, limit)
    }

    /// As [`Program::evaluate`], with variables that may be expressions themselves. Where `limit` is less than `full`, what costs
    /// more ends with [`EvalError::Long`]; questions to the authorizers are not counted then.
    pub(crate) fn run<'a>(
        &'a self,
        source: Source<'a>,
        limit: u64,
        full: u64,
    ) -> (Result<Val<'a>, EvalError>, u64) {
        let mut context = Context::new(source, limit, full);
        let outcome = context.eval(&self.root);
        // A error may hide that the limit was passed: `true || x` goes on after one.
        let outcome = if context.exhausted() { Err(context.over()) } else { outcome };
        (outcome, context.spent())
    }
}

/// One operation.
#[derive(Debug)]
enum Op {
    Const(Val<'static>),
    Variable(usize, SmolStr),
    Local(usize),
    Select(Box<Op>, SmolStr),
    Has(Box<Op>, SmolStr),
    /// `has(a.b)` where `a.b` is one variable: it is there when it has a value.
    Present(usize, SmolStr),
    OptionalSelect(Box<Op>, SmolStr),
    And(Box<[Op; 2]>),
    Or(Box<[Op; 2]>),
    Conditional(Box<[Op; 3]>),
    /// `a.or(b)`, `a.orValue(b)`.
    OrElse(Box<[Op; 2]>, bool),
    /// With the expression, when it is a literal.
    Call(&'static Function, Box<[Op]>),
    /// `matches`, `find`, `findAll` with a literal expression.
    Regex(&'static Function, Box<[Op]>, Regex),
    List(Box<[(Op, bool)]>),
    Map(Box<[(Op, Op, bool)]>),
    /// `Name{field: value}`.
    Message(SmolStr, Box<[(SmolStr, Op, bool)]>),
    Fold(Box<Fold>),
    Bind(Box<[Op; 2]>),
    OptMap(Box<[Op; 2]>, bool),
}

#[derive(Debug)]
struct Fold {
    range: Op,
    /// Whether each step has two variables: index or key, and value.
    two: bool,
    step: Step,
}

/// What is done with each element.
#[derive(Debug)]
enum Step {
    All(Op),
    Exists(Op),
    One(Op),
    /// A condition, and what to make.
    List(Option<Op>, Op),
    Map(Option<Op>, Op, Op),
    Entries(Option<Op>, Op),
}
