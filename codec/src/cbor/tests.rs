use super::*;
use crate::schema::{self, GVK};
use crate::tree;
use crate::value::Value;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn bare(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode_bare(value, None, &mut out).unwrap();
    out
}

#[test]
fn items_are_written_in_their_shortest_form() {
    for (value, expected) in [
        (Value::Int(0), "00"),
        (Value::Int(23), "17"),
        (Value::Int(24), "1818"),
        (Value::Int(255), "18ff"),
        (Value::Int(256), "190100"),
        (Value::Int(65_535), "19ffff"),
        (Value::Int(65_536), "1a00010000"),
        (Value::Int(4_294_967_296), "1b0000000100000000"),
        (Value::Int(i64::MAX), "1b7fffffffffffffff"),
        (Value::Int(-1), "20"),
        (Value::Int(-25), "3818"),
        (Value::Int(i64::MIN), "3b7fffffffffffffff"),
        (Value::Float(0.0), "f90000"),
        (Value::Float(-0.0), "f98000"),
        (Value::Float(1.0), "f93c00"),
        (Value::Float(1.5), "f93e00"),
        (Value::Float(65504.0), "f97bff"),
        (Value::Float(65536.0), "fa47800000"),
        (Value::Float(5.960464477539063e-8), "f90001"),
        (Value::Float(0.00006103515625), "f90400"),
        (Value::Float(1023.0 * 5.960464477539063e-8), "f903ff"),
        (Value::Float(1.1), "fb3ff199999999999a"),
        (Value::Float(100000.0), "fa47c35000"),
        (Value::Float(3.4028234663852886e+38), "fa7f7fffff"),
        (Value::Float(1e300), "fb7e37e43c8800759c"),
        (Value::Null, "f6"),
        (Value::Bool(true), "f5"),
        (Value::Bool(false), "f4"),
        ("abc".into(), "43616263"),
        (Value::Array(vec![]), "80"),
        (Value::object(), "a0"),
    ] {
        assert_eq!(bare(&value), hex(expected), "{value:?}");
        assert_eq!(decode(&hex(expected)), Ok(value));
    }
}

#[test]
fn members_are_ordered_by_length_then_bytes() {
    let value = tree!({ "b": 1i64, "aa": 2i64, "a": 3i64, "c\"": 4i64, "": 5i64 });
    assert_eq!(bare(&value), hex("a5 40 05 41 61 03 41 62 01 42 6161 02 42 6322 04"));
    let mut out = Vec::new();
    transcode_json_bare(b"{\"b\":0,\"c\\\"\":4,\"aa\":2,\"a\":3,\"b\":1,\"\":5}", None, &mut out).unwrap();
    assert_eq!(out, bare(&value));
}

#[test]
fn the_schema_decides_what_is_bytes_and_what_a_float() {
    let schema = schema::builtin();
    let id = schema.kind(&GVK::new("", "v1", "Secret")).unwrap();
    let secret = tree!({ "data": tree!({ "k": "AQID" }), "stringData": tree!({ "k": "AQID" }) });
    let mut out = Vec::new();
    encode(&secret, Some((schema, id)), &mut out).unwrap();
    assert_eq!(
        out,
        hex("d9d9f7 a2 44 64617461 a1 41 6b d6 43 010203 4a 737472696e6744617461 a1 41 6b 44 41514944")
    );
    assert_eq!(decode(&out), Ok(secret));

    let props =
        schema.named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps").unwrap();
    let mut out = Vec::new();
    encode_bare(&tree!({ "maximum": 1i64, "maxLength": 1i64 }), Some((schema, props)), &mut out).unwrap();
    assert_eq!(out, hex("a2 47 6d6178696d756d f93c00 49 6d61784c656e677468 01"));

    let bad = tree!({ "data": tree!({ "k": "?" }) });
    let mut out = vec![7];
    assert!(encode(&bad, Some((schema, id)), &mut out).is_err());
    assert_eq!(out, [7]);
}

#[test]
fn what_other_encoders_write_is_read() {
    for (bytes, expected) in [
        ("d9d9f7 63 616263", Value::from("abc")),
        ("5f 42 6162 41 63 ff", "abc".into()),
        ("7f 62 6162 61 63 ff", "abc".into()),
        ("9f 01 9f ff 02 ff", tree!([1i64, Value::Array(vec![]), 2i64])),
        ("bf 61 61 01 41 62 02 ff", tree!({ "a": 1i64, "b": 2i64 })),
        ("1800", 0i64.into()),
        ("fb3ff0000000000000", Value::Float(1.0)),
        ("d6 43 010203", "AQID".into()),
        ("d6 82 41 ff 42 fffe", tree!(["/w==", "//4="])),
        ("d6 81 d5 42 fffe", tree!(["__4"])),
        ("d7 42 0aff", "0aff".into()),
        ("c0 74 323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z".into()),
        ("c1 1a514b67b0", "2013-03-21T20:04:00Z".into()),
        ("c1 fb41d452d9ec200000", "2013-03-21T20:04:00.5Z".into()),
        ("d8 64 05", 5i64.into()),
        ("a1 d9d9f7 41 61 d9d9f7 a0", tree!({ "a": Value::object() })),
    ] {
        assert_eq!(decode(&hex(bytes)), Ok(expected), "{bytes}");
    }
}

