//! Namespaces that are deleted have objects of remote APIs, too.

use std::sync::atomic::Ordering;

use plinth_tests::eventually;
use plinth_tests::remote_api::API_SERVICES;
use plinth_tests::requests::{create, send};
use serde_json::{json, Value};

use super::Cluster;

#[tokio::test]
async fn objects_of_remote_apis_are_deleted_with_their_namespace() {
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("emptied.example", 1).await;
    let client = &cluster.client;
    for namespace in ["one", "two"] {
        create(client, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
        remote.behavior.things.lock().push((namespace.to_owned(), "thing".to_owned()));
    }
    let gone = |namespace: &'static str| async move {
        send(client, "GET", &format!("/api/v1/namespaces/{namespace}"), &Value::Null).await.code == 404
    };
    assert_eq!(send(client, "DELETE", "/api/v1/namespaces/one", &Value::Null).await.code, 200);
    eventually("the namespace is gone", || gone("one")).await;
    assert_eq!(*remote.behavior.things.lock(), [("two".to_owned(), "thing".to_owned())]);
    let deleted = remote.received("/apis/emptied.example/v1/namespaces/one/things/thing");
    let account = "system:serviceaccount:kube-system:namespace-controller";
    assert_eq!(deleted[0].all("x-remote-user"), [account]);

    // While it is not known what a remote API has, the namespace waits and says why.
    remote.behavior.is_down.store(true, Ordering::SeqCst);
    let touched = json!({"metadata": {"annotations": {"touched": "yes"}}});
    let path = format!("{API_SERVICES}/v1.emptied.example");
    assert_eq!(send(client, "MERGE", &path, &touched).await.code, 200);
    cluster.reason("emptied.example", "FailedDiscoveryCheck").await;
    assert_eq!(send(client, "DELETE", "/api/v1/namespaces/two", &Value::Null).await.code, 200);
    eventually("the condition says why", || async {
        let namespace = send(client, "GET", "/api/v1/namespaces/two", &Value::Null).await.body;
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["type"] == "NamespaceDeletionDiscoveryFailure"
                && condition["status"] == "True"
                && condition["reason"] == "DiscoveryFailed"
                && message.ends_with("emptied.example/v1: stale GroupVersion discovery: emptied.example/v1")
        })
    })
    .await;
    assert!(!gone("two").await);
    remote.behavior.is_down.store(false, Ordering::SeqCst);
    eventually("the namespace is gone", || gone("two")).await;
    assert!(remote.behavior.things.lock().is_empty());
}
