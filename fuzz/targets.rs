//! The fuzz targets, shared with the smoke test on stable Rust (`codec/tests/smoke.rs`).
//!
//! A target must return for every input. Decoded values must survive encoding and decoding.

use plinth_codec::convert::{self, Format};
use plinth_codec::json::DecodeOptions;
use plinth_codec::schema::{self, TypeId, GVK};
use plinth_codec::{cbor, json, protobuf, yaml, Value};

/// A protobuf body: envelope, object, both encodings, and back.
pub(crate) fn protobuf(input: &[u8]) {
    let schema = schema::builtin();
    drop(protobuf::WatchEvent::read(input, 1 << 20));
    let Ok(envelope) = protobuf::decode(input) else { return };
    let Ok((gvk, id)) = envelope.resolve(schema) else { return };
    protobuf_message(envelope.raw, &gvk, id);
}

/// The bare message of a Pod.
pub(crate) fn protobuf_pod(input: &[u8]) {
    let gvk = GVK::new("", "v1", "Pod");
    if let Some(id) = schema::builtin().kind(&gvk) {
        protobuf_message(input, &gvk, id);
    }
}

/// The bare message of a CustomResourceDefinition, whose schemas nest.
pub(crate) fn protobuf_crd(input: &[u8]) {
    let gvk = GVK::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    if let Some(id) = schema::builtin().kind(&gvk) {
        protobuf_message(input, &gvk, id);
    }
}

fn protobuf_message(raw: &[u8], gvk: &GVK, id: TypeId) {
    let schema = schema::builtin();
    let tree = protobuf::decode_object(raw, Some(gvk), schema, id);
    let mut text = Vec::new();
    let transcoded = protobuf::transcode_to_json(raw, Some(gvk), schema, id, &mut text);
    assert_eq!(transcoded, tree.as_ref().map(|_| ()).map_err(Clone::clone));
    let Ok(tree) = tree else { return };
    let parsed = json::decode(&text, schema, id, &DecodeOptions { strict: true }).expect("JSON of ours");
    assert_eq!(parsed.value, tree);
    let mut again = Vec::new();
    protobuf::encode_message(&tree, schema, id, &mut again).expect("a decoded object");
    assert_eq!(protobuf::decode_object(&again, Some(gvk), schema, id).as_ref(), Ok(&tree));
    let mut from_text = Vec::new();
    protobuf::transcode_json_message(&text, schema, id, &mut from_text).expect("JSON of ours");
    assert_eq!(protobuf::decode_object(&from_text, Some(gvk), schema, id), Ok(tree));
}

/// JSON text, untyped and as a Pod, on to protobuf.
pub(crate) fn json(input: &[u8]) {
    let schema = schema::builtin();
    let gvk = GVK::new("", "v1", "Pod");
    let Some(id) = schema.kind(&gvk) else { return };
    drop(json::peek_type(input));
    let mut out = Vec::new();
    drop(protobuf::transcode_json(input, &gvk, schema, id, &mut out));
    drop(cbor::transcode_json(input, Some((schema, id)), &mut Vec::new()));
    if let Ok(value) = json::parse(input) {
        let mut text = Vec::new();
        json::write_untyped(&value, &mut text);
        settles(text, |text| {
            let value = json::parse(text).expect("JSON of ours");
            let mut out = Vec::new();
            json::write_untyped(&value, &mut out);
            out
        });
    }
    if let Ok(decoded) = json::decode(input, schema, id, &DecodeOptions { strict: true }) {
        let mut raw = Vec::new();
        protobuf::encode_message(&decoded.value, schema, id, &mut raw).expect("a decoded object");
        let back = protobuf::decode_object(&raw, None, schema, id).expect("protobuf of ours");
        assert_eq!(without_type(back), without_type(without_reset_of_owners(decoded.value)));
    }
}

fn without_type(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.remove("kind");
        members.remove("apiVersion");
    }
    object
}

/// An empty list of owners is read from JSON, where it resets them, and cannot be said in protobuf.
fn without_reset_of_owners(mut object: Value) -> Value {
    let owners = object.at(&["metadata", "managedFields"]).and_then(Value::as_array);
    if owners.is_some_and(<[_]>::is_empty) {
        object.object_at_mut(&["metadata"]).expect("an object").remove("managedFields");
    }
    object
}

/// A CBOR document or sequence.
pub(crate) fn cbor(input: &[u8]) {
    let mut rest = input;
    while let Ok((value, used)) = cbor::decode_first(rest) {
        let mut again = Vec::new();
        cbor::encode(&value, None, &mut again).expect("a decoded object");
        assert_eq!(cbor::decode(&again), Ok(value));
        rest = &rest[used..];
    }
}

/// Encoded text must be stable when decoded and encoded again; twice, since the text of the float -0 is
/// decoded as the integer 0.
fn settles(text: Vec<u8>, again: impl Fn(&[u8]) -> Vec<u8>) {
    let second = again(&text);
    assert_eq!(again(&second), second);
}

/// A YAML body.
pub(crate) fn yaml(input: &[u8]) {
    let Ok((value, _)) = yaml::to_value(input) else { return };
    let mut text = Vec::new();
    yaml::write(&value, &mut text);
    settles(text, |text| {
        let (value, _) = yaml::to_value(text).expect("YAML of ours");
        let mut out = Vec::new();
        yaml::write(&value, &mut out);
        out
    });
}

/// Conversion from any encoding to all others.
pub(crate) fn convert(input: &[u8]) {
    let Ok(object) = convert::read(input) else { return };
    for format in [Format::Json, Format::Yaml, Format::Protobuf, Format::Cbor] {
        let mut out = Vec::new();
        if convert::write(&object, format, &mut out).is_err() {
            continue;
        }
        let again = convert::read(&out).expect("an object of ours");
        // `WatchEvent` has its kind in the protobuf envelope only.
        if object.id.is_some() && object.tree.get("kind").is_some() {
            assert_eq!(again.gvk, object.gvk);
        }
    }
}

/// A target and its name.
type Target = (&'static str, fn(&[u8]));

/// Every target with its name.
pub(crate) const ALL: [Target; 7] = [
    ("protobuf", protobuf),
    ("protobuf_pod", protobuf_pod),
    ("protobuf_crd", protobuf_crd),
    ("json", json),
    ("cbor", cbor),
    ("yaml", yaml),
    ("convert", convert),
];
