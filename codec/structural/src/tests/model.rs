//! Custom resources through server-side apply and the selectors.

use plinth_codec::apply::{self, Context, NoOtherVersions, Reset};
use plinth_codec::schema::{ListType, Schema, Type, GVK};
use plinth_codec::selector::{CustomFields, FieldSelector};
use plinth_codec::value::Value;

use super::{schema, value};

const SCHEMA: &str = "{type: object, properties: {
    spec: {type: object, properties: {
        keyed: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k, p], items: {type: object,
            required: [k], properties: {k: {type: string}, p: {type: string, default: TCP}, v: {type: integer},
            inner: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}},
        nested: {type: object, additionalProperties: {type: array, x-kubernetes-list-type: set, items: {type: string}}},
        plain: {type: array, items: {type: string}},
        atomic: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}, b: {type: string}}},
        open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: object, properties: {b: {type: string}}}}},
        any: {x-kubernetes-preserve-unknown-fields: true},
        port: {x-kubernetes-int-or-string: true},
        template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}}}";

fn kind() -> GVK {
    GVK::new("example.com", "v1", "Thing")
}

fn applied(model: &Schema, live: Option<&Value>, manager: &str, spec: &str) -> Result<Value, String> {
    let kind = kind();
    let context = Context {
        manager,
        time: "2026-01-02T03:04:05Z",
        kind: &kind,
        subresource: "",
        schema: model,
        root: model.kind(&kind).unwrap(),
        reset: &Reset::Nothing,
        versions: &NoOtherVersions,
    };
    let config =
        value(&format!("{{apiVersion: example.com/v1, kind: Thing, metadata: {{name: x}}, spec: {spec}}}"));
    match apply::apply(live, &config, false, &context) {
        Ok(object) => Ok(object.unwrap_or_else(|| live.unwrap().clone())),
        Err(error) => Err(error.to_string()),
    }
}

fn model() -> Schema {
    schema(SCHEMA).model(kind())
}

#[test]
fn lists_maps_and_open_parts_merge_as_marked() {
    let model = model();
    let cases = [
        (
            "{keyed: [{k: a, v: 1}]}",
            "{keyed: [{k: a, p: UDP, v: 2}]}",
            "{keyed: [{k: a, v: 1}, {k: a, p: UDP, v: 2}]}",
        ),
        // An absent key has its default.
        (
            "{keyed: [{k: a, v: 1}]}",
            "{keyed: [{k: a, p: TCP, inner: [x]}]}",
            "{keyed: [{k: a, p: TCP, v: 1, inner: [x]}]}",
        ),
        (
            "{keyed: [{k: a, inner: [x]}]}",
            "{keyed: [{k: a, inner: [y]}]}",
            "{keyed: [{k: a, inner: [x, y]}]}",
        ),
        ("{nested: {m: [x]}}", "{nested: {m: [y], n: [z]}}", "{nested: {m: [x, y], n: [z]}}"),
        (
            "{open: {free: {a: 1}}}",
            "{open: {free: {b: 2}, a: {b: x, c: 1}}}",
            "{open: {a: {b: x, c: 1}, free: {a: 1, b: 2}}}",
        ),
        ("{any: {a: {b: 1}}}", "{any: {a: {c: 2}}}", "{any: {a: {b: 1, c: 2}}}"),
        ("{port: 1}", "{any: 1}", "{any: 1, port: 1}"),
        (
            "{template: {apiVersion: v1, kind: K, metadata: {labels: {a: x}}, f: 1}}",
            "{template: {apiVersion: v1, kind: K, metadata: {labels: {b: y}}, g: 2}}",
            "{template: {apiVersion: v1, kind: K, metadata: {labels: {a: x, b: y}}, f: 1, g: 2}}",
        ),
    ];
    for (first, second, merged) in cases {
        let live = applied(&model, None, "one", first).unwrap();
        let both = applied(&model, Some(&live), "two", second).unwrap();
        assert_eq!(both.get("spec"), Some(&value(merged)), "{first} + {second}");
    }
}

#[test]
fn atomic_parts_have_one_owner() {
    let model = model();
    for (first, second) in [
        ("{plain: [a]}", "{plain: [b]}"),
        ("{atomic: {a: x}}", "{atomic: {b: y}}"),
        ("{port: 1}", "{port: a}"),
    ] {
        let live = applied(&model, None, "one", first).unwrap();
        let error = applied(&model, Some(&live), "two", second).unwrap_err();
        assert!(error.contains("conflict"), "{second}: {error}");
    }
}

#[test]
fn what_the_schema_does_not_know_cannot_be_applied() {
    let model = model();
    let error = applied(&model, None, "one", "{nope: 1}").unwrap_err();
    assert!(error.contains(".spec.nope: field not declared in schema"), "{error}");
    let error = applied(&model, None, "one", "{plain: {a: 1}}").unwrap_err();
    assert!(error.contains(".spec.plain: expected list"), "{error}");
}

#[test]
fn fields_are_there_only_when_set() {
    let model = model();
    let root = model.structure(model.kind(&kind()).unwrap()).unwrap();
    assert_eq!(root.always, [], "nothing is filled in");
    assert_eq!(
        root.fields[..3].iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
        ["apiVersion", "kind", "metadata"]
    );
    let spec = model.structure(root.field("spec").unwrap().type_id).unwrap();
    let keyed = model.get(spec.field("keyed").unwrap().type_id);
    let Type::List { merge: ListType::Map(keys), .. } = keyed else { panic!("{keyed:?}") };
    assert_eq!(keys, &["k", "p"]);
}

#[test]
fn selectable_fields_read_what_the_definition_names() {
    let fields = CustomFields::new(true, [".spec.color", ".spec.size"]);
    let object = value("{spec: {color: red, size: 7}}");
    assert_eq!(
        fields.values(&object).collect::<Vec<_>>(),
        [("spec.color", "red".into()), ("spec.size", "7".into())]
    );
    let selector = FieldSelector::parse("spec.color=red,spec.size!=8").unwrap();
    let selector = selector.resolve_custom(&fields).unwrap();
    let values: Vec<_> = fields.values(&object).collect();
    assert!(selector.matches(|label| values.iter().find(|(l, _)| *l == label).map_or("", |(_, v)| v)));
}
