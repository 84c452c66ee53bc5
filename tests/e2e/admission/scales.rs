//! What admission sees of a request for `/scale`: a Scale, whatever is scaled.

use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use plinth_tests::definitions::{establish, with_versions};
use plinth_tests::eventually;
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::{create, send};
use plinth_tests::server::{namespace, shared_with_apis, unique};
use serde_json::{json, Value};

use super::validating_policies::CONFIGURATIONS;

/// The requests of reviews.
type Reviews = Arc<Mutex<Vec<Value>>>;

/// A webhook that makes 3 replicas of 4, and a text of 5.
async fn webhook(reviews: &Reviews) -> HttpsServer {
    let reviews = reviews.clone();
    HttpsServer::start(move |request: Request<Incoming>| {
        let reviews = reviews.clone();
        async move {
            let body = request.into_body().collect().await.expect("body").to_bytes();
            let review: Value = serde_json::from_slice(&body).expect("a review");
            let patch = match review["request"]["object"]["spec"]["replicas"].as_i64() {
                Some(4) => Some(json!(3)),
                Some(5) => Some(json!("five")),
                _ => None,
            };
            let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
            if let Some(replicas) = patch {
                let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]);
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(BASE64_STANDARD.encode(patch.to_string()));
            }
            reviews.lock().push(review["request"].clone());
            let answer =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Response::new(Full::new(Bytes::from(answer.to_string())))
        }
    })
    .await
}

#[tokio::test]
async fn admission_sees_a_scale_whatever_is_scaled() {
    let client = shared_with_apis().await.client().await;
    let (namespace, group) = (namespace(&client, "scales").await, format!("{}.example", unique("scaled")));
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
    }});
    let scale = json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
    let version = |name: &str, stored: bool| {
        json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": scale}})
    };
    let versions = json!([version("v1", true), version("v2", false)]);
    establish(&client, &with_versions(&group, "Herd", "Namespaced", versions)).await;
    let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    create(&client, &deployments, &json!({"metadata": {"name": "x", "labels": {"l": "m"}}, "spec": spec}))
        .await;
    let herds = |version: &str| format!("/apis/{group}/{version}/namespaces/{namespace}/herds");
    let herd = json!({"apiVersion": format!("{group}/v1"), "kind": "Herd", "metadata": {"name": "x"}, "spec": {"size": 2}});
    create(&client, &herds("v1"), &herd).await;

    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let rules = json!([{"operations": ["UPDATE"], "apiGroups": ["apps", group], "apiVersions": ["v1"],
        "resources": ["deployments/scale", "herds/scale"]}]);
    let is_scale = "[object, oldObject].all(o, o.kind == 'Scale' && o.apiVersion == 'autoscaling/v1') \
                    && request.kind.kind == 'Scale' && request.kind.group == 'autoscaling'";
    let change = "'from ' + string(oldObject.spec.replicas) + ' to ' + string(object.spec.replicas)";
    let policy = json!({"metadata": {"name": namespace}, "spec": {
        "matchConstraints": {"namespaceSelector": here, "resourceRules": rules},
        "validations": [
            {"expression": is_scale, "message": "no scale"},
            {"expression": "object.spec.replicas < 6", "messageExpression": change},
        ],
    }});
    create(&client, &format!("{CONFIGURATIONS}/validatingadmissionpolicies"), &policy).await;
    let binding = json!({"metadata": {"name": namespace}, "spec": {"policyName": namespace, "validationActions": ["Deny"]}});
    create(&client, &format!("{CONFIGURATIONS}/validatingadmissionpolicybindings"), &binding).await;
    let reviews = Reviews::default();
    let server = webhook(&reviews).await;
    let hook = json!({
        "name": "scales.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("https://localhost:{}/", server.port), "caBundle": BASE64_STANDARD.encode(&server.certificate)},
        "namespaceSelector": here, "rules": rules, "matchPolicy": "Equivalent",
    });
    let configuration = json!({"metadata": {"name": namespace}, "webhooks": [hook]});
    create(&client, &format!("{CONFIGURATIONS}/mutatingwebhookconfigurations"), &configuration).await;

    // The object, the path of its replicas, and where it is scaled; a version that the rules do not name is
    // reviewed as the one that they name.
    let rows = [
        (format!("{deployments}/x"), "/spec/replicas", format!("{deployments}/x/scale")),
        (format!("{}/x", herds("v1")), "/spec/size", format!("{}/x/scale", herds("v1"))),
        (format!("{}/x", herds("v1")), "/spec/size", format!("{}/x/scale", herds("v2"))),
    ];
    for (object, replicas, scale) in &rows {
        let to =
            async |count: u64| send(&client, "MERGE", scale, &json!({"spec": {"replicas": count}})).await;
        let now = async || send(&client, "GET", object, &Value::Null).await.body.pointer(replicas).cloned();
        assert_eq!(to(2).await.code, 200, "{scale}");
        eventually("policy and webhook are in force", || async {
            let refused = to(7).await;
            refused.code == 422 && refused.text.contains("from 2 to 7") && !reviews.lock().is_empty()
        })
        .await;
        assert_eq!(now().await, Some(json!(2)), "{scale}");
        let read = send(&client, "GET", scale, &Value::Null).await.body;
        let mut wanted = read.clone();
        wanted["spec"]["replicas"] = json!(1);
        let answer = send(&client, "PUT", scale, &wanted).await;
        assert_eq!((answer.code, &answer.body["spec"]["replicas"]), (200, &json!(1)), "{}", answer.text);
        // The webhook changes a Scale, which has to be one afterwards.
        assert_eq!(to(5).await.code, 500, "{scale}");
        let changed = to(4).await;
        assert_eq!((changed.code, &changed.body["spec"]["replicas"]), (200, &json!(3)), "{}", changed.text);
        assert_eq!(now().await, Some(json!(3)), "{scale}");
        let seen = reviews.lock().drain(..).next_back().expect("a review");
        for (key, count) in [("oldObject", 1), ("object", 4)] {
            let shown = &seen[key];
            assert_eq!(
                (&shown["kind"], &shown["spec"]),
                (&json!("Scale"), &json!({"replicas": count})),
                "{seen}"
            );
            assert_eq!(shown["metadata"]["uid"], read["metadata"]["uid"], "{seen}");
            assert_eq!(shown["metadata"]["labels"], Value::Null, "{seen}");
        }
        assert_eq!(seen["resource"]["version"], "v1", "{seen}");
        assert_eq!(to(2).await.code, 200, "{scale}");
    }
    for plural in
        ["validatingadmissionpolicybindings", "validatingadmissionpolicies", "mutatingwebhookconfigurations"]
    {
        let path = format!("{CONFIGURATIONS}/{plural}/{namespace}");
        assert_eq!(send(&client, "DELETE", &path, &Value::Null).await.code, 200, "{plural}");
    }
}

