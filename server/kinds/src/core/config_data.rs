//! The data of ConfigMaps and Secrets (kubernetes `pkg/apis/core/validation`).

use plinth_api::Cause;
use plinth_codec::Value;

use crate::checks::immutable::immutable;
use crate::checks::Part;

/// Maximum size of all values, in bytes.
const MAX_DATA_SIZE: usize = 1 << 20;

/// Maximum length of a key, in bytes.
const MAX_KEY_LENGTH: usize = 253;

/// Validates keys and size of a ConfigMap or Secret.
pub(crate) fn validate_data(object: &Part<'_>) {
    let mut size = 0usize;
    let is_secret = object.text("kind") == "Secret";
    for part in ["data", "binaryData"] {
        for (key, value) in object.entries(part) {
            let text = value.text("");
            // Base64 encodes three bytes as four characters.
            let is_base64 = is_secret || part == "binaryData";
            size += if is_base64 { text.trim_end_matches('=').len() * 3 / 4 } else { text.len() };
            if let Some(why) = key_error(key) {
                value.invalid("", key, why);
            }
        }
    }
    let binary = object.at("binaryData").and_then(Value::as_object);
    for (key, value) in object.entries("data") {
        if binary.is_some_and(|binary| binary.contains(key)) {
            value.invalid("", key, "duplicate of key present in binaryData");
        }
    }
    if size > MAX_DATA_SIZE {
        object.push(Cause::too_long("[]", MAX_DATA_SIZE));
    }
}

fn key_error(key: &str) -> Option<&'static str> {
    const RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let made_of = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match key {
        _ if key.len() > MAX_KEY_LENGTH => Some("must be no more than 253 bytes"),
        "" => Some(RULE),
        _ if !key.bytes().all(made_of) => Some(RULE),
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        _ if key.starts_with("..") => Some("must not start with '..'"),
        _ => None,
    }
}

/// An object with `immutable: true` cannot change, and the field cannot be reset.
pub(crate) fn validate_update(new: &Part<'_>, old: &Value) {
    const WHY: &str = "field is immutable when `immutable` is set";
    if new.text("kind") == "Secret" {
        immutable(&["type"], new, old);
    }
    if old.get("immutable").and_then(Value::as_bool) == Some(true) {
        if !new.is_true("immutable") {
            new.forbidden("immutable", WHY);
        }
        let changed = ["data", "binaryData"].into_iter();
        let changed = changed.filter(|part| new.value().get(part) != old.get(part));
        changed.for_each(|part| new.forbidden(part, WHY));
    }
}
