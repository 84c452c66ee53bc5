//! Watches: every change once, in order, from the requested version.

use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use http::StatusCode;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{watcher, WatchStreamExt};
use kube::ResourceExt;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::server::{namespace, shared};
use serde_json::{json, Value};

/// The timeout of an event; only reached in failure.
const EVENT_WITHIN: Duration = Duration::from_secs(60);

fn config_map(name: &str, labels: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).expect("a ConfigMap")
}

async fn next<T, E: std::fmt::Debug>(events: &mut (impl Stream<Item = Result<T, E>> + Unpin)) -> T {
    let event = tokio::time::timeout(EVENT_WITHIN, events.try_next()).await;
    event.expect("an event in time").expect("an event").expect("a stream that goes on")
}

/// Type and name of the next event that is no bookmark.
async fn change(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin),
) -> (&'static str, ConfigMap) {
    loop {
        match next(events).await {
            WatchEvent::Added(object) => return ("ADDED", object),
            WatchEvent::Modified(object) => return ("MODIFIED", object),
            WatchEvent::Deleted(object) => return ("DELETED", object),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => panic!("{status:?}"),
        }
    }
}

#[tokio::test]
async fn a_watch_starts_after_its_resource_version() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "watch-from").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let options = PostParams::default();
    let first = api.create(&options, &config_map("a", json!({}))).await.expect("create");
    api.create(&options, &config_map("b", json!({}))).await.expect("create");
    api.delete("a", &DeleteParams::default()).await.expect("delete");
    let version = first.resource_version().expect("resourceVersion");
    // Everything after the creation of `a`, although it all happened before the watch.
    let mut events = Box::pin(api.watch(&WatchParams::default(), &version).await.expect("watch"));
    let (kind, object) = change(&mut events).await;
    assert_eq!((kind, object.name_any().as_str()), ("ADDED", "b"));
    let (kind, object) = change(&mut events).await;
    assert_eq!((kind, object.name_any().as_str()), ("DELETED", "a"));
    assert_ne!(object.resource_version(), Some(version), "the version of the deletion, not of the object");
    // And what comes while it is open.
    api.create(&options, &config_map("c", json!({}))).await.expect("create");
    let (kind, object) = change(&mut events).await;
    assert_eq!((kind, object.name_any().as_str()), ("ADDED", "c"));
}

#[tokio::test]
async fn a_selector_turns_changes_into_comings_and_goings() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "watch-selector").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let version =
        api.list(&ListParams::default()).await.expect("list").metadata.resource_version.expect("version");
    let blue = WatchParams::default().labels("colour=blue");
    let mut events = Box::pin(api.watch(&blue, &version).await.expect("watch"));
    let paint = async |colour: &str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"colour": colour}}}));
        api.patch("a", &PatchParams::default(), &patch).await.expect("patch");
    };
    api.create(&PostParams::default(), &config_map("a", json!({"colour": "red"}))).await.expect("create");
    paint("blue").await;
    paint("green").await;
    paint("blue").await;
    api.delete("a", &DeleteParams::default()).await.expect("delete");
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (kind, object) = change(&mut events).await;
        seen.push((kind, object.labels().get("colour").cloned().unwrap_or_default()));
    }
    let blue = "blue".to_string();
    let expected = [("ADDED", &blue), ("DELETED", &blue), ("ADDED", &blue), ("DELETED", &blue)];
    assert_eq!(seen.iter().map(|(kind, colour)| (*kind, colour)).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn many_watchers_see_the_same_in_the_same_order() {
    const WATCHERS: usize = 20;
    const OBJECTS: usize = 50;
    let client = shared().await.client().await;
    let namespace = namespace(&client, "watch-many").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let version =
        api.list(&ListParams::default()).await.expect("list").metadata.resource_version.expect("version");
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        watchers.push(Box::pin(api.watch(&WatchParams::default(), &version).await.expect("watch")));
    }
    let create = |index| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &config_map(&format!("cm-{index}"), json!({}))).await }
    };
    futures::future::try_join_all((0..OBJECTS).map(create)).await.expect("creates");
    let mut orders = Vec::new();
    for mut watcher in watchers {
        let mut order = Vec::new();
        for _ in 0..OBJECTS {
            let (kind, object) = change(&mut watcher).await;
            assert_eq!(kind, "ADDED");
            order.push(
                object.resource_version().and_then(|v| v.parse::<u64>().ok()).expect("resourceVersion"),
            );
        }
        assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
        orders.push(order);
    }
    assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn informers_of_kube_follow_a_collection() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let client = shared().await.client().await;
        let namespace = namespace(&client, "informer").await;
        let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
        for name in ["a", "b"] {
            api.create(&PostParams::default(), &config_map(name, json!({}))).await.expect("create");
        }
        let mut objects = watcher(api.clone(), config).default_backoff().touched_objects().boxed();
        let mut names = vec![next(&mut objects).await.name_any(), next(&mut objects).await.name_any()];
        names.sort();
        assert_eq!(names, ["a", "b"]);
        api.create(&PostParams::default(), &config_map("c", json!({}))).await.expect("create");
        assert_eq!(next(&mut objects).await.name_any(), "c");
    }
}

