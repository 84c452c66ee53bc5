//! watch: what each combination of parameters starts with, and which ones are refused.

use plinth_tests::server::{shared, TestServer};
use serde_json::{json, Value};

use super::{reader, refusal, version};

/// Types of events and the names that they are about; a bookmark that ends the initial events is `END`.
fn summarize(events: &[Value]) -> Vec<String> {
    let of = |event: &Value| {
        let object = &event["object"];
        let end = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
        match event["type"].as_str().unwrap_or_default() {
            "BOOKMARK" if end => "END".to_owned(),
            "BOOKMARK" => "BOOKMARK".to_owned(),
            kind => format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or_default()),
        }
    };
    events.iter().map(of).filter(|event| !event.ends_with("kube-root-ca.crt")).collect()
}

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";

#[tokio::test]
async fn what_watches_start_with() {
    let server = shared().await;
    let mut client = reader(server, "watch-start").await;
    let old = client.create("a", json!({})).await;
    client.create("b", json!({})).await;
    client.delete("a").await;
    // Synthetic events come in the order of upstream's cache, which is none: here b is alone.
    let state: &[&str] = &["ADDED b"];
    let state_and_end: &[&str] = &["ADDED b", "END"];
    let since: &[&str] = &["ADDED b", "DELETED a"];
    let rows: &[(&str, &[&str])] = &[
        // Unset and 0: any state first.
        ("", state),
        ("resourceVersion=", state),
        ("resourceVersion=0", state),
        ("allowWatchBookmarks=true", state_and_end),
        ("resourceVersion=0&allowWatchBookmarks=true", state_and_end),
        // A revision: what happened since.
        ("resourceVersion=OLD", since),
        ("resourceVersion=OLD&allowWatchBookmarks=true", since),
        // Streaming lists.
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", state),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", state_and_end),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=", state_and_end),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0", state_and_end),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=OLD", state_and_end),
        // None of the state.
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", &[]),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=OLD", since),
        // A watch ignores limit.
        ("limit=1&resourceVersion=OLD", since),
        // One object.
        ("fieldSelector=metadata.name%3Da&resourceVersion=OLD", &["DELETED a"]),
        ("fieldSelector=metadata.name%3Db", state),
    ];
    for (query, expected) in rows {
        let actual_query = query.replace("OLD", &old.to_string());
        let (status, events) = client.watch(&format!("timeoutSeconds=1&{actual_query}")).await;
        assert_eq!(status, 200, "{query}: {events:?}");
        let mut seen = summarize(&events);
        // A plain bookmark may come at any time where they are allowed.
        seen.retain(|event| event != "BOOKMARK");
        assert_eq!(seen, *expected, "{query}: {events:?}");
        let end = events.iter().find(|e| summarize(std::slice::from_ref(e)) == ["END"]);
        if let Some(end) = end {
            assert!(version(&end["object"]) > old, "{end}");
            let kind = (&end["object"]["kind"], &end["object"]["apiVersion"]);
            assert_eq!(kind, (&json!("ConfigMap"), &json!("v1")), "{end}");
        }
    }
}

#[tokio::test]
async fn watch_parameters_that_do_not_go_together() {
    let server = shared().await;
    let mut client = reader(server, "watch-refused").await;
    let old = client.create("a", json!({})).await;
    let rows: &[(&str, &[&str])] = &[
        ("sendInitialEvents=true", &[MATCH]),
        ("sendInitialEvents=false", &[MATCH]),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", &[MATCH, MATCH]),
        ("resourceVersionMatch=NotOlderThan", &[MATCH]),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=OLD", &[MATCH]),
        ("resourceVersionMatch=Exact&resourceVersion=OLD", &[MATCH, MATCH]),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", &[MATCH]),
    ];
    for (query, fields) in rows {
        let actual_query = query.replace("OLD", &old.to_string());
        let (status, answer) = client
            .ask(&format!("{}?watch=1&timeoutSeconds=1&{actual_query}", client.collection.clone()))
            .await;
        assert_eq!((status, refusal(&answer)), (422, (422, "Invalid", fields.to_vec())), "{query}: {answer}");
        assert!(!fields.contains(&INITIAL));
    }
    for query in ["resourceVersion=x", "resourceVersion=-1"] {
        let (status, answer) = client.ask(&format!("{}?watch=1&{query}", client.collection.clone())).await;
        assert_eq!((status, answer["code"].as_u64()), (500, Some(500)), "{query}: {answer}");
    }
}

#[tokio::test]
async fn a_streaming_list_of_the_future_ends_with_an_error_event() {
    let server = shared().await;
    let mut client = reader(server, "watch-future").await;
    let now = client.create("a", json!({})).await;
    let query = format!(
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={}",
        now + 1_000_000_000
    );
    let (status, events) = client.watch(&query).await;
    assert_eq!((status, events.len()), (200, 1), "{events:?}");
    assert_eq!(events[0]["type"], "ERROR", "{events:?}");
    assert_eq!(refusal(&events[0]["object"]).0, 504, "{events:?}");
    assert_eq!(events[0]["object"]["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test]
async fn a_watch_of_the_future_begins_when_it_comes() {
    // Upstream refuses this or waits, as its cache stands; ours delivers what comes after the revision.
    let server = TestServer::start(&[]).await;
    let mut client = reader(&server, "watch-ahead").await;
    let now = client.create("a", json!({})).await;
    let mut watcher = super::Reader {
        connection: client.connection.share().expect("another stream"),
        collection: client.collection.clone(),
    };
    let query = format!("timeoutSeconds=2&resourceVersion={}", now + 2);
    let watching = tokio::spawn(async move { watcher.watch(&query).await });
    let mut versions = Vec::new();
    for step in 1..=5 {
        versions.push(client.change("a", step).await);
    }
    let (_, events) = watching.await.expect("the watcher");
    let seen: Vec<u64> = events.iter().map(|e| version(&e["object"])).collect();
    let expected: Vec<u64> = versions.into_iter().filter(|v| *v > now + 2).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_watch_without_a_timeout_ends_by_itself() {
    let server = TestServer::start(&["--min-request-timeout=1"]).await;
    let mut client = reader(&server, "watch-length").await;
    let made = client.create("a", json!({})).await;
    let (_, events) = client.watch("resourceVersion=0").await;
    assert!(events.iter().any(|event| version(&event["object"]) == made), "{events:?}");
}

#[tokio::test]
async fn a_last_bookmark_comes_before_the_end() {
    let server = shared().await;
    let mut client = reader(server, "watch-bookmark").await;
    let made = client.create("a", json!({})).await;
    let (_, events) =
        client.watch(&format!("allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion={made}")).await;
    let bookmarks: Vec<&Value> = events.iter().filter(|e| e["type"] == "BOOKMARK").collect();
    assert!(!bookmarks.is_empty(), "{events:?}");
    for bookmark in bookmarks {
        assert!(version(&bookmark["object"]) >= made, "{bookmark}");
        assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    }
    // And none for those who did not ask.
    let (_, events) = client.watch(&format!("timeoutSeconds=4&resourceVersion={made}")).await;
    assert_eq!(summarize(&events), Vec::<String>::new());
}
