//! Several versions of one definition: served side by side, stored in one, moved to another.

use http::Method;
use plinth_tests::definitions::{establish, until, with_versions, DEFINITIONS};
use plinth_tests::requests::{call, call_with};
use plinth_tests::server::{shared_with_apis, unique, TestServer};
use serde_json::{json, Value};

fn version(name: &str, storage: bool, fields: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
        "properties": {"spec": {"type": "object", "properties": fields}}}}})
}

fn dish(group: &str, name: &str, version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}/{version}"), "kind": "Dish", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn versions_show_the_same_objects_each_by_its_own_schema() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("versions"));
    let fields = json!({"name": {"type": "string"}, "size": {"type": "integer"}});
    let versions = json!([
        version("v1", true, fields.clone()),
        version(
            "v2",
            false,
            json!({"name": {"type": "string"}, "hot": {"type": "boolean", "default": true}})
        ),
    ]);
    establish(&client, &with_versions(&group, "Dish", "Cluster", versions)).await;
    let path = |version: &str| format!("/apis/{group}/{version}/dishes");
    // The plural of the helper is not English.
    let path = |version: &str| path(version).replace("dishes", "dishs");
    let one = dish(&group, "a", "v1", json!({"name": "x", "size": 3}));
    assert_eq!(call(&client, Method::POST, &path("v1"), Some(&one)).await.0, 201);
    let (code, seen) = call(&client, Method::GET, &format!("{}/a", path("v2")), None).await;
    assert_eq!((code, &seen["apiVersion"]), (200, &json!(format!("{group}/v2"))));
    // What the version does not know is not shown, and stays where it is.
    assert_eq!(seen["spec"]["name"], "x");
    assert!(seen["spec"].get("size").is_none(), "{seen}");
    let (_, still) = call(&client, Method::GET, &format!("{}/a", path("v1")), None).await;
    assert_eq!(still["spec"], json!({"name": "x", "size": 3}));
    let (_, list) = call(&client, Method::GET, &path("v2"), None).await;
    assert_eq!(list["items"][0]["apiVersion"], json!(format!("{group}/v2")));
    // Written through the other version, stored in the first.
    let two = dish(&group, "b", "v2", json!({"name": "y", "hot": false}));
    let (code, made) = call(&client, Method::POST, &path("v2"), Some(&two)).await;
    assert_eq!((code, &made["apiVersion"]), (201, &json!(format!("{group}/v2"))), "{made}");
    let (_, seen) = call(&client, Method::GET, &format!("{}/b", path("v1")), None).await;
    assert_eq!((&seen["spec"]["name"], seen["spec"].get("hot")), (&json!("y"), None));
    // A body of another version than the path's is refused.
    let (code, refused) = call(&client, Method::POST, &path("v2"), Some(&one)).await;
    assert_eq!(code, 400, "{refused}");
}

#[tokio::test]
async fn a_new_storage_version_leaves_old_objects_readable() {
    let mut server = TestServer::start(&[]).await;
    let client = server.client().await;
    let group = "move.example.com";
    let fields = || json!({"name": {"type": "string"}});
    let definition = with_versions(
        group,
        "Dish",
        "Cluster",
        json!([version("v1", true, fields()), version("v2", false, fields())]),
    );
    establish(&client, &definition).await;
    let old = dish(group, "old", "v1", json!({"name": "x"}));
    assert_eq!(call(&client, Method::POST, "/apis/move.example.com/v1/dishs", Some(&old)).await.0, 201);

    let name = format!("dishs.{group}");
    let path = format!("{DEFINITIONS}/{name}");
    let merge = "application/merge-patch+json";
    let fields = json!({"name": {"type": "string"}, "spicy": {"type": "boolean", "default": true}});
    let versions =
        json!({"spec": {"versions": [version("v1", false, fields.clone()), version("v2", true, fields)]}});
    let (code, changed) = call_with(&client, Method::PATCH, &path, merge, versions.to_string()).await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    // The API follows the definition: wait for what only the new schema fills in.
    let read = |version: &'static str| {
        let client = client.clone();
        async move {
            let path = format!("/apis/move.example.com/{version}/dishs/old");
            loop {
                let (_, seen) = call(&client, Method::GET, &path, None).await;
                if seen["spec"].get("spicy").is_some() {
                    return seen;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    };
    let wait = std::time::Duration::from_secs(60);
    for version in ["v1", "v2"] {
        let seen = tokio::time::timeout(wait, read(version)).await.expect("defaults of the new schema");
        assert_eq!(seen["spec"], json!({"name": "x", "spicy": true}));
        assert_eq!(seen["apiVersion"], json!(format!("{group}/{version}")));
    }
    server.terminate().await;
    server.restart().await;
    let client = server.client().await;
    let (code, list) = call(&client, Method::GET, "/apis/move.example.com/v2/dishs", None).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(1)));

    // A version in which objects are stored cannot go from the definition, until somebody says that none are
    // left.
    let gone = json!({"spec": {"versions": [version("v2", true, json!({"name": {"type": "string"}}))]}});
    let (code, refused) = call_with(&client, Method::PATCH, &path, merge, gone.to_string()).await;
    assert_eq!(code, 422, "{refused}");
    let (_, object) = call(&client, Method::GET, "/apis/move.example.com/v2/dishs/old", None).await;
    assert_eq!(call(&client, Method::PUT, "/apis/move.example.com/v2/dishs/old", Some(&object)).await.0, 200);
    let status = json!({"status": {"storedVersions": ["v2"]}}).to_string();
    let (code, answer) = call_with(&client, Method::PATCH, &format!("{path}/status"), merge, status).await;
    assert_eq!(code, 200, "{answer}");
    let (code, answer) = call_with(&client, Method::PATCH, &path, merge, gone.to_string()).await;
    assert_eq!(code, 200, "{answer}");
    until(&client, &name, |d| d["spec"]["versions"].as_array().is_some_and(|v| v.len() == 1)).await;
    let (code, seen) = call(&client, Method::GET, "/apis/move.example.com/v2/dishs/old", None).await;
    assert_eq!((code, &seen["spec"]["name"]), (200, &json!("x")), "{seen}");
}

#[tokio::test]
async fn deprecated_versions_come_with_a_warning() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("old"));
    let mut old = version("v1", true, json!({}));
    old["deprecated"] = json!(true);
    let versions = json!([old, version("v2", false, json!({}))]);
    establish(&client, &with_versions(&group, "Dish", "Cluster", versions)).await;
    for (version, warned) in [("v1", true), ("v2", false)] {
        let request = http::Request::get(format!("/apis/{group}/{version}/dishs"));
        let request = request.body(kube::client::Body::empty()).expect("a request");
        let response = client.send(request).await.expect("an answer");
        let warning = response.headers().get("warning").and_then(|w| w.to_str().ok()).unwrap_or_default();
        let expected = format!("{group}/v1 Dish is deprecated; use {group}/v2 Dish");
        assert_eq!(warning.contains(&expected), warned, "{version}: {warning}");
    }
}
