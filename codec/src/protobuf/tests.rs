use super::*;
use crate::schema::builtin;
use crate::tree;

fn pod() -> (GVK, TypeId) {
    kind("", "v1", "Pod")
}

fn kind(group: &str, version: &str, kind: &str) -> (GVK, TypeId) {
    let gvk = GVK::new(group, version, kind);
    let id = builtin().kind(&gvk).unwrap();
    (gvk, id)
}

fn named(name: &str) -> TypeId {
    builtin().named(name).unwrap()
}

/// The message of JSON.
fn message(id: TypeId, json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    transcode_json_message(json.as_bytes(), builtin(), id, &mut out).unwrap();
    out
}

/// The JSON of a message, made both ways.
fn json(id: TypeId, raw: &[u8]) -> Result<String, ProtobufError> {
    let tree = decode_object(raw, None, builtin(), id);
    let mut out = Vec::new();
    transcode_to_json(raw, None, builtin(), id, &mut out)?;
    let text = String::from_utf8(out).unwrap();
    let parsed = crate::json::decode(text.as_bytes(), builtin(), id, &Default::default());
    assert_eq!(parsed.unwrap().value, tree?);
    Ok(text)
}

fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = ReverseBuffer::with_capacity(0);
    out.put_bytes_field(number, value);
    out.as_slice().to_vec()
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const VOLUME: &str = "io.k8s.api.core.v1.Volume";

