//! `x-kubernetes-validations` of one schema node: compiled once, evaluated for each value
//! (k8s.io/apiextensions-apiserver, `pkg/apiserver/schema/cel` and `pkg/apis/apiextensions/validation`).

use std::fmt::Display;

use plinth_codec::error::quoted;
use plinth_codec::field::{FieldError, Reason};
use plinth_codec::value::Value;
use smol_str::SmolStr;

use super::context::{EvalError, Source};
use super::expression::OUT_OF_BUDGET;
use super::limits::{
    Budget, ESTIMATED_RULE_LIMIT, ESTIMATED_SCHEMA_LIMIT, MAX_MESSAGE_BYTES, PER_CALL_LIMIT,
};
use super::program::{CompileError, Program};
use super::schema::{field_path, SchemaNode};
use super::types::DeclType;
use super::types::Type;
use super::value::Val;

/// One entry of `x-kubernetes-validations`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// `rule`: true for valid data.
    pub rule: SmolStr,
    /// `message`; empty when absent.
    pub message: SmolStr,
    /// `messageExpression`; empty when absent.
    pub message_expression: SmolStr,
    /// `reason`; empty when absent.
    pub reason: SmolStr,
    /// `fieldPath`; empty when absent.
    pub field_path: SmolStr,
    /// `optionalOldSelf`.
    pub optional_old_self: Option<bool>,
}

/// The values of `reason`.
const REASONS: [(&str, Reason); 4] = [
    ("FieldValueDuplicate", Reason::Duplicate),
    ("FieldValueForbidden", Reason::Forbidden),
    ("FieldValueInvalid", Reason::Invalid),
    ("FieldValueRequired", Reason::Required),
];

fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

impl Rule {
    /// Reads one entry; members of wrong types count as absent (the schema of definitions refuses them
    /// before).
    pub fn from_value(value: &Value) -> Rule {
        let text = |key| value.get(key).and_then(Value::as_str).map(SmolStr::new);
        Rule {
            rule: text("rule").unwrap_or_default(),
            message: text("message").unwrap_or_default(),
            message_expression: text("messageExpression").unwrap_or_default(),
            reason: text("reason").unwrap_or_default(),
            field_path: text("fieldPath").unwrap_or_default(),
            optional_old_self: value.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// Validates the entry except for its expressions. `path` is that of the entry
    /// (`….x-kubernetes-validations[0]`), `schema` the node that has it.
    pub fn errors<S: SchemaNode>(&self, path: impl Display, schema: S) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let at = |member: &str| format!("{path}.{member}");
        let (rule, message) = (self.rule.trim(), self.message.trim());
        let message_value = Value::from(self.message.clone());
        if rule.is_empty() {
            errors.push(FieldError::required(at("rule"), "rule is not specified"));
        } else if !self.message.is_empty() && message.is_empty() {
            errors.push(FieldError::invalid(at("message"), &message_value, "must be non-empty if specified"));
        } else if has_line_break(message) {
            errors.push(FieldError::invalid(at("message"), &message_value, "must not contain line breaks"));
        } else if has_line_break(rule) && message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(at("message"), why));
        }
        if !self.message_expression.is_empty() && self.message_expression.trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(at("messageExpression"), why));
        }
        if !self.reason.is_empty() && REASONS.iter().all(|(name, _)| *name != self.reason) {
            let supported = REASONS.map(|(name, _)| name);
            errors.push(FieldError::not_supported(
                at("reason"),
                &Value::from(self.reason.clone()),
                &supported,
            ));
        }
        if !self.field_path.is_empty() {
            let value = Value::from(self.field_path.clone());
            let invalid = |why| FieldError::invalid(at("fieldPath"), &value, why);
            if self.field_path.trim().is_empty() {
                errors.push(invalid("must be non-empty if specified"));
            }
            if has_line_break(&self.field_path) {
                errors.push(invalid("must not contain line breaks"));
            }
            if field_path(&self.field_path, schema, true).is_err() {
                errors.push(invalid("must be a valid path"));
            }
        }
        errors
    }

    /// The text that errors show for the rule.
    fn display_text(&self) -> &str {
        match self.message.trim() {
            "" => self.rule.trim(),
            message => message,
        }
    }

    fn default_message(&self) -> String {
        match self.message.is_empty() {
            true => format!("failed rule: {}", self.display_text()),
            false => self.message.trim().to_owned(),
        }
    }

    /// The error of one of the expressions: upstream shows the whole entry, with the field names of its Go
    /// struct.
    fn error(&self, path: String, why: &str) -> FieldError {
        let reason = match self.reason.as_str() {
            "" => "null".to_owned(),
            reason => go_json(reason),
        };
        let message = format!(
            "Invalid value: {{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\
             \"OptionalOldSelf\":{}}}: {why}",
            go_json(&self.rule),
            go_json(&self.message),
            go_json(&self.message_expression),
            go_json(&self.field_path),
            self.optional_old_self.map_or("null", |b| if b { "true" } else { "false" }),
        );
        FieldError { reason: Reason::Invalid, field: path, message }
    }
}

