//! The file of the audit log: who writes to it, and what is rotated.

use http::Method;
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, TestServer};
use serde_json::json;

use super::{Audited, POLICY};

/// Each of two would compress and remove what the other still writes to.
#[tokio::test]
async fn a_log_is_written_by_one_server() {
    let mut audited = Audited::start(&[]).await;
    let at = |name: &str| audited.dir.path().join(name).to_str().expect("text").to_owned();
    let (policy, log, data) = (at("policy.yaml"), at("audit.log"), at("data"));
    let flags = ["--audit-policy-file", &policy, "--audit-log-path", &log];
    let start = ["serve", "--secure-port", "0", "--data-dir", &data];
    let other = launch().command(start.iter().chain(&flags).copied()).outcome();
    let message = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success(), "{message}");
    assert!(message.contains(&log) && message.contains("another server writes to it"), "{message}");
    // It goes on, and leaves the log to the next one.
    audited.server.connect(Protocol::Http2).await.must(&Call::get("/api/v1/nodes")).await.expect("nodes");
    assert!(audited.events().await.iter().any(|event| event["requestURI"] == "/api/v1/nodes"));
    let mut next = TestServer::start(&flags).await;
    next.terminate().await;
}

/// A container's log, for example: `/dev/stdout`.
#[tokio::test]
async fn a_device_is_not_rotated() {
    let dir = tempfile::tempdir().expect("directory");
    let (policy, logs) = (dir.path().join("policy.yaml"), dir.path().join("logs"));
    std::fs::write(&policy, POLICY).expect("policy");
    std::fs::create_dir(&logs).expect("directory");
    let log = logs.join("audit.log");
    std::os::unix::fs::symlink("/dev/null", &log).expect("a link");
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
        "--audit-log-maxsize=1".to_owned(),
    ];
    let mut server = TestServer::start(&flags.each_ref().map(String::as_str)).await;
    let mut admin = server.connect(Protocol::Http2).await;
    for _ in 0..4 {
        let map = json!({"metadata": {"generateName": "m-"}, "data": {"x": "y".repeat(300_000)}});
        let call = Call::new(Method::POST, "/api/v1/namespaces/default/configmaps".to_owned());
        admin.must(&call.body(JSON, map.to_string())).await.expect("created");
    }
    server.terminate().await;
    assert!(log.is_symlink());
    assert_eq!(std::fs::read_dir(&logs).expect("directory").count(), 1);
}