#[test]
fn what_upstream_refuses_is_refused() {
    use CborError::*;
    for (bytes, expected) in [
        ("", UnexpectedEnd),
        ("a2 41 61 01 41 61 02", DuplicateKey("a".into())),
        ("a2 41 61 01 61 61 02", DuplicateKey("a".into())),
        ("a1 01 02", Key(1)),
        ("a1 80 02", Key(1)),
        ("f97e00", NotFinite(0)),
        ("f97c00", NotFinite(0)),
        ("fa7f800000", NotFinite(0)),
        ("fb7ff8000000000000", NotFinite(0)),
        ("c2 41 01", Bignum(0)),
        ("c3 41 01", Bignum(0)),
        ("1b8000000000000000", Overflow(0)),
        ("3b8000000000000000", Overflow(0)),
        ("61 ff", Utf8(0)),
        ("41 ff", Utf8(0)),
        ("7f 61 c3 61 a9 ff", Utf8(1)),
        ("f7", Simple(0)),
        ("e0", Simple(0)),
        ("f8ff", Simple(0)),
        ("ff", Malformed(0)),
        ("1c", Malformed(0)),
        ("1f", Malformed(0)),
        ("df", Malformed(0)),
        ("81 ff", Malformed(1)),
        ("bf 41 61 ff", Malformed(3)),
        ("9f c1 ff", Malformed(1)),
        ("5f 61 61 ff", Malformed(1)),
        ("5f 5f ff ff", Malformed(1)),
        ("01 02", Trailing(1)),
        ("c0 43 616263", Time(0)),
        ("c1 41 61", Time(0)),
        ("c0 a0", Time(0)),
        ("9b ffffffffffffffff", UnexpectedEnd),
        ("bb ffffffffffffffff", UnexpectedEnd),
        ("5b ffffffffffffffff", UnexpectedEnd),
        ("ba 7fffffff 00", UnexpectedEnd),
    ] {
        assert_eq!(decode(&hex(bytes)), Err(expected), "{bytes}");
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = |n: usize| [vec![0x81; n], vec![0xf6]].concat();
    assert!(decode(&deep(10_000)).is_ok());
    assert_eq!(decode(&deep(10_001)), Err(CborError::TooDeep));
    assert_eq!(decode(&vec![0x9f; 3_000_000]), Err(CborError::TooDeep));
    assert_eq!(decode(&vec![0xc6; 3_000_000]), Err(CborError::TooDeep));
    assert_eq!(decode(&vec![0xa1; 3_000_000]), Err(CborError::TooDeep));
}

#[test]
fn every_truncation_is_an_error() {
    let value =
        tree!({ "a": tree!([1i64, -500i64, Value::Float(1.1), "text", Value::Null]), "b": Value::object() });
    let mut whole = Vec::new();
    encode(&value, None, &mut whole).unwrap();
    for len in 0..whole.len() {
        assert_eq!(decode(&whole[..len]), Err(CborError::UnexpectedEnd), "{len}");
    }
    assert_eq!(decode(&whole), Ok(value));
}

#[test]
fn frames_hold_what_they_should() {
    let gvk = GVK::new("", "v1", "ConfigMapList");
    let metadata = tree!({ "resourceVersion": "5" });
    let items = [tree!({ "data": tree!({ "a": "b" }) }), Value::object()];
    let frame = CborListFrame::new(&gvk, &bare(&metadata), 2);
    let streamed = [frame.head(), &bare(&items[0]), &bare(&items[1]), frame.tail()].concat();
    let list =
        tree!({ "apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items.to_vec() });
    let mut whole = Vec::new();
    encode(&list, None, &mut whole).unwrap();
    assert_eq!(streamed, whole);

    let mut document = Vec::new();
    encode(&list, None, &mut document).unwrap();
    let mut stream = Vec::new();
    write_watch_event("ADDED", &document, &mut stream);
    let first = stream.len();
    write_watch_event("DELETED", &document, &mut stream);
    let (event, used) = decode_first(&stream).unwrap();
    assert_eq!(used, first);
    assert_eq!(event, tree!({ "type": "ADDED", "object": list }));
    assert!(decode(&stream[used..]).is_ok());
}
