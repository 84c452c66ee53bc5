//! Webhooks behind a proxy of the environment, with a certificate of the system's authorities.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::Request;
use plinth_tests::https::{HttpsOptions, HttpsServer};
use plinth_tests::server::{launch, TestServer};
use serde_json::{json, Value};
use tokio::io::{copy_bidirectional, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{reviewed, send};

const HOST: &str = "hook.example.invalid";

/// A proxy that connects each CONNECT for the webhook to a port of this machine, and counts them.
async fn connect_proxy(target: u16) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(near.read_u8().await.expect("a request"));
            }
            let head = String::from_utf8(head).expect("text");
            assert!(head.starts_with(&format!("CONNECT {HOST}:443 HTTP/1.1\r\n")), "{head}");
            counter.fetch_add(1, Ordering::SeqCst);
            let mut far = TcpStream::connect(("127.0.0.1", target)).await.expect("the webhook");
            near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.expect("an answer");
            // Ends with either.
            tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
    });
    (port, count)
}

#[tokio::test]
async fn webhooks_are_called_through_the_proxy_of_the_environment() {
    let deny = |request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.expect("body").to_bytes();
        let review: Value = serde_json::from_slice(&body).expect("a review");
        let uid = &review["request"]["uid"];
        reviewed(&json!({"uid": uid, "allowed": false, "status": {"message": "behind the proxy"}}))
    };
    let options = HttpsOptions { names: vec![HOST.to_owned()], ..HttpsOptions::default() };
    let webhook = HttpsServer::start_as(options, deny).await;
    let (port, tunnels) = connect_proxy(webhook.port).await;
    let dir = tempfile::tempdir().expect("directory");
    let authorities = dir.path().join("authorities.pem");
    std::fs::write(&authorities, &webhook.certificate).expect("file");
    let proxy = format!("http://127.0.0.1:{port}");
    let launch = launch().env("HTTPS_PROXY", Path::new(&proxy)).env("SSL_CERT_FILE", &authorities);
    let server = TestServer::of(launch, &[]).await;
    let client = server.client().await;
    let configuration = json!({
        "metadata": {"name": "proxied"},
        "webhooks": [{
            "name": "proxied.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://{HOST}/review")},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(send(&client, "POST", path, &configuration).await.0, 201);
    let map = json!({"metadata": {"name": "m"}});
    plinth_tests::eventually("the webhook denies", || async {
        let refused = send(&client, "POST", "/api/v1/namespaces/default/configmaps?dryRun=All", &map).await;
        refused.2.contains("behind the proxy")
    })
    .await;
    assert!(tunnels.load(Ordering::SeqCst) > 0);
}
