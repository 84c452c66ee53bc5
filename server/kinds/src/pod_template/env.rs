//! Validation of environment variables and their sources.

use plinth_codec::names;

use crate::checks::Check::{
    self, AnyText, By, ExactlyOne, In, Is, Required, RequiredText, Text, WithoutIndex,
};
use crate::checks::{Part, PartError};
use crate::pod_template::file_paths::no_backsteps;

/// Checks of one variable.
pub(crate) const VARIABLE: &[Check] = &[RequiredText("name", variable_errors), By(value_from)];

const KEY_REFERENCE: &[Check] =
    &[AnyText("name", names::dns1123_subdomain_errors), RequiredText("key", names::config_key_errors)];

const FILE_KEY_REFERENCE: &[Check] = &[
    RequiredText("key", variable_errors),
    RequiredText("volumeName", names::dns1123_label_errors),
    Required("path", ""),
    Is("path", no_backsteps),
];

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

/// Errors of the name of a variable.
fn variable_errors(name: &str) -> Vec<String> {
    const WHY: &str =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    match name.contains('=') || !name.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        true => vec![WHY.into()],
        false => Vec::new(),
    }
}

fn value_from(variable: &Part<'_>) {
    let Some(source) = variable.get("valueFrom") else { return };
    if let Some(of_field) = source.get("fieldRef") {
        field_ref(&of_field, FIELDS);
    }
    if let Some(of_resource) = source.get("resourceFieldRef") {
        resource_ref(&of_resource, false);
    }
    for (part, checks) in [
        ("configMapKeyRef", KEY_REFERENCE),
        ("secretKeyRef", KEY_REFERENCE),
        ("fileKeyRef", FILE_KEY_REFERENCE),
    ] {
        if let Some(reference) = source.get(part) {
            reference.check(checks);
        }
    }
    let why = match source.members("").filter(|(_, value)| !value.is_null()).count() {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !variable.text("value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    source.invalid("", "", why);
}

/// Splits `metadata.labels['a']` into path and subscript.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_suffix("']")?;
    rest.split_once("['").filter(|(before, _)| !before.is_empty())
}

/// Validates `fieldRef`.
pub(crate) fn field_ref(reference: &Part<'_>, allowed: &[&str]) {
    let (version, name) = (reference.text("apiVersion"), reference.text("fieldPath"));
    reference.check(&[Required("apiVersion", ""), Required("fieldPath", "")]);
    if name.is_empty() {
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
        reference.invalid("fieldPath", name, &format!("error converting fieldPath: {why}"));
        return;
    }
    let name = if name == "spec.host" { "spec.nodeName" } else { name };
    match subscript {
        Some(("metadata.annotations", key)) => {
            reference.check_text("", &key.to_lowercase(), names::qualified_name_errors);
        }
        Some((_, key)) => reference.check_text("", key, names::qualified_name_errors),
        None if !allowed.contains(&name) => reference.not_supported("fieldPath", name, allowed),
        None => {}
    }
}

/// Validates `resourceFieldRef`; in a volume it must have `containerName`.
pub(crate) fn resource_ref(reference: &Part<'_>, in_volume: bool) {
    let name = reference.text("resource");
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if in_volume && reference.text("containerName").is_empty() {
        reference.required("containerName", "");
    } else if name.is_empty() {
        reference.required("resource", "");
    } else if !RESOURCES.contains(&name) && !huge {
        reference.not_supported("resource", name, RESOURCES);
    }
    divisor(reference, name, huge);
}

fn divisor(reference: &Part<'_>, name: &str, huge: bool) {
    const SIZES: &[&str] =
        &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let divisor = match reference.set_text("divisor") {
        Some(text) => text.to_owned(),
        None => reference.number("divisor").to_string(),
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
    reference.invalid("divisor", name, &why);
}

/// Checks of one element of `envFrom`.
pub(crate) const ENV_FROM: &[Check] = &[
    Text("prefix", variable_errors),
    In("configMapRef", &[RequiredText("name", names::dns1123_subdomain_errors)]),
    In("secretRef", &[RequiredText("name", names::dns1123_subdomain_errors)]),
    WithoutIndex(&[ExactlyOne(
        &["configMapRef", "secretRef"],
        PartError::InvalidText("must specify one of: `configMapRef` or `secretRef`"),
        PartError::InvalidText("may not have more than one field specified at a time"),
        &[],
    )]),
];
