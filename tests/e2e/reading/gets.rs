//! get: the most recent state, any state, one not older than a revision, and, ours alone, one at an exact revision.

use plinth_tests::server::{shared, TestServer};
use serde_json::json;

use super::{reader, refusal, version};

#[tokio::test]
async fn every_row_of_get() {
    let server = shared().await;
    let mut client = reader(server, "get-table").await;
    let old = client.create("a", json!({})).await;
    let newest = client.change("a", 1).await;
    let path = format!("{}/a", client.collection);
    // `ExactOLD` is upstream's too: a get ignores the match there and shows the newest.
    for query in ["", "?resourceVersion=", "?resourceVersion=0", &format!("?resourceVersion={old}")] {
        let (status, object) = client.ask(&format!("{path}{query}")).await;
        assert_eq!((status, version(&object)), (200, newest), "{query}: {object}");
        assert_eq!(object["data"]["step"], "1", "{query}");
    }
    let (status, refused) = client.ask(&format!("{path}?resourceVersion=x")).await;
    assert_eq!((status, refusal(&refused).0), (500, 500), "{refused}");
}

#[tokio::test]
async fn an_object_is_shown_as_it_was() {
    // Of our own server: upstream has no such read.
    let server = TestServer::start(&[]).await;
    let mut client = reader(&server, "get-exact").await;
    let first = client.create("a", json!({})).await;
    let second = client.change("a", 1).await;
    client.delete("a").await;
    let again = client.create("a", json!({})).await;
    let path = format!("{}/a", client.collection);
    let exact = |revision: u64| format!("{path}?resourceVersion={revision}&resourceVersionMatch=Exact");
    for (revision, step, of) in [(first, "0", first), (second, "1", second), (again, "0", again)] {
        let (status, object) = client.ask(&exact(revision)).await;
        assert_eq!(
            (status, version(&object), object["data"]["step"].as_str()),
            (200, of, Some(step)),
            "{object}"
        );
    }
    for revision in [first - 1, again - 1] {
        let (status, absent) = client.ask(&exact(revision)).await;
        assert_eq!((status, refusal(&absent).1), (404, "NotFound"), "at {revision}: {absent}");
    }
}
