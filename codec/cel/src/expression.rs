//! Expressions over variables that the caller declares: match conditions, admission policies, claims
//! (k8s.io/apiserver `pkg/admission/plugin/cel`).
//!
//! An [`Environment`] declares the variables, and compiles. An [`Activation`] has their values for one
//! request; expressions are evaluated against it one after the other. Two things differ from the rules of a
//! schema: variables may be expressions themselves, evaluated once, when they are first read; and expressions
//! may call the authorizer, which takes time. The evaluation never waits: it ends with
//! [`Interruption::Authorization`], and the caller adds the decision to the activation and evaluates again.
//! Variables evaluated until then are kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use plinth_codec::error::quoted;
use plinth_codec::json;
use plinth_codec::value::Value;
use smol_str::SmolStr;

use super::ast::{Expr, Kind};
use super::check::children;
use super::context::{EvalError, Source, Variables};
use super::limits::{Budget, OBJECT_BUDGET, PER_CALL_LIMIT};
use super::message::{self, MessageTypes};
use super::opaque::{
    AuthorizationDecision, AuthorizationRequest, OpaqueValue, Principal, ResourceAttributes,
};
use super::parse::{parse, Macros};
use super::program::{CompileError, Program};
use super::schema::JsonSchema;
use super::types::{DeclType, Type};
use super::value::Val;

/// The message when the expressions of a request have used up their budget.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What a variable is.
#[derive(Clone, Debug)]
pub enum VariableType {
    /// Any data; types are checked during evaluation.
    Any,
    /// Data of a declared form, or null.
    Of(DeclType),
    /// The authorizer: `authorizer.group('')…`.
    Authorizer,
    /// An authorization check of the resource of the request: `authorizer.requestResource.check('…')`.
    ResourceCheck,
}

impl VariableType {
    /// Data described by an OpenAPI v3 schema in JSON; [`VariableType::Any`] for text that is not a schema.
    pub fn of_schema(schema: &str) -> VariableType {
        let schema = json::parse(schema.as_bytes()).unwrap_or_default();
        DeclType::of(JsonSchema(&schema), false).map_or(VariableType::Any, VariableType::Of)
    }
}

/// The result types that an expression may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A value of any type.
    Any,
    /// True or false.
    Bool,
    /// Must evaluate to a `string`.
    Text,
    /// `null`.
    Null,
    /// A `list(string)`.
    Texts,
    /// `Object{…}`: an apply configuration.
    Configuration,
    /// A list of `JSONPatch{…}`: the operations of a JSON Patch.
    Patches,
    /// A type that is known only at evaluation.
    Unknown,
}

impl Output {
    fn to_type(self) -> Type {
        match self {
            Output::Any | Output::Unknown => Type::Dyn,
            Output::Bool => Type::Bool,
            Output::Text => Type::String,
            Output::Null => Type::Null,
            Output::Texts => Type::list(Type::String),
            Output::Configuration => Type::Message(SmolStr::new_static(message::OBJECT)),
            Output::Patches => Type::list(Type::Message(SmolStr::new_static(message::JSON_PATCH))),
        }
    }
}

/// A type as upstream prints it.
fn display_type(t: &Type) -> String {
    match t {
        Type::Null => "null_type".to_owned(),
        other => other.to_string(),
    }
}

/// A type under the name that it has at run time.
fn runtime_name(t: &Type) -> String {
    match t {
        Type::Any => "google.protobuf.Any".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::List(element) => format!("list({})", runtime_name(element)),
        Type::Map(both) => format!("map({}, {})", runtime_name(&both.0), runtime_name(&both.1)),
        Type::Optional(inner) => format!("optional_type({})", runtime_name(inner)),
        other => display_type(other),
    }
}

/// The variables that expressions may refer to. Immutable once built.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<Variable>,
    messages: MessageTypes,
    macros: Macros,
    /// The declaration in which sizes of data are looked up.
    sizes: Option<DeclType>,
}

#[derive(Clone, Debug)]
struct Variable {
    name: SmolStr,
    of_type: Type,
    /// The expression that defines it, or its compilation error.
    definition: Option<Arc<Result<Program, String>>>,
}

/// The variable whose members are defined by expressions.
const VARIABLES: &str = "variables";

impl Environment {
    /// Adds a variable.
    pub fn with(mut self, name: &str, of_type: VariableType) -> Environment {
        let of_type = match of_type {
            VariableType::Any => Type::Dyn,
            VariableType::Of(declared) => declared.to_type(),
            VariableType::Authorizer => OpaqueValue::Authorizer(Principal::Requester).to_type(),
            VariableType::ResourceCheck => {
                OpaqueValue::ResourceCheck(Principal::Requester, ResourceAttributes::default()).to_type()
            }
        };
        self.variables.push(Variable { name: SmolStr::new(name), of_type, definition: None });
        self
    }

