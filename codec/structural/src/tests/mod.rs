//! The behavior covered by upstream's tests of apiextensions-apiserver, as tables.

mod defaulting;
mod definition;
mod fixtures;
mod model;
mod property;
mod pruning;
mod ratcheting;
mod rules;
mod structure;
mod validation;

use plinth_codec::field::FieldError;
use plinth_codec::value::Value;
use plinth_codec::yaml;
use regex::Regex;

use super::StructuralSchema;

/// A value of YAML in flow style, which is shorter to write than JSON.
pub(super) fn value(text: &str) -> Value {
    // These two are truth values in YAML 1.1, and good names in tables.
    let lone = Regex::new(r"([\s\[{,])([yn])([\s\],}:])").unwrap();
    let quoted = lone.replace_all(text, "$1'$2'$3");
    let text = lone.replace_all(&quoted, "$1'$2'$3");
    yaml::to_value(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}")).0
}

/// A compiled schema.
pub(super) fn schema(text: &str) -> StructuralSchema {
    StructuralSchema::compile(&value(text)).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Errors, one text each.
pub(super) fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// An object schema with these properties.
pub(super) fn with(properties: &str) -> String {
    format!("{{type: object, properties: {{{properties}}}}}")
}
