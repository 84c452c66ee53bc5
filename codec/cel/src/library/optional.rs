//! Optional values (cel-go `cel/library.go`, version 2).

use crate::context::{Context, EvalError, Outcome};
use crate::value::Val;

pub(super) fn of<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [value] => Ok(Val::optional(Some(value.clone()))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn of_non_zero<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let zero = match args.first() {
        None => return Err(EvalError::NoSuchOverload),
        Some(value) => match value {
            Val::Null => true,
            Val::Bool(b) => !b,
            Val::Int(n) => *n == 0,
            Val::Uint(n) => *n == 0,
            Val::Double(n) => *n == 0.0,
            Val::String(s) => s.as_str().is_empty(),
            Val::Bytes(b) => b.is_empty(),
            Val::Duration(n) => *n == 0,
            Val::List(list) => list.len() == 0,
            Val::Map(map) => map.len() == 0,
            Val::Object(members, _) => members.is_empty(),
            Val::Message(message) => message.fields.is_empty(),
            Val::Optional(inner) => inner.is_none(),
            Val::Timestamp(_) | Val::Type(_) | Val::Opaque(_) => false,
        },
    };
    match zero {
        true => Ok(Val::Optional(None)),
        false => of(context, args),
    }
}

pub(super) fn none<'a>(_: &mut Context<'a>, _: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Optional(None))
}

pub(super) fn value<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Optional(Some(value))] => Ok(Val::clone(value)),
        [Val::Optional(None)] => Err(EvalError::other("optional.none() dereference")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn has_value<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Optional(value)] => Ok(Val::Bool(value.is_some())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn first<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::List(list)] => Ok(Val::optional(list.get(0))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn last<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::List(list)] => Ok(Val::optional(list.len().checked_sub(1).and_then(|i| list.get(i)))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn unwrap<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::List(list)] = args else { return Err(EvalError::NoSuchOverload) };
    context.work(list.len() as u64)?;
    let mut values = Vec::new();
    for element in list.iter() {
        match element {
            Val::Optional(Some(value)) => values.push(Val::clone(&value)),
            Val::Optional(None) => {}
            _ => return Err(EvalError::other("value is not optional")),
        }
    }
    Ok(Val::list(values))
}
