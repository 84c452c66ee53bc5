//! Policies in CEL: `ValidatingAdmissionPolicy` (here) and `MutatingAdmissionPolicy`.
//!
//! | module | subject |
//! |---|---|
//! | `compiled` | a validating policy and its evaluation |
//! | `mutating` | execution of mutating policies |
//! | `mutation` | a mutating policy, its evaluation and its patches |
//! | `params` | parameter objects of a policy |
//!
//! A policy applies where a binding refers to it. Both have rules and selectors, and a request must match
//! both. Of several denials the first one is reported. Upstream: k8s.io/apiserver
//! `pkg/admission/plugin/policy/validating`.

mod compiled;
pub(super) mod mutating;
mod mutation;
mod params;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_codec::{json, tree, Map, Value};

pub use self::compiled::Policy;
use self::compiled::{Denial, PolicyOutcome};
pub use self::mutation::MutatingPolicy;
use self::params::ParamKind;
use super::call::Call;
use super::expressions::{CelAuthorizer, Subject};
use super::namespace::namespace_of;
use super::webhook::review;
use super::{conversions, matching};
use plinth_api::{metadata_text, ApiError, Cause, Reason};
use plinth_registry::ResourceType;
use plinth_storage::{DerivedCache, Namespaces, ObjectCache};

/// Maximum length of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;
/// The audit annotation for bindings with the action `Audit`.
const VALIDATION_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// A denial to be sent to the client.
struct Refusal {
    message: String,
    reason: Reason,
}

/// Evaluates the policies.
///
/// # Errors
/// The first denial; errors of the storage.
pub(super) async fn validate(
    call: &Call<'_>,
    (policies, bindings): (&DerivedCache<Policy>, &ObjectCache),
    object: &Value,
) -> Result<(), ApiError> {
    let server = &call.cx.server;
    if matching::is_exempt_from_policies(call) {
        return Ok(());
    }
    let bindings = bindings.objects(&server.store, "").await?;
    if bindings.is_empty() {
        return Ok(());
    }
    let policies = policies.entries(&server.store).await?;
    let mut request = Request {
        call,
        object,
        cel_authorizer: CelAuthorizer::new(call.cx),
        refusals: Vec::new(),
        failure: None,
    };
    for (_, policy) in policies.iter() {
        let names = |binding: &&Value| binding.str_at(&["spec", "policyName"]) == Some(&policy.name);
        let bound: Vec<&Value> = bindings.iter().map(AsRef::as_ref).filter(names).collect();
        if !bound.is_empty() {
            request.ask(policy, &bound).await?;
        }
    }
    if let Some(failure) = request.failure {
        call.cx.audit.annotate(VALIDATION_FAILURE, failure);
    }
    request.refusals.into_iter().next().map_or(Ok(()), |refusal| Err(refused(call, object, refusal)))
}

/// The response of a denial: a 403 in form, with the code and the reason of the validation.
fn refused(call: &Call<'_>, object: &Value, refusal: Refusal) -> ApiError {
    let mut error = call.forbidden(object, &refusal.message);
    (error.code, error.reason) = match refusal.reason {
        Reason::Forbidden => (403, Reason::Forbidden),
        Reason::RequestEntityTooLarge => (413, Reason::RequestEntityTooLarge),
        _ => (422, Reason::Invalid),
    };
    error.with_causes(vec![Cause { reason: "", message: refusal.message, field: String::new() }])
}

/// A request that passes the policies.
struct Request<'r> {
    call: &'r Call<'r>,
    object: &'r Value,
    cel_authorizer: CelAuthorizer<'r>,
    refusals: Vec<Refusal>,
    /// The first finding for the audit log, which upstream does not overwrite.
    failure: Option<String>,
}

