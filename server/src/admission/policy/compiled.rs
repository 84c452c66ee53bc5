//! A policy as it is evaluated (k8s.io/apiserver `pkg/admission/plugin/policy/validating/validator.go`).

use plinth_cel::{Budget, Environment, Expression, Output};
use plinth_codec::Value;

use super::super::expressions::{evaluate, Asker, Conditions, Subject};
use super::super::matching::list;
use super::params::ParamKind;
use plinth_api::api_error::Reason;
use plinth_api::metadata;
use plinth_kinds::policy_environment as environment;

/// Most bytes of a message that an expression makes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// A ValidatingAdmissionPolicy, compiled. Immutable; made once for each version of the object.
pub struct Policy {
    pub(super) name: String,
    /// Whether what goes wrong refuses the request (`failurePolicy`).
    pub(super) fails: bool,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) constraints: Value,
    environment: Environment,
    /// What message expressions see: all but the authorizers.
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

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    /// Which validation says so; 0 when none does.
    pub index: usize,
    pub message: String,
    pub reason: Reason,
}

impl Denial {
    /// Something went wrong.
    pub fn error(message: String) -> Denial {
        Denial { index: 0, message, reason: Reason::Invalid }
    }
}

/// What a policy says of a request.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// What the binding's actions are taken for.
    pub denials: Vec<Denial>,
    /// Audit annotations.
    pub annotations: Vec<(String, String)>,
    /// Audit annotations that cannot be made, and refuse the request.
    pub errors: Vec<Denial>,
}

impl Policy {
    /// Compiles; a error of an expression shows when it is evaluated.
    pub fn read(policy: &Value) -> Policy {
        let null = Value::Null;
        let spec = policy.get("spec").unwrap_or(&null);
        let text = |value: &Value, key: &str| value.str_at(&[key]).unwrap_or_default().to_owned();
        let param_kind = ParamKind::read(spec);
        let mut environment = environment(param_kind.is_some(), true).clone().composed();
        for variable in list(spec, "variables") {
            // Whoever looks at one that does not compile is told so.
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
            name: metadata::text(policy, "name").to_owned(),
            fails: text(spec, "failurePolicy") != "Ignore",
            constraints: spec.get("matchConstraints").cloned().unwrap_or_default(),
            conditions: Conditions::read(spec, &environment),
            validations: list(spec, "validations").iter().map(validation).collect(),
            annotations: list(spec, "auditAnnotations").iter().map(annotation).collect(),
            param_kind,
            silent,
            environment,
        }
    }

    /// What goes wrong refuses the request, or does nothing.
    fn error(&self, message: String) -> Option<Denial> {
        self.fails.then(|| Denial::error(message))
    }

    fn only(&self, message: String) -> Verdict {
        Verdict { denials: self.error(message).into_iter().collect(), ..Verdict::default() }
    }

    /// Evaluates the policy for a request and one object of parameters. Bounded by the budget of an object for validations
    /// with their messages, and once more for audit annotations.
    pub(super) async fn decide<'a>(&'a self, subject: Subject<'a>, asker: &Asker<'_>) -> Verdict {
        if !self.conditions.is_empty() {
            let without_namespace = Subject { namespace: &Value::Null, ..subject };
            let activation = without_namespace.asking(&self.environment);
            match self.conditions.hold(&activation, asker, self.fails).await {
                Ok(true) => {}
                Ok(false) => return Verdict::default(),
                Err(why) => return self.only(why),
            }
        }
        let mut budget = Budget::default();
        let mut verdict = Verdict::default();
        let activation = subject.asking(&self.environment);
        let mut refused = Vec::new();
        for (index, validation) in self.validations.iter().enumerate() {
            match evaluate(&validation.expression, &activation, &mut budget, asker).await {
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
                Ok(()) => match validation.message(&messages, &mut budget, asker).await {
                    Ok(message) => Some(Denial { index, message, reason: validation.reason }),
                    Err(why) => self.error(format!("failed messageExpression: {why}")),
                },
            };
            verdict.denials.extend(denial.map(|denial| Denial { index, ..denial }));
        }
        let mut budget = Budget::default();
        let activation = subject.activation(&self.environment);
        for annotation in &self.annotations {
            match evaluate(&annotation.expression, &activation, &mut budget, asker).await {
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
    /// What a refusal says: what the message's expression makes, if that can be shown in one line; else the message;
    /// else the expression.
    ///
    /// # Errors
    /// When nothing is left of the budget.
    async fn message<'a>(
        &'a self,
        activation: &'a plinth_cel::Activation<'a>,
        budget: &mut Budget,
        asker: &Asker<'_>,
    ) -> Result<String, String> {
        let mut made = String::new();
        if let Some(expression) = &self.message_expression {
            match evaluate(expression, activation, budget, asker).await {
                Ok(Ok(value)) => value.as_str().unwrap_or_default().trim().clone_into(&mut made),
                Ok(Err(why)) => tracing::debug!(why, "message expression of an admission policy"),
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
