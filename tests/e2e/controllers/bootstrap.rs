//! Objects that every cluster has, and the switches of controllers.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, PropagationPolicy};
use plinth_tests::eventually;
use plinth_tests::requests::send;
use plinth_tests::server::{namespace, TestServer};
use serde_json::{json, Value};

use super::{by, is_gone, make, maps};

#[tokio::test]
async fn bootstrap_objects_are_recreated_while_the_server_runs() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let tracking =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let service = "/api/v1/namespaces/default/services/kubernetes";
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let trust = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let range = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    let believed = send(&client, "GET", trust, &Value::Null).await.body["data"].clone();
    let authority = std::fs::read_to_string(server.data().join("pki/ca.crt")).expect("the authority");
    assert_eq!(believed, json!({ "client-ca-file": authority }));
    let shown = send(&client, "GET", range, &Value::Null).await;
    assert_eq!(shown.body["spec"]["cidrs"], json!(["10.0.0.0/24"]));
    assert_eq!(
        (shown.text_at("/status/conditions/0/type"), shown.text_at("/status/conditions/0/status")),
        ("Ready", "True")
    );
    let since = send(&client, "GET", tracking, &Value::Null).await;
    assert_eq!(since.text_at("/data/since").len(), "2006-01-02".len(), "{}", since.body);
    let address = send(&client, "GET", service, &Value::Null).await.text_at("/spec/clusterIP").to_owned();
    let subsets = send(&client, "GET", endpoints, &Value::Null).await.body["subsets"].clone();
    let forged = json!({"subsets": [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 1}]}]});
    assert_eq!(send(&client, "PATCH", endpoints, &forged).await.code, 200);
    // The endpoints of a service that is deleted go with it.
    for path in [tracking, trust, range, slice, service] {
        assert_eq!(send(&client, "DELETE", path, &Value::Null).await.code, 200, "{path}");
    }
    eventually("everything is there again", || async {
        let there = |path: &'static str| {
            let client = client.clone();
            async move { send(&client, "GET", path, &Value::Null).await }
        };
        there(tracking).await.code == 200
            && there(trust).await.body["data"] == believed
            && there(range).await.text_at("/status/conditions/0/status") == "True"
            && there(slice).await.code == 200
            && there(service).await.text_at("/spec/clusterIP") == address
            && there(endpoints).await.body["subsets"] == subsets
    })
    .await;
}

#[tokio::test]
async fn controllers_are_switched_off_by_name() {
    let off = "--controllers=*,-garbage-collector-controller,-root-ca-certificate-publisher-controller";
    let server = TestServer::start(&[off]).await;
    let client = server.client().await;
    let api = maps(&client, "off").await;
    let owner = make(&api, "owner", &[]).await;
    make(&api, "child", &[(&owner, true)]).await;
    api.delete("owner", &by(PropagationPolicy::Foreground)).await.expect("delete");
    // The other controllers have followed up to here when the account of a later namespace is there.
    let later = namespace(&client, "later").await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &later);
    accounts.delete("default", &DeleteParams::default()).await.expect("delete");
    eventually("the account again", || async { accounts.get_opt("default").await.expect("get").is_some() })
        .await;
    assert!(!is_gone(&api, "owner").await && !is_gone(&api, "child").await);
    assert!(is_gone(&api, "kube-root-ca.crt").await);
}

/// What is published for extension API servers is what this server trusts, and what is wrong with one of the
/// system objects keeps none of the others.
#[tokio::test]
async fn a_bad_file_of_authorities_is_not_published() {
    let dir = tempfile::tempdir().expect("a directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = rcgen::CertificateParams::default().self_signed(&key).expect("an authority").pem();
    let file = dir.path().join("front-proxy.crt");
    std::fs::write(&file, &authority).expect("a file");
    let flag = format!("--requestheader-client-ca-file={}", file.display());
    let server = TestServer::start(&[&flag, "--requestheader-allowed-names=proxy"]).await;
    let client = server.client().await;
    let trust = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let service = "/api/v1/namespaces/default/services/kubernetes";
    let before = send(&client, "GET", trust, &Value::Null).await.body["data"].clone();
    assert_eq!(before["requestheader-client-ca-file"], authority.as_str());
    std::fs::write(&file, "no certificate").expect("a file");
    for path in [trust, service] {
        assert_eq!(send(&client, "DELETE", path, &Value::Null).await.code, 200, "{path}");
    }
    eventually("both are there again", || async {
        send(&client, "GET", trust, &Value::Null).await.code == 200
            && send(&client, "GET", service, &Value::Null).await.code == 200
    })
    .await;
    assert_eq!(send(&client, "GET", trust, &Value::Null).await.body["data"], before);
}
