//! CustomResourceDefinitions: their text, and waiting for their conditions.

use http::Method;
use kube::Client;
use serde_json::{json, Value};
use std::time::Duration;

use crate::requests::call;

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

/// Polls a definition until it is as wanted.
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

/// The status of a condition; empty when absent.
pub fn condition<'v>(definition: &'v Value, kind: &str) -> &'v str {
    let conditions = definition["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = conditions.iter().find(|c| c["type"] == kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or_default()
}
