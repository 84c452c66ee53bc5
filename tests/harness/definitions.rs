//! CustomResourceDefinitions, and requests for the resources that they define.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::Client;
use serde_json::{json, Value};

/// How long a definition may take to be established; only reached when it never is.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(60);
/// Where definitions are.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition with one version `v1` and that schema. `kind` in CamelCase gives all names.
pub fn definition(group: &str, kind: &str, scope: &str, schema: Value) -> Value {
    with_versions(
        group,
        kind,
        scope,
        json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}}}]),
    )
}

/// A definition with those versions.
pub fn with_versions(group: &str, kind: &str, scope: &str, versions: Value) -> Value {
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": format!("{singular}s"), "singular": singular, "kind": kind,
                      "listKind": format!("{kind}List")},
            "versions": versions,
        },
    })
}

/// One request; code and body, which is `Null` where it is no JSON.
pub async fn call(client: &Client, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
    call_as(client, method, path, "application/json", body.map(Value::to_string).unwrap_or_default()).await
}

/// One request with a body of that media type.
pub async fn call_as(
    client: &Client,
    method: Method,
    path: &str,
    media_type: &str,
    body: impl Into<Vec<u8>>,
) -> (u16, Value) {
    let body: Vec<u8> = body.into();
    let mut request = Request::builder().method(method).uri(path);
    if !body.is_empty() {
        request = request.header("content-type", media_type);
    }
    let response = client.send(request.body(Body::from(body)).expect("a request")).await.expect("an answer");
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("the whole answer").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Creates a definition and waits until it is established.
pub async fn establish(client: &Client, definition: &Value) {
    let (code, answer) = call(client, Method::POST, DEFINITIONS, Some(definition)).await;
    assert_eq!(code, 201, "{answer}");
    until_established(client, definition["metadata"]["name"].as_str().expect("a name")).await;
}

/// Waits until a definition is established.
pub async fn until_established(client: &Client, name: &str) {
    until(client, name, |answer| condition(answer, "Established") == "True").await;
}

/// Reads a definition again and again until it is as wanted.
pub async fn until(client: &Client, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let path = format!("{DEFINITIONS}/{name}");
    let wait = async {
        loop {
            let (_, answer) = call(client, Method::GET, &path, None).await;
            if wanted(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(ESTABLISHED_WITHIN, wait)
        .await
        .unwrap_or_else(|_| panic!("{name} does not get there"))
}

/// The status of a condition; empty when it is not there.
pub fn condition<'v>(definition: &'v Value, kind: &str) -> &'v str {
    let conditions = definition["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = conditions.iter().find(|c| c["type"] == kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// The fields that a refusal complains about.
pub fn fields(status: &Value) -> Vec<&str> {
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes.iter().filter_map(|c| c["field"].as_str()).collect()
}
