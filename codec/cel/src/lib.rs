//! CEL (Common Expression Language) as Kubernetes uses it: the rules of custom resources
//! (`x-kubernetes-validations`), match conditions, admission policies, claims of OpenID Connect. No storage,
//! no sockets, no authorizer.
//!
//! The `cel` crate parses; everything after the syntax tree is implemented here, because Kubernetes requires
//! what the crate's own interpreter does not have: type checking against the schema when a definition is
//! created, costs that are estimated before and counted during evaluation, and data that are read in place
//! instead of being copied.
//!
//! | item | what it is |
//! |---|---|
//! | [`Environment`] | the variables that expressions may refer to; compiles |
//! | [`Expression`] | a compiled expression, immutable, shared by all threads |
//! | [`Activation`] | the values of an environment's variables for one request |
//! | [`AuthorizationRequest`], [`AuthorizationDecision`] | an authorization check in an expression, and its outcome |
//! | [`Rule`], [`Rules`], [`Verdict`] | `x-kubernetes-validations` of one schema node: as written, compiled, evaluated |
//! | [`SchemaNode`], [`JsonSchema`], [`DeclType`] | the schema interface, a schema kept as JSON, and its type in CEL |
//! | [`Budget`], [`SchemaCost`] | the remaining cost of evaluations; the estimated cost of a schema's rules |
//!
//! An expression passes parse -> check -> estimate -> program once, and is evaluated for each value. Its
//! variables are declared by the caller.
//!
//! # Errors
//! Errors in an expression have upstream's text with positions: a `String` from [`Environment::compile`],
//! [`FieldError`](plinth_codec::field::FieldError)s from [`Rule::errors`] and [`Rules::errors`]. An
//! evaluation that fails is a value of its caller too: text from [`Expression::evaluate`],
//! [`Verdict::errors`] from [`Rules::evaluate`]. Time and memory of an evaluation are bounded by its
//! [`Budget`], whatever expression and data are.
//!
//! # Examples
//! An expression over a variable that the caller declares:
//! ```
//! use plinth_cel::{Activation, Budget, Environment, Output, VariableType};
//! use plinth_codec::{tree, Value};
//!
//! let schema = r#"{"type":"object","properties":{"replicas":{"type":"integer"}}}"#;
//! let environment = Environment::default().with("object", VariableType::of_schema(schema));
//! let error = environment.compile("object.replica <= 5", &[Output::Bool]).unwrap_err();
//! assert!(error.contains("undefined field 'replica'"), "{error}");
//!
//! let expression = environment.compile("object.replicas <= 5", &[Output::Bool]).unwrap();
//! let object = tree!({ "replicas": 3i64 });
//! let activation = Activation::new(&environment).with("object", &object);
//! let outcome = expression.evaluate(&activation, &mut Budget::default());
//! assert_eq!(outcome, Ok(Ok(Value::Bool(true))));
//! ```
//!
//! The rules of a schema node:
//! ```
//! use plinth_cel::{Budget, DeclType, JsonSchema, Rule, Rules, SchemaCost};
//! use plinth_codec::tree;
//!
//! let integer = tree!({ "type": "integer" });
//! let properties = tree!({ "min": integer.clone(), "max": integer });
//! let schema = tree!({ "type": "object", "properties": properties });
//! let schema = JsonSchema(&schema);
//! let declared = DeclType::of(schema, false).unwrap();
//!
//! let rule = Rule { rule: "self.min <= self.max".into(), ..Rule::default() };
//! let rules = Rules::compile(&[rule], schema, &declared);
//! assert_eq!(rules.errors("schema", Some(1), None, &mut SchemaCost::default()), []);
//!
//! let object = tree!({ "min": 3i64, "max": 1i64 });
//! let verdict = rules.evaluate("spec", &object, None, &mut || false, &mut Budget::default());
//! let error = verdict.errors[0].to_string();
//! assert_eq!(error, "spec: Invalid value: failed rule: self.min <= self.max");
//! ```
//!
//! # Inside
//!
//! | module | subject |
//! |---|---|
//! | `schema` | the schema interface of the compiler |
//! | `parse`, `ast` | parser and macros |
//! | `types`, `escape` | types, schemas as types, names as identifiers |
//! | `value`, `opaque` | values, and those of the types that the libraries add |
//! | `context` | the state of an evaluation |
//! | `library` | the functions |
//! | `check` | the type checker |
//! | `cost`, `estimate` | costs of calls, and the maximum cost of an expression |
//! | `program` | compilation and evaluation |
//! | `message` | constructed messages: `Object{…}`, `JSONPatch{…}` |
//! | `expression` | expressions over declared variables: conditions, policies |
//! | `rules` | the rules of one schema node: errors, messages, evaluation |
//! | `limits` | bounds of cost and size |

#![warn(unreachable_pub)]

mod ast;
mod check;
mod context;
mod cost;
mod escape;
mod estimate;
mod expression;
mod library;
mod limits;
mod message;
mod opaque;
mod parse;
mod program;
mod rules;
mod schema;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use escape::is_identifier;
pub use expression::{
    Activation, Environment, Expression, Interruption, Output, VariableType, OUT_OF_BUDGET,
};
pub use limits::{Budget, MATCH_CONDITIONS_BUDGET};
pub use opaque::{
    AuthorizationDecision, AuthorizationRequest, AuthorizationTarget, Principal, ResourceAttributes,
};
pub use rules::{Rule, Rules, SchemaCost, Verdict};
pub use schema::{child_cardinality, JsonSchema, SchemaNode};
pub use types::DeclType;
