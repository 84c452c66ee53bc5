//! Bodies that are deep, long, malformed or not UTF-8, in every encoding and wherever a body is read: each is
//! refused, nothing is stored, and nothing of it stays in memory.

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Protocol, JSON};
use serde_json::{json, Value};

use super::Target;

const YAML: &str = "application/yaml";
const CBOR: &str = "application/cbor";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const APPLY_CBOR: &str = "application/apply-patch+cbor";

/// Deeper than any stack and than the 10,000 levels that the API allows; of four bytes each it is less than a
/// body may have.
const DEEP: usize = 200_000;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const KEPT: &str = "/api/v1/namespaces/default/configmaps/kept";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// One request and the codes that it may be answered with.
struct Row {
    name: &'static str,
    method: Method,
    path: &'static str,
    media_type: &'static str,
    body: Vec<u8>,
    codes: &'static [u16],
}

fn row(
    name: &'static str,
    (method, path): (Method, &'static str),
    media_type: &'static str,
    body: impl Into<Vec<u8>>,
    codes: &'static [u16],
) -> Row {
    Row { name, method, path, media_type, body: body.into(), codes }
}

fn repeat(start: &[u8], unit: &[u8], times: usize, end: &[u8]) -> Vec<u8> {
    [start, &unit.repeat(times), end].concat()
}

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A field of protobuf with a length.
fn field(number: usize, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 8);
    varint(number << 3 | 2, &mut out);
    varint(value.len(), &mut out);
    out.extend_from_slice(value);
    out
}

/// An object in Kubernetes' envelope.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let kind = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &kind), field(2, raw)].concat()
}

fn map(raw: &[u8]) -> Vec<u8> {
    envelope("v1", "ConfigMap", raw)
}

/// A message in itself, `levels` times; lengths are worked out from the inside.
fn nested(number: usize, levels: usize) -> Vec<u8> {
    // Written backwards, since a length stands before what it counts.
    let mut reversed: Vec<u8> = Vec::new();
    for _ in 0..levels {
        let mut head = Vec::new();
        varint(number << 3 | 2, &mut head);
        varint(reversed.len(), &mut head);
        reversed.extend(head.iter().rev());
    }
    reversed.reverse();
    reversed
}

/// Each step doubles a part of the document.
fn doubling() -> String {
    let mut steps = vec![json!({"op": "add", "path": "/data/a", "value": "x".repeat(1000)})];
    steps.push(json!({"op": "add", "path": "/metadata/annotations", "value": {"a": {}}}));
    for n in 0..40 {
        let from = if n % 2 == 0 { "/data" } else { "/metadata/annotations" };
        let to = if n % 2 == 0 { "/metadata/annotations/x" } else { "/data/x" };
        steps.push(json!({"op": "copy", "from": from, "path": format!("{to}{n}")}));
    }
    Value::Array(steps).to_string()
}

