//! CustomResourceDefinitions: what of them is the server's, and whether they are valid.

use plinth_codec::time::Timestamp;
use plinth_codec::Value;
use plinth_structural::definition;

use plinth_api::api_error::Cause;
use plinth_api::{conditions, metadata};

/// The finalizer of definitions whose objects have to go first.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A new storage version joins those that objects may be stored in (`PrepareForUpdate` of
/// k8s.io/apiextensions-apiserver, `pkg/registry/customresourcedefinition`).
pub fn keep_storage_version(new: &mut Value, _: &Value) {
    let versions = new.at(&["spec", "versions"]).and_then(Value::as_array).unwrap_or_default();
    let storage = versions.iter().find(|v| v.get("storage").and_then(Value::as_bool) == Some(true));
    let Some(name) = storage.and_then(|v| v.str_at(&["name"])).map(str::to_owned) else { return };
    let Some(status) = new.object_at_mut(&["status"]) else { return };
    match status.get_mut("storedVersions").and_then(Value::as_array_mut) {
        Some(stored) if stored.iter().any(|v| v.as_str() == Some(&name)) => {}
        Some(stored) => stored.push(name.into()),
        None => {
            status.insert("storedVersions", vec![Value::from(name)]);
        }
    }
}

/// Marks a definition that a client deletes: its objects go first.
pub fn mark_deleted(definition: &mut Value) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    conditions::set(definition, "Terminating", "True", "InstanceDeletionPending", message);
    let mut finalizers: Vec<Value> = metadata::finalizers(definition).into_iter().map(Value::from).collect();
    if !finalizers.iter().any(|f| f.as_str() == Some(FINALIZER)) {
        finalizers.push(FINALIZER.into());
    }
    if let Some(metadata) = definition.object_at_mut(&["metadata"]) {
        metadata.insert("deletionTimestamp", Timestamp::now().to_rfc3339());
        metadata.insert("finalizers", finalizers);
    }
}

/// Errors of a new definition.
pub fn validate(new: &Value) -> Vec<Cause> {
    definition::validate(new).into_iter().map(Cause::from).collect()
}

/// Errors of a change. What changes the status or metadata alone costs no look at the schemas.
pub fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let errors = match new.get("spec") == old.get("spec") {
        true => definition::validate_status_update(new),
        false => definition::validate_update(new, old),
    };
    errors.into_iter().map(Cause::from).collect()
}

/// What to warn of: formats that are not known and so not checked.
pub fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    match old.is_some_and(|old| old.get("spec") == new.get("spec")) {
        true => Vec::new(),
        false => definition::warnings(new, old),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_new_storage_version_is_remembered_beside_the_old_one() {
        let old = Value::Null;
        let mut new = json::parse(
            br#"{"spec":{"versions":[{"name":"v1"},{"name":"v2","storage":true}]},"status":{"storedVersions":["v1"]}}"#,
        )
        .unwrap();
        for _ in 0..2 {
            keep_storage_version(&mut new, &old);
            let stored = new.at(&["status", "storedVersions"]).and_then(Value::as_array).unwrap();
            assert_eq!(stored.iter().filter_map(Value::as_str).collect::<Vec<_>>(), ["v1", "v2"]);
        }
    }
}
