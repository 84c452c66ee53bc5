//! Tables that are not simply rows in the order of their keys.

use http::Method;
use plinth_benches::api::client::{Call, JSON};
use plinth_tests::samples;
use plinth_tests::server::shared;
use serde_json::{json, Value};

use super::{reader, Reader};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

async fn table(client: &mut Reader, path: &str) -> Value {
    let reply = client.connection.must(&Call::get(path).accept(TABLE)).await.expect("a Table");
    let table: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(table["kind"], "Table", "{table}");
    table
}

#[tokio::test]
async fn flow_schemas_stand_in_the_order_in_which_they_are_matched() {
    let mut client = reader(shared().await, "flow-schemas").await;
    let collection = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    // The names sort the other way round.
    let mut names = Vec::new();
    for (letter, precedence) in [("a", 9003), ("b", 9002), ("c", 9001), ("d", 9002)] {
        let name = plinth_tests::server::unique(&format!("order-{letter}"));
        let mut schema = serde_json::to_value(samples::of(
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            &name,
            "default",
        ))
        .expect("JSON");
        schema["spec"]["matchingPrecedence"] = json!(precedence);
        client.write(Method::POST, collection, schema).await;
        names.push(name);
    }
    for query in ["", "?limit=500"] {
        let table = table(&mut client, &format!("{collection}{query}")).await;
        let rows = table["rows"].as_array().expect("rows");
        let shown: Vec<&str> = rows.iter().filter_map(|row| row["cells"][0].as_str()).collect();
        let own: Vec<&str> = shown.iter().copied().filter(|name| names.iter().any(|n| n == name)).collect();
        assert_eq!(own, [&*names[2], &*names[1], &*names[3], &*names[0]], "{query}");
        let precedences: Vec<i64> = rows.iter().filter_map(|row| row["cells"][2].as_i64()).collect();
        assert!(precedences.is_sorted(), "{precedences:?}");
    }
    for name in names {
        client.write(Method::DELETE, &format!("{collection}/{name}"), Value::Null).await;
    }
}

#[tokio::test]
async fn a_scale_has_columns_of_its_own() {
    let mut client = reader(shared().await, "scale-table").await;
    let namespace = client.collection.split('/').nth(4).expect("a namespace").to_owned();
    let collection = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let mut deployment =
        serde_json::to_value(samples::of("apps/v1", "Deployment", "web", &namespace)).expect("JSON");
    deployment["spec"]["replicas"] = json!(3);
    client.write(Method::POST, &collection, deployment).await;
    let table = table(&mut client, &format!("{collection}/web/scale")).await;
    let columns = table["columnDefinitions"].as_array().expect("columns");
    let heads: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(heads, ["Name", "Desired", "Available", "Age"]);
    let row = &table["rows"][0];
    assert_eq!(
        (&row["cells"][0], &row["cells"][1], &row["cells"][2]),
        (&json!("web"), &json!(3), &json!(0)),
        "{row}"
    );
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata", "{row}");
    assert!(table["metadata"]["resourceVersion"].is_string(), "{table}");
}

/// What is not stored, because of a dry run or because it is an answer alone, has the requested form,
/// without a revision.
#[tokio::test]
async fn what_is_not_stored_is_shown_in_the_requested_form() {
    let mut client = reader(shared().await, "dry-table").await;
    let namespace = client.collection.split('/').nth(4).expect("a namespace").to_owned();
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "dry" }, "data": { "a": "b" } });
    let create = Call::new(Method::POST, format!("{collection}?dryRun=All")).body(JSON, map.to_string());
    let apply = format!("{collection}/dry?dryRun=All&fieldManager=m");
    let apply = Call::new(Method::PATCH, apply).body("application/apply-patch+yaml", map.to_string());
    let review = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = Call::new(Method::POST, reviews).body(JSON, review.to_string());
    // call, form, code, kind
    let rows = [
        (&create, TABLE, 201, "Table"),
        (&create, PARTIAL, 201, "PartialObjectMetadata"),
        (&apply, TABLE, 201, "Table"),
        (&apply, PARTIAL, 201, "PartialObjectMetadata"),
        (&review, PARTIAL, 201, "PartialObjectMetadata"),
        (&review, TABLE, 406, "Status"),
    ];
    for (call, form, code, kind) in rows {
        let reply = client.connection.call(&call.clone().accept(form)).await.expect("an answer");
        let body: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!((reply.status.as_u16(), body["kind"].as_str()), (code, Some(kind)), "{form}: {body}");
        if kind == "Table" {
            assert_eq!(
                (&body["rows"][0]["cells"][0], &body["rows"][0]["cells"][1]),
                (&json!("dry"), &json!(1)),
                "{body}"
            );
        }
        assert_eq!(body["metadata"]["resourceVersion"], Value::Null, "{body}");
    }
}

/// The metadata of a page is known at its end only.
#[tokio::test]
async fn the_metadata_of_a_page_is_there_once() {
    let mut client = reader(shared().await, "table-pages").await;
    for name in ["a", "b"] {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
        let collection = client.collection.clone();
        client.write(Method::POST, &collection, map).await;
    }
    for query in ["includeObject=None", "includeObject=None&limit=1"] {
        let call = Call::get(format!("{}?{query}", client.collection)).accept(TABLE);
        let reply = client.connection.must(&call).await.expect("a Table");
        let text = String::from_utf8_lossy(&reply.body);
        assert_eq!(text.matches("\"metadata\"").count(), 1, "{text}");
        let table: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert!(table["metadata"]["resourceVersion"].is_string(), "{text}");
        assert_eq!(table["metadata"]["continue"].is_string(), query.contains("limit"), "{text}");
    }
}
