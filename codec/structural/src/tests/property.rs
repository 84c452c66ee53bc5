//! Properties of random schemas and objects: pruning and defaulting twice is as once, and leaves valid
//! objects valid.

use plinth_codec::field::Path;
use plinth_codec::value::{Map, Value};
use proptest::prelude::*;

use crate::check::{defaults, keywords, structure};
use crate::compile;
use crate::props::Props;
use crate::{Conform, StructuralSchema};

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "kind", "metadata", "apiVersion"])
}

fn leaf_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-3i64..12).prop_map(Value::Int),
        prop::sample::select(vec!["", "x", "xyz"]).prop_map(Value::from),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    leaf_value().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((name(), inner), 0..4).prop_map(object),
        ]
    })
}

/// A value that can be a default without being changed by the next [`StructuralSchema::conform`]: a `null` in
/// a default stays when it is filled in, and a later read removes it where its field refuses it (upstream
/// does the same).
fn any_default() -> impl Strategy<Value = Value> {
    any_value().prop_filter("nulls in defaults", |value| !holds_null(value))
}

fn holds_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(holds_null),
        Value::Object(map) => map.values().any(holds_null),
        _ => false,
    }
}

fn object(members: Vec<(&'static str, Value)>) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.into(), value)).collect::<Map>())
}

/// A schema with many constructs that affect pruning and defaulting.
fn any_schema() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(vec![("type", "string".into()), ("maxLength", Value::Int(2))]),
        Just(vec![("type", "integer".into()), ("maximum", Value::Int(9))]),
        Just(vec![("type", "boolean".into())]),
        Just(vec![("x-kubernetes-int-or-string", true.into())]),
        Just(vec![("x-kubernetes-preserve-unknown-fields", true.into())]),
    ];
    let markers = (any::<bool>(), prop::option::weighted(0.4, any_default()));
    let scalar = (scalar, markers).prop_map(|(mut members, (nullable, default))| {
        members.push(("nullable", nullable.into()));
        members.extend(default.map(|d| ("default", d)));
        object(members)
    });
    scalar.prop_recursive(3, 16, 4, |inner| {
        let fields = prop::collection::vec((name(), inner.clone()), 0..4).prop_map(object);
        let default = || prop::option::weighted(0.3, any_default());
        prop_oneof![
            (fields, any::<bool>(), any::<bool>(), default()).prop_map(
                |(fields, preserve, nullable, default)| {
                    let mut members = vec![
                        ("type", "object".into()),
                        ("properties", fields),
                        ("nullable", nullable.into()),
                    ];
                    members.extend(preserve.then(|| ("x-kubernetes-preserve-unknown-fields", true.into())));
                    members.extend(default.map(|d| ("default", d)));
                    object(members)
                }
            ),
            (inner.clone(), any::<bool>()).prop_map(|(item, preserve)| {
                let mut members = vec![("type", "array".into()), ("items", item)];
                members.extend(preserve.then(|| ("x-kubernetes-preserve-unknown-fields", true.into())));
                object(members)
            }),
            inner
                .prop_map(|values| object(vec![("type", "object".into()), ("additionalProperties", values)])),
        ]
    })
}

/// A definition's schema: only valid ones are of interest.
fn accepted(fields: Value) -> Option<StructuralSchema> {
    let schema = object(vec![("type", "object".into()), ("properties", object(vec![("spec", fields)]))]);
    let props = Props::of(&schema);
    if !structure::errors(&Path::Root, props).is_empty() {
        return None;
    }
    // As in upstream, defaults are not validated there.
    if props.any(&mut |s| s.additional_schema().is_some_and(keywords::has_defaults)) {
        return None;
    }
    let (nodes, root) = compile::compile(props).ok()?;
    let valid = defaults::errors(&nodes, root, &Path::Root, props, true).is_empty();
    valid.then(|| StructuralSchema::compile(&schema).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_global_rejects: 200_000, ..ProptestConfig::default() })]

    #[test]
    fn twice_is_as_once_and_valid_stays_valid(fields in any_schema(), spec in any_value()) {
        let Some(schema) = accepted(fields) else { return Err(TestCaseError::reject("schema")) };
        let mut once = object(vec![("kind", "K".into()), ("apiVersion", "g/v1".into()), ("spec", spec)]);
        schema.conform(&mut once, &Conform::default()).unwrap();
        let valid = schema.validate(&once).is_empty();

        let mut again = once.clone();
        let unknown = schema.conform(&mut again, &Conform { strict: true, ..Conform::default() }).unwrap();
        prop_assert_eq!(&again, &once, "conforming twice");
        prop_assert_eq!(unknown, vec![], "nothing unknown is left");

        schema.default(&mut once);
        if valid {
            prop_assert_eq!(schema.validate(&once), vec![], "defaults make nothing invalid");
        }
        let filled = once.clone();
        prop_assert!(!schema.default(&mut once), "defaulting twice");
        schema.conform(&mut once, &Conform::default()).unwrap();
        prop_assert_eq!(&once, &filled, "defaults are pruned");
        prop_assert_eq!(schema.validate_update(&once, &once), vec![], "what has not changed passes");
    }
}
