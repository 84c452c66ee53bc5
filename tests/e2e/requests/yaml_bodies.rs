//! Bodies in YAML's flow style, which look like JSON and are not.

use http::Method;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::server::{namespace, shared};
use serde_json::{json, Value};

const YAML: &str = "application/yaml";
const APPLY: &str = "application/apply-patch+yaml";

/// Objects named `a` with the data `{"k": "v"}`.
const FLOW: [&str; 6] = [
    r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}"#,
    r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a",}, "data": {"k": "v"},}"#,
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}",
    "\n  {'apiVersion': v1, # a comment\n   kind: ConfigMap, metadata: {name: a}, data: {k: v}}\n",
    "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"a\"}, \"data\": &d {\"k\": \"v\"}}",
    "---\n{kind: ConfigMap, apiVersion: v1, metadata: {name: a}, data: {\n  k: v,\n}}\n",
];

#[tokio::test]
async fn flow_mappings_are_yaml_where_yaml_is_sent() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "flow").await;
    let mut connection = server.connect(Protocol::Http2).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    for text in FLOW {
        let object = format!("{path}/a?fieldManager=flow");
        let create = Call::new(Method::POST, &path).body(YAML, text);
        let replace = Call::new(Method::PUT, &object).body(YAML, text);
        let apply = Call::new(Method::PATCH, &object).body(APPLY, text);
        for (call, code) in [(&apply, 201), (&apply, 200), (&replace, 200)] {
            let reply = connection.call(call).await.expect("an answer");
            assert_eq!(reply.status.as_u16(), code, "{text}: {}", reply.text());
            let stored: Value = serde_json::from_slice(&reply.body).expect("JSON");
            assert_eq!(stored["data"], json!({"k": "v"}), "{text}");
        }
        connection.must(&Call::new(Method::DELETE, &object)).await.expect("deleted");
        let reply = connection.call(&create).await.expect("an answer");
        assert_eq!(reply.status.as_u16(), 201, "{text}: {}", reply.text());
        connection.must(&Call::new(Method::DELETE, &object)).await.expect("deleted");
    }
}

#[tokio::test]
async fn what_is_applied_has_the_errors_of_yaml() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "flow-errors").await;
    let mut connection = server.connect(Protocol::Http2).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/a?fieldManager=flow");
    let rows = [
        (
            "{kind: ConfigMap, apiVersion: v1",
            "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected ',' or '}'",
        ),
        (
            "{kind: ConfigMap,\n apiVersion: v1,\n data: {k: v}]\n",
            "error decoding YAML: error converting YAML to JSON: yaml: line 2: did not find expected ',' or '}'",
        ),
    ];
    for (text, message) in rows {
        let reply =
            connection.call(&Call::new(Method::PATCH, &path).body(APPLY, text)).await.expect("an answer");
        let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
        assert_eq!(
            (&status["code"], &status["message"]),
            (&json!(400), &json!(message)),
            "{text}: {}",
            reply.text()
        );
    }

    // Duplicate keys, also of what could be JSON.
    let twice = "{\"kind\": \"ConfigMap\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"a\"},\n \"data\": {\"k\": \"1\",\n \"k\": \"2\"},\n \"data\": {\"k\": \"3\"}}";
    let apply = |validation: &str| {
        Call::new(Method::PATCH, format!("{path}&fieldValidation={validation}")).body(APPLY, twice)
    };
    let strict = connection.call(&apply("Strict")).await.expect("an answer");
    let status: Value = serde_json::from_slice(&strict.body).expect("a Status");
    let message = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
                   line 3: key \"k\" already set in map\n  line 4: key \"data\" already set in map";
    assert_eq!((&status["code"], &status["message"]), (&json!(400), &json!(message)), "{}", strict.text());
    for (validation, expected) in [("Warn", 2), ("Ignore", 0)] {
        let reply = connection.must(&apply(validation)).await.expect("applied");
        let warnings: Vec<_> =
            reply.headers.get_all("warning").iter().map(|text| text.to_str().expect("text")).collect();
        assert_eq!(warnings.len(), expected, "{validation}: {warnings:?}");
        assert!(reply.text().contains(r#""k":"3""#), "{}", reply.text());
    }
}
