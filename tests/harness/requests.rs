//! Requests and their answers, through a `kube` client or a bare connection.

use http::{Method, Request, StatusCode};
use kube::client::Body;
use kube::Client;
use plinth_benches::api::client::{Call, Connection, Identity, Protocol, JSON};
use serde_json::{json, Value};

use crate::server::Access;

/// An answer that was read to its end.
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The body; `Null` where it is not JSON.
    pub body: Value,
    /// The body as text.
    pub text: String,
    /// The `Warning` headers.
    pub warnings: Vec<String>,
}

impl Answer {
    /// The string at a JSON pointer; empty when absent.
    pub fn text_at(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The fields named in the causes of a 422.
    pub fn fields(&self) -> Vec<&str> {
        fields(&self.body)
    }
}

/// The fields named in the causes of a Status.
pub fn fields(status: &Value) -> Vec<&str> {
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes.iter().filter_map(|c| c["field"].as_str()).collect()
}

/// Sends a request. `method` is an HTTP method or the kind of a patch: `PATCH` is strategic, then there are
/// `MERGE`,
/// `JSON` and `APPLY`. `Null` is no body.
pub async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Answer {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    send_bytes(client, method, path, bytes).await
}

/// As [`send`], with a body that need not be JSON.
pub async fn send_bytes(client: &Client, method: &str, path: &str, bytes: Vec<u8>) -> Answer {
    let (method, media_type) = match method {
        "MERGE" => (Method::PATCH, "application/merge-patch+json"),
        "JSON" => (Method::PATCH, "application/json-patch+json"),
        "APPLY" => (Method::PATCH, "application/apply-patch+yaml"),
        "PATCH" => (Method::PATCH, "application/strategic-merge-patch+json"),
        method => (Method::from_bytes(method.as_bytes()).expect("a method"), JSON),
    };
    let request = Request::builder().method(method).uri(path).header("content-type", media_type);
    answer(client, request.body(Body::from(bytes)).expect("request")).await
}

/// Sends a request that has headers of its own.
pub async fn answer(client: &Client, request: Request<Body>) -> Answer {
    let response = client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.filter_map(|w| w.to_str().ok().map(str::to_owned)).collect();
    let bytes = response.into_body().collect_bytes().await.expect("the whole answer");
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { code, body, text: String::from_utf8_lossy(&bytes).into_owned(), warnings }
}

/// Creates an object, which must succeed; returns it as the server answered.
pub async fn create(client: &Client, path: &str, body: &Value) -> Value {
    let answer = send(client, "POST", path, body).await;
    assert_eq!(answer.code, 201, "{path}: {}", answer.body);
    answer.body
}

/// One request; code and body, which is `Null` where it is not JSON.
pub async fn call(client: &Client, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
    call_with(client, method, path, JSON, body.map(Value::to_string).unwrap_or_default()).await
}

/// One request with a body of that media type.
pub async fn call_with(
    client: &Client,
    method: Method,
    path: &str,
    media_type: &str,
    body: impl Into<Vec<u8>>,
) -> (u16, Value) {
    let body: Vec<u8> = body.into();
    let mut request = Request::builder().method(method).uri(path);
    if !body.is_empty() {
        request = request.header("content-type", media_type);
    }
    let answer = answer(client, request.body(Body::from(body)).expect("a request")).await;
    (answer.code, answer.body)
}

/// A POST of a JSON body, for a bare connection.
pub fn post(path: impl Into<String>, body: Value) -> Call {
    Call::new(Method::POST, path).body(JSON, body.to_string())
}

/// GETs a path over a bare connection, which must succeed; returns the JSON body.
pub async fn get(connection: &mut Connection, path: &str) -> Value {
    let reply = connection.must(&Call::get(path)).await.expect(path);
    serde_json::from_slice(&reply.body).expect("JSON")
}

/// The SelfSubjectReview API.
pub const SELF_SUBJECT_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A review of the client's own identity.
pub fn self_subject_review() -> Call {
    post(
        SELF_SUBJECT_REVIEWS,
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }),
    )
}

/// The user that the server authenticates `identity` as: the status code, and the user where it is 201.
pub async fn whoami(access: &Access, identity: Identity) -> (u16, Value) {
    let endpoint = access.endpoint().with_identity(identity);
    let mut connection = endpoint.connect(Protocol::Http1).await.expect("connection");
    let reply = connection.call(&self_subject_review()).await.expect("answer");
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    (reply.status.as_u16(), body["status"]["userInfo"].clone())
}

/// GETs a path until the answer is as wanted; for what happens in the background.
pub async fn until(connection: &mut Connection, path: &str, wanted: impl Fn(StatusCode, &Value) -> bool) {
    let asking = async {
        loop {
            let reply = connection.call(&Call::get(path)).await.expect(path);
            let body = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
            if wanted(reply.status, &body) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(100), asking).await.expect("the wanted answer");
}
