//! The fixtures that upstream publishes, in every direction between JSON, protobuf and CBOR.
//!
//! `PLINTH_FIXTURES` names the folder; without, `../shared/fixtures` from the project's root. Where they are
//! absent the test prints a note and passes.

use std::path::{Path, PathBuf};

use plinth_codec::convert::{convert, detect, Format};
use plinth_codec::schema::{self, TypeId, GVK};
use plinth_codec::{cbor, json, protobuf, Value};

struct Fixture {
    name: String,
    json: Vec<u8>,
    yaml: Vec<u8>,
    protobuf: Vec<u8>,
    gvk: GVK,
    id: TypeId,
}

/// One of each kind: all `.pb` files but those of other versions and of `WatchEvent`, which names no kind.
fn fixtures() -> Vec<Fixture> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let dir = std::env::var_os("PLINTH_FIXTURES").map(PathBuf::from).unwrap_or_else(beside);
    let dir = dir.join("kubernetes-v1.36.0");
    let Ok(entries) = std::fs::read_dir(&dir) else {
        println!("skipped: no fixtures at {} (PLINTH_FIXTURES names another place)", dir.display());
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pb"))
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            !name.contains(".after_roundtrip.") && name != "core.v1.WatchEvent.pb"
        })
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no .pb files", dir.display());
    let read = |path: PathBuf| {
        let protobuf = std::fs::read(&path).unwrap();
        let envelope = protobuf::decode(&protobuf).unwrap();
        let (gvk, id) = envelope.resolve(schema::builtin()).unwrap();
        Fixture {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            json: std::fs::read(path.with_extension("json")).unwrap(),
            yaml: std::fs::read(path.with_extension("yaml")).unwrap(),
            gvk,
            id,
            protobuf,
        }
    };
    paths.into_iter().map(read).collect()
}

fn tree(fixture: &Fixture) -> Value {
    let options = json::DecodeOptions { strict: true };
    let decoded = json::decode(&fixture.json, schema::builtin(), fixture.id, &options).unwrap();
    assert!(decoded.strict.is_empty(), "{}: {:?}", fixture.name, decoded.strict);
    decoded.value
}

fn canonical(value: &Value, id: TypeId) -> String {
    let mut out = Vec::new();
    json::write(value, schema::builtin(), id, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn protobuf_to_json_is_equal_as_data() {
    let fixtures = fixtures();
    for fixture in &fixtures {
        let expected = tree(fixture);
        let raw = protobuf::decode(&fixture.protobuf).unwrap().raw;
        let decoded =
            protobuf::decode_object(raw, Some(&fixture.gvk), schema::builtin(), fixture.id).unwrap();
        assert_eq!(canonical(&decoded, fixture.id), canonical(&expected, fixture.id), "{}", fixture.name);
        assert_eq!(decoded, expected, "{}", fixture.name);
        let mut text = Vec::new();
        protobuf::transcode_to_json(raw, Some(&fixture.gvk), schema::builtin(), fixture.id, &mut text)
            .unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), canonical(&expected, fixture.id), "{}", fixture.name);
    }
    println!("protobuf -> JSON: {} kinds equal", fixtures.len());
}

#[test]
fn json_to_protobuf_is_identical_in_bytes() {
    let fixtures = fixtures();
    for fixture in &fixtures {
        let tree = tree(fixture);
        let mut encoded = Vec::new();
        protobuf::encode(&tree, &fixture.gvk, schema::builtin(), fixture.id, &mut encoded).unwrap();
        assert!(encoded == fixture.protobuf, "{}", fixture.name);
        for text in [&fixture.json, &canonical(&tree, fixture.id).into_bytes()] {
            let mut encoded = Vec::new();
            protobuf::transcode_json(text, &fixture.gvk, schema::builtin(), fixture.id, &mut encoded)
                .unwrap();
            assert!(encoded == fixture.protobuf, "{}", fixture.name);
        }
    }
    println!("JSON -> protobuf: {} kinds identical", fixtures.len());
}

