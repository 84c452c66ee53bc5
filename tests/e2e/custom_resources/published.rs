//! The definitions of real projects: installed, established, taking valid objects and refusing others.

use std::fs;

use http::Method;
use plinth_tests::definitions::{until_established, DEFINITIONS};
use plinth_tests::fixtures;
use plinth_tests::requests::{call, call_with, fields};
use plinth_tests::server::TestServer;
use serde_json::{json, Map, Value};

/// A value that fits a schema: what is required and nothing else.
fn fitting(schema: &Value) -> Value {
    if let Some(default) = schema.get("default") {
        return default.clone();
    }
    if let Some(first) = schema["enum"].as_array().and_then(|e| e.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let members = required.iter().filter_map(Value::as_str);
            let members = members.map(|name| (name.to_owned(), fitting(&schema["properties"][name])));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Some("array") => {
            let least = schema["minItems"].as_u64().unwrap_or(0);
            Value::Array((0..least).map(|_| fitting(&schema["items"])).collect())
        }
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        _ => json!("a"),
    }
}

#[tokio::test]
async fn definitions_of_real_projects_are_served() {
    let Some(dir) = fixtures::directory("published definitions") else { return };
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let mut established = 0;
    for file in fixtures::manifests(&dir) {
        let text = fs::read_to_string(&file).expect("a manifest");
        if !text.lines().any(|line| line == "kind: CustomResourceDefinition") {
            continue;
        }
        for part in text.split("\n---").filter(|p| p.contains("kind: CustomResourceDefinition")) {
            let (code, made) =
                call_with(&client, Method::POST, DEFINITIONS, "application/yaml", part.as_bytes()).await;
            assert_eq!(code, 201, "{}: {made}", file.display());
            let name = made["metadata"]["name"].as_str().expect("a name").to_owned();
            until_established(&client, &name).await;
            established += 1;
            takes_and_refuses(&client, &made).await;
        }
    }
    assert!(established > 25, "{established}");
}

/// Each served version takes an object with what is required and refuses one whose spec is no object.
async fn takes_and_refuses(client: &kube::Client, definition: &Value) {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().expect("a group");
    let plural = spec["names"]["plural"].as_str().expect("a plural");
    for version in spec["versions"].as_array().expect("versions").iter().filter(|v| v["served"] == true) {
        let name = version["name"].as_str().expect("a name");
        let path = match spec["scope"].as_str() {
            Some("Namespaced") => format!("/apis/{group}/{name}/namespaces/default/{plural}"),
            _ => format!("/apis/{group}/{name}/{plural}"),
        };
        let schema = &version["schema"]["openAPIV3Schema"];
        let mut object = json!({"apiVersion": format!("{group}/{name}"), "kind": spec["names"]["kind"],
            "metadata": {"name": format!("sample-{name}")}});
        for member in schema["properties"].as_object().expect("properties").keys() {
            if matches!(member.as_str(), "spec" | "rules" | "webhooks") {
                object[member] = fitting(&schema["properties"][member]);
            }
        }
        let mut bad = object.clone();
        bad["spec"] = json!("no object");
        let (code, refused) = call(client, Method::POST, &path, Some(&bad)).await;
        assert_eq!(code, 422, "{plural}/{name}: {refused}");
        assert!(fields(&refused).contains(&"spec"), "{refused}");
        let (code, answer) = call(client, Method::POST, &path, Some(&object)).await;
        // What a pattern or a rule requires beyond the required fields cannot be guessed; then the error
        // names the field.
        match code {
            201 => {
                let (code, again) = call(client, Method::GET, &format!("{path}/sample-{name}"), None).await;
                assert_eq!((code, &again["spec"]), (200, &answer["spec"]), "{plural}/{name}");
            }
            422 => assert!(!fields(&answer).is_empty(), "{plural}/{name}: {answer}"),
            _ => panic!("{plural}/{name}: {code} {answer}"),
        }
    }
}
