//! Compiled expressions and their evaluation.
//!
//! A program is a tree of operations whose names, functions and constants are resolved. Evaluation walks it, counts
//! what it costs in upstream's units before each operation is done, and ends with [`EvalError::CostLimit`] when the
//! limit is passed. Work that upstream counts too low (comparing whole objects costs 1 there) is counted
//! beside, [`WORK_PER_UNIT`] parts as one unit, so that time and memory are bounded whatever the expression and data.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display};
use std::sync::Arc;

use regex::Regex;
use smol_str::SmolStr;

use super::ast::{Comprehension, Expr, Kind, Literal};
use super::check::{check, Checked, Name};
use super::cost::{Cost, LIST, MAP, SELECT, STRUCT};
use super::declare::Declared;
use super::estimate::estimate;
use super::expression::Activation;
use super::library::authz::{Answer, Question};
use super::library::Function;
use super::limits::PER_CALL_LIMIT;
use super::message::{Message, Messages};
use super::parse::{describe, parse};
use super::types::Type;
use super::value::{self, Entries, Key, List, Table, Text, Val};
use crate::regexp;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvalError {
    /// It costs more than it may.
    CostLimit,
    /// A function does not take these arguments.
    NoSuchOverload,
    /// A field, entry or variable that is not there.
    NoSuchKey(SmolStr),
    /// A number out of range.
    Overflow(&'static str),
    /// In a function's own words.
    Other(Box<str>),
    /// It hangs on an answer of the authorizers that nobody has given yet.
    Unanswered(Box<Question>),
}

impl EvalError {
    pub(crate) fn is_no_such_overload(&self) -> bool {
        matches!(self, EvalError::NoSuchOverload)
    }

    /// Whether the evaluation ends, whatever an operator would make of a fault.
    fn ends_evaluation(&self) -> bool {
        matches!(self, EvalError::CostLimit | EvalError::Unanswered(_))
    }
}

impl Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
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
pub(crate) enum Fault {
    /// Of syntax or types: the text of all faults, each with its place.
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
        root: Option<&Declared>,
    ) -> Result<Program, Fault> {
        Program::compile_with(source, variables, root, Messages::None)
    }

    /// As [`Program::compile`], for expressions that can make objects by name.
    pub(crate) fn compile_with(
        source: &str,
        variables: &[(&str, Type)],
        root: Option<&Declared>,
        messages: Messages,
    ) -> Result<Program, Fault> {
        let faults = |issues: Vec<_>| Fault::Compilation(describe(source, &issues));
        let tree = parse(source).map_err(faults)?;
        let checked = check(&tree, variables, messages).map_err(faults)?;
        let estimated_cost = estimate(&tree.root, &checked, root);
        let mut compiler = Compiler { checked: &checked, used: vec![false; variables.len()], fault: None };
        let op = compiler.op(&tree.root);
        if let Some(fault) = compiler.fault {
            return Err(Fault::Instantiation(fault));
        }
        let output = checked.types[tree.root.id].clone();
        Ok(Program { root: op, output, estimated_cost, used: compiler.used })
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
        self.run(Source::Values(variables), limit)
    }

    /// As [`Program::evaluate`], with variables that may be expressions themselves.
    pub(crate) fn run<'a>(&'a self, source: Source<'a>, limit: u64) -> (Result<Val<'a>, EvalError>, u64) {
        let mut context = Context::new(source, limit);
        let outcome = context.eval(&self.root);
        // A fault may hide that the limit was passed: `true || x` goes on after one.
        let outcome = if context.exhausted() { Err(EvalError::CostLimit) } else { outcome };
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

struct Compiler<'c> {
    checked: &'c Checked,
    used: Vec<bool>,
    /// The first fault of what is evaluated beforehand.
    fault: Option<String>,
}

/// Conversions, which are done beforehand when the argument is a literal.
const CONVERSIONS: [&str; 8] = ["bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"];

