//! Discovery: the documents about what is served, in the forms that clients request.

use kube::discovery::{verbs, Scope};
use kube::Discovery;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::server::shared;
use serde_json::Value;

/// Every group that v1.36 serves by default, with its preferred version.
const GROUPS: &[(&str, &str)] = &[
    ("", "v1"),
    ("admissionregistration.k8s.io", "v1"),
    ("apiextensions.k8s.io", "v1"),
    ("apiregistration.k8s.io", "v1"),
    ("apps", "v1"),
    ("authentication.k8s.io", "v1"),
    ("authorization.k8s.io", "v1"),
    ("autoscaling", "v2"),
    ("batch", "v1"),
    ("certificates.k8s.io", "v1"),
    ("coordination.k8s.io", "v1"),
    ("discovery.k8s.io", "v1"),
    ("events.k8s.io", "v1"),
    ("flowcontrol.apiserver.k8s.io", "v1"),
    ("networking.k8s.io", "v1"),
    ("node.k8s.io", "v1"),
    ("policy", "v1"),
    ("rbac.authorization.k8s.io", "v1"),
    ("resource.k8s.io", "v1"),
    ("scheduling.k8s.io", "v1"),
    ("storage.k8s.io", "v1"),
];

#[tokio::test]
async fn the_version_is_that_of_the_api() {
    let version = shared().await.client().await.apiserver_version().await.expect("version");
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    assert!(version.git_version.starts_with("v1.36."), "{version:?}");
}

#[tokio::test]
async fn plain_and_aggregated_discovery_agree() {
    let client = shared().await.client().await;
    let resources = |discovery: &Discovery| {
        let mut rows = Vec::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.versions().flat_map(|v| group.versioned_resources(v)) {
                let scope = capabilities.scope == Scope::Namespaced;
                let mut operations = capabilities.operations.clone();
                operations.sort();
                rows.push(format!(
                    "{}/{} {} {scope} {operations:?}",
                    resource.api_version, resource.plural, resource.kind
                ));
            }
        }
        rows.sort();
        rows
    };
    let plain = resources(&Discovery::new(client.clone()).run().await.expect("plain discovery"));
    let aggregated = resources(&Discovery::new(client).run_aggregated().await.expect("aggregated discovery"));
    assert_eq!(plain, aggregated);
    assert!(plain.len() > 60, "{}", plain.len());
}

#[tokio::test]
async fn every_default_group_is_served() {
    let client = shared().await.client().await;
    let discovery = Discovery::new(client).run().await.expect("discovery");
    for (name, preferred) in GROUPS {
        let group = discovery.get(name).unwrap_or_else(|| panic!("group {name:?}"));
        assert_eq!(&group.preferred_version_or_latest(), preferred, "{name:?}");
    }
    let served: Vec<_> = discovery.groups().map(|g| g.name()).collect();
    assert_eq!(served.len(), GROUPS.len(), "{served:?}");
    let (pods, capabilities) = discovery.get("").and_then(|core| core.recommended_kind("Pod")).expect("pods");
    assert_eq!(pods.plural, "pods");
    assert!(
        capabilities.supports_operation(verbs::WATCH)
            && capabilities.supports_operation(verbs::DELETE_COLLECTION)
    );
}

#[tokio::test]
async fn openapi_documents_are_complete() {
    let server = shared().await;
    let mut connection = server.connect(Protocol::Http2).await;
    let root = connection.must(&Call::get("/openapi/v3")).await.expect("index of OpenAPI v3");
    let root: Value = serde_json::from_slice(&root.body).expect("JSON");
    let paths = root["paths"].as_object().expect("paths");
    for path in ["api/v1", "apis/apps/v1", "apis/batch/v1", "apis/rbac.authorization.k8s.io/v1"] {
        let url = paths[path]["serverRelativeURL"].as_str().unwrap_or_else(|| panic!("{path} in the index"));
        let document = connection.must(&Call::get(url)).await.expect("a document");
        let document: Value = serde_json::from_slice(&document.body).expect("JSON");
        let version = document["openapi"].as_str().expect("version of OpenAPI");
        assert!(version.starts_with("3."), "{path}: {version}");
        assert!(document["paths"].as_object().is_some_and(|p| p.len() > 2), "{path}");
        dangling_references(&document);
    }
    let v2 = connection.must(&Call::get("/openapi/v2")).await.expect("OpenAPI v2");
    let v2: Value = serde_json::from_slice(&v2.body).expect("JSON");
    assert_eq!(v2["swagger"], "2.0");
    assert!(v2["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
    dangling_references(&v2);
}

/// Every `$ref` must resolve in the same document.
fn dangling_references(document: &Value) {
    let mut todo = vec![document];
    while let Some(value) = todo.pop() {
        match value {
            Value::Array(items) => todo.extend(items),
            Value::Object(members) => {
                if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                    let pointer = reference.strip_prefix('#').expect("a reference into the document");
                    assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
                }
                todo.extend(members.values());
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn health_and_metrics_answer() {
    let server = shared().await;
    let mut connection = server.connect(Protocol::Http1).await;
    for path in ["/livez", "/readyz", "/healthz"] {
        let reply = connection.must(&Call::get(path)).await.expect(path);
        assert_eq!(reply.text(), "ok", "{path}");
    }
    let metrics = connection.must(&Call::get("/metrics")).await.expect("metrics");
    assert!(metrics.text().lines().any(|line| line.starts_with("# TYPE ")), "the Prometheus text format");
}
