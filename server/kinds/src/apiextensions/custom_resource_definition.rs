//! CustomResourceDefinition (`apiextensions.k8s.io`).

use plinth_api::{is_deleting, set_condition};
use plinth_codec::{tree, Map, Value};
use plinth_structural::definition;

use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Computed, Field, IfPresent};
use crate::defaults::Literal::Str;
use crate::defaults::{self, SERVICE_REFERENCE};
use crate::deletion::{set_deletion_time, Deletion, DeletionRequest, AT_ONCE};
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    deletion: DELETION,
    finalizers_need_domain: false,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_update,
    validate_create,
    warnings,
    validate_update,
    ..BASE
};

/// A definition is deleted when the objects that it defines are: the first request only starts that.
const DELETION: Deletion = Deletion {
    keeps_finalizers: |definition, _| !is_deleting(definition),
    mark,
    is_always_marked_first: true,
    ..AT_ONCE
};

const DEFAULTS: &[DefaultRule] = &[
    Computed(default_names),
    Field("spec.conversion.strategy", Str("None")),
    IfPresent("spec.conversion.webhook.clientConfig.service", SERVICE_REFERENCE),
    Computed(default_stored_versions),
];

fn default_names(object: &mut Map) {
    let kind = defaults::at(object, "spec.names.kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    let is_absent = |v: &Value| v.is_null() || v.as_str() == Some("");
    defaults::set(object, "spec.names.singular", &kind.to_lowercase().into(), is_absent);
    defaults::set(object, "spec.names.listKind", &format!("{kind}List").into(), is_absent);
}

/// `status.storedVersions` of a new definition.
fn default_stored_versions(object: &mut Map) {
    let versions = defaults::at(object, "spec.versions").and_then(Value::as_array).unwrap_or_default();
    let stored = versions.iter().find(|v| v.get("storage").and_then(Value::as_bool) == Some(true));
    let Some(name) = stored.and_then(|v| v.str_at(&["name"])) else { return };
    let names = tree!([name]);
    let is_absent = |v: &Value| v.is_null() || v.as_array().is_some_and(<[Value]>::is_empty);
    defaults::set(object, "status.storedVersions", &names, is_absent);
}

/// The finalizer that holds a definition until its objects are deleted.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Adds a new storage version to `status.storedVersions` (`PrepareForUpdate` of
/// k8s.io/apiextensions-apiserver, `pkg/registry/customresourcedefinition`).
fn prepare_for_update(new: &mut Value, _: &Value) {
    let versions = new.list_at(&["spec", "versions"]);
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

/// Adds the finalizer that holds the definition, and the condition that shows it. The generation stays, as
/// upstream has it.
fn mark(definition: &mut Value, request: &DeletionRequest) -> bool {
    if is_deleting(definition) {
        return false;
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(definition, "Terminating", "True", "InstanceDeletionPending", message);
    let mut finalizers: Vec<Value> =
        plinth_api::finalizers(definition).into_iter().map(Value::from).collect();
    if !finalizers.iter().any(|f| f.as_str() == Some(FINALIZER)) {
        finalizers.push(FINALIZER.into());
    }
    set_deletion_time(definition, request.now, None);
    if let Some(metadata) = definition.object_at_mut(&["metadata"]) {
        metadata.insert("finalizers", finalizers);
    }
    false
}

/// Errors of a new definition.
fn validate_create(new: &Part<'_>) {
    definition::validate(new.value()).into_iter().for_each(|error| new.push(error.into()));
}

/// Errors of an update. Schemas are validated only when the spec changed.
fn validate_update(new: &Part<'_>, old: &Value) {
    let errors = match new.value().get("spec") == old.get("spec") {
        true => definition::validate_status_update(new.value()),
        false => definition::validate_update(new.value(), old),
    };
    errors.into_iter().for_each(|error| new.push(error.into()));
}

/// Warnings about formats that are unknown and therefore not validated.
fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    match old.is_some_and(|old| old.get("spec") == new.get("spec")) {
        true => Vec::new(),
        false => definition::warnings(new, old),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_first_delete_marks_with_the_time_of_the_request() {
        let mut definition = json::parse(br#"{"metadata":{"name":"x","generation":3}}"#).unwrap();
        let at = |seconds| DeletionRequest {
            grace_period_seconds: None,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        };
        for seconds in [1_000_000_000, 2_000_000_000] {
            assert!(!mark(&mut definition, &at(seconds)));
            let marked = definition.str_at(&["metadata", "deletionTimestamp"]);
            assert_eq!(marked, Some("2001-09-09T01:46:40Z"));
            assert_eq!(plinth_api::finalizers(&definition), [FINALIZER]);
            assert_eq!(definition.at(&["metadata", "generation"]).and_then(Value::as_int), Some(3));
        }
    }

    #[test]
    fn a_new_storage_version_is_added_to_stored_versions() {
        let old = Value::Null;
        let mut new = json::parse(
            br#"{"spec":{"versions":[{"name":"v1"},{"name":"v2","storage":true}]},"status":{"storedVersions":["v1"]}}"#,
        )
        .unwrap();
        for _ in 0..2 {
            prepare_for_update(&mut new, &old);
            let stored = new.at(&["status", "storedVersions"]).and_then(Value::as_array).unwrap();
            assert_eq!(stored.iter().filter_map(Value::as_str).collect::<Vec<_>>(), ["v1", "v2"]);
        }
    }
}