#[test]
fn json_to_cbor_and_back_is_equal() {
    let fixtures = fixtures();
    let schema = schema::builtin();
    for fixture in &fixtures {
        let expected = tree(fixture);
        let mut encoded = Vec::new();
        cbor::encode(&expected, Some((schema, fixture.id)), &mut encoded).unwrap();
        let mut transcoded = Vec::new();
        cbor::transcode_json(
            canonical(&expected, fixture.id).as_bytes(),
            Some((schema, fixture.id)),
            &mut transcoded,
        )
        .unwrap();
        assert!(encoded == transcoded, "{}", fixture.name);
        let decoded = cbor::decode(&encoded).unwrap();
        let options = json::DecodeOptions { strict: true };
        let conformed = json::conform(decoded, schema, fixture.id, &options).unwrap();
        assert!(conformed.strict.is_empty(), "{}: {:?}", fixture.name, conformed.strict);
        assert_eq!(conformed.value, expected, "{}", fixture.name);
        // Without a schema too, as for custom resources.
        let mut encoded = Vec::new();
        cbor::encode(&expected, None, &mut encoded).unwrap();
        assert_eq!(cbor::decode(&encoded).unwrap(), expected, "{}", fixture.name);
    }
    println!("JSON -> CBOR -> JSON: {} kinds equal", fixtures.len());
}

#[test]
fn every_encoding_converts_to_every_other() {
    let fixtures = fixtures();
    for fixture in &fixtures {
        let to = |input: &[u8], format| {
            let mut out = Vec::new();
            convert(input, format, &mut out)
                .unwrap_or_else(|e| panic!("{} to {format:?}: {e}", fixture.name));
            out
        };
        let cbor = to(&fixture.json, Format::Cbor);
        for input in [&fixture.json, &fixture.yaml, &fixture.protobuf, &cbor] {
            let from = detect(input);
            assert!(to(input, Format::Protobuf) == fixture.protobuf, "{} from {from:?}", fixture.name);
            assert!(to(input, Format::Cbor) == cbor, "{} from {from:?}", fixture.name);
            let json = String::from_utf8(to(input, Format::Json)).unwrap();
            assert_eq!(
                json.trim_end(),
                canonical(&tree(fixture), fixture.id),
                "{} from {from:?}",
                fixture.name
            );
            assert!(to(&to(input, Format::Yaml), Format::Protobuf) == fixture.protobuf, "{}", fixture.name);
        }
    }
    println!("JSON, YAML, protobuf and CBOR to each other: {} kinds equal", fixtures.len());
}

#[test]
fn damaged_fixtures_are_errors_or_objects_but_never_panics() {
    // The work is quadratic in the size, so only the small ones are used.
    for fixture in fixtures().iter().filter(|f| f.protobuf.len() < 1000).step_by(3) {
        let whole = &fixture.protobuf;
        let decode = |bytes: &[u8]| {
            let raw = protobuf::decode(bytes)?.raw;
            let tree = protobuf::decode_object(raw, Some(&fixture.gvk), schema::builtin(), fixture.id);
            let mut text = Vec::new();
            let transcoded = protobuf::transcode_to_json(
                raw,
                Some(&fixture.gvk),
                schema::builtin(),
                fixture.id,
                &mut text,
            );
            assert_eq!(transcoded.is_ok(), tree.is_ok(), "{}", fixture.name);
            tree
        };
        let mut errors = 0;
        for len in 0..whole.len() {
            errors += decode(&whole[..len]).is_err() as usize;
        }
        // All but the envelope's empty tail and, on the other side, an envelope with no body at all.
        assert_eq!(errors, whole.len() - 3, "{}", fixture.name);
        let mut damaged = whole.clone();
        for i in 0..whole.len() {
            for flip in [0x01, 0x80] {
                damaged[i] ^= flip;
                drop(decode(&damaged));
                damaged[i] ^= flip;
            }
        }
    }
}
