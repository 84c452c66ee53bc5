//! Pruning, unknown fields, nulls, embedded metadata.

use super::{schema, value, with};
use crate::Conform;

/// Spec before, spec after, unknown fields below `spec`.
type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    ("{type: object, properties: {a: {type: string}}}", "{a: x, b: y}", "{a: x}", &["b"]),
    ("{type: object}", "{a: x, b: {c: 1}}", "{}", &["a", "b"]),
    // A scalar in the place of an object is left for validation.
    ("{type: object, properties: {a: {type: object}}}", "{a: 7}", "{a: 7}", &[]),
    (
        "{type: object, properties: {l: {type: array, items: {type: object, properties: {a: {type: string}}}}}}",
        "{l: [{a: 1, b: 2}, 3, {b: 4}]}",
        "{l: [{a: 1}, 3, {}]}",
        &["l[0].b", "l[2].b"],
    ),
    (
        "{type: object, properties: {m: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}}}",
        "{m: {x: {a: 1, b: 2}, y: z}}",
        "{m: {x: {a: 1}, y: z}}",
        &["m.x.b"],
    ),
    // What `additionalProperties: true` allows is kept, but nothing within it.
    ("{type: object, properties: {m: {type: object, additionalProperties: true}}}", "{m: {x: {a: 1}, y: 2}}", "{m: {x: {}, y: 2}}", &["m.x.a"]),
    ("{type: object, x-kubernetes-preserve-unknown-fields: true}", "{a: {b: [{c: 1}]}}", "{a: {b: [{c: 1}]}}", &[]),
    // Fields that are specified below one that keeps unknown ones are pruned.
    (
        "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: object, properties: {b: {type: string}}}}}",
        "{x: {y: 1}, a: {b: 1, c: 2}}",
        "{x: {y: 1}, a: {b: 1}}",
        &["a.c"],
    ),
    // A list that keeps unknown fields keeps those of its elements.
    (
        "{type: object, properties: {l: {type: array, x-kubernetes-preserve-unknown-fields: true, items: {type: object, properties: {a: {type: object, properties: {b: {type: string}}}}}}}}",
        "{l: [{x: 1, a: {b: 1, c: 2}}]}",
        "{l: [{x: 1, a: {b: 1}}]}",
        &["l[0].a.c"],
    ),
    // Embedded objects keep their type and what metadata can hold.
    (
        "{type: object, properties: {e: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object, properties: {a: {type: string}}}}}}}",
        "{e: {apiVersion: v1, kind: K, metadata: {name: n, labels: {a: b}, wrong: 1}, spec: {a: 1, b: 2}, other: 3}}",
        "{e: {apiVersion: v1, kind: K, metadata: {name: n, labels: {a: b}}, spec: {a: 1}}}",
        &["e.other", "e.spec.b", "e.metadata.wrong"],
    ),
    // Without the extension these are fields like any other.
    ("{type: object, properties: {e: {type: object}}}", "{e: {kind: K, metadata: {}}}", "{e: {}}", &["e.kind", "e.metadata"]),
    // Nulls are removed where they are not allowed and there is no default; elements of lists are kept.
    (
        "{type: object, properties: {a: {type: string}, n: {type: string, nullable: true}, l: {type: array, items: {type: string}}, m: {type: object, additionalProperties: {type: string}}}}",
        "{a: null, n: null, l: [null], m: {x: null}}",
        "{n: null, l: [null], m: {}}",
        &[],
    ),
    ("{type: object, properties: {a: {type: string, default: d}}}", "{a: null}", "{a: null}", &[]),
    ("{type: object, x-kubernetes-preserve-unknown-fields: true}", "{a: null}", "{a: null}", &[]),
];

#[test]
fn what_the_schema_does_not_know_goes() {
    for (spec, before, after, unknown) in CASES {
        let schema = schema(&with(&format!("spec: {spec}")));
        let object = |spec: &str| {
            value(&format!("{{apiVersion: g/v1, kind: K, metadata: {{name: n}}, spec: {spec}}}"))
        };
        let (mut strict, mut loose) = (object(before), object(before));
        let found = schema.conform(&mut strict, &Conform { strict: true, ..Conform::default() }).unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected: Vec<String> =
            unknown.iter().map(|path| format!("unknown field \"spec.{path}\"")).collect();
        assert_eq!(found, expected, "{spec}");
        assert_eq!(strict, object(after), "{spec}");
        assert_eq!(schema.conform(&mut loose, &Conform::default()), Ok(Vec::new()), "not asked for: {spec}");
        assert_eq!(loose, strict);
    }
}

