//! Defaults.

use plinth_codec::field::Path;

use super::{schema, texts, value, with};
use crate::check::{defaults, structure};
use crate::compile;
use crate::props::Props;
use crate::Conform;

#[test]
fn defaults_fill_what_is_absent_or_a_null_that_is_not_allowed() {
    let cases = [
        ("{type: object, properties: {a: {type: string, default: x}}}", "{}", "{a: x}"),
        ("{type: object, properties: {a: {type: string, default: x}}}", "{a: y}", "{a: y}"),
        ("{type: object, properties: {a: {type: string, default: x}}}", "{a: null}", "{a: x}"),
        ("{type: object, properties: {a: {type: string, default: x, nullable: true}}}", "{a: null}", "{a: null}"),
        // Below a default there are more; below what is absent there are none.
        (
            "{type: object, properties: {o: {type: object, default: {}, properties: {a: {type: string, default: x}}}}}",
            "{}",
            "{o: {a: x}}",
        ),
        (
            "{type: object, properties: {o: {type: object, properties: {a: {type: string, default: x}}}}}",
            "{}",
            "{}",
        ),
        (
            "{type: object, properties: {l: {type: array, items: {type: object, properties: {a: {type: integer, default: 1}}}}}}",
            "{l: [{}, {a: 2}, 7]}",
            "{l: [{a: 1}, {a: 2}, 7]}",
        ),
        (
            "{type: object, properties: {m: {type: object, additionalProperties: {type: object, properties: {a: {type: integer, default: 1}}}}}}",
            "{m: {x: {}, y: null}}",
            "{m: {x: {a: 1}, y: null}}",
        ),
        (
            "{type: object, properties: {l: {type: array, items: {type: string, default: x}}}}",
            "{l: [null, y]}",
            "{l: [x, y]}",
        ),
    ];
    for (spec, before, after) in cases {
        let schema = schema(&with(&format!("spec: {spec}")));
        let object = |spec: &str| value(&format!("{{spec: {spec}}}"));
        let mut filled = object(before);
        assert_eq!(schema.default(&mut filled), before != after, "{spec}");
        assert_eq!(filled, object(after), "{spec}");
        assert!(!schema.default(&mut filled), "a second time changes nothing");
    }
    assert!(!schema(&with("spec: {type: object}")).has_defaults());
}

#[test]
fn defaults_are_pruned_when_compiled() {
    let schema = schema(&with(
        "o: {type: object, default: {a: x, b: y}, properties: {a: {type: string}}}, \
         e: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true, \
             default: {apiVersion: v1, kind: K, metadata: {name: n, no: 1}, any: 1}}",
    ));
    let mut object = value("{}");
    schema.default(&mut object);
    assert_eq!(object, value("{o: {a: x}, e: {apiVersion: v1, kind: K, metadata: {name: n}, any: 1}}"));
}

/// Upstream fills a default in after the nulls of an object were removed, so one that a default brings stays
/// until the object is read again.
#[test]
fn a_null_in_a_default_stays_until_the_object_is_conformed() {
    let spec = "{type: object, default: {a: null, b: null}, properties: {\
                  a: {x-kubernetes-preserve-unknown-fields: true}, b: {type: string, nullable: true}}}";
    let schema = schema(&with(&format!("o: {spec}")));
    let mut object = value("{apiVersion: g/v1, kind: K}");
    schema.default(&mut object);
    assert_eq!(object, value("{apiVersion: g/v1, kind: K, o: {a: null, b: null}}"));
    assert!(!schema.default(&mut object), "a second time changes nothing");
    schema.conform(&mut object, &Conform::default()).unwrap();
    assert_eq!(object, value("{apiVersion: g/v1, kind: K, o: {b: null}}"));
}

#[test]
fn defaults_must_be_valid_and_pruned() {
    let errors = |schema: &str| {
        let schema = value(schema);
        let root = Path::Root;
        assert_eq!(texts(&structure::errors(&root, Props::of(&schema))), [""; 0]);
        let (nodes, id) = compile::compile(Props::of(&schema)).unwrap();
        texts(&defaults::errors(&nodes, id, &root.child("s"), Props::of(&schema), true))
    };
    let cases: &[(&str, &[&str])] = &[
        ("a: {type: string, default: x}", &[]),
        (
            "a: {type: string, default: 7}",
            &["s.properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\""],
        ),
        (
            "a: {type: object, default: {b: {c: xxxx}}, properties: {b: {type: object, properties: {c: {type: string, maxLength: 3}}}}}",
            &["s.properties[a].default.b.c: Too long: may not be more than 3 bytes"],
        ),
        (
            "a: {type: object, default: {b: 1}, properties: {c: {type: string}}}",
            &["s.properties[a].default: Invalid value: {\"b\":1}: must not have unknown fields"],
        ),
        (
            "a: {type: object, x-kubernetes-embedded-resource: true, default: {kind: K}, x-kubernetes-preserve-unknown-fields: true}",
            &["s.properties[a].default.apiVersion: Required value"],
        ),
        (
            "a: {type: object, x-kubernetes-embedded-resource: true, properties: {metadata: {type: object, properties: {name: {type: string, default: a/b}}}}}",
            &["s.properties[a].properties[metadata].properties[name].default: Invalid value: \"a/b\": must result in valid metadata: metadata.name: Invalid value: \"a/b\": may not contain '/'"],
        ),
        (
            "a: {type: object, x-kubernetes-embedded-resource: true, properties: {metadata: {type: object, properties: {name: {type: string, default: good, pattern: '^b'}}}}}",
            &["s.properties[a].properties[metadata].properties[name].default: Invalid value: \"good\":  in body should match '^b'"],
        ),
        (
            "l: {type: array, items: {type: object, properties: {a: {type: integer, default: 11, maximum: 10}}}}",
            &["s.properties[l].items.properties[a].default: Invalid value: 11:  in body should be less than or equal to 10"],
        ),
    ];
    for (properties, expected) in cases {
        assert_eq!(errors(&with(properties)), *expected, "{properties}");
    }
}
