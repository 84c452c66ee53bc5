//! Where the server goes itself: to kubelets for logs and terminals, to webhooks for their opinion.

use std::sync::atomic::{AtomicBool, Ordering};

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::Client;
use plinth_benches::api::client::{Call, Identity, Protocol};
use plinth_tests::https::HttpsServer;
use plinth_tests::server::{namespace, shared, unique, TestServer};
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value, String) {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let kind = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let response = client.send(request.body(Body::from(bytes)).expect("request")).await.expect("answer");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.expect("body");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null), text)
}

async fn make(client: &Client, path: &str, body: Value) -> Value {
    let (code, made, _) = send(client, "POST", path, &body).await;
    assert_eq!(code, 201, "{path}: {made}");
    made
}

/// A kubelet that has one log, and echoes what an upgraded connection sends.
async fn kubelet(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let target = request.uri().to_string();
    if request.headers().contains_key("authorization") {
        return answer(StatusCode::BAD_REQUEST, "credentials were passed on");
    }
    if target.starts_with("/containerLogs/") {
        return answer(StatusCode::OK, &format!("log of {target}\n"));
    }
    if target.starts_with("/exec/") {
        let upgrade = hyper::upgrade::on(&mut request);
        let protocol = request.headers().get("upgrade").cloned().expect("an upgrade");
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.expect("upgraded connection"));
            let mut buffer = [0u8; 64];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..count]).await.expect("echo");
            }
        });
        let mut response = answer(StatusCode::SWITCHING_PROTOCOLS, "");
        response.headers_mut().insert("connection", "Upgrade".parse().expect("header"));
        response.headers_mut().insert("upgrade", protocol);
        return response;
    }
    answer(StatusCode::NOT_FOUND, "no such path")
}

fn answer(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = code;
    response
}

#[tokio::test]
async fn logs_and_terminals_come_from_the_kubelet() {
    let access = shared().await;
    let client = access.client().await;
    let kubelet = HttpsServer::start(kubelet).await;
    let node = unique("node");
    make(&client, "/api/v1/nodes", json!({"metadata": {"name": node}})).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }});
    let (code, body, _) = send(&client, "PATCH", &format!("/api/v1/nodes/{node}/status"), &status).await;
    assert_eq!(code, 200, "{body}");
    let namespace = namespace(&client, "kubelet").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let containers = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
    make(
        &client,
        &pods,
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": containers}}),
    )
    .await;
    make(&client, &pods, json!({"metadata": {"name": "free"}, "spec": {"containers": containers}})).await;

    let (code, _, text) =
        send(&client, "GET", &format!("{pods}/p/log?container=b&tailLines=3&follow=true"), &Value::Null)
            .await;
    assert_eq!(
        (code, text),
        (200, format!("log of /containerLogs/{namespace}/p/b?follow=true&tailLines=3\n"))
    );
    let (code, body, _) = send(&client, "GET", &format!("{pods}/p/log"), &Value::Null).await;
    assert_eq!(
        (code, body["message"].as_str()),
        (400, Some("a container name must be specified for pod p, choose one of: [a b]"))
    );
    let (code, body, _) =
        send(&client, "POST", &format!("{pods}/free/exec?container=a&command=sh"), &Value::Null).await;
    assert_eq!((code, body["message"].as_str()), (400, Some("pod free does not have a host assigned")));

    // An upgrade becomes a pipe from end to end.
    let mut stream = access.endpoint().stream(Protocol::Http1).await.expect("connection");
    let head = format!(
        "POST {pods}/p/exec?container=a&stdin=true&stdout=true&command=cat HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("request");
    let mut seen = Vec::new();
    while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
        seen.push(stream.read_u8().await.expect("head of the answer"));
    }
    let head = String::from_utf8_lossy(&seen).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: spdy/3.1"), "{head}");
    stream.write_all(b"hello").await.expect("keys");
    let mut echo = [0u8; 5];
    stream.read_exact(&mut echo).await.expect("echo");
    assert_eq!(&echo, b"hello");

    drop(kubelet);
    let (code, body, _) = send(&client, "GET", &format!("{pods}/p/log?container=a"), &Value::Null).await;
    assert_eq!(code, 500);
    assert!(
        body["message"].as_str().is_some_and(|m| m.contains("error dialing backend: dial tcp 127.0.0.1:")),
        "{body}"
    );
}

