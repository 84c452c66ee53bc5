//! Authentication: credentials of every kind, and acting as another user.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use http::{Request, StatusCode};
use http_body_util::Full;
use plinth_benches::api::client::{Call, Identity, Protocol};
use plinth_tests::requests::{post, self_subject_review};
use plinth_tests::server::{unique, Access};
use serde_json::{json, Value};

mod certificate_requests;
mod certificates;
mod joining_nodes;
mod oidc;
mod service_account_tokens;
mod token_secrets;
mod users;

/// Sends a request as the administrator, with further headers.
async fn send(
    access: &Access,
    identity: Identity,
    call: &Call,
    headers: &[(&str, &str)],
) -> (StatusCode, Value) {
    let endpoint = access.endpoint().with_identity(identity);
    let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
    let mut request = Request::builder().method(call.method.clone()).uri(&call.path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(content_type) = call.content_type {
        request = request.header("content-type", content_type);
    }
    let request = request.body(Full::new(call.body.clone())).expect("request");
    let response = connection.send(request, &call.path).await.expect("answer");
    let status = response.status();
    let body = http_body_util::BodyExt::collect(response).await.expect("body").to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// The identity of the administrator, whose certificate the kubeconfig holds.
async fn admin(access: &Access, call: &Call) -> (StatusCode, Value) {
    let reply = access.connect(Protocol::Http1).await.call(call).await.expect("answer");
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

/// The user that the server authenticates a bearer token as: code and user.
async fn whoami(access: &Access, token: &str) -> (StatusCode, Value) {
    let authorization = format!("Bearer {token}");
    let (status, review) =
        send(access, Identity::Anonymous, &self_subject_review(), &[("authorization", &authorization)]).await;
    (status, review["status"]["userInfo"].clone())
}

async fn create_account(access: &Access, namespace: &str) -> String {
    let name = unique("account");
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let (status, body) = admin(access, &post(path, json!({ "metadata": { "name": name } }))).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    name
}

async fn request_token(access: &Access, namespace: &str, account: &str, spec: Value) -> (StatusCode, Value) {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    admin(access, &post(path, json!({ "spec": spec }))).await
}

async fn token(access: &Access, namespace: &str, account: &str, spec: Value) -> String {
    let (status, body) = request_token(access, namespace, account, spec).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    body["status"]["token"].as_str().expect("a token").to_owned()
}

fn claims(token: &str) -> Value {
    let body = token.split('.').nth(1).expect("three parts");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).expect("base64")).expect("claims")
}

/// Waits until the server no longer accepts a token: kube-apiserver, with which the shared tests run, too,
/// caches tokens for ten seconds.
async fn until_refused(access: &Access, token: &str) {
    for _ in 0..500 {
        if whoami(access, token).await.0 == StatusCode::UNAUTHORIZED {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the token is still accepted");
}
