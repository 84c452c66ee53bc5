//! Compiles the checked syntax tree to operations: names and functions are resolved, constants and patterns
//! evaluated.

use plinth_codec::regexp;
use smol_str::SmolStr;

use super::operation::{Fold, Op, Step};
use crate::ast::{Comprehension, Expr, Kind, Literal};
use crate::check::{Checked, Name};
use crate::context::{Context, Source};
use crate::cost::Cost;
use crate::library::Function;
use crate::limits::PER_CALL_LIMIT;
use crate::value::{Text, Val};

/// A compilation error of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompileError {
    /// Syntax or type errors: the text of all of them, each with its position.
    Compilation(String),
    /// A constant part failed to evaluate.
    Instantiation(String),
}

/// The operations of an expression, and which of its variables it reads.
///
/// # Errors
/// [`CompileError`] when a constant part fails to evaluate.
pub(super) fn compile(
    root: &Expr,
    checked: &Checked,
    variables: usize,
) -> Result<(Op, Vec<bool>), CompileError> {
    let mut compiler = Compiler { checked, used: vec![false; variables], error: None };
    let op = compiler.op(root);
    match compiler.error {
        Some(error) => Err(CompileError::Instantiation(error)),
        None => Ok((op, compiler.used)),
    }
}

struct Compiler<'c> {
    checked: &'c Checked,
    used: Vec<bool>,
    /// The first error of a constant part.
    error: Option<String>,
}

/// Conversions, which are evaluated at compilation when the argument is a literal.
const CONVERSIONS: [&str; 8] = ["bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"];

