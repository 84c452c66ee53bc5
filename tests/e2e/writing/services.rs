//! Services: node ports.

use plinth_tests::requests::{create, send};
use plinth_tests::server::{namespace, shared};
use serde_json::{json, Value};

/// Upstream lets a dry run pass with a node port outside of the range, and answers the real write to
/// `healthCheckNodePort` with 500.
#[tokio::test]
async fn node_ports_are_refused_with_their_field_in_a_dry_run_too() {
    let server = shared().await;
    let client = server.client().await;
    let path = format!("/api/v1/namespaces/{}/services", namespace(&client, "node-ports").await);
    let service = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    let held = json!({ "type": "NodePort", "ports": [{ "port": 1 }] });
    let held = create(&client, &path, &service("held", held)).await["spec"]["ports"][0]["nodePort"].clone();
    let checked = |health: Value| {
        let ports = json!([{ "port": 1, "nodePort": 0 }]);
        json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": health, "ports": ports })
    };
    let listed = |port: Value| json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": port }] });
    let unasked = |port: Value| {
        let ports = json!([{ "port": 1, "nodePort": port }]);
        json!({ "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports })
    };
    let (range, taken) = ("provided port is not in the valid range", "provided port is already allocated");
    let (health, port) = ("spec.healthCheckNodePort", "spec.ports[0].nodePort");
    let rows = [
        (checked(json!(1)), health, range),
        (checked(json!(70_000)), health, range),
        (checked(json!(-1)), health, range),
        (checked(held.clone()), health, taken),
        (listed(json!(1)), port, range),
        (listed(json!(70_000)), port, range),
        (listed(json!(-1)), port, range),
        (listed(held.clone()), port, taken),
        (unasked(json!(-1)), port, range),
        (unasked(held.clone()), port, taken),
    ];
    for (spec, field, why) in rows {
        for query in ["?dryRun=All", ""] {
            let answer = send(&client, "POST", &format!("{path}{query}"), &service("s", spec.clone())).await;
            assert_eq!((answer.code, answer.fields()), (422, vec![field]), "{spec}{query}: {}", answer.body);
            assert!(answer.text_at("/message").contains(why), "{spec}{query}: {}", answer.body);
        }
    }
    // Health checks have a port of their own.
    let change = json!({ "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": held } });
    let answer = send(&client, "PATCH", &format!("{path}/held"), &change).await;
    assert_eq!((answer.code, answer.fields()), (422, vec![health]), "{}", answer.body);
}
