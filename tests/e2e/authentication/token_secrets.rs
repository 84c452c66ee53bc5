//! Tokens of service accounts in Secrets.

use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use plinth_benches::api::client::{Call, Identity, Protocol};
use plinth_tests::eventually;
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::{post, self_subject_review};
use plinth_tests::server::TestServer;
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{admin, claims, create_account, until_refused, whoami};

#[tokio::test]
async fn secrets_get_the_token_of_their_account_and_go_with_it() {
    let server = TestServer::start(&[]).await;
    let account = create_account(&server, "default").await;
    let path = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str, account: &str| {
        json!({
            "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": account } },
            "type": "kubernetes.io/service-account-token",
        })
    };
    let until = async |name: &str, wanted: &dyn Fn(StatusCode, &Value) -> bool| {
        for _ in 0..500 {
            let (status, body) = admin(&server, &Call::get(format!("{path}/{name}"))).await;
            if wanted(status, &body) {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{name} is not as wanted");
    };
    let is_full = |_: StatusCode, secret: &Value| secret["data"]["token"].is_string();
    let is_gone = |status: StatusCode, _: &Value| status == StatusCode::NOT_FOUND;
    let text = |secret: &Value, key: &str| {
        let bytes = STANDARD.decode(secret["data"][key].as_str().expect("a text")).expect("base64");
        String::from_utf8(bytes).expect("text")
    };
    for name in ["first", "second"] {
        let (status, body) = admin(&server, &post(path, secret(name, &account))).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
    }
    let first = until("first", &is_full).await;
    let ca = std::fs::read_to_string(server.data().join("pki/ca.crt")).expect("the authority");
    assert_eq!((text(&first, "ca.crt"), text(&first, "namespace")), (ca, "default".to_owned()));
    let token = text(&first, "token");
    let (status, user) = whoami(&server, &token).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(user["username"], format!("system:serviceaccount:default:{account}"));
    let uid = &first["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
    assert_eq!((&user["uid"], claims(&token).get("exp")), (uid, None), "it has no end");
    // Removed fields are restored; an existing token stays.
    let patch = Call::new(Method::PATCH, format!("{path}/first"))
        .body("application/merge-patch+json", r#"{"data":{"namespace":null}}"#);
    assert_eq!(admin(&server, &patch).await.0, StatusCode::OK);
    let repaired = until("first", &|_, secret| secret["data"]["namespace"].is_string()).await;
    assert_eq!(text(&repaired, "token"), token);
    // It ends with its Secret, and the Secrets end with their account.
    admin(&server, &Call::new(Method::DELETE, format!("{path}/first"))).await;
    until_refused(&server, &token).await;
    let second = text(&until("second", &is_full).await, "token");
    assert_eq!(whoami(&server, &second).await.0, StatusCode::CREATED);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin(&server, &Call::new(Method::DELETE, format!("{accounts}/{account}"))).await;
    until("second", &is_gone).await;
    until_refused(&server, &second).await;
    // One whose account does not exist is removed.
    admin(&server, &post(path, secret("nobodys", "nobody"))).await;
    until("nobodys", &is_gone).await;
    // Secrets of other types are left alone.
    admin(&server, &post(path, json!({ "metadata": { "name": "own" } }))).await;
    assert_eq!(admin(&server, &Call::get(format!("{path}/own"))).await.0, StatusCode::OK);
}

/// Tokens in Secrets: the day of their last use, warnings for those that upstream created automatically, and
/// the label that invalidates them.
#[tokio::test]
async fn uses_of_tokens_in_secrets_are_noted_and_labels_switch_them_off() {
    const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
    let server = TestServer::start(&[]).await;
    let account = create_account(&server, "default").await;
    let path = "/api/v1/namespaces/default/secrets";
    let secret = json!({
        "metadata": { "name": "s", "annotations": { "kubernetes.io/service-account.name": account } },
        "type": "kubernetes.io/service-account-token",
    });
    assert_eq!(admin(&server, &post(path, secret)).await.0, StatusCode::CREATED);
    let until = async |wanted: &dyn Fn(&Value) -> bool| {
        for _ in 0..500 {
            let (_, body) = admin(&server, &Call::get(format!("{path}/s"))).await;
            if wanted(&body) {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("the Secret is not as wanted");
    };
    let full = until(&|secret| secret["data"]["token"].is_string()).await;
    assert_eq!(full["metadata"]["labels"][LAST_USED], Value::Null, "not used yet");
    let token = STANDARD.decode(full["data"]["token"].as_str().expect("token")).expect("base64");
    let token = String::from_utf8(token).expect("text");
    assert_eq!(whoami(&server, &token).await.0, StatusCode::CREATED);
    let used = until(&|secret| secret["metadata"]["labels"][LAST_USED].is_string()).await;
    let day = used["metadata"]["labels"][LAST_USED].as_str().expect("a day");
    assert!(day.len() == 10 && day.bytes().filter(|b| *b == b'-').count() == 2, "{day}");
    // One that its account lists is considered automatically created: clients are warned.
    let warned = async || {
        let call = self_subject_review();
        let endpoint = server.endpoint().with_identity(Identity::Token(token.clone()));
        let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
        let reply = connection.call(&call).await.expect("answer");
        assert_eq!(reply.status, StatusCode::CREATED);
        reply.headers.get("warning").map(|text| text.to_str().expect("text").to_owned())
    };
    assert_eq!(warned().await, None);
    let merge = |path: String, body: Value| {
        Call::new(Method::PATCH, path).body("application/merge-patch+json", body.to_string())
    };
    let accounts = format!("/api/v1/namespaces/default/serviceaccounts/{account}");
    let listed = merge(accounts, json!({ "secrets": [{ "name": "s" }] }));
    assert_eq!(admin(&server, &listed).await.0, StatusCode::OK);
    let mut warning = None;
    for _ in 0..500 {
        warning = warned().await;
        if warning.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(warning.is_some_and(|text| text.contains("instead of auto-generated secret-based tokens")));
    // However they are answered: by no resource, and with an error.
    for (path, code) in [("/version", StatusCode::OK), ("/api/v1/nodes", StatusCode::FORBIDDEN)] {
        let endpoint = server.endpoint().with_identity(Identity::Token(token.clone()));
        let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
        let reply = connection.call(&Call::get(path)).await.expect("answer");
        assert_eq!((reply.status, reply.headers.get_all("warning").iter().count()), (code, 1), "{path}");
    }
    // So are those of browsers, whose token is a subprotocol.
    let body = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
    let handshake = format!(
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: plinth\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: \
         base64url.bearer.authorization.k8s.io.{}, v4.example.com\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        URL_SAFE_NO_PAD.encode(&token),
        body.len(),
    );
    let endpoint = server.endpoint().with_identity(Identity::Anonymous);
    let mut stream = endpoint.stream(Protocol::Http1).await.expect("connection");
    stream.write_all(handshake.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut answer).await.expect("read"), 0, "closed");
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 201") && answer.contains("\r\nwarning: "), "{answer}");
    // The label invalidates it, and removing the label makes it valid again.
    let label = |value: Value| {
        let labels =
            json!({ "metadata": { "labels": { "kubernetes.io/legacy-token-invalid-since": value } } });
        merge(format!("{path}/s"), labels)
    };
    assert_eq!(admin(&server, &label(json!("2024-01-01"))).await.0, StatusCode::OK);
    until_refused(&server, &token).await;
    assert_eq!(admin(&server, &label(Value::Null)).await.0, StatusCode::OK);
    for _ in 0..500 {
        if whoami(&server, &token).await.0 == StatusCode::CREATED {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the token is not accepted again");
}

/// A Secret that is used after the cleaner has read it, and before it is deleted, stays.
#[tokio::test]
async fn a_token_that_is_used_meanwhile_is_not_cleaned_up() {
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let merge = |path: String, body: Value| {
        Call::new(Method::PATCH, path).body("application/merge-patch+json", body.to_string())
    };
    let mut server = TestServer::start(&["--legacy-service-account-token-clean-up-period=1ms"]).await;
    let account = create_account(&server, "default").await;
    let names = ["a-used", "b-unused"];
    let labels = json!({
        "kubernetes.io/legacy-token-last-used": "2020-01-01",
        "kubernetes.io/legacy-token-invalid-since": "2020-01-01",
    });
    for name in names {
        let secret = json!({
            "metadata": {
                "name": name, "labels": labels,
                "annotations": { "kubernetes.io/service-account.name": account },
            },
            "type": "kubernetes.io/service-account-token",
        });
        assert_eq!(admin(&server, &post(SECRETS, secret)).await.0, StatusCode::CREATED);
    }
    let listed = json!({ "secrets": [{ "name": names[0] }, { "name": names[1] }] });
    let listed = merge(format!("/api/v1/namespaces/default/serviceaccounts/{account}"), listed);
    assert_eq!(admin(&server, &listed).await.0, StatusCode::OK);
    let tracking =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let since = merge(tracking.to_owned(), json!({ "data": { "since": "2019-01-01" } }));
    assert_eq!(admin(&server, &since).await.0, StatusCode::OK);

    // The first Secret is used while its deletion is being reviewed.
    let endpoint = server.endpoint();
    let webhook = HttpsServer::start(move |request: Request<Incoming>| {
        let endpoint = endpoint.clone();
        async move {
            let body = request.into_body().collect().await.expect("body").to_bytes();
            let review: Value = serde_json::from_slice(&body).expect("a review");
            let request = &review["request"];
            if request["name"] == "a-used" {
                let labels = json!({ "metadata": { "labels": { "kubernetes.io/legacy-token-last-used": "2100-01-01" } } });
                let used = merge(format!("{SECRETS}/a-used"), labels);
                eventually("it is used", || async {
                    let Ok(mut connection) = endpoint.connect(Protocol::Http1).await else { return false };
                    connection.must(&used).await.is_ok()
                })
                .await;
            }
            let response = json!({ "uid": request["uid"], "allowed": true });
            let answer =
                json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
            Response::new(Full::new(Bytes::from(answer.to_string())))
        }
    })
    .await;
    let hook = json!({
        "name": "deletions.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {
            "url": format!("https://localhost:{}/", webhook.port),
            "caBundle": STANDARD.encode(&webhook.certificate),
        },
        "rules": [{ "operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"] }],
    });
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let configuration = json!({ "metadata": { "name": "deletions" }, "webhooks": [hook] });
    assert_eq!(admin(&server, &post(configurations, configuration)).await.0, StatusCode::CREATED);
    let made = |object: &Value| object["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    eventually("tokens are there, and a second has passed", || async {
        let probe =
            post("/api/v1/namespaces/default/configmaps?dryRun=All", json!({ "metadata": { "name": "p" } }));
        let now = made(&admin(&server, &probe).await.1);
        let secrets = admin(&server, &Call::get(SECRETS)).await.1;
        let secrets = secrets["items"].as_array().expect("items").clone();
        secrets.iter().all(|secret| secret["data"]["token"].is_string() && made(secret) < now)
    })
    .await;
    // The cleaner runs when the server starts, and deletes in the order of names.
    server.terminate().await;
    server.restart().await;
    let code = async |name: &str| admin(&server, &Call::get(format!("{SECRETS}/{name}"))).await.0;
    eventually("the unused one is deleted", || async { code("b-unused").await == StatusCode::NOT_FOUND })
        .await;
    assert_eq!(code("a-used").await, StatusCode::OK);
}
