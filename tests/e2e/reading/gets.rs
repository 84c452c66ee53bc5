//! get: the most recent state, any state, one not older than a revision, and, ours alone, one at an exact
//! revision.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use plinth_tests::definitions::{definition, establish};
use plinth_tests::requests::create;
use plinth_tests::server::{shared, unique, TestServer};
use serde_json::{json, Value};

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

#[tokio::test]
async fn json_is_indented_for_people_and_on_request() {
    let mut client = reader(shared().await, "pretty").await;
    client.create("a", json!({})).await;
    // query, User-Agent, whether the answer is indented
    let rows = [
        ("", "kubectl/v1.36.0", false),
        ("", "curl/8.5.0", true),
        ("resourceVersion=0", "curl/8.5.0", true),
        ("timeout=10s&limit=5", "Wget/1.21", true),
        ("pretty=", "Mozilla/5.0 (X11)", true),
        ("pretty=true", "kubectl/v1.36.0", true),
        ("resourceVersion=0&pretty=1", "kubectl/v1.36.0", true),
        ("pretty=true&timeout=10s", "", true),
        ("pretty=false", "curl/8.5.0", false),
        ("pretty=0&pretty=1", "curl/8.5.0", false),
        ("pretty=maybe", "curl/8.5.0", false),
        ("ugly=pretty", "kubectl/v1.36.0", false),
    ];
    let ask = async |client: &mut super::Reader, path: &str, agent: &str| {
        let request = Request::get("/").header("user-agent", agent).body(Full::new(Bytes::new()));
        let answer = client.connection.send(request.expect("request"), path).await.expect("an answer");
        answer.into_body().collect().await.expect("body").to_bytes()
    };
    let group = unique("pretty.example.com").replace('_', "-");
    let object = json!({"type": "object"});
    let admin = shared().await.client().await;
    establish(&admin, &definition(&group, "Thing", "Namespaced", object)).await;
    let things = format!("/apis/{group}/v1/namespaces/default/things");
    let thing = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a"}});
    create(&admin, &things, &thing).await;
    // An object, a list, an error, a custom object and its list, discovery.
    let own = client.collection.clone();
    let paths = [
        format!("{own}/a"),
        own.clone(),
        format!("{own}/none"),
        format!("{things}/a"),
        things,
        "/api".to_owned(),
    ];
    let documents = ["/apis".to_owned(), "/apis/apps".to_owned(), format!("/apis/{group}/v1")];
    for (query, agent, indented) in rows {
        for path in paths.iter().chain(&documents) {
            let path = format!("{path}?{query}");
            let body = ask(&mut client, &path, agent).await;
            assert_eq!(body.starts_with(b"{\n  \""), indented, "{path} {agent}: {body:?}");
            // Go's encoder ends a document, its indenter does not.
            assert_eq!(body.ends_with(b"\n"), !indented, "{path} {agent}: {body:?}");
        }
    }
    // The events of a watch are lines.
    let path = format!("{}?watch=1&timeoutSeconds=1&pretty=true", client.collection);
    let events = ask(&mut client, &path, "curl/8.5.0").await;
    let line = events.split(|byte| *byte == b'\n').next().expect("an event");
    let event: Value = serde_json::from_slice(line).expect("JSON");
    assert_eq!(event["type"], "ADDED");
    assert!(line.ends_with(b"}}"), "{line:?}");
}
