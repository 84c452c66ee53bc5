//! Compiled expressions and their evaluation.
//!
//! A program is a tree of operations whose names, functions and constants are resolved. Evaluation walks it,
//! counts what it costs in upstream's units before each operation is done, and ends with
//! [`EvalError::CostLimit`] when the limit is passed. Work that upstream undercounts (comparing whole objects
//! costs 1 there) is charged in addition, `WORK_PER_UNIT` nodes as one unit, so that time and memory are
//! bounded for any expression and data.
//!
//! | module | subject |
//! |---|---|
//! | `compile` | compilation of the checked syntax tree to operations |
//! | `cost` | what a call costs |
//! | `evaluate` | the operations, and macros over lists and maps |
//! | `operation` | what an operation is |

mod compile;
mod cost;
mod evaluate;
mod operation;

pub(crate) use self::compile::CompileError;

use self::compile::compile;
use self::operation::Op;
use super::check::check;
use super::context::{Context, EvalError, Source};
use super::estimate::estimate;
use super::message::MessageTypes;
use super::parse::{describe, parse, Macros};
use super::types::{DeclType, Type};
use super::value::Val;

/// A compiled expression. Immutable; shared by all threads.
#[derive(Debug)]
pub(crate) struct Program {
    root: Op,
    output: Type,
    estimated_cost: u64,
    /// Which variables it reads.
    used: Vec<bool>,
}

impl Program {
    /// Compiles an expression over variables of these names and types; sizes are looked up in `root`, the
    /// declaration of the data.
    pub(crate) fn compile(
        source: &str,
        variables: &[(&str, Type)],
        root: Option<&DeclType>,
    ) -> Result<Program, CompileError> {
        Program::compile_with(source, variables, root, MessageTypes::None, Macros::Standard)
    }

    /// As [`Program::compile`], for expressions that can construct messages or have more macros.
    pub(crate) fn compile_with(
        source: &str,
        variables: &[(&str, Type)],
        root: Option<&DeclType>,
        messages: MessageTypes,
        macros: Macros,
    ) -> Result<Program, CompileError> {
        let errors = |issues: Vec<_>| CompileError::Compilation(describe(source, &issues));
        let tree = parse(source, macros).map_err(errors)?;
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

    /// The maximum cost of an evaluation, as estimated from the schema.
    pub(crate) fn estimated_cost(&self) -> u64 {
        self.estimated_cost
    }

    /// Whether the expression reads the variable of this index.
    pub(crate) fn uses(&self, variable: usize) -> bool {
        self.used.get(variable).copied().unwrap_or(false)
    }

    /// Evaluates. The second result is its cost, at most a little more than `limit`.
    pub(crate) fn evaluate<'a>(
        &'a self,
        variables: &'a [Option<Val<'a>>],
        limit: u64,
    ) -> (Result<Val<'a>, EvalError>, u64) {
        self.run(Source::Values(variables), limit, limit)
    }

    /// As [`Program::evaluate`], with variables that may be expressions themselves. Where `limit` is less
    /// than `full`, an evaluation that costs more ends with [`EvalError::Long`]; authorization checks are not
    /// counted then.
    pub(crate) fn run<'a>(
        &'a self,
        source: Source<'a>,
        limit: u64,
        full: u64,
    ) -> (Result<Val<'a>, EvalError>, u64) {
        let mut context = Context::new(source, limit, full);
        let outcome = context.eval(&self.root);
        // An error may hide that the limit was passed: `true || x` continues after one.
        let outcome = if context.exhausted() { Err(context.over()) } else { outcome };
        (outcome, context.spent())
    }
}
