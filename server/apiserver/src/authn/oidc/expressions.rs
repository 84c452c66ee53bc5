//! CEL expressions of a JWT authenticator: claim mappings, and validation rules for claims and user
//! (k8s.io/apiserver `pkg/authentication/cel`, `plugin/pkg/authenticator/token/oidc`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use plinth_cel::{Activation, Budget, Environment, Expression, Output, VariableType, OUT_OF_BUDGET};
use plinth_codec::{Map, Value};

use super::authenticators::{JwtAuthenticator, PrefixedClaim};
use super::claims::OidcError;
use plinth_api::{User, UserFields};

static CLAIMS: LazyLock<Environment> =
    LazyLock::new(|| Environment::default().with("claims", VariableType::Any));
static USERS: LazyLock<Environment> = LazyLock::new(|| {
    let user = format!(r#"{{"type":"object","properties":{{{}}}}}"#, UserFields::USER_INFO.schema());
    Environment::default().with("user", VariableType::of_schema(&user))
});

/// A validation rule and its error message.
#[derive(Debug)]
struct ValidationRule {
    expression: Expression,
    message: String,
}

/// The expressions of an authenticator, compiled. Immutable.
#[derive(Debug, Default)]
pub(super) struct Expressions {
    username: Option<Expression>,
    groups: Option<Expression>,
    uid: Option<Expression>,
    extra: Vec<(String, Expression)>,
    claim_rules: Vec<ValidationRule>,
    user_rules: Vec<ValidationRule>,
}

impl Expressions {
    /// Compiles the configuration's expressions and appends errors, each with its field below `path`.
    pub(super) fn compile(jwt: &JwtAuthenticator, path: &str, errors: &mut Vec<String>) -> Expressions {
        let mut compiler = Compiler { path, errors, seen: BTreeSet::new() };
        let mut expressions = Expressions::default();
        for (i, rule) in jwt.claim_validation_rules.iter().enumerate() {
            if rule.expression.is_empty() || !rule.claim.is_empty() {
                continue;
            }
            let field = format!("claimValidationRules[{i}]");
            if !rule.required_value.is_empty() {
                let why = "may not be specified when expression is set";
                compiler.error(&format!("{field}.requiredValue"), &rule.required_value, why);
            }
            expressions.claim_rules.extend(compiler.rule(&CLAIMS, &field, &rule.expression, &rule.message));
        }
        let mappings = &jwt.claim_mappings;
        let mut mapped = |name: &str, mapping: &PrefixedClaim| {
            let source =
                Some(mapping.expression.as_str()).filter(|s| !s.is_empty() && mapping.claim.is_empty());
            compiler.compile(&CLAIMS, &format!("claimMappings.{name}.expression"), source?, Output::Any)
        };
        expressions.username = mapped("username", &mappings.username);
        expressions.groups = mapped("groups", &mappings.groups);
        expressions.uid = mapped("uid", &mappings.uid);
        let mut keys = BTreeSet::new();
        for (i, mapping) in mappings.extra.iter().enumerate() {
            let field = format!("claimMappings.extra[{i}]");
            if let Some(why) = key_error(&mapping.key) {
                compiler.error(&format!("{field}.key"), &mapping.key, why);
            }
            if !keys.insert(&mapping.key) {
                compiler.errors.push(format!("{path}.{field}.key: Duplicate value: {:?}", mapping.key));
                continue;
            }
            let field = format!("{field}.valueExpression");
            match mapping.value_expression.as_str() {
                "" => compiler.errors.push(format!("{path}.{field}: Required value")),
                source => {
                    let compiled = compiler.compile(&CLAIMS, &field, source, Output::Any);
                    expressions.extra.extend(compiled.map(|expression| (mapping.key.clone(), expression)));
                }
            }
        }
        compiler.seen.clear();
        for (i, rule) in jwt.user_validation_rules.iter().enumerate() {
            let field = format!("userValidationRules[{i}]");
            match rule.expression.as_str() {
                "" => compiler.errors.push(format!("{path}.{field}.expression: Required value")),
                source => expressions.user_rules.extend(compiler.rule(&USERS, &field, source, &rule.message)),
            }
        }
        if expressions.uses_unverified_mail() {
            let why = "claims.email_verified must be used in claimMappings.username.expression or \
                claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when \
                claims.email is used in claimMappings.username.expression";
            compiler.error("claimMappings.username.expression", &mappings.username.expression, why);
        }
        expressions
    }

    /// Whether the user name is derived from an e-mail address without checking that it is verified.
    fn uses_unverified_mail(&self) -> bool {
        let of_extra = self.extra.iter().map(|(_, expression)| expression);
        let of_rules = self.claim_rules.iter().map(|rule| &rule.expression);
        let mut all = self.username.iter().chain(of_extra).chain(of_rules);
        self.username.as_ref().is_some_and(|e| e.selects("claims.email"))
            && !all.any(|e| e.selects("claims.email_verified"))
    }

    /// The user name, if an expression defines it.
    ///
    /// # Errors
    /// When the result is not a non-empty string.
    pub(super) fn username(&self, claims: &Value) -> Result<Option<String>, OidcError> {
        let Some(expression) = &self.username else { return Ok(None) };
        let failed = |why: &str| claim_error("error evaluating username claim expression", why);
        match evaluate(&CLAIMS, expression, "claims", claims).map_err(|why| failed(&why))? {
            Value::String(name) if name.is_empty() => {
                Err(OidcError::Claims("empty username via CEL expression is not allowed".to_owned()))
            }
            Value::String(name) => Ok(Some(name.to_string())),
            _ => Err(failed("username claim expression must return a string")),
        }
    }

    /// The groups, if an expression defines them.
    ///
    /// # Errors
    /// When the result is not strings.
    pub(super) fn groups(&self, claims: &Value) -> Result<Option<Vec<String>>, OidcError> {
        let Some(expression) = &self.groups else { return Ok(None) };
        let value = evaluate(&CLAIMS, expression, "claims", claims);
        let groups = value.and_then(|value| texts(&value));
        groups.map(Some).map_err(|why| claim_error("error evaluating group claim expression", &why))
    }

    /// The UID, if an expression defines it.
    ///
    /// # Errors
    /// When the result is not a string.
    pub(super) fn uid(&self, claims: &Value) -> Result<Option<String>, OidcError> {
        let Some(expression) = &self.uid else { return Ok(None) };
        let failed = |why: &str| claim_error("error evaluating uid claim expression", why);
        match evaluate(&CLAIMS, expression, "claims", claims).map_err(|why| failed(&why))? {
            Value::String(uid) => Ok(Some(uid.to_string())),
            _ => Err(failed("uid claim expression must return a string")),
        }
    }

    /// Adds extra values; empty ones are omitted.
    ///
    /// # Errors
    /// When a result is not strings.
    pub(super) fn extra(
        &self,
        claims: &Value,
        extra: &mut BTreeMap<String, Vec<String>>,
    ) -> Result<(), OidcError> {
        for (key, expression) in &self.extra {
            let values = evaluate(&CLAIMS, expression, "claims", claims).and_then(|value| texts(&value));
            let values = values.map_err(|why| {
                let what = format!("error evaluating extra claim expression: {}", expression.source());
                claim_error(&what, &why)
            })?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(())
    }

    /// Validates the claims.
    ///
    /// # Errors
    /// The first rule that is not satisfied.
    pub(crate) fn check_claims(&self, claims: &Value) -> Result<(), OidcError> {
        check(&CLAIMS, &self.claim_rules, "claims", claims)
            .map_err(|why| claim_error("error evaluating claim validation expression", &why))
    }

    /// Validates the user.
    ///
    /// # Errors
    /// The first rule that is not satisfied.
    pub(crate) fn check_user(&self, user: &User) -> Result<(), OidcError> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let mut value = Map::new();
        user.insert_all_into(&mut value, UserFields::USER_INFO);
        check(&USERS, &self.user_rules, "user", &Value::Object(value))
            .map_err(|why| claim_error("error evaluating user info validation rule", &why))
    }
}

struct Compiler<'c> {
    path: &'c str,
    errors: &'c mut Vec<String>,
    /// Rules compiled so far.
    seen: BTreeSet<String>,
}

