//! The log and webhook backends of audit.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::post;
use serde_json::{json, Value};

use super::{send, Audited};

#[tokio::test]
async fn logs_are_rotated_and_have_the_older_form() {
    let flags = [
        "--audit-log-maxsize=1",
        "--audit-log-maxbackup=2",
        "--audit-log-compress",
        "--audit-log-truncate-enabled",
        "--audit-log-truncate-max-event-size=600000",
    ];
    let audited = Audited::start(&flags).await;
    let mut admin = audited.server.connect(Protocol::Http2).await;
    for n in 0..12 {
        let size = if n == 11 { 700_000 } else { 250_000 };
        let map = json!({"metadata": {"name": format!("m-{n}")}, "data": {"x": "y".repeat(size)}});
        admin.must(&post("/api/v1/namespaces/default/configmaps", map)).await.expect("create");
    }
    let mut audited = audited;
    let last = audited.events().await;
    // Each is 500 kB, so two fit; the last one is too large and lost its objects.
    let truncated =
        last.iter().find(|e| e["objectRef"]["name"] == "m-11" && e["stage"] == "ResponseComplete");
    let truncated = truncated.expect("the last event");
    assert_eq!(truncated["annotations"]["audit.k8s.io/truncated"], "true");
    assert_eq!(truncated.get("responseObject"), None);
    let names: Vec<String> = std::fs::read_dir(audited.dir.path())
        .expect("directory")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("audit-"))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.ends_with(".log.gz")), "{names:?}");

    let mut older = Audited::start(&["--audit-log-format=legacy"]).await;
    let mut admin = older.server.connect(Protocol::Http1).await;
    send(&mut admin, "legacy-1", &Call::get("/api/v1/namespaces/default/pods?limit=1"), &[]).await;
    older.server.terminate().await;
    let text = std::fs::read_to_string(older.dir.path().join("audit.log")).expect("log");
    let line = text.lines().rfind(|line| line.contains("legacy-1")).expect("a line");
    assert!(line.contains(r#" AUDIT: id="legacy-1" stage="ResponseComplete" ip="127.0.0.1" method="list" user="kubernetes-admin" groups="\"system:masters\",\"system:authenticated\"" as="<self>" asgroups="<lookup>""#), "{line}");
    assert!(
        line.ends_with(r#"namespace="default" uri="/api/v1/namespaces/default/pods?limit=1" response="200""#),
        "{line}"
    );
}

/// An audit webhook that keeps the event lists it gets, and fails at first.
struct Service {
    server: HttpsServer,
    lists: Arc<Mutex<Vec<Value>>>,
    calls: Arc<AtomicUsize>,
}

impl Service {
    async fn start(failures: usize) -> Service {
        let lists: Arc<Mutex<Vec<Value>>> = Arc::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let (kept, count) = (lists.clone(), calls.clone());
        let server = HttpsServer::start(move |request: http::Request<hyper::body::Incoming>| {
            let (kept, count) = (kept.clone(), count.clone());
            async move {
                let authorized =
                    request.headers().get("authorization").is_some_and(|v| v == "Bearer of-the-server");
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.expect("body").to_bytes();
                let mut response = Response::new(Full::new(Bytes::new()));
                if count.fetch_add(1, Ordering::SeqCst) < failures || !authorized || path != "/events" {
                    *response.status_mut() = StatusCode::BAD_REQUEST;
                } else {
                    kept.lock().push(serde_json::from_slice(&body).expect("a list"));
                    *response.status_mut() = StatusCode::NO_CONTENT;
                }
                response
            }
        })
        .await;
        Service { server, lists, calls }
    }

    fn kubeconfig(&self, dir: &Path) -> String {
        let path = dir.join("webhook.kubeconfig");
        std::fs::write(&path, self.server.kubeconfig("/events", "of-the-server")).expect("kubeconfig");
        format!("--audit-webhook-config-file={}", path.display())
    }

    fn lists(&self) -> Vec<Value> {
        self.lists.lock().clone()
    }

    fn items(&self) -> Vec<Value> {
        self.lists().iter().flat_map(|list| list["items"].as_array().expect("items").clone()).collect()
    }
}

#[tokio::test]
async fn events_are_sent_in_batches_until_they_arrive() {
    let service = Service::start(3).await;
    let dir = tempfile::tempdir().expect("directory");
    let flag = service.kubeconfig(dir.path());
    let flags = [
        flag.as_str(),
        "--audit-webhook-initial-backoff=20ms",
        "--audit-webhook-batch-max-size=5",
        "--audit-webhook-batch-max-wait=100ms",
    ];
    let mut audited = Audited::start(&flags).await;
    let mut admin = audited.server.connect(Protocol::Http1).await;
    for n in 0..20 {
        send(&mut admin, &format!("sent-{n}"), &Call::get("/api/v1/namespaces/default"), &[]).await;
    }
    // A server that stops delivers its pending events.
    let logged = audited.events().await;
    let lists = service.lists();
    assert!(lists.iter().all(|list| list["kind"] == "EventList" && list["apiVersion"] == "audit.k8s.io/v1"));
    assert!(lists.iter().all(|list| (1..=5).contains(&list["items"].as_array().expect("items").len())));
    let items = service.items();
    for n in 0..20 {
        let id = format!("sent-{n}");
        let stages: Vec<&Value> = items.iter().filter(|e| e["auditID"] == *id).map(|e| &e["stage"]).collect();
        assert_eq!(stages.len(), 2, "{id}: {stages:?}");
    }
    // The same events as in the log, which are objects of their own there.
    let last =
        items.iter().find(|e| e["auditID"] == "sent-19" && e["stage"] == "ResponseComplete").expect("it");
    let line =
        logged.iter().find(|e| e["auditID"] == "sent-19" && e["stage"] == "ResponseComplete").expect("it");
    let (mut line, last) = (line.clone(), last.clone());
    assert_eq!(last.get("kind"), None);
    for (key, value) in [("kind", "Event"), ("apiVersion", "audit.k8s.io/v1")] {
        assert_eq!(line.as_object_mut().expect("an object").remove(key), Some(json!(value)));
    }
    assert_eq!(line, last);
    assert!(service.calls.load(Ordering::SeqCst) > lists.len(), "some calls failed");
}

#[tokio::test]
async fn a_service_that_is_away_stops_strict_servers_alone() {
    let service = Service::start(usize::MAX).await;
    let dir = tempfile::tempdir().expect("directory");
    let flag = service.kubeconfig(dir.path());
    for (mode, served) in [("batch", true), ("blocking", true), ("blocking-strict", false)] {
        let mode = format!("--audit-webhook-mode={mode}");
        let audited =
            Audited::start(&[flag.as_str(), mode.as_str(), "--audit-webhook-initial-backoff=1ms"]).await;
        let mut admin = audited.server.connect(Protocol::Http1).await;
        let reply = admin.call(&Call::get("/api/v1/namespaces/default")).await.expect("answer");
        assert_eq!(reply.status == StatusCode::OK, served, "{mode}: {}", reply.text());
        if !served {
            assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert!(reply.text().contains("failed to store audit event"), "{}", reply.text());
        }
    }
}
