//! CEL: the rules of custom resources (`x-kubernetes-validations`), and whatever else is written in it.
//!
//! The `cel` crate parses; everything after the syntax tree is ours, because Kubernetes wants what the crate's own
//! interpreter has not: types checked against the schema when a definition is created, costs estimated before
//! and counted during evaluation, and data read where they lie instead of being copied.
//!
//! | module | subject |
//! |---|---|
//! | `schema` | what the compiler asks of a schema |
//! | `declare`, `escape` | schemas as types, names as identifiers |
//! | `parse`, `ast` | from text to the syntax tree; macros |
//! | `types`, `check` | types and the type checker |
//! | `cost`, `estimate` | what calls cost, and what an expression costs at most |
//! | `program`, `value` | evaluation |
//! | `library` | the functions |
//! | `message` | objects that are made by name: `Object{…}`, `JSONPatch{…}` |
//! | `expression` | expressions over variables that the caller names: conditions, policies |
//! | `rules` | the rules of one schema node: faults, messages, evaluation |
//! | `limits` | bounds of cost and size |
//!
//! An expression passes parse -> check -> estimate -> program once, and is evaluated as often as there are values.
//! Its variables are a table that the caller names, so that admission policies can use the same.

mod ast;
mod check;
mod cost;
mod declare;
mod escape;
mod estimate;
mod expression;
mod library;
mod limits;
mod message;
mod parse;
mod program;
mod rules;
mod schema;
mod types;
mod value;

pub use declare::Declared;
pub use escape::{escape, is_identifier};
pub use expression::{
    Activation, Environment, Expression, Interruption, Output, VariableType, OUT_OF_BUDGET,
};
pub use library::authz::{Answer, Principal, Question, QuestionTarget, ResourceQuestion};
pub use limits::{
    Budget, ESTIMATED_RULE_LIMIT, ESTIMATED_SCHEMA_LIMIT, MATCH_CONDITIONS_BUDGET, OBJECT_BUDGET,
    PER_CALL_LIMIT,
};
pub use rules::{Rule, Rules, SchemaCost, Verdict};
pub use schema::{child_cardinality, field_path, JsonSchema, SchemaNode};

#[cfg(test)]
mod tests;
