//! Connections that the server opens itself: to kubelets, and to webhooks for admission, authentication and
//! authorization.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode};
use kube::Client;
use plinth_benches::api::client::{Endpoint, Protocol};
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

mod admission_webhooks;
mod auth_webhooks;
mod kubelets;
mod logs;
mod proxied_webhooks;
mod proxies;
mod webhook_credentials;
mod webhook_limits;

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value, String) {
    let answer = plinth_tests::requests::send(client, method, path, body).await;
    (answer.code, answer.body, answer.text)
}

/// Posts a request with these header lines, which may ask for an upgrade; returns the status and the body of
/// an answer that does not switch protocols.
async fn upgrade(endpoint: &Endpoint, path: &str, headers: &str) -> (u16, String) {
    let mut stream = endpoint.stream(Protocol::Http1).await.expect("connection");
    let request = format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("request");
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(stream.read_u8().await.expect("head of the answer"));
    }
    let head = String::from_utf8_lossy(&seen).to_ascii_lowercase();
    let number = |from: &str| {
        let rest = head.split_once(from).map(|(_, rest)| rest).expect("a number in the head");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u16>().expect("a number")
    };
    let mut body = vec![0; usize::from(number("\r\ncontent-length: "))];
    stream.read_exact(&mut body).await.expect("body");
    (number("http/1.1 "), String::from_utf8_lossy(&body).into_owned())
}

fn answer(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = code;
    response
}

/// The answer of an admission webhook with that response.
fn reviewed(response: &Value) -> Response<Full<Bytes>> {
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    answer(StatusCode::OK, &review.to_string())
}
