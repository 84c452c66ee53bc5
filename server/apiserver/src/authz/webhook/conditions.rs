//! Match conditions of a webhook: CEL expressions that decide whether the webhook is called.
//!
//! Upstream: k8s.io/apiserver `pkg/authorization/cel`. `request` is the spec of a SubjectAccessReview of v1
//! with all fields of user and attributes, including empty ones, and selectors if the request has some. A
//! condition that is false decides, even if others fail.

use std::collections::HashSet;
use std::sync::LazyLock;

use plinth_cel::{
    Activation, Budget, Environment, Expression, Interruption, Output, VariableType, OUT_OF_BUDGET,
};
use plinth_codec::{Map, Value};

use super::review;
use crate::authz::{aggregate, Attributes, Target};
use plinth_api::UserFields;

/// Maximum number of conditions per webhook.
const MAX_CONDITIONS: usize = 64;

/// Schema of `request`, without the members of the user.
const REQUEST: &str = r#"{"type":"object","properties":{
    "resourceAttributes":{"type":"object","properties":{
        "namespace":{"type":"string"},
        "verb":{"type":"string"},
        "group":{"type":"string"},
        "version":{"type":"string"},
        "resource":{"type":"string"},
        "subresource":{"type":"string"},
        "name":{"type":"string"},
        "fieldSelector":{"type":"object","properties":{
            "rawSelector":{"type":"string"},
            "requirements":{"type":"array","items":{"type":"object","properties":{
                "key":{"type":"string"},"operator":{"type":"string"},
                "values":{"type":"array","items":{"type":"string"}}}}}}},
        "labelSelector":{"type":"object","properties":{
            "rawSelector":{"type":"string"},
            "requirements":{"type":"array","items":{"type":"object","properties":{
                "key":{"type":"string"},"operator":{"type":"string"},
                "values":{"type":"array","items":{"type":"string"}}}}}}}}},
    "nonResourceAttributes":{"type":"object","properties":{"path":{"type":"string"},"verb":{"type":"string"}}},
    USER}}"#;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let request = REQUEST.replace("USER", &UserFields::ACCESS_REVIEW.schema());
    Environment::default().with("request", VariableType::of_schema(&request))
});

/// The conditions of one webhook, which must all be true. Immutable.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Vec<Expression>);

impl Conditions {
    /// Compiles the expressions of `matchConditions`; `at` is their field path.
    ///
    /// # Errors
    /// The first error, with its field.
    pub(in crate::authz) fn compile(conditions: &[&str], at: &str) -> Result<Conditions, String> {
        if conditions.len() > MAX_CONDITIONS {
            let count = conditions.len();
            return Err(format!("{at}: Too many: {count}: must have at most {MAX_CONDITIONS} items"));
        }
        let mut seen = HashSet::new();
        let compile = |(i, source): (usize, &&str)| {
            let at = format!("{at}[{i}].expression");
            if source.trim().is_empty() {
                return Err(format!("{at}: Required value"));
            }
            if !seen.insert((*source).to_owned()) {
                return Err(format!("{at}: Duplicate value: {source:?}"));
            }
            let compiled = ENVIRONMENT.compile(source, &[Output::Bool]);
            compiled.map_err(|why| format!("{at}: Invalid value: {source:?}: {why}"))
        };
        conditions.iter().enumerate().map(compile).collect::<Result<_, _>>().map(Conditions)
    }

    /// Whether the webhook must be called. Each condition has the cost limit of an expression.
    ///
    /// # Errors
    /// Evaluation errors, when no condition is false.
    pub(super) fn matches(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let request = request(attributes);
        let activation = Activation::new(&ENVIRONMENT).with("request", &request);
        let mut errors = Vec::new();
        for expression in &self.0 {
            match expression.evaluate(&activation, &mut Budget::new(i64::MAX)) {
                Ok(Ok(Value::Bool(false))) => return Ok(false),
                Ok(Ok(_)) => {}
                Ok(Err(why)) => errors.push(format!("cel evaluation error: {why}")),
                // These expressions have no authorizer variable.
                Err(Interruption::OutOfBudget | Interruption::Long | Interruption::Authorization(_)) => {
                    errors.push(OUT_OF_BUDGET.to_owned());
                }
            }
        }
        match errors.is_empty() {
            true => Ok(true),
            false => Err(aggregate(&errors)),
        }
    }
}

