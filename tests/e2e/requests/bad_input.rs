//! Malformed input: each request gets a clear Status, nothing is stored, and the server keeps serving.

use http::Method;
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::requests::send;
use plinth_tests::server::{namespace, shared};
use serde_json::{json, Value};

const YAML: &str = "application/yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Deeper than any stack and than the 10,000 levels that the API allows.
const DEEP: usize = 100_000;
/// The largest body, and one byte more.
const BODY_LIMIT: usize = 3 << 20;

struct Case {
    name: &'static str,
    method: Method,
    /// Below the test's namespace.
    path: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
    code: u16,
    reason: &'static str,
}

fn post(
    name: &'static str,
    content_type: &'static str,
    body: impl Into<Vec<u8>>,
    code: u16,
    reason: &'static str,
) -> Case {
    Case { name, method: Method::POST, path: "configmaps", content_type, body: body.into(), code, reason }
}

fn patch(
    name: &'static str,
    content_type: &'static str,
    body: impl Into<Vec<u8>>,
    code: u16,
    reason: &'static str,
) -> Case {
    Case {
        name,
        method: Method::PATCH,
        path: "configmaps/kept",
        content_type,
        body: body.into(),
        code,
        reason,
    }
}

fn nested(open: &str, close: &str) -> Vec<u8> {
    let (open, close) = (open.repeat(DEEP), close.repeat(DEEP));
    format!(r#"{{"metadata":{{"name":"deep"}},"data":{open}1{close}}}"#).into_bytes()
}

/// Nested as deep as bodies may be, in a place for a text.
fn deepest_value() -> String {
    let (open, close) = ([r#"{"a":"#, "["].concat().repeat(4_990), "]}".repeat(4_990));
    format!(r#"{{"data":{{"k":{open}1{close}}}}}"#)
}

fn config_map_of(bytes: usize) -> Vec<u8> {
    let head = r#"{"metadata":{"name":"large"},"data":{"k":""#;
    let tail = r#""}}"#;
    let fill = "x".repeat(bytes - head.len() - tail.len());
    format!("{head}{fill}{tail}").into_bytes()
}

fn cases() -> Vec<Case> {
    let bad = "BadRequest";
    vec![
        post("truncated JSON", JSON, r#"{"metadata":{"name":"a""#, 400, bad),
        post("text after JSON", JSON, r#"{"metadata":{"name":"a"}} more"#, 400, bad),
        post("no JSON at all", JSON, "hello", 400, bad),
        post("empty JSON", JSON, "", 400, bad),
        post("a list for an object", JSON, "[]", 400, bad),
        post("malformed YAML", YAML, "metadata: {name: a\n  : [", 400, bad),
        post("YAML with a tab", YAML, "metadata:\n\tname: a", 400, bad),
        post("a number for a string", JSON, r#"{"metadata":{"name":7}}"#, 400, bad),
        post("a list for a map", JSON, r#"{"metadata":{"name":"a"},"data":[]}"#, 400, bad),
        post("a map for a string", JSON, r#"{"metadata":{"name":"a"},"data":{"k":{}}}"#, 400, bad),
        post("a string for a bool", JSON, r#"{"metadata":{"name":"a"},"immutable":"yes"}"#, 400, bad),
        post("bad base64", JSON, r#"{"metadata":{"name":"a"},"binaryData":{"k":"%%%"}}"#, 400, bad),
        post(
            "a wrong kind",
            JSON,
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#,
            400,
            bad,
        ),
        post(
            "a wrong version",
            JSON,
            r#"{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a"}}"#,
            400,
            bad,
        ),
        post(
            "an unknown kind",
            JSON,
            r#"{"apiVersion":"v1","kind":"Nothing","metadata":{"name":"a"}}"#,
            400,
            bad,
        ),
        post("nested lists in JSON", JSON, nested("[", "]"), 400, bad),
        post("nested maps in JSON", JSON, nested(r#"{"a":"#, "}"), 400, bad),
        post("nested lists in YAML", YAML, nested("[", "]"), 400, bad),
        post("nested maps in YAML", YAML, nested("{a: ", "}"), 400, bad),
        post("lists never closed", JSON, "[".repeat(DEEP), 400, bad),
        post("an alias bomb", YAML, alias_bomb(), 400, bad),
        post("random protobuf", PROTOBUF, b"k8s\0\xff\xff\xff\xff\xff\xff\xff".to_vec(), 400, bad),
        post("protobuf without its head", PROTOBUF, b"\x0a\x03abc".to_vec(), 400, bad),
        post("an unknown media type", "text/plain", "name: a", 415, "UnsupportedMediaType"),
        post("a body above the limit", JSON, config_map_of(BODY_LIMIT + 1), 413, "RequestEntityTooLarge"),
        patch("a truncated merge patch", MERGE, r#"{"data":{"#, 400, bad),
        patch("a merge patch of a wrong type", MERGE, r#"{"data":{"k":{}}}"#, 422, "Invalid"),
        patch("a list as merge patch", MERGE, "[]", 400, bad),
        patch("a JSON patch that is no list", JSON_PATCH, r#"{"op":"add"}"#, 400, bad),
        patch(
            "an unknown JSON patch operation",
            JSON_PATCH,
            r#"[{"op":"grow","path":"/data"}]"#,
            422,
            "Invalid",
        ),
        patch(
            "a JSON patch of an absent path",
            JSON_PATCH,
            r#"[{"op":"remove","path":"/data/absent"}]"#,
            422,
            "Invalid",
        ),
        patch("a truncated strategic patch", STRATEGIC, r#"{"data":"#, 400, bad),
        patch("nested lists in a merge patch", MERGE, nested("[", "]"), 400, bad),
        patch("nested maps in a strategic patch", STRATEGIC, nested(r#"{"a":"#, "}"), 400, bad),
        patch("the deepest value in a strategic patch", STRATEGIC, deepest_value(), 422, "Invalid"),
        patch("the deepest value in a merge patch", MERGE, deepest_value(), 422, "Invalid"),
        patch("an unknown patch type", "application/strange-patch+json", "{}", 415, "UnsupportedMediaType"),
        patch("an apply without a manager", APPLY, "{apiVersion: v1, kind: ConfigMap}", 422, "Invalid"),
        patch("a patch above the limit", MERGE, config_map_of(BODY_LIMIT + 1), 413, "RequestEntityTooLarge"),
        Case {
            name: "an unknown resource",
            method: Method::POST,
            path: "nothings",
            content_type: JSON,
            body: br#"{"metadata":{"name":"a"}}"#.to_vec(),
            code: 404,
            reason: "NotFound",
        },
    ]
}

/// 2^30 copies of one word when expanded.
fn alias_bomb() -> String {
    let mut text = String::from("metadata: {name: bomb}\ndata:\n  a0: &a0 [x, x]\n");
    for level in 1..30 {
        let below = level - 1;
        text.push_str(&format!("  a{level}: &a{level} [*a{below}, *a{below}]\n"));
    }
    text
}

#[tokio::test]
async fn bad_bodies_are_refused_and_change_nothing() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "bad").await;
    let collection = format!("/api/v1/namespaces/{namespace}");
    let list = Call::get(format!("{collection}/configmaps"));
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut connection = server.connect(protocol).await;
        let kept = json!({"metadata": {"name": "kept"}, "data": {"k": "v"}}).to_string();
        let kept = Call::new(Method::POST, format!("{collection}/configmaps")).body(JSON, kept);
        connection.call(&kept).await.expect("create");
        let items = |body: &[u8]| serde_json::from_slice::<Value>(body).expect("a list")["items"].clone();
        let before = items(&connection.must(&list).await.expect("list").body);
        let mut failures = Vec::new();
        for case in cases() {
            let call = Call::new(case.method, format!("{collection}/{}", case.path))
                .body(case.content_type, case.body);
            let reply = match connection.call(&call).await {
                Ok(reply) => reply,
                Err(error) => {
                    failures.push(format!("{}: no answer: {error}", case.name));
                    connection = server.connect(protocol).await;
                    continue;
                }
            };
            let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let got = (reply.status.as_u16(), &status["kind"], &status["code"], &status["reason"]);
            if got != (case.code, &json!("Status"), &json!(case.code), &json!(case.reason)) {
                failures.push(format!(
                    "{}: expected {} {}, got {}",
                    case.name,
                    case.code,
                    case.reason,
                    reply.text()
                ));
            }
            if reply.headers.get("connection").is_some_and(|v| v == "close") || case.code == 413 {
                connection = server.connect(protocol).await;
            }
        }
        assert!(
            failures.is_empty(),
            "{protocol:?}: {} of the cases failed:\n{}",
            failures.len(),
            failures.join("\n")
        );
        let after = items(&connection.must(&list).await.expect("list").body);
        assert_eq!(after, before, "nothing was stored");
    }
}

#[tokio::test]
async fn a_body_at_the_limit_is_read() {
    // Larger than what a ConfigMap may hold, so it is refused as an object, not as a body.
    let server = shared().await;
    let namespace = namespace(&server.client().await, "limit").await;
    let mut connection = server.connect(Protocol::Http2).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let reply = connection
        .call(&Call::new(Method::POST, path).body(JSON, config_map_of(BODY_LIMIT)))
        .await
        .expect("answer");
    let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
    assert_eq!((reply.status.as_u16(), &status["reason"]), (422, &json!("Invalid")), "{status}");
}

#[tokio::test]
async fn bad_queries_are_refused() {
    let mut connection = shared().await.connect(Protocol::Http2).await;
    let cases = [
        ("configmaps?resourceVersion=abc", 400, "BadRequest"),
        ("configmaps?continue=abc", 400, "BadRequest"),
        ("configmaps?labelSelector=a%20in%20(", 400, "BadRequest"),
        ("configmaps?fieldSelector=nothing.here%3D1", 400, "BadRequest"),
        ("configmaps?limit=many", 400, "BadRequest"),
        ("configmaps?resourceVersionMatch=Exact", 422, "Invalid"),
        ("configmaps?sendInitialEvents=true", 422, "Invalid"),
        ("configmaps/absent", 404, "NotFound"),
        ("nothings", 404, "NotFound"),
    ];
    for (query, code, reason) in cases {
        let reply =
            connection.call(&Call::get(format!("/api/v1/namespaces/default/{query}"))).await.expect(query);
        let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let got = (reply.status.as_u16(), &status["kind"], &status["reason"]);
        assert_eq!(got, (code, &json!("Status"), &json!(reason)), "{query}: {}", reply.text());
    }
    for path in ["/nothing", "/apis/nothing.example", "/apis/nothing.example/v1/things"] {
        let reply = connection.call(&Call::get(path)).await.expect(path);
        assert_eq!(reply.status.as_u16(), 404, "{path}");
    }
}

#[tokio::test]
async fn bad_parameters_are_named_in_upstreams_words() {
    let mut connection = shared().await.connect(Protocol::Http2).await;
    let rows = [
        (
            "?continue=abc",
            "invalid continue token: continue key is not valid: invalid character 'i' looking for beginning of value",
        ),
        (
            "?continue=a%2Bb",
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 1",
        ),
        ("?fieldManager=%00", r#""\x00": invalid character U+0000 (at position 0)"#),
        ("?fieldManager=a%0bb", r#""a\vb": invalid character U+000B (at position 1)"#),
        ("?fieldManager=%e2%80%a8", r#""\u2028": invalid character U+2028 (at position 0)"#),
    ];
    for (query, end) in rows {
        let path = format!("/api/v1/namespaces/default/configmaps{query}");
        let call = match query.starts_with("?continue") {
            true => Call::get(path),
            false => Call::new(Method::POST, path).body(JSON, r#"{"metadata":{"name":"a"}}"#),
        };
        let reply = connection.call(&call).await.expect(query);
        let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        assert!(status["message"].as_str().is_some_and(|m| m.ends_with(end)), "{query}: {}", reply.text());
    }
}

#[tokio::test]
async fn strict_validation_names_what_is_unknown() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "strict").await;
    let mut connection = server.connect(Protocol::Http2).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let body = r#"{"metadata":{"name":"a","lables":{}},"data":{"k":"1","k":"2"},"extra":1}"#;
    let strict = Call::new(Method::POST, format!("{path}?fieldValidation=Strict")).body(JSON, body);
    let reply = connection.call(&strict).await.expect("answer");
    let text = reply.text();
    assert_eq!(reply.status.as_u16(), 400, "{text}");
    for part in [
        r#"unknown field \"metadata.lables\""#,
        r#"duplicate field \"data.k\""#,
        r#"unknown field \"extra\""#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let warn = Call::new(Method::POST, format!("{path}?fieldValidation=Warn")).body(JSON, body);
    let reply = connection.call(&warn).await.expect("answer");
    assert_eq!(reply.status.as_u16(), 201, "{}", reply.text());
    let warnings: Vec<_> =
        reply.headers.get_all("warning").iter().map(|w| w.to_str().expect("text")).collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    let stored: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(stored["data"]["k"], "2", "the last of two wins");
    assert_eq!(stored.get("extra"), None);
}

/// Also what is no object of the resource: a scale, and what is not stored.
#[tokio::test]
async fn every_body_is_checked_for_unknown_fields() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "unknown-fields").await;
    let core = format!("/api/v1/namespaces/{namespace}");
    let made =
        send(&client, "POST", &format!("{core}/serviceaccounts"), &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
    });
    let controller =
        json!({"metadata": {"name": "a"}, "spec": {"selector": {"app": "a"}, "template": template}});
    let made = send(&client, "POST", &format!("{core}/replicationcontrollers"), &controller).await;
    assert_eq!(made.code, 201, "{}", made.text);
    for (method, path, body) in [
        (
            "PUT",
            format!("{core}/replicationcontrollers/a/scale"),
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}}),
        ),
        ("POST", format!("{core}/serviceaccounts/a/token"), json!({"spec": {"expirationSeconds": 600}})),
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews".into(), json!({})),
    ] {
        let mut body = body;
        body["extra"] = json!(1);
        let warned = send(&client, method, &format!("{path}?fieldValidation=Warn"), &body).await;
        assert!(matches!(warned.code, 200 | 201), "{path}: {}", warned.text);
        let unknown = |text: &String| text.contains(r#"unknown field \"extra\""#);
        assert_eq!(
            warned.warnings.iter().filter(|text| unknown(text)).count(),
            1,
            "{path}: {:?}",
            warned.warnings
        );
        let refused = send(&client, method, &format!("{path}?fieldValidation=Strict"), &body).await;
        assert_eq!(refused.code, 400, "{path}: {}", refused.text);
        let silent = send(&client, method, &format!("{path}?fieldValidation=Ignore"), &body).await;
        assert!(matches!(silent.code, 200 | 201), "{path}: {}", silent.text);
        assert!(!silent.warnings.iter().any(unknown), "{path}: {:?}", silent.warnings);
    }
}
