//! The rules for the metadata of a resource's objects: namespace, name, generation.
//!
//! Upstream: k8s.io/apiserver `pkg/registry/rest` (`BeforeCreate`, `BeforeUpdate`) and k8s.io/apimachinery
//! `pkg/api/validation/objectmeta.go`.

use plinth_api::{
    annotation_errors, finalizer_errors, finalizers, generated_suffix, label_errors, metadata_mut,
    owner_errors, ApiError, Cause, Moment, RequestInfo, GENERATED_PREFIX_MAX,
};
use plinth_codec::{apply, names, Map, Value};

use super::ResourceType;
use plinth_kinds::{Generation, NameRule};

/// The object's namespace must be absent or the request's; that of a cluster-scoped object is dropped
/// (apiserver `pkg/registry/rest`, `EnsureObjectNamespaceMatchesRequestNamespace`).
///
/// # Errors
/// 400 with upstream's message.
pub fn match_namespace(
    resource: &ResourceType,
    info: &RequestInfo,
    object: &mut Value,
) -> Result<(), ApiError> {
    let metadata = metadata_mut(object)?;
    let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let expected = if resource.row.namespaced { info.namespace.as_str() } else { "" };
    if given.is_empty() {
        if expected.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace", expected);
        }
        return Ok(());
    }
    if given == expected {
        return Ok(());
    }
    if expected.is_empty() {
        metadata.remove("namespace");
        return Ok(());
    }
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    Err(ApiError::bad_request(why))
}

/// Sets the system fields of a new object. The name is generated first.
///
/// # Errors
/// When metadata is no object.
pub fn prepare_metadata_create(
    resource: &ResourceType,
    object: &mut Value,
    moment: &Moment,
) -> Result<(), ApiError> {
    let metadata = metadata_mut(object)?;
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() && !prefix.is_empty() {
        let kept = prefix
            .char_indices()
            .map(|(i, c)| i + c.len_utf8())
            .take_while(|end| *end <= GENERATED_PREFIX_MAX);
        let name = format!("{}{}", &prefix[..kept.last().unwrap_or(0)], generated_suffix());
        metadata.insert("name", name);
    }
    // Admission may have set them. A deletion that nobody has begun would have no end.
    metadata.remove("selfLink");
    metadata.remove("deletionTimestamp");
    metadata.remove("deletionGracePeriodSeconds");
    metadata.insert("uid", moment.uid.as_str());
    metadata.insert("creationTimestamp", moment.now.as_str());
    if !matches!(resource.strategy.generation, Generation::None | Generation::LaterChanges) {
        metadata.insert("generation", 1);
    }
    Ok(())
}

/// Increments the generation when the desired state changed; changes of annotations through a subresource are
/// ignored.
pub fn count_generation(resource: &ResourceType, subresource: &str, object: &mut Value, old: &Value) {
    let strategy = resource.strategy;
    let differs = |part: &str| object.at(&["metadata", part]) != old.at(&["metadata", part]);
    let metadata_counts = match strategy.generation {
        Generation::None | Generation::Constant => return,
        Generation::Changes | Generation::LaterChanges => false,
        Generation::ChangesAndAnnotations => subresource.is_empty() && differs("annotations"),
        Generation::ChangesAndLabels => differs("labels"),
    };
    // Without a status subresource the status of a custom resource is a regular field.
    let has_own_status = resource.is_custom() && resource.row.subresource("status").is_none();
    let changed = desired_state_differs(resource, object, old)
        || (has_own_status && object.get("status") != old.get("status"))
        || metadata_counts;
    if changed {
        let generation = old.at(&["metadata", "generation"]).and_then(Value::as_int).unwrap_or(0);
        if let Some(metadata) = object.object_at_mut(&["metadata"]) {
            metadata.insert("generation", generation.saturating_add(1));
        }
    }
}

/// Validates an object's metadata at create and update. At create the name is validated by the resource's
/// rule, and as a path segment always, as upstream does.
pub fn validate_metadata(resource: &ResourceType, object: &Value, creating: bool) -> Vec<Cause> {
    let empty = Map::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    let prefix = text("generateName");
    if creating && !prefix.is_empty() {
        // The dash before the generated suffix is valid (upstream's maskTrailingDash).
        let masked = prefix.strip_suffix('-').map_or(prefix.to_owned(), |start| format!("{start}a"));
        let messages = name_errors(resource.strategy.name, object, &masked);
        errors.extend(messages.iter().map(|m| Cause::invalid("metadata.generateName", prefix, m)));
    }
    let name = text("name");
    if name.is_empty() {
        errors.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let messages = match creating {
            true => name_errors(resource.strategy.name, object, name),
            false => names::path_segment_errors(name),
        };
        errors.extend(messages.iter().map(|m| Cause::invalid("metadata.name", name, m)));
    }
    if resource.row.namespaced {
        let messages = names::dns1123_label_errors(text("namespace"));
        errors.extend(messages.iter().map(|m| Cause::invalid("metadata.namespace", text("namespace"), m)));
    }
    errors.extend(label_errors(metadata.get("labels"), format_args!("metadata.labels")));
    errors.extend(annotation_errors(metadata.get("annotations"), format_args!("metadata.annotations")));
    errors.extend(owner_errors(metadata.get("ownerReferences")));
    errors.extend(finalizer_errors(&finalizers(object), resource.strategy.finalizers_need_domain));
    errors
}

fn name_errors(rule: NameRule, object: &Value, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => names::dns1123_subdomain_errors(name),
        NameRule::Label => names::dns1123_label_errors(name),
        NameRule::Label1035 => names::dns1035_label_errors(name),
        NameRule::PathSegment => names::path_segment_errors(name),
        NameRule::ConfigKey => names::config_key_errors(name),
        NameRule::GroupResource => group_resource_errors(name),
        NameRule::ByObject(errors) => errors(object, name),
    }
}

/// Errors of the name of a StorageVersion (kubernetes `pkg/apis/apiserverinternal/validation`).
fn group_resource_errors(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let of_group = names::dns1123_subdomain_errors(group);
    let of_resource = names::dns1035_label_errors(resource);
    let of_group = of_group.iter().map(|why| format!("the group segment {why}"));
    of_group.chain(of_resource.iter().map(|why| format!("the resource segment {why}"))).collect()
}

/// Whether anything but metadata, status and type metadata differs. A number of a built-in kind is the same
/// however it is written: `1` is read from a request as a double where the schema has one, and from the store
/// as an integer.
fn desired_state_differs(resource: &ResourceType, new: &Value, old: &Value) -> bool {
    let is_same = |a: &Value, b: &Value| if resource.is_custom() { a == b } else { apply::path::same(a, b) };
    let (mut new, mut old) = (desired_state(new), desired_state(old));
    loop {
        match (new.next(), old.next()) {
            (None, None) => return false,
            (Some((k, v)), Some((other, w))) if k == other && is_same(v, w) => {}
            _ => return true,
        }
    }
}

/// The members of the desired state, in key order.
fn desired_state(object: &Value) -> impl Iterator<Item = (&smol_str::SmolStr, &Value)> {
    let members = object.as_object().into_iter().flat_map(Map::iter);
    members.filter(|(k, _)| !matches!(k.as_str(), "metadata" | "status" | "kind" | "apiVersion"))
}