/// Text as Go's JSON encoder writes it, with HTML characters escaped.
fn go_json(text: &str) -> String {
    let mut json = Vec::new();
    plinth_codec::json::write_untyped(&Value::from(text), &mut json);
    let json = String::from_utf8_lossy(&json);
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The rules of one schema node, compiled. Immutable; shared by all requests.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<CompiledRule>,
    /// `type` of the schema, which errors show instead of the value.
    schema_type: SmolStr,
    declared: DeclType,
}

#[derive(Debug)]
struct CompiledRule {
    rule: Rule,
    reason: Reason,
    /// `Err` has the text of the error; none for an empty rule.
    program: Option<Result<Program, String>>,
    message: Option<Result<Program, String>>,
    uses_old_self: bool,
    /// Appended to the path of the value.
    field_path: String,
}

impl CompiledRule {
    fn estimated_cost(&self) -> u64 {
        match &self.program {
            Some(Ok(program)) => program.estimated_cost(),
            _ => 0,
        }
    }
}

/// The estimated costs of all rules of one schema.
#[derive(Debug, Default)]
pub struct SchemaCost {
    lets_pass: bool,
    total: u64,
    most_expensive: Vec<(u64, String)>,
}

impl SchemaCost {
    /// An empty sum. With `lets_pass`, single expressions that cost too much are not an error, because the
    /// schema is unchanged. The total must still be within the limit.
    pub fn new(lets_pass: bool) -> SchemaCost {
        SchemaCost { lets_pass, ..SchemaCost::default() }
    }

    fn observe(&mut self, path: String, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < ESTIMATED_SCHEMA_LIMIT / 100 {
            return;
        }
        let place = self.most_expensive.partition_point(|(other, _)| *other >= cost);
        self.most_expensive.insert(place, (cost, path));
        self.most_expensive.truncate(4);
    }

    /// The errors when the total exceeds the limit. `path` is that of the schema's root.
    pub fn errors(&self, path: impl Display) -> Vec<FieldError> {
        if self.total <= ESTIMATED_SCHEMA_LIMIT {
            return Vec::new();
        }
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let mut errors: Vec<_> =
            self.most_expensive.iter().map(|(_, path)| FieldError::forbidden(path, why)).collect();
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, exceeds(what, self.total, ESTIMATED_SCHEMA_LIMIT)));
        errors
    }
}

fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, \
         and maxLength where arrays, maps, and strings are declared)"
    )
}

/// The outcome of the rules for one value.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Validation errors.
    pub errors: Vec<FieldError>,
    /// Errors that are ratcheted, because the value is unchanged.
    pub warnings: Vec<FieldError>,
}

impl Rules {
    /// Compiles the rules of a node. `declared` is the declaration of the node's schema. Compilation errors
    /// are kept: [`Rules::errors`] returns them, and evaluation reports them as errors.
    pub fn compile<S: SchemaNode>(rules: &[Rule], schema: S, declared: &DeclType) -> Rules {
        let rules = rules.iter().map(|rule| compile(rule, schema, declared)).collect();
        Rules { rules, schema_type: SmolStr::new(schema.schema_type()), declared: declared.clone() }
    }

