//! Namespaces: what each is given, and how it is emptied.

use futures::stream::{self, StreamExt};
use http::Method;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use plinth_tests::requests::{call, create, send};
use plinth_tests::samples::pod;
use plinth_tests::server::{namespace, shared, TestServer};
use plinth_tests::{eventually, stays};
use serde_json::{json, Value};

use super::{config_map, is_gone, make, maps_in};

#[tokio::test]
async fn a_large_namespace_goes_though_the_server_is_killed_meanwhile() {
    const OBJECTS: usize = 10_000;
    const WRITERS: usize = 64;
    let mut server = TestServer::start(&[]).await;
    let client = server.client().await;
    let (going, staying) = (namespace(&client, "going").await, namespace(&client, "staying").await);
    let path = |namespace: &str, plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let kept = create(&client, &path(&staying, "configmaps"), &json!({"metadata": {"name": "kept"}})).await;
    let owner = create(&client, &path(&going, "configmaps"), &json!({"metadata": {"name": "owner"}})).await;
    let reference = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    stream::iter(0..OBJECTS)
        .map(|i| {
            let (client, reference) = (&client, &reference);
            let (plural, mut object) = match i % 4 {
                0 => ("secrets", json!({})),
                1 => ("pods", pod("x")),
                2 => ("serviceaccounts", json!({})),
                _ => ("configmaps", json!({"data": {"k": "v"}})),
            };
            object["metadata"]["name"] = json!(format!("o{i}"));
            if i % 3 == 0 {
                object["metadata"]["ownerReferences"] = reference.clone();
            }
            if i % 500 == 0 {
                object["metadata"]["finalizers"] = json!(["example.com/hold"]);
            }
            let path = path(&going, plural);
            async move { create(client, &path, &object).await }
        })
        .buffer_unordered(WRITERS)
        .collect::<Vec<_>>()
        .await;
    let answer = send(&client, "DELETE", &format!("/api/v1/namespaces/{going}"), &Value::Null).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    eventually("the deletion is under way", || async {
        let list =
            send(&client, "GET", &format!("{}?limit=1", path(&going, "configmaps")), &Value::Null).await;
        list.body["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) < (OBJECTS / 4) as u64 - 10
    })
    .await;
    server.kill();
    server.restart().await;
    let client = server.client().await;
    let held: Vec<usize> = (0..OBJECTS).step_by(500).collect();
    eventually("only what finalizers hold is left", || async {
        let mut left = 0;
        for plural in ["secrets", "pods", "serviceaccounts", "configmaps"] {
            let list = send(&client, "GET", &path(&going, plural), &Value::Null).await;
            left += list.body["items"].as_array().map_or(OBJECTS, Vec::len);
        }
        left == held.len()
    })
    .await;
    for i in held {
        let release = json!({"metadata": {"finalizers": null}});
        let path = format!("{}/o{i}", path(&going, "secrets"));
        assert_eq!(send(&client, "PATCH", &path, &release).await.code, 200);
    }
    eventually("the namespace goes", || async {
        send(&client, "GET", &format!("/api/v1/namespaces/{going}"), &Value::Null).await.code == 404
    })
    .await;
    let untouched =
        send(&client, "GET", &format!("{}/kept", path(&staying, "configmaps")), &Value::Null).await;
    assert_eq!(untouched.body["metadata"], kept["metadata"]);
}

#[tokio::test]
async fn every_namespace_has_its_account_and_its_authority() {
    // The shared server leaves these two controllers out.
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "furnished").await;
    let maps = maps_in(&client, &namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &namespace);
    let authority = || async {
        let map = maps.get_opt("kube-root-ca.crt").await.expect("get");
        map.and_then(|map| map.data?.remove("ca.crt")).unwrap_or_default()
    };
    eventually("kube-root-ca.crt", || async { authority().await.starts_with("-----BEGIN CERTIFICATE-----") })
        .await;
    let original = authority().await;
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.expect("delete");
    accounts.delete("default", &DeleteParams::default()).await.expect("delete");
    eventually("both come again", || async {
        authority().await == original && accounts.get_opt("default").await.expect("get").is_some()
    })
    .await;
    let forged = Patch::Merge(json!({"data": {"ca.crt": "forged", "more": "x"}}));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &forged).await.expect("patch");
    eventually("it is restored", || async { authority().await == original }).await;
}

/// A namespace that was freed of its finalizer by hand, and made again while an object of the first one is
/// held.
#[tokio::test]
async fn what_is_left_of_a_namespace_takes_nothing_from_the_next_of_its_name() {
    let client = shared().await.client().await;
    let name = namespace(&client, "again").await;
    let path = format!("/api/v1/namespaces/{name}");
    let maps = maps_in(&client, &name);
    let mut held = config_map("held", &[]);
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    maps.create(&PostParams::default(), &held).await.expect("create");
    let (code, mut old) = call(&client, Method::DELETE, &path, None).await;
    assert_eq!(code, 200, "{old}");
    old["spec"]["finalizers"] = json!([]);
    old["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    let (code, answer) = call(&client, Method::PUT, &format!("{path}/finalize"), Some(&old)).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(call(&client, Method::GET, &path, None).await.0, 404);

    let again = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    assert_eq!(call(&client, Method::POST, "/api/v1/namespaces", Some(&again)).await.0, 201);
    make(&maps, "fresh", &[]).await;
    stays("the next namespace keeps its objects", || async { !is_gone(&maps, "fresh").await }).await;
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &release).await.expect("patch");
    let (_, live) = call(&client, Method::GET, &path, None).await;
    assert_eq!(live["status"]["phase"], "Active");
    // Its own deletion is as any other.
    let (code, _) = call(&client, Method::DELETE, &path, None).await;
    assert_eq!(code, 200);
    let gone = || async { call(&client, Method::GET, &path, None).await.0 == 404 };
    eventually("the next namespace goes", gone).await;
    let left = maps.list(&ListParams::default()).await.expect("list").items;
    assert!(left.is_empty(), "{left:?}");
}
