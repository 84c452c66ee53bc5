//! Ratcheting: errors of unchanged values pass an update.

use super::{schema, texts, value, with};

#[test]
fn unchanged_errors_pass_and_changed_ones_do_not() {
    const KEYED: &str = "l: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], \
        items: {type: object, properties: {k: {type: string}, v: {type: string, maxLength: 2}, w: {type: integer}}}}";
    const SET: &str = "l: {type: array, x-kubernetes-list-type: set, items: {type: string, maxLength: 2}}";
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("a: {type: string, maxLength: 2}, b: {type: integer}", "{a: abc, b: 1}", "{a: abc, b: 2}", &[]),
        (
            "a: {type: string, maxLength: 2}, b: {type: integer}",
            "{a: abc, b: 1}",
            "{a: abcd, b: 1}",
            &["a: Too long: may not be more than 2 bytes"],
        ),
        ("a: {type: string, maxLength: 2}", "{}", "{a: abc}", &["a: Too long: may not be more than 2 bytes"]),
        // A field that is missing is an error of the object that lacks it.
        ("o: {type: object, required: [x], properties: {y: {type: integer}}}", "{o: {y: 1}}", "{o: {y: 1}}", &[]),
        (
            "o: {type: object, required: [x], properties: {y: {type: integer}}}",
            "{o: {y: 1}}",
            "{o: {y: 2}}",
            &["o.x: Required value"],
        ),
        // Elements of a list of type map are correlated by their keys, at any position.
        (KEYED, "{l: [{k: a, v: abc}, {k: b}]}", "{l: [{k: b, w: 1}, {k: a, v: abc, w: 2}]}", &[]),
        (
            KEYED,
            "{l: [{k: a, v: abc}]}",
            "{l: [{k: c, v: abc}]}",
            &["l[0].v: Too long: may not be more than 2 bytes"],
        ),
        // Other lists are one value.
        (SET, "{l: [abc, d]}", "{l: [abc, d]}", &[]),
        (SET, "{l: [abc, d]}", "{l: [abc, e]}", &["l[0]: Too long: may not be more than 2 bytes"]),
        (
            "m: {type: object, additionalProperties: {type: string, maxLength: 2}}",
            "{m: {a: abc}}",
            "{m: {a: abc, b: c}}",
            &[],
        ),
        // Alternatives are not correlated, unless the whole value is unchanged.
        (
            "o: {type: object, properties: {a: {type: string}, b: {type: integer}}, allOf: [{properties: {a: {maxLength: 2}}}]}",
            "{o: {a: abc, b: 1}}",
            "{o: {a: abc, b: 2}}",
            &[
                "o.a: Too long: may not be more than 2 bytes",
                r#"o: Invalid value: "": "o" must validate all the schemas (allOf). None validated"#,
            ],
        ),
        (
            "o: {type: object, properties: {a: {type: string}, b: {type: integer}}, anyOf: [{properties: {a: {maxLength: 2}}}, {properties: {b: {maximum: 0}}}]}",
            "{o: {a: abc, b: 1}}",
            "{o: {a: abc, b: 2}}",
            &[
                r#"o: Invalid value: "": "o" must validate at least one schema (anyOf)"#,
                "o.b: Invalid value: 2: o.b in body should be less than or equal to 0",
            ],
        ),
        (
            "o: {type: object, properties: {a: {type: string}, b: {type: integer}}, allOf: [{properties: {a: {maxLength: 2}}}]}, c: {type: integer}",
            "{o: {a: abc, b: 1}, c: 1}",
            "{o: {a: abc, b: 1}, c: 2}",
            &[],
        ),
        // Where old and new values cannot be correlated, all errors count.
        (
            "l: {type: array, items: {type: object, properties: {a: {type: string, maxLength: 2}, b: {type: integer}}}}",
            "{l: [{a: abc, b: 1}]}",
            "{l: [{a: abc, b: 2}]}",
            &["l[0].a: Too long: may not be more than 2 bytes"],
        ),
        // Duplicates pass if there were some before.
        (SET, "{l: [a, a]}", "{l: [a, a, b, b]}", &[]),
        (SET, "{l: [a]}", "{l: [a, a]}", &[r#"l[1]: Duplicate value: "a""#]),
        // Embedded objects are validated as new.
        (
            "e: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}",
            "{e: {kind: K}}",
            "{e: {kind: K}}",
            &["e.apiVersion: Required value"],
        ),
    ];
    for (properties, old, new, expected) in cases {
        let schema = schema(&with(properties));
        let errors = schema.validate_update(&value(new), &value(old));
        assert_eq!(texts(&errors), *expected, "{properties}: {old} -> {new}");
    }
}

#[test]
fn status_is_ratcheted_by_itself() {
    let schema = schema(&with(
        "status: {type: object, properties: {a: {type: string, maxLength: 2}, b: {type: integer}}}",
    ));
    let old = value("{status: {a: abc, b: 1}}");
    assert_eq!(schema.validate_status_update(&value("{status: {a: abc, b: 2}}"), &old), []);
    let errors = schema.validate_status_update(&value("{status: {a: abcd, b: 2}}"), &old);
    assert_eq!(texts(&errors), ["status.a: Too long: may not be more than 2 bytes"]);
}
