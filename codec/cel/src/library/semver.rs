//! Semantic versions (k8s.io/apiserver `pkg/cel/library/semverlib.go`).

use crate::context::{Context, EvalError, Outcome};
use crate::opaque::{OpaqueValue, Version};
use crate::value::Val;

fn parse(args: &[Val<'_>]) -> Result<Result<Version, String>, EvalError> {
    match args {
        [Val::String(s)] | [Val::String(s), Val::Bool(false)] => Ok(Version::parse(s.as_str())),
        [Val::String(s), Val::Bool(true)] => Ok(Version::parse_tolerant(s.as_str())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn semver<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let version = parse(args)?.map_err(EvalError::other)?;
    Ok(Val::opaque(OpaqueValue::Version(version)))
}

pub(super) fn is_semver<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(parse(args)?.is_ok()))
}

fn part<'a>(args: &[Val<'a>], index: usize) -> Outcome<'a> {
    match args.first().and_then(|v| v.as_opaque()) {
        // Upstream's conversion wraps around; no version in use has such numbers.
        Some(OpaqueValue::Version(version)) => Ok(Val::Int(version.numbers[index] as i64)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn major<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    part(args, 0)
}

pub(super) fn minor<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    part(args, 1)
}

pub(super) fn patch<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    part(args, 2)
}
