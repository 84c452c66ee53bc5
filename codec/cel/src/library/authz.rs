//! The authorizer library (k8s.io/apiserver `pkg/cel/library/authz.go`): authorization checks that
//! expressions build, and their decisions. Evaluation never waits: a check without a decision ends it, and
//! the caller calls the authorizer and evaluates again.

use std::sync::Arc;

use plinth_codec::names;
use smol_str::SmolStr;

use crate::context::{Context, EvalError, Outcome};
use crate::opaque::{
    AuthorizationDecision, AuthorizationRequest, AuthorizationTarget, OpaqueValue, Principal,
    ResourceAttributes,
};
use crate::value::Val;

fn text(value: Option<&Val<'_>>) -> Result<SmolStr, EvalError> {
    value.and_then(|v| v.as_str()).map(SmolStr::new).ok_or(EvalError::NoSuchOverload)
}

fn principal(args: &[Val<'_>]) -> Result<Principal, EvalError> {
    match args.first().and_then(|v| v.as_opaque()) {
        Some(OpaqueValue::Authorizer(principal)) => Ok(principal.clone()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn path<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (principal, path) = (principal(args)?, text(args.get(1))?);
    match path.trim() {
        "" => Err(EvalError::other("path must not be empty")),
        _ => Ok(Val::opaque(OpaqueValue::PathCheck(principal, path))),
    }
}

pub(super) fn group<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::opaque(OpaqueValue::GroupCheck(principal(args)?, text(args.get(1))?)))
}

pub(super) fn service_account<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    principal(args)?;
    let (namespace, name) = (text(args.get(1))?, text(args.get(2))?);
    if !names::dns1123_subdomain_errors(&name).is_empty() {
        return Err(EvalError::other("Invalid service account name"));
    }
    if !names::dns1123_label_errors(&namespace).is_empty() {
        return Err(EvalError::other("Invalid service account namespace"));
    }
    Ok(Val::opaque(OpaqueValue::Authorizer(Principal::ServiceAccount { namespace, name })))
}

pub(super) fn resource<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let Some(OpaqueValue::GroupCheck(principal, group)) = args.first().and_then(|v| v.as_opaque()) else {
        return Err(EvalError::NoSuchOverload);
    };
    let resource = text(args.get(1))?;
    if resource.trim().is_empty() {
        return Err(EvalError::other("resource must not be empty"));
    }
    let question = ResourceAttributes { group: group.clone(), resource, ..ResourceAttributes::default() };
    Ok(Val::opaque(OpaqueValue::ResourceCheck(principal.clone(), question)))
}

/// Sets one attribute of a resource check.
pub(super) fn narrow<'a>(args: &[Val<'a>], part: fn(&mut ResourceAttributes) -> &mut SmolStr) -> Outcome<'a> {
    let Some(OpaqueValue::ResourceCheck(principal, question)) = args.first().and_then(|v| v.as_opaque())
    else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut question = question.clone();
    *part(&mut question) = text(args.get(1))?;
    Ok(Val::opaque(OpaqueValue::ResourceCheck(principal.clone(), question)))
}

pub(super) fn check<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let verb = text(args.get(1))?;
    let (principal, target) = match args.first().and_then(|v| v.as_opaque()) {
        Some(OpaqueValue::PathCheck(principal, path)) => {
            (principal.clone(), AuthorizationTarget::Path(path.clone()))
        }
        Some(OpaqueValue::ResourceCheck(principal, question)) => {
            (principal.clone(), AuthorizationTarget::Resource(question.clone()))
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    let answer = context.answer(AuthorizationRequest { principal, verb, target })?;
    Ok(Val::opaque(OpaqueValue::Decision(answer)))
}

fn decision<'v>(args: &'v [Val<'_>]) -> Result<&'v Arc<AuthorizationDecision>, EvalError> {
    match args.first().and_then(|v| v.as_opaque()) {
        Some(OpaqueValue::Decision(answer)) => Ok(answer),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn allowed<'a>(args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(decision(args)?.allowed))
}

pub(super) fn reason<'a>(args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::text(decision(args)?.reason.as_str()))
}

pub(super) fn errored<'a>(args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(decision(args)?.error.is_some()))
}

pub(super) fn error<'a>(args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::text(decision(args)?.error.as_deref().unwrap_or_default()))
}