impl Compiler<'_> {
    fn error(&mut self, field: &str, value: &str, why: &str) {
        self.errors.push(format!("{}.{field}: Invalid value: {value:?}: {why}", self.path));
    }

    fn compile(
        &mut self,
        environment: &Environment,
        field: &str,
        source: &str,
        output: Output,
    ) -> Option<Expression> {
        match environment.compile(source, &[output]) {
            Ok(expression) => Some(expression),
            Err(why) => {
                self.error(field, source, &why);
                None
            }
        }
    }

    fn rule(
        &mut self,
        environment: &Environment,
        field: &str,
        source: &str,
        message: &str,
    ) -> Option<ValidationRule> {
        let field = format!("{field}.expression");
        if !self.seen.insert(source.to_owned()) {
            self.errors.push(format!("{}.{field}: Duplicate value: {source:?}", self.path));
            return None;
        }
        let expression = self.compile(environment, &field, source, Output::Bool)?;
        Some(ValidationRule { expression, message: message.to_owned() })
    }
}

/// Validates the key of an extra value: a domain-prefixed path in lower case, without reserved domains.
fn key_error(key: &str) -> Option<&'static str> {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let path = key.split_once('/').map_or("", |(_, path)| path);
    if domain.is_empty() || path.is_empty() {
        return Some("must be a domain-prefixed path (such as \"acme.io/foo\")");
    }
    if !plinth_codec::names::dns1123_subdomain_errors(&domain.to_lowercase()).is_empty() {
        return Some("the domain is not valid");
    }
    if key != key.to_lowercase() {
        return Some("must be lowercase");
    }
    let reserved = ["kubernetes.io", "k8s.io"];
    let is_reserved = |of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    reserved
        .iter()
        .any(|of| is_reserved(of))
        .then_some("k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use")
}

fn claim_error(what: &str, why: &str) -> OidcError {
    OidcError::Claims(format!("{what}: {why}"))
}

fn evaluate(
    environment: &Environment,
    expression: &Expression,
    variable: &str,
    value: &Value,
) -> Result<Value, String> {
    let activation = Activation::new(environment).with(variable, value);
    match expression.evaluate(&activation, &mut Budget::default()) {
        Ok(outcome) => outcome,
        // These environments have no authorizer.
        Err(_) => Err(OUT_OF_BUDGET.to_owned()),
    }
}

fn check(
    environment: &Environment,
    rules: &[ValidationRule],
    variable: &str,
    value: &Value,
) -> Result<(), String> {
    for rule in rules {
        match evaluate(environment, &rule.expression, variable, value)? {
            Value::Bool(true) => {}
            _ => {
                return Err(format!(
                    "validation expression '{}' failed: {}",
                    rule.expression.source(),
                    rule.message
                ))
            }
        }
    }
    Ok(())
}

/// A string or a list of strings; empty ones and null are ignored.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    const WHY: &str = "expression must return a string or a list of strings";
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| WHY.to_owned());
    let all = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        one => vec![text(one)?],
    };
    Ok(all.into_iter().filter(|text| !text.is_empty()).collect())
}