    /// Whether there is nothing to evaluate.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Validates the expressions. `path` is that of the schema node, `cardinality` how often its data can
    /// occur (see [`super::child_cardinality`]), `uncorrelatable` the path of the list or map below which old
    /// and new values cannot be correlated. The estimated costs are added to `cost`.
    pub fn errors(
        &self,
        path: impl Display,
        cardinality: Option<u64>,
        uncorrelatable: Option<&str>,
        cost: &mut SchemaCost,
    ) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let cardinality = cardinality.unwrap_or_else(|| self.declared.max_cardinality());
        for (i, compiled) in self.rules.iter().enumerate() {
            let at = |member: &str| format!("{path}.x-kubernetes-validations[{i}].{member}");
            let mut estimated = |member: &str, what: &str, estimate: u64, errors: &mut Vec<FieldError>| {
                if estimate > ESTIMATED_RULE_LIMIT && !cost.lets_pass {
                    errors.push(FieldError::forbidden(
                        at(member),
                        exceeds(what, estimate, ESTIMATED_RULE_LIMIT),
                    ));
                }
                cost.observe(at(member), estimate);
            };
            let estimate = compiled.estimated_cost().saturating_mul(cardinality);
            estimated("rule", "estimated rule cost", estimate, &mut errors);
            if let Some(Err(why)) = &compiled.program {
                errors.push(compiled.rule.error(at("rule"), why));
            }
            match &compiled.message {
                Some(Err(why)) => errors.push(compiled.rule.error(at("messageExpression"), why)),
                Some(Ok(message)) => {
                    let what = "estimated messageExpression cost";
                    estimated("messageExpression", what, message.estimated_cost(), &mut errors);
                }
                None => {}
            }
            match (compiled.uses_old_self, uncorrelatable, compiled.rule.optional_old_self) {
                (true, Some(within), _) => {
                    let why = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                    );
                    errors.push(FieldError::invalid(
                        at("rule"),
                        &Value::from(compiled.rule.rule.clone()),
                        why,
                    ));
                }
                (false, _, Some(optional)) => {
                    let why = "may not be set if oldSelf is not used in rule";
                    errors.push(FieldError::invalid(at("optionalOldSelf"), &Value::Bool(optional), why));
                }
                _ => {}
            }
        }
        errors
    }

    /// Evaluates the rules of a value that is not null. `old` is the correlated old value, if there is one.
    /// `unchanged` is called at most once, when a rule failed: true turns the error into a warning, unless
    /// the rule reads the old value. Once the budget is used up no further rule is evaluated. Work is bounded
    /// by the budget, for any rules and data.
    pub fn evaluate(
        &self,
        path: impl Display,
        value: &Value,
        old: Option<&Value>,
        unchanged: &mut dyn FnMut() -> bool,
        budget: &mut Budget,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        if self.rules.is_empty() {
            return verdict;
        }
        let schema_type = Value::from(self.schema_type.clone());
        let invalid = |why: String| FieldError::invalid(&path, &schema_type, why);
        if budget.is_empty() {
            budget.exhaust();
            verdict.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
            return verdict;
        }
        let old = old.filter(|old| !old.is_null());
        let new_val = Val::of_data(value, &self.declared);
        let old_val = old.map(|old| Val::of_data(old, &self.declared));
        let mut unchanged = LazyFlag { ask: unchanged, answer: None };
        for compiled in &self.rules {
            let rule = &compiled.rule;
            let program = match &compiled.program {
                None => continue,
                Some(Err(why)) => {
                    verdict.errors.push(invalid(format!("rule compile error: {why}")));
                    continue;
                }
                Some(Ok(program)) => program,
            };
            let optional_old = rule.optional_old_self == Some(true);
            if compiled.uses_old_self && old_val.is_none() && !optional_old {
                continue;
            }
            let old_self = match optional_old {
                true => Some(Val::optional(old_val.clone())),
                false => old_val.clone(),
            };
            let variables = [Some(new_val.clone()), old_self];
            let (outcome, cost) = program.run(Source::Values(&variables), budget.limit(), PER_CALL_LIMIT);
            if matches!(outcome, Err(EvalError::Long)) {
                budget.run_long();
                return Verdict::default();
            }
            if !budget.charge(cost) {
                verdict.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
                return verdict;
            }
            match outcome {
                Ok(Val::Bool(true)) => continue,
                Ok(_) => {}
                Err(e) => {
                    verdict.errors.push(invalid(evaluation_error(&e, rule)));
                    if matches!(e, EvalError::CostLimit) {
                        budget.exhaust();
                        return verdict;
                    }
                    continue;
                }
            }
            let message = message(compiled, &variables, budget);
            let is_last = message.is_err();
            let error = self.failure(compiled, path.to_string(), value, message);
            match !compiled.uses_old_self && unchanged.get() {
                true => verdict.warnings.push(error),
                false => verdict.errors.push(error),
            }
            if is_last {
                budget.exhaust();
                return verdict;
            }
        }
        verdict
    }

    /// The error of a rule that does not hold.
    fn failure(
        &self,
        compiled: &CompiledRule,
        path: String,
        value: &Value,
        message: Result<Option<String>, String>,
    ) -> FieldError {
        let at = match compiled.field_path.as_str() {
            "" => path,
            below => join(&path, below),
        };
        match message {
            Ok(Some(text)) => self.error(&at, value, &text, compiled.reason),
            Ok(None) => self.error(&at, value, &compiled.rule.default_message(), compiled.reason),
            Err(why) => FieldError::invalid(&at, &Value::from(self.schema_type.clone()), why),
        }
    }

    fn error(&self, path: &str, value: &Value, why: &str, reason: Reason) -> FieldError {
        let omit = matches!(self.schema_type.as_str(), "object" | "array");
        match reason {
            Reason::Required => FieldError::required(path, why),
            Reason::Forbidden => FieldError::forbidden(path, why),
            // Lists and objects are omitted from messages.
            Reason::Duplicate if omit => {
                FieldError { reason, field: named(path), message: "Duplicate value".to_owned() }
            }
            Reason::Duplicate => FieldError::duplicate(path, value),
            _ if omit => FieldError { reason, field: named(path), message: format!("Invalid value: {why}") },
            _ => FieldError::invalid(path, value, why),
        }
    }
}

