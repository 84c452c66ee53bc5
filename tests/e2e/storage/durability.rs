//! Restarts lose nothing, and neither does a SIGKILL in the middle of writing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Client, Discovery, ResourceExt};
use plinth_tests::samples;
use plinth_tests::server::{namespace, TestServer, BARE_NAMESPACES};
use serde_json::{json, Value};

fn config_map(name: &str, value: usize) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"value": value.to_string()}}))
        .expect("object")
}

/// Whether this says which process serves: the Lease is deleted when it ends, and another one's is made.
fn is_of_process(object: &DynamicObject) -> bool {
    object.labels().contains_key("apiserver.kubernetes.io/identity")
}

/// Everything that is stored and outlives the process, by apiVersion, kind, namespace and name.
async fn everything(client: &Client) -> BTreeMap<String, Value> {
    let discovery = Discovery::new(client.clone()).run().await.expect("discovery");
    let mut all = BTreeMap::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.versions().flat_map(|v| group.versioned_resources(v)) {
            if !capabilities.supports_operation("list") {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let objects = api.list(&ListParams::default()).await.expect("list");
            for object in objects.into_iter().filter(|object| !is_of_process(object)) {
                let key = format!(
                    "{} {} {}/{}",
                    resource.api_version,
                    resource.kind,
                    object.namespace().unwrap_or_default(),
                    object.name_any()
                );
                all.insert(key, serde_json::to_value(&object).expect("JSON"));
            }
        }
    }
    all
}

#[tokio::test]
async fn a_restart_keeps_every_object_as_it_was() {
    let mut server = TestServer::start(&[BARE_NAMESPACES]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "kept").await;
    let discovery = Discovery::new(client.clone()).run().await.expect("discovery");
    for sample in samples::all("kept", &namespace) {
        let types = sample.types.clone().expect("types");
        let gvk = GroupVersionKind::try_from(&types).expect("group, version, kind");
        let (resource, capabilities) = discovery.resolve_gvk(&gvk).unwrap_or_else(|| panic!("{types:?}"));
        let api: Api<DynamicObject> = match capabilities.scope {
            kube::discovery::Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
            kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
        };
        match api.create(&PostParams::default(), &sample).await {
            Ok(_) => {}
            // Two samples of one storage (events and autoscalers have two versions) share a name.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{types:?}: {error}"),
        }
    }
    let before = wait_until_unchanged(&client).await;
    assert!(before.len() > 60, "{}", before.len());

    server.terminate().await;
    server.restart().await;
    assert_same(&before, &everything(&server.client().await).await);
    server.kill();
    server.restart().await;
    assert_same(&before, &everything(&server.client().await).await);
}

/// Everything, once the controllers have updated the statuses.
async fn wait_until_unchanged(client: &Client) -> BTreeMap<String, Value> {
    let mut last = everything(client).await;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = everything(client).await;
        if now == last {
            break;
        }
        last = now;
    }
    last
}

/// Fails with the objects that differ, not with all of them.
fn assert_same(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let different: Vec<_> = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| (name, before.get(name), after.get(name)))
        .collect();
    assert!(different.is_empty(), "{different:#?}");
}

/// The writes of one writer that were acknowledged, and the one without an answer.
#[derive(Default)]
struct Acknowledged {
    /// Names and versions of objects whose last acknowledged write was a create or an update.
    present: BTreeMap<String, (String, String)>,
    /// Names whose deletion was acknowledged.
    deleted: Vec<String>,
    /// The name that the unanswered request was about, if there was one.
    open: Option<String>,
}

/// Creates objects, updates every third and deletes every fifth, until the server is gone.
async fn write_until_gone(api: Api<ConfigMap>, writer: usize, stop: Arc<AtomicBool>) -> Acknowledged {
    let mut done = Acknowledged::default();
    for index in 0.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let name = format!("w{writer}-{index}");
        done.open = Some(name.clone());
        let Ok(created) = api.create(&PostParams::default(), &config_map(&name, index)).await else { break };
        let mut last = (created.resource_version().expect("version"), index.to_string());
        done.present.insert(name.clone(), last.clone());
        if index % 3 == 0 {
            let mut changed = created;
            changed.data.as_mut().expect("data").insert("value".into(), "changed".into());
            let Ok(changed) = api.replace(&name, &PostParams::default(), &changed).await else { break };
            last = (changed.resource_version().expect("version"), "changed".into());
            done.present.insert(name.clone(), last.clone());
        }
        if index % 5 == 0 {
            if api.delete(&name, &DeleteParams::default()).await.is_err() {
                break;
            }
            done.present.remove(&name);
            done.deleted.push(name);
        }
        done.open = None;
    }
    done
}