    /// Declares that there may be variables defined by expressions, so that a reference to an undefined one
    /// is an undefined-field error.
    pub fn composed(mut self) -> Environment {
        self.declare_variables();
        self
    }

    /// Hides a variable from expressions that are compiled from now on. Variables composed before still refer
    /// to it, and find no value.
    pub fn without(mut self, name: &str) -> Environment {
        self.variables.iter_mut().filter(|v| v.name == name).for_each(|v| v.name = SmolStr::default());
        self
    }

    /// Lets expressions that are compiled from now on construct `Object{…}` and `JSONPatch{…}` and call
    /// `jsonpatch.escapeKey`, as those of a mutation may.
    pub fn with_patches(self) -> Environment {
        Environment { messages: MessageTypes::Patches, ..self }
    }

    /// Lets expressions that are compiled from now on bind variables: `cel.bind(name, value, body)`.
    pub fn with_bindings(self) -> Environment {
        Environment { macros: Macros::Bindings, ..self }
    }

    /// Adds a variable of declared data, whose sizes bound the estimated cost of expressions.
    pub fn with_sizes(self, name: &str, declared: DeclType) -> Environment {
        Environment { sizes: Some(declared.clone()), ..self.with(name, VariableType::Of(declared)) }
    }

    /// Adds `variables.name`, defined by the expression; expressions that are compiled later can refer to it.
    /// One that does not compile is added too: reading it is an error.
    ///
    /// # Errors
    /// The compilation error.
    pub fn compose(&mut self, name: &str, source: &str) -> Result<(), String> {
        let compiled = self.program(source, &[Output::Any]);
        let (of_type, outcome) = match &compiled {
            Ok(program) => (member_type(program.output()), Ok(())),
            Err(why) => (Type::Dyn, Err(why.clone())),
        };
        let name = SmolStr::from(format!("{VARIABLES}.{name}"));
        self.variables.push(Variable { name, of_type, definition: Some(Arc::new(compiled)) });
        self.declare_variables();
        outcome
    }

    /// Declares the object `variables`.
    fn declare_variables(&mut self) {
        let made = self.variables.iter().filter(|v| v.definition.is_some());
        let members = made.filter_map(|v| {
            let (_, name) = v.name.split_once('.')?;
            Some((SmolStr::new(name), v.of_type.clone()))
        });
        let of_type = DeclType::of_members(members).to_type();
        match self.variables.iter_mut().find(|v| v.name == VARIABLES) {
            Some(variable) => variable.of_type = of_type,
            None => self.variables.push(Variable {
                name: SmolStr::new_static(VARIABLES),
                of_type,
                definition: None,
            }),
        }
    }

    fn program(&self, source: &str, outputs: &[Output]) -> Result<Program, String> {
        let variables: Vec<(&str, Type)> =
            self.variables.iter().map(|v| (v.name.as_str(), v.of_type.clone())).collect();
        let program =
            Program::compile_with(source, &variables, self.sizes.as_ref(), self.messages, self.macros);
        let program = program.map_err(|error| match error {
            CompileError::Compilation(why) => format!("compilation failed: {why}"),
            CompileError::Instantiation(why) => format!("program instantiation failed: {why}"),
        })?;
        let made = program.output();
        if outputs.iter().any(|output| *output == Output::Any || output.to_type().is_exactly(made)) {
            return Ok(program);
        }
        let wanted: Vec<String> = outputs.iter().map(|output| display_type(&output.to_type())).collect();
        Err(match wanted.as_slice() {
            [one] => format!("must evaluate to {one} but got {}", display_type(made)),
            many => format!("must evaluate to one of [{}] but got {}", many.join(" "), display_type(made)),
        })
    }

    /// Compiles an expression with one of these result types.
    ///
    /// # Errors
    /// The compilation errors, with positions.
    pub fn compile(&self, source: &str, outputs: &[Output]) -> Result<Expression, String> {
        let program = self.program(source, outputs)?;
        let mut selected = Vec::new();
        if let Ok(tree) = parse(source, self.macros) {
            select(&tree.root, &mut selected);
        }
        Ok(Expression { source: SmolStr::new(source), program, selected })
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|v| v.name == name)
    }
}

/// Collects chains of selections as dotted names.
fn select(expr: &Expr, selected: &mut Vec<String>) {
    plinth_codec::value::level(|| {
        if let Kind::Select { operand, field, .. } = &expr.kind {
            selected.extend(operand.qualified_name().map(|prefix| format!("{prefix}.{field}")));
        }
        for child in children(expr) {
            select(child, selected);
        }
    });
}

