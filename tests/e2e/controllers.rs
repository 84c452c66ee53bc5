//! The built-in controllers: what a server alone does after a request has been answered.

use futures::stream::{self, StreamExt};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Client, ResourceExt};
use plinth_tests::definitions::call;
use plinth_tests::server::{namespace, shared, TestServer};
use plinth_tests::{eventually, stays};
use serde_json::{json, Value};

fn config_map(name: &str, owners: &[(&ConfigMap, bool)]) -> ConfigMap {
    let reference = |(owner, blocks): &(&ConfigMap, bool)| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner.name_any(),
            "uid": owner.uid().expect("uid"),
            "blockOwnerDeletion": blocks,
        })
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}}))
        .expect("a ConfigMap")
}

async fn make(api: &Api<ConfigMap>, name: &str, owners: &[(&ConfigMap, bool)]) -> ConfigMap {
    api.create(&PostParams::default(), &config_map(name, owners)).await.expect("create")
}

async fn is_gone(api: &Api<ConfigMap>, name: &str) -> bool {
    api.get_opt(name).await.expect("get").is_none()
}

fn by(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

async fn maps(client: &Client, prefix: &str) -> Api<ConfigMap> {
    maps_in(client, &namespace(client, prefix).await)
}

fn maps_in(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

#[tokio::test]
async fn dependents_go_in_the_background_and_their_dependents_too() {
    let api = maps(&shared().await.client().await, "background").await;
    let owner = make(&api, "owner", &[]).await;
    let child = make(&api, "child", &[(&owner, false)]).await;
    make(&api, "grandchild", &[(&child, true)]).await;
    let other = make(&api, "other", &[]).await;
    make(&api, "shared", &[(&owner, false), (&other, false)]).await;
    api.delete("owner", &by(PropagationPolicy::Background)).await.expect("delete");
    eventually("the grandchild goes", || is_gone(&api, "grandchild")).await;
    assert!(is_gone(&api, "child").await);
    eventually("the reference to the owner goes", || async {
        api.get("shared").await.expect("kept by its other owner").owner_references().len() == 1
    })
    .await;
    assert_eq!(api.get("shared").await.expect("get").owner_references()[0].name, "other");
}

#[tokio::test]
async fn an_owner_in_the_foreground_goes_last() {
    let api = maps(&shared().await.client().await, "foreground").await;
    let owner = make(&api, "owner", &[]).await;
    let mut held = config_map("held", &[(&owner, true)]);
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    api.create(&PostParams::default(), &held).await.expect("create");
    make(&api, "free", &[(&owner, false)]).await;
    api.delete("owner", &by(PropagationPolicy::Foreground)).await.expect("delete");
    eventually("the dependents are being deleted", || async {
        let held = api.get("held").await.expect("held by its finalizer");
        held.metadata.deletion_timestamp.is_some() && is_gone(&api, "free").await
    })
    .await;
    let waiting = api.get("owner").await.expect("the owner waits");
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("held", &PatchParams::default(), &release).await.expect("release");
    eventually("the owner goes", || is_gone(&api, "owner")).await;
}

#[tokio::test]
async fn orphans_stay_without_their_owner() {
    let api = maps(&shared().await.client().await, "orphans").await;
    let owner = make(&api, "owner", &[]).await;
    for name in ["a", "b"] {
        make(&api, name, &[(&owner, true)]).await;
    }
    api.delete("owner", &by(PropagationPolicy::Orphan)).await.expect("delete");
    eventually("the owner goes", || is_gone(&api, "owner")).await;
    for name in ["a", "b"] {
        assert!(api.get(name).await.expect("an orphan").owner_references().is_empty());
    }
}

#[tokio::test]
async fn what_belongs_to_nobody_goes_and_circles_do_not_hold() {
    let client = shared().await.client().await;
    let (api, elsewhere) = (maps(&client, "nobody").await, maps(&client, "elsewhere").await);
    let stranger = make(&elsewhere, "stranger", &[]).await;
    make(&api, "of-another-namespace", &[(&stranger, false)]).await;
    eventually("an owner of another namespace is none", || is_gone(&api, "of-another-namespace")).await;
    let first = make(&api, "first", &[]).await;
    let second = make(&api, "second", &[(&first, true)]).await;
    let close = config_map("first", &[(&second, true)]);
    let close = Patch::Merge(json!({"metadata": {"ownerReferences": close.metadata.owner_references}}));
    api.patch("first", &PatchParams::default(), &close).await.expect("close the circle");
    api.delete("first", &by(PropagationPolicy::Foreground)).await.expect("delete");
    for name in ["first", "second"] {
        eventually("the circle goes", || is_gone(&api, name)).await;
    }
    assert!(!is_gone(&elsewhere, "stranger").await);
}

#[tokio::test]
async fn thousands_of_dependents_go_though_the_server_is_killed_meanwhile() {
    const DEPENDENTS: usize = 5000;
    let mut server = TestServer::start(&[]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "thousands").await;
    let api = maps_in(&client, &namespace);
    let owner = make(&api, "owner", &[]).await;
    make(&api, "bystander", &[]).await;
    let names = (0..DEPENDENTS).map(|index| format!("dependent-{index}"));
    stream::iter(names)
        .for_each_concurrent(64, |name| {
            let (api, owner) = (&api, &owner);
            async move { drop(make(api, &name, &[(owner, true)]).await) }
        })
        .await;
    api.delete("owner", &by(PropagationPolicy::Background)).await.expect("delete");
    server.kill();
    server.restart().await;
    let api = maps_in(&server.client().await, &namespace);
    let left = || async {
        let list = api.list(&ListParams::default()).await.expect("list");
        list.items
            .iter()
            .map(ResourceExt::name_any)
            .filter(|name| name != "kube-root-ca.crt")
            .collect::<Vec<_>>()
    };
    eventually("all dependents go", || async { left().await == ["bystander"] }).await;
    server.terminate().await;
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
    eventually("it is put right", || async { authority().await == original }).await;
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

/// A namespace that was freed of its finalizer by hand, and made again while an object of the first one is held.
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
