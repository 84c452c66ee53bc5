//! Limits of the calls of admission webhooks, and of their connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::eventually;
use plinth_tests::https::{Counted, HttpsServer};
use plinth_tests::requests::create;
use plinth_tests::server::TestServer;
use serde_json::{json, Value};
use tokio::sync::{Barrier, Notify};
use tokio::task::JoinSet;

use super::{reviewed, send};

/// The limit of open files here.
const FILES: u32 = 1024;
/// Calls of one webhook: three quarters of three quarters of an eighth of the open files.
const CALLS: usize = 72;
/// Connections to webhooks that are kept idle: an eighth of that eighth.
const IDLE: usize = 16;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Allows everything.
async fn allow(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    let response = json!({"uid": review["request"]["uid"], "allowed": true});
    reviewed(&response)
}

/// A webhook for new objects of a resource.
fn webhook(server: &HttpsServer, resource: &str, policy: &str) -> Value {
    json!({
        "name": "webhook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": policy, "timeoutSeconds": 5,
        "clientConfig": {"url": format!("https://localhost:{}/", server.port), "caBundle": BASE64_STANDARD.encode(&server.certificate)},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}],
    })
}

/// Each call has a connection, and a webhook that hangs holds it for as long as a call may take.
#[tokio::test]
async fn a_webhook_that_hangs_leaves_descriptors_to_the_store() {
    let server = TestServer::start_with_files(FILES, &[]).await;
    let client = server.client().await;
    let (calls, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, highest) = (calls.clone(), most.clone());
    let hanging = HttpsServer::start(move |_| {
        let (call, highest) = (Counted::new(&counted), highest.clone());
        highest.fetch_max(counted.load(Ordering::SeqCst), Ordering::SeqCst);
        async move {
            let _call = call;
            std::future::pending::<Response<Full<Bytes>>>().await
        }
    })
    .await;
    let hooks = [webhook(&hanging, "configmaps", "Ignore")];
    create(&client, CONFIGURATIONS, &json!({"metadata": {"name": "hanging"}, "webhooks": hooks})).await;
    let mut writes = JoinSet::new();
    for n in 0..CALLS + 32 {
        let client = client.clone();
        writes.spawn(
            async move { create(&client, MAPS, &json!({"metadata": {"name": format!("m-{n}")}})).await },
        );
    }
    // One that answers is called meanwhile.
    let healthy = HttpsServer::start(allow).await;
    let hooks = [webhook(&healthy, "secrets", "Fail")];
    create(&client, CONFIGURATIONS, &json!({"metadata": {"name": "healthy"}, "webhooks": hooks})).await;
    eventually("calls wait", || async { calls.load(Ordering::SeqCst) == CALLS }).await;
    create(&client, "/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "checked"}})).await;
    // Before any of them is given up.
    assert_eq!(most.load(Ordering::SeqCst), CALLS);
    while let Some(written) = writes.join_next().await {
        written.expect("a write that goes on without the webhook");
    }
}

/// Who removes a webhook because its calls wait does not wait for them: those that have waited are tried
/// again by their clients.
#[tokio::test]
async fn a_webhook_that_was_removed_is_called_by_none_that_waited() {
    let server = TestServer::start_with_files(FILES, &["-v=2"]).await;
    let client = server.client().await;
    let (calls, may_answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, released) = (calls.clone(), may_answer.clone());
    let slow = HttpsServer::start(move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        let released = released.clone();
        async move {
            released.notified().await;
            // The next one.
            released.notify_one();
            allow(request).await
        }
    })
    .await;
    let mut hook = webhook(&slow, "configmaps", "Ignore");
    hook["timeoutSeconds"] = json!(30);
    create(&client, CONFIGURATIONS, &json!({"metadata": {"name": "slow"}, "webhooks": [hook]})).await;
    // Not by a client that tries again by itself.
    let admin = server.connect(Protocol::Http2).await;
    let mut writes = JoinSet::new();
    for n in 0..CALLS + 8 {
        let mut stream = admin.share().expect("a stream");
        let object = json!({"metadata": {"name": format!("m-{n}")}}).to_string();
        writes.spawn(async move { stream.call(&Call::new(Method::POST, MAPS).body(JSON, object)).await });
    }
    eventually("calls wait", || async { calls.load(Ordering::SeqCst) == CALLS }).await;
    let waiting = || async {
        let log = server.log_tail(1000);
        log.lines().filter(|line| line.contains("call of a webhook waits for others")).count() == 8
    };
    eventually("the others wait for them", waiting).await;
    let (code, body, _) = send(&client, "DELETE", &format!("{CONFIGURATIONS}/slow"), &Value::Null).await;
    assert_eq!(code, 200, "{body}");
    may_answer.notify_one();
    let mut outcomes = [0, 0];
    while let Some(written) = writes.join_next().await {
        let reply = written.expect("a task").expect("an answer");
        if reply.status == StatusCode::CREATED {
            outcomes[0] += 1;
            continue;
        }
        let body: Value = serde_json::from_str(&reply.text()).expect("a Status");
        let why = r#"webhook "webhook.example.com" was not called: its configuration has changed meanwhile"#;
        assert_eq!((reply.status.as_u16(), body["message"].as_str()), (429, Some(why)), "{body}");
        assert_eq!(reply.headers["retry-after"], "1");
        outcomes[1] += 1;
    }
    assert_eq!((outcomes, calls.load(Ordering::SeqCst)), ([CALLS, 8], CALLS));
}

/// Whatever the number of webhooks, so many idle connections are kept to all of them together.
#[tokio::test]
async fn idle_connections_to_webhooks_have_a_common_bound() {
    const WEBHOOKS: usize = 5;
    const WRITES: usize = 10;
    let server = TestServer::start_with_files(FILES, &[]).await;
    let client = server.client().await;
    // All calls are under way at a time, each on a connection.
    let together = Arc::new(Barrier::new(WEBHOOKS * WRITES));
    let webhooks = HttpsServer::start(move |request| {
        let together = together.clone();
        async move {
            together.wait().await;
            allow(request).await
        }
    })
    .await;
    let hooks = (0..WEBHOOKS).map(|n| {
        let mut hook = webhook(&webhooks, "configmaps", "Fail");
        hook["name"] = json!(format!("webhook-{n}.example.com"));
        hook["timeoutSeconds"] = json!(30);
        // Each is a client of its own, because its authorities are written otherwise.
        let authorities = format!("{}{}", webhooks.certificate, "\n".repeat(n));
        hook["clientConfig"]["caBundle"] = json!(BASE64_STANDARD.encode(authorities));
        hook
    });
    let hooks: Vec<Value> = hooks.collect();
    create(&client, CONFIGURATIONS, &json!({"metadata": {"name": "many"}, "webhooks": hooks})).await;
    let mut writes = JoinSet::new();
    for n in 0..WRITES {
        let client = client.clone();
        writes.spawn(
            async move { create(&client, MAPS, &json!({"metadata": {"name": format!("m-{n}")}})).await },
        );
    }
    while let Some(written) = writes.join_next().await {
        written.expect("a write");
    }
    assert_eq!(webhooks.connections.load(Ordering::SeqCst), WEBHOOKS * WRITES);
    eventually("the others are closed", || async { webhooks.open.load(Ordering::SeqCst) == IDLE }).await;
}