/// The type of a variable defined by an expression of this type; types that data do not have are checked at
/// evaluation only.
fn member_type(made: &Type) -> Type {
    match made {
        Type::List(element) => Type::list(member_type(element)),
        Type::Map(both) => Type::map(member_type(&both.0), member_type(&both.1)),
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => made.clone(),
        _ => Type::Dyn,
    }
}

/// A compiled expression. Immutable; shared by all threads.
#[derive(Debug)]
pub struct Expression {
    source: SmolStr,
    program: Program,
    /// The chains of selections, as dotted names.
    selected: Vec<String>,
}

/// Why an evaluation ended without an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The budget is used up; no further expression may be evaluated.
    OutOfBudget,
    /// This check has to be answered first ([`Activation::answer`]).
    Authorization(Box<AuthorizationRequest>),
    /// The evaluation exceeds the inline limit ([`Budget::set_inline_limit`]).
    Long,
}

/// Maximum number of nodes of a returned value.
const MAX_PARTS: usize = 1_000_000;

impl Expression {
    /// The source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The maximum cost of an evaluation; meaningful where the environment has sizes
    /// ([`Environment::with_sizes`]).
    pub fn estimated_cost(&self) -> u64 {
        self.program.estimated_cost()
    }

    /// The type of the result as upstream's `Type.String` names it.
    pub fn output_name(&self) -> String {
        runtime_name(self.program.output())
    }

    /// Whether the expression reads, or tests for the presence of, this chain of names: `claims.email`.
    pub fn selects(&self, chain: &str) -> bool {
        self.selected.iter().any(|selected| selected == chain)
    }

    fn makes_patches(&self) -> bool {
        self.program.output().is_exactly(&Output::Patches.to_type())
    }

    /// Evaluates. The outcome is a value or an error message. Work is bounded by 1,000,000 units of cost for
    /// the expression and by 10,000,000 for the variables that it is the first to read.
    ///
    /// # Errors
    /// [`Interruption`]; neither an authorization check nor [`Interruption::Long`] is charged to the budget.
    pub fn evaluate<'a>(
        &'a self,
        activation: &'a Activation<'a>,
        budget: &mut Budget,
    ) -> Result<Result<Value, String>, Interruption> {
        let limit = budget.limit();
        activation.limit.store(limit, Ordering::Relaxed);
        let (outcome, cost) = self.program.run(Source::Variables(activation), limit, PER_CALL_LIMIT);
        let outcome = match outcome {
            Err(EvalError::Unanswered(question)) => return Err(Interruption::Authorization(question)),
            Err(EvalError::Long) => return Err(Interruption::Long),
            outcome => outcome,
        };
        let variables = activation.spent.swap(0, Ordering::Relaxed);
        if !budget.charge(variables) || !budget.charge(cost) {
            return Err(Interruption::OutOfBudget);
        }
        let value = match outcome {
            Ok(Val::Message(made)) => return Ok(message::configuration(&made)),
            Ok(Val::List(list)) if self.makes_patches() => return Ok(message::patches(&list)),
            outcome => outcome.map_err(|e| e.to_string()),
        };
        let value = value.and_then(|value| {
            let kind = value.type_name();
            value
                .to_value(&mut MAX_PARTS.clone())
                .ok_or_else(|| format!("{kind} cannot be converted to JSON"))
        });
        Ok(value.map_err(|why| format!("expression '{}' resulted in error: {why}", self.source)))
    }
}

/// The values of an environment's variables for one request, and the authorization decisions. Used by one
/// request; the lock is held for lookups and insertions only.
#[derive(Debug)]
pub struct Activation<'a> {
    environment: &'a Environment,
    values: Vec<Option<Val<'a>>>,
    made: Vec<OnceLock<Result<Val<'a>, EvalError>>>,
    /// Cost of variables since the last expression ended.
    spent: AtomicU64,
    /// Cost limit of each variable for the current expression.
    limit: AtomicU64,
    answers: Mutex<HashMap<AuthorizationRequest, Arc<AuthorizationDecision>>>,
}

