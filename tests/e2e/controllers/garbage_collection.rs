//! The garbage collector: owners and dependents.

use futures::stream::{self, StreamExt};
use kube::api::{ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::ResourceExt;
use plinth_tests::eventually;
use plinth_tests::server::{namespace, shared, TestServer};
use serde_json::json;

use super::{by, config_map, is_gone, make, maps, maps_in};

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
async fn what_belongs_to_nobody_goes_and_cycles_do_not_hold() {
    let client = shared().await.client().await;
    let (api, other_namespace) = (maps(&client, "nobody").await, maps(&client, "other").await);
    let foreign = make(&other_namespace, "foreign", &[]).await;
    make(&api, "of-another-namespace", &[(&foreign, false)]).await;
    eventually("an owner of another namespace is none", || is_gone(&api, "of-another-namespace")).await;
    // It holds no owner either: it is deleted as it has none.
    make(&api, "holds-another-namespace", &[(&foreign, true)]).await;
    other_namespace.delete("foreign", &by(PropagationPolicy::Foreground)).await.expect("delete");
    eventually("the owner goes", || is_gone(&other_namespace, "foreign")).await;
    eventually("so does what named it", || is_gone(&api, "holds-another-namespace")).await;
    let first = make(&api, "first", &[]).await;
    let second = make(&api, "second", &[(&first, true)]).await;
    let close = config_map("first", &[(&second, true)]);
    let close = Patch::Merge(json!({"metadata": {"ownerReferences": close.metadata.owner_references}}));
    api.patch("first", &PatchParams::default(), &close).await.expect("close the cycle");
    api.delete("first", &by(PropagationPolicy::Foreground)).await.expect("delete");
    for name in ["first", "second"] {
        eventually("the cycle goes", || is_gone(&api, name)).await;
    }
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
