//! Compared with kube-apiserver v1.36.2: `tests/reference.json` has expressions with the value (`true`,
//! `false` or the error), the error of the definition (empty when it is accepted) and the estimated cost (1
//! for at most 1, -1 for more than a billion), all over one schema and object.

use std::collections::BTreeSet;

use plinth_codec::json;
use plinth_codec::value::Value;
use smol_str::SmolStr;

use super::context::EvalError;
use super::library;
use super::limits::PER_CALL_LIMIT;
use super::program::{CompileError, Program};
use super::types::Type;
use super::value::Val;
use super::*;

mod expressions;

fn tree(text: &str) -> Value {
    json::parse(text.as_bytes()).expect("JSON of a test")
}

fn reference() -> Value {
    tree(include_str!("reference.json"))
}

fn rows<'a>(reference: &'a Value, table: &str) -> Vec<(&'a str, &'a Value)> {
    let rows = reference.get(table).and_then(Value::as_array).unwrap();
    rows.iter()
        .map(|row| (row.as_array().unwrap()[0].as_str().unwrap(), &row.as_array().unwrap()[1]))
        .collect()
}

fn rule(text: &str) -> Rule {
    Rule { rule: SmolStr::new(text), ..Rule::default() }
}

/// Rules over a schema, which is the root of a resource.
fn compiled(rules: &[Rule], schema: &Value) -> (Rules, DeclType) {
    let declared = DeclType::of(JsonSchema(schema), true).unwrap();
    (Rules::compile(rules, JsonSchema(schema), &declared), declared)
}

/// The first error of a rule's expression, with which the definition would be refused; without the entry that
/// it shows.
fn error(text: &str, schema: &Value) -> String {
    let (rules, _) = compiled(&[rule(text)], schema);
    let errors = rules.errors("x", Some(1), None, &mut SchemaCost::default());
    let error = errors.iter().find(|f| f.reason == plinth_codec::field::Reason::Invalid);
    let message = error.map(|f| f.message.clone()).unwrap_or_default();
    message.split_once("}: ").map_or(message.clone(), |(_, why)| why.to_owned())
}

fn value_of(text: &str, schema: &Value, object: &Value) -> String {
    let error = error(text, schema);
    if !error.is_empty() {
        return error;
    }
    let (rules, _) = compiled(&[rule(text)], schema);
    let verdict = rules.evaluate("", object, None, &mut || false, &mut Budget::default());
    match verdict.errors.first() {
        None => "true".to_owned(),
        Some(e) if e.message == format!("Invalid value: failed rule: {text}") => "false".to_owned(),
        Some(e) => {
            let message = e.message.strip_prefix("Invalid value: \"object\": ").unwrap_or(&e.message);
            message.strip_suffix(&format!(" evaluating rule: {text}")).unwrap_or(message).to_owned()
        }
    }
}

/// Intentional differences, with their reasons.
const DIFFERENCES: &[(&str, &str)] = &[
    // Times are kept in UTC; upstream's keep the offset that they were written with.
    ("string(timestamp('2020-01-01T01:00:00+01:00')) == '2020-01-01T00:00:00Z'", "true"),
];

/// Names of types of objects differ: upstream generates new ones for each definition, and only errors show
/// them.
fn without_object_names(text: &str) -> String {
    let mut words = String::new();
    for word in text.split_inclusive(|c: char| !(c.is_alphanumeric() || ".@".contains(c))) {
        match word.starts_with("selfType") {
            true => {
                let end =
                    word.find(|c: char| !(c.is_alphanumeric() || ".@".contains(c))).unwrap_or(word.len());
                words.push_str("object");
                words.push_str(&word[end..]);
            }
            false => words.push_str(word),
        }
    }
    words
}

