//! The rules of `metadata` that hold for every kind: names, namespaces, uid, timestamps, generation.
//!
//! Upstream: k8s.io/apiserver `pkg/registry/rest` (`BeforeCreate`, `BeforeUpdate`) and k8s.io/apimachinery
//! `pkg/api/validation/objectmeta.go`.

use std::cell::OnceCell;
use std::collections::HashSet;

use plinth_codec::error::quoted;
use plinth_codec::time::Timestamp;
use plinth_codec::{json, names, Map, Value};
use smol_str::SmolStr;

use crate::api_error::{ApiError, Cause, Reason, MOST_ERRORS};
use crate::field::{self, FieldPath};

/// Maximum size of an object's annotations, keys and values together, in bytes.
const ANNOTATIONS_MAX: usize = 256 << 10;
/// Length of the suffix that the server appends to `generateName`.
const GENERATED_SUFFIX: usize = 5;
/// Maximum length of the prefix that is kept of `generateName`.
pub const GENERATED_PREFIX_MAX: usize = 63 - GENERATED_SUFFIX;
/// The characters of a generated suffix: no vowels and no look-alikes, as upstream
/// (apimachinery `pkg/util/rand`).
const SUFFIX_CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The finalizers of the garbage collector.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// See [`FINALIZER_ORPHAN`].
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// Whether a finalizer has a domain, or is one of the few that need none (`IsStandardFinalizerName`).
pub fn is_standard_or_qualified_finalizer(finalizer: &str) -> bool {
    finalizer.contains('/') || matches!(finalizer, "kubernetes" | FINALIZER_ORPHAN | FINALIZER_FOREGROUND)
}

/// The non-deterministic inputs of a create, time and randomness, so that rules stay pure.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The current time, RFC 3339 in UTC with seconds.
    pub now: SmolStr,
    /// A fresh UID.
    pub uid: String,
}

impl Moment {
    /// The current moment.
    pub fn present() -> Moment {
        Moment { now: timestamp_now(), uid: uuid::Uuid::new_v4().to_string() }
    }
}

/// The current time, RFC 3339 in UTC with seconds.
pub fn timestamp_now() -> SmolStr {
    Timestamp::now().to_rfc3339()
}

/// Five random characters, for `generateName`.
pub fn generated_suffix() -> String {
    let random = uuid::Uuid::new_v4();
    let bytes = random.as_bytes().iter().take(GENERATED_SUFFIX);
    bytes.map(|b| char::from(SUFFIX_CHARACTERS[usize::from(*b) % SUFFIX_CHARACTERS.len()])).collect()
}

/// The metadata of an object, added if absent.
pub fn metadata_mut(object: &mut Value) -> Result<&mut Map, ApiError> {
    object.object_at_mut(&["metadata"]).ok_or_else(|| ApiError::bad_request("metadata is not an object"))
}

/// A text field of metadata; empty when absent.
pub fn metadata_text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.str_at(&["metadata", key]).unwrap_or_default()
}

/// `metadata.resourceVersion` as a number, 0 where there is none (`ObjectResourceVersion` in k8s.io/apiserver
/// `pkg/storage/api_object_versioner.go`).
///
/// # Errors
/// 500 with the text of Go's `strconv.ParseUint`.
pub fn resource_version(object: &Value) -> Result<u64, ApiError> {
    let text = metadata_text(object, "resourceVersion");
    if text.is_empty() {
        return Ok(0);
    }
    let parsed = match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().map_err(|_| "value out of range"),
        false => Err("invalid syntax"),
    };
    parsed.map_err(|why| {
        let what = format!("strconv.ParseUint: parsing {}: {why}", quoted(text));
        ApiError::new(500, Reason::Unknown, what)
    })
}

/// Whether `metadata.deletionTimestamp` is set.
pub fn is_deleting(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some_and(|t| !t.is_null())
}

