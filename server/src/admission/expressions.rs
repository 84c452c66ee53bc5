//! CEL in admission: variables, authorizers and match conditions.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/cel` and `pkg/admission/plugin/webhook/matchconditions`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use plinth_cel::{
    Activation, AuthorizationDecision, AuthorizationRequest, AuthorizationTarget, Budget, Environment,
    Expression, Interruption, Output, Principal, ResourceAttributes, MATCH_CONDITIONS_BUDGET, OUT_OF_BUDGET,
};
use plinth_codec::selector::{FieldSelector, LabelSelector};
use plinth_codec::Value;

use super::call::Call;
use plinth_api::{service_account_groups, service_account_name, User};
use plinth_apiserver::authz::{aggregate, Attributes, ResourceTarget, Selectors};
use plinth_apiserver::context::Context;
use plinth_apiserver::large_requests::INLINE_COST;

/// The variables of the expressions for one request.
#[derive(Clone, Copy)]
pub(super) struct Subject<'c> {
    pub call: &'c Call<'c>,
    /// `request`, without the objects.
    pub request: &'c Value,
    /// The new object in the version of the webhook or policy; null at a deletion.
    pub object: &'c Value,
    /// The old object; null at create.
    pub old: &'c Value,
    /// `namespaceObject`; may be null.
    pub namespace: &'c Value,
    /// `params`; may be null.
    pub params: &'c Value,
}

