//! Formats of names and values (k8s.io/apiserver `pkg/cel/library/format.go`): the functions.

use crate::context::{Context, EvalError, Outcome};
use crate::opaque::{NamedFormat, OpaqueValue};
use crate::value::Val;

pub(super) fn get<'a>(name: &'static str) -> Outcome<'a> {
    let format = NamedFormat::find(name).ok_or(EvalError::NoSuchOverload)?;
    Ok(Val::opaque(OpaqueValue::Format(format)))
}

pub(super) fn named<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::String(name)] => {
            Ok(Val::optional(NamedFormat::find(name.as_str()).map(|f| Val::opaque(OpaqueValue::Format(f)))))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn validate<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [format, Val::String(text)] = args else { return Err(EvalError::NoSuchOverload) };
    let Some(OpaqueValue::Format(format)) = format.as_opaque() else { return Err(EvalError::NoSuchOverload) };
    let errors = (format.errors)(text.as_str());
    match errors.is_empty() {
        true => Ok(Val::Optional(None)),
        false => Ok(Val::optional(Some(Val::list(errors.into_iter().map(Val::text).collect())))),
    }
}