impl Compiler<'_> {
    fn boxed(&mut self, expr: &Expr) -> Box<Op> {
        Box::new(self.op(expr))
    }

    fn ops(&mut self, exprs: &[Expr]) -> Vec<Op> {
        exprs.iter().map(|e| self.op(e)).collect()
    }

    fn op(&mut self, expr: &Expr) -> Op {
        crate::value::level(|| self.op_here(expr))
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
                Err(why) => drop(self.fault.get_or_insert(why.to_string())),
            }
        }
        if let (true, [Op::Const(value)]) = (CONVERSIONS.contains(&function.name), args.as_slice()) {
            let mut context = Context::new(Source::Values(&[]), PER_CALL_LIMIT);
            match (function.call)(&mut context, std::slice::from_ref(value)) {
                Ok(value) => return Op::Const(value),
                Err(why) => drop(self.fault.get_or_insert(why.to_string())),
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

    /// Macros make folds of a few forms only; each is recognised by what its steps call.
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
        Literal::String(s) => Val::String(Text::Made(s.clone())),
        Literal::Bytes(b) => Val::Bytes(b.as_slice().into()),
    }
}

/// Parts that are looked at or made, in one unit of cost.
const WORK_PER_UNIT: u64 = 20;
/// Bytes of text that are copied, in one unit of cost.
const BYTES_PER_UNIT: u64 = 20;
/// What it costs to compile a regular expression that is no literal, besides its length.
const REGEX_COMPILE: u64 = 200;
/// How many compiled regular expressions an evaluation keeps.
const REGEXES: usize = 16;

/// Where an evaluation finds the values of its variables.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// By number; absent ones are faults.
    Values(&'a [Option<Val<'a>>]),
    /// Values and expressions, and what the authorizers answered.
    Activation(&'a Activation<'a>),
}

impl<'a> Source<'a> {
    fn value(&self, variable: usize) -> Result<Option<Val<'a>>, EvalError> {
        match self {
            Source::Values(values) => Ok(values.get(variable).cloned().flatten()),
            Source::Activation(activation) => activation.value(variable),
        }
    }
}

/// The state of one evaluation.
pub(crate) struct Context<'a> {
    source: Source<'a>,
    /// The variables of comprehensions.
    stack: Vec<Val<'a>>,
    cost: u64,
    work: u64,
    limit: u64,
    regexes: HashMap<SmolStr, Regex>,
}

type Outcome<'a> = Result<Val<'a>, EvalError>;

impl<'a> Context<'a> {
    fn new(source: Source<'a>, limit: u64) -> Context<'a> {
        Context { source, stack: Vec::new(), cost: 0, work: 0, limit, regexes: HashMap::new() }
    }

    fn spent(&self) -> u64 {
        self.cost.saturating_add(self.work / WORK_PER_UNIT)
    }

    fn exhausted(&self) -> bool {
        self.spent() > self.limit
    }

    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        match self.exhausted() {
            true => Err(EvalError::CostLimit),
            false => Ok(()),
        }
    }

    /// Counts parts that are looked at or made beyond what the cost says.
    pub(crate) fn work(&mut self, parts: u64) -> Result<(), EvalError> {
        self.work = self.work.saturating_add(parts);
        self.charge(0)
    }

    /// Counts text that is made.
    pub(crate) fn text(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.work((bytes as u64).saturating_mul(WORK_PER_UNIT) / BYTES_PER_UNIT)
    }

    /// Runs a walk that counts what it visits.
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

    /// Uses up what is left: something would take more than any evaluation may.
    pub(crate) fn too_costly(&mut self) -> EvalError {
        self.cost = u64::MAX;
        EvalError::CostLimit
    }

    /// Whether the values are equal.
    pub(crate) fn equal(&mut self, a: &Val<'a>, b: &Val<'a>) -> Result<bool, EvalError> {
        self.counting(|visited, limit| a.equals(b, visited, limit))
    }

    /// Whether the list has an equal element.
    pub(crate) fn contains(&mut self, list: &List<'a>, value: &Val<'a>) -> Result<bool, EvalError> {
        self.counting(|visited, limit| value::contains(list, value, visited, limit))
    }

    /// Puts an entry into a map; each key once.
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

    /// What the authorizers say.
    pub(crate) fn answer(&self, question: Question) -> Result<Arc<Answer>, EvalError> {
        let known = match self.source {
            Source::Values(_) => None,
            Source::Activation(activation) => activation.known(&question),
        };
        known.ok_or_else(|| EvalError::Unanswered(Box::new(question)))
    }

