//! Pages of lists: one revision across pages, `remainingItemCount`, tokens that cannot be forged.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::server::{shared, TestServer};
use serde_json::{json, Value};

use super::{items, reader, version};

#[tokio::test]
async fn pages_show_one_moment_whatever_is_written_between_them() {
    let server = shared().await;
    let mut client = reader(server, "chunks").await;
    let names: Vec<String> = (0..10).map(|n| format!("cm-{n}")).collect();
    for name in &names {
        client.create(name, json!({})).await;
    }
    let (_, first) = client.list("limit=3").await;
    let (mut seen, mut page, mut pages) = (Vec::new(), first.clone(), 0);
    loop {
        pages += 1;
        assert_eq!(version(&page), version(&first));
        seen.extend(items(&page));
        let Some(token) = page["metadata"]["continue"].as_str().map(str::to_owned) else { break };
        let own = seen.len() as u64;
        // The ConfigMap that a controller puts into each namespace may be there or not.
        let remaining = page["metadata"]["remainingItemCount"].as_u64().expect("a count");
        assert!(remaining == 10 - own || remaining == 11 - own, "{page}");
        let name = format!("cm-{}", 9 - pages);
        client.change(&name, pages).await;
        client.create(&format!("cm-{pages}-new"), json!({})).await;
        // The page may be another size than the one before.
        page = client.list(&format!("limit={}&continue={token}", 2 + pages)).await.1;
        assert_eq!(page["kind"], "ConfigMapList", "{page}");
    }
    assert!(page["metadata"].get("remainingItemCount").is_none(), "{page}");
    let own: Vec<(String, String)> = seen.into_iter().filter(|(name, _)| name.starts_with("cm-")).collect();
    assert_eq!(own, names.iter().map(|name| (name.clone(), "0".into())).collect::<Vec<_>>());
}

#[tokio::test]
async fn selected_pages_have_no_remaining_item_count() {
    let server = shared().await;
    let mut client = reader(server, "chunks-selected").await;
    for n in 0..6 {
        client.create(&format!("cm-{n}"), json!({"parity": if n % 2 == 0 { "even" } else { "odd" }})).await;
    }
    let (_, page) = client.list("limit=2&labelSelector=parity%3Deven").await;
    assert_eq!(items(&page).iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["cm-0", "cm-2"]);
    assert!(page["metadata"].get("remainingItemCount").is_none(), "{page}");
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let (_, last) = client.list(&format!("limit=2&labelSelector=parity%3Deven&continue={token}")).await;
    assert_eq!(items(&last).iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["cm-4"]);
    assert!(last["metadata"].get("continue").is_none(), "{last}");
}

#[tokio::test]
async fn pages_of_every_encoding_hold_the_same() {
    let server = shared().await;
    let mut client = reader(server, "chunks-encodings").await;
    for n in 0..4 {
        client.create(&format!("cm-{n}"), json!({})).await;
    }
    let path = format!("{}?limit=2", client.collection);
    let expected = client.ask(&path).await.1;
    for accept in [
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    ] {
        let call = plinth_benches::api::client::Call::get(path.as_str()).accept(accept);
        let reply = client.connection.must(&call).await.expect(accept);
        // The token has the start of the next page: it is the same in every encoding.
        let token = expected["metadata"]["continue"].as_str().expect("a token");
        let next = format!("{}?limit=9&continue={token}", client.collection);
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        for name in ["cm-0", "cm-1"] {
            assert!(text.contains(name), "{accept}: {name} is missing");
        }
        assert!(!text.contains("cm-2"), "{accept}: more than the page");
        let rest = client.connection.must(&plinth_benches::api::client::Call::get(next).accept(accept)).await;
        let text = String::from_utf8_lossy(&rest.expect(accept).body).into_owned();
        assert!(text.contains("cm-2") && text.contains("cm-3") && !text.contains("cm-1"), "{accept}");
    }
}

#[tokio::test]
async fn a_token_that_was_changed_is_none() {
    let server = shared().await;
    let mut client = reader(server, "chunks-tokens").await;
    for name in ["a", "b", "c"] {
        client.create(name, json!({})).await;
    }
    let (_, page) = client.list("limit=1").await;
    let token = page["metadata"]["continue"].as_str().expect("a token").to_owned();
    for bad in ["x", "", "e30", &token[1..], &token[..token.len() - 2]] {
        let (status, answer) = client.list(&format!("limit=1&continue={bad}")).await;
        // An empty token is none at all: the first page.
        let expected = if bad.is_empty() { 200 } else { 400 };
        assert_eq!(status, expected, "{bad:?}: {answer}");
    }
    // One that has the form and another signature may be of a key that was lost.
    let json = URL_SAFE_NO_PAD.decode(&token).expect("base64");
    let json = String::from_utf8(json).expect("text").replace("\"returned\":1", "\"returned\":2");
    let changed = URL_SAFE_NO_PAD.encode(json);
    assert_ne!(changed, token);
    let (status, answer) = client.list(&format!("limit=1&continue={changed}")).await;
    assert_expired(status, &answer);
}

/// 410 without a token to go on with.
fn assert_expired(status: u16, answer: &Value) {
    assert_eq!((status, answer["reason"].as_str()), (410, Some("Expired")), "{answer}");
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(message.contains("You must start a new list without the continue parameter"), "{answer}");
    assert!(answer["metadata"].get("continue").is_none(), "{answer}");
}

#[tokio::test]
async fn tokens_of_a_key_that_was_lost_are_expired() {
    let mut server = TestServer::start(&[]).await;
    let mut client = reader(&server, "lost-key").await;
    for name in ["a", "b"] {
        client.create(name, json!({})).await;
    }
    let (_, page) = client.list("limit=1").await;
    let token = page["metadata"]["continue"].as_str().expect("a token").to_owned();
    server.terminate().await;
    std::fs::remove_file(server.data().join("continue.key")).expect("remove");
    server.restart().await;
    let path = format!("{}?limit=1&continue={token}", client.collection);
    let mut connection = server.connect(Protocol::Http1).await;
    let reply = connection.call(&Call::get(path)).await.expect("an answer");
    assert_expired(reply.status.into(), &serde_json::from_slice(&reply.body).expect("a Status"));
}

#[tokio::test]
async fn a_token_reads_only_the_collection_that_it_is_put_to() {
    let server = shared().await;
    let mut one = reader(server, "chunks-one").await;
    let mut other = reader(server, "chunks-other").await;
    for name in ["a", "b", "c"] {
        one.create(name, json!({})).await;
        other.create(name, json!({"of": "other"})).await;
    }
    let (_, page) = one.list("limit=1").await;
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let (status, list) = other.list(&format!("limit=100&continue={token}")).await;
    assert_eq!(status, 200, "{list}");
    let namespace = other.collection.split('/').nth(4).expect("a namespace");
    for item in list["items"].as_array().expect("items") {
        assert_eq!(item["metadata"]["namespace"], namespace, "{item}");
    }
}
