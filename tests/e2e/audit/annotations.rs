//! Annotations that admission webhooks and slow steps add to audit events.

use std::time::Duration;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::post;
use serde_json::{json, Value};

use super::{send, Audited};

/// A webhook that adds a label and an audit annotation, and answers slowly where the object requests that.
async fn admission(request: http::Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    let mutating = request.uri().path() == "/mutate";
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    let admission_request = &review["request"];
    if admission_request["name"] == "slow" {
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    let said = json!({"opinion": "fine", "no key at all": "x"});
    let mut response = json!({"uid": admission_request["uid"], "allowed": true, "auditAnnotations": said});
    if mutating && admission_request["name"] != "plain" {
        let patch = json!([{"value": {"a": "b"}, "op": "add", "path": "/metadata/labels"}]);
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(patch.to_string()));
    }
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Response::new(Full::new(Bytes::from(review.to_string())))
}

#[tokio::test]
async fn webhooks_and_slow_steps_are_annotated() {
    let mut audited = Audited::start(&[]).await;
    let mut admin = audited.server.connect(Protocol::Http1).await;
    let service = HttpsServer::start(admission).await;
    let hook = |name: &str, url: String| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            "clientConfig": {"url": url, "caBundle": BASE64_STANDARD.encode(&service.certificate)},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        })
    };
    let there = |path: &str| format!("https://localhost:{}/{path}", service.port);
    for (kind, path) in [("mutating", "mutate"), ("validating", "validate")] {
        let hooks = json!([
            hook("away.example.com", "https://localhost:1/".into()),
            hook("authorization.k8s.io", there(path)),
        ]);
        let configuration = json!({"metadata": {"name": kind}, "webhooks": hooks});
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        assert_eq!(send(&mut admin, kind, &post(&path, configuration), &[]).await, StatusCode::CREATED);
    }
    for name in ["quick", "plain", "slow"] {
        let call =
            post("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": name, "labels": {}}}));
        assert_eq!(send(&mut admin, name, &call, &[]).await, StatusCode::CREATED, "{name}");
    }
    let deprecated = send(&mut admin, "components", &Call::get("/api/v1/componentstatuses"), &[]).await;
    assert_eq!(deprecated, StatusCode::OK);
    let events = audited.events().await;
    let annotations = |id: &str| {
        let event = events.iter().rfind(|event| event["auditID"] == id).expect("an event");
        event["annotations"].clone()
    };
    // The indexes are those among all mutating webhooks, and among the validating ones that match the
    // request.
    let quick = annotations("quick");
    let annotation =
        |key: &str| serde_json::from_str::<Value>(quick[key].as_str().expect(key)).expect("JSON");
    let from = |name: &str| json!({"configuration": "mutating", "webhook": name, "mutated": false});
    assert_eq!(annotation("mutation.webhook.admission.k8s.io/round_0_index_0"), from("away.example.com"));
    let mut changed = from("authorization.k8s.io");
    changed["mutated"] = json!(true);
    assert_eq!(annotation("mutation.webhook.admission.k8s.io/round_0_index_1"), changed);
    let patch = r#"{"configuration":"mutating","webhook":"authorization.k8s.io","patch":[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}],"patchType":"JSONPatch"}"#;
    assert_eq!(quick["patch.webhook.admission.k8s.io/round_0_index_1"], patch);
    for open in ["failed-open.mutation.webhook", "failed-open.validating.webhook"] {
        assert_eq!(quick[&format!("{open}.admission.k8s.io/round_0_index_0")], "away.example.com");
    }
    assert_eq!(quick["authorization.k8s.io/opinion"], "fine");
    assert_eq!(quick["authorization.k8s.io/no key at all"], Value::Null);
    assert_eq!(quick["apiserver.latency.k8s.io/total"], Value::Null, "it was quick: {quick}");
    let plain = annotations("plain");
    assert_eq!(plain["patch.webhook.admission.k8s.io/round_0_index_1"], Value::Null);
    // What took long; both webhooks took more than half a second.
    let slow = annotations("slow");
    for layer in ["total", "mutating-webhook", "validating-webhook", "etcd", "authorization"] {
        assert!(slow[&format!("apiserver.latency.k8s.io/{layer}")].is_string(), "{layer}: {slow}");
    }
    assert_eq!(slow["apiserver.latency.k8s.io/impersonation"].as_str().map(|_| ()), None, "{slow}");
    assert_eq!(annotations("components")["k8s.io/deprecated"], "true");
}

/// A webhook's annotations are prefixed with its name, which may equal a prefix of the server's own.
#[tokio::test]
async fn a_webhook_cannot_overwrite_annotations_of_the_server() {
    let mut audited = Audited::start(&[]).await;
    let mut admin = audited.server.connect(Protocol::Http1).await;
    let service = HttpsServer::start(|request: http::Request<hyper::body::Incoming>| async move {
        let body = request.into_body().collect().await.expect("body").to_bytes();
        let review: Value = serde_json::from_slice(&body).expect("a review");
        let said = json!({"decision": "forbid", "reason": "nobody knows"});
        let response = json!({"uid": review["request"]["uid"], "allowed": true, "auditAnnotations": said});
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Response::new(Full::new(Bytes::from(review.to_string())))
    })
    .await;
    let hook = json!({
        "name": "authorization.k8s.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("https://localhost:{}/", service.port), "caBundle": BASE64_STANDARD.encode(&service.certificate)},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let configuration = json!({"metadata": {"name": "lies"}, "webhooks": [hook]});
    assert_eq!(send(&mut admin, "hook", &post(path, configuration), &[]).await, StatusCode::CREATED);
    let call = post("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}}));
    assert_eq!(send(&mut admin, "overwriting", &call, &[]).await, StatusCode::CREATED);
    let events = audited.events().await;
    let event = events.iter().rfind(|event| event["auditID"] == "overwriting").expect("an event");
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_ne!(event["annotations"]["authorization.k8s.io/reason"], "nobody knows");
}
