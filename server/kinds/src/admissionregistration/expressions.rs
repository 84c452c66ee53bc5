//! CEL in admission policies and match conditions. Expressions are compiled when the object is written, with
//! the variables that they will have. Match conditions of a stored object are compiled only when a change
//! touches them.

use std::collections::HashSet;

use plinth_cel::{Environment, Output};
use plinth_codec::{names, Value};

use crate::admissionregistration::environment::environment;
use crate::checks::Part;
use crate::path::at;

/// Maximum number of match conditions.
const MAX_CONDITIONS: usize = 64;

/// Compiles the expression of a field and reports its error, if any.
pub(crate) fn compile(
    part: &Part<'_>,
    key: &str,
    source: &str,
    environment: &Environment,
    outputs: &[Output],
) {
    if let Err(why) = environment.compile(source, outputs) {
        part.invalid(key, source, &why);
    }
}

/// Validates the match conditions of a webhook or of the spec of a policy.
pub(crate) fn match_conditions(owner: &Part<'_>, params: bool) {
    owner.at_most_items("matchConditions", MAX_CONDITIONS);
    let mut seen = HashSet::new();
    for condition in owner.each("matchConditions") {
        match condition.text("expression").trim() {
            "" => condition.required("expression", ""),
            source => {
                compile(&condition, "expression", source, environment(params, true), &[Output::Bool]);
            }
        }
        let name = condition.text("name");
        condition.required_text("name", "", names::qualified_name_errors);
        if !name.is_empty() {
            condition.unique("name", name, &mut seen);
        }
    }
}

/// Validates what is compiled of a policy: the match conditions only where `conditions` is set, and by `own`
/// the rest of its spec, with the variables that all policies have.
pub(crate) fn validate_policy(
    policy: &Part<'_>,
    conditions: bool,
    own: fn(policy: &Part<'_>, spec: &Part<'_>, environment: Environment),
) {
    let Some(spec) = policy.get("spec") else { return };
    let params = spec.has("paramKind");
    if conditions {
        match_conditions(&spec, params);
    }
    own(policy, &spec, environment(params, true).clone());
}

/// Whether the match conditions changed, or the parameters that they refer to.
pub(crate) fn conditions_changed(new: &Part<'_>, old: &Value) -> bool {
    ["spec.paramKind", "spec.matchConditions"].iter().any(|path| new.at(path) != at(old, path))
}

/// Adds the variables that a policy defines to the environment.
pub(crate) fn variables(spec: &Part<'_>, mut environment: Environment) -> Environment {
    for variable in spec.each("variables") {
        let (name, source) = (variable.text("name"), variable.text("expression"));
        if name.trim().is_empty() {
            variable.required("name", "name is not specified");
        } else if !plinth_cel::is_identifier(name) {
            variable.invalid("name", name, "must be a valid CEL identifier");
        }
        if source.trim().is_empty() {
            variable.required("expression", "expression is not specified");
        } else if let Err(why) = environment.compose(name, source) {
            variable.invalid("expression", source, &why);
        }
    }
    environment
}