impl<'c> Subject<'c> {
    /// The variables, without the authorizers.
    pub(super) fn activation(&self, environment: &'c Environment) -> Activation<'c> {
        Activation::new(environment)
            .with("object", self.object)
            .with("oldObject", self.old)
            .with("namespaceObject", self.namespace)
            .with("request", self.request)
            .with("params", self.params)
    }

    /// The variables, with the authorizers.
    pub(super) fn activation_with_authorizer(&self, environment: &'c Environment) -> Activation<'c> {
        let info = &self.call.cx.info;
        let resource = ResourceAttributes {
            group: info.group.as_str().into(),
            resource: info.resource.as_str().into(),
            subresource: info.subresource.as_str().into(),
            namespace: self.call.request_namespace(self.object).into(),
            name: self.call.object_name(self.object).into(),
            ..ResourceAttributes::default()
        };
        let activation = self.activation(environment).with_authorizer("authorizer");
        activation.with_resource("authorizer.requestResource", resource)
    }
}

/// Answers authorization checks of expressions, each check once per request, and accounts for the cost of the
/// request's expressions. The lock is held for a lookup or an insertion.
pub(super) struct CelAuthorizer<'c> {
    cx: &'c Context,
    answers: Mutex<HashMap<AuthorizationRequest, AuthorizationDecision>>,
    /// What is left of [`INLINE_COST`].
    inline_limit: AtomicU64,
}

impl<'c> CelAuthorizer<'c> {
    pub(super) fn new(cx: &'c Context) -> CelAuthorizer<'c> {
        CelAuthorizer { cx, answers: Mutex::default(), inline_limit: AtomicU64::new(INLINE_COST) }
    }

    async fn answer(&self, question: &AuthorizationRequest) -> AuthorizationDecision {
        if let Some(answer) = self.answers.lock().get(question) {
            return answer.clone();
        }
        let account;
        let user = match &question.principal {
            Principal::Requester => self.cx.user.as_ref(),
            Principal::ServiceAccount { namespace, name } => {
                account = User {
                    name: service_account_name(namespace, name),
                    groups: service_account_groups(namespace),
                    ..User::default()
                };
                &account
            }
        };
        let selectors;
        let attributes = match &question.target {
            AuthorizationTarget::Path(path) => Attributes::path(user, &question.verb, path),
            AuthorizationTarget::Resource(resource) => {
                selectors = selectors_of(resource);
                let target = ResourceTarget {
                    group: &resource.group,
                    version: "*",
                    resource: &resource.resource,
                    subresource: &resource.subresource,
                    name: &resource.name,
                    namespace: &resource.namespace,
                    selectors: selectors.as_ref(),
                };
                Attributes::resource(user, &question.verb, target)
            }
        };
        let decision = self.cx.server.authorizer.authorize(&attributes).await;
        let answer = AuthorizationDecision {
            allowed: decision.allowed(),
            reason: decision.reason.to_string(),
            error: decision.error,
        };
        self.answers.lock().insert(question.clone(), answer.clone());
        answer
    }
}

/// The selectors of a check; invalid ones are ignored.
fn selectors_of(resource: &ResourceAttributes) -> Option<Selectors> {
    let fields = FieldSelector::parse(&resource.field_selector).ok();
    let labels = LabelSelector::parse(&resource.label_selector).ok();
    let selectors = Selectors {
        fields: fields.map(|s| s.requirements().to_vec()).unwrap_or_default(),
        labels: labels.map(|s| s.requirements().to_vec()).unwrap_or_default(),
    };
    (!selectors.fields.is_empty() || !selectors.labels.is_empty()).then_some(selectors)
}

/// The expressions of a request have exceeded their total cost.
pub(super) struct OutOfBudget;

impl OutOfBudget {
    pub(super) fn message(&self) -> String {
        OUT_OF_BUDGET.to_owned()
    }
}

/// Evaluates an expression, answering its authorization checks. The budget of an expression allows two
/// checks, so this terminates.
pub(super) async fn evaluate<'a>(
    expression: &'a Result<Expression, String>,
    activation: &'a Activation<'a>,
    budget: &mut Budget,
    cel_authorizer: &CelAuthorizer<'_>,
) -> Result<Result<Value, String>, OutOfBudget> {
    let expression = match expression {
        Ok(expression) => expression,
        Err(why) => return Ok(Err(format!("compilation error: {why}"))),
    };
    loop {
        budget.set_inline_limit(Some(cel_authorizer.inline_limit.load(Ordering::Relaxed)));
        let mut value = expression.evaluate(activation, budget);
        cel_authorizer.inline_limit.store(budget.inline_limit().unwrap_or_default(), Ordering::Relaxed);
        if let Err(Interruption::Long) = value {
            budget.set_inline_limit(None);
            let (slot, limiter) = (&cel_authorizer.cx.slot, &cel_authorizer.cx.server.large_requests);
            value = Box::pin(slot.run_long(limiter, || expression.evaluate(activation, budget))).await;
        }
        match value {
            Ok(outcome) => return Ok(outcome),
            Err(Interruption::OutOfBudget | Interruption::Long) => return Err(OutOfBudget),
            Err(Interruption::Authorization(question)) => {
                let answer = cel_authorizer.answer(&question).await;
                activation.answer(*question, answer);
            }
        }
    }
}

/// Compiled match conditions: all must hold for a webhook or policy to be called.
#[derive(Debug)]
pub(super) struct Conditions(Vec<Result<Expression, String>>);

impl Conditions {
    /// Compiles the `matchConditions` of a webhook or of a policy's spec.
    pub(super) fn read(owner: &Value, environment: &Environment) -> Conditions {
        let conditions = owner.list_at(&["matchConditions"]).iter();
        let compile = |condition: &Value| {
            environment.compile(condition.str_at(&["expression"]).unwrap_or_default(), &[Output::Bool])
        };
        Conditions(conditions.map(compile).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all conditions hold. A false condition decides even if others fail.
    ///
    /// # Errors
    /// The errors, when no condition is false and errors matter (`fails`); otherwise the conditions do not
    /// hold.
    pub(super) async fn hold<'a>(
        &'a self,
        activation: &'a Activation<'a>,
        cel_authorizer: &CelAuthorizer<'_>,
        fails: bool,
    ) -> Result<bool, String> {
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET);
        let mut errors = Vec::new();
        let mut holds = true;
        for condition in &self.0 {
            match evaluate(condition, activation, &mut budget, cel_authorizer).await {
                Ok(Ok(value)) => holds &= value.as_bool() != Some(false),
                Ok(Err(why)) => errors.push(why),
                Err(out) if fails => return Err(out.message()),
                Err(_) => return Ok(false),
            }
        }
        match (holds, errors.is_empty(), fails) {
            (false, ..) | (true, false, false) => Ok(false),
            (true, true, _) => Ok(true),
            (true, false, true) => Err(aggregate(&errors)),
        }
    }
}

#[cfg(test)]
mod tests {
    use plinth_kinds::policy_environment as environment;

    use super::*;

    #[test]
    fn variables_are_declared() {
        // expression, params, authorizer, what is wrong with it
        let rows = [
            ("request.userInfo.groups.exists(g, g == 'a') && request.namespace == 'b'", false, false, ""),
            ("request.options.dryRun == ['All'] && request.userInfo.extra['k'][0] == ''", false, false, ""),
            ("request.nope == ''", false, false, "undefined field 'nope'"),
            ("namespaceObject.metadata.labels['a'] == 'b' || namespaceObject == null", false, false, ""),
            ("namespaceObject.metadata.managedFields == []", false, false, "undefined field 'managedFields'"),
            ("params.a == 1", false, true, "undeclared reference to 'params'"),
            ("params.a == 1", true, false, ""),
            (
                "authorizer.requestResource.check('get').allowed()",
                true,
                false,
                "undeclared reference to 'authorizer'",
            ),
            ("authorizer.requestResource.check('get').allowed()", false, true, ""),
            ("params.a == authorizer.path('/').check('get').reason()", true, true, ""),
        ];
        for (source, params, authorizer, error) in rows {
            let found =
                environment(params, authorizer).compile(source, &[Output::Bool]).err().unwrap_or_default();
            assert!(found.contains(error) && found.is_empty() == error.is_empty(), "{source}: {found}");
        }
    }
}
