//! The fields of an object that a request does not write: the status, or everything except the status.

use std::borrow::Cow;

use plinth_codec::{Map, Value};
use smol_str::SmolStr;

use super::Context;

/// Top-level fields of an object by name; `None` for an absent one.
pub(super) type Members = Vec<(SmolStr, Option<Value>)>;

/// An object and its status are written separately: restores the stored values of fields that the request
/// does not write. Returns the sent values where they differ.
pub(super) fn keep_unwritten(cx: &Context, new: &mut Value, old: &Value) -> Members {
    let kept = unwritten_fields(cx, new, old);
    let Some(object) = new.as_object_mut() else { return Members::new() };
    kept.into_iter()
        .map(|(key, value)| {
            let sent = match value {
                Some(value) => object.insert(key.clone(), value),
                None => object.remove(&key),
            };
            (key, sent)
        })
        .collect()
}

/// Undoes [`keep_unwritten`] except for managedFields.
pub(super) fn restore_sent(new: &mut Value, sent: Members) {
    let managed = new.at(&["metadata", "managedFields"]).cloned();
    let Some(object) = new.as_object_mut() else { return };
    for (key, value) in sent {
        match value {
            Some(mut value) => {
                if key == "metadata" {
                    set_managed_fields(&mut value, managed.clone());
                }
                object.insert(key, value);
            }
            None => {
                object.remove(&key);
            }
        }
    }
}

/// The fields that a request does not write, where they differ, with their stored values.
fn unwritten_fields(cx: &Context, new: &Value, old: &Value) -> Members {
    let has_status = cx.resource.row.subresource("status").is_some();
    let mut part = Members::new();
    let mut keep = |key: &str, value: Option<Cow<'_, Value>>| {
        if new.get(key) != value.as_deref() {
            part.push((SmolStr::new(key), value.map(Cow::into_owned)));
        }
    };
    let stored = |key: &str| old.get(key).map(Cow::Borrowed);
    if cx.resource.is_custom() && cx.info.subresource == "status" {
        // A status update of a custom resource changes no metadata except managedFields.
        let mut metadata = old.get("metadata").cloned().unwrap_or_else(Value::object);
        set_managed_fields(&mut metadata, new.at(&["metadata", "managedFields"]).cloned());
        keep("metadata", Some(Cow::Owned(metadata)));
    }
    if let Some(kept) = (cx.resource.strategy.unwritten)(&cx.info.subresource, new, old) {
        kept.into_iter().for_each(|(key, value)| keep(key, value));
        return part;
    }
    match cx.info.subresource.as_str() {
        "" if has_status => keep("status", stored("status")),
        "status" => {
            let names = |object: &Value| -> Vec<SmolStr> {
                object.as_object().into_iter().flat_map(Map::iter).map(|(key, _)| key.clone()).collect()
            };
            let (sent, kept) = (names(new), names(old));
            let is_written = |key: &str| matches!(key, "metadata" | "status");
            let is_type = |key: &str| matches!(key, "kind" | "apiVersion");
            for key in sent.iter().filter(|key| !is_written(key) && !is_type(key) && !kept.contains(key)) {
                keep(key, None);
            }
            kept.iter().filter(|key| !is_written(key)).for_each(|key| keep(key, stored(key)));
        }
        _ => {}
    }
    part
}

fn set_managed_fields(metadata: &mut Value, managed: Option<Value>) {
    let Some(metadata) = metadata.as_object_mut() else { return };
    match managed {
        Some(managed) => metadata.insert("managedFields", managed),
        None => metadata.remove("managedFields"),
    };
}
