//! Services: node ports and cluster addresses.

use plinth_tests::requests::{create, send};
use plinth_tests::server::{client_of, launch, namespace, shared, start_ready, TestServer};
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

/// kube-controller-manager sets the condition Ready, and not a server.
#[tokio::test]
async fn cluster_addresses_come_from_the_service_cidrs_that_are_ready() {
    let server = TestServer::start(&["--service-cluster-ip-range=10.0.0.0/30"]).await;
    let client = server.client().await;
    let path = format!("/api/v1/namespaces/{}/services", namespace(&client, "networks").await);
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    let service = |name: &str, address: Option<&str>| {
        let mut spec = json!({ "ports": [{ "port": 1 }] });
        if let Some(address) = address {
            spec["clusterIP"] = json!(address);
        }
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    // One of the two addresses is that of the Service `kubernetes`.
    assert_eq!(create(&client, &path, &service("a", None)).await["spec"]["clusterIP"], "10.0.0.2");
    let refused = || async {
        let full = send(&client, "POST", &path, &service("b", None)).await;
        assert_eq!(full.code, 500, "{}", full.body);
        assert!(full.text_at("/message").contains("range is full"), "{}", full.body);
        let outside = send(&client, "POST", &path, &service("b", Some("10.1.0.9"))).await;
        assert_eq!((outside.code, outside.fields()), (422, vec!["spec.clusterIPs"]), "{}", outside.body);
    };
    refused().await;
    // Without a condition it is in use: nobody need set one.
    let more = json!({ "metadata": { "name": "more" }, "spec": { "cidrs": ["10.1.0.0/28"] } });
    create(&client, cidrs, &more).await;
    let first = create(&client, &path, &service("first", Some("10.1.0.8"))).await;
    assert_eq!(first["spec"]["clusterIP"], "10.1.0.8");
    let ready = |status: &str| {
        json!({ "status": { "conditions": [{
            "type": "Ready", "status": status, "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] } })
    };
    let set_ready = |status: &'static str| async {
        let patch = ready(status);
        assert_eq!(send(&client, "PATCH", &format!("{cidrs}/more/status"), &patch).await.code, 200);
    };
    set_ready("False").await;
    refused().await;
    set_ready("True").await;
    let given = create(&client, &path, &service("b", None)).await["spec"]["clusterIP"].clone();
    assert!(given.as_str().is_some_and(|address| address.starts_with("10.1.0.")), "{given}");
    let taken = send(&client, "POST", &path, &service("c", given.as_str())).await;
    assert_eq!(taken.code, 422, "{}", taken.body);
    // One that is being deleted gives nothing any more; what it gave stays.
    let hold = json!({ "metadata": { "finalizers": ["networking.k8s.io/service-cidr-finalizer"] } });
    assert_eq!(send(&client, "PATCH", &format!("{cidrs}/more"), &hold).await.code, 200);
    assert_eq!(send(&client, "DELETE", &format!("{cidrs}/more"), &Value::Null).await.code, 200);
    let full = send(&client, "POST", &path, &service("c", None)).await;
    assert_eq!(full.code, 500, "{}", full.body);
    let kept = json!({ "metadata": { "labels": { "a": "b" } } });
    let kept = send(&client, "PATCH", &format!("{path}/b"), &kept).await;
    assert_eq!((kept.code, &kept.body["spec"]["clusterIP"]), (200, &given), "{}", kept.body);
}

/// Whoever asks for a port looks who holds it while that Service is created or deleted.
#[tokio::test]
async fn a_port_of_services_that_come_and_go_is_held_by_one_of_them() {
    let root = tempfile::tempdir().expect("directory");
    let server = start_ready(&launch(), root.path(), &[]).await;
    let client = client_of(&server.kubeconfig()).await;
    let path = format!("/api/v1/namespaces/{}/services", namespace(&client, "churn").await);
    let churn = (0..8).map(|number| {
        let (client, path) = (&client, &path);
        async move {
            let mut created = 0;
            for _ in 0..150 {
                let service = json!({
                    "metadata": { "name": format!("s-{number}") },
                    "spec": { "type": "NodePort", "ports": [{ "port": 1, "nodePort": 30_007 }] },
                });
                if send(client, "POST", path, &service).await.code == 201 {
                    created += 1;
                    send(client, "DELETE", &format!("{path}/s-{number}"), &Value::Null).await;
                }
            }
            created
        }
    });
    let created: usize = futures::future::join_all(churn).await.into_iter().sum();
    assert!(created > 0);
    let log = server.log().tail(100);
    assert!(!log.contains("a Service that does not hold it"), "{log}");
}

#[tokio::test]
async fn another_range_of_addresses_is_reported() {
    let root = tempfile::tempdir().expect("directory");
    let flag = |network: &str| format!("--service-cluster-ip-range={network}");
    let first = start_ready(&launch(), root.path(), &[&flag("10.0.0.0/24")]).await;
    drop(first);
    let server = start_ready(&launch(), root.path(), &[&flag("10.9.0.0/24")]).await;
    let client = client_of(&server.kubeconfig()).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=ServiceCIDR";
    let list = send(&client, "GET", events, &Value::Null).await;
    let found = &list.body["items"][0];
    assert_eq!(found["reason"], "KubernetesDefaultServiceCIDRInconsistent", "{}", list.body);
    assert_eq!(
        found["message"],
        "The default ServiceCIDR [10.0.0.0/24] does not match the controller flag configurations [10.9.0.0/24]"
    );
    // Addresses are those of the object.
    let path = format!("/api/v1/namespaces/{}/services", namespace(&client, "networks").await);
    let service = json!({ "metadata": { "name": "a" }, "spec": { "ports": [{ "port": 1 }] } });
    let given = create(&client, &path, &service).await["spec"]["clusterIP"].clone();
    assert!(given.as_str().is_some_and(|address| address.starts_with("10.0.0.")), "{given}");
}
