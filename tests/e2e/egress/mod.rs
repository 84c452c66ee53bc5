//! Connections that the server opens itself: to kubelets, and to webhooks for admission, authentication and
//! authorization.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode};
use kube::Client;
use serde_json::Value;

mod admission_webhooks;
mod auth_webhooks;
mod kubelets;

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value, String) {
    let answer = plinth_tests::requests::send(client, method, path, body).await;
    (answer.code, answer.body, answer.text)
}

fn answer(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = code;
    response
}
