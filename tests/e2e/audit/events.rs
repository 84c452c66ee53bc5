//! Audit events of single requests.

use std::time::Duration;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Identity, Protocol, JSON};
use plinth_tests::definitions::{definition, establish};
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::post;
use serde_json::{json, Value};

use super::{patch, send, Audited};

/// A request, and what its last event must have at these places; `null` is absent. The values are
/// kube-apiserver's.
struct Row {
    id: &'static str,
    call: Call,
    headers: &'static [(&'static str, &'static str)],
    stages: &'static [&'static str],
    expected: Vec<(&'static str, Value)>,
}

const USUAL: &[&str] = &["RequestReceived", "ResponseComplete"];
const LONG: &[&str] = &["RequestReceived", "ResponseStarted", "ResponseComplete"];
const DECISION: &str = "/annotations/authorization.k8s.io~1decision";
const VIOLATIONS: &str = "/annotations/pod-security.kubernetes.io~1audit-violations";
const ENFORCED: &str = "/annotations/pod-security.kubernetes.io~1enforce-policy";

fn rows() -> Vec<Row> {
    let row = |id, call, expected: Vec<(&'static str, Value)>| Row {
        id,
        call,
        headers: &[],
        stages: USUAL,
        expected,
    };
    let maps = "/api/v1/namespaces/aud/configmaps";
    let pods = "/api/v1/namespaces/aud/pods";
    let pod = |name: &str, privileged: bool| {
        let container = json!({"name": "c", "image": "i", "securityContext": {"privileged": privileged}});
        json!({"metadata": {"name": name}, "spec": {"containers": [container], "automountServiceAccountToken": false}})
    };
    let labels = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/audit": "restricted",
    }}});
    vec![
        row("namespace", post("/api/v1/namespaces", json!({"metadata": {"name": "aud"}})), vec![
            ("/verb", json!("create")),
            ("/objectRef", json!({"resource": "namespaces", "name": "aud", "apiVersion": "v1"})),
            ("/responseStatus", json!({"metadata": {}, "code": 201})),
            (DECISION, json!("allow")),
        ]),
        row("account", post("/api/v1/namespaces/aud/serviceaccounts", json!({"metadata": {"name": "acc"}})), vec![]),
        row("secret", post("/api/v1/namespaces/aud/secrets", json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})), vec![
            // As it is after defaults.
            ("/requestObject/data", json!({"a": "Yg=="})),
            ("/requestObject/type", json!("Opaque")),
            ("/requestObject/stringData", Value::Null),
        ]),
        row("map", post(maps, json!({"metadata": {"name": "c"}, "data": {"a": "b"}})), vec![
            ("/responseObject/metadata/managedFields", Value::Null),
            ("/requestObject/data/a", json!("b")),
        ]),
        row("patch", patch(&format!("{maps}/c"), json!({"data": {"a": "c"}})), vec![
            ("/requestObject", json!({"data": {"a": "c"}})),
            ("/responseObject/data/a", json!("c")),
        ]),
        row("list", Call::get(maps), vec![("/responseObject/kind", json!("ConfigMapList")), ("/requestObject", Value::Null)]),
        Row { stages: LONG, ..row("watch", Call::get(format!("{maps}?watch=1&timeoutSeconds=1")), vec![
            ("/verb", json!("watch")), ("/responseObject", Value::Null), ("/responseStatus/code", json!(200)),
        ]) },
        row("one", Call::get(format!("{maps}?fieldSelector=metadata.name%3Dc")), vec![
            ("/verb", json!("list")), ("/objectRef/name", json!("c")),
        ]),
        row("head", Call::new(Method::HEAD, maps), vec![("/verb", json!("list")), ("/responseStatus/code", json!(405))]),
        row("options", Call::new(Method::OPTIONS, maps), vec![("/verb", json!(""))]),
        row("absent", Call::get(format!("{maps}/none")), vec![
            ("/responseStatus/reason", json!("NotFound")), ("/responseObject/kind", json!("Status")),
        ]),
        row("again", post(maps, json!({"metadata": {"name": "c"}})), vec![("/responseStatus/reason", json!("AlreadyExists"))]),
        row("unreadable", Call::new(Method::POST, maps).body(JSON, "{bad"), vec![
            ("/responseStatus/code", json!(400)), ("/requestObject", Value::Null),
        ]),
        row("delete", Call::new(Method::DELETE, format!("{maps}/c")).body(JSON, r#"{"propagationPolicy":"Background"}"#), vec![
            ("/requestObject", json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "propagationPolicy": "Background"})),
        ]),
        Row { headers: &[("impersonate-user", "jane"), ("impersonate-group", "dev")], ..row("jane", Call::get(maps), vec![
            ("/user/username", json!("kubernetes-admin")),
            ("/impersonatedUser", json!({"username": "jane", "groups": ["dev", "system:authenticated"]})),
            ("/authenticationMetadata", json!({"impersonationConstraint": "impersonate:user-info"})),
            (DECISION, json!("forbid")),
            ("/annotations/authorization.k8s.io~1reason", json!("")),
            ("/responseStatus/reason", json!("Forbidden")),
        ]) },
        Row { headers: &[("impersonate-user", "jane"), ("impersonate-group", "system:masters")], ..row("master", Call::get(maps), vec![
            ("/impersonatedUser/groups", json!(["system:masters", "system:authenticated"])),
            ("/authenticationMetadata", Value::Null),
            (DECISION, json!("allow")),
        ]) },
        Row { headers: &[("x-forwarded-for", "10.1.2.3, 10.4.5.6"), ("x-real-ip", "10.9.9.9")], ..row("proxied", Call::get(maps), vec![
            ("/sourceIPs", json!(["10.1.2.3", "10.4.5.6", "10.9.9.9", "127.0.0.1"])),
        ]) },
        row("token", post("/api/v1/namespaces/aud/serviceaccounts/acc/token", json!({"spec": {}})), vec![
            ("/objectRef/subresource", json!("token")),
        ]),
        row("version", Call::get("/version"), vec![("/responseObject", Value::Null), ("/objectRef", Value::Null)]),
        row("old", Call::get("/api/v1/namespaces/aud/endpoints"), vec![("/annotations/k8s.io~1deprecated", json!("true"))]),
        row("privileged", post(pods, pod("p", true)), vec![(ENFORCED, json!("privileged:latest")), (VIOLATIONS, Value::Null)]),
        row("label", patch("/api/v1/namespaces/aud", labels), vec![(ENFORCED, Value::Null)]),
        row("refused", post(pods, pod("q", true)), vec![
            ("/responseStatus/code", json!(403)),
            (ENFORCED, json!("baseline:latest")),
            // Authorization has allowed it.
            (DECISION, json!("allow")),
        ]),
        row("violating", post(pods, pod("r", false)), vec![
            ("/responseStatus/code", json!(201)),
            (ENFORCED, json!("baseline:latest")),
            (VIOLATIONS, json!("would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")")),
        ]),
    ]
}