/// Builds the variable `request`.
fn request(attributes: &Attributes<'_>) -> Value {
    const ATTRIBUTES: [&str; 7] =
        ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
    let mut request = Map::new();
    attributes.user.insert_all_into(&mut request, UserFields::ACCESS_REVIEW);
    match attributes.target {
        Target::Resource(target) => {
            let mut members = review::resource_attributes(attributes.verb, &target);
            for key in ATTRIBUTES {
                if members.get(key).is_none() {
                    members.insert(key, "");
                }
            }
            request.insert("resourceAttributes", members);
        }
        Target::Path(path) => {
            let mut members = Map::new();
            members.insert("path", path);
            members.insert("verb", attributes.verb);
            request.insert("nonResourceAttributes", members);
        }
    }
    Value::Object(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::{ResourceTarget, Selectors};
    use plinth_api::User;

    fn conditions(sources: &[&str]) -> Result<Conditions, String> {
        Conditions::compile(sources, "c")
    }

    #[test]
    fn errors_by_table() {
        let many = ["1 == 1"; 65];
        // conditions, error
        let rows: [(&[&str], &str); 6] = [
            (&[" "], "c[0].expression: Required value"),
            (&["true", "true"], "c[1].expression: Duplicate value: \"true\""),
            (
                &["request.user"],
                "c[0].expression: Invalid value: \"request.user\": must evaluate to bool but got string",
            ),
            (&["request.nope == ''"], "undefined field 'nope'"),
            (&["object == null"], "undeclared reference to 'object'"),
            (&many, "c: Too many: 65: must have at most 64 items"),
        ];
        for (sources, error) in rows {
            let found = conditions(sources).unwrap_err();
            assert!(found.contains(error), "{sources:?}: {found}");
        }
    }

    #[test]
    fn questions_by_table() {
        let mut user = User::new("u", &["g"]);
        user.extra.insert("scopes".into(), vec!["s".into()]);
        let selectors = Selectors::of_query("fieldSelector=spec.nodeName%3Dn1&labelSelector=a,!b");
        let target = ResourceTarget {
            group: "apps",
            version: "v1",
            resource: "deployments",
            namespace: "kube-system",
            selectors: selectors.as_ref(),
            ..ResourceTarget::default()
        };
        let resource = Attributes::resource(&user, "list", target);
        let path = Attributes::path(&user, "get", "/x");
        // conditions, attributes, result or error
        let rows: [(&[&str], Attributes<'_>, Result<bool, &str>); 12] = [
            (&[], resource, Ok(true)),
            (&["has(request.resourceAttributes)"], resource, Ok(true)),
            (&["has(request.resourceAttributes)"], path, Ok(false)),
            (&["request.nonResourceAttributes.path == '/x' && request.nonResourceAttributes.verb == 'get'"], path, Ok(true)),
            (&["request.resourceAttributes.namespace == 'kube-system'", "request.resourceAttributes.name == ''"], resource, Ok(true)),
            (&["'g' in request.groups", "request.user == 'v'"], resource, Ok(false)),
            (&["request.uid == '' && request.extra['scopes'] == ['s']"], resource, Ok(true)),
            (&["request.resourceAttributes.fieldSelector.requirements[0].values == ['n1']"], resource, Ok(true)),
            (&["request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'b' && r.operator == 'DoesNotExist')"], resource, Ok(true)),
            // One that is false decides even if others fail.
            (&["request.resourceAttributes.verb == 'get'", "false"], path, Ok(false)),
            (
                &["request.resourceAttributes.verb == 'get'", "true"],
                path,
                Err("cel evaluation error: expression 'request.resourceAttributes.verb == 'get'' resulted in error: no such key: resourceAttributes"),
            ),
            (&["request.groups.all(a, request.groups.all(b, [a].map(c, c).size() == 1))"], resource, Ok(true)),
        ];
        for (sources, question, expected) in rows {
            let found = conditions(sources).unwrap().matches(&question);
            assert_eq!(
                found.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e),
                "{sources:?}"
            );
        }
    }
}
