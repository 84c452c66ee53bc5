//! What there is to request: the operations and schemas of the server's own OpenAPI v3 documents.

use std::collections::HashMap;

use http::Method;
use plinth_benches::api::client::{Call, Connection};
use serde_json::Value;

/// One method of one path.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub method: Method,
    /// With its variables in braces: `/api/v1/namespaces/{namespace}/pods/{name}`.
    pub path: String,
    /// Names of query parameters, and whether they are integers or booleans.
    pub query: Vec<(String, String)>,
    /// The media types of the body and the schema of the first one.
    pub body: Option<(Vec<String>, Value)>,
    /// `list`, `watch`, `connect`, ...
    pub action: String,
    /// `apiVersion` and `kind` of the objects of this path.
    pub kind: Option<(String, String)>,
}

/// All documents in one.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub operations: Vec<Operation>,
    schemas: HashMap<String, Value>,
}

impl Document {
    /// Reads every document that the index names.
    pub(super) async fn read(connection: &mut Connection) -> Document {
        let mut document = Document::default();
        let index = json(connection, "/openapi/v3").await;
        let paths = index["paths"].as_object().expect("paths of the index");
        for (name, entry) in paths {
            let url = entry["serverRelativeURL"].as_str().unwrap_or_else(|| panic!("{name}: no URL"));
            document.add(json(connection, url).await);
        }
        document.operations.sort_by(|a, b| (&a.path, a.method.as_str()).cmp(&(&b.path, b.method.as_str())));
        document
    }

    /// Adds one document.
    pub(super) fn add(&mut self, mut document: Value) {
        if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas").map(Value::take) {
            self.schemas.extend(schemas);
        }
        let Some(Value::Object(paths)) = document.get("paths") else { return };
        for (path, item) in paths {
            let shared = parameters(item);
            for method in ["get", "put", "post", "patch", "delete", "options", "head"] {
                let Some(operation) = item.get(method) else { continue };
                let mut query = shared.clone();
                query.extend(parameters(operation));
                query.sort();
                query.dedup();
                self.operations.push(Operation {
                    method: method.to_uppercase().parse().expect("a method"),
                    path: path.clone(),
                    query,
                    body: body(operation),
                    action: operation["x-kubernetes-action"].as_str().unwrap_or_default().to_owned(),
                    kind: kind(operation),
                });
            }
        }
    }

    /// The schema that a node stands for: what it refers to, or itself.
    pub(super) fn resolve<'a>(&'a self, node: &'a Value) -> &'a Value {
        let mut node = node;
        for _ in 0..8 {
            let reference = node.get("$ref").or_else(|| node.pointer("/allOf/0/$ref"));
            let Some(name) = reference.and_then(Value::as_str).and_then(|r| r.rsplit('/').next()) else {
                return node;
            };
            let Some(target) = self.schemas.get(name) else { return node };
            node = target;
        }
        node
    }
}

async fn json(connection: &mut Connection, path: &str) -> Value {
    let reply = connection.must(&Call::get(path)).await.expect("an OpenAPI document");
    serde_json::from_slice(&reply.body).expect("JSON")
}

fn parameters(item: &Value) -> Vec<(String, String)> {
    let all = item.get("parameters").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let of_query = all.iter().filter(|p| p["in"] == "query");
    of_query
        .filter_map(|p| {
            let of_type = p.pointer("/schema/type").and_then(Value::as_str).unwrap_or("string");
            Some((p["name"].as_str()?.to_owned(), of_type.to_owned()))
        })
        .collect()
}

fn body(operation: &Value) -> Option<(Vec<String>, Value)> {
    let content = operation.pointer("/requestBody/content")?.as_object()?;
    let schema = content.values().next()?.get("schema")?.clone();
    Some((content.keys().cloned().collect(), schema))
}

fn kind(operation: &Value) -> Option<(String, String)> {
    let gvk = operation.get("x-kubernetes-group-version-kind")?;
    let (group, version) = (gvk["group"].as_str()?, gvk["version"].as_str()?);
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some((api_version, gvk["kind"].as_str()?.to_owned()))
}