#[test]
fn fields_that_are_no_pointers_are_always_written() {
    let id = named("io.k8s.api.core.v1.ContainerPort");
    // name, hostPort, containerPort, protocol, hostIP.
    assert_eq!(message(id, "{}"), b"\x0a\x00\x10\x00\x18\x00\x22\x00\x2a\x00");
    assert_eq!(message(id, r#"{"containerPort":80}"#), b"\x0a\x00\x10\x00\x18\x50\x22\x00\x2a\x00");
    // Replicas is a pointer: absent, or written even when zero.
    let scale = named("io.k8s.api.apps.v1.ReplicaSetSpec");
    assert!(!message(scale, "{}").starts_with(b"\x08"));
    assert!(!message(scale, r#"{"replicas":null}"#).starts_with(b"\x08"));
    assert!(message(scale, r#"{"replicas":0}"#).starts_with(b"\x08\x00"));
    assert!(json(scale, &message(scale, r#"{"replicas":0}"#)).unwrap().contains(r#""replicas":0"#));
}

#[test]
fn embedded_structs_are_messages_of_their_own() {
    let id = named(VOLUME);
    // name, then VolumeSource (2) with emptyDir (2), whose medium is no pointer.
    assert_eq!(message(id, r#"{"name":"v","emptyDir":{}}"#), b"\x0a\x01v\x12\x04\x12\x02\x0a\x00");
    assert_eq!(message(id, r#"{"name":"v"}"#), b"\x0a\x01v\x12\x00");
    assert_eq!(json(id, b"\x12\x04\x12\x02\x0a\x00\x0a\x01v").unwrap(), r#"{"name":"v","emptyDir":{}}"#);
}

#[test]
fn maps_are_sorted_and_the_last_of_equal_keys_counts() {
    let id = named(OBJECT_META);
    let sorted = message(id, r#"{"labels":{"a":"1","b":"2","é":"3"}}"#);
    assert_eq!(message(id, r#"{"labels":{"\u00e9":"3","b":"x","a":"1","b":"2"}}"#), sorted);
    assert_eq!(message(id, r#"{"labels":{"a":null}}"#), message(id, r#"{"labels":{"a":""}}"#));
    assert_eq!(message(id, r#"{"labels":{}}"#), message(id, "{}"));
    let entry =
        |key: &str, value: &str| field(11, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat());
    let wire = [entry("b", "1"), entry("a", "2"), entry("b", "3"), field(11, b"")].concat();
    assert_eq!(json(id, &wire).unwrap(), r#"{"labels":{"":"","a":"2","b":"3"}}"#);
}

#[test]
fn wrapped_lists_tell_nil_from_empty() {
    let id = named("io.k8s.apimachinery.pkg.apis.meta.v1.APIResource");
    let nil = message(id, r#"{"name":"pods","verbs":null}"#);
    let empty = message(id, r#"{"name":"pods","verbs":[]}"#);
    let one = message(id, r#"{"name":"pods","verbs":["get"]}"#);
    assert!(json(id, &nil).unwrap().contains(r#""verbs":null"#));
    assert!(json(id, &empty).unwrap().contains(r#""verbs":[]"#));
    assert!(json(id, &one).unwrap().contains(r#""verbs":["get"]"#));
    let user = named("io.k8s.api.authentication.v1.UserInfo");
    let wire = message(user, r#"{"extra":{"a":["x","y"],"b":[]}}"#);
    assert_eq!(json(user, &wire).unwrap(), r#"{"extra":{"a":["x","y"],"b":[]}}"#);
}

#[test]
fn fields_come_in_any_order_and_unknown_ones_are_skipped() {
    let id = named("io.k8s.api.core.v1.KeyToPath");
    let unknown = [
        field(99, b"text"),
        vec![0xa0, 0x06, 0xff, 0x01],             // 100: varint
        vec![0xa9, 0x06, 1, 2, 3, 4, 5, 6, 7, 8], // 101: 64 bits
        vec![0xb5, 0x06, 1, 2, 3, 4],             // 102: 32 bits
        vec![0xbb, 0x06, 0x0b, 0x08, 0x01, 0x0c, 0x0a, 0x00, 0xbc, 0x06], // 103: a group with a group within
    ]
    .concat();
    let wire = [&unknown[..], &field(2, b"p"), &unknown, b"\x18\x07", &field(1, b"k"), &unknown].concat();
    assert_eq!(json(id, &wire).unwrap(), r#"{"key":"k","path":"p","mode":7}"#);
    assert_eq!(
        json(id, &[b"\x18\x07\x18\x08", &field(1, b"k")[..], &field(1, b"l")].concat()).unwrap(),
        r#"{"key":"l","path":"","mode":8}"#
    );
}

#[test]
fn messages_that_come_twice_are_merged() {
    let (_, id) = pod();
    let first = field(1, &message(named(OBJECT_META), r#"{"name":"a","labels":{"x":"1"},"generation":3}"#));
    let second = field(1, &[field(1, b"b"), field(11, &[field(1, b"y"), field(2, b"2")].concat())].concat());
    let text = json(id, &[first.clone(), second.clone()].concat()).unwrap();
    assert!(text.contains(r#""name":"b""#) && text.contains(r#""generation":3"#), "{text}");
    assert!(text.contains(r#""labels":{"x":"1","y":"2"}"#), "{text}");
    // Embedded messages likewise.
    let id = named(VOLUME);
    let source = |bytes: &[u8]| field(2, bytes);
    let wire = [source(&field(2, &field(1, b"Memory"))), field(1, b"v"), source(&field(2, b""))].concat();
    assert_eq!(json(id, &wire).unwrap(), r#"{"name":"v","emptyDir":{"medium":"Memory"}}"#);
    // Of a time the last one counts.
    let id = named("io.k8s.api.core.v1.PodCondition");
    let wire = [field(3, b"\x08\x01\x10\x00"), field(3, b"")].concat();
    assert!(!json(id, &wire).unwrap().contains("1970"));
}

#[test]
fn numbers_may_be_packed_and_padded() {
    let id = named("io.k8s.api.core.v1.PodSecurityContext");
    let expected = r#"{"supplementalGroups":[1,300,-1]}"#;
    let unpacked = message(id, expected);
    assert_eq!(unpacked[..2], [0x20, 1]);
    assert_eq!(json(id, &unpacked).unwrap(), expected);
    let packed = field(4, &[1, 0xac, 0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    assert_eq!(json(id, &packed).unwrap(), expected);
    assert_eq!(json(id, &[0x20, 0x81, 0x80, 0x00]).unwrap(), r#"{"supplementalGroups":[1]}"#);
    // An int32 takes the low 32 bits.
    let key = named("io.k8s.api.core.v1.KeyToPath");
    assert_eq!(
        json(key, &[0x18, 0xff, 0xff, 0xff, 0xff, 0x0f]).unwrap(),
        r#"{"key":"","path":"","mode":-1}"#
    );
}

#[test]
fn scalars_with_a_message_of_their_own() {
    let probe = named("io.k8s.api.core.v1.HTTPGetAction");
    for (port, wire) in [
        (r#"80"#, &b"\x12\x06\x08\x00\x10\x50\x1a\x00"[..]),
        (r#""http""#, b"\x12\x0a\x08\x01\x10\x00\x1a\x04http"),
        (r#"-1"#, b"\x12\x0f\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x00"),
    ] {
        let text = format!(r#"{{"port":{port}}}"#);
        let bytes = message(probe, &text);
        assert_eq!(&bytes[2..2 + wire.len()], wire);
        assert_eq!(json(probe, &bytes).unwrap(), text);
    }
    assert!(matches!(json(probe, &field(2, b"\x08\x02")), Err(ProtobufError::Value { .. })));

    // A quantity that is no pointer reads and writes as "0".
    let divisor = named("io.k8s.api.core.v1.ResourceFieldSelector");
    assert_eq!(message(divisor, r#"{"resource":"r"}"#), b"\x0a\x00\x12\x01r\x1a\x03\x0a\x010");
    assert_eq!(json(divisor, &field(2, b"r")).unwrap(), r#"{"resource":"r","divisor":"0"}"#);

    let lease = named("io.k8s.api.coordination.v1.LeaseSpec");
    let text = r#"{"acquireTime":"2024-02-29T01:02:03.000450Z"}"#;
    let bytes = message(lease, text);
    assert_eq!(bytes, field(3, b"\x08\x8b\xaf\xff\xae\x06\x10\xd0\xbb\x1b"));
    assert_eq!(json(lease, &bytes).unwrap(), text);
}

#[test]
fn embedded_objects_come_as_json_protobuf_or_cbor() {
    let id = named("io.k8s.api.apps.v1.ControllerRevision");
    let revision = |raw: &[u8]| [field(1, b""), field(2, &field(1, raw)), vec![0x18, 1]].concat();
    let data = |raw: &[u8]| {
        json(id, &revision(raw)).map(|text| {
            text.split_once(r#""data":"#).unwrap().1.trim_end_matches(r#","revision":1}"#).to_string()
        })
    };
    assert_eq!(data(br#" { "a" : [ 1, 2.50 ] } "#).unwrap(), r#"{"a":[1,2.50]}"#);
    assert_eq!(data(b"").unwrap(), "null");
    let (gvk, config_map) = kind("", "v1", "ConfigMap");
    let mut nested = Vec::new();
    encode(&tree!({ "data": tree!({ "k": "v" }) }), &gvk, builtin(), config_map, &mut nested).unwrap();
    let text = data(&nested).unwrap();
    assert!(
        text.starts_with(r#"{"kind":"ConfigMap","apiVersion":"v1","#)
            && text.ends_with(r#""data":{"k":"v"}}"#),
        "{text}"
    );
    let mut nested = Vec::new();
    crate::cbor::encode(&tree!({ "k": "v" }), None, &mut nested).unwrap();
    assert_eq!(data(&nested).unwrap(), r#"{"k":"v"}"#);
    for bad in [&b"{"[..], b"k8s\0", b"k8s\0\xff", b"\xd9\xd9\xf7\xff", b"{\"a\":\"\xff\"}", b"nul", b"1e999"]
    {
        assert!(data(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn unions_of_schemas() {
    let id = named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    for text in [
        r#"{"items":{"type":"string"}}"#,
        r#"{"items":[{"type":"string"},{}]}"#,
        r#"{"additionalProperties":true}"#,
        r#"{"additionalProperties":false}"#,
        r#"{"additionalProperties":{"type":"integer"}}"#,
        r#"{"dependencies":{"a":["b","c"],"d":{"type":"object"}}}"#,
        r#"{"properties":{"a":{"properties":{"b":{"default":{"x":[1,null]}}}}}}"#,
        r#"{"enum":["a",1,null,{"b":2.5}]}"#,
        r#"{"maximum":1.5,"minimum":-2}"#,
    ] {
        let tape = message(id, text);
        assert_eq!(json(id, &tape).unwrap(), text);
    }
    // Two pieces of one schema.
    let wire = field(24, &[field(1, &field(5, b"string")), field(1, &field(6, b"date"))].concat());
    assert_eq!(json(id, &wire).unwrap(), r#"{"items":{"type":"string","format":"date"}}"#);
}

#[test]
fn invalid_utf8_is_replaced_byte_by_byte() {
    let id = named("io.k8s.api.core.v1.LocalObjectReference");
    assert_eq!(json(id, &field(1, b"a\xff\xe2\x82z")).unwrap(), "{\"name\":\"a\u{fffd}\u{fffd}\u{fffd}z\"}");
}

#[test]
fn wrong_wire_types_are_errors_with_the_fields_name() {
    let id = named("io.k8s.api.core.v1.KeyToPath");
    let error = json(id, b"\x08\x01").unwrap_err();
    assert_eq!(error.to_string(), "proto: wrong wireType = 0 for field key");
    assert!(matches!(json(id, &field(3, b"\x01")), Err(ProtobufError::FieldType { .. })));
    assert!(matches!(json(id, b"\x0c"), Err(ProtobufError::FieldType { .. })));
    assert_eq!(json(id, b"\x54"), Err(ProtobufError::EndGroup));
    assert_eq!(
        json(named(VOLUME), b"\x10\x01").unwrap_err().to_string(),
        "proto: wrong wireType = 0 for field io.k8s.api.core.v1.Volume"
    );
}

#[test]
fn encoding_errors_name_the_path() {
    let (_, id) = pod();
    let error = |json: &str| {
        let mut out = vec![7];
        let error = transcode_json_message(json.as_bytes(), builtin(), id, &mut out).unwrap_err();
        assert_eq!(out, [7]);
        error.to_string()
    };
    assert_eq!(
        error(r#"{"spec":{"containers":[{},{"name":5}]}}"#),
        "spec.containers[1].name: expected string, got number"
    );
    assert_eq!(error(r#"{"spec":{"containers":{}}}"#), "spec.containers: expected array, got object");
    assert_eq!(error(r#"{"metadata":{"labels":{"a":1}}}"#), "metadata.labels.a: expected string, got number");
    assert_eq!(
        error(r#"{"metadata":{"creationTimestamp":"x"}}"#),
        "metadata.creationTimestamp: invalid time \"x\""
    );
    assert_eq!(
        error(r#"{"spec":{"priority":2147483648}}"#),
        "spec.priority: expected 32-bit integer, got number"
    );
    assert_eq!(error(r#"[]"#), "object: expected object, got array".replace("object: ", ": "));
    assert!(error("{").starts_with("invalid JSON at byte 1"));
}

#[test]
fn nesting_is_bounded_in_both_directions() {
    let id = named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let text = |depth: usize| format!("{}{{}}{}", r#"{"not":"#.repeat(depth), "}".repeat(depth));
    let deepest = message(id, &text(MAX_DEPTH));
    assert_eq!(json(id, &deepest).unwrap(), text(MAX_DEPTH));
    let mut out = Vec::new();
    let deeper = text(MAX_DEPTH + 1);
    assert_eq!(transcode_json_message(deeper.as_bytes(), builtin(), id, &mut out), Err(EncodeError::TooDeep));
    let mut wire = Vec::new();
    for _ in 0..3000 {
        wire = field(28, &wire);
    }
    assert_eq!(json(id, &wire), Err(ProtobufError::TooDeep));
    // Through the unions, through envelopes within envelopes, and with everything to be merged.
    let mut wire = Vec::new();
    for _ in 0..3000 {
        wire = field(24, &field(1, &wire));
    }
    assert_eq!(json(id, &wire), Err(ProtobufError::TooDeep));
    let revision = named("io.k8s.api.apps.v1.ControllerRevision");
    let mut wire = Vec::new();
    for _ in 0..3000 {
        let mut envelope = Vec::new();
        Envelope::write("apps/v1", "ControllerRevision", &wire, &mut envelope);
        wire = field(2, &field(1, &envelope));
    }
    assert_eq!(json(revision, &wire), Err(ProtobufError::TooDeep));
    let mut wire = Vec::new();
    for _ in 0..1000 {
        wire = [field(28, b""), field(28, &wire)].concat();
    }
    assert_eq!(json(id, &wire), Err(ProtobufError::TooDeep));
}

#[test]
fn envelopes() {
    assert_eq!(decode(b""), Err(ProtobufError::Empty));
    assert_eq!(decode(b"k8s"), Err(ProtobufError::Magic));
    assert_eq!(decode(b"k8s\x01abc"), Err(ProtobufError::Magic));
    assert_eq!(decode(b"k8s\0"), Err(ProtobufError::EmptyBody));
    assert_eq!(
        decode(b"k8s\0\x08\x01").unwrap_err().to_string(),
        "proto: wrong wireType = 0 for field Unknown"
    );
    let envelope = Envelope {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        raw: b"raw",
        content_encoding: "gzip".into(),
        content_type: "x".into(),
    };
    let mut bytes = envelope.to_bytes();
    assert_eq!(decode(&bytes), Ok(envelope.clone()));
    bytes.extend(field(77, b"unknown"));
    assert_eq!(decode(&bytes).unwrap().gvk(), GVK::new("apps", "v1", "Deployment"));
    assert!(envelope.resolve(builtin()).is_ok());
    let other = Envelope { kind: "Nonsense".into(), ..envelope.clone() };
    assert_eq!(
        other.resolve(builtin()).unwrap_err().to_string(),
        "no kind \"Nonsense\" is registered for version \"apps/v1\""
    );
    assert_eq!(
        Envelope { kind: "".into(), ..envelope.clone() }.resolve(builtin()),
        Err(ProtobufError::MissingKind)
    );
    assert_eq!(
        Envelope { api_version: "".into(), ..envelope }.resolve(builtin()),
        Err(ProtobufError::MissingVersion)
    );
}

#[test]
fn streamed_lists_equal_whole_ones() {
    let (gvk, id) = kind("", "v1", "ConfigMapList");
    let (_, item) = kind("", "v1", "ConfigMap");
    let list_meta = named("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");
    let bodies: Vec<String> = (0..3)
        .map(|n| format!(r#"{{"metadata":{{"name":"c{n}"}},"data":{{"k":"{}"}}}}"#, "x".repeat(n * 200)))
        .collect();
    let metadata = r#"{"resourceVersion":"7","continue":"token","remainingItemCount":0}"#;
    let mut whole = Vec::new();
    let text = format!(r#"{{"metadata":{metadata},"items":[{}]}}"#, bodies.join(","));
    transcode_json(text.as_bytes(), &gvk, builtin(), id, &mut whole).unwrap();
    let items: Vec<Vec<u8>> = bodies.iter().map(|body| message(item, body)).collect();
    let frame = ListFrame::new(&gvk, &message(list_meta, metadata), items.iter().map(Vec::len));
    let mut streamed = frame.head().to_vec();
    for body in &bodies {
        transcode_json_item(body.as_bytes(), None, builtin(), item, &mut streamed).unwrap();
    }
    streamed.extend_from_slice(ListFrame::tail());
    assert_eq!(streamed, whole);
}

#[test]
fn watch_frames() {
    let (gvk, id) = kind("", "v1", "ConfigMap");
    let mut object = Vec::new();
    encode(&tree!({ "data": tree!({ "k": "v" }) }), &gvk, builtin(), id, &mut object).unwrap();
    let mut stream = Vec::new();
    WatchEvent::write("ADDED", &object, &mut stream);
    let first = stream.len();
    WatchEvent::write("BOOKMARK", &object, &mut stream);
    assert_eq!(stream[..4], ((first - 4) as u32).to_be_bytes());
    for end in 0..first {
        assert_eq!(WatchEvent::read(&stream[..end], 1 << 20), Ok(None));
    }
    let (event, used) = WatchEvent::read(&stream, 1 << 20).unwrap().unwrap();
    assert_eq!((event.event_type.as_ref(), event.object, used), ("ADDED", &object[..], first));
    let (event, _) = WatchEvent::read(&stream[used..], 1 << 20).unwrap().unwrap();
    assert_eq!(event.event_type, "BOOKMARK");
    assert!(WatchEvent::read(&[0xff; 8], 1 << 20).is_err());
    // The same bytes as the message of upstream's WatchEvent type.
    let mut raw = Vec::new();
    let text = br#"{"type":"ADDED","object":{"a":1}}"#;
    transcode_json_message(
        text,
        builtin(),
        named("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"),
        &mut raw,
    )
    .unwrap();
    let mut frame = Vec::new();
    WatchEvent::write("ADDED", br#"{"a":1}"#, &mut frame);
    assert_eq!(raw, frame[4..]);
}

#[test]
fn truncation_at_every_byte_is_an_error_or_a_shorter_object() {
    let (gvk, id) = pod();
    let text = br#"{"metadata":{"name":"p","labels":{"a":"b"},"creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"}}}]}}"#;
    let mut whole = Vec::new();
    transcode_json(text, &gvk, builtin(), id, &mut whole).unwrap();
    let mut errors = 0;
    for len in 0..whole.len() {
        let result = decode(&whole[..len]).and_then(|e| {
            let (gvk, id) = e.resolve(builtin())?;
            decode_object(e.raw, Some(&gvk), builtin(), id)
        });
        errors += result.is_err() as usize;
    }
    // Whole, but for the empty fields of the envelope's end (two ways); or nothing but type metadata.
    assert_eq!(errors, whole.len() - 3);
}

#[test]
fn tables_have_no_protobuf_form() {
    let (gvk, table) = kind("meta.k8s.io", "v1", "Table");
    assert!(!supports(builtin(), table));
    assert!(supports(builtin(), pod().1));
    assert!(supports(builtin(), kind("", "v1", "Status").1));
    let error = encode(&tree!({}), &gvk, builtin(), table, &mut Vec::new());
    assert_eq!(error, Err(EncodeError::NotAMessage));
    assert_eq!(decode_object(b"", None, builtin(), table), Err(ProtobufError::NotAMessage));
}

#[test]
fn a_null_among_bytes_is_read_back_empty() {
    let (_, id) = kind("", "v1", "ConfigMap");
    let bytes = message(id, r#"{"binaryData":{"k":null}}"#);
    assert_eq!(bytes, [field(1, &message(named(OBJECT_META), "{}")), field(3, &field(1, b"k"))].concat());
    assert!(json(id, &bytes).unwrap().ends_with(r#""binaryData":{"k":""}}"#));
}

#[test]
fn a_pointer_to_nothing_is_no_field() {
    let meta = named(OBJECT_META);
    // deletionTimestamp is a pointer, creationTimestamp is none; both are left out when zero.
    assert_eq!(json(meta, &[field(8, b""), field(9, b"")].concat()).unwrap(), "{}");
    let entry = named("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry");
    for nothing in [&b""[..], b"\x0a\x00", b"\x0a\x04null", b"\x0a\x04\xd9\xd9\xf7\xf6"] {
        assert_eq!(json(entry, &field(7, nothing)).unwrap(), "{}");
    }
    let schema = named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    assert_eq!(json(schema, &[field(24, b""), field(8, b"")].concat()).unwrap(), "{}");
}

#[test]
fn minus_zero_is_an_integer_but_keeps_its_sign_as_a_double() {
    let schema = named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let wire = message(schema, r#"{"maximum":-0,"maxLength":-0,"default":-0}"#);
    assert_eq!(json(schema, &wire).unwrap(), r#"{"default":-0,"maximum":-0,"maxLength":0}"#);
    assert_eq!(message(schema, r#"{"maximum":-0.0}"#), message(schema, r#"{"maximum":-0}"#));
}
