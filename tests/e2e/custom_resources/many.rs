//! Hundreds of definitions: each is served when it says so, and all of them again after a restart.

use futures::{stream, StreamExt};
use http::Method;
use plinth_tests::definitions::{definition, establish, until_established, DEFINITIONS};
use plinth_tests::requests::call;
use plinth_tests::server::TestServer;
use serde_json::{json, Value};

/// The number of definitions that is promised.
const MANY: usize = 500;
/// Requests at a time.
const AT_ONCE: usize = 8;

/// A schema of the size that definitions of real projects have, some 15 KiB.
fn schema() -> Value {
    let mut fields = serde_json::Map::new();
    for i in 0..120 {
        let described = "What this field is for, told at the length that real projects use for it.";
        fields.insert(
            format!("field{i}"),
            json!({"type": "string", "description": described, "maxLength": 200}),
        );
    }
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}})
}

#[tokio::test]
async fn five_hundred_definitions_are_served_and_survive_a_restart() {
    let mut server = TestServer::start(&[]).await;
    let client = server.client().await;
    let group = |i: usize| format!("g{}.many.example.com", i % 20);
    let kind = |i: usize| format!("Kind{i}");
    let make = |i: usize| {
        let client = client.clone();
        async move {
            let definition = definition(&group(i), &kind(i), "Cluster", schema());
            let (code, answer) = call(&client, Method::POST, DEFINITIONS, Some(&definition)).await;
            assert_eq!(code, 201, "{answer}");
        }
    };
    stream::iter(0..MANY - 1).for_each_concurrent(AT_ONCE, make).await;
    let established = |i: usize| {
        let client = client.clone();
        async move { until_established(&client, &format!("kind{i}s.{}", group(i))).await }
    };
    stream::iter(0..MANY - 1).for_each_concurrent(AT_ONCE, established).await;
    // The last one is served as soon as it is established, like the first.
    let last = MANY - 1;
    establish(&client, &definition(&group(last), &kind(last), "Cluster", schema())).await;
    let path = |i: usize| format!("/apis/{}/v1/kind{i}s", group(i));
    let object = |i: usize| {
        json!({"apiVersion": format!("{}/v1", group(i)), "kind": kind(i), "metadata": {"name": "a"},
               "spec": {"field1": "x"}})
    };
    assert_eq!(call(&client, Method::POST, &path(last), Some(&object(last))).await.0, 201);

    server.kill();
    server.restart().await;
    let client = server.client().await;
    for i in [0, MANY / 2, last] {
        let (code, list) = call(&client, Method::GET, &path(i), None).await;
        assert_eq!(code, 200, "{list}");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(usize::from(i == last)));
    }
    let (_, groups) = call(&client, Method::GET, "/apis", None).await;
    let many = groups["groups"].as_array().expect("groups").iter();
    assert_eq!(
        many.filter(|g| g["name"].as_str().is_some_and(|n| n.ends_with(".many.example.com"))).count(),
        20
    );
}
