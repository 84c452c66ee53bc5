//! What ConfigMaps and Secrets may hold (kubernetes `pkg/apis/core/validation`).

use plinth_codec::{Map, Value};

use plinth_api::api_error::Cause;
use plinth_api::field;

/// The most that the values may weigh, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// The longest key, in bytes.
const KEY_MAX: usize = 253;

/// Keys and size of a ConfigMap or Secret.
pub fn validate(object: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let mut size = 0usize;
    let is_secret = object.str_at(&["kind"]) == Some("Secret");
    for part in ["data", "binaryData"] {
        for (key, value) in object.get(part).and_then(Value::as_object).into_iter().flat_map(Map::iter) {
            let text = value.as_str().unwrap_or_default();
            // Base64 is four characters for three bytes.
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
    if size > SIZE_MAX {
        errors.push(field::too_long("[]", SIZE_MAX));
    }
    errors
}

fn key_errors(key: &str) -> Option<&'static str> {
    const RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let made_of = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match key {
        _ if key.len() > KEY_MAX => Some("must be no more than 253 bytes"),
        "" => Some(RULE),
        _ if !key.bytes().all(made_of) => Some(RULE),
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        _ if key.starts_with("..") => Some("must not start with '..'"),
        _ => None,
    }
}
/// A LimitRange without a name gets one that nobody else has.
pub fn name_limit_range(range: &mut Value) {
    if let Some(metadata) = range.object_at_mut(&["metadata"]) {
        if metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
            metadata.insert("name", uuid::Uuid::new_v4().to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_limit_range_gets_a_name_unless_it_has_one() {
        let named = |text: &str| {
            let mut range = json::parse(text.as_bytes()).unwrap();
            name_limit_range(&mut range);
            range.str_at(&["metadata", "name"]).unwrap_or_default().to_owned()
        };
        assert_eq!(named(r#"{"metadata":{"name":"a"}}"#), "a");
        assert!(uuid::Uuid::parse_str(&named("{}")).is_ok());
        assert_ne!(named("{}"), named("{}"));
    }
}
