//! The log: requests at their verbosity, and nothing about what is in order.

use http::Method;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::definitions::{definition, establish};
use plinth_tests::server::{unique, TestServer};
use plinth_tests::{eventually, requests::create};
use serde_json::json;

#[tokio::test]
async fn requests_are_logged_at_verbosity_3() {
    let path = "/api/v1/namespaces/default/configmaps/none?pretty=false";
    for (flags, is_logged) in
        [(["-v=2", "--logging-format=json"], false), (["-v=3", "--logging-format=json"], true)]
    {
        let server = TestServer::start(&flags).await;
        let mut admin = server.connect(Protocol::Http2).await;
        let reply = admin.call(&Call::get(path)).await.expect("an answer");
        let id = reply.headers["audit-id"].to_str().expect("text").to_owned();
        // The line is written before the answer.
        let log = server.log_tail(200);
        let line = log.lines().find(|line| line.contains(&id));
        assert_eq!(line.is_some(), is_logged, "{flags:?}: {log}");
        let Some(line) = line else { continue };
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let fields = &line["fields"];
        for (field, value) in [
            ("method", json!("GET")),
            ("uri", json!(path)),
            ("code", json!(404)),
            ("user", json!("kubernetes-admin")),
            ("audit_id", json!(id)),
            ("source_ip", json!("127.0.0.1")),
        ] {
            assert_eq!(fields[field], value, "{line}");
        }
        assert!(fields["duration_ms"].as_f64().is_some_and(|duration| duration > 0.0), "{line}");
    }
}

/// A definition's deletion takes several steps, none of which is an error.
#[tokio::test]
async fn a_deleted_definition_leaves_no_warning() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let group = unique("noise.example.com").replace('_', "-");
    establish(&client, &definition(&group, "Horn", "Namespaced", json!({"type": "object"}))).await;
    let objects = format!("/apis/{group}/v1/namespaces/default/horns");
    for name in ["a", "b", "c"] {
        let horn = json!({"apiVersion": format!("{group}/v1"), "kind": "Horn", "metadata": {"name": name}});
        create(&client, &objects, &horn).await;
    }
    let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horns.{group}");
    let mut admin = server.connect(Protocol::Http2).await;
    admin.must(&Call::new(Method::DELETE, definition.clone())).await.expect("deletion");
    eventually("the definition is deleted", || async {
        let mut admin = server.connect(Protocol::Http1).await;
        admin.call(&Call::get(definition.clone())).await.expect("an answer").status == 404
    })
    .await;
    let log = server.log_tail(200);
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}