/// A rule names versions; one that does not have the subresource is not another form of the request.
#[tokio::test]
async fn versions_without_a_subresource_match_no_request_for_it() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example", unique("partly"));
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
    }});
    let scale = json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
    let versions = json!([
        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"scale": scale}},
        {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}},
    ]);
    establish(&client, &with_versions(&group, "Herd", "Namespaced", versions)).await;
    let herds = format!("/apis/{group}/v1/namespaces/default/herds");
    let herd = |name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Herd", "metadata": {"name": name}, "spec": {"size": 2}});
    create(&client, &herds, &herd("x")).await;

    let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["v2"],
        "resources": ["herds", "herds/*"]}]);
    let policy = json!({"metadata": {"name": group}, "spec": {
        "matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]}});
    create(&client, &format!("{CONFIGURATIONS}/validatingadmissionpolicies"), &policy).await;
    let binding =
        json!({"metadata": {"name": group}, "spec": {"policyName": group, "validationActions": ["Deny"]}});
    create(&client, &format!("{CONFIGURATIONS}/validatingadmissionpolicybindings"), &binding).await;
    eventually("the policy is in force", || async {
        send(&client, "POST", &format!("{herds}?dryRun=All"), &herd("y")).await.code == 422
    })
    .await;
    let grown = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3},
        "metadata": {"name": "x", "namespace": "default"}});
    let scaled = send(&client, "PUT", &format!("{herds}/x/scale"), &grown).await;
    assert_eq!((scaled.code, &scaled.body["spec"]["replicas"]), (200, &json!(3)), "{}", scaled.text);
}
