//! The built-in controllers: what the server does after a request has been answered.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams, PropagationPolicy};
use kube::{Client, ResourceExt};
use plinth_tests::server::namespace;
use serde_json::{json, Value};

mod accounts;
mod bootstrap;
mod control_plane;
mod garbage_collection;
mod namespaces;

fn config_map(name: &str, owners: &[(&ConfigMap, bool)]) -> ConfigMap {
    let reference = |(owner, blocks): &(&ConfigMap, bool)| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner.name_any(),
            "uid": owner.uid().expect("uid"),
            "blockOwnerDeletion": blocks,
        })
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}}))
        .expect("a ConfigMap")
}

async fn make(api: &Api<ConfigMap>, name: &str, owners: &[(&ConfigMap, bool)]) -> ConfigMap {
    api.create(&PostParams::default(), &config_map(name, owners)).await.expect("create")
}

async fn is_gone(api: &Api<ConfigMap>, name: &str) -> bool {
    api.get_opt(name).await.expect("get").is_none()
}

fn by(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

async fn maps(client: &Client, prefix: &str) -> Api<ConfigMap> {
    maps_in(client, &namespace(client, prefix).await)
}

fn maps_in(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}
