//! Requests that the API refuses: code, reason and details, because clients match on them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{Api, ListParams, PostParams};
use kube::core::Status;
use kube::ResourceExt;
use plinth_tests::refusal::{assert_refusal, refusal};
use plinth_tests::server::{namespace, shared, unique};
use serde::de::DeserializeOwned;
use serde_json::{json, Value};

fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).expect("an object of the kind")
}

/// The fields that a 422 complains about.
fn fields(status: &Status) -> Vec<&str> {
    status.details.iter().flat_map(|d| &d.causes).map(|cause| cause.field.as_str()).collect()
}

#[tokio::test]
async fn absent_objects_are_not_found() {
    let client = shared().await.client().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    assert_refusal(&refusal(pods.get("nobody").await), 404, "NotFound", "pods", "nobody");
    let deployments: Api<Deployment> = Api::namespaced(client, "default");
    let status = refusal(deployments.get("nobody").await);
    assert_refusal(&status, 404, "NotFound", "deployments", "nobody");
    assert_eq!(status.details.as_ref().map(|d| d.group.as_str()), Some("apps"));
    assert_eq!(status.message, r#"deployments.apps "nobody" not found"#);
}

#[tokio::test]
async fn an_absent_namespace_refuses_writes_and_lists_nothing() {
    let client = shared().await.client().await;
    let absent = unique("absent");
    let api: Api<ConfigMap> = Api::namespaced(client, &absent);
    let status =
        refusal(api.create(&PostParams::default(), &object(json!({"metadata": {"name": "a"}}))).await);
    assert_refusal(&status, 404, "NotFound", "namespaces", &absent);
    let dry_run = PostParams { dry_run: true, field_manager: None };
    let status = refusal(api.create(&dry_run, &object(json!({"metadata": {"name": "a"}}))).await);
    assert_refusal(&status, 404, "NotFound", "namespaces", &absent);
    assert_eq!(api.list(&ListParams::default()).await.expect("list").items.len(), 0);
}

#[tokio::test]
async fn the_system_namespaces_are_there() {
    let client = shared().await.client().await;
    let api: Api<Namespace> = Api::all(client);
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = api.get(name).await.expect(name);
        assert_eq!(namespace.labels().get("kubernetes.io/metadata.name").map(String::as_str), Some(name));
        assert_eq!(namespace.status.and_then(|s| s.phase).as_deref(), Some("Active"), "{name}");
    }
}

#[tokio::test]
async fn names_follow_the_rules_of_dns() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "names").await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let long = "a".repeat(254);
    for name in ["Upper", "under_score", "-dash", "dash-", "dot..dot", "sp ace", &*long] {
        let status =
            refusal(api.create(&PostParams::default(), &object(json!({"metadata": {"name": name}}))).await);
        assert_refusal(&status, 422, "Invalid", "ConfigMap", name);
        assert_eq!(fields(&status), ["metadata.name"], "{name}");
    }
    let api: Api<Namespace> = Api::all(client);
    let status =
        refusal(api.create(&PostParams::default(), &object(json!({"metadata": {"name": "a.b"}}))).await);
    assert_refusal(&status, 422, "Invalid", "Namespace", "a.b");
}

#[tokio::test]
async fn metadata_is_checked() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "metadata").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let cases = [
        (json!({"name": "a", "labels": {"bad key!": "v"}}), "metadata.labels"),
        (json!({"name": "a", "labels": {"key": "bad value!"}}), "metadata.labels"),
        (json!({"name": "a", "annotations": {"bad key!": "v"}}), "metadata.annotations"),
        (json!({"name": "a", "finalizers": ["no slash or known name!"]}), "metadata.finalizers"),
    ];
    for (metadata, field) in cases {
        let status =
            refusal(api.create(&PostParams::default(), &object(json!({"metadata": metadata}))).await);
        assert_refusal(&status, 422, "Invalid", "ConfigMap", "a");
        assert!(fields(&status).iter().any(|f| f.starts_with(field)), "{field}: {status:?}");
    }
    let neither = refusal(api.create(&PostParams::default(), &object(json!({"metadata": {}}))).await);
    assert_refusal(&neither, 422, "Invalid", "ConfigMap", "");
    assert_eq!(fields(&neither), ["metadata.name"]);
    assert_eq!(api.list(&ListParams::default()).await.expect("list").items.len(), 0, "nothing was stored");
}

