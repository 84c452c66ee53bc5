//! deletecollection deletes what a list with the same options shows. Each row was put to kube-apiserver
//! v1.36.2, too.

use http::Method;
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_tests::server::{TestServer, BARE_NAMESPACES};
use serde_json::{json, Value};

use super::{reader, Reader};

/// Without a body the query's resourceVersion is a precondition of each object as well.
const BODY: &str = r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#;

async fn delete(client: &mut Reader, query: &str, body: Option<&'static str>) -> (u16, Value) {
    let mut call = Call::new(Method::DELETE, format!("{}?{query}", client.collection));
    if let Some(body) = body {
        call = call.body(JSON, body);
    }
    let reply = client.connection.call(&call).await.expect("an answer");
    (reply.status.as_u16(), serde_json::from_slice(&reply.body).expect("JSON"))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

async fn left(client: &mut Reader) -> String {
    let (_, list) = client.list("").await;
    names(&list).join(" ")
}

#[tokio::test]
async fn it_deletes_what_a_list_with_the_same_options_shows() {
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let mut client = reader(&server, "collection").await;
    client.connection = server.connect(Protocol::Http2).await;
    let first = client.create("a", json!({})).await;
    let second = client.create("b", json!({})).await;
    for name in ["c", "d", "e"] {
        client.create(name, json!({})).await;
    }

    let refused = [
        ("resourceVersionMatch=Exact".to_owned(), 422, "resourceVersionMatch"),
        (format!("resourceVersion={first}&resourceVersionMatch=Other"), 422, "resourceVersionMatch"),
        ("resourceVersion=0&resourceVersionMatch=Exact".to_owned(), 422, "resourceVersionMatch"),
        ("sendInitialEvents=true".to_owned(), 422, "sendInitialEvents"),
        ("resourceVersion=x".to_owned(), 400, ""),
        ("continue=abc".to_owned(), 400, ""),
        // The second object is not at the revision of the first one.
        (
            format!(
                "resourceVersion={first}&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Db"
            ),
            409,
            "",
        ),
    ];
    for (query, code, field) in refused {
        let (answered, status) = delete(&mut client, &query, None).await;
        assert_eq!(answered, code, "{query}: {status}");
        assert_eq!(status["details"]["causes"][0]["field"].as_str().unwrap_or_default(), field, "{query}");
        assert_eq!(left(&mut client).await, "a b c d e", "{query}");
    }

    // Those of an earlier state; what came later stays.
    let query = format!("resourceVersion={second}&resourceVersionMatch=Exact");
    let (code, list) = delete(&mut client, &query, Some(BODY)).await;
    assert_eq!((code, names(&list)), (200, vec!["a", "b"]));
    assert_eq!(left(&mut client).await, "c d e");

    // A page, and the next one.
    let (code, list) = delete(&mut client, "limit=2", None).await;
    assert_eq!((code, names(&list)), (200, vec!["c", "d"]));
    assert_eq!(list["metadata"]["remainingItemCount"], 1);
    assert_eq!(left(&mut client).await, "e");
    let token = list["metadata"]["continue"].as_str().expect("a token").to_owned();
    let (code, list) = delete(&mut client, &format!("limit=2&continue={token}"), None).await;
    assert_eq!((code, names(&list)), (200, vec!["e"]));
    assert_eq!(list["metadata"].get("continue"), None);
    assert_eq!(left(&mut client).await, "");
}

#[tokio::test]
async fn a_query_states_preconditions() {
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let mut client = reader(&server, "preconditions").await;
    let version = client.create("x", json!({})).await;
    let path = format!("{}/x", client.collection);
    let (_, object) = client.ask(&path).await;
    let uid = object["metadata"]["uid"].as_str().expect("a UID");
    let mut answers = Vec::new();
    for query in [
        "resourceVersion=1".to_owned(),
        "uid=other".to_owned(),
        format!("resourceVersion={version}&uid={uid}"),
    ] {
        let call = Call::new(Method::DELETE, format!("{path}?{query}"));
        answers.push(client.connection.call(&call).await.expect("an answer").status.as_u16());
    }
    assert_eq!(answers, [409, 409, 200]);
}
