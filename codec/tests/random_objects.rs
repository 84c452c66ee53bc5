//! For every kind: random objects survive protobuf and CBOR.

mod support;

use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::schema::{self, Omit, Scalar, SchemaOr, Type, TypeId, GVK};
use plinth_codec::{cbor, protobuf, tree, Map, Value};
use proptest::prelude::*;
use support::{object, Random};

fn kinds() -> Vec<(GVK, TypeId)> {
    let schema = schema::builtin();
    let mut kinds: Vec<(GVK, TypeId)> = schema.kinds.iter().map(|(gvk, id)| (gvk.clone(), *id)).collect();
    kinds.sort();
    kinds
}

fn with_type(value: &Value, gvk: &GVK) -> Value {
    let mut value = value.clone();
    if let Some(members) = value.as_object_mut() {
        members.insert("kind", gvk.kind.clone());
        members.insert("apiVersion", gvk.api_version());
    }
    value
}

/// Unknown fields, to be inserted between a message's own.
fn unknown_fields() -> Vec<u8> {
    // 900: text, 901: varint, 902: 64 bits, 903: 32 bits.
    let mut out = vec![0xa2, 0x38, 3, b'x', b'y', b'z', 0xa8, 0x38, 0x96, 0x01];
    out.extend([0xb1, 0x38, 1, 2, 3, 4, 5, 6, 7, 8, 0xbd, 0x38, 1, 2, 3, 4]);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn protobuf_and_back(seed in any::<u64>()) {
        let schema = schema::builtin();
        let mut random = Random::new(seed);
        let mut carried = 0;
        for (gvk, id) in kinds() {
            let tree = object(&mut random, schema, id);
            let mut bytes = Vec::new();
            if !protobuf::supports(schema, id) {
                continue;
            }
            protobuf::encode(&tree, &gvk, schema, id, &mut bytes).unwrap();
            let raw = protobuf::decode(&bytes).unwrap().raw;
            let expected = normal(&tree, id);
            let back = protobuf::decode_object(raw, None, schema, id).unwrap();
            prop_assert_eq!(&back, &expected, "{:?} seed {}", gvk, seed);

            // Stored JSON gives the same bytes, and they the same JSON.
            let mut stored = Vec::new();
            json::write(&tree, schema, id, &mut stored);
            let mut transcoded = Vec::new();
            protobuf::transcode_json_message(&stored, schema, id, &mut transcoded).unwrap();
            prop_assert!(protobuf::decode_object(&transcoded, None, schema, id).as_ref() == Ok(&expected), "{:?}", gvk);
            let (mut text, mut canonical) = (Vec::new(), Vec::new());
            protobuf::transcode_to_json(raw, None, schema, id, &mut text).unwrap();
            json::write(&expected, schema, id, &mut canonical);
            prop_assert_eq!(String::from_utf8(text).unwrap(), String::from_utf8(canonical).unwrap());

            let mut odd = unknown_fields();
            odd.extend_from_slice(raw);
            odd.extend(unknown_fields());
            let back = protobuf::decode_object(&odd, None, schema, id).unwrap();
            prop_assert_eq!(&back, &expected, "{:?} with unknown fields", gvk);
            // Twice the same: lists double, everything else stays.
            let twice = [raw, raw].concat();
            prop_assert!(protobuf::decode_object(&twice, None, schema, id).is_ok(), "{:?}", gvk);
            carried += 1;
        }
        prop_assert!(carried > 300, "only {} kinds", carried);
    }

    #[test]
    fn cbor_and_back(seed in any::<u64>()) {
        let schema = schema::builtin();
        let mut random = Random::new(seed);
        for (gvk, id) in kinds() {
            let mut tree = object(&mut random, schema, id);
            if schema.structure(id).is_some_and(|s| s.field("kind").is_some()) {
                tree = with_type(&tree, &gvk);
            }
            let mut bytes = Vec::new();
            cbor::encode(&tree, Some((schema, id)), &mut bytes).unwrap();
            let back = json::conform(cbor::decode(&bytes).unwrap(), schema, id, &DecodeOptions { strict: true }).unwrap();
            prop_assert!(back.strict.is_empty(), "{:?}: {:?}", gvk, back.strict);
            let expected = json::conform(tree, schema, id, &DecodeOptions::default()).unwrap().value;
            prop_assert_eq!(&back.value, &expected, "{:?} seed {}", gvk, seed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    /// Skipping unchanged parts does not change the result, the unknown fields or the errors.
    #[test]
    fn a_changed_tree_conforms_as_any_other(seed in any::<u64>()) {
        let (schema, options) = (schema::builtin(), DecodeOptions { strict: true });
        let mut random = Random::new(seed);
        for (gvk, id) in kinds() {
            let whole = |tree: Value| json::conform(tree, schema, id, &options);
            let before = whole(object(&mut random, schema, id)).unwrap().value;
            prop_assert_eq!(&whole(before.clone()).unwrap().value, &before, "{:?} seed {}", gvk, seed);
            for damaged in [false, true] {
                let (mut tree, other) = (before.clone(), object(&mut random, schema, id));
                change(&mut random, &mut tree, &other, damaged);
                let changed = json::conform_changed(tree.clone(), &before, schema, id, &options);
                prop_assert_eq!(changed, whole(tree), "{:?} seed {}", gvk, seed);
            }
        }
    }
}

/// Copies parts of another object of the kind; damaged ones also with wrong types.
fn change(random: &mut Random, tree: &mut Value, other: &Value, damaged: bool) {
    if damaged && random.one_in(8) {
        *tree = tree!({ "unknown": tree!([1, "x"]) });
        return;
    }
    match (tree, other) {
        (Value::Object(tree), Value::Object(other)) => {
            for (key, value) in other.iter() {
                match tree.get_mut(key) {
                    Some(old) if random.one_in(2) => change(random, old, value, damaged),
                    None if random.one_in(2) => drop(tree.insert(key.clone(), value.clone())),
                    _ => {}
                }
            }
        }
        (Value::Array(tree), Value::Array(other)) => {
            let both = tree.iter_mut().zip(other);
            both.for_each(|(old, new)| change(random, old, new, damaged));
            tree.extend(other.first().cloned());
        }
        (tree, other) => *tree = other.clone(),
    }
}

/// The information that protobuf preserves: an empty list or map is absent, and in a map a null is an empty
/// value.
fn normal(tree: &Value, id: TypeId) -> Value {
    let schema = schema::builtin();
    match (tree, schema.get(id)) {
        (Value::Object(map), Type::Struct(structure)) => {
            let mut out = Map::new();
            for (key, value) in map.iter() {
                let Some(field) = structure.field(key) else { continue };
                let empty = match (value, schema.get(field.type_id)) {
                    (Value::Array(list), Type::List { message: false, .. }) => list.is_empty(),
                    (Value::Object(map), Type::Map { .. }) => map.is_empty(),
                    _ => false,
                };
                match empty {
                    true if field.omit == Omit::Never => drop(out.insert(key.clone(), Value::Null)),
                    true => {}
                    false => drop(out.insert(key.clone(), normal(value, field.type_id))),
                }
            }
            Value::Object(out)
        }
        (Value::Array(list), Type::List { element, .. }) => {
            Value::Array(list.iter().map(|value| normal(value, *element)).collect())
        }
        (Value::Object(map), Type::Map { value: inner, .. }) => map
            .iter()
            .map(|(key, value)| match (value, schema.get(*inner)) {
                (Value::Null, Type::List { .. }) => (key.clone(), Value::Array(vec![])),
                (Value::Null, Type::Scalar(Scalar::Bytes)) => (key.clone(), "".into()),
                _ => (key.clone(), normal(value, *inner)),
            })
            .collect::<Map>()
            .into(),
        (Value::Object(_), Type::Scalar(Scalar::SchemaOr(_, id))) => normal(tree, *id),
        (Value::Array(list), Type::Scalar(Scalar::SchemaOr(SchemaOr::Array, id))) => {
            Value::Array(list.iter().map(|value| normal(value, *id)).collect())
        }
        _ => tree.clone(),
    }
}
