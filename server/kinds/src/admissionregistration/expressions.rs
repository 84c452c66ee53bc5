//! CEL in admission policies and match conditions. Expressions are compiled when the object is written, with
//! the variables that they will have. Match conditions of a stored object are compiled only when a change
//! touches them.

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_cel::{Environment, Output};
use plinth_codec::{names, Value};

use crate::admissionregistration::environment::environment;
use crate::checks::check_text;
use crate::path::{at, list, text};

/// Maximum number of match conditions.
const MAX_CONDITIONS: usize = 64;

/// Compiles an expression and appends its error, if any.
pub(crate) fn expression_error(
    environment: &Environment,
    path: String,
    source: &str,
    outputs: &[Output],
    errors: &mut Vec<Cause>,
) {
    if let Err(why) = environment.compile(source, outputs) {
        errors.push(field::invalid(path, source, &why));
    }
}

/// Errors of the match conditions of a webhook or of the spec of a policy; `path` ends in a dot.
pub(crate) fn match_conditions(owner: &Value, path: FieldPath<'_>, params: bool, errors: &mut Vec<Cause>) {
    let path = format_args!("{path}matchConditions");
    let conditions = list(owner, "matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        errors.push(field::too_many(path, conditions.len(), MAX_CONDITIONS));
    }
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = format_args!("{path}[{i}]");
        match text(condition, "expression").trim() {
            "" => errors.push(field::required(format_args!("{path}.expression"), "")),
            source => {
                let environment = environment(params, true);
                expression_error(environment, format!("{path}.expression"), source, &[Output::Bool], errors);
            }
        }
        let path = format_args!("{path}.name");
        let name = text(condition, "name");
        if name.is_empty() {
            errors.push(field::required(path, ""));
            continue;
        }
        check_text(path, name, names::qualified_name_errors, errors);
        if !seen.insert(name) {
            errors.push(field::duplicate(path, name));
        }
    }
}

/// Whether the match conditions changed, or the parameters that they refer to.
pub(crate) fn conditions_changed(new: &Value, old: &Value) -> bool {
    ["spec.paramKind", "spec.matchConditions"].iter().any(|path| at(new, path) != at(old, path))
}

/// Adds the variables that a policy defines to the environment.
pub(crate) fn variables(spec: &Value, mut environment: Environment, errors: &mut Vec<Cause>) -> Environment {
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        let path = format_args!("spec.variables[{i}]");
        let (name, source) = (text(variable, "name"), text(variable, "expression"));
        if name.trim().is_empty() {
            errors.push(field::required(format_args!("{path}.name"), "name is not specified"));
        } else if !plinth_cel::is_identifier(name) {
            errors.push(field::invalid(format_args!("{path}.name"), name, "must be a valid CEL identifier"));
        }
        if source.trim().is_empty() {
            errors.push(field::required(format_args!("{path}.expression"), "expression is not specified"));
        } else if let Err(why) = environment.compose(name, source) {
            errors.push(field::invalid(format_args!("{path}.expression"), source, &why));
        }
    }
    environment
}
