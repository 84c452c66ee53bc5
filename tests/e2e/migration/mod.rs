//! Moving in from etcd and out again: every object before and after, through the API.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use http::Method;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use kube::{Client, Discovery, ResourceExt as _};
use plinth_benches::api::server::Server;
use plinth_tests::definitions::{definition, establish};
use plinth_tests::eventually;
use plinth_tests::requests::{call, create};
use plinth_tests::samples;
use plinth_tests::server::{launch, run, start_ready, TestServer};
use serde_json::{json, Value};
use tempfile::TempDir;

mod document;
mod etcd;
mod for_etcd;
mod kine;
mod snapshots;

/// Without most controllers, which would delete and create objects while they are compared.
const ARGUMENTS: [&str; 1] = ["--controllers=namespace-controller"];
/// The namespace of the objects.
const NAMESPACE: &str = "moved";
/// The label of APIServices that the server creates.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Custom resources of each of the two definitions.
const CUSTOM: usize = 12;

/// Objects by API version, kind, namespace and name, as a server returns them, without resourceVersion.
type Objects = BTreeMap<String, Value>;

/// A stopped server that had an object of every kind, and custom resources; with what it returned, and the
/// greatest resourceVersion.
async fn filled(arguments: &[&str]) -> (TestServer, Objects, u64) {
    let mut server = TestServer::start(&[&ARGUMENTS[..], arguments].concat()).await;
    let client = server.client().await;
    let namespace = json!({"metadata": {"name": NAMESPACE, "annotations": {"kept": "ä"}}});
    create(&client, "/api/v1/namespaces", &namespace).await;
    let account = json!({"metadata": {"name": "default"}});
    create(&client, &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account).await;
    let discovery = Discovery::new(client.clone()).run_aggregated().await.expect("discovery");
    for (number, sample) in samples::all("sample", NAMESPACE).into_iter().enumerate() {
        let types = sample.types.clone().expect("a type");
        // Two versions of one storage would meet under one name.
        let sample = samples::of(&types.api_version, &types.kind, &format!("sample-{number}"), NAMESPACE);
        let gvk = GroupVersionKind::try_from(&types).expect("group, version, kind");
        let (resource, capabilities) = discovery.resolve_gvk(&gvk).expect("it is served");
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Namespaced => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
            Scope::Cluster => Api::all_with(client.clone(), &resource),
        };
        let created = api.create(&PostParams::default(), &sample).await;
        assert!(created.is_ok(), "{} {}: {created:?}", types.api_version, types.kind);
    }
    let size = json!({"type": "integer", "default": 3});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
        "text": {"type": "string"}, "size": size}}}});
    for (kind, scope, path) in [
        ("Car", "Namespaced", format!("namespaces/{NAMESPACE}/cars")),
        ("Planet", "Cluster", "planets".to_owned()),
    ] {
        establish(&client, &definition("moving.example.com", kind, scope, schema.clone())).await;
        for number in 0..CUSTOM {
            let object = json!({"apiVersion": "moving.example.com/v1", "kind": kind,
                "metadata": {"name": format!("o-{number}"), "labels": {"n": number.to_string()}},
                "spec": {"text": format!("{number} \u{1f697}")}});
            create(&client, &format!("/apis/moving.example.com/v1/{path}"), &object).await;
        }
    }
    // The controller of priority and fairness writes it some time after the object.
    let flow_schemas =
        || call(&client, Method::GET, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", None);
    eventually("each FlowSchema has its condition", || async {
        let list = flow_schemas().await.1;
        let has = |item: &Value| !item["status"]["conditions"].is_null();
        list["items"].as_array().is_some_and(|items| items.iter().all(has))
    })
    .await;
    let (objects, newest) = objects(&client).await;
    server.terminate().await;
    (server, objects, newest)
}

/// Everything that a server lists, and the greatest resourceVersion.
async fn objects(client: &Client) -> (Objects, u64) {
    let discovery = Discovery::new(client.clone()).run_aggregated().await.expect("discovery");
    let mut found = Objects::new();
    let mut newest = 0;
    for group in discovery.groups() {
        for (resource, capabilities) in
            group.versions().flat_map(|version| group.versioned_resources(version))
        {
            if !capabilities.supports_operation("list") || !capabilities.supports_operation("create") {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for mut object in api.list(&ListParams::default()).await.expect("a list") {
                // The APIService of a custom resource's version is created some time after the definition.
                if object.labels().get(AUTOMANAGED).is_some_and(|managed| managed == "true") {
                    continue;
                }
                let version = object.metadata.resource_version.take().expect("a version");
                newest = newest.max(version.parse().expect("a number"));
                let (namespace, name) =
                    (object.metadata.namespace.clone().unwrap_or_default(), object.metadata.name.clone());
                let key = format!(
                    "{} {} {namespace}/{}",
                    resource.api_version,
                    resource.kind,
                    name.unwrap_or_default()
                );
                let mut object = serde_json::to_value(&object).expect("JSON");
                without_empty_status(&mut object);
                found.insert(key, object);
            }
        }
    }
    (found, newest)
}

/// Removes what is empty in a status: a kube-apiserver's objects have all of it once they were stored, those
/// that were created here have not.
fn without_empty_status(object: &mut Value) {
    let is_empty =
        |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.retain(|_, value| !is_empty(value));
    }
    object.retain(|field, value| field != "status" || !is_empty(value));
}

/// Whether a server writes the object by itself, and differently after a move: where it is, and who it is.
fn is_of_the_server(key: &str) -> bool {
    ["kubernetes", "apiserver-", "extension-apiserver-authentication"].iter().any(|own| key.contains(own))
        || key.starts_with("coordination.k8s.io/v1 Lease kube-system")
}

fn assert_same(before: &Objects, after: &Objects) {
    let different = |key: &&String| !is_of_the_server(key) && before.get(*key) != after.get(*key);
    let keys: Vec<&String> = before.keys().chain(after.keys()).filter(different).collect();
    for key in keys.iter().take(3) {
        eprintln!("{key}:\n before {:?}\n after  {:?}", before.get(*key), after.get(*key));
    }
    assert!(keys.is_empty(), "{} of {} objects differ: {keys:#?}", keys.len(), before.len());
}

/// Starts a server on `root/data`, with the certificates and keys of another one.
async fn start_with_keys_of(server: &TestServer, root: &Path, arguments: &[&str]) -> Server {
    let pki = root.join("data/pki");
    fs::create_dir(&pki).expect("directory");
    for entry in fs::read_dir(server.data().join("pki")).expect("directory") {
        let entry = entry.expect("entry");
        fs::copy(entry.path(), pki.join(entry.file_name())).expect("copy");
    }
    start_ready(&launch(), root, &[&ARGUMENTS[..], arguments].concat()).await
}

/// Runs a command that must succeed.
fn must(arguments: &[&str]) -> String {
    let (done, text) = run(arguments);
    assert!(done, "{arguments:?}: {text}");
    text
}

/// The hash that an import or export printed.
fn hash(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("hash "));
    line.unwrap_or_else(|| panic!("no hash in {text}"))
}

/// Paths in a directory.
struct Paths(TempDir);

impl Paths {
    fn new() -> Paths {
        Paths(TempDir::new().expect("directory"))
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    fn exists(&self, name: &str) -> bool {
        self.0.path().join(name).exists()
    }
}