#[test]
fn metadata_of_the_object_is_decoded_as_that_of_built_in_kinds() {
    let schema = schema(&with("spec: {type: object}"));
    let strict = Conform { strict: true, ..Conform::default() };
    let mut object =
        value("{apiVersion: g/v1, kind: K, metadata: {name: n, nope: 1, generation: 3}, other: 1}");
    let found = schema.conform(&mut object, &strict).unwrap();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, [r#"unknown field "metadata.nope""#, r#"unknown field "other""#]);
    assert_eq!(object, value("{apiVersion: g/v1, kind: K, metadata: {name: n, generation: 3}}"));

    let wrong = "{apiVersion: g/v1, kind: K, metadata: {name: 7, labels: {a: b}}}";
    let error = schema.conform(&mut value(wrong), &strict).unwrap_err();
    assert_eq!(
        error.to_string(),
        "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"
    );
    let mut stored = value(wrong);
    let lenient = Conform { drop_invalid_metadata: true, ..Conform::default() };
    assert_eq!(schema.conform(&mut stored, &lenient), Ok(Vec::new()));
    assert_eq!(stored, value("{apiVersion: g/v1, kind: K, metadata: {labels: {a: b}}}"));

    let error = schema.conform(&mut value("{apiVersion: g/v1, kind: 7}"), &strict).unwrap_err();
    assert_eq!(error.to_string(), ".kind accessor error: 7 is of the type int64, expected string");
}

#[test]
fn wrong_types_in_embedded_objects_are_refused_or_dropped() {
    let schema = schema(&with(
        "e: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}",
    ));
    for (embedded, error) in [
        ("{apiVersion: 1, kind: K}", "e.apiVersion: Invalid value: 1: must be a string"),
        (
            "{apiVersion: v1, kind: K, metadata: 7}",
            "e.metadata: Invalid value: 7: json: cannot unmarshal number into Go value of type v1.ObjectMeta",
        ),
    ] {
        let object = format!("{{apiVersion: g/v1, kind: K, e: {embedded}}}");
        assert_eq!(schema.conform(&mut value(&object), &Conform::default()).unwrap_err().to_string(), error);
        let lenient = Conform { drop_invalid_metadata: true, ..Conform::default() };
        assert_eq!(schema.conform(&mut value(&object), &lenient), Ok(Vec::new()));
    }
}

/// An object merged by an apply was not decoded: empty metadata fields are dropped, and nulls that no type
/// refuses.
#[test]
fn what_was_merged_is_brought_to_what_decoding_makes_of_it() {
    let embedded =
        "{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}";
    let text = format!("spec: {{type: object, properties: {{e: {embedded}, n: {{type: string}}, any: {{x-kubernetes-preserve-unknown-fields: true}}}}}}");
    let structural = schema(&with(&text));
    let rows = [
        ("{metadata: {name: a, labels: {}, annotations: {}, finalizers: [], ownerReferences: []}}", "{metadata: {name: a}}"),
        (
            "{metadata: {name: a, labels: {b: c}}, spec: {n: null, any: null, other: {}, e: {kind: K, metadata: {labels: {}, creationTimestamp: null}, data: {}}}}",
            "{metadata: {name: a, labels: {b: c}}, spec: {n: null, other: {}, e: {kind: K, metadata: {}, data: {}}}}",
        ),
        // Left for validation.
        ("{metadata: {labels: 5}}", "{metadata: {labels: 5}}"),
        ("{spec: {e: {metadata: {creationTimestamp: x}}}}", "{spec: {e: {metadata: {creationTimestamp: x}}}}"),
    ];
    for (given, wanted) in rows {
        let mut object = value(given);
        structural.normalize(&mut object);
        assert_eq!(object, value(wanted), "{given}");
    }
}