#[tokio::test]
async fn the_body_must_agree_with_the_path() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "agree").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let in_other_namespace = json!({"metadata": {"name": "a", "namespace": "kube-system"}});
    let status = refusal(api.create(&PostParams::default(), &object(in_other_namespace)).await);
    assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"), "{status:?}");
    api.create(&PostParams::default(), &object(json!({"metadata": {"name": "a"}}))).await.expect("create");
    let renamed: ConfigMap = object(json!({"metadata": {"name": "b"}}));
    let status = refusal(api.replace("a", &PostParams::default(), &renamed).await);
    assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"), "{status:?}");
}

#[tokio::test]
async fn server_set_fields_cannot_be_forged() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "forged").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let uid = "00000000-0000-4000-8000-000000000000";
    let forged = json!({"metadata": {"name": "a", "uid": uid, "creationTimestamp": "2001-01-01T00:00:00Z",
        "generation": 77, "selfLink": "/x", "deletionTimestamp": "2001-01-01T00:00:00Z"}});
    let created = api.create(&PostParams::default(), &object(forged)).await.expect("create");
    assert_ne!(created.uid().as_deref(), Some(uid));
    assert!(created.creation_timestamp().is_some_and(|t| t.0.to_string().as_str() > "2020"));
    assert_eq!(created.metadata.deletion_timestamp, None);
    assert_eq!(created.metadata.self_link, None);

    let mut changed = created.clone();
    changed.metadata.creation_timestamp = None;
    changed.metadata.generation = Some(99);
    let replaced = api.replace("a", &PostParams::default(), &changed).await.expect("replace");
    assert_eq!(replaced.creation_timestamp(), created.creation_timestamp());
    assert_eq!(replaced.metadata.generation, created.metadata.generation);
    changed.metadata.uid = Some(uid.into());
    assert_refusal(
        &refusal(api.replace("a", &PostParams::default(), &changed).await),
        409,
        "Conflict",
        "configmaps",
        "a",
    );
}

#[tokio::test]
async fn generation_counts_changes_of_the_desired_state() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "generation").await;
    let api: Api<Deployment> = Api::namespaced(client, &namespace);
    let deployment: Deployment = object(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }));
    let mut web = api.create(&PostParams::default(), &deployment).await.expect("create");
    assert_eq!(web.metadata.generation, Some(1));
    web.spec.as_mut().expect("spec").replicas = Some(3);
    let mut web = api.replace("web", &PostParams::default(), &web).await.expect("replace");
    assert_eq!(web.metadata.generation, Some(2));
    web.labels_mut().insert("seen".into(), "yes".into());
    let mut web = api.replace("web", &PostParams::default(), &web).await.expect("replace");
    assert_eq!(web.metadata.generation, Some(2), "labels are no desired state");

    // The status of the main resource's body is not taken, the spec of the status' body neither.
    web.status = Some(object(json!({"replicas": 9})));
    let mut web = api.replace("web", &PostParams::default(), &web).await.expect("replace");
    assert_eq!(web.status.as_ref().and_then(|s| s.replicas), None);
    web.status = Some(object(json!({"replicas": 3})));
    web.spec.as_mut().expect("spec").replicas = Some(50);
    let body = serde_json::to_vec(&web).expect("JSON");
    let web: Deployment = object(
        serde_json::to_value(
            api.replace_status("web", &PostParams::default(), &web)
                .await
                .unwrap_or_else(|e| panic!("replace status: {e}: {}", String::from_utf8_lossy(&body))),
        )
        .expect("JSON"),
    );
    assert_eq!(web.status.and_then(|s| s.replicas), Some(3));
    assert_eq!(web.spec.and_then(|s| s.replicas), Some(3));
    assert_eq!(web.metadata.generation, Some(2));
}

#[tokio::test]
async fn selectors_must_be_readable() {
    let client = shared().await.client().await;
    let api: Api<Secret> = Api::namespaced(client, "default");
    for bad in ["a in (", "a==b==c", "!", "a,,b="] {
        let status = refusal(api.list(&ListParams::default().labels(bad)).await);
        assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"), "{bad}: {status:?}");
    }
    let status = refusal(api.list(&ListParams::default().fields("spec.absent=1")).await);
    assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"), "{status:?}");
}
