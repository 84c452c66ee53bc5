//! Behaviour of the JSON reader and writer, as seen on upstream.

use super::*;
use crate::schema::{self, TypeId, GVK};
use crate::tree;

fn kind(group: &str, version: &str, kind: &str) -> TypeId {
    schema::builtin().kind(&GVK::new(group, version, kind)).unwrap()
}

fn deployment() -> TypeId {
    kind("apps", "v1", "Deployment")
}

fn decode_as(id: TypeId, body: &str) -> Result<Decoded, DecodeError> {
    decode(body.as_bytes(), schema::builtin(), id, &DecodeOptions { strict: true })
}

/// The decoded body of a kind, and its strict errors.
fn round_trip(id: TypeId, body: &str) -> (String, Vec<String>) {
    let decoded = decode_as(id, body).unwrap_or_else(|error| panic!("{body}: {error}"));
    let mut out = Vec::new();
    write(&decoded.value, schema::builtin(), id, &mut out);
    (String::from_utf8(out).unwrap(), decoded.strict.iter().map(ToString::to_string).collect())
}

fn error(id: TypeId, body: &str) -> String {
    decode_as(id, body).unwrap_err().to_string()
}

#[test]
fn an_empty_object_has_what_upstream_always_writes() {
    let (out, _) = round_trip(deployment(), "{}");
    assert_eq!(
        out,
        r#"{"metadata":{},"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}}"#
    );
    let (out, _) = round_trip(kind("", "v1", "Event"), "{}");
    assert_eq!(
        out,
        r#"{"metadata":{},"involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":""}"#
    );
}

