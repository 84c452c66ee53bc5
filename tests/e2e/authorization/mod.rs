//! Authorization: which requests of which users are allowed, and that nothing but what was authorized is
//! done.

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use plinth_benches::api::client::{Protocol, JSON};
use plinth_tests::server::Access;
use serde_json::{json, Value};

mod access_reviews;
mod authorized;
mod nodes;
mod rbac;
mod reserved_paths;
mod reviews;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";

/// A request as a user with groups, or as the administrator where the user's name is empty: status and body,
/// which is a string where it is not JSON. `Null` is no body.
async fn send_as(
    access: &Access,
    (user, groups): (&str, &[&str]),
    (method, content_type): (Method, &str),
    path: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let mut connection = access.connect(Protocol::Http1).await;
    let mut request = Request::builder().method(method).uri(path).header("content-type", content_type);
    if !user.is_empty() {
        request = request.header("impersonate-user", user);
    }
    for group in groups {
        request = request.header("impersonate-group", *group);
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = request.body(Full::new(bytes::Bytes::from(body))).expect("request");
    let response = connection.send(request, path).await.expect("answer");
    let status = response.status();
    let body = response.collect().await.expect("body").to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    (status, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
}

async fn ask(
    access: &Access,
    user: (&str, &[&str]),
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    send_as(access, user, (method, JSON), path, &body).await
}

async fn admin(access: &Access, method: Method, path: &str, body: Value) -> Value {
    let (status, answer) = ask(access, ("", &[]), method, path, body).await;
    assert!(status.is_success(), "{path}: {status} {answer}");
    answer
}

async fn get(access: &Access, user: &str, path: &str) -> (u16, String) {
    let (status, answer) = ask(access, (user, &[]), Method::GET, path, Value::Null).await;
    (status.as_u16(), answer["message"].as_str().unwrap_or_default().to_owned())
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}

fn binding(name: &str, (role_kind, role): (&str, &str), user: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": GROUP, "kind": role_kind, "name": role },
        "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": user }],
    })
}
