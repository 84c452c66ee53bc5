//! Rules: where and on which values they are evaluated. The language is tested in `plinth_cel`.

use plinth_codec::field::Path;

use super::{schema, texts, value, with};
use crate::compile;
use crate::props::Props;
use crate::rules;

const SCHEMA: &str = "f: {type: object, x-kubernetes-validations: [{rule: 'self.a <= self.b'}], properties: {
        a: {type: integer}, b: {type: integer},
        l: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, required: [k],
            properties: {k: {type: string}, v: {type: integer, x-kubernetes-validations: [{rule: 'self >= oldSelf', message: shrinks}]}}}},
        m: {type: object, additionalProperties: {type: string, maxLength: 5, x-kubernetes-validations: [{rule: 'self != oldSelf || true'}, {rule: 'self != \"bad\"', message: is bad}]}}}}";

#[test]
fn rules_are_evaluated_at_every_depth() {
    let schema = schema(&with(SCHEMA));
    assert_eq!(schema.validate(&value("{f: {a: 1, b: 2, l: [{k: x, v: 1}], m: {q: good}}}")), []);
    let errors = texts(&schema.validate(&value("{f: {a: 3, b: 2, m: {q: bad}}}")));
    assert_eq!(
        errors,
        ["f: Invalid value: failed rule: self.a <= self.b", r#"f.m[q]: Invalid value: "bad": is bad"#]
    );
}

/// Rules over the inline limit return `None` instead of blocking the caller; without a limit they give the
/// usual errors.
#[test]
fn rules_may_be_limited_in_cost() {
    let pairs = "self.all(v, self.all(w, v == w || v != w)) && self.all(v, v == self[size(self) - 1])";
    let schema = schema(&with(&format!(
        "f: {{type: object, properties: {{l: {{type: array, maxItems: 200, x-kubernetes-validations: [{{rule: '{pairs}'}}],
            items: {{type: string, maxLength: 5}}}}}}}}"
    )));
    let object = |words: usize| value(&format!("{{f: {{l: [{}b]}}}}", "a, ".repeat(words)));
    // words, whether the rule is violated, whether it costs more than a thousand units
    for (words, broken, long) in [(0, false, false), (1, true, false), (100, true, true)] {
        let object = object(words);
        let outcomes = [
            schema.validate_inline(&object, Some(1_000)),
            schema.validate_update_inline(&object, &value("{f: {}}"), Some(1_000)),
            schema.validate_status_update_inline(&object, &value("{f: {}}"), Some(1_000)),
        ];
        for found in outcomes {
            assert_eq!(found.is_none(), long, "{words}");
            assert_eq!(found.is_some_and(|errors| !errors.is_empty()), broken && !long, "{words}");
        }
        assert_eq!(schema.validate(&object).len(), usize::from(broken), "{words}");
    }
}

#[test]
fn transition_rules_see_the_element_of_the_same_key() {
    let schema = schema(&with(SCHEMA));
    let old = value("{f: {a: 1, b: 2, l: [{k: x, v: 5}, {k: z, v: 1}]}}");
    let update = |new: &str| texts(&schema.validate_update(&value(new), &old));
    assert_eq!(update("{f: {a: 1, b: 2, l: [{k: z, v: 1}, {k: x, v: 5}, {k: w, v: 0}]}}"), [""; 0]);
    assert_eq!(
        update("{f: {a: 1, b: 2, l: [{k: z, v: 1}, {k: x, v: 4}]}}"),
        ["f.l[1].v: Invalid value: 4: shrinks"]
    );
}

#[test]
fn what_broke_a_rule_before_and_has_not_changed_passes() {
    let schema = schema(&with(&format!("{SCHEMA}, other: {{type: string}}")));
    let old = value("{f: {a: 3, b: 2}, other: x}");
    assert_eq!(schema.validate_update(&value("{f: {a: 3, b: 2}, other: z}"), &old), []);
    let changed = texts(&schema.validate_update(&value("{f: {a: 4, b: 2}, other: x}"), &old));
    assert_eq!(changed, ["f: Invalid value: failed rule: self.a <= self.b"]);
}

#[test]
fn blocking_errors_keep_rules_from_being_evaluated() {
    let schema = schema(&with(SCHEMA));
    let errors = texts(&schema.validate(&value("{f: {a: x, b: 2}}")));
    assert_eq!(errors, [
        r#"f.a: Invalid value: "string": f.a in body must be of type integer: "string""#,
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
    ]);
}

#[test]
fn rules_of_definitions_are_checked() {
    let errors = |schema: &str| {
        let schema = value(&with(schema));
        let (nodes, root) = compile::compile(Props::of(&schema)).unwrap();
        let path = Path::Root;
        texts(&rules::definition_errors(&nodes, root, &path.child("s"), true, false))
    };
    assert_eq!(errors(SCHEMA), [""; 0]);
    let found = errors("f: {type: string, x-kubernetes-validations: [{rule: ' '}]}");
    assert_eq!(
        found,
        ["s.properties[f].x-kubernetes-validations[0].rule: Required value: rule is not specified"]
    );
    let found = errors("f: {type: string, x-kubernetes-validations: [{rule: 'self.nope'}]}");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("s.properties[f].x-kubernetes-validations[0].rule: Invalid value: "),
        "{found:?}"
    );
    let found = errors("l: {type: array, maxItems: 3, items: {type: integer, x-kubernetes-validations: [{rule: 'self > oldSelf'}]}}");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with(
            "oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[l]"
        ),
        "{found:?}"
    );
    let found = errors(
        "f: {type: integer, default: 3, x-kubernetes-validations: [{rule: 'self > 5', message: small}]}",
    );
    assert_eq!(found, ["s.properties[f].default: Invalid value: 3: small"]);
}