#[test]
fn an_empty_list_is_none_where_upstream_always_writes_one() {
    let (out, _) = round_trip(kind("rbac.authorization.k8s.io", "v1", "Role"), r#"{"rules":[]}"#);
    assert_eq!(out, r#"{"metadata":{},"rules":null}"#);
    let (out, _) = round_trip(kind("", "v1", "PodList"), r#"{"items":[]}"#);
    assert_eq!(out, r#"{"metadata":{},"items":[]}"#);
}

#[test]
fn what_upstream_keeps_as_bytes_is_kept_with_any_content() {
    let revision = kind("apps", "v1", "ControllerRevision");
    for data in ["[]", "\"\"", "0", "0.5", "false", "{}"] {
        let (out, _) = round_trip(revision, &format!(r#"{{"data":{data},"revision":1}}"#));
        assert_eq!(out, format!(r#"{{"metadata":{{}},"data":{data},"revision":1}}"#));
    }
    // Also where upstream always writes the field.
    let class = kind("resource.k8s.io", "v1", "DeviceClass");
    for parameters in ["[]", "\"\"", "0", "false", "{}"] {
        let body = format!(
            r#"{{"metadata":{{}},"spec":{{"config":[{{"opaque":{{"driver":"d","parameters":{parameters}}}}}]}}}}"#
        );
        assert_eq!(round_trip(class, &body).0, body);
    }
    let (out, _) = round_trip(revision, r#"{"data":null,"revision":1}"#);
    assert_eq!(out, r#"{"metadata":{},"data":null,"revision":1}"#);
}

#[test]
fn an_empty_list_of_owners_is_kept_for_the_object_alone() {
    let body = r#"{"metadata":{"managedFields":[]},"spec":{"template":{"metadata":{"managedFields":[]}}}}"#;
    let (out, _) = round_trip(deployment(), body);
    assert!(out.starts_with(r#"{"metadata":{"managedFields":[]},"#), "{out}");
    assert!(out.contains(r#""template":{"metadata":{},"#), "{out}");
}

#[test]
fn an_empty_list_that_defaults_depend_on_differs_from_none() {
    let scaler = kind("autoscaling", "v2", "HorizontalPodAutoscaler");
    let body = r#"{"spec":{"behavior":{"scaleUp":{"policies":[]}},"metrics":[]}}"#;
    let (out, _) = round_trip(scaler, body);
    assert!(out.contains(r#""behavior":{"scaleUp":{"policies":[]}}"#) && !out.contains("metrics"), "{out}");
}

#[test]
fn zero_values_go_where_go_omits_them() {
    let body = r#"{"spec":{"replicas":0,"paused":false,"minReadySeconds":0,"selector":{"matchLabels":{}},
        "template":{"metadata":{"creationTimestamp":null,"labels":{}},"spec":{"containers":[{"name":"","image":"a","args":[],
        "resources":{"limits":{}},"env":[{"name":"A","value":""}],"ports":null}],"terminationGracePeriodSeconds":0}}}}"#;
    let (out, strict) = round_trip(deployment(), body);
    assert_eq!(
        out,
        r#"{"metadata":{},"spec":{"replicas":0,"selector":{},"template":{"metadata":{},"spec":{"containers":[{"name":"","image":"a","env":[{"name":"A"}],"resources":{}}],"terminationGracePeriodSeconds":0}},"strategy":{}},"status":{}}"#
    );
    assert!(strict.is_empty());
}

#[test]
fn unknown_and_duplicate_fields_are_named() {
    let body = r#"{"spec":{"replicas":1,"replicas":2,"foo":{"deep":[{"x":1}]},"template":{"spec":{"containers":
        [{"name":"a","Image":"x"},{"name":"b","name":"c"}]}}},"metadata":{"labels":{"a":"1","a":"2"}},"Spec":{}}"#;
    let (out, strict) = round_trip(deployment(), body);
    assert_eq!(
        strict,
        [
            r#"duplicate field "spec.replicas""#,
            r#"unknown field "spec.foo""#,
            r#"unknown field "spec.template.spec.containers[0].Image""#,
            r#"duplicate field "spec.template.spec.containers[1].name""#,
            r#"duplicate field "metadata.labels.a""#,
            r#"unknown field "Spec""#,
        ]
    );
    assert!(out.contains(r#""labels":{"a":"2"}"#) && out.contains(r#""replicas":2"#), "{out}");
}

#[test]
fn at_most_a_hundred_strict_errors() {
    let members: Vec<String> = (0..300).map(|i| format!("\"x{i}\":1")).collect();
    let (_, strict) = round_trip(deployment(), &format!("{{{}}}", members.join(",")));
    assert_eq!(strict.len(), 100);
}

#[test]
fn errors_of_wrong_types_have_gos_words() {
    let deployment = deployment();
    for (body, message) in [
        (
            r#"{"spec":{"replicas":"abc"}}"#,
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            r#"{"spec":{"replicas":1.5}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            r#"{"spec":{"replicas":3000000000}}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            r#"{"spec":{"template":{"spec":{"containers":{}}}}}"#,
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            r#"{"spec":{"template":{"spec":{"restartPolicy":1}}}}"#,
            "json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            r#"{"metadata":{"uid":1}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.uid of type types.UID",
        ),
        (r#"{"spec":[]}"#, "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec"),
        ("[]", "json: cannot unmarshal array into Go value of type v1.Deployment"),
        (
            r#"{"kind":1}"#,
            "json: cannot unmarshal number into Go struct field Deployment.TypeMeta.kind of type string",
        ),
        (
            r#"{"spec":{"template":{"spec":{"volumes":[{"emptyDir":1}]}}}}"#,
            "json: cannot unmarshal number into Go struct field Volume.spec.template.spec.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource",
        ),
        (
            r#"{"metadata":{"creationTimestamp":5}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            r#"{"spec":{"replicas":"x"},"metadata":{"creationTimestamp":"yesterday"}}"#,
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
        ),
        (r#"{"spec":{"replicas":"x"},"metadata":"#, "unexpected end of JSON input"),
    ] {
        assert_eq!(error(deployment, body), message, "{body}");
    }
    let secret = kind("", "v1", "Secret");
    assert!(
        round_trip(secret, r#"{"data":{"a":[104,105,null]}}"#).0.contains(r#""a":"aGkA""#),
        "bytes as numbers"
    );
    assert!(error(secret, r#"{"data":{"a":[300]}}"#)
        .ends_with("number 300 into Go struct field Secret.data of type uint8"));
    assert_eq!(error(secret, r#"{"data":{"a":"!"}}"#), "illegal base64 data at input byte 0");
    let claim = kind("", "v1", "PersistentVolumeClaim");
    assert_eq!(
        error(claim, r#"{"spec":{"resources":{"requests":{"storage":"1 Gi"}}}}"#),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn errors_of_syntax_have_gos_words() {
    for (body, message) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("{]", "invalid character ']' looking for beginning of object key string"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
        ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("tru", "invalid character ' ' in literal true (expecting 'e')"),
        ("\"a", "unexpected end of JSON input"),
        ("\"a\\", "invalid character ' ' in string escape code"),
        ("-", "invalid character ' ' in numeric literal"),
        ("trux", "invalid character 'x' in literal true (expecting 'e')"),
        ("01", "invalid character '1' after top-level value"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("\"\n\"", "invalid character '\\n' in string literal"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        ("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape"),
        ("'", "invalid character '\\'' looking for beginning of value"),
    ] {
        assert_eq!(parse(body.as_bytes()).unwrap_err().to_string(), message, "{body}");
        assert_eq!(error(deployment(), body), message, "{body}");
    }
}

#[test]
fn depth_is_bounded_and_costs_no_stack() {
    let nested = |open: &str, close: &str, depth: usize| open.repeat(depth) + &close.repeat(depth);
    assert_eq!(
        parse(nested("[", "]", 10_001).as_bytes()).unwrap_err().to_string(),
        "invalid character '[' exceeded max depth"
    );
    parse("[".repeat(1_000_000).as_bytes()).unwrap_err();
    // On the stack of an ordinary thread: read, write and drop, typed and not.
    let on_small_stack = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for text in [nested("[", "]", 10_000), nested("{\"a\":[", "]}", 5_000)] {
            let value = parse(text.as_bytes()).unwrap();
            let mut out = Vec::new();
            write_untyped(&value, &mut out);
            assert_eq!(out.len(), text.len());
        }
        let schema = nested("{\"not\":", "}", 9_990).replace(":}", ":{}}");
        let body =
            format!(r#"{{"spec":{{"versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#);
        let definition = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        decode_as(definition, &body).unwrap();
        let unknown = format!("{{\"x\":{}}}", nested("[", "]", 9_999));
        assert_eq!(round_trip(deployment(), &unknown).1, [r#"unknown field "x""#]);
    });
    on_small_stack.unwrap().join().unwrap();
}

#[test]
fn strings_are_repaired_as_go_repairs_them() {
    for (body, text) in [
        (&b"\"a\xff\xfeb\""[..], "a\u{fffd}\u{fffd}b"),
        (b"\"\xe2\x82\"", "\u{fffd}\u{fffd}"),
        (b"\"\\ud800x\"", "\u{fffd}x"),
        (b"\"\\ud83d\\ude00\"", "\u{1f600}"),
        (b"\"\\ud83d\\u0041\"", "\u{fffd}A"),
        (b"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"", "\"\\/\x08\x0c\n\r\té"),
    ] {
        assert_eq!(parse(body).unwrap(), Value::from(text));
    }
}

#[test]
fn strings_are_escaped_as_go_escapes_them() {
    let mut out = Vec::new();
    write_string("<a href=\"x\">&\u{2028}\u{2029}é\x01\x08\x0c\n\t\\€", &mut out);
    let expected = r#""\u003ca href=\"x\"\u003e\u0026\u2028\u2029é\u0001\b\f\n\t\\€""#;
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn numbers_are_read_and_written_as_go_does() {
    let value = parse(b"[9223372036854775807,-0,1.0,1e3,1e21,1.5e-7,123456789012345678901234,0.000001,-2.5]")
        .unwrap();
    let mut out = Vec::new();
    write_untyped(&value, &mut out);
    let expected = "[9223372036854775807,0,1,1000,1e+21,1.5e-7,1.2345678901234569e+23,0.000001,-2.5]";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert!(parse(b"1e999").is_err());
}

#[test]
fn scalars_become_canonical() {
    let pod = kind("", "v1", "Pod");
    let (out, _) = round_trip(
        pod,
        r#"{"metadata":{"creationTimestamp":"2020-01-01T02:00:00+02:00"},"spec":{"containers":[{"name":"a",
        "resources":{"limits":{"cpu":0.5,"memory":"1024Ki","x":1}},
        "livenessProbe":{"httpGet":{"port":80}},"readinessProbe":{"httpGet":{"port":"web"}}}]}}"#,
    );
    for part in [
        r#""creationTimestamp":"2020-01-01T00:00:00Z""#,
        r#""limits":{"cpu":"500m","memory":"1Mi","x":"1"}"#,
        r#""port":80"#,
        r#""port":"web""#,
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
}

#[test]
fn a_tree_conforms_as_text_does() {
    let lease = kind("coordination.k8s.io", "v1", "Lease");
    let options = DecodeOptions { strict: true };
    let spec = tree!({ "leaseDurationSeconds": Value::Float(1000.0), "holder": "x" });
    let body = tree!({ "metadata": tree!({ "name": "a", "labels": Value::Null }), "spec": spec });
    let decoded = conform(body, schema::builtin(), lease, &options).unwrap();
    let spec = tree!({ "leaseDurationSeconds": 1000i64 });
    assert_eq!(decoded.value, tree!({ "metadata": tree!({ "name": "a" }), "spec": spec }));
    assert_eq!(decoded.strict, [StrictError::UnknownField("spec.holder".into())]);
    assert!(error(lease, r#"{"spec":{"leaseDurationSeconds":1e3}}"#).contains("number 1e3"));
}

#[test]
fn schema_unions_keep_their_alternative() {
    let definition = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let schema = r#"{"type":"object","properties":{"a":{"items":{"type":"string"},"additionalItems":false},"b":{"items":[{"typo":1}],"additionalProperties":{"type":"string"}}},"dependencies":{"c":["d"],"e":{"type":"object"}},"default":{"z":null,"a":1.0}}"#;
    let body =
        format!(r#"{{"spec":{{"versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#);
    let (out, strict) = round_trip(definition, &body);
    for part in [
        r#""a":{"items":{"type":"string"},"additionalItems":false}"#,
        r#""b":{"items":[{}],"additionalProperties":{"type":"string"}}"#,
        r#""dependencies":{"c":["d"],"e":{"type":"object"}}"#,
        r#""default":{"a":1,"z":null}"#,
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert!(strict.is_empty(), "upstream does not look into unions: {strict:?}");
    let wrong = body.replace("\"additionalItems\":false", "\"additionalItems\":5");
    assert_eq!(error(definition, &wrong), "boolean or JSON schema expected");
}

#[test]
fn kinds_are_found_without_reading_on() {
    let found =
        peek_type(br#"{"metadata":{"kind":"no"},"kind":"Pod","apiVersion":"v1","spec": not read"#).unwrap();
    assert_eq!((found.kind.as_str(), found.api_version.as_str()), ("Pod", "v1"));
    assert_eq!(peek_type(b"{}").unwrap(), TypeMeta::default());
    assert_eq!(
        peek_type(br#"{"kind":5}"#).unwrap_err().to_string(),
        "json: cannot unmarshal number into Go struct field .kind of type string"
    );
}

#[test]
fn pretty_is_as_go_indents() {
    let mut out = Vec::new();
    let id = kind("", "v1", "ConfigMap");
    write_pretty(
        &tree!({ "data": tree!({ "a": "{,:\"" }), "metadata": tree!({}) }),
        schema::builtin(),
        id,
        &mut out,
    );
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\n  \"metadata\": {},\n  \"data\": {\n    \"a\": \"{,:\\\"\"\n  }\n}"
    );
}

#[test]
fn a_text_is_indented_the_same_in_pieces_of_any_size() {
    let compact = br#"{"a":{},"b":[],"c":[{"d":"x\\\"{,:]"},1,[[]]],"e":"\\"}"#;
    let mut whole = Vec::new();
    Indenter::default().push(compact, &mut whole);
    assert_eq!(
        String::from_utf8(whole.clone()).unwrap(),
        "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    {\n      \"d\": \"x\\\\\\\"{,:]\"\n    },\n    1,\n    [\n      []\n    ]\n  ],\n  \"e\": \"\\\\\"\n}"
    );
    for size in 1..compact.len() {
        let (mut indenter, mut out) = (Indenter::default(), Vec::new());
        compact.chunks(size).for_each(|piece| indenter.push(piece, &mut out));
        assert_eq!(out, whole, "pieces of {size}");
    }
}

#[test]
fn what_owners_own_stays_text_in_stored_objects_alone() {
    let text = r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}},"manager":"m"}],"fieldsV1":{}},"spec":[{"managedFields":[{"fieldsV1":{}}]}]}"#;
    let (stored, read) = (parse_stored(text.as_bytes()).unwrap(), parse(text.as_bytes()).unwrap());
    assert_eq!(stored, read);
    let encoded = |value: &Value| {
        let mut found = Vec::new();
        let mut work = vec![value];
        while let Some(value) = work.pop() {
            match value {
                Value::Encoded(encoded) => found.push(encoded.text().to_owned()),
                Value::Array(elements) => work.extend(elements),
                Value::Object(members) => work.extend(members.values()),
                _ => {}
            }
        }
        found
    };
    assert_eq!(encoded(&stored), [r#"{"f:a":{}}"#]);
    assert_eq!(encoded(&read), [""; 0]);
    for malformed in [
        r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}]}}"#,
        r#"{"metadata":{"managedFields":[{"fieldsV1":{"#,
    ] {
        assert!(parse_stored(malformed.as_bytes()).is_err(), "{malformed}");
    }
    // Invalid UTF-8 is replaced as elsewhere.
    let broken = b"{\"metadata\":{\"managedFields\":[{\"fieldsV1\":{\"f:\xff\":{}}}]}}";
    assert_eq!(parse_stored(broken).unwrap(), parse(broken).unwrap());
}
