//! The condition `Available`, and requests while it is not true.

use std::sync::atomic::Ordering;

use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use plinth_tests::remote_api::{Received, RemoteApi, API_SERVICES};
use plinth_tests::requests::{create, send};
use serde_json::{json, Value};

use super::{address, Cluster};

#[tokio::test]
async fn the_condition_says_what_is_wrong_and_requests_get_503_meanwhile() {
    let cluster = Cluster::start(&[]).await;
    let client = &cluster.client;
    let group = "checked.example";
    let remote = RemoteApi::start(group, "checked", address(1), Some(&cluster.proxy)).await;
    let api_service = remote.api_service("checked");
    let port = api_service["spec"]["service"]["port"].clone();
    create(client, API_SERVICES, &api_service).await;
    let missing = cluster.reason(group, "ServiceNotFound").await;
    assert_eq!(
        (&missing["status"], &missing["message"]),
        (&json!("False"), &json!("service/checked in \"remote\" is not present"))
    );
    let path = format!("{}/namespaces/default/things", remote.path());
    assert_eq!(cluster.answer(&path).await, (503, "service unavailable\n".to_owned()));

    create(client, "/api/v1/namespaces", &json!({"metadata": {"name": "remote"}})).await;
    let services = "/api/v1/namespaces/remote/services";
    let service = json!({
        "metadata": {"name": "checked"},
        "spec": {"clusterIP": address(1).to_string(), "ports": [{"name": "https", "port": 1}]},
    });
    create(client, services, &service).await;
    let message = cluster.reason(group, "ServicePortError").await["message"].clone();
    assert_eq!(message, format!("service/checked in \"remote\" is not listening on port {port}"));

    let ports = json!({"spec": {"ports": [{"name": "https", "port": port}]}});
    assert_eq!(send(client, "MERGE", &format!("{services}/checked"), &ports).await.code, 200);
    let message = cluster.reason(group, "EndpointsNotFound").await["message"].clone();
    assert_eq!(message, "cannot find endpointslices for service/checked in \"remote\"");

    let slices = "/apis/discovery.k8s.io/v1/namespaces/remote/endpointslices";
    let slice = json!({
        "metadata": {"name": "checked", "labels": {"kubernetes.io/service-name": "checked"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}],
    });
    create(client, slices, &slice).await;
    let message = cluster.reason(group, "MissingEndpoints").await["message"].clone();
    assert_eq!(
        message,
        "endpointslices for service/checked in \"remote\" have no addresses with port name \"https\""
    );

    remote.behavior.is_down.store(true, Ordering::SeqCst);
    let ready = json!([{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": true}]);
    assert_eq!(send(client, "JSON", &format!("{slices}/checked"), &ready).await.code, 200);
    let message = cluster.reason(group, "FailedDiscoveryCheck").await["message"].clone();
    let url = format!("https://{}:{port}{}", address(1), remote.path());
    assert_eq!(message, format!("failing or missing response from {url}: bad status from {url}: 503"));

    remote.behavior.is_down.store(false, Ordering::SeqCst);
    let passed = cluster.reason(group, "Passed").await;
    assert_eq!((&passed["status"], &passed["message"]), (&json!("True"), &json!("all checks passed")));
    eventually("requests are passed on", || async { cluster.answer(&path).await.0 == 200 }).await;
    let as_checker = |received: &Received| {
        received.all("x-remote-user") == ["system:kube-aggregator"]
            && received.all("x-remote-group") == ["system:masters"]
    };
    assert!(remote.received(&remote.path()).iter().any(as_checker));

    // Gone without a word: requests get the error of the connection, then the condition changes.
    let metrics = async || {
        let mut connection = cluster.server.connect(Protocol::Http1).await;
        connection.must(&Call::get("/metrics")).await.expect("metrics").text()
    };
    let gauge = |value: u8| format!("aggregator_unavailable_apiservice{{name=\"v1.{group}\"}} {value}");
    assert!(metrics().await.contains(&gauge(0)));
    drop(remote);
    let (code, text) = cluster.answer(&path).await;
    assert_eq!(code, 503);
    let prefix = "error trying to reach service: dial tcp 127.64.1.1:";
    assert!(text.starts_with(prefix) || text == "service unavailable\n", "{text}");
    // Checked at once, since its Service has changed.
    let labels = json!({"metadata": {"labels": {"changed": "yes"}}});
    assert_eq!(send(client, "MERGE", &format!("{services}/checked"), &labels).await.code, 200);
    cluster.reason(group, "FailedDiscoveryCheck").await;
    let total = format!(
        "aggregator_unavailable_apiservice_total{{name=\"v1.{group}\",reason=\"FailedDiscoveryCheck\"}} 1"
    );
    eventually("metrics", || async {
        let metrics = metrics().await;
        metrics.contains(&gauge(1)) && metrics.contains(&total)
    })
    .await;
    assert_eq!(send(client, "DELETE", &format!("{API_SERVICES}/v1.{group}"), &Value::Null).await.code, 200);
    let series = format!("aggregator_unavailable_apiservice{{name=\"v1.{group}\"}}");
    eventually("the gauge is gone", || async { !metrics().await.contains(&series) }).await;
    eventually("not served", || async { cluster.answer(&path).await.0 == 404 }).await;
}

#[tokio::test]
async fn local_ones_are_always_available_and_the_server_itself_is_no_remote_api() {
    let cluster = Cluster::start(&[]).await;
    let local = json!({
        "metadata": {"name": "v1.local.example"},
        "spec": {"group": "local.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100},
    });
    create(&cluster.client, API_SERVICES, &local).await;
    let condition = cluster.reason("local.example", "Local").await;
    assert_eq!(condition["message"], "Local APIServices are always available");
    assert_eq!(cluster.condition("apps").await["reason"], "Local");

    let looping = json!({
        "metadata": {"name": "v1.looping.example"},
        "spec": {"group": "looping.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "kubernetes"}},
    });
    create(&cluster.client, API_SERVICES, &looping).await;
    let message = cluster.reason("looping.example", "FailedDiscoveryCheck").await["message"].clone();
    assert_eq!(message, "the service is that of the API server itself");

    // By a detour: what comes back is not passed on a second time.
    let detour = json!({
        "metadata": {"name": "detour"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    create(&cluster.client, "/api/v1/namespaces/default/services", &detour).await;
    let returning = json!({
        "metadata": {"name": "v1.returning.example"},
        "spec": {"group": "returning.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "detour", "port": cluster.server.port()}},
    });
    create(&cluster.client, API_SERVICES, &returning).await;
    let message = cluster.reason("returning.example", "FailedDiscoveryCheck").await["message"].clone();
    assert!(message.as_str().is_some_and(|message| message.ends_with(": 503")), "{message}");
    let available = json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}});
    eventually("a request has come back", || async {
        let path = format!("{API_SERVICES}/v1.returning.example/status");
        assert_eq!(send(&cluster.client, "MERGE", &path, &available).await.code, 200);
        let (code, text) = cluster.answer("/apis/returning.example/v1/things").await;
        assert_eq!(code, 503);
        text.contains("the request has passed through this API server before")
    })
    .await;
}

#[tokio::test]
async fn certificates_are_verified_by_name_and_authority() {
    let cluster = Cluster::start(&[]).await;
    let remote = RemoteApi::start("named.example", "service-1", address(1), Some(&cluster.proxy)).await;
    remote.register(&cluster.client, "service-1").await;
    cluster.reason("named.example", "Passed").await;
    let path = format!("{API_SERVICES}/v1.named.example");
    let change = async |spec: Value| {
        let answer = send(&cluster.client, "MERGE", &path, &json!({"spec": spec})).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
    };
    // Another authority.
    let other = RemoteApi::start("other.example", "other", address(2), None).await;
    let (own, foreign) = (remote.api_service("x"), other.api_service("x"));
    change(json!({"caBundle": foreign["spec"]["caBundle"]})).await;
    let x509 = "tls: failed to verify certificate: x509: certificate";
    let message = cluster.reason("named.example", "FailedDiscoveryCheck").await["message"].clone();
    let expected = format!("{x509} signed by unknown authority");
    assert!(message.as_str().is_some_and(|message| message.ends_with(&expected)), "{message}");
    change(json!({"caBundle": own["spec"]["caBundle"]})).await;
    cluster.reason("named.example", "Passed").await;
    // Another name.
    let external = json!({
        "metadata": {"name": "external"},
        "spec": {"type": "ExternalName", "externalName": address(1).to_string()},
    });
    create(&cluster.client, "/api/v1/namespaces/remote/services", &external).await;
    change(json!({"service": {"name": "external"}})).await;
    let message = cluster.reason("named.example", "FailedDiscoveryCheck").await["message"].clone();
    let expected = format!("{x509} is valid for service-1.remote.svc, not external.remote.svc");
    assert!(message.as_str().is_some_and(|message| message.ends_with(&expected)), "{message}");
    // Any certificate.
    change(json!({"caBundle": null, "insecureSkipTLSVerify": true})).await;
    cluster.reason("named.example", "Passed").await;
}