/// The finalizers in their order.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.at(&["metadata", "finalizers"]).and_then(Value::as_array);
    list.map(|l| l.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Clears the fields that a client cannot set at create.
///
/// # Errors
/// When metadata is no object.
pub fn wipe_system_fields(object: &mut Value) -> Result<(), ApiError> {
    let metadata = metadata_mut(object)?;
    const SET_BY_SERVER: [&str; 6] = [
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ];
    for key in SET_BY_SERVER {
        metadata.remove(key);
    }
    Ok(())
}

/// Removes duplicate owner references; returns the UIDs of the duplicates.
pub fn dedup_owners(object: &mut Value) -> Vec<String> {
    let owners = object.get_mut("metadata").and_then(|m| m.get_mut("ownerReferences"));
    let Some(owners) = owners.and_then(Value::as_array_mut).filter(|owners| owners.len() > 1) else {
        return Vec::new();
    };
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut twice: Vec<String> = Vec::new();
    // A body may contain a great number of them, so they are looked up in sets, not compared pairwise.
    let (mut seen, mut reported) = (HashSet::new(), HashSet::new());
    for owner in owners.drain(..) {
        let mut text = Vec::with_capacity(256);
        json::write_untyped(&owner, &mut text);
        if seen.insert(text) {
            kept.push(owner);
            continue;
        }
        let uid = owner.str_at(&["uid"]).unwrap_or_default().to_owned();
        if reported.insert(uid.clone()) {
            twice.push(uid);
        }
    }
    *owners = kept;
    twice
}

/// Copies the fields that an update cannot change from the stored object, before validation. The generation
/// increases with any change outside of metadata and status.
///
/// # Errors
/// When metadata is no object.
pub fn prepare_metadata_update(object: &mut Value, old: &Value) -> Result<(), ApiError> {
    let old_metadata = old.get("metadata").and_then(Value::as_object);
    let kept = |key: &str| old_metadata.and_then(|m| m.get(key)).filter(|v| !v.is_null()).cloned();
    let metadata = metadata_mut(object)?;
    metadata.remove("selfLink");
    if metadata.get("uid").and_then(Value::as_str).unwrap_or_default().is_empty() {
        metadata.insert("uid", kept("uid").unwrap_or_default());
    }
    for key in ["creationTimestamp", "generation"] {
        match kept(key) {
            Some(value) => metadata.insert(key, value),
            None => metadata.remove(key),
        };
    }
    // `deletionTimestamp` cannot be removed; adding it to an object that is not being deleted is a validation
    // error.
    if let Some(value) = kept("deletionTimestamp") {
        metadata.insert("deletionTimestamp", value);
    }
    if metadata.get("deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        match kept("deletionGracePeriodSeconds") {
            Some(value) => metadata.insert("deletionGracePeriodSeconds", value),
            None => metadata.remove("deletionGracePeriodSeconds"),
        };
    }
    Ok(())
}

/// 400: an update whose object has no name.
pub fn nameless_error(name: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    ))
}

/// Validates a change of metadata.
pub fn validate_metadata_update(object: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    for key in ["name", "namespace", "uid", "creationTimestamp"] {
        let (new, old) = (metadata_text(object, key), metadata_text(old, key));
        if new != old {
            errors.push(Cause::invalid(format!("metadata.{key}"), new, "field is immutable"));
        }
    }
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        let [new, old] = [object, old].map(|o| o.at(&["metadata", key]).filter(|value| !value.is_null()));
        if new != old {
            let shown = new.cloned().unwrap_or_default();
            errors.push(Cause::invalid(format!("metadata.{key}"), shown, "field is immutable"));
        }
    }
    if is_deleting(old) {
        let before: HashSet<&str> = finalizers(old).into_iter().collect();
        let mut extra: Vec<&str> = finalizers(object).into_iter().filter(|f| !before.contains(f)).collect();
        extra.sort_unstable();
        if !extra.is_empty() {
            let quoted: Vec<String> = extra.iter().map(|f| format!("{f:?}")).collect();
            errors.push(Cause::forbidden(
                "metadata.finalizers",
                &format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    quoted.join(", ")
                ),
            ));
        }
    }
    errors
}

