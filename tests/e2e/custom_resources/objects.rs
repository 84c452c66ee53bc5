//! Objects of custom resources through every verb and representation.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::Client;
use plinth_tests::definitions::{establish, with_versions};
use plinth_tests::requests::{call, call_with, fields};
use plinth_tests::server::{namespace, shared_with_apis, unique};
use serde_json::{json, Value};

/// A definition that uses most features.
fn widget(group: &str) -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "replicas": {"type": "integer", "minimum": 0, "default": 1},
            "list": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map",
                     "x-kubernetes-list-map-keys": ["name"],
                     "items": {"type": "object", "required": ["name"], "properties": {
                         "name": {"type": "string", "maxLength": 5}, "v": {"type": "string"}}}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {
            "replicas": {"type": "integer"}, "selector": {"type": "string"}}}}});
    let mut definition = with_versions(
        group,
        "Widget",
        "Namespaced",
        json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "additionalPrinterColumns": [
                {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1}]}]),
    );
    definition["spec"]["names"]["shortNames"] = json!(["th"]);
    definition["spec"]["names"]["categories"] = json!(["all"]);
    definition
}

/// The definition, established, and the path of its objects in a namespace of the test's own.
async fn widgets(client: &Client) -> (String, String) {
    let group = format!("{}.example.com", unique("widgets"));
    let namespace = namespace(client, "widgets").await;
    establish(client, &widget(&group)).await;
    (format!("{group}/v1"), format!("/apis/{group}/v1/namespaces/{namespace}/widgets"))
}

fn object(api_version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn unknown_fields_go_defaults_come_and_the_status_is_the_servers() {
    let client = shared_with_apis().await.client().await;
    let (version, path) = widgets(&client).await;
    let mut given = object(&version, "a", json!({"bogus": 1, "any": {"x": {"y": 1}}}));
    given["status"] = json!({"replicas": 4});
    given["extra"] = json!(true);
    let (code, made) = call(&client, Method::POST, &path, Some(&given)).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"], json!({"color": "red", "replicas": 1, "any": {"x": {"y": 1}}}));
    assert!(made.get("extra").is_none() && made.get("status").is_none(), "{made}");
    assert_eq!(made["metadata"]["generation"], 1);
    let (code, refused) =
        call(&client, Method::POST, &format!("{path}?fieldValidation=Strict"), Some(&given)).await;
    assert_eq!(code, 400);
    assert!(
        refused["message"].as_str().is_some_and(|m| m.contains(r#"unknown field "spec.bogus""#)),
        "{refused}"
    );

    // The status is written by itself, and counts in no generation.
    let body = json!({"spec": {"color": "green"}, "status": {"replicas": 2, "selector": "a=b"}}).to_string();
    let media = "application/merge-patch+json";
    let (code, status) = call_with(&client, Method::PATCH, &format!("{path}/a/status"), media, body).await;
    assert_eq!((code, &status["spec"]["color"]), (200, &json!("red")), "{status}");
    assert_eq!((&status["status"]["replicas"], &status["metadata"]["generation"]), (&json!(2), &json!(1)));
    let (code, scale) = call(&client, Method::GET, &format!("{path}/a/scale"), None).await;
    assert_eq!(code, 200);
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(1), &json!("a=b")));
    let body = json!({"spec": {"replicas": 3}}).to_string();
    let (code, scale) = call_with(&client, Method::PATCH, &format!("{path}/a/scale"), media, body).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(3)), "{scale}");
    let (_, scaled) = call(&client, Method::GET, &format!("{path}/a"), None).await;
    assert_eq!((&scaled["spec"]["replicas"], &scaled["metadata"]["generation"]), (&json!(3), &json!(2)));
}

#[tokio::test]
async fn invalid_objects_are_refused_with_their_fields_and_nothing_is_stored() {
    let client = shared_with_apis().await.client().await;
    let (version, path) = widgets(&client).await;
    let rows = [
        (json!({"replicas": "many"}), "spec.replicas"),
        (json!({"replicas": -1}), "spec.replicas"),
        (json!({"color": "blue"}), "spec.color"),
        (json!({"list": [{"name": "toolong"}]}), "spec.list[0].name"),
        (json!({"list": [{"v": "x"}]}), "spec.list[0].name"),
        (json!({"list": [{"name": "a"}, {"name": "a"}]}), "spec.list[1]"),
    ];
    for (spec, field) in rows {
        let (code, refused) = call(&client, Method::POST, &path, Some(&object(&version, "bad", spec))).await;
        assert_eq!(code, 422, "{refused}");
        assert!(fields(&refused).contains(&field), "{field}: {refused}");
    }
    let (_, list) = call(&client, Method::GET, &path, None).await;
    assert_eq!(list["items"], json!([]));
    // Lists of custom resources have an empty continue token.
    assert_eq!(list["metadata"]["continue"], "");
}

