//! A compiled policy (k8s.io/apiserver `pkg/admission/plugin/policy/validating/validator.go`).

use plinth_cel::{Budget, Environment, Expression, Output};
use plinth_codec::Value;

use super::super::expressions::{evaluate, CelAuthorizer, Conditions, Subject};
use super::params::ParamKind;
use plinth_api::{metadata_text, Reason};
use plinth_kinds::policy_environment as environment;

/// Maximum length of a message from an expression, in bytes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// A compiled ValidatingAdmissionPolicy. Immutable; compiled once for each version of the object.
pub struct Policy {
    pub(super) name: String,
    /// Whether errors deny the request (`failurePolicy`).
    pub(super) fails: bool,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) constraints: Value,
    environment: Environment,
    /// Environment of message expressions: without the authorizers.
    silent: Environment,
    conditions: Conditions,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
}

struct Validation {
    source: String,
    expression: Result<Expression, String>,
    message: String,
    message_expression: Option<Result<Expression, String>>,
    reason: Reason,
}

struct Annotation {
    key: String,
    expression: Result<Expression, String>,
}

/// A denied request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    /// Index of the failed validation; 0 for an error.
    pub index: usize,
    pub message: String,
    pub reason: Reason,
}

impl Denial {
    /// A denial because of an error.
    pub(super) fn error(message: String) -> Denial {
        Denial { index: 0, message, reason: Reason::Invalid }
    }
}

/// The result of a policy for a request.
#[derive(Debug, Default)]
pub(super) struct PolicyOutcome {
    /// The binding's actions apply to these.
    pub denials: Vec<Denial>,
    /// Audit annotations.
    pub annotations: Vec<(String, String)>,
    /// Failed audit annotations, which deny the request.
    pub errors: Vec<Denial>,
}

impl Policy {
    /// Compiles a policy; errors of an expression are reported when it is evaluated.
    pub fn read(policy: &Value) -> Policy {
        let null = Value::Null;
        let spec = policy.get("spec").unwrap_or(&null);
        let text = |value: &Value, key: &str| value.str_at(&[key]).unwrap_or_default().to_owned();
        let param_kind = ParamKind::read(spec);
        let mut environment = environment(param_kind.is_some(), true).clone().composed();
        for variable in spec.list_at(&["variables"]) {
            // Expressions that use a variable with an error report it.
            let _ = environment.compose(&text(variable, "name"), &text(variable, "expression"));
        }
        let silent = environment.clone().without("authorizer").without("authorizer.requestResource");
        let validation = |validation: &Value| Validation {
            source: text(validation, "expression"),
            expression: environment.compile(&text(validation, "expression"), &[Output::Bool]),
            message: text(validation, "message"),
            message_expression: Some(text(validation, "messageExpression"))
                .filter(|source| !source.is_empty())
                .map(|source| silent.compile(&source, &[Output::Text])),
            reason: match text(validation, "reason").as_str() {
                "" => Reason::Invalid,
                reason => Reason::parse(reason),
            },
        };
        let annotation = |annotation: &Value| Annotation {
            key: text(annotation, "key"),
            expression: environment
                .compile(&text(annotation, "valueExpression"), &[Output::Text, Output::Null]),
        };
        Policy {
            name: metadata_text(policy, "name").to_owned(),
            fails: text(spec, "failurePolicy") != "Ignore",
            constraints: spec.get("matchConstraints").cloned().unwrap_or_default(),
            conditions: Conditions::read(spec, &environment),
            validations: spec.list_at(&["validations"]).iter().map(validation).collect(),
            annotations: spec.list_at(&["auditAnnotations"]).iter().map(annotation).collect(),
            param_kind,
            silent,
            environment,
        }
    }

    /// A denial for an error, unless failures are ignored.
    fn error(&self, message: String) -> Option<Denial> {
        self.fails.then(|| Denial::error(message))
    }

    fn only(&self, message: String) -> PolicyOutcome {
        PolicyOutcome { denials: self.error(message).into_iter().collect(), ..PolicyOutcome::default() }
    }

    /// Evaluates the policy for a request and one parameter object. Limited by the cost budget of an object
    /// for validations with their messages, and once more for audit annotations.
    pub(super) async fn decide<'a>(
        &'a self,
        subject: Subject<'a>,
        cel_authorizer: &CelAuthorizer<'_>,
    ) -> PolicyOutcome {
        if !self.conditions.is_empty() {
            let without_namespace = Subject { namespace: &Value::Null, ..subject };
            let activation = without_namespace.activation_with_authorizer(&self.environment);
            match self.conditions.hold(&activation, cel_authorizer, self.fails).await {
                Ok(true) => {}
                Ok(false) => return PolicyOutcome::default(),
                Err(why) => return self.only(why),
            }
        }
        let mut budget = Budget::default();
        let mut verdict = PolicyOutcome::default();
        let activation = subject.activation_with_authorizer(&self.environment);
        let mut refused = Vec::new();
        for (index, validation) in self.validations.iter().enumerate() {
            match evaluate(&validation.expression, &activation, &mut budget, cel_authorizer).await {
                Ok(Ok(Value::Bool(true))) => {}
                Ok(Ok(_)) => refused.push((index, validation, Ok(()))),
                Ok(Err(why)) => refused.push((index, validation, Err(why))),
                Err(out) => return self.only(out.message()),
            }
        }
        let messages = subject.activation(&self.silent);
        for (index, validation, outcome) in refused {
            let denial = match outcome {
                Err(why) => self.error(why),
                Ok(()) => match validation.message(&messages, &mut budget, cel_authorizer).await {
                    Ok(message) => Some(Denial { index, message, reason: validation.reason }),
                    Err(why) => self.error(format!("failed messageExpression: {why}")),
                },
            };
            verdict.denials.extend(denial.map(|denial| Denial { index, ..denial }));
        }
        let mut budget = Budget::default();
        let activation = subject.activation(&self.environment);
        for annotation in &self.annotations {
            match evaluate(&annotation.expression, &activation, &mut budget, cel_authorizer).await {
                Ok(Ok(value)) => {
                    let text = value.as_str().unwrap_or_default().trim();
                    if !text.is_empty() {
                        verdict.annotations.push((annotation.key.clone(), text.to_owned()));
                    }
                }
                Ok(Err(why)) => verdict.errors.extend(self.error(why)),
                Err(out) => return self.only(out.message()),
            }
        }
        verdict
    }
}

impl Validation {
    /// The message of a denial: that of the message expression if it is a single line; else the static
    /// message; else the expression.
    ///
    /// # Errors
    /// When the budget is exhausted.
    async fn message<'a>(
        &'a self,
        activation: &'a plinth_cel::Activation<'a>,
        budget: &mut Budget,
        cel_authorizer: &CelAuthorizer<'_>,
    ) -> Result<String, String> {
        let mut made = String::new();
        if let Some(expression) = &self.message_expression {
            match evaluate(expression, activation, budget, cel_authorizer).await {
                Ok(Ok(value)) => value.as_str().unwrap_or_default().trim().clone_into(&mut made),
                Ok(Err(why)) => tracing::debug!(error = why, "message expression of admission policy failed"),
                Err(out) => return Err(out.message()),
            }
        }
        if made.len() > MAX_MESSAGE_BYTES || made.contains('\n') {
            made.clear();
        }
        Ok(match (made.is_empty(), self.message.is_empty()) {
            (false, _) => made,
            (true, false) => self.message.trim().to_owned(),
            (true, true) => format!("failed expression: {}", self.source.trim()),
        })
    }
}
