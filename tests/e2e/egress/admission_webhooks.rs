//! Admission webhooks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, Version};
use kube::Client;
use parking_lot::Mutex;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use plinth_tests::https::{HttpsOptions, HttpsServer};
use plinth_tests::requests::create;
use plinth_tests::server::{namespace, shared, unique, TestServer};
use serde_json::{json, Value};

use super::{reviewed, send};

/// An admission webhook that labels objects, and denies those named `denied`.
async fn admission_webhook(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let mutating = request.uri().path() == "/mutate";
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    let admission_request = &review["request"];
    let denied = admission_request["name"].as_str().is_some_and(|name| name.starts_with("denied"));
    let mut response = json!({"uid": admission_request["uid"], "allowed": !denied, "warnings": ["a warning of the webhook"]});
    if denied {
        response["status"] = json!({"code": 418, "message": "not this one", "reason": "Teapot", "details": {
            "retryAfterSeconds": 5, "causes": [{"reason": "Full", "message": "m", "field": "spec.x"}]}});
    } else if mutating {
        let mut patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": admission_request["operation"]}}]);
        if admission_request["name"] == "other-kind" {
            patch = json!([{"op": "replace", "path": "/kind", "value": "Secret"}]);
        }
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(patch.to_string()));
    }
    if admission_request["name"] == "untyped" {
        response["allowed"] = json!("true");
    }
    reviewed(&response)
}

