//! One small valid object of every built-in kind that is stored, as data in `samples.json`, one object a
//! line; of kinds that are off by default as well.
//!
//! `NAME` and `NAMESPACE` are replaced by the test's own; names that the kind requires are literal.

use kube::core::DynamicObject;
use plinth_codec::resources::{self, Resource};
use serde_json::{json, Value};

const SAMPLES: &str = include_str!("samples.json");

/// The sample of every kind that is on by default, named `name`, for use in `namespace`.
pub fn all(name: &str, namespace: &str) -> Vec<DynamicObject> {
    let is_on = |object: &DynamicObject| {
        let (group, version) = group_and_version(object);
        resources::known().is_on_by_default(group, version)
    };
    every(name, namespace).into_iter().filter(is_on).collect()
}

fn every(name: &str, namespace: &str) -> Vec<DynamicObject> {
    // NAMESPACE first: it begins with NAME.
    let text = SAMPLES.replace("NAMESPACE", namespace).replace("NAME", name);
    serde_json::from_str(&text).expect("samples.json")
}

/// The sample of one kind.
pub fn of(api_version: &str, kind: &str, name: &str, namespace: &str) -> DynamicObject {
    let is_it = |object: &DynamicObject| {
        object.types.as_ref().is_some_and(|t| t.api_version == api_version && t.kind == kind)
    };
    every(name, namespace)
        .into_iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no sample of {api_version} {kind}"))
}

/// The sample of a resource; where its version has none, that of another version.
pub fn of_resource(resource: &Resource, name: &str, namespace: &str) -> Option<DynamicObject> {
    let mut samples = every(name, namespace);
    samples.retain(|sample| {
        let is_kind = sample.types.as_ref().is_some_and(|types| *types.kind == *resource.kind);
        is_kind && group_and_version(sample).0 == resource.group
    });
    let own = samples.iter().position(|sample| group_and_version(sample).1 == resource.version);
    let mut sample = samples.into_iter().nth(own.unwrap_or(0))?;
    let types = sample.types.as_mut()?;
    types.api_version = resource.gvk().api_version().to_string();
    Some(sample)
}

fn group_and_version(object: &DynamicObject) -> (&str, &str) {
    let api_version = object.types.as_ref().map_or("", |types| &types.api_version);
    api_version.rsplit_once('/').unwrap_or(("", api_version))
}

/// A pod with the label `app: x` and one container `c`.
pub fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/x:1"}]},
    })
}
