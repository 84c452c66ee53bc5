//! One small valid object of every built-in kind that is stored, as data in `samples.json`, one
//! object a line.
//!
//! `NAME` and `NAMESPACE` are replaced by the test's own; names that the kind requires are literal.

use kube::core::DynamicObject;
use serde_json::{json, Value};

const SAMPLES: &str = include_str!("samples.json");

/// Every sample, named `name`, for use in `namespace`.
pub fn all(name: &str, namespace: &str) -> Vec<DynamicObject> {
    // NAMESPACE first: it begins with NAME.
    let text = SAMPLES.replace("NAMESPACE", namespace).replace("NAME", name);
    serde_json::from_str(&text).expect("samples.json")
}

/// The sample of one kind.
pub fn of(api_version: &str, kind: &str, name: &str, namespace: &str) -> DynamicObject {
    let is_it = |object: &DynamicObject| {
        object.types.as_ref().is_some_and(|t| t.api_version == api_version && t.kind == kind)
    };
    all(name, namespace)
        .into_iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no sample of {api_version} {kind}"))
}

/// A pod with the label `app: x` and one container `c`.
pub fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/x:1"}]},
    })
}