#[tokio::test]
async fn webhooks_change_refuse_and_fail() {
    const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
    let client = shared().await.client().await;
    let namespace = namespace(&client, "webhooks").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let server = HttpsServer::start(admission_webhook).await;
    let hook = |path: &str, port: u16, policy: &str| {
        json!({
            "name": "webhook.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": policy,
            "timeoutSeconds": 5,
            "clientConfig": {
                "url": format!("https://localhost:{port}/{path}"),
                "caBundle": BASE64_STANDARD.encode(&server.certificate),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        })
    };
    let (mutating, validating) = (unique("mutating"), unique("validating"));
    let configure = |plural: &str| format!("{CONFIGURATIONS}/{plural}webhookconfigurations");
    let body = json!({"metadata": {"name": mutating}, "webhooks": [hook("mutate", server.port, "Fail")]});
    create(&client, &configure("mutating"), &body).await;
    let body = json!({"metadata": {"name": validating}, "webhooks": [hook("validate", server.port, "Fail")]});
    create(&client, &configure("validating"), &body).await;

    let made = create(&client, &maps, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made["metadata"]["labels"], json!({"seen": "CREATE"}));
    let (code, changed, _) = send(&client, "PATCH", &format!("{maps}/a"), &json!({"data": {"k": "v"}})).await;
    assert_eq!((code, &changed["metadata"]["labels"]["seen"]), (200, &json!("UPDATE")));
    let (code, refused, _) = send(&client, "POST", &maps, &json!({"metadata": {"name": "denied"}})).await;
    assert_eq!(
        (code, refused["message"].as_str()),
        (418, Some(r#"admission webhook "webhook.example.com" denied the request: not this one"#))
    );
    // What else the webhook says of it is kept.
    let details = json!({"retryAfterSeconds": 5,
        "causes": [{"reason": "Full", "message": "m", "field": "spec.x"}]});
    assert_eq!((&refused["reason"], &refused["details"]), (&json!("Teapot"), &details));
    for (name, why) in [
        ("other-kind", r#"no kind "Secret" is registered for version "v1" in the scope of ConfigMap"#),
        ("untyped", "AdmissionResponse.response.allowed of type bool"),
    ] {
        let (code, refused, _) = send(&client, "POST", &maps, &json!({"metadata": {"name": name}})).await;
        assert_eq!(code, 500, "{name}: {refused}");
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(message.contains(why), "{name}: {message}");
    }
    // There is nothing to be patched in a deletion.
    let rule = json!({"webhooks": [{"name": "webhook.example.com", "rules": [{"operations": ["DELETE"],
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}]});
    let path = format!("{}/{mutating}", configure("mutating"));
    let (code, body, _) = send(&client, "PATCH", &path, &rule).await;
    assert_eq!(code, 200, "{body}");
    let (code, refused, _) = send(&client, "DELETE", &format!("{maps}/a"), &Value::Null).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        code == 500
            && message.ends_with("attempted to modify the object, which is not supported for this operation"),
        "{refused}"
    );
    let rule = json!({"webhooks": [hook("mutate", server.port, "Fail")]});
    let (code, body, _) = send(&client, "PATCH", &path, &rule).await;
    assert_eq!(code, 200, "{body}");
    // Other namespaces do not match.
    let (code, in_other_namespace, _) = send(
        &client,
        "POST",
        "/api/v1/namespaces/default/configmaps?dryRun=All",
        &json!({"metadata": {"name": "denied"}}),
    )
    .await;
    assert_eq!(code, 201, "{in_other_namespace}");

    drop(server);
    let (code, failed, _) = send(&client, "POST", &maps, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!(code, 500);
    let message = failed["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with(r#"Internal error occurred: failed calling webhook "webhook.example.com": failed to call webhook: Post"#), "{message}");
    for (plural, name) in [("mutating", &mutating), ("validating", &validating)] {
        let policy = json!({"webhooks": [{"name": "webhook.example.com", "failurePolicy": "Ignore"}]});
        let (code, body, _) = send(&client, "PATCH", &format!("{}/{name}", configure(plural)), &policy).await;
        assert_eq!(code, 200, "{body}");
    }
    create(&client, &maps, &json!({"metadata": {"name": "b"}})).await;
    for (plural, name) in [("mutating", &mutating), ("validating", &validating)] {
        assert_eq!(
            send(&client, "DELETE", &format!("{}/{name}", configure(plural)), &Value::Null).await.0,
            200
        );
    }
}

/// A configuration with one webhook, which is called for each ConfigMap that is created in a namespace.
fn of_config_maps(name: &str, webhook: &str, namespace: &str, server: &HttpsServer) -> Value {
    json!({"metadata": {"name": name}, "webhooks": [{
        "name": webhook,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": "Fail",
        "clientConfig": {
            "url": format!("https://localhost:{}/", server.port),
            "caBundle": BASE64_STANDARD.encode(&server.certificate),
        },
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    }]})
}

/// A webhook may have side effects, so a request that it has received is not sent again.
#[tokio::test]
async fn a_webhook_that_breaks_off_is_called_once() {
    const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let client = shared().await.client().await;
    let namespace = namespace(&client, "once").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let (kept, broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (answered, received) = (kept.clone(), broken.clone());
    let server = HttpsServer::start(move |request: Request<Incoming>| {
        let (answered, received) = (answered.clone(), received.clone());
        async move {
            let body = request.into_body().collect().await.expect("body").to_bytes();
            let review: Value = serde_json::from_slice(&body).expect("a review");
            if review["request"]["name"] == "breaks-off" {
                received.fetch_add(1, Ordering::SeqCst);
                return None;
            }
            answered.fetch_add(1, Ordering::SeqCst);
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            Some(reviewed(&response))
        }
    })
    .await;
    let name = unique("once");
    create(&client, CONFIGURATIONS, &of_config_maps(&name, "once.example.com", &namespace, &server)).await;
    // Leaves a connection that the next request is sent on.
    create(&client, &maps, &json!({"metadata": {"name": "answered"}})).await;
    let (code, failed, _) = send(&client, "POST", &maps, &json!({"metadata": {"name": "breaks-off"}})).await;
    assert_eq!(code, 500, "{failed}");
    let message = failed["message"].as_str().unwrap_or_default();
    assert!(message.contains(r#"failed calling webhook "once.example.com""#), "{message}");
    assert_eq!((kept.load(Ordering::SeqCst), broken.load(Ordering::SeqCst)), (1, 1));
    create(&client, &maps, &json!({"metadata": {"name": "after"}})).await;
    let (code, body, _) = send(&client, "DELETE", &format!("{CONFIGURATIONS}/{name}"), &Value::Null).await;
    assert_eq!(code, 200, "{body}");
}

/// As Go's client, which offers both protocols.
#[tokio::test]
async fn a_webhook_chooses_the_protocol() {
    const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let client = shared().await.client().await;
    for (protocols, wanted) in [
        (vec!["h2", "http/1.1"], Version::HTTP_2),
        (vec!["http/1.1"], Version::HTTP_11),
        (vec![], Version::HTTP_11),
    ] {
        let namespace = namespace(&client, "protocol").await;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let versions = Arc::new(Mutex::new(Vec::new()));
        let seen = versions.clone();
        let options = HttpsOptions { protocols, ..HttpsOptions::default() };
        let server = HttpsServer::start_as(options, move |request: Request<Incoming>| {
            seen.lock().push(request.version());
            async move {
                let body = request.into_body().collect().await.expect("body").to_bytes();
                let review: Value = serde_json::from_slice(&body).expect("a review");
                reviewed(&json!({"uid": review["request"]["uid"], "allowed": true}))
            }
        })
        .await;
        let name = unique("protocol");
        let body = of_config_maps(&name, "protocol.example.com", &namespace, &server);
        create(&client, CONFIGURATIONS, &body).await;
        for _ in 0..3 {
            create(&client, &maps, &json!({"metadata": {"generateName": "m-"}})).await;
        }
        let (code, body, _) =
            send(&client, "DELETE", &format!("{CONFIGURATIONS}/{name}"), &Value::Null).await;
        assert_eq!(code, 200, "{body}");
        assert_eq!(*versions.lock(), [wanted; 3]);
        assert_eq!(server.connections.load(Ordering::SeqCst), 1, "{wanted:?}");
    }
}

/// As one that is replaced by another, or has a limit of idle time: the next call takes another connection at
/// once, and does not wait on the one that has ended.
#[tokio::test]
async fn a_webhook_may_end_connections_between_calls() {
    const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    const CALLS: usize = 4;
    let client = shared().await.client().await;
    let namespace = namespace(&client, "leaving").await;
    let options = HttpsOptions { protocols: vec!["h2"], leaves: true, ..HttpsOptions::default() };
    let server = HttpsServer::start_as(options, |request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.expect("body").to_bytes();
        let review: Value = serde_json::from_slice(&body).expect("a review");
        reviewed(&json!({"uid": review["request"]["uid"], "allowed": true}))
    })
    .await;
    let name = unique("leaving");
    create(&client, CONFIGURATIONS, &of_config_maps(&name, "leaving.example.com", &namespace, &server)).await;
    for _ in 0..CALLS {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        create(&client, &maps, &json!({"metadata": {"generateName": "m-"}})).await;
        eventually("it ends", || async { server.open.load(Ordering::SeqCst) == 0 }).await;
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), CALLS);
    let (code, body, _) = send(&client, "DELETE", &format!("{CONFIGURATIONS}/{name}"), &Value::Null).await;
    assert_eq!(code, 200, "{body}");
}

/// Whatever code and reason it refuses with: they say nothing of what is stored.
#[tokio::test]
async fn a_refusal_is_no_state_of_the_store() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let refusing = HttpsServer::start(move |request: Request<Incoming>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let body = request.into_body().collect().await.expect("body").to_bytes();
            let review: Value = serde_json::from_slice(&body).expect("a review");
            let is_deletion = review["request"]["operation"] == "DELETE";
            let (code, reason) = if is_deletion { (404, "NotFound") } else { (409, "AlreadyExists") };
            let status = json!({"code": code, "reason": reason, "message": "not this one"});
            let response = json!({"uid": review["request"]["uid"], "allowed": false, "status": status});
            reviewed(&response)
        }
    })
    .await;
    let created = create(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "refused"}})).await;
    let maps = "/api/v1/namespaces/refused/configmaps";
    create(&client, maps, &json!({"metadata": {"name": "keep"}})).await;
    let webhook = json!({
        "name": "webhook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("https://localhost:{}/", refusing.port), "caBundle": BASE64_STANDARD.encode(&refusing.certificate)},
        "rules": [{"operations": ["CREATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    let configuration = json!({"metadata": {"name": "refusing"}, "webhooks": [webhook]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    create(&client, path, &configuration).await;

    // Each is one call, and what is not there is not tried to be updated.
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}});
    let mut connection = server.connect(Protocol::Http2).await;
    let apply = Call::new(Method::PATCH, format!("{maps}/applied?fieldManager=test"))
        .body("application/apply-patch+yaml", applied.to_string());
    assert_eq!(connection.call(&apply).await.expect("an answer").status, StatusCode::CONFLICT);
    let (code, body, _) = send(&client, "POST", maps, &json!({"metadata": {"generateName": "made-"}})).await;
    assert_eq!(
        (code, body["reason"].as_str(), calls.load(Ordering::SeqCst)),
        (409, Some("AlreadyExists"), 2)
    );

    // The namespace waits for what cannot be deleted.
    let (code, body, _) = send(&client, "DELETE", "/api/v1/namespaces/refused", &Value::Null).await;
    assert_eq!(code, 200, "{body}");
    let has_failed = || async {
        let namespace = send(&client, "GET", "/api/v1/namespaces/refused", &Value::Null).await.1;
        assert_eq!(namespace["metadata"]["uid"], created["metadata"]["uid"], "{namespace}");
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "NamespaceDeletionContentFailure" && c["status"] == "True")
    };
    eventually("its condition says so", has_failed).await;
    assert_eq!(send(&client, "GET", &format!("{maps}/keep"), &Value::Null).await.0, 200);
    let (code, body, _) = send(&client, "DELETE", &format!("{path}/refusing"), &Value::Null).await;
    assert_eq!(code, 200, "{body}");
    eventually("it goes", || async {
        send(&client, "GET", "/api/v1/namespaces/refused", &Value::Null).await.0 == 404
    })
    .await;
}

/// An admission webhook that patches objects as their annotation `patch` asks for.
async fn patching_webhook(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if let Some(patch) = review["request"]["object"]["metadata"]["annotations"]["patch"].as_str() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(patch));
    }
    reviewed(&response)
}

/// A namespace of the shared server that it is configured for.
struct Patched {
    client: Client,
    /// Path of the ConfigMaps.
    maps: String,
    /// Path of the configuration.
    configuration: String,
    _webhook: HttpsServer,
}

impl Patched {
    async fn start(name: &str) -> Patched {
        const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        let client = shared().await.client().await;
        let namespace = namespace(&client, name).await;
        let webhook = HttpsServer::start(patching_webhook).await;
        let name = unique("patching");
        let body = json!({"metadata": {"name": name}, "webhooks": [{
            "name": "patching.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("https://localhost:{}/", webhook.port), "caBundle": BASE64_STANDARD.encode(&webhook.certificate)},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        }]});
        create(&client, CONFIGURATIONS, &body).await;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        Patched { client, maps, configuration: format!("{CONFIGURATIONS}/{name}"), _webhook: webhook }
    }

    async fn end(self) {
        let (code, body, _) = send(&self.client, "DELETE", &self.configuration, &Value::Null).await;
        assert_eq!(code, 200, "{body}");
    }
}

/// The resourceVersion that mutating webhooks leave is what counts, as for upstream's storage.
#[tokio::test]
async fn the_version_that_a_webhook_sets_counts() {
    let patched = Patched::start("versions").await;
    let (client, maps) = (&patched.client, &patched.maps);
    let patch = |version: &str| {
        json!([{"op": "add", "path": "/metadata/resourceVersion", "value": version}]).to_string()
    };
    let with = |name: &str, version: &str| json!({"metadata": {"name": name, "annotations": {"patch": patch(version)}}});

    let (code, body, _) = send(client, "POST", maps, &with("new", "7")).await;
    let refused = "resourceVersion should not be set on objects to be created";
    assert_eq!((code, body["message"].as_str()), (500, Some(refused)), "{body}");
    // No version is refused at a create, nor is what a create made by an update would have.
    create(client, maps, &with("new", "")).await;
    let mut applied = with("applied", "7");
    applied["apiVersion"] = json!("v1");
    applied["kind"] = json!("ConfigMap");
    let apply = Call::new(Method::PATCH, format!("{maps}/applied?fieldManager=test"))
        .body("application/apply-patch+yaml", applied.to_string());
    let mut connection = shared().await.connect(Protocol::Http2).await;
    assert_eq!(connection.call(&apply).await.expect("an answer").status, StatusCode::CREATED);

    let path = format!("{maps}/new");
    let (code, body, _) = send(client, "PUT", &path, &with("new", "7")).await;
    assert_eq!((code, body["reason"].as_str()), (409, Some("Conflict")), "{body}");
    let change = json!({"metadata": {"annotations": {"patch": patch("7")}}});
    let (code, body, _) = send(client, "PATCH", &path, &change).await;
    assert_eq!((code, body["reason"].as_str()), (409, Some("Conflict")), "{body}");
    let (code, body, _) = send(client, "PUT", &path, &with("new", "x")).await;
    assert_eq!(code, 500, "{body}");
    // What a client sent for another version is written where the webhook takes that version away.
    let mut stale = with("new", "");
    stale["metadata"]["resourceVersion"] = json!("7");
    let (code, body, _) = send(client, "PUT", &path, &stale).await;
    assert_eq!(code, 200, "{body}");
    patched.end().await;
}

/// What the server keeps of an object is restored after admission.
#[tokio::test]
async fn what_is_the_servers_is_not_a_webhooks() {
    let patched = Patched::start("restored").await;
    let (client, maps) = (&patched.client, &patched.maps);
    let deleting = json!([
        {"op": "add", "path": "/metadata/deletionTimestamp", "value": "2026-01-01T00:00:00Z"},
        {"op": "add", "path": "/metadata/deletionGracePeriodSeconds", "value": 7},
        {"op": "add", "path": "/metadata/managedFields", "value": []},
    ]);
    let object = json!({"metadata": {
        "name": "kept", "finalizers": ["example.com/hold"], "annotations": {"patch": deleting.to_string()},
    }});
    let created = create(client, maps, &object).await["metadata"].clone();
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"] {
        assert_eq!(created.get(key), None, "{created}");
    }
    let path = format!("{maps}/kept");
    let is_kept = async |patch: Value, keys: &[&str]| {
        let before = send(client, "GET", &path, &Value::Null).await.1["metadata"].clone();
        let change = json!({"metadata": {"annotations": {"patch": patch.to_string()}}});
        let (code, body, _) = send(client, "PATCH", &path, &change).await;
        assert_eq!(code, 200, "{patch}: {body}");
        for key in keys {
            assert_eq!(body["metadata"].get(key), before.get(key), "{patch}: {body}");
        }
    };
    let kept = ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
    is_kept(json!([{"op": "remove", "path": "/metadata/uid"}]), &kept).await;
    is_kept(json!([{"op": "remove", "path": "/metadata/creationTimestamp"}]), &kept).await;
    let other = "2020-01-01T00:00:00Z";
    is_kept(json!([{"op": "add", "path": "/metadata/creationTimestamp", "value": other}]), &kept).await;
    is_kept(json!([{"op": "add", "path": "/metadata/generation", "value": 999}]), &kept).await;
    let (code, body, _) = send(client, "DELETE", &path, &Value::Null).await;
    assert_eq!((code, body["metadata"]["finalizers"].as_array().map(Vec::len)), (200, Some(1)), "{body}");
    is_kept(json!([{"op": "remove", "path": "/metadata/deletionTimestamp"}]), &kept).await;
    is_kept(json!([{"op": "remove", "path": "/metadata/deletionGracePeriodSeconds"}]), &kept).await;
    // And the finalizer can be removed beside such a webhook.
    let released = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(client, "PATCH", &path, &released).await.0, 200);
    assert_eq!(send(client, "GET", &path, &Value::Null).await.0, 404);
    patched.end().await;
}
