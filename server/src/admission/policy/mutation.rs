//! A compiled mutating policy, and the application of its mutations
//! (k8s.io/apiserver `pkg/admission/plugin/policy/mutating/patch`).

use plinth_cel::{Activation, Budget, Environment, Expression, Output};
use plinth_codec::apply;
use plinth_codec::patch::{self, PatchError};
use plinth_codec::Value;

use super::super::expressions::{evaluate, CelAuthorizer, Conditions, Subject};
use super::super::{mutated, Call};
use super::params::ParamKind;
use plinth_api::{metadata_text, ApiError};
use plinth_kinds::policy_environment as environment;
use plinth_registry::ResourceType;

/// A compiled MutatingAdmissionPolicy. Immutable; compiled once for each version of the object.
pub struct MutatingPolicy {
    pub(super) name: String,
    /// Whether errors deny the request (`failurePolicy`).
    pub(super) fails: bool,
    /// Whether it is called again after later changes (`reinvocationPolicy`).
    pub(super) reinvokes: bool,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) constraints: Value,
    pub(super) mutations: Vec<Mutation>,
    environment: Environment,
    conditions: Conditions,
}

/// One entry of `mutations`.
pub(super) struct Mutation {
    patch_type: PatchType,
    expression: Result<Expression, String>,
}

#[derive(Clone, Copy)]
enum PatchType {
    ApplyConfiguration,
    JsonPatch,
}

impl MutatingPolicy {
    /// Compiles a policy; errors of an expression are reported when it is evaluated.
    pub fn read(policy: &Value) -> MutatingPolicy {
        let null = Value::Null;
        let spec = policy.get("spec").unwrap_or(&null);
        let text = |value: &Value, path: &[&str]| value.str_at(path).unwrap_or_default().to_owned();
        let param_kind = ParamKind::read(spec);
        let mut environment = environment(param_kind.is_some(), true).clone().composed();
        for variable in spec.list_at(&["variables"]) {
            // Expressions that use a variable with an error report it.
            let _ = environment.compose(&text(variable, &["name"]), &text(variable, &["expression"]));
        }
        let conditions = Conditions::read(spec, &environment);
        let environment = environment.with_patches();
        let mutation = |mutation: &Value| {
            let (patch_type, member, output) = match mutation.str_at(&["patchType"]) {
                Some("JSONPatch") => (PatchType::JsonPatch, "jsonPatch", Output::Patches),
                _ => (PatchType::ApplyConfiguration, "applyConfiguration", Output::Configuration),
            };
            let source = text(mutation, &[member, "expression"]);
            Mutation { patch_type, expression: environment.compile(&source, &[output]) }
        };
        MutatingPolicy {
            name: metadata_text(policy, "name").to_owned(),
            fails: text(spec, &["failurePolicy"]) != "Ignore",
            reinvokes: text(spec, &["reinvocationPolicy"]) == "IfNeeded",
            constraints: spec.get("matchConstraints").cloned().unwrap_or_default(),
            mutations: spec.list_at(&["mutations"]).iter().map(mutation).collect(),
            param_kind,
            conditions,
            environment,
        }
    }

    /// Whether the match conditions hold.
    ///
    /// # Errors
    /// Errors of the expressions.
    pub(super) async fn concerns(
        &self,
        subject: Subject<'_>,
        cel_authorizer: &CelAuthorizer<'_>,
    ) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let without_namespace = Subject { namespace: &Value::Null, ..subject };
        self.conditions
            .hold(
                &without_namespace.activation_with_authorizer(&self.environment),
                cel_authorizer,
                self.fails,
            )
            .await
    }

    /// Evaluates a mutation to an apply configuration or JSON patch operations. Each has the cost budget of
    /// an object.
    ///
    /// # Errors
    /// Errors of the expression.
    pub(super) async fn patch(
        &self,
        mutation: &Mutation,
        subject: Subject<'_>,
        cel_authorizer: &CelAuthorizer<'_>,
    ) -> Result<Value, String> {
        let activation: Activation<'_> = subject.activation_with_authorizer(&self.environment);
        let outcome =
            evaluate(&mutation.expression, &activation, &mut Budget::default(), cel_authorizer).await;
        outcome.map_err(|out| out.message())?
    }
}

impl Mutation {
    /// The object after the patch, in the version of `matched`. The inner error is subject to the failure
    /// policy.
    ///
    /// # Errors
    /// 500 when the patched object cannot be decoded.
    pub(super) fn apply(
        &self,
        call: &Call<'_>,
        matched: &ResourceType,
        object: &Value,
        patch: Value,
    ) -> Result<Result<Value, String>, ApiError> {
        let (patched, strict) = match self.patch_type {
            PatchType::ApplyConfiguration => (configured(call, matched, object, patch), false),
            PatchType::JsonPatch => match patch::json_patch(object.clone(), patch) {
                Ok(patched) => {
                    mutated::check_kind(object, &patched)?;
                    (Ok(patched), true)
                }
                // A failed test operation means that the patch does not apply, which is no error.
                Err(PatchError::TestFailed(_)) => return Ok(Ok(object.clone())),
                Err(error) => (Err(format!("JSON Patch: {error}")), true),
            },
        };
        match patched {
            Ok(patched) => mutated::decode(call, matched, patched, strict).map(Ok),
            Err(why) => Ok(Err(why)),
        }
    }
}

fn configured(
    call: &Call<'_>,
    matched: &ResourceType,
    object: &Value,
    mut configuration: Value,
) -> Result<Value, String> {
    if let Some(members) = configuration.as_object_mut() {
        // The configuration has the object's kind, whatever it contains.
        members.remove("apiVersion");
        members.remove("kind");
    }
    let (schema, root) = mutated::type_of(call, matched).map_err(|why| {
        format!("error applying patch: failed to convert patch object to typed object: {why}")
    })?;
    let mut object = object.clone();
    apply::configure(schema, root, &mut object, &configuration)
        .map_err(|why| format!("error applying patch: {why}"))?;
    Ok(object)
}