    fn eval(&mut self, op: &'a Op) -> Outcome<'a> {
        crate::value::level(|| self.eval_here(op))
    }

    fn eval_here(&mut self, op: &'a Op) -> Outcome<'a> {
        match op {
            Op::Const(value) => Ok(value.clone()),
            Op::Variable(i, name) => {
                self.charge(SELECT)?;
                match self.source.value(*i)? {
                    Some(value) => Ok(value),
                    None => Err(EvalError::Other(format!("no such attribute(s): {name}").into())),
                }
            }
            Op::Local(i) => {
                self.charge(SELECT)?;
                self.stack.get(*i).cloned().ok_or(EvalError::NoSuchOverload)
            }
            Op::Select(operand, field) => {
                let value = self.eval(operand)?;
                self.charge(SELECT)?;
                if let Val::Optional(inner) = &value {
                    let inner = inner.as_deref().map_or(Ok(None), |v| field_of(v, field))?;
                    return Ok(Val::optional(inner));
                }
                field_of(&value, field)?.ok_or_else(|| EvalError::NoSuchKey(field.clone()))
            }
            Op::Has(operand, field) => {
                let value = self.eval(operand)?;
                let present = match &value {
                    Val::Optional(None) => false,
                    Val::Optional(Some(inner)) => field_of(inner, field)?.is_some(),
                    value => field_of(value, field)?.is_some(),
                };
                Ok(Val::Bool(present))
            }
            Op::Present(i, name) => match self.source.value(*i)? {
                Some(_) => Ok(Val::Bool(true)),
                None => Err(EvalError::Other(format!("no such attribute(s): {name}").into())),
            },
            Op::OptionalSelect(operand, field) => {
                let value = self.eval(operand)?;
                self.charge(SELECT)?;
                Ok(Val::optional(match &value {
                    Val::Optional(None) => None,
                    Val::Optional(Some(inner)) => field_of(inner, field)?,
                    value => field_of(value, field)?,
                }))
            }
            Op::And(both) => self.logical(both, false),
            Op::Or(both) => self.logical(both, true),
            Op::Conditional(ops) => {
                let [condition, yes, no] = &**ops;
                match self.eval(condition)? {
                    Val::Bool(true) => self.eval(yes),
                    Val::Bool(false) => self.eval(no),
                    _ => Err(EvalError::NoSuchOverload),
                }
            }
            Op::OrElse(ops, unwrap) => {
                let [first, second] = &**ops;
                let value = self.eval(first)?;
                self.charge(1)?;
                match value {
                    Val::Optional(Some(value)) if *unwrap => Ok(Val::clone(&value)),
                    value @ Val::Optional(Some(_)) => Ok(value),
                    Val::Optional(None) => self.eval(second),
                    _ => Err(EvalError::NoSuchOverload),
                }
            }
            Op::Call(function, ops) => self.call(function, ops),
            Op::Regex(function, ops, regex) => {
                if let Some(Op::Const(Val::String(pattern))) = ops.get(1) {
                    if !self.regexes.contains_key(pattern.as_str()) && self.regexes.len() < REGEXES {
                        self.regexes.insert(SmolStr::new(pattern.as_str()), regex.clone());
                    }
                }
                self.call(function, ops)
            }
            Op::List(elements) => {
                self.charge(LIST)?;
                self.work(elements.len() as u64)?;
                let mut values = Vec::with_capacity(elements.len());
                for (element, optional) in elements {
                    let value = self.eval(element)?;
                    match value {
                        value if !optional => values.push(value),
                        Val::Optional(Some(value)) => values.push(Val::clone(&value)),
                        Val::Optional(None) => {}
                        _ => return Err(EvalError::NoSuchOverload),
                    }
                }
                Ok(Val::list(values))
            }
            Op::Map(entries) => {
                self.charge(MAP)?;
                self.work(entries.len() as u64)?;
                let mut map = Entries::new();
                for (key, value, optional) in entries {
                    let key = self.eval(key)?;
                    let value = match self.eval(value)? {
                        value if !optional => value,
                        Val::Optional(Some(value)) => Val::clone(&value),
                        Val::Optional(None) => continue,
                        _ => return Err(EvalError::NoSuchOverload),
                    };
                    let index = key.to_key().ok_or(EvalError::NoSuchOverload)?;
                    // Of equal keys the last one wins.
                    map.insert(index, (key, value));
                }
                Ok(Val::Map(Table::Made(Arc::new(map))))
            }
            Op::Message(name, inits) => {
                self.charge(STRUCT)?;
                self.work(inits.len() as u64)?;
                let mut fields = BTreeMap::new();
                for (field, value, optional) in inits {
                    let value = match self.eval(value)? {
                        value if !optional => value,
                        Val::Optional(Some(value)) => Val::clone(&value),
                        Val::Optional(None) => continue,
                        _ => return Err(EvalError::NoSuchOverload),
                    };
                    // Of equal fields the last one wins.
                    fields.insert(field.clone(), value);
                }
                Ok(Val::Message(Arc::new(Message::new(name.clone(), fields)?)))
            }
            Op::Fold(fold) => self.fold(fold),
            Op::Bind(ops) => {
                let [value, body] = &**ops;
                let value = self.eval(value)?;
                self.charge(LIST)?;
                self.scoped(value, body)
            }
            Op::OptMap(ops, flat) => {
                let [target, body] = &**ops;
                let target = self.eval(target)?;
                self.charge(1)?;
                match target {
                    Val::Optional(None) => Ok(Val::Optional(None)),
                    Val::Optional(Some(value)) => {
                        self.charge(LIST + 1)?;
                        let value = self.scoped(Val::clone(&value), body)?;
                        Ok(if *flat { value } else { Val::optional(Some(value)) })
                    }
                    _ => Err(EvalError::NoSuchOverload),
                }
            }
        }
    }

    /// Evaluates with one more variable.
    fn scoped(&mut self, value: Val<'a>, body: &'a Op) -> Outcome<'a> {
        self.stack.push(value);
        let outcome = self.eval(body);
        self.stack.pop();
        outcome
    }

    /// `&&` and `||`: a decisive side counts even if the other has no value.
    fn logical(&mut self, both: &'a [Op; 2], decisive: bool) -> Outcome<'a> {
        let [left, right] = both;
        let left = match self.eval(left) {
            Ok(Val::Bool(b)) if b == decisive => return Ok(Val::Bool(decisive)),
            Err(e) if e.ends_evaluation() => return Err(e),
            left => left,
        };
        match (left, self.eval(right)) {
            (_, Ok(Val::Bool(b))) if b == decisive => Ok(Val::Bool(decisive)),
            (_, Err(e)) if e.ends_evaluation() => Err(e),
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decisive)),
            (Err(e), _) | (_, Err(e)) => Err(e),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn call(&mut self, function: &'static Function, ops: &'a [Op]) -> Outcome<'a> {
        // Nearly all functions have one or two arguments: those need no allocation.
        match ops {
            [a] => {
                let args = [self.eval(a)?];
                self.apply(function, &args)
            }
            [a, b] => {
                let args = [self.eval(a)?, self.eval(b)?];
                self.apply(function, &args)
            }
            ops => {
                let args = ops.iter().map(|op| self.eval(op)).collect::<Result<Vec<_>, _>>()?;
                self.apply(function, &args)
            }
        }
    }

    fn apply(&mut self, function: &'static Function, args: &[Val<'a>]) -> Outcome<'a> {
        self.charge(function.cost.of_call(args))?;
        (function.call)(self, args)
    }

    fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let range = self.eval(&fold.range)?;
        let base = self.stack.len();
        let outcome = self.fold_over(fold, &range, base);
        self.stack.truncate(base);
        outcome
    }

    fn fold_over(&mut self, fold: &'a Fold, range: &Val<'a>, base: usize) -> Outcome<'a> {
        // The place of the result so far, which no expression names.
        self.stack.push(Val::Null);
        let mut state = State::new(&fold.step);
        match &fold.step {
            Step::List(..) => self.charge(LIST)?,
            Step::Map(..) | Step::Entries(..) => self.charge(MAP)?,
            _ => {}
        }
        let mut step = |context: &mut Context<'a>, first: Val<'a>, second: Val<'a>| {
            context.stack.truncate(base + 1);
            match (fold.two, range) {
                (true, _) => {
                    context.stack.push(first);
                    context.stack.push(second);
                }
                (false, Val::List(_)) => context.stack.push(second),
                (false, _) => context.stack.push(first),
            }
            state.step(context, &fold.step)
        };
        match range {
            Val::List(list) => {
                for (i, value) in list.iter().enumerate() {
                    if step(self, Val::Int(i as i64), value)? {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                for (key, value) in map.iter() {
                    if step(self, key, value)? {
                        break;
                    }
                }
            }
            Val::Object(members, declared) => {
                for (name, value) in members.iter() {
                    let key = Val::String(Text::Data(name));
                    if step(self, key, value::member(value, declared, name))? {
                        break;
                    }
                }
            }
            _ => return Err(EvalError::NoSuchOverload),
        }
        self.charge(SELECT)?;
        state.finish()
    }
}

