//! Many writers of one object: compare-and-swap loses no update, and preconditions hold.

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::ResourceExt;
use plinth_tests::refusal::{assert_refusal, refusal};
use plinth_tests::server::{namespace, shared};
use serde_json::json;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"count": "0"}})).expect("a ConfigMap")
}

#[tokio::test]
async fn counters_are_exact_under_contention() {
    const WRITERS: usize = 8;
    const INCREMENTS: usize = 10;
    let client = shared().await.client().await;
    let namespace = namespace(&client, "counter").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    api.create(&PostParams::default(), &config_map("counter")).await.expect("create");
    let writer = || async {
        let mut done = 0;
        while done < INCREMENTS {
            let mut object = api.get("counter").await.expect("get");
            let data = object.data.as_mut().expect("data");
            let count: usize = data["count"].parse().expect("a number");
            data.insert("count".into(), (count + 1).to_string());
            match api.replace("counter", &PostParams::default(), &object).await {
                Ok(_) => done += 1,
                conflict => assert_refusal(&refusal(conflict), 409, "Conflict", "configmaps", "counter"),
            }
        }
    };
    join_all((0..WRITERS).map(|_| writer())).await;
    let last = api.get("counter").await.expect("get");
    assert_eq!(last.data.expect("data")["count"], (WRITERS * INCREMENTS).to_string());
}

#[tokio::test]
async fn one_of_many_creators_wins() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "race").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let (object, options) = (config_map("prize"), PostParams::default());
    let results = join_all((0..16).map(|_| api.create(&options, &object))).await;
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    for result in lost {
        assert_refusal(&refusal(result), 409, "AlreadyExists", "configmaps", "prize");
    }
}

/// An apply that finds the object absent, and then created by another client, continues as an update.
#[tokio::test]
async fn concurrent_applies_of_an_absent_object_all_succeed() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "applies").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    for round in 0..8 {
        let name = format!("absent-{round}");
        let apply = |writer: usize| {
            let (api, name) = (&api, &name);
            let data = json!({format!("writer-{writer}"): "x"});
            let object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            async move {
                let manager = PatchParams::apply(&format!("m{writer}"));
                api.patch(name, &manager, &Patch::Apply(object)).await
            }
        };
        for result in join_all((0..12).map(apply)).await {
            result.expect("apply");
        }
        assert_eq!(api.get(&name).await.expect("get").data.expect("data").len(), 12);
    }
}

#[tokio::test]
async fn concurrent_patches_are_all_kept() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "patches").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    api.create(&PostParams::default(), &config_map("shared")).await.expect("create");
    join_all((0..24).map(|index| {
        let api = api.clone();
        async move {
            let key = format!("key-{index}");
            let patch = Patch::Merge(json!({"data": {key: "set"}}));
            api.patch("shared", &PatchParams::default(), &patch).await.expect("patch");
        }
    }))
    .await;
    assert_eq!(api.get("shared").await.expect("get").data.expect("data").len(), 25);
}

#[tokio::test]
async fn patches_and_deletes_keep_their_preconditions() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "preconditions").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let created = api.create(&PostParams::default(), &config_map("guarded")).await.expect("create");
    let version = created.resource_version().expect("resourceVersion");
    let touch = Patch::Merge(json!({"data": {"touched": "yes"}}));
    let current = api.patch("guarded", &PatchParams::default(), &touch).await.expect("patch");

    let stale = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": {"late": "yes"}}));
    let status = refusal(api.patch("guarded", &PatchParams::default(), &stale).await);
    assert_refusal(&status, 409, "Conflict", "configmaps", "guarded");

    // Here details name the kind, not the resource.
    let other =
        Preconditions { uid: Some("00000000-0000-4000-8000-000000000000".into()), resource_version: None };
    let status = refusal(api.delete("guarded", &DeleteParams::default().preconditions(other)).await);
    assert_refusal(&status, 409, "Conflict", "ConfigMap", "guarded");
    let stale = Preconditions { uid: None, resource_version: Some(version) };
    let status = refusal(api.delete("guarded", &DeleteParams::default().preconditions(stale)).await);
    assert_refusal(&status, 409, "Conflict", "ConfigMap", "guarded");

    let exact = Preconditions { uid: current.uid(), resource_version: current.resource_version() };
    api.delete("guarded", &DeleteParams::default().preconditions(exact)).await.expect("delete");
}

#[tokio::test]
async fn generated_names_are_valid_and_differ() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "generated").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let long = "p".repeat(70);
    for (prefix, kept) in [("short-", "short-"), (&*long, &long[..58])] {
        let object: ConfigMap =
            serde_json::from_value(json!({"metadata": {"generateName": prefix}})).expect("object");
        let first = api.create(&PostParams::default(), &object).await.expect("create").name_any();
        let second = api.create(&PostParams::default(), &object).await.expect("create").name_any();
        assert_ne!(first, second);
        for name in [first, second] {
            assert!(name.starts_with(kept) && name.len() == kept.len() + 5, "{name}");
        }
    }
}

#[tokio::test]
async fn put_of_an_absent_lease_creates_it() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "lease").await;
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "node"},
        "spec": {"holderIdentity": "node", "leaseDurationSeconds": 40},
    }))
    .expect("a Lease");
    let created = api.replace("node", &PostParams::default(), &lease).await.expect("PUT creates");
    assert!(created.uid().is_some());
    assert_eq!(api.get("node").await.expect("get").uid(), created.uid());
}
