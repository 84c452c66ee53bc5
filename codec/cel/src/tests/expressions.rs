//! Expressions over declared variables: admission policies, match conditions, authorization checks.

use super::*;

/// Variables other than `self`, as in admission policies.
#[test]
fn variables_are_a_table() {
    let object = tree(r#"{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":3}}"#);
    let params = tree(r#"{"max":2}"#);
    let names = [("object", Type::Dyn), ("params", Type::Dyn), ("request.kind", Type::String)];
    let program =
        Program::compile("object.spec.replicas <= params.max && request.kind == 'x'", &names, None).unwrap();
    let variables = [Some(Val::of_untyped(&object)), Some(Val::of_untyped(&params)), None];
    let (outcome, _) = program.evaluate(&variables, PER_CALL_LIMIT);
    assert!(matches!(outcome, Ok(Val::Bool(false))), "{outcome:?}");
    assert!(program.uses(0) && program.uses(1) && program.uses(2));
}

/// The result of an expression over `object`, `request` and an authorizer that allows checks of `pods`; and
/// the number of authorization checks.
fn evaluated(environment: &Environment, source: &str, object: &Value) -> (Result<Value, String>, usize) {
    let expression = match environment.compile(source, &[Output::Any]) {
        Ok(expression) => expression,
        Err(why) => return (Err(why), 0),
    };
    let activation =
        Activation::new(environment).with("object", object).with_authorizer("authorizer").with_resource(
            "authorizer.requestResource",
            ResourceAttributes { resource: "pods".into(), ..Default::default() },
        );
    let mut budget = Budget::default();
    for asked in 0..10 {
        match expression.evaluate(&activation, &mut budget) {
            Ok(outcome) => return (outcome, asked),
            Err(Interruption::OutOfBudget | Interruption::Long) => {
                return (Err(OUT_OF_BUDGET.to_owned()), asked)
            }
            Err(Interruption::Authorization(question)) => {
                let allowed = match &question.target {
                    AuthorizationTarget::Path(path) => path == "/healthz",
                    AuthorizationTarget::Resource(r) => {
                        r.resource == "pods" && question.principal == Principal::Requester
                    }
                };
                activation.answer(
                    *question,
                    AuthorizationDecision { allowed, reason: "asked".to_owned(), error: None },
                );
            }
        }
    }
    panic!("{source} asks without end");
}

fn admission() -> Environment {
    Environment::default()
        .with("object", VariableType::Any)
        .with("authorizer", VariableType::Authorizer)
        .with("authorizer.requestResource", VariableType::ResourceCheck)
}

#[test]
fn expressions_ask_the_authorizers() {
    let pods = "authorizer.group('').resource('pods')";
    // expression, outcome, authorization checks
    let rows = [
        ("object.a == 1", Ok(true), 0),
        ("object.b == 1", Err("expression 'object.b == 1' resulted in error: no such key: b"), 0),
        ("has(object.b) && object.b", Ok(false), 0),
        // Absent values and values that are not objects have no fields.
        ("has(object.a.b) || has(object.none.b)", Ok(false), 0),
        ("object.none.b == 1", Err("no such key: b"), 0),
        ("object.a.b == 1", Err("no such key: b"), 0),
        ("object.a.?b.hasValue()", Ok(false), 0),
        (&format!("{pods}.check('get').allowed()"), Ok(true), 1),
        ("authorizer.group('').resource('nodes').check('get').allowed()", Ok(false), 1),
        ("authorizer.group('').resource('nodes').check('get').reason() == 'asked'", Ok(true), 1),
        ("authorizer.path('/healthz').check('get').allowed()", Ok(true), 1),
        ("authorizer.requestResource.check('x').allowed()", Ok(true), 1),
        ("authorizer.serviceAccount('a', 'b').group('').resource('pods').check('x').allowed()", Ok(false), 1),
        // An authorization check is made although the other operand might be decisive, and only once.
        (&format!("{pods}.check('get').allowed() || true"), Ok(true), 1),
        (&format!("{pods}.check('get').allowed() && {pods}.check('get').allowed()"), Ok(true), 1),
        (&format!("[1, 2].all(i, {pods}.name(string(i)).check('get').allowed())"), Ok(true), 2),
        (
            &format!("[1, 2, 3].all(i, {pods}.name(string(i)).check('get').allowed())"),
            Err("operation cancelled: actual cost limit exceeded"),
            2,
        ),
        (&format!("{pods}.fieldSelector('a=b').labelSelector('c').check('list').errored()"), Ok(false), 1),
        ("authorizer.path(' ').check('get').allowed()", Err("path must not be empty"), 0),
        ("authorizer.serviceAccount('A', 'b').path('/').check('get').allowed()", Err("Invalid service account namespace"), 0),
        ("authorizer.allowed()", Err("found no matching overload for 'allowed' applied to 'kubernetes.authorization.Authorizer.()'"), 0),
        ("authorizer.path('/').x", Err("unexpected failed resolution of 'kubernetes.authorization.PathCheck'"), 0),
        ("variables.a", Err("undeclared reference to 'variables'"), 0),
    ];
    let object = tree(r#"{"a":1,"none":null}"#);
    for (source, expected, questions) in rows {
        let (outcome, asked) = evaluated(&admission(), source, &object);
        match (&outcome, expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value.as_bool(), Some(expected), "{source}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{source}: {why}"),
            _ => panic!("{source}: {outcome:?}"),
        }
        assert_eq!(asked, questions, "{source}");
    }
}

#[test]
fn variables_are_evaluated_when_they_are_looked_at() {
    let mut environment = admission().composed();
    let made = [
        ("one", "object.a", Ok(())),
        ("two", "variables.one + 1", Ok(())),
        ("absent", "object.nope", Ok(())),
        ("may", "authorizer.group('').resource('pods').check('get').allowed()", Ok(())),
        ("broken", "nope", Err("undeclared reference to 'nope'")),
        ("later", "variables.last", Err("undefined field 'last'")),
        ("texts", "['a', 'b']", Ok(())),
        ("last", "object.a", Ok(())),
        // Of two with one name the later one counts, and it can refer to the earlier.
        ("twice", "1", Ok(())),
        ("twice", "variables.twice + 1", Ok(())),
    ];
    for (name, source, expected) in made {
        match (environment.compose(name, source), expected) {
            (Ok(()), Ok(())) => {}
            (Err(why), Err(part)) => assert!(why.contains(part), "{name}: {why}"),
            (outcome, _) => panic!("{name}: {outcome:?}"),
        }
    }
    let rows = [
        ("variables.two", Ok("2")),
        ("variables.twice", Ok("2")),
        ("has(variables.one)", Ok("true")),
        ("has(object.nope) && variables.absent", Ok("false")),
        ("variables.may", Ok("true")),
        ("variables.texts.map(t, t + '!')", Ok(r#"["a!","b!"]"#)),
        ("variables.absent", Err(r#"composited variable "absent" fails to evaluate: no such key: nope"#)),
        (
            "variables.broken",
            Err(r#"composited variable "broken" fails to compile: compilation failed: ERROR"#),
        ),
        ("variables.nope", Err("undefined field 'nope'")),
        ("variables.texts + 1", Err("found no matching overload")),
    ];
    let object = tree(r#"{"a":1}"#);
    for (source, expected) in rows {
        match (evaluated(&environment, source, &object).0, expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, tree(expected), "{source}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{source}: {why}"),
            (outcome, _) => panic!("{source}: {outcome:?}"),
        }
    }
}

#[test]
fn expressions_say_what_they_make() {
    let rows = [
        ("object.a == 1", &[Output::Bool][..], ""),
        ("object.a", &[Output::Bool], "must evaluate to bool but got dyn"),
        ("'a'", &[Output::Bool], "must evaluate to bool but got string"),
        ("null", &[Output::Text, Output::Null], ""),
        ("1", &[Output::Text, Output::Null], "must evaluate to one of [string null_type] but got int"),
        ("authorizer", &[Output::Any], ""),
    ];
    for (source, outputs, error) in rows {
        let found = admission().compile(source, outputs).err().unwrap_or_default();
        assert_eq!(found, error, "{source}");
    }
}
