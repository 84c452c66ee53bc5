//! Priority and fairness, and request timeouts, as an administrator sees them.

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::requests::{get, until};
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[tokio::test]
async fn flow_schemas_are_bootstrapped_reconciled_and_named_in_answers() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items").iter();
        items.map(|item| item["metadata"]["name"].as_str().expect("name").to_owned()).collect()
    };
    let levels = names(&get(&mut admin, &format!("{FLOW}/prioritylevelconfigurations")).await);
    assert_eq!(
        levels,
        [
            "catch-all",
            "exempt",
            "global-default",
            "leader-election",
            "node-high",
            "system",
            "workload-high",
            "workload-low"
        ]
    );
    let schemas = names(&get(&mut admin, &format!("{FLOW}/flowschemas")).await);
    assert_eq!(schemas.len(), 11, "{schemas:?}");
    // An answer names its schema and level by UID.
    let exempt = get(&mut admin, &format!("{FLOW}/flowschemas/exempt")).await;
    let reply = admin.call(&Call::get("/api/v1/namespaces")).await.expect("list");
    assert_eq!(
        reply.headers["x-kubernetes-pf-flowschema-uid"],
        exempt["metadata"]["uid"].as_str().expect("uid")
    );
    assert_ne!(reply.headers["x-kubernetes-pf-prioritylevel-uid"], "");
    assert_eq!(exempt["status"]["conditions"][0]["type"], "Dangling");
    assert_eq!(exempt["status"]["conditions"][0]["status"], "False");
    // A schema whose level does not exist gets the condition Dangling; it takes effect once the level exists.
    let schema = json!({
        "metadata": {"name": "unauthenticated"},
        "spec": {
            "matchingPrecedence": 3,
            "priorityLevelConfiguration": {"name": "tight"},
            "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": "system:unauthenticated"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}],
            }],
        },
    });
    let created = Call::new(Method::POST, format!("{FLOW}/flowschemas")).body(JSON, schema.to_string());
    admin.must(&created).await.expect("a schema");
    let dangling = |status: &'static str| {
        move |_: StatusCode, schema: &Value| schema["status"]["conditions"][0]["status"] == status
    };
    let own = format!("{FLOW}/flowschemas/unauthenticated");
    until(&mut admin, &own, dangling("True")).await;
    let level = json!({
        "metadata": {"name": "tight"},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}},
    });
    let created =
        Call::new(Method::POST, format!("{FLOW}/prioritylevelconfigurations")).body(JSON, level.to_string());
    admin.must(&created).await.expect("a level");
    until(&mut admin, &own, dangling("False")).await;
    let uid = get(&mut admin, &own).await["metadata"]["uid"].as_str().expect("uid").to_owned();
    let mut anonymous = server.connect_anonymously(Protocol::Http1).await;
    let reply = anonymous.call(&Call::get("/version")).await.expect("version");
    assert_eq!(reply.headers["x-kubernetes-pf-flowschema-uid"], uid.as_str());
    let metrics = admin.must(&Call::get("/metrics")).await.expect("metrics").text();
    for metric in [
        "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"unauthenticated\",priority_level=\"tight\"} 1",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"workload-low\"}",
    ] {
        assert!(metrics.contains(metric), "{metric}\n{metrics}");
    }
}

#[tokio::test]
async fn requests_that_time_out_and_bad_timeouts_are_refused() {
    let server = TestServer::start(&["--request-timeout=1s"]).await;
    let mut admin = server.connect(Protocol::Http1).await;
    let reply = admin.call(&Call::get("/api/v1/pods?timeout=soon")).await.expect("an answer");
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(reply.text().contains("invalid timeout specified in the request URL"), "{}", reply.text());
    // The wait for a revision of the future is longer than a second.
    let reply = admin.call(&Call::get("/api/v1/pods?resourceVersion=999999999")).await.expect("an answer");
    assert_eq!(reply.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(
        reply.text().contains("request did not complete within the allotted timeout"),
        "{}",
        reply.text()
    );
}
