//! Quantities, and comparisons that they share with versions (k8s.io/apiserver
//! `pkg/cel/library/quantity.go`).

use std::cmp::Ordering;

use plinth_codec::quantity::Quantity;

use super::arguments::text;
use crate::context::{Context, EvalError, Outcome};
use crate::opaque::OpaqueValue;
use crate::value::Val;

fn of<'v>(value: Option<&'v Val<'_>>) -> Result<&'v Quantity, EvalError> {
    match value.and_then(|v| v.as_opaque()) {
        Some(OpaqueValue::Quantity(quantity)) => Ok(quantity),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn quantity<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let quantity = Quantity::parse(text(args)?).map_err(|e| EvalError::Other(e.to_string().into()))?;
    Ok(Val::opaque(OpaqueValue::Quantity(quantity)))
}

pub(super) fn is_quantity<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(Quantity::parse(text(args)?).is_ok()))
}

pub(super) fn sign<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Int(i64::from(of(args.first())?.sign())))
}

pub(super) fn is_integer<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(of(args.first())?.as_int().is_some()))
}

pub(super) fn as_integer<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let n = of(args.first())?.as_int();
    n.map(Val::Int).ok_or_else(|| EvalError::other("cannot convert value to integer"))
}

pub(super) fn as_float<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Double(of(args.first())?.to_f64()))
}

fn operand(value: Option<&Val<'_>>) -> Result<Quantity, EvalError> {
    match value {
        Some(Val::Int(n)) => Ok(Quantity::of_int(*n)),
        value => of(value).copied(),
    }
}

fn made<'a>(quantity: Quantity) -> Outcome<'a> {
    Ok(Val::opaque(OpaqueValue::Quantity(quantity)))
}

pub(super) fn add<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    made(of(args.first())?.plus(operand(args.get(1))?))
}

pub(super) fn sub<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    made(of(args.first())?.minus(operand(args.get(1))?))
}

fn order(args: &[Val<'_>]) -> Result<Ordering, EvalError> {
    match (args.first().and_then(|v| v.as_opaque()), args.get(1).and_then(|v| v.as_opaque())) {
        (Some(OpaqueValue::Quantity(a)), Some(OpaqueValue::Quantity(b))) => Ok(a.cmp(b)),
        (Some(OpaqueValue::Version(a)), Some(OpaqueValue::Version(b))) => Ok(a.compare(b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn is_greater<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(order(args)?.is_gt()))
}

pub(super) fn is_less<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(order(args)?.is_lt()))
}

pub(super) fn compare_to<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Int(order(args)? as i64))
}