/// Validates a map of labels.
pub fn label_errors(labels: Option<&Value>, path: FieldPath<'_>) -> Vec<Cause> {
    let mut errors = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        if errors.len() >= MOST_ERRORS {
            break;
        }
        errors.extend(names::qualified_name_errors(key).iter().map(|m| Cause::invalid(path, key.clone(), m)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::label_value_errors(value).iter().map(|m| Cause::invalid(path, value, m)));
    }
    errors
}

/// Validates annotations.
pub fn annotation_errors(annotations: Option<&Value>, path: FieldPath<'_>) -> Vec<Cause> {
    let mut errors = Vec::new();
    let mut size = 0usize;
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        if errors.len() < MOST_ERRORS {
            let messages = names::qualified_name_errors(&key.to_lowercase());
            errors.extend(messages.iter().map(|m| Cause::invalid(path, key.clone(), m)));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(Cause::too_long(path, ANNOTATIONS_MAX));
    }
    errors
}

/// Validates owner references. Errors carry no index, as upstream's.
pub fn owner_errors(owners: Option<&Value>) -> Vec<Cause> {
    const PATH: &str = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    // Formatted once: each of many errors would copy the whole list.
    let all = OnceCell::new();
    let all = || all.get_or_init(|| owners.map(field::shown_value).unwrap_or_default());
    for owner in owners.and_then(Value::as_array).unwrap_or_default() {
        if errors.len() >= MOST_ERRORS {
            break;
        }
        let text = |key: &str| owner.str_at(&[key]).unwrap_or_default();
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            errors.push(Cause::invalid(
                format!("{PATH}.apiVersion"),
                api_version,
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(Cause::invalid(format!("{PATH}.{key}"), "", "must not be empty"));
            }
        }
        if api_version == "v1" && text("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(Cause::invalid(PATH, owner.clone(), why));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    errors.push(Cause::invalid_shown(PATH, all(), &why));
                }
                None => controller = Some(this),
            }
        }
    }
    errors
}

/// Finalizers of built-in kinds must be qualified with a domain; those of custom resources need not.
pub fn finalizer_errors(finalizers: &[&str], is_builtin: bool) -> Vec<Cause> {
    const PATH: &str = "metadata.finalizers";
    let mut errors: Vec<Cause> = finalizers
        .iter()
        .flat_map(|f| names::qualified_name_errors(f).into_iter().map(move |m| Cause::invalid(PATH, *f, &m)))
        .take(MOST_ERRORS)
        .collect();
    if is_builtin {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        let odd = finalizers.iter().enumerate().filter(|(_, f)| !is_standard_or_qualified_finalizer(f));
        errors.extend(odd.take(MOST_ERRORS).map(|(i, f)| Cause::invalid(format!("{PATH}[{i}]"), *f, why)));
    }
    if finalizers.contains(&FINALIZER_ORPHAN) && finalizers.contains(&FINALIZER_FOREGROUND) {
        let all: Vec<Value> = finalizers.iter().map(|f| Value::from(*f)).collect();
        let why = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        errors.push(Cause::invalid(PATH, all, &why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_there_once() {
        let mut object = json::parse(
            br#"{"metadata":{"ownerReferences":[{"uid":"a"},{"uid":"b"},{"uid":"a"},{"uid":"a"},{"uid":"a","name":"other"}]}}"#,
        )
        .unwrap();
        assert_eq!(dedup_owners(&mut object), ["a"]);
        let kept = object.at(&["metadata", "ownerReferences"]).and_then(Value::as_array).unwrap();
        assert_eq!(kept.len(), 3);
        assert_eq!(dedup_owners(&mut object), Vec::<String>::new());
        assert_eq!(dedup_owners(&mut Value::object()), Vec::<String>::new());
    }
}
