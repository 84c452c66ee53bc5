//! Objects here whose owners other API servers have.

use std::sync::atomic::Ordering;

use plinth_tests::eventually;
use plinth_tests::requests::{create, send};
use serde_json::{json, Value};

use super::Cluster;

/// Dependents go with an owner that its server no longer has, and with none that cannot be asked for.
#[tokio::test]
async fn dependents_go_with_the_objects_of_remote_apis() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("owning.example", 1).await;
    let client = &cluster.client;
    let owned = |name: &str, owner: &str, uid: &str| {
        let owner = json!({"apiVersion": "owning.example/v1", "kind": "Thing", "name": owner, "uid": uid});
        json!({"metadata": {"name": name, "ownerReferences": [owner]}})
    };
    let asked =
        |owner: &str| remote.received(&format!("{}/namespaces/default/things/{owner}", remote.path()));
    let is_there =
        async |name: &str| send(client, "GET", &format!("{MAPS}/{name}"), &Value::Null).await.code == 200;

    remote.behavior.things.lock().push(("default".to_owned(), "owner".to_owned()));
    create(client, MAPS, &owned("kept", "owner", "uid-of-owner")).await;
    create(client, MAPS, &owned("earlier", "owner", "uid-of-an-earlier-owner")).await;
    eventually("that of an earlier owner goes", || async { !is_there("earlier").await }).await;
    eventually("the owner is asked for", || async { asked("owner").len() >= 2 }).await;
    let account = "system:serviceaccount:kube-system:generic-garbage-collector";
    assert!(asked("owner").iter().all(|request| request.all("x-remote-user") == [account]));

    // Answers that are about no object, and no answers.
    create(client, MAPS, &owned("unclear", "nowhere", "uid")).await;
    remote.behavior.is_down.store(true, Ordering::SeqCst);
    remote.behavior.things.lock().clear();
    create(client, MAPS, &owned("lost", "owner-of-lost", "uid-of-lost")).await;
    for owner in ["nowhere", "owner-of-lost"] {
        eventually("it is asked for again and again", || async { asked(owner).len() > 2 }).await;
    }
    for name in ["kept", "unclear", "lost"] {
        assert!(is_there(name).await, "{name}");
    }

    remote.behavior.is_down.store(false, Ordering::SeqCst);
    eventually("what has lost its owner goes", || async { !is_there("lost").await }).await;
    // Others are looked at from time to time, and when their owners change.
    let blocks = json!({"metadata": {"ownerReferences": [{"apiVersion": "owning.example/v1", "kind": "Thing",
        "name": "owner", "uid": "uid-of-owner", "blockOwnerDeletion": true}]}});
    send(client, "MERGE", &format!("{MAPS}/kept"), &blocks).await;
    eventually("the other one goes", || async { !is_there("kept").await }).await;
    assert!(is_there("unclear").await);
}

/// Owners that are not answered for take lookups from the objects of their own namespace, and an object with
/// very many owners is not looked at.
#[tokio::test]
async fn lookups_of_a_namespace_leave_some_to_others() {
    /// Half of all.
    const OF_ONE: usize = 4;
    let cluster = Cluster::start(&[]).await;
    let remote = cluster.remote("greedy.example", 1).await;
    let client = &cluster.client;
    let owner = |name: String| json!({"apiVersion": "greedy.example/v1", "kind": "Thing", "name": name, "uid": "uid"});
    let owned =
        |name: String, owners: Vec<Value>| json!({"metadata": {"name": name, "ownerReferences": owners}});
    create(client, "/api/v1/namespaces", &json!({"metadata": {"name": "greedy"}})).await;
    let many = (0..65).map(|n| owner(format!("owner-{n}"))).collect();
    let greedy = "/api/v1/namespaces/greedy/configmaps";
    create(client, greedy, &owned("many".to_owned(), many)).await;
    for n in 0..32 {
        create(client, greedy, &owned(format!("waits-{n}"), vec![owner("hang".to_owned())])).await;
    }
    let open = || remote.behavior.open.load(Ordering::SeqCst);
    eventually("owners are asked for", || async { open() >= OF_ONE }).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    create(client, maps, &owned("goes".to_owned(), vec![owner("owner-of-goes".to_owned())])).await;
    eventually("what has lost its owner goes", || async {
        assert!(open() <= OF_ONE + 1);
        send(client, "GET", &format!("{maps}/goes"), &Value::Null).await.code == 404
    })
    .await;
    let of_many = format!("{}/namespaces/greedy/things/owner-0", remote.path());
    assert!(remote.received(&of_many).is_empty());
}