/// A field or entry; `None` when it is not there.
fn field_of<'a>(value: &Val<'a>, field: &SmolStr) -> Result<Option<Val<'a>>, EvalError> {
    match value {
        Val::Object(members, declared) => {
            Ok(declared.field(field).and_then(|f| members.get(&f.name).map(|v| Val::of_data(v, &f.declared))))
        }
        Val::Map(table) => Ok(table.get_text(field)),
        Val::Message(message) => Ok(message.fields.get(field).cloned()),
        Val::List(_) => Err(EvalError::NoSuchOverload),
        // Nothing has no fields, and so have numbers and texts where the type was not known before.
        _ => Ok(None),
    }
}

/// The result of a fold so far.
enum State<'a> {
    /// The answer, and the first fault, which counts unless an element decides.
    Logical {
        decisive: bool,
        decided: bool,
        fault: Option<EvalError>,
    },
    Count(u64),
    List(Vec<Val<'a>>),
    Map(Entries<'a>),
}

impl<'a> State<'a> {
    fn new(step: &Step) -> State<'a> {
        let logical = |decisive| State::Logical { decisive, decided: false, fault: None };
        match step {
            Step::All(_) => logical(false),
            Step::Exists(_) => logical(true),
            Step::One(_) => State::Count(0),
            Step::List(..) => State::List(Vec::new()),
            Step::Map(..) | Step::Entries(..) => State::Map(Entries::new()),
        }
    }

    /// One element. True ends the fold.
    fn step(&mut self, context: &mut Context<'a>, step: &'a Step) -> Result<bool, EvalError> {
        match (self, step) {
            (State::Logical { decisive, decided, fault }, Step::All(predicate) | Step::Exists(predicate)) => {
                // The condition of the loop, and the result so far in it and in the step.
                context.charge(if *decisive { 4 } else { 3 })?;
                match context.eval(predicate) {
                    Ok(Val::Bool(b)) => *decided = b == *decisive,
                    Ok(_) => drop(fault.get_or_insert(EvalError::NoSuchOverload)),
                    Err(e) if e.ends_evaluation() => return Err(e),
                    Err(e) => drop(fault.get_or_insert(e)),
                }
                return Ok(*decided);
            }
            (State::Count(count), Step::One(predicate)) => {
                if context.holds(predicate)? {
                    *count += 1;
                    context.charge(1)?;
                }
                context.charge(SELECT)?;
            }
            (State::List(list), Step::List(condition, make)) => {
                if context.passes(condition)? {
                    context.charge(SELECT + LIST + 1)?;
                    let value = context.eval(make)?;
                    list.push(value);
                }
            }
            (State::Map(map), Step::Map(condition, key, make)) => {
                if context.passes(condition)? {
                    context.charge(SELECT + 1)?;
                    let key = context.eval(key)?;
                    let value = context.eval(make)?;
                    context.insert(map, key, value)?;
                }
            }
            (State::Map(map), Step::Entries(condition, make)) => {
                if context.passes(condition)? {
                    context.charge(SELECT + 1)?;
                    let Val::Map(entries) = context.eval(make)? else {
                        return Err(EvalError::NoSuchOverload);
                    };
                    context.work(entries.len() as u64)?;
                    for (key, value) in entries.iter() {
                        context.insert(map, key, value)?;
                    }
                }
            }
            _ => return Err(EvalError::NoSuchOverload),
        }
        Ok(false)
    }

    fn finish(self) -> Outcome<'a> {
        match self {
            State::Logical { decisive, decided: true, .. } => Ok(Val::Bool(decisive)),
            State::Logical { fault: Some(fault), .. } => Err(fault),
            State::Logical { decisive, .. } => Ok(Val::Bool(!decisive)),
            State::Count(count) => Ok(Val::Bool(count == 1)),
            State::List(list) => Ok(Val::list(list)),
            State::Map(map) => Ok(Val::Map(Table::Made(Arc::new(map)))),
        }
    }
}

impl<'a> Context<'a> {
    fn holds(&mut self, predicate: &'a Op) -> Result<bool, EvalError> {
        match self.eval(predicate)? {
            Val::Bool(b) => Ok(b),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn passes(&mut self, condition: &'a Option<Op>) -> Result<bool, EvalError> {
        match condition {
            Some(condition) => self.holds(condition),
            None => {
                self.charge(0)?;
                Ok(true)
            }
        }
    }
}
