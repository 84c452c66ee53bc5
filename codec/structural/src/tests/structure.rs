//! Structural schemas.

use plinth_codec::field::Path;

use super::{texts, value};
use crate::check::structure;
use crate::props::Props;

fn errors(schema: &str) -> Vec<String> {
    let schema = value(schema);
    let root = Path::Root;
    texts(&structure::errors(&root.child("s"), Props::of(&schema)))
}

#[test]
fn structural_schemas_pass() {
    for schema in [
        "{type: object}",
        "{type: object, x-kubernetes-preserve-unknown-fields: true}",
        "{x-kubernetes-preserve-unknown-fields: true}",
        "{type: object, properties: {a: {type: string}, b: {x-kubernetes-int-or-string: true}}}",
        "{type: object, properties: {a: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}}}",
        "{type: object, properties: {a: {x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}, {maximum: 5}]}}}",
        "{type: object, properties: {a: {type: array, items: {type: object, additionalProperties: {type: string}}}}}",
        "{type: object, properties: {a: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}",
        "{type: object, properties: {a: {type: string}}, anyOf: [{required: [a]}, {properties: {a: {maxLength: 3}}}]}",
        "{type: object, properties: {metadata: {type: object, properties: {name: {type: string, maxLength: 3}}}}}",
        "{type: object, properties: {metadata: {type: object}}}",
        // Only the root's own junctors must be complete.
        "{type: object, properties: {a: {type: object, allOf: [{properties: {b: {maxLength: 1}}}]}}}",
    ] {
        assert_eq!(errors(schema), [""; 0], "{schema}");
    }
}

#[test]
fn errors_name_what_is_not_structural() {
    let cases: &[(&str, &[&str])] = &[
        ("{}", &["s.type: Required value: must not be empty at the root"]),
        ("{type: array, items: {type: string}}", &[r#"s.type: Invalid value: "array": must be object at the root"#]),
        (
            "{type: object, properties: {a: {type: array}, b: {type: array, items: {}}, c: {}}}",
            &[
                "s.properties[a].items: Required value: must be specified",
                "s.properties[b].items.type: Required value: must not be empty for specified array items",
                "s.properties[c].type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            "{type: object, additionalProperties: {type: string}}",
            &["s.additionalProperties: Forbidden: must not be used at the root"],
        ),
        (
            "{type: object, properties: {a: {x-kubernetes-int-or-string: true, x-kubernetes-preserve-unknown-fields: true}}}",
            &["s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true"],
        ),
        (
            "{type: object, properties: {a: {x-kubernetes-embedded-resource: true, type: string, x-kubernetes-preserve-unknown-fields: true}, b: {x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}, c: {x-kubernetes-embedded-resource: true, type: object}}}",
            &[
                "s.properties[a].type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true",
                "s.properties[b].type: Required value: must be object if x-kubernetes-embedded-resource is true",
                "s.properties[c].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ],
        ),
        (
            "{type: object, properties: {a: {x-kubernetes-embedded-resource: true, type: object, x-kubernetes-preserve-unknown-fields: true, additionalProperties: true}}}",
            &["s.properties[a].additionalProperties: Forbidden: must not be used if x-kubernetes-embedded-resource is set"],
        ),
        (
            "{type: object, properties: {kind: {type: integer}, apiVersion: {type: object}, metadata: {type: array, items: {type: string}}}}",
            &[
                "s.properties[apiVersion].type: Invalid value: \"object\": must be string",
                "s.properties[kind].type: Invalid value: \"integer\": must be string",
                "s.properties[metadata].type: Invalid value: \"array\": must be object",
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        ),
        (
            "{type: object, properties: {metadata: {type: object, properties: {labels: {type: object}}}}}",
            &["s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"],
        ),
        (
            "{type: object, properties: {metadata: {type: object, additionalProperties: false}}}",
            &["s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"],
        ),
        (
            "{type: object, properties: {metadata: {type: object, description: x}}}",
            &["s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"],
        ),
        (
            "{type: object, properties: {a: {type: string, pattern: '('}}}",
            &["s.properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"],
        ),
        (
            "{type: object, properties: {a: {type: string, not: {type: string, default: x, title: t, description: d, nullable: true, additionalProperties: true, x-kubernetes-preserve-unknown-fields: true, x-kubernetes-embedded-resource: true, x-kubernetes-int-or-string: true, x-kubernetes-list-map-keys: [a], x-kubernetes-list-type: map, x-kubernetes-map-type: atomic, x-kubernetes-validations: [{rule: 'true'}]}}}}",
            &[
                "s.properties[a].not.additionalProperties: Forbidden: must be undefined to be structural",
                "s.properties[a].not.default: Forbidden: must be undefined to be structural",
                "s.properties[a].not.description: Forbidden: must be empty to be structural",
                "s.properties[a].not.nullable: Forbidden: must be false to be structural",
                "s.properties[a].not.title: Forbidden: must be empty to be structural",
                "s.properties[a].not.type: Forbidden: must be empty to be structural",
                "s.properties[a].not.x-kubernetes-embedded-resource: Forbidden: must be false to be structural",
                "s.properties[a].not.x-kubernetes-int-or-string: Forbidden: must be false to be structural",
                "s.properties[a].not.x-kubernetes-list-map-keys: Forbidden: must be empty to be structural",
                "s.properties[a].not.x-kubernetes-list-type: Forbidden: must be undefined to be structural",
                "s.properties[a].not.x-kubernetes-map-type: Forbidden: must be undefined to be structural",
                "s.properties[a].not.x-kubernetes-preserve-unknown-fields: Forbidden: must be false to be structural",
                "s.properties[a].not.x-kubernetes-validations: Forbidden: must be empty to be structural",
            ],
        ),
        (
            "{type: object, properties: {a: {x-kubernetes-int-or-string: true, allOf: [{maximum: 5}, {anyOf: [{type: integer}, {type: string}]}]}}}",
            &[
                "s.properties[a].allOf[1].anyOf[0].type: Forbidden: must be empty to be structural",
                "s.properties[a].allOf[1].anyOf[1].type: Forbidden: must be empty to be structural",
            ],
        ),
        (
            "{type: object, properties: {a: {type: object}, l: {type: array, items: {type: string}}}, allOf: [{properties: {x: {maxLength: 1}, l: {items: {properties: {y: {}}}}}}], not: {properties: {metadata: {}}}}",
            &[
                "s.not.properties[metadata]: Forbidden: must not be specified in a nested context",
                "s.properties[l].items.properties[y]: Required value: because it is defined in s.allOf[0].properties[l].items.properties[y]",
                "s.properties[metadata]: Required value: because it is defined in s.not.properties[metadata]",
                "s.properties[x]: Required value: because it is defined in s.allOf[0].properties[x]",
            ],
        ),
        (
            "{type: object, oneOf: [{items: {maxLength: 1}}]}",
            &["s.items: Required value: because it is defined in s.oneOf[0].items"],
        ),
    ];
    for (schema, expected) in cases {
        assert_eq!(errors(schema), *expected, "{schema}");
    }
}