fn report(differences: &[String]) {
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn values_are_those_of_the_reference() {
    let reference = reference();
    let (schema, object) = (reference.get("schema").unwrap(), reference.get("object").unwrap());
    let mut differences = Vec::new();
    for (text, expected) in rows(&reference, "values") {
        let expected = without_object_names(expected.as_str().unwrap());
        let known = DIFFERENCES.iter().find(|(known, _)| *known == text);
        let ours = value_of(text, schema, object);
        if ours != known.map_or(expected.as_str(), |(_, ours)| ours) {
            differences.push(format!("{text}\n   reference {expected:?}\n   ours      {ours:?}"));
        }
    }
    report(&differences);
}

#[test]
fn errors_are_those_of_the_reference() {
    let reference = reference();
    let schema = reference.get("schema").unwrap();
    let mut differences = Vec::new();
    for (text, expected) in rows(&reference, "errors") {
        let expected = without_object_names(expected.as_str().unwrap());
        let ours = error(text, schema);
        if ours != expected {
            differences.push(format!("{text}\n   reference {expected:?}\n   ours      {ours:?}"));
        }
    }
    report(&differences);
}

#[test]
fn estimated_costs_are_those_of_the_reference() {
    let reference = reference();
    let mut item = reference.get("schema").unwrap().clone();
    item.object_at_mut(&["properties"])
        .unwrap()
        .insert("metadata", tree(r#"{"type":"object","properties":{"name":{"type":"string"}}}"#));
    let declared = DeclType::of(JsonSchema(&item), false).unwrap();
    let names = [("self", declared.to_type()), ("oldSelf", declared.to_type())];
    let mut differences = Vec::new();
    for (text, expected) in rows(&reference, "costs") {
        let cost = match Program::compile(text, &names, Some(&declared)) {
            Ok(program) => program.estimated_cost(),
            Err(error) => {
                differences.push(format!("{text}: {error:?}"));
                continue;
            }
        };
        let same = match expected.as_int().unwrap() {
            -1 => cost > 1_000_000_000,
            1 => cost <= 1,
            exact => cost == exact as u64,
        };
        if !same {
            differences.push(format!("{text}: reference {expected:?}, ours {cost}"));
        }
    }
    report(&differences);
}

/// Functions of the authorizer, which rules of a schema do not have; see `expressions_ask_the_authorizers`.
fn is_authorization(t: &Type) -> bool {
    t.to_string().starts_with("kubernetes.authorization.")
}

/// Every function of the library is called by an expression that the reference evaluated.
#[test]
fn every_function_was_compared() {
    let reference = reference();
    let expressions: Vec<&str> = rows(&reference, "values").iter().map(|(text, _)| *text).collect();
    let all = expressions.join("\n");
    let missing: BTreeSet<&str> = library::functions()
        .filter(|f| !f.overloads.iter().any(|o| o.args.first().is_some_and(is_authorization)))
        .map(|f| f.name)
        .filter(|name| name.chars().next().is_some_and(char::is_alphabetic) && !name.contains('@'))
        .filter(|name| !all.contains(&format!("{name}(")))
        .collect();
    // Too costly there without bounds in the schema; their costs are compared, and `lists_and_texts` has
    // values.
    let elsewhere = BTreeSet::from([
        "join",
        "sort",
        "format.dns1035Label",
        "format.dns1035LabelPrefix",
        "format.dns1123Subdomain",
        "format.dns1123SubdomainPrefix",
        "sign",
        "uint",
        "hasValue",
        // Of mutations only: `message`.
        "jsonpatch.escapeKey",
    ]);
    let unexpected: Vec<_> = missing.difference(&elsewhere).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

fn evaluate(text: &str, limit: u64) -> (Result<String, String>, u64) {
    let program = Program::compile(text, &[], None).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let (outcome, cost) = program.evaluate(&[], limit);
    (outcome.map(|v| format!("{v:?}")).map_err(|e| e.to_string()), cost)
}

#[test]
fn lists_and_texts() {
    for (text, expected) in [
        ("['a', 'b'].join() == 'ab'", true),
        ("['a', 'b'].join('-') == 'a-b'", true),
        ("['b', 'a'].sort() == ['a', 'b']", true),
        ("[3, 1, 2].sort() == [1, 2, 3]", true),
        ("[{'n': 1}, {'n': 2}].sortBy(o, -o.n).map(o, o.n) == [2, 1]", true),
        ("[1, 2].map(x, x + 1) == [2, 3]", true),
        ("[1, 2].map(x, x > 1, x + 1) == [3]", true),
        ("[1, 2].filter(x, x > 1) == [2]", true),
        ("uint(3) == 3u", true),
        ("sign(quantity('-1')) == -1", true),
        ("format.dns1035Label().validate('1a').hasValue()", true),
        ("format.dns1035LabelPrefix().validate('a-').hasValue()", false),
        ("format.dns1123Subdomain().validate('a.b').hasValue()", false),
        ("format.dns1123SubdomainPrefix().validate('a.b-').hasValue()", false),
        ("{'x': 1, 'y': 2}.transformList(k, v, k + string(v)) == ['x1', 'y2']", true),
    ] {
        assert_eq!(evaluate(text, PER_CALL_LIMIT).0, Ok(format!("Bool({expected})")), "{text}");
    }
}

/// Expressions that would take hours, or more memory than available, end at the cost limit.
#[test]
fn evaluation_is_bounded() {
    let nested = |depth: usize| {
        let mut text = "true".to_owned();
        for i in 0..depth {
            text = format!("lists.range(1000).all(x{i}, {text})");
        }
        text
    };
    let doubling = |from: &str, times: usize| {
        let mut text = format!("[{from}]");
        for _ in 0..times {
            text.push_str(".map(x, x + x)");
        }
        format!("{text}[0].size() == 0")
    };
    for text in [
        nested(4),
        "lists.range(1000000000).size() == 0".to_owned(),
        "lists.range(900000).map(x, [x, x, x, x]).flatten().size() == 0".to_owned(),
        doubling("'aaaaaaaaaaaaaaaa'", 60),
        doubling("[1, 2, 3, 4]", 90),
        "lists.range(2000).all(x, lists.range(2000) == lists.range(2000))".to_owned(),
        "lists.range(2000).distinct().size() == 0".to_owned(),
        "lists.range(100000).map(x, string(x).matches('a*' + string(x) + '*b')).size() == 0".to_owned(),
        "lists.range(100000).all(x, 'abc'.replace('', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').size() > 1)".to_owned(),
    ] {
        let (outcome, cost) = evaluate(&text, PER_CALL_LIMIT);
        assert_eq!(outcome, Err(EvalError::CostLimit.to_string()), "{text}");
        assert!(cost > PER_CALL_LIMIT, "{text}");
    }
    // Cheap expressions are evaluated: the limit does not depend on size alone.
    assert_eq!(evaluate(&nested(1), PER_CALL_LIMIT).0, Ok("Bool(true)".to_owned()));
}

#[test]
fn expressions_are_bounded_in_length_and_depth() {
    let compile = |text: &str| Program::compile(text, &[], None).map(|_| ());
    let too_long = format!("'{}' == ''", "a".repeat(100_000));
    let Err(CompileError::Compilation(why)) = compile(&too_long) else { panic!("too long, but compiled") };
    assert!(why.contains("expression code point size exceeds limit: size: 100008, limit 100000"), "{why}");
    for deep in [
        format!("{}true{}", "(".repeat(300), ")".repeat(300)),
        format!("{}1{} == 1", "[".repeat(300), "]".repeat(300)),
        format!("1{} == 1", " + 1".repeat(5000)),
        format!("'a'{} == 1", ".a".repeat(30_000)),
        format!("[1]{} == 1", "[0]".repeat(20_000)),
    ] {
        let Err(CompileError::Compilation(why)) = compile(&deep) else { panic!("too deep, but compiled") };
        assert!(why.contains("recursion limit exceeded"), "{why}");
    }
    assert_eq!(compile(&vec!["true"; 5000].join(" && ")), Ok(()));
    // A regression test: each of these doubled the tree below it.
    let chained = format!("optional.of(1){}.hasValue()", ".optMap(x, x)".repeat(60));
    assert_eq!(compile(&chained), Ok(()));
}

const SPEC: &str = r#"{"type":"object","properties":{
    "replicas":{"type":"integer"},"name":{"type":"string","maxLength":10},
    "a.b":{"type":"object","additionalProperties":{"type":"string","maxLength":5},"maxProperties":2}}}"#;

#[test]
fn errors_have_message_reason_and_path() {
    let schema = tree(SPEC);
    let value = tree(r#"{"replicas":5,"name":"x"}"#);
    let base = rule("self.replicas < 3");
    let with = |change: fn(&mut Rule)| {
        let mut rule = base.clone();
        change(&mut rule);
        rule
    };
    for (rule, expected) in [
        (base.clone(), "spec: Invalid value: failed rule: self.replicas < 3"),
        (with(|r| r.message = " too many ".into()), "spec: Invalid value: too many"),
        (with(|r| r.reason = "FieldValueForbidden".into()), "spec: Forbidden: failed rule: self.replicas < 3"),
        (with(|r| r.reason = "FieldValueRequired".into()), "spec: Required value: failed rule: self.replicas < 3"),
        (with(|r| r.reason = "FieldValueDuplicate".into()), "spec: Duplicate value"),
        (with(|r| r.field_path = ".replicas".into()), "spec.replicas: Invalid value: failed rule: self.replicas < 3"),
        (with(|r| r.field_path = "['a.b'].k".into()), "spec.a.b[k]: Invalid value: failed rule: self.replicas < 3"),
        (
            with(|r| r.message_expression = "'%d of %s'.format([self.replicas, self.name])".into()),
            "spec: Invalid value: 5 of x",
        ),
        // A message that is empty, has line breaks or fails to evaluate: the fixed message is used.
        (with(|r| r.message_expression = "' '".into()), "spec: Invalid value: failed rule: self.replicas < 3"),
        (with(|r| r.message_expression = "'a\\nb'".into()), "spec: Invalid value: failed rule: self.replicas < 3"),
        (with(|r| r.message_expression = "string(1 / 0)".into()), "spec: Invalid value: failed rule: self.replicas < 3"),
        (self::rule("self.replicas / 0 == 1"), "spec: Invalid value: \"object\": division by zero evaluating rule: self.replicas / 0 == 1"),
        (
            self::rule("dyn(self.replicas) + 'a' == 'b'"),
            "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, \
             function or macro signature for rule: dyn(self.replicas) + 'a' == 'b'",
        ),
        (
            self::rule("lists.range(500).all(x, lists.range(5000).all(y, true))"),
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation \
             rules will be run due to call cost exceeds limit for rule: lists.range(500).all(x, lists.range(5000).all(y, \
             true))",
        ),
    ] {
        let declared = DeclType::of(JsonSchema(&schema), false).unwrap();
        let rules = Rules::compile(std::slice::from_ref(&rule), JsonSchema(&schema), &declared);
        let verdict = rules.evaluate("spec", &value, None, &mut || false, &mut Budget::default());
        let errors: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, [expected]);
        let unchanged = rules.evaluate("spec", &value, None, &mut || true, &mut Budget::default());
        let passed = expected.contains("\"object\"");
        assert_eq!(unchanged.errors.is_empty(), !passed, "ratcheted: {expected}");
        assert_eq!(unchanged.warnings.len(), usize::from(!passed));
    }
}

#[test]
fn transition_rules_need_an_old_value_unless_it_is_optional() {
    let schema = tree(SPEC);
    let (new, old) = (tree(r#"{"replicas":5}"#), tree(r#"{"replicas":7}"#));
    let strict = rule("self.replicas >= oldSelf.replicas");
    let optional = Rule {
        optional_old_self: Some(true),
        ..rule("oldSelf.hasValue() && self.replicas >= oldSelf.value().replicas")
    };
    for (rule, old, errors) in [
        (&strict, None, 0),
        (&strict, Some(&old), 1),
        (&optional, None, 1),
        (&optional, Some(&old), 1),
        (&strict, Some(&new), 0),
    ] {
        let (rules, _) = compiled(std::slice::from_ref(rule), &schema);
        // Transition rules are never ratcheted.
        let verdict = rules.evaluate("", &new, old, &mut || true, &mut Budget::default());
        assert_eq!(verdict.errors.len(), errors, "{rule:?} {old:?}");
    }
    let errors = |rule: &Rule, within| {
        let (rules, _) = compiled(std::slice::from_ref(rule), &schema);
        let errors = rules.errors("s", Some(1), within, &mut SchemaCost::default());
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        errors(&strict, Some("s.list")),
        ["s.x-kubernetes-validations[0].rule: Invalid value: \"self.replicas >= oldSelf.replicas\": oldSelf cannot be used on \
          the uncorrelatable portion of the schema within s.list"]
    );
    let useless = Rule { optional_old_self: Some(true), ..rule("self.replicas > 1") };
    assert_eq!(
        errors(&useless, None),
        ["s.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"]
    );
}

#[test]
fn the_budget_is_shared_by_all_rules() {
    let schema = tree(SPEC);
    let value = tree(r#"{"replicas":5}"#);
    let costly = rule("lists.range(300).all(x, lists.range(300).all(y, true))");
    let (rules, _) = compiled(&vec![costly; 100], &schema);
    let mut budget = Budget::default();
    let verdict = rules.evaluate("spec", &value, None, &mut || false, &mut budget);
    let errors: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
    let expected = "spec: Invalid value: \"object\": validation failed due to running out of cost budget, no further validation \
                    rules will be run";
    assert_eq!(errors, [expected]);
    assert!(budget.is_exhausted());
}

#[test]
fn expensive_rules_are_refused_with_their_factor() {
    let schema = tree(r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}}}}"#);
    let (rules, _) =
        compiled(&[rule("self.l.all(x, self.l.all(y, x == y))"), rule("self.l.all(x, x == 'a')")], &schema);
    let mut cost = SchemaCost::default();
    let errors: Vec<String> =
        rules.errors("root", Some(1), None, &mut cost).iter().map(ToString::to_string).collect();
    let advice = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are \
                  declared)";
    assert_eq!(
        errors,
        [format!("root.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {advice}")]
    );
    let total: Vec<String> = cost.errors("root").iter().map(ToString::to_string).collect();
    assert_eq!(
        total,
        [
            "root.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for \
             entire OpenAPIv3 schema"
                .to_owned(),
            "root.x-kubernetes-validations[1].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for \
             entire OpenAPIv3 schema"
                .to_owned(),
            format!(
                "root: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by \
                 factor of more than 100x {advice}"
            ),
        ]
    );
}

#[test]
fn entries_are_checked_before_their_expressions() {
    let schema = tree(SPEC);
    for (entry, expected) in [
        (r#"{"rule":" "}"#, "e.rule: Required value: rule is not specified"),
        (r#"{"rule":"a","message":" "}"#, "e.message: Invalid value: \" \": must be non-empty if specified"),
        (r#"{"rule":"a","message":"b\nc"}"#, "e.message: Invalid value: \"b\\nc\": must not contain line breaks"),
        (r#"{"rule":"a\nb"}"#, "e.message: Required value: message must be specified if rule contains line breaks"),
        (r#"{"rule":"a","messageExpression":" "}"#, "e.messageExpression: Required value: messageExpression must be non-empty if specified"),
        (
            r#"{"rule":"a","reason":"Nope"}"#,
            "e.reason: Unsupported value: \"Nope\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \
             \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
        (r#"{"rule":"a","fieldPath":".nope"}"#, "e.fieldPath: Invalid value: \".nope\": must be a valid path"),
        (r#"{"rule":"a","fieldPath":"replicas"}"#, "e.fieldPath: Invalid value: \"replicas\": must be a valid path"),
    ] {
        let errors = Rule::from_value(&tree(entry)).errors("e", JsonSchema(&schema));
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
    assert_eq!(
        Rule::from_value(&tree(r#"{"rule":"a","fieldPath":".replicas"}"#)).errors("e", JsonSchema(&schema)),
        []
    );
}
