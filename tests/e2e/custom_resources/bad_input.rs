//! Definitions and objects that are refused: with the field, and nothing stored.

use http::Method;
use plinth_tests::definitions::{definition, establish, DEFINITIONS};
use plinth_tests::requests::{call, call_with, fields};
use plinth_tests::server::{shared_with_apis, unique};
use serde_json::{json, Value};

#[tokio::test]
async fn definitions_are_refused_with_their_fields() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("refused"));
    let good = definition(&group, "Bad", "Namespaced", json!({"type": "object"}));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut definition = good.clone();
        change(&mut definition);
        definition
    };
    let version = |d: &mut Value, key: &str, value: Value| d["spec"]["versions"][0][key] = value;
    let rows: Vec<(Value, &str)> = vec![
        (with(&|d| d["metadata"]["name"] = json!(format!("wrong.{group}"))), "metadata.name"),
        (with(&|d| d["spec"]["scope"] = json!("Galaxy")), "spec.scope"),
        (with(&|d| d["spec"]["names"]["kind"] = json!("9x")), "spec.names.kind"),
        (with(&|d| version(d, "name", json!("V1"))), "spec.versions[0].name"),
        (with(&|d| version(d, "storage", json!(false))), "spec.versions"),
        (
            with(&|d| version(d, "schema", json!({"openAPIV3Schema": {"properties": {"a": {}}}}))),
            "spec.validation.openAPIV3Schema.type",
        ),
        (
            with(&|d| version(d, "subresources", json!({"scale": {"specReplicasPath": ".spec.n"}}))),
            "spec.subresources.scale.statusReplicasPath",
        ),
        (
            with(&|d| {
                version(
                    d,
                    "additionalPrinterColumns",
                    json!([{"name": "A", "type": "odd", "jsonPath": ".x"}]),
                )
            }),
            "spec.additionalPrinterColumns[0].type",
        ),
        (
            with(&|d| d["spec"]["conversion"] = json!({"strategy": "Webhook"})),
            "spec.conversion.webhookClientConfig",
        ),
    ];
    for (bad, field) in rows {
        let (code, refused) = call(&client, Method::POST, DEFINITIONS, Some(&bad)).await;
        assert_eq!(code, 422, "{field}: {refused}");
        assert!(fields(&refused).contains(&field), "{field}: {refused}");
    }
    assert_eq!(call(&client, Method::GET, &format!("{DEFINITIONS}/bads.{group}"), None).await.0, 404);
}

#[tokio::test]
async fn objects_that_are_too_large_or_too_deep_are_refused_and_the_server_goes_on() {
    let client = shared_with_apis().await.client().await;
    let group = format!("{}.example.com", unique("large"));
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    establish(&client, &definition(&group, "Big", "Cluster", open)).await;
    let path = format!("/apis/{group}/v1/bigs");
    let large = json!({"apiVersion": format!("{group}/v1"), "kind": "Big", "metadata": {"name": "a"},
        "spec": {"x": "y".repeat(3 << 20)}});
    assert_eq!(call(&client, Method::POST, &path, Some(&large)).await.0, 413);
    let head = format!(r#"{{"apiVersion":"{group}/v1","kind":"Big","metadata":{{"name":"deep"}},"spec":"#);
    let nested = |depth: usize| format!("{head}{}1{}}}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let (code, refused) = call_with(&client, Method::POST, &path, "application/json", nested(20_000)).await;
    assert_eq!(code, 400, "{refused}");
    let (code, made) = call_with(&client, Method::POST, &path, "application/json", nested(100)).await;
    assert_eq!(code, 201, "{made}");
    let (_, list) = call(&client, Method::GET, &path, None).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
}
