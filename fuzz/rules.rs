//! The fuzz target of CEL rules, shared with the smoke test on stable Rust (`codec/cel/tests/rules.rs`).

use std::sync::LazyLock;

use plinth_cel::{Budget, DeclType, JsonSchema, Rule, Rules, SchemaCost};
use plinth_codec::{json, Value};

fn tree(text: &str) -> Value {
    json::parse(text.as_bytes()).expect("JSON of ours")
}

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    tree(
        r#"{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"integer"},"d":{"type":"number"},
        "l":{"type":"array","items":{"type":"string"}},"m":{"type":"object","additionalProperties":{"type":"integer"}},
        "o":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
        "items":{"type":"object","properties":{"k":{"type":"string"},"v":{"x-kubernetes-int-or-string":true}}}},
        "t":{"type":"string","format":"date-time"},"b":{"type":"string","format":"byte"}}}"#,
    )
});

static OBJECT: LazyLock<Value> = LazyLock::new(|| {
    tree(
        r#"{"s":"a\u00e9b","n":-9223372036854775808,"d":0.5,"l":["a","b"],"m":{"x":1},"o":[{"k":"a","v":"1"},{"k":"b","v":2}],
        "t":"2021-01-01T00:00:00Z","b":"aGk="}"#,
    )
});

/// A rule and its message expression, separated by a line break: compiled, and evaluated with and without an
/// old value, within the budget.
pub(crate) fn rules(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (rule, message) = text.split_once('\n').unwrap_or((&text, ""));
    let rule = Rule { rule: rule.into(), message_expression: message.into(), ..Rule::default() };
    let schema = JsonSchema(&SCHEMA);
    let declared = DeclType::of(schema, false).expect("a schema of ours");
    let rules = Rules::compile(&[rule], schema, &declared);
    drop(rules.errors("s", None, None, &mut SchemaCost::default()));
    for old in [None, Some(&*OBJECT)] {
        let mut budget = Budget::default();
        let verdict = rules.evaluate("o", &OBJECT, old, &mut || false, &mut budget);
        assert!(verdict.errors.len() <= 1, "one rule, one error");
    }
}
