//! The spec of a claim on a volume: of PersistentVolumeClaims, ephemeral volumes and StatefulSets.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Value};

use crate::checks::Check::{self, By, Enum, Required, Selector, Text};
use crate::checks::{check_text, validate};
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::Str;
use crate::path::{at, list, text};
use crate::warnings::{warn_fractional_bytes, Warnings};

/// Defaults of a claim's spec.
pub(crate) const CLAIM_SPEC_DEFAULTS: &[DefaultRule] = &[Field("volumeMode", Str("Filesystem"))];

/// Valid access modes.
const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

const SPEC_CHECKS: &[Check] = &[
    Required("accessModes", "at least 1 access mode is required"),
    Selector("selector"),
    By(access_modes),
    By(storage_request),
    Text("storageClassName", names::dns1123_subdomain_errors),
    Enum("volumeMode", &["Block", "Filesystem"]),
    By(|claim, path, errors| data_source(claim, "dataSource", path, errors)),
    By(|claim, path, errors| data_source(claim, "dataSourceRef", path, errors)),
    By(sources_agree),
    Text("volumeAttributesClassName", names::dns1123_subdomain_errors),
];

/// Validates the spec of a claim; `path` ends in a dot.
pub(crate) fn validate_spec(claim: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    validate(SPEC_CHECKS, claim, path, errors);
}

/// Validates the access modes of a claim or a volume.
pub(crate) fn access_modes(object: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let path = format_args!("{path}accessModes");
    let modes: Vec<&str> = list(object, "accessModes").iter().filter_map(Value::as_str).collect();
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.push(field::not_supported(path, *mode, ACCESS_MODES));
    }
    let others = modes.iter().any(|mode| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode));
    if others && modes.contains(&"ReadWriteOncePod") {
        errors.push(field::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

/// Upstream reports the path of its internal version.
fn storage_request(claim: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let here = format_args!("{path}resources[storage]");
    match at(claim, "resources.requests.storage").and_then(Value::as_str) {
        None => errors.push(field::required(here, "")),
        Some(shown) if Quantity::parse(shown).is_ok_and(|amount| amount.sign() <= 0) => {
            errors.push(field::invalid(here, shown, "must be greater than zero"));
        }
        Some(_) => {}
    }
}

fn data_source(claim: &Value, key: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(source) = at(claim, key) else { return };
    let here = format_args!("{path}{key}");
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    validate(&[Required("name", ""), Required("kind", "")], source, format_args!("{here}."), errors);
    if group.is_empty() {
        if kind != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(field::invalid(here, kind, why));
        }
    } else {
        check_text(format_args!("{here}.apiGroup"), group, names::dns1123_subdomain_errors, errors);
    }
    let namespace = text(source, "namespace");
    if key == "dataSourceRef" && !namespace.is_empty() {
        check_text(format_args!("{here}.namespace"), namespace, names::dns1123_label_errors, errors);
    }
}

fn sources_agree(claim: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (Some(source), Some(reference)) = (at(claim, "dataSource"), at(claim, "dataSourceRef")) else {
        return;
    };
    let same = |key: &str| text(source, key) == text(reference, key);
    let why = match text(reference, "namespace").is_empty() {
        false => "may not be specified when dataSourceRef.namespace is specified",
        true if same("apiGroup") && same("kind") && same("name") => return,
        true => "must match dataSourceRef",
    };
    // Upstream reports the path in place of the value.
    errors.push(field::invalid_shown(ParentPath(path), &format!("\"{path}dataSource\""), why));
}

pub(crate) const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(crate) const CLASS_ANNOTATION_WARNING: &str =
    r#"deprecated since v1.8; use "storageClassName" attribute instead"#;

/// Adds warnings about fractional byte quantities in the spec of a claim.
pub(crate) fn warn_spec(spec: Option<&Value>, path: &str, found: &mut Warnings) {
    for part in ["requests", "limits"] {
        let amounts = spec.and_then(|spec| spec.at(&["resources", part]));
        warn_fractional_bytes(amounts, "storage", &format!("{path}.resources.{part}"), found);
    }
}