impl Request<'_> {
    /// A misconfigured policy or binding denies the request unless the policy ignores failures.
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Value>, why: &str) {
        if !policy.fails {
            return;
        }
        let message = match binding {
            None => denied(policy, None, &format!("failed to configure policy: {why}")),
            Some(binding) => denied(policy, Some(binding), &format!("failed to configure binding: {why}")),
        };
        self.refusals.push(Refusal { message, reason: Reason::Invalid });
    }

    async fn ask(&mut self, policy: &Policy, bindings: &[&Value]) -> Result<(), ApiError> {
        let (call, object) = (self.call, self.object);
        // Boxed because few requests need it and its size would be part of each write's future.
        let found = application(call, &policy.constraints, policy.param_kind.as_ref(), bindings, object);
        let found = Box::pin(found).await;
        let Application { matched, bindings } = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.misconfigured(policy, None, &why);
                return Ok(());
            }
        };
        let (new, old) = match conversions::converted_both(call, &matched, object).await {
            Ok(both) => both,
            Err(error) => {
                self.misconfigured(
                    policy,
                    None,
                    &format!("failed to convert object version: {}", error.message),
                );
                return Ok(());
            }
        };
        let attributes = review::attributes(call, &matched, &new);
        let namespace = namespace_object(call).await?;
        let mut annotations = BTreeMap::new();
        for (binding, params) in bindings {
            let params = match params {
                Ok(params) => params,
                Err(why) => {
                    self.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            };
            for params in &params {
                let subject = Subject {
                    call,
                    request: &attributes,
                    object: &new,
                    old: &old,
                    namespace: &namespace,
                    params,
                };
                let begun = Instant::now();
                let verdict = policy.decide(subject, &self.cel_authorizer).await;
                self.observe(policy, binding, &verdict, begun.elapsed());
                self.take(policy, binding, verdict, &mut annotations);
            }
        }
        for (key, values) in annotations {
            call.cx.audit.annotate(format!("{}/{key}", policy.name), values.join(", "));
        }
        Ok(())
    }

    /// Metrics of a result, by what follows from it.
    fn observe(&self, policy: &Policy, binding: &Value, verdict: &PolicyOutcome, took: Duration) {
        let metrics = &self.call.cx.server.metrics.admission;
        let names = (policy.name.as_str(), metadata_text(binding, "name"));
        if verdict.denials.is_empty() && verdict.errors.is_empty() {
            metrics.validating_policy(names, "allow", "no_error", took);
        }
        for _ in &verdict.errors {
            metrics.validating_policy(names, "deny", "invalid_error", took);
        }
        let actions = binding.list_at(&["spec", "validationActions"]);
        for action in verdict.denials.iter().flat_map(|_| actions).filter_map(Value::as_str) {
            let action = match action {
                "Deny" => "deny",
                "Warn" => "warn",
                _ => "audit",
            };
            metrics.validating_policy(names, action, "no_error", took);
        }
    }

    /// Executes the binding's actions for a result.
    fn take(
        &mut self,
        policy: &Policy,
        binding: &Value,
        verdict: PolicyOutcome,
        annotations: &mut BTreeMap<String, Vec<String>>,
    ) {
        let name = metadata_text(binding, "name");
        let actions =
            binding.get("spec").map(|spec| spec.list_at(&["validationActions"])).unwrap_or_default();
        for denial in verdict.denials {
            for action in actions.iter().filter_map(Value::as_str) {
                match action {
                    "Deny" => self.refuse(policy, binding, &denial),
                    "Warn" => self.call.cx.warnings.add(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{name}': {}",
                        policy.name, denial.message
                    )),
                    _ => {
                        let found = || finding(policy, name, actions, &denial);
                        self.failure.get_or_insert_with(found);
                    }
                }
            }
        }
        for error in verdict.errors {
            self.refuse(policy, binding, &error);
        }
        for (key, mut value) in verdict.annotations {
            value.truncate(floor_boundary(&value, MAX_ANNOTATION_BYTES));
            let values = annotations.entry(key).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }

    fn refuse(&mut self, policy: &Policy, binding: &Value, denial: &Denial) {
        let message = denied(policy, Some(binding), &denial.message);
        self.refusals.push(Refusal { message, reason: denial.reason });
    }
}

fn denied(policy: &Policy, binding: Option<&Value>, why: &str) -> String {
    match binding {
        None => format!("ValidatingAdmissionPolicy '{}' denied request: {why}", policy.name),
        Some(binding) => format!(
            "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {why}",
            policy.name,
            metadata_text(binding, "name")
        ),
    }
}

/// The last character boundary at or before `most`.
fn floor_boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

/// The audit annotation of a denial.
fn finding(policy: &Policy, binding: &str, actions: &[Value], denial: &Denial) -> String {
    let finding = tree!({
        "message": denial.message.as_str(),
        "policy": policy.name.as_str(),
        "binding": binding,
        "expressionIndex": denial.index as i64,
        "validationActions": Value::Array(actions.to_vec()),
    });
    let mut text = Vec::new();
    json::write_untyped(&Value::Array(vec![finding]), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// A policy that matches a request.
struct Application<'b> {
    /// The resource in the version of the policy.
    matched: Arc<ResourceType>,
    /// The matching bindings, with their parameters or the error.
    bindings: Vec<(&'b Value, Result<Vec<Value>, String>)>,
}

/// Whether a policy matches a request, and which of its bindings.
///
/// # Errors
/// The configuration error, with upstream's message.
async fn application<'b>(
    call: &Call<'_>,
    constraints: &Value,
    param_kind: Option<&ParamKind>,
    bindings: &[&'b Value],
    object: &Value,
) -> Result<Option<Application<'b>>, String> {
    let matched = matching::by_constraints(call, constraints, object).await.map_err(|error| error.message)?;
    let Some(matched) = matched else { return Ok(None) };
    let params = param_kind.map(|kind| kind.resource(call)).transpose()?;
    let mut taking = Vec::new();
    for binding in bindings {
        let params = match bound(call, binding, object).await {
            Ok(true) => params::collect(call, params.as_deref(), binding).await,
            Ok(false) => continue,
            Err(error) => Err(error.message),
        };
        taking.push((*binding, params));
    }
    Ok(Some(Application { matched, bindings: taking }))
}

/// Whether a binding matches the request; without matchResources it does.
async fn bound(call: &Call<'_>, binding: &Value, object: &Value) -> Result<bool, ApiError> {
    let resources = binding.get("spec").and_then(|spec| spec.get("matchResources"));
    match resources.filter(|resources| !resources.is_null()) {
        None => Ok(true),
        Some(resources) => Ok(matching::by_constraints(call, resources, object).await?.is_some()),
    }
}

/// The metadata fields of `namespaceObject`.
const NAMESPACE_METADATA: [&str; 12] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

/// The namespace of the request; null for cluster-scoped objects and namespaces.
async fn namespace_object(call: &Call<'_>) -> Result<Value, ApiError> {
    if call.namespace.is_empty() || call.is_about_namespace() {
        return Ok(Value::Null);
    }
    let namespace = namespace_of(call).await?;
    let namespace = namespace.ok_or_else(|| Namespaces::not_found(call.namespace))?;
    let mut shown = Map::new();
    for key in ["spec", "status"] {
        shown.insert(key, namespace.get(key).cloned().unwrap_or_default());
    }
    let metadata = namespace.get("metadata").and_then(Value::as_object);
    let members = metadata.into_iter().flat_map(Map::iter);
    let mut kept = Map::new();
    for (key, value) in members.filter(|(key, _)| NAMESPACE_METADATA.contains(&key.as_str())) {
        kept.insert(key.clone(), value.clone());
    }
    shown.insert("metadata", Value::Object(kept));
    Ok(Value::Object(shown))
}