/// The error of a rule that could not be evaluated.
fn evaluation_error(error: &EvalError, rule: &Rule) -> String {
    let text = rule.display_text();
    match error {
        EvalError::CostLimit => {
            format!("'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {text}")
        }
        error if error.is_no_such_overload() => {
            format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: \
                 {text}"
            )
        }
        error => format!("{error} evaluating rule: {text}"),
    }
}

fn named(path: &str) -> String {
    match path {
        "" => plinth_codec::field::NO_FIELD.to_owned(),
        path => path.to_owned(),
    }
}

fn join(path: &str, below: &str) -> String {
    match path {
        "" => below.to_owned(),
        path => format!("{path}.{below}"),
    }
}

/// A condition that is evaluated at most once.
struct LazyFlag<'a> {
    ask: &'a mut dyn FnMut() -> bool,
    answer: Option<bool>,
}

impl LazyFlag<'_> {
    fn get(&mut self) -> bool {
        *self.answer.get_or_insert_with(&mut *self.ask)
    }
}

/// The result of `messageExpression`; `None` when there is none or the result is not usable. An error ends
/// the evaluation of all rules.
fn message(
    compiled: &CompiledRule,
    variables: &[Option<Val<'_>>],
    budget: &mut Budget,
) -> Result<Option<String>, String> {
    let Some(Ok(program)) = &compiled.message else { return Ok(None) };
    let (outcome, cost) = program.evaluate(variables, PER_CALL_LIMIT);
    if !budget.charge(cost) {
        return Err(
            "messageExpression evaluation failed due to running out of cost budget, no further validation \
                    rules will be run"
                .to_owned(),
        );
    }
    let text = match outcome {
        Ok(value) => value.into_text(),
        Err(EvalError::CostLimit) => {
            return Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                quoted(&compiled.rule.message_expression)
            ));
        }
        Err(_) => None,
    };
    let text = text.map(|t| t.trim().to_owned());
    Ok(text.filter(|t| !t.is_empty() && t.len() <= MAX_MESSAGE_BYTES && !t.contains('\n')))
}

fn compile<S: SchemaNode>(rule: &Rule, schema: S, declared: &DeclType) -> CompiledRule {
    let reason = REASONS.iter().find(|(name, _)| *name == rule.reason);
    let mut compiled = CompiledRule {
        rule: rule.clone(),
        reason: reason.map_or(Reason::Invalid, |(_, reason)| *reason),
        program: None,
        message: None,
        uses_old_self: false,
        field_path: String::new(),
    };
    if rule.rule.trim().is_empty() {
        return compiled;
    }
    let self_type = declared.to_type();
    let old_type = match rule.optional_old_self {
        Some(true) => Type::optional(self_type.clone()),
        _ => self_type.clone(),
    };
    let names = [("self", self_type), ("oldSelf", old_type)];
    let program = Program::compile(&rule.rule, &names, Some(declared)).map_err(|error| match error {
        CompileError::Compilation(why) => format!("compilation failed: {why}"),
        CompileError::Instantiation(why) => format!("program instantiation failed: {why}"),
    });
    let program = program.and_then(|p| match p.output() {
        Type::Bool => Ok(p),
        _ => Err("cel expression must evaluate to a bool".to_owned()),
    });
    compiled.uses_old_self = program.as_ref().is_ok_and(|p| p.uses(1));
    let compiles = program.is_ok();
    compiled.program = Some(program);
    if !compiles {
        return compiled;
    }
    if !rule.message_expression.is_empty() {
        let program =
            Program::compile(&rule.message_expression, &names, Some(declared)).map_err(|error| match error {
                CompileError::Compilation(why) => format!("messageExpression compilation failed: {why}"),
                CompileError::Instantiation(why) => format!("messageExpression instantiation failed: {why}"),
            });
        compiled.message = Some(program.and_then(|p| match p.output() {
            Type::String => Ok(p),
            _ => Err("messageExpression must evaluate to a string".to_owned()),
        }));
    }
    if let Ok((path, _)) = field_path(&rule.field_path, schema, true) {
        compiled.field_path = path;
    }
    compiled
}
