//! The spec of a claim on a volume: of PersistentVolumeClaims, ephemeral volumes and StatefulSets.

use plinth_api::Cause;
use plinth_codec::{names, Value};

use crate::checks::Check::{self, By, Enum, In, PositiveQuantity, Required, Selector, Set, Text};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::Str;
use crate::warnings::{warn_fractional_bytes, Warnings};

/// Defaults of a claim's spec.
pub(crate) const CLAIM_SPEC_DEFAULTS: &[DefaultRule] = &[Field("volumeMode", Str("Filesystem"))];

/// Valid access modes.
const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Checks of the spec of a claim.
pub(crate) const SPEC_CHECKS: &[Check] = &[
    Required("accessModes", "at least 1 access mode is required"),
    Selector("selector"),
    By(access_modes),
    By(storage_request),
    Text("storageClassName", names::dns1123_subdomain_errors),
    Enum("volumeMode", &["Block", "Filesystem"]),
    In("dataSource", DATA_SOURCE),
    In("dataSourceRef", DATA_SOURCE),
    In("dataSourceRef", &[Text("namespace", names::dns1123_label_errors)]),
    By(sources_agree),
    Text("volumeAttributesClassName", names::dns1123_subdomain_errors),
];

const DATA_SOURCE: &[Check] = &[
    Required("name", ""),
    Required("kind", ""),
    Text("apiGroup", names::dns1123_subdomain_errors),
    By(|source| {
        let kind = source.text("kind");
        if source.text("apiGroup").is_empty() && kind != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            source.invalid("", kind, why);
        }
    }),
];

/// Validates the access modes of a claim or a volume.
pub(crate) fn access_modes(object: &Part<'_>) {
    let modes: Vec<&str> = object.list("accessModes").iter().filter_map(Value::as_str).collect();
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        object.not_supported("accessModes", *mode, ACCESS_MODES);
    }
    let others = modes.iter().any(|mode| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode));
    if others && modes.contains(&"ReadWriteOncePod") {
        object.forbidden("accessModes", "may not use ReadWriteOncePod with other access modes");
    }
}

/// Upstream reports the path of its internal version.
fn storage_request(claim: &Part<'_>) {
    let storage = claim.field_as("resources.requests.storage", "resources[storage]");
    storage.check(&[Set("", ""), PositiveQuantity("", "must be greater than zero")]);
}

fn sources_agree(claim: &Part<'_>) {
    let (Some(source), Some(reference)) = (claim.get("dataSource"), claim.get("dataSourceRef")) else {
        return;
    };
    let same = |key: &str| source.text(key) == reference.text(key);
    let why = match reference.text("namespace").is_empty() {
        false => "may not be specified when dataSourceRef.namespace is specified",
        true if same("apiGroup") && same("kind") && same("name") => return,
        true => "must match dataSourceRef",
    };
    // Upstream reports the path in place of the value.
    claim.push(Cause::invalid_shown(claim.path(""), &format!("\"{}\"", source.path("")), why));
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
