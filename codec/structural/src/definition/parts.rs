//! Columns, subresources, selectable fields, names and deprecation.

use plinth_codec::field::{FieldError, Path};
use plinth_codec::names;
use plinth_codec::value::{Map, Value};

use super::view::Version;
use crate::props::Props;

/// Maximum number of selectable fields of a version.
pub(super) const MAX_SELECTABLE: usize = 8;

/// Names in `spec.names` or `status.acceptedNames`.
pub(super) fn name_errors(path: &Path<'_>, names: &Map) -> Vec<FieldError> {
    let text = |key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    for (key, mixed_case) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let name = text(key);
        let wrong = match (name, mixed_case) {
            ("", _) => continue,
            (name, true) => names::dns1035_label_errors(&name.to_lowercase()),
            (name, false) => names::dns1035_label_errors(name),
        };
        if wrong.is_empty() {
            continue;
        }
        let before = if mixed_case { "may have mixed case, but should otherwise match: " } else { "" };
        let why = format!("{before}{}", wrong.join(","));
        errors.push(FieldError::invalid(path.child(key), &name.into(), why));
    }
    let mut listed = |key: &str| {
        let path = path.child(key);
        for (i, name) in names.get(key).and_then(Value::as_array).unwrap_or_default().iter().enumerate() {
            let wrong = names::dns1035_label_errors(name.as_str().unwrap_or_default());
            if !wrong.is_empty() {
                errors.push(FieldError::invalid(path.index(i), name, wrong.join(",")));
            }
        }
    };
    listed("shortNames");
    listed("categories");
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(path.child("listKind"), &text("listKind").into(), why));
    }
    errors
}

pub(super) fn deprecation_errors(path: &Path<'_>, version: &Version<'_>) -> Vec<FieldError> {
    let Some(warning) = version.deprecation_warning else { return Vec::new() };
    let mut why: Vec<String> = Vec::new();
    if !version.is_deprecated {
        why.push("can only be set for deprecated versions".into());
    } else {
        if warning.len() > 256 {
            why.push("must be <= 256 characters long".into());
        }
        if warning.is_empty() {
            why.push("must not be an empty string".into());
        }
        let is_printable = |c: char| !c.is_control() && (c == ' ' || !c.is_whitespace());
        if let Some((i, _)) = warning.char_indices().find(|(_, c)| !is_printable(*c)) {
            why.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {i}"
            ));
        }
    }
    let at = path.child("deprecationWarning");
    why.into_iter().map(|why| FieldError::invalid(at, &warning.into(), why)).collect()
}

/// Whether the status subresource is enabled.
pub(super) fn has_status(subresources: &Value) -> bool {
    subresources.get("status").is_some_and(|status| !status.is_null())
}

pub(super) fn subresource_errors(path: &Path<'_>, subresources: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(scale) = subresources.get("scale").filter(|scale| !scale.is_null()) else { return errors };
    let paths: [(&str, &[&str], &str); 3] = [
        ("specReplicasPath", &[".spec."], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ];
    let scale_path = path.child("scale");
    for (key, below, why) in paths {
        let at = scale_path.child(key);
        match scale.str_at(&[key]).unwrap_or_default() {
            "" if key == "labelSelectorPath" => {}
            "" => errors.push(FieldError::required(at, "")),
            given => match json_path_error(&at, given) {
                Some(error) => errors.push(error),
                None if below.iter().any(|start| given.starts_with(start)) => {}
                None => errors.push(FieldError::invalid(at, &given.into(), why)),
            },
        }
    }
    errors
}

/// Upstream only checks how these paths begin.
fn json_path_error(path: &Path<'_>, given: &str) -> Option<FieldError> {
    (!given.starts_with('.'))
        .then(|| FieldError::invalid(path, &given.into(), "must be a simple json path starting with ."))
}

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

pub(super) fn column_errors(path: &Path<'_>, columns: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, column) in columns.iter().enumerate() {
        let path = path.index(i);
        let text = |key: &str| column.str_at(&[key]).unwrap_or_default();
        if text("name").is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        let one_of = |all: &[&str]| format!("must be one of {}", all.join(","));
        match text("type") {
            "" => errors.push(FieldError::required(path.child("type"), one_of(&COLUMN_TYPES))),
            kind if COLUMN_TYPES.contains(&kind) => {}
            kind => {
                errors.push(FieldError::invalid(path.child("type"), &kind.into(), one_of(&COLUMN_TYPES)));
            }
        }
        let format = text("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            errors.push(FieldError::invalid(path.child("format"), &format.into(), one_of(&COLUMN_FORMATS)));
        }
        let at = path.child("JSONPath");
        match text("jsonPath") {
            "" => errors.push(FieldError::required(at, "")),
            given => errors.extend(json_path_error(&at, given)),
        }
    }
    errors
}

