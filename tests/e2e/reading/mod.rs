//! The read API, row by row of the tables in the API's documentation: get, list, watch.

use http::Method;
use http_body_util::BodyExt;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_tests::server::Access;
use serde_json::{json, Value};

mod delete_collection;
mod gets;
mod informers;
mod large;
mod lists;
mod pages;
mod selectors;
mod slow_clients;
mod tables;
mod watch_parameters;
mod watches;
mod websockets;

/// One client that reads answers as JSON.
struct Reader {
    connection: Connection,
    /// The collection of ConfigMaps that the test works in.
    collection: String,
}

/// A namespace of the test's own with a client for its ConfigMaps.
async fn reader(server: &Access, prefix: &str) -> Reader {
    let namespace = plinth_tests::server::namespace(&server.client().await, prefix).await;
    let connection = server.connect(Protocol::Http2).await;
    Reader { connection, collection: format!("/api/v1/namespaces/{namespace}/configmaps") }
}

impl Reader {
    /// Status and body of a GET.
    async fn ask(&mut self, path: &str) -> (u16, Value) {
        let reply = self.connection.call(&Call::get(path)).await.expect("an answer");
        let body = serde_json::from_slice(&reply.body).unwrap_or_else(|_| panic!("{path}: {}", reply.text()));
        (reply.status.as_u16(), body)
    }

    /// The list that a query of the collection gives.
    async fn list(&mut self, query: &str) -> (u16, Value) {
        let path = format!("{}?{query}", self.collection);
        self.ask(&path).await
    }

    /// The object that a write answers with.
    async fn write(&mut self, method: Method, path: &str, body: Value) -> Value {
        let call = match body {
            Value::Null => Call::new(method, path),
            body => Call::new(method, path).body(JSON, body.to_string()),
        };
        let reply = self.connection.must(&call).await.expect("a write");
        serde_json::from_slice(&reply.body).expect("JSON")
    }

    /// Creates a ConfigMap; gives its resourceVersion.
    async fn create(&mut self, name: &str, labels: Value) -> u64 {
        let path = self.collection.clone();
        let object = json!({"metadata": {"name": name, "labels": labels}, "data": {"step": "0"}});
        version(&self.write(Method::POST, &path, object).await)
    }

    /// Changes a ConfigMap; gives its resourceVersion.
    async fn change(&mut self, name: &str, step: u64) -> u64 {
        let path = format!("{}/{name}", self.collection);
        let object = json!({"metadata": {"name": name}, "data": {"step": step.to_string()}});
        version(&self.write(Method::PUT, &path, object).await)
    }

    async fn delete(&mut self, name: &str) {
        let path = format!("{}/{name}", self.collection);
        self.write(Method::DELETE, &path, Value::Null).await;
    }

    /// The events of a watch that ends by itself.
    async fn watch(&mut self, query: &str) -> (u16, Vec<Value>) {
        let path = format!("{}?watch=1&{query}", self.collection);
        let (head, body) = self.connection.open(&Call::get(path)).await.expect("a watch").into_parts();
        let body = body.collect().await.expect("a proper end").to_bytes();
        let lines = body.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        (head.status.as_u16(), lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect())
    }
}

/// `metadata.resourceVersion` as a number.
fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no resourceVersion: {object}"))
}

/// Name and step of each item of a list of ConfigMaps; the ones that the server puts into every namespace
/// left out.
fn items(list: &Value) -> Vec<(String, String)> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    items.iter().map(|i| (text(&i["metadata"]["name"]), text(&i["data"]["step"]))).collect()
}

/// Code, reason, and the fields of the causes of a Status.
fn refusal(status: &Value) -> (u64, &str, Vec<&str>) {
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fields = causes.iter().map(|c| c["field"].as_str().unwrap_or_default()).collect();
    (status["code"].as_u64().unwrap_or(0), status["reason"].as_str().unwrap_or_default(), fields)
}
