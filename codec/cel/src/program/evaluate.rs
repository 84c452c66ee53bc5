//! The operations, and macros over lists and maps: `all`, `exists`, `exists_one`, `map`, `filter` and those
//! that make maps. They evaluate each other, so they stand together.

use std::collections::BTreeMap;
use std::sync::Arc;

use smol_str::SmolStr;

use super::operation::{Fold, Op, Step};
use crate::context::{Context, EvalError, Outcome};
use crate::cost::{Cost, LIST, MAP, SELECT, STRUCT};
use crate::library::Function;
use crate::value::{self, Entries, Message, Table, Text, Val};

impl<'a> Context<'a> {
    pub(super) fn eval(&mut self, op: &'a Op) -> Outcome<'a> {
        plinth_codec::value::level(|| self.eval_here(op))
    }

    fn eval_here(&mut self, op: &'a Op) -> Outcome<'a> {
        match op {
            Op::Const(value) => Ok(value.clone()),
            Op::Variable(i, name) => {
                self.charge(SELECT)?;
                match self.source.value(*i)? {
                    Some(value) => Ok(value),
                    None => Err(EvalError::other(format!("no such attribute(s): {name}"))),
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
                None => Err(EvalError::other(format!("no such attribute(s): {name}"))),
            },
            Op::OptionalSelect(operand, field) => self.optional_select(operand, field),
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
            Op::OrElse(ops, unwrap) => self.or_else(ops, *unwrap),
            Op::Call(function, ops) => self.call(function, ops),
            Op::Regex(function, ops, regex) => {
                if let Some(Op::Const(Val::String(pattern))) = ops.get(1) {
                    self.keep(pattern.as_str(), regex);
                }
                self.call(function, ops)
            }
            Op::List(elements) => self.list(elements),
            Op::Map(entries) => self.map(entries),
            Op::Message(name, inits) => self.message(name, inits),
            Op::Fold(fold) => self.fold(fold),
            Op::Bind(ops) => {
                let [value, body] = &**ops;
                let value = self.eval(value)?;
                self.charge(LIST)?;
                self.scoped(value, body)
            }
            Op::OptMap(ops, flat) => self.opt_map(ops, *flat),
        }
    }

    /// `operand.?field`.
    fn optional_select(&mut self, operand: &'a Op, field: &SmolStr) -> Outcome<'a> {
        let value = self.eval(operand)?;
        self.charge(SELECT)?;
        Ok(Val::optional(match &value {
            Val::Optional(None) => None,
            Val::Optional(Some(inner)) => field_of(inner, field)?,
            value => field_of(value, field)?,
        }))
    }

    /// `or`; `orValue` where it unwraps.
    fn or_else(&mut self, [first, second]: &'a [Op; 2], unwrap: bool) -> Outcome<'a> {
        let value = self.eval(first)?;
        self.charge(1)?;
        match value {
            Val::Optional(Some(value)) if unwrap => Ok(Val::clone(&value)),
            value @ Val::Optional(Some(_)) => Ok(value),
            Val::Optional(None) => self.eval(second),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    /// `optMap`; `optFlatMap` where it is flat.
    fn opt_map(&mut self, [target, body]: &'a [Op; 2], flat: bool) -> Outcome<'a> {
        let target = self.eval(target)?;
        self.charge(1)?;
        match target {
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(value)) => {
                self.charge(LIST + 1)?;
                let value = self.scoped(Val::clone(&value), body)?;
                Ok(if flat { value } else { Val::optional(Some(value)) })
            }
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn list(&mut self, elements: &'a [(Op, bool)]) -> Outcome<'a> {
        self.charge(LIST)?;
        self.work(elements.len() as u64)?;
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            values.extend(self.part(element, *optional)?);
        }
        Ok(Val::list(values))
    }

    fn map(&mut self, entries: &'a [(Op, Op, bool)]) -> Outcome<'a> {
        self.charge(MAP)?;
        self.work(entries.len() as u64)?;
        let mut map = Entries::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let Some(value) = self.part(value, *optional)? else { continue };
            let index = key.to_key().ok_or(EvalError::NoSuchOverload)?;
            // Of equal keys the last one wins.
            map.insert(index, (key, value));
        }
        Ok(Val::Map(Table::Computed(Arc::new(map))))
    }

    fn message(&mut self, name: &SmolStr, inits: &'a [(SmolStr, Op, bool)]) -> Outcome<'a> {
        self.charge(STRUCT)?;
        self.work(inits.len() as u64)?;
        let mut fields = BTreeMap::new();
        for (field, value, optional) in inits {
            let Some(value) = self.part(value, *optional)? else { continue };
            // Of equal fields the last one wins.
            fields.insert(field.clone(), value);
        }
        Ok(Val::Message(Arc::new(Message::new(name.clone(), fields)?)))
    }

    /// An element of a literal; an optional one (`?key: value`) may be absent.
    fn part(&mut self, op: &'a Op, optional: bool) -> Result<Option<Val<'a>>, EvalError> {
        match self.eval(op)? {
            value if !optional => Ok(Some(value)),
            Val::Optional(Some(value)) => Ok(Some(Val::clone(&value))),
            Val::Optional(None) => Ok(None),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    /// Evaluates with one more local variable.
    fn scoped(&mut self, value: Val<'a>, body: &'a Op) -> Outcome<'a> {
        self.stack.push(value);
        let outcome = self.eval(body);
        self.stack.pop();
        outcome
    }

    /// `&&` and `||`: a decisive operand counts even if the other is an error.
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
        // Nearly all functions have one or two arguments, which need no allocation.
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
        let cost = function.cost.of_call(args);
        if function.cost == Cost::Check {
            self.make_room(cost);
        }
        self.charge(cost)?;
        (function.call)(self, args)
    }

    /// A macro over a list or a map.
    fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let range = self.eval(&fold.range)?;
        let base = self.stack.len();
        let outcome = self.fold_over(fold, &range, base);
        self.stack.truncate(base);
        outcome
    }

    fn fold_over(&mut self, fold: &'a Fold, range: &Val<'a>, base: usize) -> Outcome<'a> {
        // The slot of the accumulator, which no expression can refer to.
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

/// A field or entry; `None` when absent.
fn field_of<'a>(value: &Val<'a>, field: &SmolStr) -> Result<Option<Val<'a>>, EvalError> {
    match value {
        Val::Object(members, declared) => {
            Ok(declared.field(field).and_then(|f| members.get(&f.name).map(|v| Val::of_data(v, &f.declared))))
        }
        Val::Map(table) => Ok(table.get_text(field)),
        Val::Message(message) => Ok(message.fields.get(field).cloned()),
        Val::List(_) => Err(EvalError::NoSuchOverload),
        // Null has no fields, nor have numbers and strings whose type was not known at compilation.
        _ => Ok(None),
    }
}

/// The accumulator of a fold.
enum State<'a> {
    /// The result, and the first error, which counts unless an element is decisive.
    Logical {
        decisive: bool,
        decided: bool,
        error: Option<EvalError>,
    },
    Count(u64),
    List(Vec<Val<'a>>),
    Map(Entries<'a>),
}

impl<'a> State<'a> {
    fn new(step: &Step) -> State<'a> {
        let logical = |decisive| State::Logical { decisive, decided: false, error: None };
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
            (State::Logical { decisive, decided, error }, Step::All(predicate) | Step::Exists(predicate)) => {
                // The loop condition, and the accumulator in it and in the step.
                context.charge(if *decisive { 4 } else { 3 })?;
                match context.eval(predicate) {
                    Ok(Val::Bool(b)) => *decided = b == *decisive,
                    Ok(_) => drop(error.get_or_insert(EvalError::NoSuchOverload)),
                    Err(e) if e.ends_evaluation() => return Err(e),
                    Err(e) => drop(error.get_or_insert(e)),
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
            State::Logical { error: Some(error), .. } => Err(error),
            State::Logical { decisive, .. } => Ok(Val::Bool(!decisive)),
            State::Count(count) => Ok(Val::Bool(count == 1)),
            State::List(list) => Ok(Val::list(list)),
            State::Map(map) => Ok(Val::Map(Table::Computed(Arc::new(map)))),
        }
    }
}
