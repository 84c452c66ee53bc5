//! The data of ConfigMaps and Secrets (kubernetes `pkg/apis/core/validation`).

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::{Map, Value};

use crate::checks::immutable::immutable;

/// Maximum size of all values, in bytes.
const MAX_DATA_SIZE: usize = 1 << 20;

/// Maximum length of a key, in bytes.
const MAX_KEY_LENGTH: usize = 253;

/// Validates keys and size of a ConfigMap or Secret.
pub(crate) fn validate_data(object: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let mut size = 0usize;
    let is_secret = object.str_at(&["kind"]) == Some("Secret");
    for part in ["data", "binaryData"] {
        for (key, value) in object.get(part).and_then(Value::as_object).into_iter().flat_map(Map::iter) {
            let text = value.as_str().unwrap_or_default();
            // Base64 encodes three bytes as four characters.
            let is_base64 = is_secret || part == "binaryData";
            size += if is_base64 { text.trim_end_matches('=').len() * 3 / 4 } else { text.len() };
            errors.extend(
                key_errors(key).map(|why| field::invalid(format!("{part}[{key}]"), key.clone(), why)),
            );
        }
    }
    let binary = object.get("binaryData").and_then(Value::as_object);
    let keys =
        object.get("data").and_then(Value::as_object).into_iter().flat_map(Map::iter).map(|(key, _)| key);
    for key in keys.filter(|key| binary.is_some_and(|binary| binary.contains(key))) {
        let why = "duplicate of key present in binaryData";
        errors.push(field::invalid(format!("data[{key}]"), key.clone(), why));
    }
    if size > MAX_DATA_SIZE {
        errors.push(field::too_long("[]", MAX_DATA_SIZE));
    }
    errors
}

fn key_errors(key: &str) -> Option<&'static str> {
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
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    const WHY: &str = "field is immutable when `immutable` is set";
    let mut errors = Vec::new();
    if new.str_at(&["kind"]) == Some("Secret") {
        immutable(&["type"], new, old, &mut errors);
    }
    if old.get("immutable").and_then(Value::as_bool) == Some(true) {
        if new.get("immutable").and_then(Value::as_bool) != Some(true) {
            errors.push(field::forbidden("immutable", WHY));
        }
        let changed = ["data", "binaryData"].into_iter().filter(|part| new.get(part) != old.get(part));
        errors.extend(changed.map(|part| field::forbidden(part, WHY)));
    }
    errors
}
