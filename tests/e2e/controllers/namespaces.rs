//! Namespaces: what each is given, and how it is emptied.

use futures::stream::{self, StreamExt};
use http::Method;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use plinth_tests::requests::{call, create, send};
use plinth_tests::samples::pod;
use plinth_tests::server::{namespace, shared, unique, TestServer};
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
    let namespace = namespace(&client, "published").await;
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

fn condition<'a>(namespace: &'a Value, kind: &str) -> &'a Value {
    let conditions = namespace["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn conditions_say_what_holds_a_namespace_and_pods_go_first() {
    let client = shared().await.client().await;
    let name = namespace(&client, "held").await;
    let path = format!("/api/v1/namespaces/{name}");
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&client, &format!("{path}/pods"), &held).await;
    create(&client, &format!("{path}/configmaps"), &json!({"metadata": {"name": "used"}})).await;
    assert_eq!(call(&client, Method::DELETE, &path, None).await.0, 200);
    let live = || async { call(&client, Method::GET, &path, None).await.1 };
    eventually("conditions", || async {
        condition(&live().await, "NamespaceContentRemaining")["status"] == "True"
    })
    .await;
    let found = live().await;
    let message = |kind: &str| condition(&found, kind)["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        message("NamespaceContentRemaining"),
        "Some resources are remaining: pods. has 1 resource instances"
    );
    assert_eq!(
        message("NamespaceFinalizersRemaining"),
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    assert_eq!(condition(&found, "NamespaceDeletionContentFailure")["reason"], "ContentDeleted");
    let kept = format!("{path}/configmaps/used");
    stays("what the pod may use is there", || async {
        call(&client, Method::GET, &kept, None).await.0 == 200
    })
    .await;
    // Whoever takes the name of a pod that is being deleted learns why it cannot.
    let again = call(&client, Method::POST, &format!("{path}/pods"), Some(&pod("held"))).await;
    assert_eq!(again.0, 403, "in a namespace that is being deleted: {}", again.1);
    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(&client, "PATCH", &format!("{path}/pods/held"), &release).await.code, 200);
    eventually("it goes", || async { call(&client, Method::GET, &path, None).await.0 == 404 }).await;
}

#[tokio::test]
async fn a_namespace_keeps_its_own_finalizers() {
    let client = shared().await.client().await;
    let name = unique("own");
    let path = format!("/api/v1/namespaces/{name}");
    let mine = "example.com/mine";
    let new = json!({"metadata": {"name": name}, "spec": {"finalizers": [mine]}});
    let made = create(&client, "/api/v1/namespaces", &new).await;
    assert_eq!(made["spec"]["finalizers"], json!([mine, "kubernetes"]));
    // Only /finalize changes them.
    let mut other = made.clone();
    other["spec"]["finalizers"] = json!(["example.com/other"]);
    let (code, answer) = call(&client, Method::PUT, &path, Some(&other)).await;
    assert_eq!((code, &answer["spec"]), (200, &made["spec"]), "{answer}");
    assert_eq!(call(&client, Method::DELETE, &path, None).await.0, 200);
    let live = || async { call(&client, Method::GET, &path, None).await.1 };
    eventually("its contents are gone", || async { live().await["spec"]["finalizers"] == json!([mine]) })
        .await;
    let mut last = live().await;
    assert_eq!(condition(&last, "NamespaceContentRemaining")["reason"], "ContentRemoved", "{last}");
    last["spec"]["finalizers"] = json!([]);
    let (code, answer) = call(&client, Method::PUT, &format!("{path}/finalize"), Some(&last)).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(call(&client, Method::GET, &path, None).await.0, 404);
}

#[tokio::test]
async fn the_name_of_an_object_that_is_being_deleted_is_taken() {
    let client = shared().await.client().await;
    let path = format!("/api/v1/namespaces/{}/configmaps", namespace(&client, "taken").await);
    let new = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}});
    create(&client, &path, &new("going")).await;
    create(&client, &path, &new("staying")).await;
    assert_eq!(send(&client, "DELETE", &format!("{path}/going"), &Value::Null).await.code, 200);
    for (name, expected) in [
        ("going", r#"object is being deleted: configmaps "going" already exists"#),
        ("staying", r#"configmaps "staying" already exists"#),
    ] {
        let (code, answer) = call(&client, Method::POST, &path, Some(&new(name))).await;
        assert_eq!((code, answer["message"].as_str()), (409, Some(expected)));
        assert_eq!(answer["reason"], "AlreadyExists");
    }
}
