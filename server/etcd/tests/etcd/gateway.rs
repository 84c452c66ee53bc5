//! The JSON gateway, by a plain HTTP/1.1 connection.

use std::time::Duration;

use plinth_etcd::wire::kv::{sort_order, RangeRequest};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tonic::Code;

use crate::support::{bytes, server, TestServer};

async fn send(server: &TestServer, method: &str, path: &str, body: &str) -> BufReader<TcpStream> {
    send_with(server, method, path, "", body).await
}

/// Sends a request with further headers.
async fn send_with(
    server: &TestServer,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

/// Code and body of a response that is not a stream.
async fn request(server: &TestServer, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut response = String::new();
    send(server, method, path, body).await.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn post(server: &TestServer, path: &str, body: &str) -> String {
    let (code, body) = request(server, "POST", path, body).await;
    assert_eq!(code, 200, "{path}: {body}");
    body
}

/// The lines of a stream up to one that has `text`.
async fn read_until(stream: &mut BufReader<TcpStream>, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(stream.read_line(&mut line).await.unwrap() > 0, "the stream ends before {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_transactions_in_json() {
    let (_dir, server, client) = server(&[]).await;
    post(&server, "/v3/kv/put", r#"{"key": "Zm9v", "value": "YmFy"}"#).await;
    assert_eq!(client.get("foo").await.unwrap().value, "bar");
    let range = post(&server, "/v3/kv/range", r#"{"key": "Zm9v"}"#).await;
    let kv =
        r#""kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}]"#;
    assert!(range.contains(kv) && range.contains(r#""revision":"2""#), "{range}");
    let txn = r#"{"compare": [{"key": "Zm9v", "result": "EQUAL", "target": "MOD", "mod_revision": "2"}],
        "success": [{"request_delete_range": {"key": "Zm9v", "prev_kv": true}}]}"#;
    let done = post(&server, "/v3/kv/txn", txn).await;
    assert!(done.contains(r#""succeeded":true"#) && done.contains(r#""deleted":"1""#), "{done}");
    assert!(client.get("foo").await.is_none());
    let lease = post(&server, "/v3/lease/grant", r#"{"TTL": 600, "ID": "7"}"#).await;
    assert!(lease.contains(r#""ID":"7","TTL":"600""#), "{lease}");
    let alive = post(&server, "/v3/lease/keepalive", r#"{"ID": "7"}"#).await;
    assert!(alive.contains(r#"{"result":{"header":{"#) && alive.contains(r#""TTL":"600""#), "{alive}");
    let locked = post(&server, "/v3/lock/lock", r#"{"name": "bG9jaw==", "lease": 7}"#).await;
    assert!(locked.contains(r#""key":"bG9jay83""#), "{locked}");
    // What no enumeration has is discarded, as by grpc-gateway.
    let unknown = r#"{"key": "bG9jay83", "sort_order": "UP", "sort_target": "MOD"}"#;
    assert!(post(&server, "/v3/kv/range", unknown).await.contains(r#""key":"bG9jay83""#));
    let status = post(&server, "/v3/maintenance/status", "").await;
    assert!(status.contains(r#""version":"3.6."#), "{status}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_tokens_in_json() {
    let (_dir, server, _client) = server(&["--bcrypt-cost", "4"]).await;
    post(&server, "/v3/auth/user/add", r#"{"name": "root", "password": "pw"}"#).await;
    post(&server, "/v3/auth/user/grant", r#"{"user": "root", "role": "root"}"#).await;
    post(&server, "/v3/auth/user/add", r#"{"name": "u", "options": {"no_password": true}}"#).await;
    post(&server, "/v3/auth/role/add", r#"{"name": "r"}"#).await;
    let permission =
        r#"{"name": "r", "perm": {"permType": "READWRITE", "key": "YQ==", "range_end": "Yg=="}}"#;
    post(&server, "/v3/auth/role/grant", permission).await;
    let role = post(&server, "/v3/auth/role/get", r#"{"role": "r"}"#).await;
    assert!(role.contains(r#""perm":[{"permType":"READWRITE","key":"YQ==","range_end":"Yg=="}]"#), "{role}");
    assert!(post(&server, "/v3/auth/user/get", r#"{"name": "root"}"#).await.contains(r#""roles":["root"]"#));
    post(&server, "/v3/auth/enable", "{}").await;
    let (code, refused) = request(&server, "POST", "/v3/kv/range", r#"{"key": "YQ=="}"#).await;
    assert!(code == 400 && refused.contains("user name is empty"), "{code} {refused}");
    let answer = post(&server, "/v3/auth/authenticate", r#"{"name": "root", "password": "pw"}"#).await;
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    for (token, code) in [(answer["token"].as_str().unwrap(), "200"), ("none.1", "401")] {
        let headers = format!("Authorization: {token}\r\n");
        let mut response = String::new();
        let mut sent = send_with(&server, "POST", "/v3/kv/range", &headers, r#"{"key": "YQ=="}"#).await;
        sent.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{response}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_is_a_line_for_each_response() {
    let (_dir, server, client) = server(&[]).await;
    let create = r#"{"create_request": {"key": "YQ==", "start_revision": "1"}}"#;
    let mut watch = send(&server, "POST", "/v3/watch", create).await;
    read_until(&mut watch, r#""created":true"#).await;
    client.put("a", "1").await;
    read_until(&mut watch, r#""events":[{"kv":{"key":"YQ==""#).await;
    client.put("a", "2").await;
    read_until(&mut watch, r#""mod_revision":"3""#).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_code_and_text() {
    let (_dir, server, _client) = server(&["--max-request-bytes", "1000"]).await;
    for (method, path, body, code, text) in [
        ("POST", "/v3/kv/put", "{}", 400, "etcdserver: key is not provided"),
        ("POST", "/v3/kv/put", "{", 400, "EOF"),
        ("POST", "/v3/kv/put", "", 400, r#"{"code":3,"message":"etcdserver: key is not provided"}"#),
        ("POST", "/v3/kv/put", r#"{"key": 1}"#, 400, "invalid value for field key"),
        ("POST", "/v3/kv/put", r#"{"key": "YQ==", "key": "Yg=="}"#, 400, "duplicate field"),
        (
            "POST",
            "/v3/kv/txn",
            r#"{"success": [{"request_put": {"key": "YQ=="}, "request_range": {"key": "YQ=="}}]}"#,
            400,
            "oneof etcdserverpb.RequestOp.request is already set",
        ),
        ("POST", "/v3/watch", r#"{"create_request": {}, "cancel_request": {}}"#, 400, "is already set"),
        ("POST", "/v3/kv/range", r#"{"key": "YQ==", "revision": 9}"#, 400, "future revision"),
        ("POST", "/v3/lease/revoke", r#"{"ID": 9}"#, 404, "requested lease not found"),
        ("POST", "/v3/nothing", "{}", 404, "Not Found"),
        ("GET", "/v3/kv/range", "", 501, "Method Not Allowed"),
        ("POST", "/v3/auth/user/add", "{}", 400, "etcdserver: user name is empty"),
        ("POST", "/v3/cluster/member/add", "{}", 501, "plinth etcd"),
    ] {
        let (found, answer) = request(&server, method, path, body).await;
        assert!(found == code && answer.contains(text), "{method} {path} {body}: {found} {answer}");
    }
    let large = format!(r#"{{"key": "YQ==", "value": "{}"}}"#, "YWFh".repeat(400));
    let (code, answer) = request(&server, "POST", "/v3/kv/put", &large).await;
    assert!(code == 400 && answer.contains("request is too large"), "{code} {answer}");
    let endless = format!("[{}", "[".repeat(600 << 10));
    let (code, answer) = request(&server, "POST", "/v3/kv/put", &endless).await;
    assert_eq!(code, 400, "{answer}");
    server.stop().await;
}

/// Responses that nobody reads take memory until their clients leave.
#[tokio::test(flavor = "multi_thread")]
async fn responses_that_are_not_read_are_bounded() {
    let (_dir, server, client) = server(&["--max-inflight-response-bytes", "40000000"]).await;
    // More than the buffers of a connection take.
    for number in 0..32 {
        client.put(&format!("key/{number}"), &"x".repeat(1_000_000)).await;
    }
    let all = r#"{"key": "AA==", "range_end": "AA=="}"#;
    let read_twice = r#"{"success": [{"request_range": {"key": "AA==", "range_end": "AA=="}},
        {"request_range": {"key": "AA==", "range_end": "AA=="}}]}"#;
    let refusal = (429, r#"{"code":8,"message":"etcdserver: too many requests"}"#.to_owned());
    assert_eq!(request(&server, "POST", "/v3/kv/txn", read_twice).await, refusal);
    let mut unread = send(&server, "POST", "/v3/kv/range", all).await;
    read_until(&mut unread, "200 OK").await;
    assert_eq!(request(&server, "POST", "/v3/kv/range", all).await, refusal);
    // One in another order than that of the keys is whole in memory, by gRPC, too.
    let (key, range_end) = (bytes("\0"), bytes("\0"));
    let range = RangeRequest { key, range_end, sort_order: sort_order::DESCEND, ..RangeRequest::default() };
    let refused = client.range(range.clone()).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, "etcdserver: too many requests")
    );
    // Others, and small ones, are served all the same.
    assert_eq!(client.all().await.kvs.len(), 32);
    let few = r#"{"key": "AA==", "range_end": "AA==", "keys_only": true}"#;
    assert_eq!(request(&server, "POST", "/v3/kv/range", few).await.0, 200);
    drop(unread);
    while let Err(refused) = client.range(range.clone()).await {
        assert_eq!(refused.code(), Code::ResourceExhausted);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (code, body) = request(&server, "POST", "/v3/kv/range", all).await;
    assert!(code == 200 && body.len() > 32_000_000 * 4 / 3 && body.ends_with("}"), "{code}");
    server.stop().await;
}
