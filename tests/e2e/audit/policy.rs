//! The audit policy.

use http::Method;
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

#[tokio::test]
async fn requests_are_recorded_as_the_policy_requires() {
    let dir = tempfile::tempdir().expect("directory");
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    let rules = "kind: Policy\napiVersion: audit.k8s.io/v1\nomitStages: [RequestReceived]\nrules:\n\
        - {level: None, users: ['system:apiserver']}\n\
        - {level: Metadata, resources: [{group: '', resources: [secrets]}]}\n\
        - {level: RequestResponse, resources: [{group: '', resources: [configmaps]}]}\n\
        - {level: None}\n";
    std::fs::write(&policy, rules).expect("policy");
    let arguments =
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut server = TestServer::start(&arguments).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let base = "/api/v1/namespaces/default";
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"word": "xyzzy"}});
    let create = Call::new(Method::POST, format!("{base}/secrets")).body(JSON, secret.to_string());
    let created = admin.must(&create).await.expect("secret");
    let audit_id = created.headers["audit-id"].to_str().expect("text").to_owned();
    let map = json!({"metadata": {"name": "c"}, "data": {"a": "b"}});
    admin
        .must(&Call::new(Method::POST, format!("{base}/configmaps")).body(JSON, map.to_string()))
        .await
        .expect("map");
    let patch = Call::new(Method::PATCH, format!("{base}/configmaps/c"))
        .body("application/merge-patch+json", r#"{"data":{"a":"c"}}"#);
    admin.must(&patch).await.expect("patch");
    admin.must(&Call::get(format!("{base}/pods"))).await.expect("list");
    let mut anonymous = server.connect_anonymously(Protocol::Http1).await;
    anonymous.call(&Call::get(format!("{base}/secrets"))).await.expect("a refusal");
    server.terminate().await;
    let text = std::fs::read_to_string(&log).expect("log");
    assert!(!text.contains("xyzzy") && !text.contains("eHl6enk"), "a secret at level Metadata");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let one = |verb: &str, resource: &str, user: &str| -> &Value {
        let found = events.iter().find(|e| {
            e["verb"] == verb && e["objectRef"]["resource"] == resource && e["user"]["username"] == user
        });
        found.unwrap_or_else(|| panic!("no event for {verb} {resource}: {text}"))
    };
    let secret = one("create", "secrets", "kubernetes-admin");
    assert_eq!((&secret["level"], &secret["auditID"]), (&json!("Metadata"), &json!(audit_id)));
    assert_eq!(secret["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(secret["responseStatus"]["code"], 201);
    let map = one("create", "configmaps", "kubernetes-admin");
    assert_eq!(map["requestObject"]["data"]["a"], "b");
    assert_eq!(map["objectRef"]["name"], "c");
    assert_eq!(map["responseObject"]["kind"], "ConfigMap");
    let patched = one("patch", "configmaps", "kubernetes-admin");
    assert_eq!(patched["requestObject"], json!({"data": {"a": "c"}}));
    assert_eq!(patched["responseObject"]["data"]["a"], "c");
    let refused = one("list", "secrets", "system:anonymous");
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    assert!(!events.iter().any(|e| e["objectRef"]["resource"] == "pods"), "the policy leaves them out");
}
