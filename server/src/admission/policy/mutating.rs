//! `MutatingAdmissionPolicy`: what policies written in CEL change of an object.
//!
//! Which policies a request concerns is found out first, of the object as it came to the plugin; then they are evaluated one after
//! the other, in the order of their names, each of the object as those before it left it. What cannot be done refuses the
//! request, unless the policy ignores failures; all refusals are told. Upstream: k8s.io/apiserver
//! `pkg/admission/plugin/policy/mutating` and `…/generic`.

use std::sync::Arc;

use plinth_codec::Value;

use super::super::expressions::{Asker, Subject};
use super::super::reinvocation::Id;
use super::super::webhook::review;
use super::super::{matching, Call};
use super::mutation::MutatingPolicy;
use super::{application, namespace_object};
use plinth_api::api_error::{ApiError, Cause, Reason};
use plinth_api::metadata;
use plinth_registry::conversion;
use plinth_registry::ResourceType;

/// A policy with a binding and one object of parameters that a request concerns.
struct Invocation<'p> {
    policy: &'p MutatingPolicy,
    binding: &'p str,
    /// The resource in the version that the policy sees.
    matched: Arc<ResourceType>,
    params: Value,
}

impl Invocation<'_> {
    fn id(&self) -> Id {
        let (namespace, name) =
            (metadata::text(&self.params, "namespace"), metadata::text(&self.params, "name"));
        (self.policy.name.clone(), self.binding.to_owned(), format!("{namespace}/{name}"))
    }
}

/// What stands against the request.
#[derive(Default)]
struct Refusals(Vec<(String, Reason)>);

impl Refusals {
    fn add(&mut self, policy: &MutatingPolicy, binding: Option<&str>, why: &str, reason: Reason) {
        if !policy.fails {
            tracing::debug!(policy = policy.name, why, "a mutating policy failed, which it ignores");
            return;
        }
        let message = match binding {
            None => format!("policy {:?} denied request: {why}", policy.name),
            Some(binding) => {
                format!("policy '{}' with binding '{binding}' denied request: {why}", policy.name)
            }
        };
        self.0.push((message, reason));
    }

    /// 403 with the reason and the message of the first one, and all as causes.
    fn answer(self, call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
        let Some((message, reason)) = self.0.first().cloned() else { return Ok(()) };
        let mut error = call.forbidden(object, "");
        (error.message, error.reason) = (message, reason);
        let cause = |(message, _): (String, Reason)| Cause { reason: "", message, field: String::new() };
        Err(error.with_causes(self.0.into_iter().map(cause).collect()))
    }
}

/// Lets the policies change the object.
///
/// # Errors
/// What stands against the request; what cannot be read.
pub(in crate::admission) async fn mutate(call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
    let server = &call.cx.server;
    if object.is_null() || matching::is_exempt_from_policies(call) {
        return Ok(());
    }
    let bindings = call.admission.mutating_bindings.objects(&server.store, "").await?;
    if bindings.is_empty() {
        return Ok(());
    }
    let policies = call.admission.mutating_policies.entries(&server.store).await?;
    let mut refusals = Refusals::default();
    let mut invocations = Vec::new();
    for (_, policy) in policies.iter() {
        let names = |binding: &&Value| binding.str_at(&["spec", "policyName"]) == Some(&policy.name);
        let bound: Vec<&Value> = bindings.iter().map(AsRef::as_ref).filter(names).collect();
        if bound.is_empty() {
            continue;
        }
        let found = application(call, &policy.constraints, policy.param_kind.as_ref(), &bound, object);
        let found = Box::pin(found).await;
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(why) => {
                let why = format!("failed to configure policy: {why}");
                refusals.add(policy, None, &why, Reason::Forbidden);
                continue;
            }
        };
        for (binding, params) in found.bindings {
            let binding = metadata::text(binding, "name");
            match params {
                Ok(params) => invocations.extend(params.into_iter().map(|params| Invocation {
                    policy,
                    binding,
                    matched: found.matched.clone(),
                    params,
                })),
                Err(why) => {
                    let why = format!("failed to configure binding: {why}");
                    refusals.add(policy, Some(binding), &why, Reason::Forbidden);
                }
            }
        }
    }
    if !invocations.is_empty() {
        run(call, object, &invocations, &mut refusals).await?;
    }
    refusals.answer(call, object)
}

async fn run(
    call: &Call<'_>,
    object: &mut Value,
    invocations: &[Invocation<'_>],
    refusals: &mut Refusals,
) -> Result<(), ApiError> {
    let second = {
        let mut rounds = call.rounds.lock();
        let second = rounds.second;
        rounds.policies.begin(second, object);
        second
    };
    let namespace = namespace_object(call).await?;
    let asker = Asker::new(call.cx);
    let mut patched = false;
    for invocation in invocations {
        let (policy, matched) = (invocation.policy, &invocation.matched);
        let mut current = matching::converted(call, matched, object)?.into_owned();
        let old = matching::converted(call, matched, call.old.unwrap_or(&Value::Null))?;
        let request = review::attributes(call, matched, &current);
        let subject = Subject {
            call,
            request: &request,
            object: &Value::Null,
            old: &old,
            namespace: &namespace,
            params: &invocation.params,
        };
        let mut refuse = |why: &str| refusals.add(policy, Some(invocation.binding), why, Reason::Invalid);
        match policy.concerns(Subject { object: &current, ..subject }, &asker).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                refuse(&why);
                continue;
            }
        }
        let id = invocation.id();
        if call.rounds.lock().policies.passes_by(second, &id) {
            continue;
        }
        let mut changed = false;
        for mutation in &policy.mutations {
            let seen = Subject { object: &current, ..subject };
            let outcome = match policy.patch(mutation, seen, &asker).await {
                Ok(patch) => mutation.apply(call, matched, &current, patch)?,
                Err(why) => Err(why),
            };
            match outcome {
                Ok(new) => {
                    patched = true;
                    changed |= new != current;
                    current = new;
                }
                Err(why) => refuse(&why),
            }
        }
        if changed {
            let own = &call.cx.resource;
            *object = match matched.api_version == own.api_version {
                true => current,
                false => conversion::between(current, matched, own)?,
            };
        }
        let mut rounds = call.rounds.lock();
        if changed {
            rounds.policies.changed();
        }
        if policy.again {
            rounds.policies.wait(id);
        }
    }
    let mut rounds = call.rounds.lock();
    if patched {
        // Whoever was asked and wants it is asked again, the last one too.
        rounds.changed = true;
        rounds.policies.changed();
    }
    rounds.policies.end(object);
    Ok(())
}