impl Compiler<'_> {
    fn boxed(&mut self, expr: &Expr) -> Box<Op> {
        Box::new(self.op(expr))
    }

    fn ops(&mut self, exprs: &[Expr]) -> Vec<Op> {
        exprs.iter().map(|e| self.op(e)).collect()
    }

    fn op(&mut self, expr: &Expr) -> Op {
        plinth_codec::value::level(|| self.op_here(expr))
    }

    fn op_here(&mut self, expr: &Expr) -> Op {
        if let (Some(Name::Variable(i)), Kind::Select { field, test: true, .. }) =
            (&self.checked.names[expr.id], &expr.kind)
        {
            self.used[*i] = true;
            return Op::Present(*i, field.clone());
        }
        if let Some(name) = &self.checked.names[expr.id] {
            return match name {
                Name::Variable(i) => {
                    self.used[*i] = true;
                    Op::Variable(*i, SmolStr::from(expr.qualified_name().unwrap_or_default()))
                }
                Name::Local(i) => Op::Local(*i),
                Name::Type(name) => Op::Const(Val::Type(name.clone())),
            };
        }
        match &expr.kind {
            Kind::Literal(literal) => Op::Const(constant(literal)),
            Kind::Ident(name) => Op::Variable(usize::MAX, name.clone()),
            Kind::Struct(made) => {
                let fields = made.fields.iter();
                let fields = fields.map(|init| (init.field.clone(), self.op(&init.value), init.optional));
                Op::Message(made.name.clone(), fields.collect())
            }
            Kind::Select { operand, field, test: true } => Op::Has(self.boxed(operand), field.clone()),
            Kind::Select { operand, field, .. } => Op::Select(self.boxed(operand), field.clone()),
            Kind::Call(call) => {
                let Some(resolved) = &self.checked.calls[expr.id] else {
                    return Op::Variable(usize::MAX, call.function.clone());
                };
                let function = resolved.function;
                let mut args = Vec::with_capacity(call.args.len() + 1);
                if let Some(target) = call.target.as_deref().filter(|_| !resolved.namespaced) {
                    args.push(self.op(target));
                }
                args.extend(self.ops(&call.args));
                self.call(function, args, expr)
            }
            Kind::List(elements) => {
                let ops: Vec<(Op, bool)> = elements.iter().map(|e| (self.op(&e.value), e.optional)).collect();
                let constant = |(op, optional): &(Op, bool)| match op {
                    Op::Const(value) if !optional => Some(value.clone()),
                    _ => None,
                };
                match ops.iter().map(constant).collect::<Option<Vec<_>>>() {
                    Some(values) if !values.is_empty() => Op::Const(Val::list(values)),
                    _ => Op::List(ops.into()),
                }
            }
            Kind::Map(entries) => {
                Op::Map(entries.iter().map(|e| (self.op(&e.key), self.op(&e.value), e.optional)).collect())
            }
            Kind::Comprehension(c) => self.fold(c),
            Kind::Bind(bind) => Op::Bind(Box::new([self.op(&bind.value), self.op(&bind.body)])),
            Kind::OptMap(map) => Op::OptMap(Box::new([self.op(&map.target), self.op(&map.body)]), map.flat),
        }
    }

    fn call(&mut self, function: &'static Function, args: Vec<Op>, expr: &Expr) -> Op {
        let literal = match args.get(1) {
            Some(Op::Const(Val::String(pattern))) => Some(pattern.as_str()),
            _ => None,
        };
        if let (Cost::Matches | Cost::Find, Some(pattern)) = (function.cost, literal) {
            match regexp::compile(pattern) {
                Ok(regex) => return Op::Regex(function, args.into(), regex),
                Err(why) => drop(self.error.get_or_insert(why.to_string())),
            }
        }
        if let (true, [Op::Const(value)]) = (CONVERSIONS.contains(&function.name), args.as_slice()) {
            let mut context = Context::new(Source::Values(&[]), PER_CALL_LIMIT, PER_CALL_LIMIT);
            match (function.call)(&mut context, std::slice::from_ref(value)) {
                Ok(value) => return Op::Const(value),
                Err(why) => drop(self.error.get_or_insert(why.to_string())),
            }
        }
        let two = |args: Vec<Op>| <[Op; 2]>::try_from(args).map(Box::new);
        let rest = match function.name {
            "_&&_" => two(args).map(Op::And),
            "_||_" => two(args).map(Op::Or),
            "or" => two(args).map(|ops| Op::OrElse(ops, false)),
            "orValue" => two(args).map(|ops| Op::OrElse(ops, true)),
            "_?_:_" => <[Op; 3]>::try_from(args).map(|ops| Op::Conditional(Box::new(ops))),
            "_?._" => {
                let mut args = args.into_iter();
                return match (args.next(), args.next()) {
                    (Some(operand), Some(Op::Const(Val::String(field)))) => {
                        Op::OptionalSelect(Box::new(operand), SmolStr::new(field.as_str()))
                    }
                    _ => Op::Variable(usize::MAX, SmolStr::from(expr.qualified_name().unwrap_or_default())),
                };
            }
            _ => Err(args),
        };
        rest.unwrap_or_else(|args| Op::Call(function, args.into()))
    }

    /// Macros expand to a few forms of folds; each is recognized by the functions that its steps call.
    fn fold(&mut self, c: &Comprehension) -> Op {
        let range = self.op(&c.range);
        let (condition, step) = match &c.step.kind {
            Kind::Call(call) if call.function == "_?_:_" => (call.args.first(), call.args.get(1)),
            _ => (None, Some(&c.step)),
        };
        let args = match step.map(|s| &s.kind) {
            Some(Kind::Call(call)) => call.args.as_slice(),
            _ => &[],
        };
        let step = match (&c.init.kind, args) {
            (Kind::Literal(Literal::Bool(true)), [_, predicate]) => Step::All(self.op(predicate)),
            (Kind::Literal(Literal::Bool(false)), [_, predicate]) => Step::Exists(self.op(predicate)),
            (Kind::Literal(Literal::Int(_)), _) => match condition {
                Some(predicate) => Step::One(self.op(predicate)),
                None => Step::One(Op::Const(Val::Bool(false))),
            },
            (Kind::List(_), [_, made]) => {
                let condition = condition.map(|c| self.op(c));
                match &made.kind {
                    Kind::List(elements) => match elements.first() {
                        Some(element) => Step::List(condition, self.op(&element.value)),
                        None => Step::List(condition, Op::Const(Val::Null)),
                    },
                    _ => Step::List(condition, self.op(made)),
                }
            }
            (_, [_, key, value]) => {
                let condition = condition.map(|c| self.op(c));
                Step::Map(condition, self.op(key), self.op(value))
            }
            (_, [_, entries]) => {
                let condition = condition.map(|c| self.op(c));
                Step::Entries(condition, self.op(entries))
            }
            _ => Step::One(Op::Const(Val::Bool(false))),
        };
        Op::Fold(Box::new(Fold { range, two: c.var2.is_some(), step }))
    }
}

fn constant(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(b) => Val::Bool(*b),
        Literal::Int(n) => Val::Int(*n),
        Literal::Uint(n) => Val::Uint(*n),
        Literal::Double(n) => Val::Double(*n),
        Literal::String(s) => Val::String(Text::Computed(s.clone())),
        Literal::Bytes(b) => Val::Bytes(b.as_slice().into()),
    }
}