#[tokio::test]
async fn events_are_those_of_the_reference() {
    let mut audited = Audited::start(&[]).await;
    let mut admin = audited.server.connect(Protocol::Http1).await;
    for row in rows() {
        // The service account of pods is created with the namespace, a moment later.
        if row.id == "privileged" {
            let path = "/api/v1/namespaces/aud/serviceaccounts/default";
            while admin.call(&Call::get(path)).await.expect("answer").status != StatusCode::OK {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        send(&mut admin, row.id, &row.call, row.headers).await;
    }
    // Wrong credentials: one event, without a user.
    let endpoint = audited.server.endpoint().with_identity(Identity::Anonymous);
    let mut anonymous = endpoint.connect(Protocol::Http1).await.expect("connection");
    let call = Call::get("/api/v1/secrets");
    let code = send(&mut anonymous, "wrong", &call, &[("authorization", "Bearer wrong")]).await;
    assert_eq!(code, StatusCode::UNAUTHORIZED);
    let events = audited.events().await;
    let of = |id: &str| events.iter().filter(|event| event["auditID"] == id).collect::<Vec<_>>();
    let stages = |events: &[&Value]| {
        events.iter().map(|e| e["stage"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut failures = Vec::new();
    for row in rows() {
        let events = of(row.id);
        if stages(&events) != row.stages {
            failures.push(format!("{}: {:?}", row.id, stages(&events)));
        }
        let Some(last) = events.last() else { continue };
        for (place, expected) in &row.expected {
            let found = last.pointer(place).unwrap_or(&Value::Null);
            if found != expected {
                failures.push(format!("{} {place}: {found}, not {expected}", row.id));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let token = of("token").last().unwrap()["annotations"]
        ["authentication.kubernetes.io/issued-credential-id"]
        .clone();
    assert!(token.as_str().is_some_and(|id| id.starts_with("JTI=")), "{token}");
    let wrong = of("wrong");
    assert_eq!(stages(&wrong), ["ResponseStarted"]);
    assert_eq!(
        (&wrong[0]["user"], &wrong[0]["responseStatus"]["reason"]),
        (&json!({}), &json!("Unauthorized"))
    );
}

/// Whichever decoder reads a body, it is in the event, and so is the name.
#[tokio::test]
async fn every_body_is_recorded() {
    let mut audited = Audited::start(&[]).await;
    let client = audited.server.client().await;
    let group = "bodies.example.com";
    establish(
        &client,
        &definition(
            group,
            "Widget",
            "Namespaced",
            json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "replicas": {"type": "integer"}, "size": {"type": "string", "default": "small"}}},
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            }}),
        ),
    )
    .await;
    let widgets = format!("/apis/{group}/v1/namespaces/default/widgets");
    let maps = "/api/v1/namespaces/default/configmaps";
    let widget = |name: &str, replicas: i64| json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": {"replicas": replicas}});
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
    let apply = |path: String, kind: &'static str, body: Vec<u8>| {
        Call::new(Method::PATCH, format!("{path}?fieldManager=m&force=true")).body(kind, body)
    };
    let cbor = |object: &Value| {
        let mut out = Vec::new();
        plinth_codec::cbor::transcode_json(object.to_string().as_bytes(), None, &mut out).expect("CBOR");
        out
    };
    let (yaml, in_cbor) = ("application/apply-patch+yaml", "application/apply-patch+cbor");
    let put = |path: String, body: Value| Call::new(Method::PUT, path).body(JSON, body.to_string());
    let rows = [
        ("map", post(maps, map("m")), "/data/a", json!("b")),
        ("widget", post(&widgets, widget("w", 1)), "/spec/size", json!("small")),
        ("put", put(format!("{widgets}/w"), widget("w", 2)), "/spec/replicas", json!(2)),
        (
            "merge",
            patch(&format!("{widgets}/w"), json!({"spec": {"replicas": 3}})),
            "/spec/replicas",
            json!(3),
        ),
        ("apply-map", apply(format!("{maps}/m"), yaml, map("m").to_string().into()), "/data/a", json!("b")),
        (
            "apply-widget",
            apply(format!("{widgets}/w"), yaml, widget("w", 4).to_string().into()),
            "/spec/replicas",
            json!(4),
        ),
        ("cbor-map", apply(format!("{maps}/m"), in_cbor, cbor(&map("m"))), "/data/a", json!("b")),
        (
            "cbor-widget",
            apply(format!("{widgets}/w"), in_cbor, cbor(&widget("w", 5))),
            "/spec/replicas",
            json!(5),
        ),
        (
            "refused",
            post(
                &widgets,
                json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": "v"}, "spec": {"replicas": "many"}}),
            ),
            "/spec/replicas",
            json!("many"),
        ),
    ];
    let mut admin = audited.server.connect(Protocol::Http1).await;
    for (id, call, ..) in &rows {
        let code = send(&mut admin, id, call, &[]).await;
        // The PUT has no resourceVersion.
        assert_eq!(code.is_success(), !["put", "refused"].contains(id), "{id}: {code}");
    }
    let events = audited.events().await;
    for (id, _, place, expected) in &rows {
        let last = events.iter().rfind(|event| event["auditID"] == *id).expect(id);
        assert_eq!(last["requestObject"].pointer(place), Some(expected), "{id}: {last}");
        assert!(last["objectRef"]["name"].is_string(), "{id}: {last}");
    }
}

/// Requests whose client resets the stream or closes the connection are recorded like others, and counted.
#[tokio::test]
async fn requests_whose_client_leaves_are_recorded() {
    let mut audited = Audited::start(&[]).await;
    let mut admin = audited.server.connect(Protocol::Http1).await;
    // A webhook that reports its call to the test, and never answers.
    let (called, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let service = HttpsServer::start(move |_: http::Request<hyper::body::Incoming>| {
        called.send(()).expect("the test waits for it");
        std::future::pending::<http::Response<http_body_util::Full<bytes::Bytes>>>()
    })
    .await;
    let hook = json!({
        "name": "silent.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 30,
        "clientConfig": {"url": format!("https://localhost:{}/", service.port), "caBundle": BASE64_STANDARD.encode(&service.certificate)},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let configuration = json!({"metadata": {"name": "silent"}, "webhooks": [hook]});
    assert_eq!(send(&mut admin, "hook", &post(path, configuration), &[]).await, StatusCode::CREATED);
    for (name, protocol) in [("cut", Protocol::Http1), ("reset", Protocol::Http2)] {
        let mut connection = audited.server.connect(protocol).await;
        let call = post("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": name}}));
        tokio::select! {
            code = send(&mut connection, name, &call, &[]) => panic!("{name} is answered with {code}"),
            call = calls.recv() => call.expect("a call"),
        }
    }
    let counted = r#"apiserver_request_total{code="0",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1"} 2"#;
    let counting = async {
        while !admin.must(&Call::get("/metrics")).await.expect("metrics").text().contains(counted) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), counting).await.expect("both are counted");
    let events = audited.events().await;
    for name in ["cut", "reset"] {
        let events: Vec<&Value> = events.iter().filter(|event| event["auditID"] == name).collect();
        let stages: Vec<&Value> = events.iter().map(|event| &event["stage"]).collect();
        assert_eq!(stages, USUAL, "{name}");
        let last = events[1];
        assert_eq!(last["user"]["username"], "kubernetes-admin");
        assert_eq!(
            last["objectRef"],
            json!({"resource": "configmaps", "namespace": "default", "name": name, "apiVersion": "v1"})
        );
        let closed =
            json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
        assert_eq!(last["responseStatus"], closed, "{name}");
        assert_eq!(last["requestObject"]["metadata"]["name"], name);
    }
}