#[tokio::test]
async fn a_kill_loses_nothing_that_was_acknowledged() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 3;
    /// Writes acknowledged before each kill, at least.
    const AT_LEAST: usize = 60;
    let mut server = TestServer::start(&[BARE_NAMESPACES]).await;
    let namespace = namespace(&server.client().await, "killed").await;
    let mut highest = 0;
    for round in 0..ROUNDS {
        let client = server.client().await;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write_until_gone(api.clone(), round * WRITERS + writer, stop.clone())))
            .collect();
        // Killed while all of them write, not after.
        while api.list(&ListParams::default()).await.expect("list").items.len() < (round + 1) * AT_LEAST {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.kill();
        stop.store(true, Ordering::Release);
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.push(writer.await.expect("a writer"));
        }
        server.restart().await;

        let api: Api<ConfigMap> = Api::namespaced(server.client().await, &namespace);
        let stored = api.list(&ListParams::default()).await.expect("list");
        let head: u64 =
            stored.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).expect("version");
        assert!(head >= highest, "the version went back from {highest} to {head}");
        let stored: BTreeMap<String, ConfigMap> = stored.into_iter().map(|o| (o.name_any(), o)).collect();
        for writer in acknowledged {
            for (name, (version, value)) in &writer.present {
                if writer.open.as_ref() == Some(name) {
                    continue; // its last request may or may not have been carried out
                }
                let object = stored
                    .get(name)
                    .unwrap_or_else(|| panic!("{name} at {version} was acknowledged and is gone"));
                assert_eq!(object.resource_version().as_ref(), Some(version), "{name}");
                assert_eq!(&object.data.as_ref().expect("data")["value"], value, "{name}");
                highest = highest.max(version.parse().expect("a number"));
            }
            for name in &writer.deleted {
                assert!(!stored.contains_key(name), "{name} was deleted and is back");
            }
        }
        assert!(head >= highest, "the version is {head}, {highest} was acknowledged");
    }
}

#[tokio::test]
async fn a_watch_resumes_after_a_restart() {
    let mut server = TestServer::start(&[BARE_NAMESPACES]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "resumed").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let first = api.create(&PostParams::default(), &config_map("a", 1)).await.expect("create");
    api.create(&PostParams::default(), &config_map("b", 1)).await.expect("create");
    api.delete("a", &DeleteParams::default()).await.expect("delete");
    server.kill();
    server.restart().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client().await, &namespace);
    api.create(&PostParams::default(), &config_map("c", 1)).await.expect("create");
    let from = first.resource_version().expect("version");
    let events = api.watch(&WatchParams::default(), &from).await.expect("watch");
    let mut events = Box::pin(events);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        use futures::TryStreamExt;
        match events.try_next().await.expect("event").expect("more events") {
            WatchEvent::Added(object) => seen.push(format!("ADDED {}", object.name_any())),
            WatchEvent::Deleted(object) => seen.push(format!("DELETED {}", object.name_any())),
            WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["ADDED b", "DELETED a", "ADDED c"]);
}

#[tokio::test]
async fn credentials_survive_a_restart() {
    let mut server = TestServer::start(&[BARE_NAMESPACES]).await;
    let before = std::fs::read_to_string(server.kubeconfig()).expect("kubeconfig");
    let client = server.client().await;
    server.terminate().await;
    server.restart().await;
    // The client of before still trusts the server and is trusted by it.
    client.apiserver_version().await.expect("version");
    Api::<ConfigMap>::all(client).list(&ListParams::default()).await.expect("list");
    assert_eq!(std::fs::read_to_string(server.kubeconfig()).expect("kubeconfig"), before);
}

#[tokio::test]
async fn a_clean_stop_ends_open_watches_properly() {
    use http_body_util::BodyExt;
    use plinth_benches::api::client::{Call, Protocol};
    let mut server = TestServer::start(&[BARE_NAMESPACES]).await;
    let mut bodies = Vec::new();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut connection = server.connect(protocol).await;
        let call = Call::get("/api/v1/configmaps?watch=1");
        let body = connection.open(&call).await.expect("watch").into_body();
        bodies.push((protocol, connection, tokio::spawn(body.collect())));
    }
    server.terminate().await;
    for (protocol, _connection, body) in bodies {
        body.await.expect("a reader").unwrap_or_else(|e| panic!("{protocol:?}: the watch was cut off: {e}"));
    }
}