/// A webhook that labels what it sees, and denies what is called so.
async fn opinion(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let mutating = request.uri().path() == "/mutate";
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    let asked = &review["request"];
    let denied = asked["name"].as_str().is_some_and(|name| name.starts_with("denied"));
    let mut response = json!({"uid": asked["uid"], "allowed": !denied, "warnings": ["an opinion"]});
    if denied {
        response["status"] = json!({"code": 418, "message": "not this one"});
    } else if mutating {
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": asked["operation"]}}]);
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(patch.to_string()));
    }
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    answer(StatusCode::OK, &review.to_string())
}

#[tokio::test]
async fn webhooks_change_refuse_and_fail() {
    const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
    let client = shared().await.client().await;
    let namespace = namespace(&client, "webhooks").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let server = HttpsServer::start(opinion).await;
    let hook = |path: &str, port: u16, policy: &str| {
        json!({
            "name": "opinion.example.com",
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
    make(&client, &configure("mutating"), body).await;
    let body = json!({"metadata": {"name": validating}, "webhooks": [hook("validate", server.port, "Fail")]});
    make(&client, &configure("validating"), body).await;

    let made = make(&client, &maps, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made["metadata"]["labels"], json!({"seen": "CREATE"}));
    let (code, changed, _) = send(&client, "PATCH", &format!("{maps}/a"), &json!({"data": {"k": "v"}})).await;
    assert_eq!((code, &changed["metadata"]["labels"]["seen"]), (200, &json!("UPDATE")));
    let (code, refused, _) = send(&client, "POST", &maps, &json!({"metadata": {"name": "denied"}})).await;
    assert_eq!(
        (code, refused["message"].as_str()),
        (418, Some(r#"admission webhook "opinion.example.com" denied the request: not this one"#))
    );
    // Other namespaces are none of its business.
    let (code, elsewhere, _) = send(
        &client,
        "POST",
        "/api/v1/namespaces/default/configmaps?dryRun=All",
        &json!({"metadata": {"name": "denied"}}),
    )
    .await;
    assert_eq!(code, 201, "{elsewhere}");

    drop(server);
    let (code, failed, _) = send(&client, "POST", &maps, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!(code, 500);
    let message = failed["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with(r#"Internal error occurred: failed calling webhook "opinion.example.com": failed to call webhook: Post"#), "{message}");
    for (plural, name) in [("mutating", &mutating), ("validating", &validating)] {
        let policy = json!({"webhooks": [{"name": "opinion.example.com", "failurePolicy": "Ignore"}]});
        let (code, body, _) = send(&client, "PATCH", &format!("{}/{name}", configure(plural)), &policy).await;
        assert_eq!(code, 200, "{body}");
    }
    make(&client, &maps, json!({"metadata": {"name": "b"}})).await;
    for (plural, name) in [("mutating", &mutating), ("validating", &validating)] {
        assert_eq!(
            send(&client, "DELETE", &format!("{}/{name}", configure(plural)), &Value::Null).await.0,
            200
        );
    }
}

/// Whether [`authority`] gives no answers.
static AWAY: AtomicBool = AtomicBool::new(false);

/// A service that knows one token, and says what its user may do.
async fn authority(request: Request<Incoming>) -> Response<Full<Bytes>> {
    if AWAY.load(Ordering::SeqCst) {
        return answer(StatusCode::SERVICE_UNAVAILABLE, "later");
    }
    let path = request.uri().path().to_owned();
    if request.headers().get("authorization").is_none_or(|v| v != "Bearer of-the-server") {
        return answer(StatusCode::UNAUTHORIZED, "who asks?");
    }
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let mut review: Value = serde_json::from_slice(&body).expect("a review");
    let spec = review["spec"].clone();
    review["status"] = match path.as_str() {
        "/authenticate" => match spec["token"].as_str() {
            Some("janes-token") => {
                json!({"authenticated": true, "user": {"username": "jane", "uid": "u", "groups": ["dev"], "extra": {"scope": ["a"]}}})
            }
            Some("broken") => json!({"authenticated": false, "error": "no longer"}),
            _ => json!({"authenticated": false}),
        },
        _ => {
            let asked = &spec["resourceAttributes"];
            let (verb, resource) = (asked["verb"].as_str(), asked["resource"].as_str());
            match (spec["user"].as_str(), verb, resource) {
                (Some("jane"), Some("list"), Some("configmaps")) => {
                    json!({"allowed": true, "reason": "she may"})
                }
                (Some("jane"), _, Some("secrets")) => {
                    json!({"allowed": false, "denied": true, "reason": "never"})
                }
                _ => json!({"allowed": false}),
            }
        }
    };
    answer(StatusCode::OK, &review.to_string())
}

#[tokio::test]
async fn tokens_and_decisions_come_from_a_service() {
    let service = HttpsServer::start(authority).await;
    let dir = tempfile::tempdir().expect("directory");
    let file = |path: &str| {
        let file = dir.path().join(&path[1..]);
        std::fs::write(&file, service.kubeconfig(path, "of-the-server")).expect("kubeconfig");
        file.display().to_string()
    };
    let server = TestServer::start(&[
        &format!("--authentication-token-webhook-config-file={}", file("/authenticate")),
        "--authentication-token-webhook-version=v1",
        // Nothing is remembered, so that the service that goes away is missed at once.
        "--authentication-token-webhook-cache-ttl=0s",
        "--authorization-mode=Node,Webhook,RBAC",
        &format!("--authorization-webhook-config-file={}", file("/authorize")),
        "--authorization-webhook-version=v1",
        "--authorization-webhook-cache-authorized-ttl=0s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ])
    .await;
    let ask = async |token: &str, path: &str| {
        let endpoint = server.endpoint().with_identity(Identity::Token(token.to_owned()));
        let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
        let reply = connection.call(&Call::get(path)).await.expect("answer");
        (reply.status.as_u16(), reply.text())
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(ask("janes-token", maps).await.0, 200);
    for token in ["guessed", "broken"] {
        assert_eq!(ask(token, maps).await.0, 401, "{token}");
    }
    let (code, text) = ask("janes-token", "/api/v1/namespaces/default/secrets").await;
    assert_eq!((code, text.contains("never")), (403, true), "{text}");
    assert_eq!(
        ask("janes-token", "/api/v1/namespaces/default/pods").await.0,
        403,
        "no opinion is no permission"
    );
    // What the service has no opinion of the next one is asked, and its no ends that.
    let client = server.client().await;
    let role = json!({"metadata": {"name": "jane"}, "rules": [{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["list"]}]});
    let group = "rbac.authorization.k8s.io";
    make(&client, &format!("/apis/{group}/v1/namespaces/default/roles"), role).await;
    let binding = json!({
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "jane"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
    });
    make(&client, &format!("/apis/{group}/v1/namespaces/default/rolebindings"), binding).await;
    assert_eq!(ask("janes-token", "/api/v1/namespaces/default/pods").await.0, 200);
    assert_eq!(ask("janes-token", "/api/v1/namespaces/default/secrets").await.0, 403);
    // A service that is away lets nobody in.
    AWAY.store(true, Ordering::SeqCst);
    assert_eq!(ask("janes-token", maps).await.0, 401);
}