#[tokio::test]
async fn patches_of_three_kinds_and_one_that_is_not_taken() {
    let client = shared_with_apis().await.client().await;
    let (version, path) = widgets(&client).await;
    let given = object(&version, "a", json!({"list": [{"name": "x", "v": "1"}]}));
    assert_eq!(call(&client, Method::POST, &path, Some(&given)).await.0, 201);
    let one = format!("{path}/a");
    let send = |path: String, media: &'static str, body: Value| {
        let client = client.clone();
        async move { call_with(&client, Method::PATCH, &path, media, body.to_string()).await }
    };
    let (code, merged) =
        send(one.clone(), "application/merge-patch+json", json!({"spec": {"any": {"q": [1, 2]}}})).await;
    assert_eq!((code, &merged["spec"]["any"]["q"]), (200, &json!([1, 2])));
    let replace = json!([{"op": "replace", "path": "/spec/color", "value": "green"}]);
    let (code, patched) = send(one.clone(), "application/json-patch+json", replace).await;
    assert_eq!((code, &patched["spec"]["color"]), (200, &json!("green")));
    let strategic = "application/strategic-merge-patch+json";
    let (code, refused) = send(one.clone(), strategic, json!({"spec": {}})).await;
    assert_eq!(code, 415, "{refused}");
    // Two appliers own elements of one list.
    let apply = |manager: &str, key: &str| {
        let body = object(&version, "a", json!({"list": [{"name": key, "v": "2"}]}));
        send(format!("{one}?fieldManager={manager}"), "application/apply-patch+yaml", body)
    };
    let (code, applied) = apply("one", "y").await;
    assert_eq!(code, 200, "{applied}");
    let names = |o: &Value| -> Vec<String> {
        let list = o["spec"]["list"].as_array().cloned().unwrap_or_default();
        list.iter().map(|e| e["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names(&applied), ["x", "y"]);
    let (code, conflict) = send(
        format!("{one}?fieldManager=two"),
        "application/apply-patch+yaml",
        object(&version, "a", json!({"list": [{"name": "y", "v": "3"}]})),
    )
    .await;
    assert_eq!((code, &conflict["reason"]), (409, &json!("Conflict")), "{conflict}");
    let (_, emptied) = send(
        format!("{one}?fieldManager=one"),
        "application/apply-patch+yaml",
        json!({"apiVersion": version, "kind": "Widget", "metadata": {"name": "a"}}),
    )
    .await;
    assert_eq!(names(&emptied), ["x"], "what is not applied any more goes");
    // And an apply creates.
    let created = object(&version, "new", json!({"color": "red"}));
    let (code, _) =
        send(format!("{path}/new?fieldManager=one"), "application/apply-patch+yaml", created).await;
    assert_eq!(code, 201);
}

#[tokio::test]
async fn selectors_read_fields_and_labels() {
    let client = shared_with_apis().await.client().await;
    let (version, path) = widgets(&client).await;
    for (name, color) in [("a", "red"), ("b", "green"), ("c", "green")] {
        let mut given = object(&version, name, json!({"color": color}));
        given["metadata"]["labels"] = json!({"n": name});
        assert_eq!(call(&client, Method::POST, &path, Some(&given)).await.0, 201);
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|i| i["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    for (query, expected) in [
        ("fieldSelector=spec.color%3Dgreen", vec!["b", "c"]),
        ("fieldSelector=spec.color!%3Dgreen", vec!["a"]),
        ("fieldSelector=spec.color%3Dgreen&labelSelector=n%3Dc", vec!["c"]),
        ("limit=2", vec!["a", "b"]),
    ] {
        let (code, list) = call(&client, Method::GET, &format!("{path}?{query}"), None).await;
        assert_eq!(
            (code, names(&list)),
            (200, expected.iter().map(|s| (*s).to_owned()).collect()),
            "{query}"
        );
        assert!(list["kind"] == "WidgetList" && list["items"][0]["kind"] == "Widget", "{list}");
    }
    let (code, refused) =
        call(&client, Method::GET, &format!("{path}?fieldSelector=spec.replicas%3D1"), None).await;
    assert_eq!(code, 400, "{refused}");
    let (code, _) =
        call(&client, Method::DELETE, &format!("{path}?fieldSelector=spec.color%3Dgreen"), None).await;
    assert_eq!(code, 200);
    let (_, left) = call(&client, Method::GET, &path, None).await;
    assert_eq!(names(&left), ["a"]);
}

#[tokio::test]
async fn every_representation_but_protobuf() {
    let client = shared_with_apis().await.client().await;
    let (version, path) = widgets(&client).await;
    assert_eq!(call(&client, Method::POST, &path, Some(&object(&version, "a", json!({})))).await.0, 201);
    let get = |path: String, accept: &'static str| {
        let client = client.clone();
        async move {
            let request = Request::get(path).header("accept", accept).body(Body::empty()).expect("a request");
            let response = client.send(request).await.expect("an answer");
            let code = response.status().as_u16();
            let media = response.headers()["content-type"].to_str().expect("text").to_owned();
            (code, media, response.into_body().collect().await.expect("a body").to_bytes())
        }
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let (code, _, body) = get(path.clone(), table).await;
    let table: Value = serde_json::from_slice(&body).expect("JSON");
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .expect("columns")
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!((code, columns), (200, vec!["Name", "Color", "Replicas"]));
    assert_eq!(table["rows"][0]["cells"], json!(["a", "red", 1]));
    let one = format!("{path}/a");
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let (code, _, body) = get(one.clone(), partial).await;
    let partial: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((code, partial["kind"].as_str()), (200, Some("PartialObjectMetadata")));
    assert!(partial.get("spec").is_none());
    let (code, media, body) = get(one.clone(), "application/yaml").await;
    assert_eq!((code, media.as_str()), (200, "application/yaml"));
    assert!(std::str::from_utf8(&body).is_ok_and(|t| t.contains("color: red") && t.contains("kind: Widget")));
    let (code, media, body) = get(one.clone(), "application/cbor").await;
    assert_eq!((code, media.as_str()), (200, "application/cbor"));
    assert!(body.starts_with(&[0xd9, 0xd9, 0xf7]));
    let (code, ..) = get(one, "application/vnd.kubernetes.protobuf").await;
    assert_eq!(code, 406);

    // Each representation is accepted as input.
    let yaml =
        format!("apiVersion: {version}\nkind: Widget\nmetadata: {{name: yam}}\nspec: {{color: green}}\n");
    let (code, made) = call_with(&client, Method::POST, &path, "application/yaml", yaml).await;
    assert_eq!((code, &made["spec"]["color"]), (201, &json!("green")), "{made}");
    let protobuf = "application/vnd.kubernetes.protobuf";
    let (code, _) = call_with(&client, Method::POST, &path, protobuf, &b"k8s\0"[..]).await;
    assert_eq!(code, 415);
}

#[tokio::test]
async fn paths_that_lead_nowhere() {
    let client = shared_with_apis().await.client().await;
    let (version, path) = widgets(&client).await;
    assert_eq!(call(&client, Method::POST, &path, Some(&object(&version, "a", json!({})))).await.0, 201);
    let group = version.trim_end_matches("/v1");
    let rows = [
        // Unknown paths, whose 404 is not a Status.
        (format!("/apis/{group}/v2/widgets"), Value::Null),
        (format!("/apis/{group}/v1/widgets/a"), Value::Null),
        (format!("/apis/{group}/v1/others"), Value::Null),
        (format!("/apis/{group}/v2"), Value::Null),
        (format!("{path}/a/nosuch"), json!("NotFound")),
        (format!("{path}/nobody"), json!("NotFound")),
    ];
    for (path, reason) in rows {
        let (code, answer) = call(&client, Method::GET, &path, None).await;
        assert_eq!((code, answer.get("reason").cloned().unwrap_or_default()), (404, reason), "{path}");
    }
    let wrong = json!({"apiVersion": version, "kind": "Other", "metadata": {"name": "b"}, "spec": {}});
    let (code, refused) = call(&client, Method::POST, &path, Some(&wrong)).await;
    assert_eq!(code, 422, "{refused}");
    assert!(fields(&refused).contains(&"kind"));
    let without_version = object(&version, "a", json!({}));
    let (code, refused) = call(&client, Method::PUT, &format!("{path}/a"), Some(&without_version)).await;
    assert_eq!((code, fields(&refused)), (422, vec!["metadata.resourceVersion"]), "{refused}");
}

#[tokio::test]
async fn a_resource_version_of_zero_is_none() {
    let client = shared_with_apis().await.client().await;
    let (version, path) = widgets(&client).await;
    // name, version, code of a POST
    for (name, given, code) in [("zero", "0", 201), ("text", "x", 201), ("set", "7", 500)] {
        let mut sent = object(&version, name, json!({}));
        sent["metadata"]["resourceVersion"] = json!(given);
        let (answered, answer) = call(&client, Method::POST, &path, Some(&sent)).await;
        assert_eq!(answered, code, "{given}: {answer}");
    }
    // Custom objects are never updated unconditionally.
    let mut sent = object(&version, "zero", json!({}));
    sent["metadata"]["resourceVersion"] = json!("0");
    let (code, refused) = call(&client, Method::PUT, &format!("{path}/zero"), Some(&sent)).await;
    assert_eq!((code, fields(&refused)), (422, vec!["metadata.resourceVersion"]), "{refused}");
}
