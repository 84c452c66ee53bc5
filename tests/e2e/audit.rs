//! What is recorded of requests: events as kube-apiserver v1.36 records them of the same requests, in the log and at a service.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use plinth_benches::api::client::{Call, Connection, Identity, Protocol, JSON};
use plinth_tests::https::HttpsServer;
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

/// Everything, but for what the server does by itself and what makes sure that it lives.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n\
    - {level: None, users: ['system:apiserver']}\n\
    - {level: None, nonResourceURLs: ['/livez*', '/readyz*']}\n\
    - {level: RequestResponse, omitManagedFields: true}\n";

struct Audited {
    server: TestServer,
    dir: tempfile::TempDir,
}

impl Audited {
    async fn start(flags: &[&str]) -> Audited {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join("policy.yaml"), POLICY).expect("policy");
        let policy = format!("--audit-policy-file={}", dir.path().join("policy.yaml").display());
        let log = format!("--audit-log-path={}", dir.path().join("audit.log").display());
        let server = TestServer::start(&[&[policy.as_str(), log.as_str()][..], flags].concat()).await;
        Audited { server, dir }
    }

    /// The events in the log, in their order, once the server has stopped.
    async fn events(&mut self) -> Vec<Value> {
        self.server.terminate().await;
        let text = std::fs::read_to_string(self.dir.path().join("audit.log")).expect("log");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Sends a request with an audit ID of its own and further headers.
async fn send(connection: &mut Connection, id: &str, call: &Call, headers: &[(&str, &str)]) -> StatusCode {
    let mut request =
        http::Request::builder().method(call.method.clone()).uri(&call.path).header("audit-id", id);
    if let Some(content_type) = call.content_type {
        request = request.header("content-type", content_type);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(call.body.clone())).expect("request");
    let response = connection.send(request, &call.path).await.expect("answer");
    let status = response.status();
    response.into_body().collect().await.expect("body");
    status
}

fn post(path: &str, body: Value) -> Call {
    Call::new(Method::POST, path).body(JSON, body.to_string())
}

fn patch(path: &str, body: Value) -> Call {
    Call::new(Method::PATCH, path).body("application/merge-patch+json", body.to_string())
}

/// A request, and what its last event must have at these places; `null` is absent. The values are kube-apiserver's.
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
            // Authorization had nothing against it.
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
        // The account that pods run as comes with the namespace, a moment later.
        if row.id == "privileged" {
            let path = "/api/v1/namespaces/aud/serviceaccounts/default";
            while admin.call(&Call::get(path)).await.expect("answer").status != StatusCode::OK {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        send(&mut admin, row.id, &row.call, row.headers).await;
    }
    // Wrong credentials: one event, of nobody.
    let endpoint = audited.server.endpoint().with_identity(Identity::Anonymous);
    let mut stranger = endpoint.connect(Protocol::Http1).await.expect("connection");
    let call = Call::get("/api/v1/secrets");
    let code = send(&mut stranger, "wrong", &call, &[("authorization", "Bearer wrong")]).await;
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

#[tokio::test]
async fn logs_are_rotated_and_have_the_older_form() {
    let flags = [
        "--audit-log-maxsize=1",
        "--audit-log-maxbackup=2",
        "--audit-log-compress",
        "--audit-log-truncate-enabled",
        "--audit-log-truncate-max-event-size=600000",
    ];
    let audited = Audited::start(&flags).await;
    let mut admin = audited.server.connect(Protocol::Http2).await;
    for n in 0..12 {
        let size = if n == 11 { 700_000 } else { 250_000 };
        let map = json!({"metadata": {"name": format!("m-{n}")}, "data": {"x": "y".repeat(size)}});
        admin.must(&post("/api/v1/namespaces/default/configmaps", map)).await.expect("create");
    }
    let mut audited = audited;
    let last = audited.events().await;
    // Each is 500 kB, so two fit; the last one is too large and lost its objects.
    let truncated =
        last.iter().find(|e| e["objectRef"]["name"] == "m-11" && e["stage"] == "ResponseComplete");
    let truncated = truncated.expect("the last event");
    assert_eq!(truncated["annotations"]["audit.k8s.io/truncated"], "true");
    assert_eq!(truncated.get("responseObject"), None);
    let names: Vec<String> = std::fs::read_dir(audited.dir.path())
        .expect("directory")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("audit-"))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.ends_with(".log.gz")), "{names:?}");

    let mut older = Audited::start(&["--audit-log-format=legacy"]).await;
    let mut admin = older.server.connect(Protocol::Http1).await;
    send(&mut admin, "legacy-1", &Call::get("/api/v1/namespaces/default/pods?limit=1"), &[]).await;
    older.server.terminate().await;
    let text = std::fs::read_to_string(older.dir.path().join("audit.log")).expect("log");
    let line = text.lines().rfind(|line| line.contains("legacy-1")).expect("a line");
    assert!(line.contains(r#" AUDIT: id="legacy-1" stage="ResponseComplete" ip="127.0.0.1" method="list" user="kubernetes-admin" groups="\"system:masters\",\"system:authenticated\"" as="<self>" asgroups="<lookup>""#), "{line}");
    assert!(
        line.ends_with(r#"namespace="default" uri="/api/v1/namespaces/default/pods?limit=1" response="200""#),
        "{line}"
    );
}

/// A service that keeps the lists it gets, and fails at first.
struct Service {
    server: HttpsServer,
    lists: Arc<Mutex<Vec<Value>>>,
    calls: Arc<AtomicUsize>,
}

impl Service {
    async fn start(failures: usize) -> Service {
        let lists: Arc<Mutex<Vec<Value>>> = Arc::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let (kept, count) = (lists.clone(), calls.clone());
        let server = HttpsServer::start(move |request: http::Request<hyper::body::Incoming>| {
            let (kept, count) = (kept.clone(), count.clone());
            async move {
                let authorized =
                    request.headers().get("authorization").is_some_and(|v| v == "Bearer of-the-server");
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.expect("body").to_bytes();
                let mut response = Response::new(Full::new(Bytes::new()));
                if count.fetch_add(1, Ordering::SeqCst) < failures || !authorized || path != "/events" {
                    *response.status_mut() = StatusCode::BAD_REQUEST;
                } else {
                    kept.lock().push(serde_json::from_slice(&body).expect("a list"));
                    *response.status_mut() = StatusCode::NO_CONTENT;
                }
                response
            }
        })
        .await;
        Service { server, lists, calls }
    }

    fn kubeconfig(&self, dir: &Path) -> String {
        let path = dir.join("webhook.kubeconfig");
        std::fs::write(&path, self.server.kubeconfig("/events", "of-the-server")).expect("kubeconfig");
        format!("--audit-webhook-config-file={}", path.display())
    }

    fn lists(&self) -> Vec<Value> {
        self.lists.lock().clone()
    }

    fn items(&self) -> Vec<Value> {
        self.lists().iter().flat_map(|list| list["items"].as_array().expect("items").clone()).collect()
    }
}

#[tokio::test]
async fn events_are_sent_in_batches_until_they_arrive() {
    let service = Service::start(3).await;
    let dir = tempfile::tempdir().expect("directory");
    let flag = service.kubeconfig(dir.path());
    let flags = [
        flag.as_str(),
        "--audit-webhook-initial-backoff=20ms",
        "--audit-webhook-batch-max-size=5",
        "--audit-webhook-batch-max-wait=100ms",
    ];
    let mut audited = Audited::start(&flags).await;
    let mut admin = audited.server.connect(Protocol::Http1).await;
    for n in 0..20 {
        send(&mut admin, &format!("sent-{n}"), &Call::get("/api/v1/namespaces/default"), &[]).await;
    }
    // A server that stops sends what it has.
    let logged = audited.events().await;
    let lists = service.lists();
    assert!(lists.iter().all(|list| list["kind"] == "EventList" && list["apiVersion"] == "audit.k8s.io/v1"));
    assert!(lists.iter().all(|list| (1..=5).contains(&list["items"].as_array().expect("items").len())));
    let items = service.items();
    for n in 0..20 {
        let id = format!("sent-{n}");
        let stages: Vec<&Value> = items.iter().filter(|e| e["auditID"] == *id).map(|e| &e["stage"]).collect();
        assert_eq!(stages.len(), 2, "{id}: {stages:?}");
    }
    // The same events as in the log, which are objects of their own there.
    let last =
        items.iter().find(|e| e["auditID"] == "sent-19" && e["stage"] == "ResponseComplete").expect("it");
    let line =
        logged.iter().find(|e| e["auditID"] == "sent-19" && e["stage"] == "ResponseComplete").expect("it");
    let (mut line, last) = (line.clone(), last.clone());
    assert_eq!(last.get("kind"), None);
    for (key, value) in [("kind", "Event"), ("apiVersion", "audit.k8s.io/v1")] {
        assert_eq!(line.as_object_mut().expect("an object").remove(key), Some(json!(value)));
    }
    assert_eq!(line, last);
    assert!(service.calls.load(Ordering::SeqCst) > lists.len(), "some calls failed");
}

#[tokio::test]
async fn a_service_that_is_away_stops_strict_servers_alone() {
    let service = Service::start(usize::MAX).await;
    let dir = tempfile::tempdir().expect("directory");
    let flag = service.kubeconfig(dir.path());
    for (mode, served) in [("batch", true), ("blocking", true), ("blocking-strict", false)] {
        let mode = format!("--audit-webhook-mode={mode}");
        let audited =
            Audited::start(&[flag.as_str(), mode.as_str(), "--audit-webhook-initial-backoff=1ms"]).await;
        let mut admin = audited.server.connect(Protocol::Http1).await;
        let reply = admin.call(&Call::get("/api/v1/namespaces/default")).await.expect("answer");
        assert_eq!(reply.status == StatusCode::OK, served, "{mode}: {}", reply.text());
        if !served {
            assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert!(reply.text().contains("failed to store audit event"), "{}", reply.text());
        }
    }
}

/// A webhook that adds a label, says something to the audit log, and takes its time where the object asks for that.
async fn admission(request: http::Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    let mutating = request.uri().path() == "/mutate";
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    let asked = &review["request"];
    if asked["name"] == "slow" {
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    let said = json!({"opinion": "fine", "no key at all": "x"});
    let mut response = json!({"uid": asked["uid"], "allowed": true, "auditAnnotations": said});
    if mutating && asked["name"] != "plain" {
        let patch = json!([{"value": {"a": "b"}, "op": "add", "path": "/metadata/labels"}]);
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(patch.to_string()));
    }
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Response::new(Full::new(Bytes::from(review.to_string())))
}

#[tokio::test]
async fn webhooks_and_slow_steps_are_told() {
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
    // The places are those among all mutating webhooks, and among the validating ones that the request concerns.
    let quick = annotations("quick");
    let told = |key: &str| serde_json::from_str::<Value>(quick[key].as_str().expect(key)).expect("JSON");
    let from = |name: &str| json!({"configuration": "mutating", "webhook": name, "mutated": false});
    assert_eq!(told("mutation.webhook.admission.k8s.io/round_0_index_0"), from("away.example.com"));
    let mut changed = from("authorization.k8s.io");
    changed["mutated"] = json!(true);
    assert_eq!(told("mutation.webhook.admission.k8s.io/round_0_index_1"), changed);
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

/// A webhook's annotations stand behind its name, which may be that of one of the server's own.
#[tokio::test]
async fn a_webhook_cannot_say_what_was_decided() {
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
    assert_eq!(send(&mut admin, "told", &call, &[]).await, StatusCode::CREATED);
    let events = audited.events().await;
    let event = events.iter().rfind(|event| event["auditID"] == "told").expect("an event");
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_ne!(event["annotations"]["authorization.k8s.io/reason"], "nobody knows");
}

/// Whoever resets a stream or cuts a connection is recorded like everybody else, and counted.
#[tokio::test]
async fn requests_whose_client_leaves_are_recorded() {
    let mut audited = Audited::start(&[]).await;
    let mut admin = audited.server.connect(Protocol::Http1).await;
    // A webhook that says that it has been asked, and never answers.
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
    let service = HttpsServer::start(move |_: http::Request<hyper::body::Incoming>| {
        asked.send(()).expect("somebody waits for it");
        std::future::pending()
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
            call = asks.recv() => call.expect("a call"),
        }
    }
    let counted = r#"apiserver_request_total{code="0",group="",resource="configmaps",subresource="",verb="create",version="v1"} 2"#;
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
