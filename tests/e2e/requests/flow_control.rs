//! Priority and fairness, and request timeouts, as an administrator sees them.

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
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

/// A list or watch is charged for what it is answered with, however its parameters are spelled.
#[tokio::test]
async fn what_a_list_is_charged_is_what_it_is_answered() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for n in 0..250 {
        let map = json!({"metadata": {"name": format!("map-{n}")}}).to_string();
        admin.must(&Call::new(Method::POST, maps).body(JSON, map)).await.expect("a map");
    }
    let binding = json!({
        "metadata": {"name": "reads-everything"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    admin.must(&Call::new(Method::POST, bindings).body(JSON, binding.to_string())).await.expect("a binding");
    // The size of a collection is known from the last list of all.
    get(&mut admin, "/api/v1/configmaps").await;
    let rows = [
        ("", 3),
        ("limit=200", 2),
        ("limit=200&limit=1", 2),
        ("watch=1&timeoutSeconds=1", 3),
        ("watch=1&timeoutSeconds=1&resourceVersion=&resourceVersion=7", 3),
        ("watch=1&timeoutSeconds=1&sendInitialEvents=TRUE&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1", 3),
        ("watch=1&timeoutSeconds=1&sendInitialEvents=0&resourceVersionMatch=NotOlderThan", 1),
    ];
    let mut charged = seats(&mut admin).await;
    for (query, expected) in rows {
        let call = Call::get(format!("/api/v1/configmaps?{query}"));
        let call = call.header("impersonate-user", "reader".parse().expect("a name"));
        let reply = admin.must(&call).await.expect(query);
        assert!(reply.text().contains("map-") || query.contains("sendInitialEvents=0"), "{query}");
        let now = seats(&mut admin).await;
        assert_eq!(now - charged, f64::from(expected), "{query}");
        charged = now;
    }
}

/// The seats that requests of the level for users have been charged.
async fn seats(admin: &mut Connection) -> f64 {
    let metrics = admin.must(&Call::get("/metrics")).await.expect("metrics").text();
    let is_sum = |line: &&str| {
        line.starts_with("apiserver_flowcontrol_work_estimated_seats_sum{")
            && line.contains("priority_level=\"global-default\"")
    };
    let sums = metrics.lines().filter(is_sum).filter_map(|line| line.rsplit(' ').next());
    sums.map(|sum| sum.parse::<f64>().expect("a number")).sum()
}
