//! Validation of environment variables and their sources.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::{names, Map, Value};

use crate::checks::Check::{self, By, Required, RequiredText, Text};
use crate::checks::{check_text, validate};
use crate::path::{at, int, text};
use crate::pod_template::volume::no_backsteps;

/// Checks of one variable.
pub(crate) const VARIABLE: &[Check] = &[RequiredText("name", variable_errors), By(value_from)];

/// Fields of a pod that a variable can refer to.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Field labels of pods that upstream converts; `fieldRef` to any other path is malformed.
const LABELS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Errors of a key of a ConfigMap or Secret.
fn config_key_errors(key: &str) -> Vec<String> {
    const MAX: usize = 253;
    let mut errors = Vec::new();
    if key.len() > MAX {
        errors.push(format!("must be no more than {MAX} characters"));
    }
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(good) {
        errors.push("a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".into());
    }
    match key {
        "." | ".." => errors.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => errors.push("must not start with '..'".into()),
        _ => {}
    }
    errors
}

/// Errors of the name of a variable.
fn variable_errors(name: &str) -> Vec<String> {
    const WHY: &str =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    match name.contains('=') || !name.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        true => vec![WHY.into()],
        false => Vec::new(),
    }
}

fn value_from(variable: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(source) = at(variable, "valueFrom") else { return };
    let here = format_args!("{path}valueFrom");
    if let Some(of_field) = at(source, "fieldRef") {
        field_ref(of_field, FIELDS, format_args!("{here}.fieldRef."), errors);
    }
    if let Some(of_resource) = at(source, "resourceFieldRef") {
        resource_ref(of_resource, false, format_args!("{here}.resourceFieldRef."), errors);
    }
    for part in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(key) = at(source, part) {
            let path = format_args!("{here}.{part}.");
            check_text(
                format_args!("{path}name"),
                text(key, "name"),
                names::dns1123_subdomain_errors,
                errors,
            );
            validate(&[RequiredText("key", config_key_errors)], key, path, errors);
        }
    }
    if let Some(file) = at(source, "fileKeyRef") {
        let path = format_args!("{here}.fileKeyRef.");
        let checks = &[
            RequiredText("key", variable_errors),
            RequiredText("volumeName", names::dns1123_label_errors),
            Required("path", ""),
        ];
        validate(checks, file, path, errors);
        no_backsteps(text(file, "path"), format_args!("{path}path"), errors);
    }
    let count = source.as_object().into_iter().flat_map(Map::iter).filter(|(_, v)| !v.is_null()).count();
    let why = match count {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !text(variable, "value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(field::invalid(here, "", why));
}

/// Splits `metadata.labels['a']` into path and subscript.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_suffix("']")?;
    rest.split_once("['").filter(|(before, _)| !before.is_empty())
}

/// Validates `fieldRef`; `path` ends in a dot.
pub(crate) fn field_ref(given: &Value, allowed: &[&str], path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (version, name) = (text(given, "apiVersion"), text(given, "fieldPath"));
    let here = format_args!("{path}fieldPath");
    if version.is_empty() {
        errors.push(field::required(format_args!("{path}apiVersion"), ""));
    }
    if name.is_empty() {
        errors.push(field::required(here, ""));
        return;
    }
    let subscript = subscripted(name);
    let wrong = match subscript {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {name}")),
        None if name == "spec.host" || LABELS.contains(&name) => None,
        None => Some(format!("field label not supported: {name}")),
    };
    if let Some(why) = wrong {
        errors.push(field::invalid(here, name, &format!("error converting fieldPath: {why}")));
        return;
    }
    let name = if name == "spec.host" { "spec.nodeName" } else { name };
    let reference = ParentPath(path);
    match subscript {
        Some(("metadata.annotations", key)) => {
            check_text(
                format_args!("{reference}"),
                &key.to_lowercase(),
                names::qualified_name_errors,
                errors,
            );
        }
        Some((_, key)) => check_text(format_args!("{reference}"), key, names::qualified_name_errors, errors),
        None if !allowed.contains(&name) => errors.push(field::not_supported(here, name, allowed)),
        None => {}
    }
}

/// Validates `resourceFieldRef`; in a volume it must have `containerName`.
pub(crate) fn resource_ref(given: &Value, in_volume: bool, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let name = text(given, "resource");
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if in_volume && text(given, "containerName").is_empty() {
        errors.push(field::required(format_args!("{path}containerName"), ""));
    } else if name.is_empty() {
        errors.push(field::required(format_args!("{path}resource"), ""));
    } else if !RESOURCES.contains(&name) && !huge {
        errors.push(field::not_supported(format_args!("{path}resource"), name, RESOURCES));
    }
    divisor(given, name, huge, path, errors);
}

fn divisor(given: &Value, name: &str, huge: bool, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const SIZES: &[&str] =
        &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let divisor = match at(given, "divisor") {
        Some(Value::String(text)) => text.to_string(),
        _ => int(given, "divisor").unwrap_or(0).to_string(),
    };
    let (what, allowed) = match name {
        "limits.cpu" | "requests.cpu" => ("cpu", &["1m", "1"][..]),
        "limits.memory" | "requests.memory" => ("memory", SIZES),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => ("local ephemeral storage", SIZES),
        _ if huge => ("hugepages", SIZES),
        _ => return,
    };
    if matches!(divisor.as_str(), "0" | "") || allowed.contains(&divisor.as_str()) {
        return;
    }
    let values = match what {
        "cpu" => "1m and 1".to_owned(),
        _ => allowed.join(", "),
    };
    let why = format!("only divisor's values {values} are supported with the {what} resource");
    errors.push(field::invalid(format_args!("{path}divisor"), name, &why));
}

/// Validates `envFrom`; `path` is that of the list.
pub(crate) fn env_from(source: &Value, path: FieldPath<'_>, index: usize, errors: &mut Vec<Cause>) {
    validate(&[Text("prefix", variable_errors)], source, format_args!("{path}[{index}]."), errors);
    let mut count = 0;
    for part in ["configMapRef", "secretRef"] {
        if let Some(named) = at(source, part) {
            count += 1;
            let path = format_args!("{path}[{index}].{part}.");
            validate(&[RequiredText("name", names::dns1123_subdomain_errors)], named, path, errors);
        }
    }
    // Upstream reports the path of the list.
    match count {
        0 => errors.push(field::invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")),
        1 => {}
        _ => errors.push(field::invalid(path, "", "may not have more than one field specified at a time")),
    }
}
