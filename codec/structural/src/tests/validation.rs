//! Validation: each keyword, with upstream's messages.

use plinth_codec::field::Path;

use super::{schema, texts, value, with};
use crate::validate;

/// Schema of `f`, value of `f`, errors.
type Case = (&'static str, &'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    // Types.
    ("{type: string}", "x", &[]),
    ("{type: string}", "1", &[r#"f: Invalid value: "integer": f in body must be of type string: "integer""#]),
    ("{type: string}", "null", &[r#"f: Invalid value: "null": f in body must be of type string: "null""#]),
    ("{type: string, nullable: true}", "null", &[]),
    ("{type: integer}", "1.0", &[]),
    ("{type: integer}", "1.5", &[r#"f: Invalid value: "number": f in body must be of type integer: "number""#, "f: Invalid value: \"\": Checked value must be of type integer (default format) in f"]),
    ("{type: number}", "1", &[]),
    ("{type: number}", "x", &[r#"f: Invalid value: "string": f in body must be of type number: "string""#]),
    ("{type: boolean}", "[]", &[r#"f: Invalid value: "array": f in body must be of type boolean: "array""#]),
    ("{type: object}", "true", &[r#"f: Invalid value: "boolean": f in body must be of type object: "boolean""#]),
    ("{type: array, items: {type: string}}", "{}", &[r#"f: Invalid value: "object": f in body must be of type array: "object""#]),
    ("{x-kubernetes-int-or-string: true}", "1", &[]),
    ("{x-kubernetes-int-or-string: true}", "a", &[]),
    ("{x-kubernetes-int-or-string: true}", "1.5", &[r#"f: Invalid value: "number": f in body must be of type integer,string: "number""#]),
    ("{x-kubernetes-int-or-string: true}", "null", &[r#"f: Invalid value: "null": f in body must be of type integer,string: "null""#]),
    ("{x-kubernetes-preserve-unknown-fields: true}", "[{a: 1}]", &[]),
    // Formats.
    ("{type: string, format: date-time}", "'2024-02-29T10:11:12Z'", &[]),
    ("{type: string, format: date-time}", "soon", &[r#"f: Invalid value: "soon": f in body must be of type date-time: "soon""#]),
    ("{type: string, format: ipv4}", "'1.2.3'", &[r#"f: Invalid value: "1.2.3": f in body must be of type ipv4: "1.2.3""#]),
    ("{type: string, format: nonsense}", "x", &[]),
    ("{type: string, format: date}", "7", &[r#"f: Invalid value: "int64": f in body must be of type date: "int64""#]),
    ("{type: integer, format: int32}", "2147483648", &["f: Invalid value: \"\": Checked value must be of type integer with format int32 in f"]),
    ("{type: integer, format: int32}", "true", &[r#"f: Invalid value: "": f in body must be of type int32: """#]),
    ("{type: integer, format: int64}", "2147483648", &[]),
    ("{type: number, format: float}", "1e300", &["f: Invalid value: \"\": Checked value must be of type number with format float in f"]),
    // Texts.
    ("{type: string, maxLength: 2}", "äö", &[]),
    ("{type: string, maxLength: 2}", "abc", &["f: Too long: may not be more than 2 bytes"]),
    ("{type: string, minLength: 2}", "a", &[r#"f: Invalid value: "a": f in body should be at least 2 chars long"#]),
    ("{type: string, pattern: '^a+$'}", "ab", &[r#"f: Invalid value: "ab": f in body should match '^a+$'"#]),
    ("{type: string, pattern: '^a', maxLength: 1}", "bb", &["f: Too long: may not be more than 1 byte"]),
    ("{type: string, enum: [a, b]}", "c", &[r#"f: Unsupported value: "c": supported values: "a", "b""#]),
    ("{type: string, enum: [a, b]}", "a", &[]),
    ("{type: string, nullable: true, enum: [a, null]}", "null", &[r#"f: Unsupported value: null: supported values: "a", "null""#]),
    ("{type: integer, enum: [1, 2]}", "1.0", &[]),
    ("{type: integer, enum: [1, 2]}", "3", &[r#"f: Unsupported value: 3: supported values: "1", "2""#]),
    // Numbers.
    ("{type: integer, maximum: 5}", "6", &["f: Invalid value: 6: f in body should be less than or equal to 5"]),
    ("{type: integer, maximum: 5, exclusiveMaximum: true}", "5", &["f: Invalid value: 5: f in body should be less than 5"]),
    ("{type: number, minimum: 0.5}", "0", &["f: Invalid value: 0: f in body should be greater than or equal to 0.5"]),
    ("{type: number, minimum: 1, exclusiveMinimum: true}", "1.0", &["f: Invalid value: 1: f in body should be greater than 1"]),
    ("{type: number, maximum: 1000000}", "1000000.5", &["f: Invalid value: 1.0000005e+06: f in body should be less than or equal to 1e+06"]),
    ("{type: integer, multipleOf: 3}", "7", &["f: Invalid value: 7: f in body should be a multiple of 3"]),
    ("{type: number, multipleOf: 0.1}", "0.3", &[]),
    ("{type: number, multipleOf: 0.5}", "1.25", &["f: Invalid value: 1.25: f in body should be a multiple of 0.5"]),
    ("{type: integer, multipleOf: -1}", "7", &["f: Invalid value: \"\": factor MultipleOf declared for f must be positive: -1"]),
    // Lists and objects.
    ("{type: array, maxItems: 1, items: {type: string}}", "[a, b]", &["f: Too many: 2: must have at most 1 item"]),
    ("{type: array, minItems: 1, items: {type: string}}", "[]", &["f: Invalid value: 0: f in body should have at least 1 items"]),
    ("{type: array, items: {type: string}}", "[a, 1]", &[r#"f[1]: Invalid value: "integer": f[1] in body must be of type string: "integer""#]),
    ("{type: object, maxProperties: 1, additionalProperties: {type: string}}", "{a: x, b: y}", &["f: Too many: 2: must have at most 1 item"]),
    ("{type: object, minProperties: 1}", "{}", &["f: Invalid value: 0: f in body should have at least 1 properties"]),
    ("{type: object, required: [b, a], properties: {a: {type: string}}}", "{}", &["f.b: Required value", "f.a: Required value"]),
    ("{type: object, additionalProperties: {type: string}}", "{a: 1}", &[r#"f.a: Invalid value: "integer": f.a in body must be of type string: "integer""#]),
    ("{type: object, additionalProperties: false}", "{a: 1}", &[r#"f: Invalid value: "a": f.a in body is a forbidden property"#]),
    ("{type: object, additionalProperties: true}", "{a: 1}", &[]),
    // Junctors.
    (
        "{type: object, properties: {a: {type: string}, b: {type: string}}, anyOf: [{required: [a]}, {required: [b]}]}",
        "{}",
        &["f: Invalid value: \"\": \"f\" must validate at least one schema (anyOf)", "f.a: Required value"],
    ),
    (
        "{type: object, properties: {a: {type: string}, b: {type: string}}, anyOf: [{required: [a], properties: {b: {minLength: 9}}}, {properties: {a: {maxLength: 1}, b: {maxLength: 1}}}]}",
        "{a: xx, b: y}",
        &[
            "f: Invalid value: \"\": \"f\" must validate at least one schema (anyOf)",
            "f.a: Too long: may not be more than 1 byte",
        ],
    ),
    (
        "{type: string, oneOf: [{maxLength: 2}, {pattern: '^a'}]}",
        "ab",
        &["f: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found 2 valid alternatives"],
    ),
    (
        "{type: string, oneOf: [{maxLength: 2}, {pattern: '^a'}]}",
        "bcd",
        &[
            "f: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found none valid",
            "f: Too long: may not be more than 2 bytes",
        ],
    ),
    (
        "{type: string, allOf: [{maxLength: 2}, {pattern: '^a'}]}",
        "bcd",
        &[
            "f: Too long: may not be more than 2 bytes",
            "f: Invalid value: \"bcd\": f in body should match '^a'",
            "f: Invalid value: \"\": \"f\" must validate all the schemas (allOf). None validated",
        ],
    ),
    (
        "{type: string, allOf: [{maxLength: 2}, {pattern: '^a'}]}",
        "abc",
        &["f: Too long: may not be more than 2 bytes", "f: Invalid value: \"\": \"f\" must validate all the schemas (allOf)"],
    ),
    ("{type: string, not: {pattern: '^a'}}", "ab", &["f: Invalid value: \"\": \"f\" must not validate the schema (not)"]),
    ("{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], maximum: 3}", "4", &["f: Invalid value: 4: f in body should be less than or equal to 3"]),
    // Sets and maps.
    ("{type: array, x-kubernetes-list-type: set, items: {type: string}}", "[a, b, a, a]", &[r#"f[2]: Duplicate value: "a""#]),
    ("{type: array, x-kubernetes-list-type: set, items: {type: object, x-kubernetes-map-type: atomic, x-kubernetes-preserve-unknown-fields: true}}", "[{a: 1}, {a: 1}]", &[r#"f[1]: Duplicate value: {"a":1}"#]),
    (
        "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, properties: {k: {type: string}, v: {type: integer}}}}",
        "[{k: a, v: 1}, {k: b}, {k: a, v: 2}, {v: 1}, {v: 2}]",
        &[r#"f[2]: Duplicate value: {"k":"a"}"#, "f[4]: Duplicate value: {}"],
    ),
    (
        "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k, l], items: {type: object, properties: {k: {type: string}, l: {type: integer}}}}",
        "[{k: a, l: 1}, {k: a, l: 2}, {k: a, l: 1}]",
        &[r#"f[2]: Duplicate value: {"k":"a","l":1}"#],
    ),
    (
        "{type: object, additionalProperties: {type: array, x-kubernetes-list-type: set, items: {type: integer}}}",
        "{x: [1, 1]}",
        &["f[x][1]: Duplicate value: 1"],
    ),
    // Embedded objects.
    (
        "{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}",
        "{apiVersion: a/b/c, kind: K_, metadata: {name: a/b, namespace: X, labels: {'-': b}}}",
        &[
            "f.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "f.kind: Invalid value: \"K_\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "f.metadata.name: Invalid value: \"a/b\": may not contain '/'",
            "f.metadata.namespace: Invalid value: \"X\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            "f.metadata.labels: Invalid value: \"-\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ],
    ),
    (
        "{type: array, items: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}",
        "[{}]",
        &["f[0].apiVersion: Required value", "f[0].kind: Required value"],
    ),
];

#[test]
fn keywords_are_checked_in_the_words_of_upstream() {
    for (field, given, expected) in CASES {
        let schema = schema(&with(&format!("f: {field}")));
        let object = value(&format!("{{f: {given}}}"));
        assert_eq!(texts(&schema.validate(&object)), *expected, "{field} {given}");
    }
}

#[test]
fn reasons_tell_types_from_the_rest() {
    let schema =
        schema(&with("a: {type: string, format: date}, b: {type: string}, c: {type: string, pattern: x}"));
    let errors = schema.validate(&value("{a: x, b: 1, c: y}"));
    let reasons: Vec<_> = errors.iter().map(|error| error.reason.as_str()).collect();
    assert_eq!(reasons, ["FieldValueTypeInvalid", "FieldValueTypeInvalid", "FieldValueInvalid"]);
}

#[test]
fn errors_are_bounded_and_each_is_reported_once() {
    let schema = schema(&with(
        "l: {type: array, items: {type: string}}, s: {type: string, allOf: [{minLength: 2}, {minLength: 2}]}",
    ));
    let many = format!("{{l: [{}]}}", "1,".repeat(5000));
    assert_eq!(schema.validate(&value(&many)).len(), 1000);
    let twice = texts(&schema.validate(&value("{s: x}")));
    assert_eq!(twice.iter().filter(|t| t.contains("at least 2 chars")).count(), 1, "{twice:?}");
}

#[test]
fn checks_that_cost_too_much_end() {
    // Each level doubles the work: 2^40 checks without a bound.
    let mut nested = "{maxLength: 1}".to_owned();
    for _ in 0..40 {
        nested = format!("{{not: {{not: {nested}}}}}");
    }
    let deep = schema(&with(&format!("s: {{type: string, not: {nested}}}")));
    assert_eq!(
        texts(&deep.validate(&value("{s: x}"))),
        ["s: Invalid value: \"\": \"s\" must not validate the schema (not)"]
    );
    let wide =
        schema(&with("l: {type: array, items: {type: string, anyOf: [{minLength: 9}, {minLength: 8}]}}"));
    let object = value(&format!("{{l: [{}]}}", "x,".repeat(1000)));
    let errors = |steps| texts(&validate::errors_within(&wide.nodes, wide.root, &Path::Root, &object, steps));
    let too_large = "<nil>: Invalid value: \"\": the object is too large to be checked by its schema";
    assert_eq!(errors(3002).len(), 1000, "each value, and each alternative of each element");
    assert_eq!(errors(3001).last().unwrap(), too_large);
    assert_eq!(errors(0), [too_large]);
}

#[test]
fn status_alone_counts_for_a_write_to_status() {
    let schema = schema(&with(
        "spec: {type: object, required: [a]}, status: {type: object, properties: {n: {type: integer, maximum: 3}}}",
    ));
    let old = value("{spec: {}, status: {n: 1}}");
    assert_eq!(
        texts(&schema.validate_status_update(&value("{spec: {}, status: {n: 4}}"), &old)),
        ["status.n: Invalid value: 4: n in body should be less than or equal to 3"]
    );
    assert_eq!(
        texts(&schema.validate_status_update(&value("{spec: {}, status: 1}"), &old)),
        [r#"status: Invalid value: "integer":  in body must be of type object: "integer""#]
    );
    assert_eq!(schema.validate_status_update(&value("{spec: {}}"), &old), []);
}
