//! What several functions read of their arguments.

use crate::context::EvalError;
use crate::value::Val;

/// The single argument, a text.
pub(super) fn text<'v>(args: &'v [Val<'_>]) -> Result<&'v str, EvalError> {
    match args {
        [Val::String(s)] => Ok(s.as_str()),
        _ => Err(EvalError::NoSuchOverload),
    }
}
