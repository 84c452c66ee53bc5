//! Macros over lists and maps: `all`, `exists`, `exists_one`, `map`, `filter` and those that make maps.

use std::sync::Arc;

use super::operation::{Fold, Op, Step};
use crate::context::Outcome;
use crate::context::{Context, EvalError};
use crate::cost::{LIST, MAP, SELECT};
use crate::value::{self, Entries, Table, Text, Val};

impl<'a> Context<'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
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
