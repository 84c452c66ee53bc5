//! `MutatingAdmissionPolicy`: policies in CEL that mutate objects.
//!
//! First the matching policies are determined, with the object as it was at the start of the plugin; then
//! they are evaluated in the order of their names, each with the object as the previous ones left it. An
//! error denies the request, unless the policy ignores failures; all denials are reported. Upstream:
//! k8s.io/apiserver `pkg/admission/plugin/policy/mutating` and `…/generic`.

use std::sync::Arc;
use std::time::Instant;

use plinth_codec::Value;

use super::super::expressions::{CelAuthorizer, Subject};
use super::super::reinvocation::Id;
use super::super::webhook::review;
use super::super::{conversions, matching, Call};
use super::mutation::MutatingPolicy;
use super::{application, namespace_object};
use plinth_api::{metadata_text, ApiError, Cause, Reason};
use plinth_registry::ResourceType;
use plinth_storage::{DerivedCache, ObjectCache};

/// A matching policy with a binding and one parameter object.
struct Invocation<'p> {
    policy: &'p MutatingPolicy,
    binding: &'p str,
    /// The resource in the version of the policy.
    matched: Arc<ResourceType>,
    params: Value,
}

impl Invocation<'_> {
    fn id(&self) -> Id {
        let (namespace, name) =
            (metadata_text(&self.params, "namespace"), metadata_text(&self.params, "name"));
        (self.policy.name.clone(), self.binding.to_owned(), format!("{namespace}/{name}"))
    }
}

/// Collected denials.
#[derive(Default)]
struct Refusals(Vec<(String, Reason)>);

impl Refusals {
    fn add(&mut self, policy: &MutatingPolicy, binding: Option<&str>, why: &str, reason: Reason) {
        if !policy.fails {
            tracing::debug!(policy = policy.name, error = why, "mutating policy failed, failing open");
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

    /// 403 with the reason and the message of the first denial, and all as causes.
    fn answer(self, call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
        let Some((message, reason)) = self.0.first().cloned() else { return Ok(()) };
        let mut error = call.forbidden(object, "");
        (error.message, error.reason) = (message, reason);
        let cause = |(message, _): (String, Reason)| Cause { reason: "", message, field: String::new() };
        Err(error.with_causes(self.0.into_iter().map(cause).collect()))
    }
}

/// Applies the policies to the object.
///
/// # Errors
/// The denials; errors of the storage.
pub(in crate::admission) async fn mutate(
    call: &Call<'_>,
    (policies, bindings): (&DerivedCache<MutatingPolicy>, &ObjectCache),
    object: &mut Value,
) -> Result<(), ApiError> {
    let server = &call.cx.server;
    if object.is_null() || matching::is_exempt_from_policies(call) {
        return Ok(());
    }
    let bindings = bindings.objects(&server.store, "").await?;
    if bindings.is_empty() {
        return Ok(());
    }
    let policies = policies.entries(&server.store).await?;
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
            let binding = metadata_text(binding, "name");
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
        let mut reinvocation = call.reinvocation.lock();
        let second = reinvocation.second;
        reinvocation.policies.begin(second, object);
        second
    };
    let namespace = namespace_object(call).await?;
    let cel_authorizer = CelAuthorizer::new(call.cx);
    let mut patched = false;
    for invocation in invocations {
        let (policy, matched) = (invocation.policy, &invocation.matched);
        let (mut current, old) = match conversions::converted_both(call, matched, object).await {
            Ok((current, old)) => (current.into_owned(), old),
            Err(error) => {
                let why = format!("failed to convert object version: {}", error.message);
                refusals.add(policy, Some(invocation.binding), &why, Reason::Invalid);
                continue;
            }
        };
        let request = review::attributes(call, matched, &current);
        let subject = Subject {
            call,
            request: &request,
            object: &Value::Null,
            old: &old,
            namespace: &namespace,
            params: &invocation.params,
        };
        match policy.concerns(Subject { object: &current, ..subject }, &cel_authorizer).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                refusals.add(policy, Some(invocation.binding), &why, Reason::Invalid);
                continue;
            }
        }
        let id = invocation.id();
        if call.reinvocation.lock().policies.skips(second, &id) {
            continue;
        }
        let begun = Instant::now();
        let effect = apply(invocation, subject, &mut current, &cel_authorizer, refusals).await?;
        patched |= effect.patched;
        let error = if effect.failed { "invalid_error" } else { "no_error" };
        let names = (policy.name.as_str(), invocation.binding);
        call.cx.server.metrics.admission.mutating_policy(names, error, begun.elapsed());
        if effect.changed {
            *object = conversions::converted_back(call, matched, current).await?;
        }
        let mut reinvocation = call.reinvocation.lock();
        if effect.changed {
            reinvocation.policies.record_change();
        }
        if policy.reinvokes {
            reinvocation.policies.record_call(id);
        }
    }
    let mut reinvocation = call.reinvocation.lock();
    if patched {
        // Policies and webhooks with reinvocation are called again, including the last one.
        reinvocation.changed = true;
        reinvocation.policies.record_change();
    }
    reinvocation.policies.end(object);
    Ok(())
}

/// What the mutations of a policy did to an object.
#[derive(Default)]
struct Effect {
    /// At least one was applied.
    patched: bool,
    /// At least one changed the object.
    changed: bool,
    /// At least one failed.
    failed: bool,
}

/// Applies the mutations of a policy one after the other; `object` is in the version of the policy.
async fn apply(
    invocation: &Invocation<'_>,
    subject: Subject<'_>,
    object: &mut Value,
    cel_authorizer: &CelAuthorizer<'_>,
    refusals: &mut Refusals,
) -> Result<Effect, ApiError> {
    let policy = invocation.policy;
    let mut effect = Effect::default();
    for mutation in &policy.mutations {
        let seen = Subject { object, ..subject };
        let outcome = match policy.patch(mutation, seen, cel_authorizer).await {
            Ok(patch) => mutation.apply(subject.call, &invocation.matched, object, patch)?,
            Err(why) => Err(why),
        };
        match outcome {
            Ok(new) => {
                effect.patched = true;
                effect.changed |= new != *object;
                *object = new;
            }
            Err(why) => {
                effect.failed = true;
                refusals.add(policy, Some(invocation.binding), &why, Reason::Invalid);
            }
        }
    }
    Ok(effect)
}
