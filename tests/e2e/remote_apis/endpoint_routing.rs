//! `--enable-aggregator-routing`: remote APIs and webhooks are called at an endpoint of their Service, not at
//! its cluster IP.
//!
//! Endpoints cannot be loopback addresses, so the test runs once more in a network of its own.

use std::net::IpAddr;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use plinth_tests::https::{HttpsOptions, HttpsServer};
use plinth_tests::own_network::{is_inside, ADDRESS};
use plinth_tests::remote_api::{RemoteApi, API_SERVICES};
use plinth_tests::requests::{create, send};
use serde_json::{json, Value};

use super::{address, Cluster};

/// A Service whose cluster IP nobody serves, with an endpoint that is served.
async fn register(cluster: &Cluster, name: &str, n: u8, port: u16) {
    let service = json!({
        "metadata": {"name": name},
        "spec": {"clusterIP": address(n).to_string(), "ports": [{"name": "https", "port": 443}]},
    });
    create(&cluster.client, "/api/v1/namespaces/remote/services", &service).await;
    let slice = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": [ADDRESS.to_string()]}],
    });
    create(&cluster.client, "/apis/discovery.k8s.io/v1/namespaces/remote/endpointslices", &slice).await;
}

async fn deny(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.expect("a review").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("JSON");
    let response = json!({
        "uid": review["request"]["uid"], "allowed": false, "status": {"message": "asked at an endpoint"},
    });
    let answer =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    let mut response = Response::new(Full::from(answer.to_string()));
    response.headers_mut().insert("content-type", "application/json".parse().expect("a media type"));
    response
}

#[tokio::test]
async fn remote_apis_and_webhooks_are_called_at_an_endpoint() {
    if !is_inside("remote_apis::endpoint_routing::remote_apis_and_webhooks_are_called_at_an_endpoint") {
        return;
    }
    let cluster = Cluster::start(&["--enable-aggregator-routing=true"]).await;
    create(&cluster.client, "/api/v1/namespaces", &json!({"metadata": {"name": "remote"}})).await;

    let remote =
        RemoteApi::start("routed.example", "routed", IpAddr::V4(ADDRESS), Some(&cluster.proxy)).await;
    let mut api_service = remote.api_service("routed");
    let port =
        api_service["spec"]["service"]["port"].take().as_u64().and_then(|port| u16::try_from(port).ok());
    api_service["spec"]["service"]["port"] = json!(443);
    register(&cluster, "routed", 1, port.expect("a port")).await;
    create(&cluster.client, API_SERVICES, &api_service).await;
    cluster.reason("routed.example", "Passed").await;
    let (status, answer) = cluster.answer(&format!("{}/namespaces/default/things", remote.path())).await;
    assert_eq!(status, 200, "{answer}");
    // The certificate of the front proxy is one that this server has.
    let check = "/livez/poststarthook/aggregator-reload-proxy-client-cert";
    assert_eq!(cluster.answer(check).await, (200, "ok".to_owned()));

    let options = HttpsOptions {
        names: vec!["hook.remote.svc".to_owned()],
        address: IpAddr::V4(ADDRESS),
        ..HttpsOptions::default()
    };
    let hook = HttpsServer::start_as(options, deny).await;
    register(&cluster, "hook", 2, hook.port).await;
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [{
        "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {
            "service": {"namespace": "remote", "name": "hook"},
            "caBundle": BASE64_STANDARD.encode(&hook.certificate),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    create(&cluster.client, path, &configuration).await;
    let object = json!({"metadata": {"name": "checked"}});
    let answer = send(&cluster.client, "POST", "/api/v1/namespaces/default/configmaps", &object).await;
    assert_eq!(answer.code, 400, "{}", answer.body);
    assert!(answer.text_at("/message").ends_with("asked at an endpoint"), "{}", answer.body);
}