fn rows() -> Vec<Row> {
    let create = || (Method::POST, MAPS);
    let patch = || (Method::PATCH, KEPT);
    let delete = || (Method::DELETE, KEPT);
    let define = || (Method::POST, DEFINITIONS);
    let review = || (Method::POST, REVIEWS);
    let token = || (Method::POST, TOKENS);
    let bad = &[400u16][..];
    let refused = &[400u16, 413, 422][..];
    let deep_json = || repeat(br#"{"metadata":{"name":"deep"},"data":"#, br#"{"a":"#, DEEP, b"1");
    let deep_cbor = |unit: &[u8]| repeat(b"\xd9\xd9\xf7\xa1\x44data", unit, DEEP, b"\x01");
    let cbor = |rest: &[u8]| [b"\xd9\xd9\xf7\xa2\x48metadata\xa1\x44name\x41a\x44data", rest].concat();
    let name = || field(1, &field(1, b"deep"));
    vec![
        // Depth.
        row("deep JSON to delete with", delete(), JSON, deep_json(), bad),
        row("deep JSON to ask with", review(), JSON, deep_json(), bad),
        row("deep JSON for a token", token(), JSON, deep_json(), bad),
        row(
            "deep JSON in a JSON patch",
            patch(),
            JSON_PATCH,
            repeat(br#"[{"op":"add","path":"/data/x","value":"#, b"[", DEEP, b"1"),
            bad,
        ),
        row(
            "a deep path in a JSON patch",
            patch(),
            JSON_PATCH,
            [&br#"[{"op":"add","value":"1","path":""#[..], &b"/a".repeat(DEEP), br#""}]"#].concat(),
            refused,
        ),
        row("deep JSON to apply", patch(), APPLY, deep_json(), bad),
        row(
            "deep YAML in blocks",
            create(),
            YAML,
            (0..2000).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>(),
            refused,
        ),
        row("deep YAML lists", create(), YAML, repeat(b"data: ", b"- ", DEEP, b"1"), bad),
        row("deep lists in CBOR", create(), CBOR, deep_cbor(b"\x81"), bad),
        row("deep maps in CBOR", create(), CBOR, deep_cbor(b"\xa1\x41a"), bad),
        row("deep lists without an end in CBOR", create(), CBOR, deep_cbor(b"\x9f"), bad),
        row("deep tags in CBOR", create(), CBOR, deep_cbor(b"\xc1"), bad),
        row("deep CBOR to apply", patch(), APPLY_CBOR, deep_cbor(b"\xa1\x41a"), bad),
        row(
            "deep messages in protobuf",
            define(),
            PROTOBUF,
            envelope(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                &[name(), field(2, &field(7, &field(4, &field(1, &nested(28, DEEP)))))].concat(),
            ),
            refused,
        ),
        row("deep groups in protobuf", create(), PROTOBUF, map(&repeat(&name(), b"\x7b", DEEP, b"")), bad),
        row(
            "deep managed fields",
            create(),
            JSON,
            format!(
                r#"{{"metadata":{{"name":"deep","managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}1}}]}}}}"#,
                r#"{"f:a":"#.repeat(DEEP)
            ),
            bad,
        ),
        // Lengths that promise more than there is.
        row("a long text in CBOR", create(), CBOR, cbor(b"\x7b\x7f\xff\xff\xff\xff\xff\xff\xff"), bad),
        row("a long list in CBOR", create(), CBOR, cbor(b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"), bad),
        row("a long map in CBOR", create(), CBOR, cbor(b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff"), bad),
        row(
            "a long field in protobuf",
            create(),
            PROTOBUF,
            map(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
            bad,
        ),
        row("a number without an end in protobuf", create(), PROTOBUF, map(&[0xff; 64]), bad),
        row("a field without a number in protobuf", create(), PROTOBUF, map(b"\x02\x00"), bad),
        // What is no text, or no name.
        row("NUL in a name", create(), JSON, r#"{"metadata":{"name":"a\u0000b"}}"#, &[422]),
        row("NUL in a label", create(), JSON, r#"{"metadata":{"name":"a","labels":{"a":"\u0000"}}}"#, &[422]),
        row("NUL in a key", create(), JSON, r#"{"metadata":{"name":"a"},"data":{"a\u0000":"b"}}"#, &[422]),
        row("bare NUL", create(), JSON, b"{\"metadata\":{\"name\":\"a\0\"}}".to_vec(), bad),
        row("NUL in YAML", create(), YAML, b"metadata: {name: a\0}".to_vec(), bad),
        row(
            "other bytes in a name",
            create(),
            JSON,
            b"{\"metadata\":{\"name\":\"a\xff\"}}".to_vec(),
            &[400, 422],
        ),
        row("other bytes in YAML", create(), YAML, b"metadata: {name: \"a\xff\"}".to_vec(), bad),
        row("other bytes in CBOR", create(), CBOR, cbor(b"\xa1\x61\xff\x41b"), bad),
        row("other bytes in protobuf", create(), PROTOBUF, map(&field(1, &field(1, b"a\xff"))), &[400, 422]),
        row("half of a pair", create(), JSON, r#"{"metadata":{"name":"\ud800"}}"#, &[400, 422]),
        row(
            "UTF-16",
            create(),
            JSON,
            "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>(),
            bad,
        ),
        // What grows.
        row("a JSON patch that doubles", patch(), JSON_PATCH, doubling(), refused),
        row(
            "many steps of a JSON patch",
            patch(),
            JSON_PATCH,
            repeat(
                b"[",
                br#"{"op":"test","path":"/kind","value":"x"},"#,
                60_000,
                br#"{"op":"remove","path":"/x"}]"#,
            ),
            refused,
        ),
        row("aliases of aliases", patch(), APPLY, aliases(), bad),
        row("many documents", create(), YAML, "---\n".repeat(500_000), refused),
        row(
            "a number of a million digits",
            create(),
            JSON,
            format!(r#"{{"metadata":{{"name":"a","generation":{}}}}}"#, "9".repeat(1_000_000)),
            bad,
        ),
        row(
            "an exponent without end",
            create(),
            JSON,
            r#"{"metadata":{"name":"a","generation":1e999999999999}}"#,
            bad,
        ),
        row(
            "a quantity of a million digits",
            (Method::POST, "/api/v1/namespaces/default/resourcequotas"),
            JSON,
            format!(
                r#"{{"metadata":{{"name":"a"}},"spec":{{"hard":{{"cpu":"{}x"}}}}}}"#,
                "9".repeat(1_000_000)
            ),
            bad,
        ),
        row(
            "many wrong labels",
            create(),
            JSON,
            format!(
                r#"{{"metadata":{{"name":"a","labels":{{{}"a":"b"}}}}}}"#,
                (0..150_000).map(|n| format!(r#""-{n}":"-","#)).collect::<String>()
            ),
            refused,
        ),
        row(
            "many wrong owners",
            create(),
            JSON,
            format!(r#"{{"metadata":{{"name":"a","ownerReferences":[{}{{}}]}}}}"#, "{},".repeat(500_000)),
            refused,
        ),
        row(
            "many owners that all control",
            create(),
            JSON,
            format!(
                r#"{{"metadata":{{"name":"a","ownerReferences":[{}{{}}]}}}}"#,
                (0..80_000).map(|n| format!(r#"{{"uid":"{n}","controller":true}},"#)).collect::<String>()
            ),
            refused,
        ),
        row("an empty body that says it is a patch", patch(), MERGE, "", bad),
        row(
            "a strategic patch of directives",
            patch(),
            STRATEGIC,
            repeat(b"", br#"{"$patch":"replace","data":"#, DEEP / 4, b"1"),
            bad,
        ),
    ]
}

/// 2^30 words when expanded.
fn aliases() -> String {
    let head = "apiVersion: v1\nkind: ConfigMap\ndata:\n  a0: &a0 [x, x]\n".to_owned();
    (1..30).fold(head, |text, n| format!("{text}  a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1))
}

#[tokio::test]
async fn bodies_are_refused_wherever_they_are_read() {
    let target = Target::start().await;
    let mut connection = target.server.connect(Protocol::Http2).await;
    let kept = json!({"metadata": {"name": "kept"}, "data": {"k": "v"}});
    connection.must(&Call::new(Method::POST, MAPS).body(JSON, kept.to_string())).await.expect("create");
    let stored = async || {
        let mut connection = target.server.connect(Protocol::Http2).await;
        let list = connection.must(&Call::get(MAPS)).await.expect("list");
        let list: Value = serde_json::from_slice(&list.body).expect("JSON");
        list["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|item| (item["metadata"]["name"].clone(), item["metadata"]["resourceVersion"].clone()))
            .collect::<Vec<_>>()
    };
    let before = stored().await;
    let mut failures = Vec::new();
    for Row { name, method, path, media_type, body, codes } in rows() {
        let query = if media_type.starts_with("application/apply") { "?fieldManager=e2e" } else { "" };
        let call = Call::new(method, format!("{path}{query}")).body(media_type, body);
        match connection.call(&call).await {
            Ok(reply) if codes.contains(&reply.status.as_u16()) => {
                if reply.body.len() > 8 << 20 {
                    failures.push(format!("{name}: an answer of {} bytes", reply.body.len()));
                }
            }
            Ok(reply) => {
                let text: String = reply.text().chars().take(200).collect();
                failures.push(format!("{name}: {} {text}", reply.status));
            }
            Err(error) => {
                failures.push(format!("{name}: no answer: {error}"));
                connection = target.server.connect(Protocol::Http2).await;
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(stored().await, before);
    target.serves("bodies").await;
}

/// Unknown fields are reported in Warning headers, which have limits of their own.
#[tokio::test]
async fn warnings_without_end_are_cut() {
    let target = Target::start().await;
    let mut connection = target.server.connect(Protocol::Http1).await;
    let unknown: String = (0..100_000).map(|n| format!(r#","unknown{n}":1"#)).collect();
    let body = format!(r#"{{"metadata":{{"name":"warned"}}{unknown}}}"#);
    let reply =
        connection.call(&Call::new(Method::POST, MAPS).body(JSON, body.clone())).await.expect("an answer");
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
    let warnings = reply.headers.get_all("warning");
    let size: usize = warnings.iter().map(|value| value.len()).sum();
    assert!(size > 0 && size <= 16 << 10, "{size} bytes of warnings");
    let path = format!("{MAPS}?fieldValidation=Strict");
    let reply = connection.call(&Call::new(Method::POST, path).body(JSON, body)).await.expect("an answer");
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(reply.body.len() < 1 << 20, "{} bytes", reply.body.len());
    target.serves("unknown fields").await;
}

/// Queries: what is no text, no number, or too much.
#[tokio::test]
async fn queries_have_bounds() {
    let target = Target::start().await;
    let many = |text: &str| vec![text; 4_000].join(",");
    let rows = [
        ("labelSelector=%ff%fe".to_owned(), 400),
        ("labelSelector=a%00b".to_owned(), 400),
        ("fieldSelector=metadata.name%3D%00".to_owned(), 200),
        (format!("labelSelector={}", many("a!=b")), 200),
        (format!("labelSelector=a%20in%20({})", many("b")), 200),
        (format!("labelSelector={}", "(".repeat(50_000)), 400),
        (format!("fieldSelector={}", vec!["metadata.name!=b"; 3_000].join(",")), 200),
        (format!("continue={}", "A".repeat(50_000)), 400),
        ("continue=%00%ff".to_owned(), 400),
        ("limit=99999999999999999999999".to_owned(), 400),
        ("limit=9223372036854775807".to_owned(), 200),
        ("resourceVersion=99999999999999999999999999".to_owned(), 400),
        ("timeoutSeconds=99999999999999999999999&watch=1".to_owned(), 400),
        ("a=b&".repeat(10_000), 200),
        ("%".to_owned(), 200),
    ];
    let mut failures = Vec::new();
    for (query, code) in rows {
        let mut connection = target.server.connect(Protocol::Http1).await;
        let start: String = query.chars().take(60).collect();
        match connection.call(&Call::get(format!("{MAPS}?{query}"))).await {
            Ok(reply) if reply.status == code => {}
            Ok(reply) => failures.push(format!(
                "{start}: {} {}",
                reply.status,
                reply.text().chars().take(200).collect::<String>()
            )),
            Err(error) => failures.push(format!("{start}: no answer: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    target.serves("queries").await;
}

/// Control characters in a value come back escaped as Go escapes them, wherever an error names the value.
#[tokio::test]
async fn values_in_errors_are_quoted_as_go_quotes_them() {
    let target = Target::start().await;
    let mut connection = target.server.connect(Protocol::Http2).await;
    let value = "\u{1b}\0e\u{301}";
    let quoted = "\"\\x1b\\x00e\u{301}\"";
    let container = json!({"name": "c", "image": "i", "imagePullPolicy": value});
    let pod = json!({"metadata": {"name": "escaped"}, "spec": {"containers": [container]}});
    let event =
        json!({"apiVersion": format!("{value}/v1"), "kind": "ConfigMap", "metadata": {"name": "escaped"}});
    let rows = [
        (Call::new(Method::POST, "/api/v1/namespaces/default/pods").body(JSON, pod.to_string()), 422, quoted),
        (Call::new(Method::POST, MAPS).body(JSON, event.to_string()), 400, "\\x1b\\x00e\u{301}/v1\""),
        (Call::get(format!("{MAPS}?resourceVersion=%1b%00")), 400, "\"\\x1b\\x00\""),
    ];
    for (call, code, wanted) in rows {
        let reply = connection.call(&call).await.expect("an answer");
        assert_eq!(reply.status, code, "{}", reply.text());
        let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
        let message = status["message"].as_str().expect("a message");
        assert!(message.contains(wanted), "{message:?}");
    }
}