#[tokio::test]
async fn a_watch_from_the_beginning_begins_with_what_is_there() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "watch-zero").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    api.create(&PostParams::default(), &config_map("a", json!({}))).await.expect("create");
    for version in ["0", ""] {
        let mut events = Box::pin(api.watch(&WatchParams::default(), version).await.expect("watch"));
        let (kind, object) = change(&mut events).await;
        assert_eq!((kind, object.name_any().as_str()), ("ADDED", "a"), "{version:?}");
    }
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_over() {
    let server = shared().await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut connection = server.connect(protocol).await;
        let call =
            Call::get("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0");
        let (head, body) = connection.open(&call).await.expect("watch").into_parts();
        assert_eq!(head.status, StatusCode::OK);
        // The body ends properly, or collecting it fails.
        let body = tokio::time::timeout(EVENT_WITHIN, body.collect()).await.expect("an end");
        let body = body.expect("a proper end").to_bytes();
        for line in body.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).expect("a watch event");
            assert!(event["type"].is_string() && event["object"].is_object(), "{event}");
        }
    }
}

/// Ages in the rows of a watch are counted to the event: an object that is made long after the watch began is
/// not of the future. One watch after the other gets the columns with its first event.
#[tokio::test]
async fn rows_of_a_watch_show_ages_and_name_the_columns_once() {
    let server = shared().await;
    let namespace = namespace(&server.client().await, "watch-rows").await;
    let mut connection = server.connect(Protocol::Http2).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let list = connection.must(&Call::get(&path)).await.expect("list");
    let list: Value = serde_json::from_slice(&list.body).expect("a list");
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let watch = Call::get(format!("{path}?watch=1&resourceVersion={version}"))
        .accept("application/json;as=Table;v=v1;g=meta.k8s.io");
    let mut early = connection.open(&watch).await.expect("watch");
    // Of the future is what is more than two seconds ahead.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for name in ["a", "b"] {
        let body = json!({"metadata": {"name": name}}).to_string();
        let create = Call::new(http::Method::POST, &path).body(plinth_benches::api::client::JSON, body);
        connection.must(&create).await.expect("create");
    }
    let mut late = connection.open(&watch).await.expect("watch");
    for watch in [&mut early, &mut late] {
        let mut text = Vec::new();
        while text.iter().filter(|byte| **byte == b'\n').count() < 2 {
            let frame = tokio::time::timeout(EVENT_WITHIN, watch.frame()).await.expect("events in time");
            let frame = frame.expect("a frame").expect("a stream that goes on");
            text.extend_from_slice(frame.data_ref().expect("data"));
        }
        for (line, name) in text.split(|&b| b == b'\n').zip(["a", "b"]) {
            let event: Value = serde_json::from_slice(line).expect("a watch event");
            let table = &event["object"];
            assert_eq!(table["columnDefinitions"].is_array(), name == "a", "{event}");
            assert_eq!(table["rows"][0]["cells"][0], name, "{event}");
            let age = table["rows"][0]["cells"][2].as_str().unwrap_or_default();
            assert!(age.ends_with('s'), "{event}");
        }
    }
}