impl<'a> Activation<'a> {
    /// An activation without values.
    pub fn new(environment: &'a Environment) -> Activation<'a> {
        let count = environment.variables.len();
        Activation {
            environment,
            values: vec![None; count],
            made: (0..count).map(|_| OnceLock::new()).collect(),
            spent: AtomicU64::new(0),
            limit: AtomicU64::new(PER_CALL_LIMIT),
            answers: Mutex::default(),
        }
    }

    fn put(mut self, name: &str, value: Val<'a>) -> Activation<'a> {
        if let Some(slot) = self.environment.place(name).and_then(|i| self.values.get_mut(i)) {
            *slot = Some(value);
        }
        self
    }

    /// Sets the value of a variable; one that the environment does not declare is ignored.
    pub fn with(self, name: &str, value: &'a Value) -> Activation<'a> {
        let environment = self.environment;
        let variable = environment.place(name).and_then(|i| environment.variables.get(i));
        let value = match variable.map(|v| &v.of_type) {
            Some(Type::Object(declared)) => Val::of_data(value, declared),
            _ => Val::of_untyped(value),
        };
        self.put(name, value)
    }

    /// Sets a variable to the authorizer of the requesting user.
    pub fn with_authorizer(self, name: &str) -> Activation<'a> {
        self.put(name, Val::opaque(OpaqueValue::Authorizer(Principal::Requester)))
    }

    /// Sets a variable to a check of a resource.
    pub fn with_resource(self, name: &str, resource: ResourceAttributes) -> Activation<'a> {
        self.put(name, Val::opaque(OpaqueValue::ResourceCheck(Principal::Requester, resource)))
    }

    /// Adds an authorization decision.
    pub fn answer(&self, question: AuthorizationRequest, answer: AuthorizationDecision) {
        self.answers.lock().insert(question, Arc::new(answer));
    }
}

impl<'a> Variables<'a> for Activation<'a> {
    fn decision(&self, check: &AuthorizationRequest) -> Option<Arc<AuthorizationDecision>> {
        self.answers.lock().get(check).cloned()
    }

    /// One that is defined by an expression refers to earlier ones only, so the
    /// recursion ends.
    fn value(&'a self, place: usize) -> Result<Option<Val<'a>>, EvalError> {
        let (Some(variable), Some(cell)) = (self.environment.variables.get(place), self.made.get(place))
        else {
            return Ok(None);
        };
        let Some(definition) = &variable.definition else {
            return Ok(self.values.get(place).cloned().flatten());
        };
        if let Some(known) = cell.get() {
            return known.clone().map(Some);
        }
        let name = variable.name.split_once('.').map_or("", |(_, name)| name);
        let outcome = match definition.as_ref() {
            Err(why) => {
                let why = format!("composited variable {} fails to compile: {why}", quoted(name));
                Err(EvalError::other(why))
            }
            Ok(_) if self.spent.load(Ordering::Relaxed) > OBJECT_BUDGET.unsigned_abs() => {
                return Err(EvalError::CostLimit);
            }
            Ok(program) => {
                let limit = self.limit.load(Ordering::Relaxed);
                let (outcome, cost) = plinth_codec::value::level(|| {
                    program.run(Source::Variables(self), limit, PER_CALL_LIMIT)
                });
                if let Err(EvalError::Unanswered(_) | EvalError::Long) = outcome {
                    return outcome.map(Some);
                }
                self.spent.fetch_add(cost, Ordering::Relaxed);
                outcome.map_err(|why| {
                    let why = format!("composited variable {} fails to evaluate: {why}", quoted(name));
                    EvalError::other(why)
                })
            }
        };
        cell.get_or_init(|| outcome).clone().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An evaluation over the inline limit ends with `Long`, is not charged, and has the same outcome without
    /// the limit; authorization checks are not counted.
    #[test]
    fn long_evaluations_end_and_can_be_made_again() {
        let mut environment = Environment::default()
            .with("object", VariableType::Any)
            .with("authorizer", VariableType::Authorizer)
            .composed();
        environment.compose("many", "object.all(x, object.all(y, x == y))").unwrap();
        let allowed = "authorizer.path('/healthz').check('get').allowed()";
        // expression, whether it exceeds the limit
        let rows = [
            ("object.all(x, x == 'a')", false),
            ("object.all(x, object.all(y, x == y))", true),
            ("object.all(x, object.all(y, x == y)) || true", true),
            ("variables.many", true),
            ("object.map(x, object).map(x, x) == object.map(x, object)", true),
            (allowed, false),
            ("true || object.all(x, object.all(y, x == y))", false),
        ];
        let object = Value::from(vec![Value::from("a"); 100]);
        for (source, long) in rows {
            let expression = environment.compile(source, &[Output::Bool]).unwrap();
            let activation =
                Activation::new(&environment).with("object", &object).with_authorizer("authorizer");
            let mut budget = Budget::default();
            budget.set_inline_limit(Some(1_000));
            let mut made = expression.evaluate(&activation, &mut budget);
            if let Err(Interruption::Authorization(question)) = made {
                let answer = AuthorizationDecision { allowed: true, reason: String::new(), error: None };
                activation.answer(*question, answer);
                made = expression.evaluate(&activation, &mut budget);
            }
            if long {
                assert_eq!(made, Err(Interruption::Long), "{source}");
                assert_eq!(budget.inline_limit(), Some(1_000), "{source}");
                budget.set_inline_limit(None);
                made = expression.evaluate(&activation, &mut budget);
            } else {
                assert!(budget.inline_limit().is_some_and(|left| left <= 1_000), "{source}");
            }
            assert_eq!(made, Ok(Ok(Value::Bool(true))), "{source}");
        }
    }
}
