//! CEL in admission: the variables that expressions see, the authorizers behind them, and match conditions.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/cel` and `pkg/admission/plugin/webhook/matchconditions`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use plinth_cel::{
    Activation, Answer, Budget, Environment, Expression, Interruption, Output, Principal, Question,
    QuestionTarget, ResourceQuestion, MATCH_CONDITIONS_BUDGET, OUT_OF_BUDGET,
};
use plinth_codec::selector::{FieldSelector, LabelSelector};
use plinth_codec::Value;

use super::matching::list;
use super::Call;
use plinth_api::user::User;
use plinth_api::user::{service_account_groups, service_account_name};
use plinth_apiserver::authz::{aggregate, Attributes, ResourceTarget, Selectors};
use plinth_apiserver::context::Context;
use plinth_apiserver::heavy::BRIEF;

/// What the expressions about one request see.
#[derive(Clone, Copy)]
pub(super) struct Subject<'c> {
    pub call: &'c Call<'c>,
    /// `request`, without the objects.
    pub request: &'c Value,
    /// The new object in the version that the webhook or policy wants; null at a deletion.
    pub object: &'c Value,
    /// The old one; null at create.
    pub old: &'c Value,
    /// `namespaceObject`; null where it is not shown.
    pub namespace: &'c Value,
    /// `params`; null when there are none.
    pub params: &'c Value,
}

impl<'c> Subject<'c> {
    /// The values of the variables, without the authorizers.
    pub fn activation(&self, environment: &'c Environment) -> Activation<'c> {
        Activation::new(environment)
            .with("object", self.object)
            .with("oldObject", self.old)
            .with("namespaceObject", self.namespace)
            .with("request", self.request)
            .with("params", self.params)
    }

    /// The values of the variables, with the authorizers.
    pub fn asking(&self, environment: &'c Environment) -> Activation<'c> {
        let info = &self.call.cx.info;
        let resource = ResourceQuestion {
            group: info.group.as_str().into(),
            resource: info.resource.as_str().into(),
            subresource: info.subresource.as_str().into(),
            namespace: self.call.request_namespace(self.object).into(),
            name: self.call.object_name(self.object).into(),
            ..ResourceQuestion::default()
        };
        let activation = self.activation(environment).with_authorizer("authorizer");
        activation.with_resource("authorizer.requestResource", resource)
    }
}

/// Asks the authorizers for expressions, each question once a request, and knows what the expressions have taken so far. The lock is
/// held to look up and to put.
pub(super) struct Asker<'c> {
    cx: &'c Context,
    known: Mutex<HashMap<Question, Answer>>,
    /// What is left of [`BRIEF`].
    brief: AtomicU64,
}

impl<'c> Asker<'c> {
    pub fn new(cx: &'c Context) -> Asker<'c> {
        Asker { cx, known: Mutex::default(), brief: AtomicU64::new(BRIEF) }
    }

    async fn answer(&self, question: &Question) -> Answer {
        if let Some(known) = self.known.lock().get(question) {
            return known.clone();
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
            QuestionTarget::Path(path) => Attributes::path(user, &question.verb, path),
            QuestionTarget::Resource(resource) => {
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
        let answer = Answer {
            allowed: decision.allowed(),
            reason: decision.reason.to_string(),
            error: decision.error,
        };
        self.known.lock().insert(question.clone(), answer.clone());
        answer
    }
}

/// The selectors of a question; one that cannot be read limits nothing.
fn selectors_of(resource: &ResourceQuestion) -> Option<Selectors> {
    let fields = FieldSelector::parse(&resource.field_selector).ok();
    let labels = LabelSelector::parse(&resource.label_selector).ok();
    let selectors = Selectors {
        fields: fields.map(|s| s.requirements().to_vec()).unwrap_or_default(),
        labels: labels.map(|s| s.requirements().to_vec()).unwrap_or_default(),
    };
    (!selectors.fields.is_empty() || !selectors.labels.is_empty()).then_some(selectors)
}

/// The expressions of a request have used up what they may cost.
pub(super) struct OutOfBudget;

impl OutOfBudget {
    pub fn message(&self) -> String {
        OUT_OF_BUDGET.to_owned()
    }
}

/// Evaluates an expression, asking the authorizers what it wants to know. An expression can afford two questions,
/// so this ends.
pub(super) async fn evaluate<'a>(
    expression: &'a Result<Expression, String>,
    activation: &'a Activation<'a>,
    budget: &mut Budget,
    asker: &Asker<'_>,
) -> Result<Result<Value, String>, OutOfBudget> {
    let expression = match expression {
        Ok(expression) => expression,
        Err(why) => return Ok(Err(format!("compilation error: {why}"))),
    };
    loop {
        budget.keep_brief(Some(asker.brief.load(Ordering::Relaxed)));
        let mut made = expression.evaluate(activation, budget);
        asker.brief.store(budget.brief().unwrap_or_default(), Ordering::Relaxed);
        if let Err(Interruption::Long) = made {
            budget.keep_brief(None);
            let (heavy, places) = (&asker.cx.heavy, &asker.cx.server.heavy);
            made = Box::pin(heavy.beside(places, || expression.evaluate(activation, budget))).await;
        }
        match made {
            Ok(outcome) => return Ok(outcome),
            Err(Interruption::OutOfBudget | Interruption::Long) => return Err(OutOfBudget),
            Err(Interruption::Question(question)) => {
                let answer = asker.answer(&question).await;
                activation.answer(*question, answer);
            }
        }
    }
}

/// Match conditions, compiled: all must hold for a webhook or policy to be asked.
#[derive(Debug)]
pub(super) struct Conditions(Vec<Result<Expression, String>>);

impl Conditions {
    /// The `matchConditions` of a webhook or of the spec of a policy.
    pub fn read(owner: &Value, environment: &Environment) -> Conditions {
        let conditions = list(owner, "matchConditions").iter();
        let compile = |condition: &Value| {
            environment.compile(condition.str_at(&["expression"]).unwrap_or_default(), &[Output::Bool])
        };
        Conditions(conditions.map(compile).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all hold. One that does not decides, whatever is wrong with others.
    ///
    /// # Errors
    /// What is wrong, when none says no and errors count (`fails`); where they do not, the conditions do not hold.
    pub async fn hold<'a>(
        &'a self,
        activation: &'a Activation<'a>,
        asker: &Asker<'_>,
        fails: bool,
    ) -> Result<bool, String> {
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET);
        let mut errors = Vec::new();
        let mut holds = true;
        for condition in &self.0 {
            match evaluate(condition, activation, &mut budget, asker).await {
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
