//! Nodes: the Node authorizer and NodeRestriction.

use http::{Method, Request, StatusCode};
use http_body_util::Full;
use plinth_benches::api::client::Protocol;
use plinth_tests::server::{namespace, shared, unique};
use serde_json::{json, Value};

use super::{admin, ask};

#[tokio::test]
async fn a_node_reads_what_its_pods_need() {
    let access = shared().await;
    let namespace = namespace(&access.client().await, "nodes").await;
    let (node, other) = (unique("node"), unique("node"));
    let name = format!("system:node:{node}");
    let as_node = |method, path: String, body| {
        let name = name.clone();
        async move { ask(access, (&name, &["system:nodes"]), method, &path, body).await }
    };
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    for secret in ["used", "unused"] {
        admin(access, Method::POST, &secrets, json!({ "metadata": { "name": secret } })).await;
    }
    let read = |secret: &str| as_node(Method::GET, format!("{secrets}/{secret}"), Value::Null);
    let (status, answer) = read("used").await;
    let reason = format!("no relationship found between node '{node}' and this object");
    assert_eq!(status, 403);
    assert!(answer["message"].as_str().unwrap_or_default().ends_with(&reason), "{answer}");
    let pod = json!({ "metadata": { "name": "web" }, "spec": {
        "nodeName": node,
        "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "v", "secret": { "secretName": "used" } }],
    } });
    admin(access, Method::POST, &format!("/api/v1/namespaces/{namespace}/pods"), pod).await;
    assert_eq!((read("used").await.0, read("unused").await.0), (StatusCode::OK, StatusCode::FORBIDDEN));
    assert_eq!(as_node(Method::GET, secrets.clone(), Value::Null).await.0, 403);
    let of = |node: &str| format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    assert_eq!(as_node(Method::GET, of(&node), Value::Null).await.0, 200);
    assert_eq!(as_node(Method::GET, of(&other), Value::Null).await.0, 403);

    // It registers itself, and itself alone.
    let own = |name: &str, labels: Value| json!({ "metadata": { "name": name, "labels": labels } });
    let nodes = "/api/v1/nodes";
    let (status, answer) = as_node(Method::POST, nodes.into(), own(&other, json!({}))).await;
    let denied =
        format!("nodes \"{other}\" is forbidden: node \"{node}\" is not allowed to modify node \"{other}\"");
    assert_eq!((status.as_u16(), answer["message"].as_str()), (403, Some(denied.as_str())));
    let labels = json!({ "node-restriction.kubernetes.io/a": "x", "kubernetes.io/os": "linux" });
    let (status, answer) = as_node(Method::POST, nodes.into(), own(&node, labels)).await;
    let denied = format!("nodes \"{node}\" is forbidden: node \"{node}\" is not allowed to set the following labels: node-restriction.kubernetes.io/a");
    assert_eq!((status.as_u16(), answer["message"].as_str()), (403, Some(denied.as_str())));
    let labels = json!({ "kubernetes.io/os": "linux" });
    assert_eq!(as_node(Method::POST, nodes.into(), own(&node, labels)).await.0, 201);
    let patch = json!({ "spec": { "taints": [] }, "metadata": { "labels": { "k8s.io/x": "y" } } });
    let mut connection = access.connect(Protocol::Http1).await;
    let path = format!("{nodes}/{node}");
    let request = Request::patch(&path)
        .header("content-type", "application/merge-patch+json")
        .header("impersonate-user", &name)
        .header("impersonate-group", "system:nodes")
        .body(Full::new(bytes::Bytes::from(patch.to_string())))
        .expect("request");
    let response = connection.send(request, &path).await.expect("answer");
    assert_eq!(response.status(), 403);
    // A node may create only mirror pods of its own.
    let pod = json!({ "metadata": { "name": "own" }, "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] } });
    let (status, answer) = as_node(Method::POST, format!("/api/v1/namespaces/{namespace}/pods"), pod).await;
    assert_eq!(status, 403);
    let why = format!("pod does not have \"kubernetes.io/config.mirror\" annotation, node \"{node}\" can only create mirror pods");
    assert!(answer["message"].as_str().unwrap_or_default().ends_with(&why), "{answer}");
}

/// Admission sees what a node sends to its status subresource before the other fields are reset, as upstream.
#[tokio::test]
async fn a_node_sends_nothing_but_status_to_its_status() {
    let access = shared().await;
    let node = unique("node");
    let name = format!("system:node:{node}");
    let spec = json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] });
    let object = json!({ "metadata": { "name": node }, "spec": spec });
    let mut object = admin(access, Method::POST, "/api/v1/nodes", object).await;
    let path = format!("/api/v1/nodes/{node}/status");
    let put = async |object: &Value| {
        ask(access, (&name, &["system:nodes"]), Method::PUT, &path, object.clone()).await
    };
    object["status"]["phase"] = json!("Running");
    let (status, object) = put(&object).await;
    assert_eq!((status.as_u16(), object["status"]["phase"].as_str()), (200, Some("Running")));
    let refused = async |change: &dyn Fn(&mut Value), why: &str| {
        let mut changed = object.clone();
        change(&mut changed);
        let (status, answer) = put(&changed).await;
        assert_eq!(status.as_u16(), 403, "{answer}");
        assert_eq!(answer["message"], format!("nodes \"{node}\" is forbidden: {why}"));
    };
    let not_allowed = |what: &str| format!("node \"{node}\" is not allowed to {what}");
    refused(&|o| o["spec"] = json!({}), &not_allowed("modify taints")).await;
    let label = |o: &mut Value| o["metadata"]["labels"] = json!({ "node-restriction.kubernetes.io/x": "y" });
    refused(&label, "is not allowed to modify labels: node-restriction.kubernetes.io/x").await;
    let source =
        json!({ "configMap": { "namespace": "a", "name": "b", "uid": "c", "kubeletConfigKey": "d" } });
    let set_source = |o: &mut Value| o["spec"]["configSource"] = source.clone();
    refused(&set_source, &not_allowed("update configSource to a new non-nil configSource")).await;
    // For other users the rest is ignored silently.
    let mut bare = object.clone();
    bare["spec"] = json!({});
    let kept = admin(access, Method::PUT, &path, bare).await;
    assert_eq!(kept["spec"], object["spec"]);
}