/// `bounded` is false if there were too many fields before.
pub(super) fn selectable_errors(
    path: &Path<'_>,
    fields: &[Value],
    schema: Props<'_>,
    bounded: bool,
) -> Vec<FieldError> {
    let (mut errors, mut seen) = (Vec::new(), Vec::<&str>::new());
    for (i, field) in fields.iter().enumerate() {
        let path = path.index(i);
        let at = path.child("jsonPath");
        let given = field.str_at(&["jsonPath"]).unwrap_or_default();
        if given.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let found = match field_at(given, schema) {
            Ok(found) => found,
            Err(why) => {
                let why = format!("is an invalid path: {why}");
                errors.push(FieldError::invalid(at, &given.into(), why));
                continue;
            }
        };
        if given == ".metadata" || given.starts_with(".metadata.") {
            errors.push(FieldError::invalid(at, &given.into(), "must not point to fields in metadata"));
        }
        if !found.is_some_and(|f| matches!(f.kind(), "string" | "boolean" | "integer")) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(at, &given.into(), why));
        }
        match seen.contains(&given) {
            true => errors.push(FieldError::duplicate(at, &given.into())),
            false => seen.push(given),
        }
    }
    if seen.len() > MAX_SELECTABLE && bounded {
        errors.push(FieldError::too_many(path, seen.len() as i64, MAX_SELECTABLE as i64));
    }
    errors
}

/// The schema at a path of fields and keys: `.spec.color`; `None` below `additionalProperties: true`.
fn field_at<'a>(text: &str, schema: Props<'a>) -> Result<Option<Props<'a>>, String> {
    const NO_FIELD: &str = "does not refer to a valid field";
    let mut at = Some(schema);
    let mut rest = text;
    while !rest.is_empty() {
        if rest.starts_with('[') {
            return Err("array notation is not allowed".into());
        }
        let Some(after) = rest.strip_prefix('.') else {
            let token = &rest[..rest.find(['.', '[', ']']).filter(|at| *at > 0).unwrap_or(rest.len())];
            let token = if rest.starts_with(']') { "]" } else { token };
            return Err(format!("expected [ or . but got: {token}"));
        };
        if after.is_empty() {
            return Err("unexpected end of JSON path".into());
        }
        let end = after.find(['.', '[', ']']).unwrap_or(after.len());
        let (name, next) = after.split_at(end);
        let Some(schema) = at else { return Err(NO_FIELD.into()) };
        at = match (schema.named("properties").len(), schema.additional()) {
            (1.., _) => Some(schema.property(name).ok_or(NO_FIELD)?),
            (0, Some(_)) => schema.additional_schema(),
            (0, None) => return Err(NO_FIELD.into()),
        };
        rest = next;
    }
    Ok(at)
}

/// A string that must be one of a few.
pub(super) fn one_of(path: &Path<'_>, value: &str, accepted: &[&str]) -> Option<FieldError> {
    match value {
        "" => Some(FieldError::required(path, "")),
        value if accepted.contains(&value) => None,
        value => Some(FieldError::not_supported(path, &value.into(), accepted)),
    }
}
