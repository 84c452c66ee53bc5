//! PersistentVolume (`core`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::quantity::Quantity;
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::time::Timestamp;
use plinth_codec::{names, Map, Value};

use crate::checks::comparison::{same, take};
use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, By, Enum, In, OneOf, Range, Required, Text};
use crate::checks::{check_text, validate};
use crate::columns;
use crate::columns::short_access_modes;
use crate::defaults::DefaultRule::{self, Field, IfPresent, RoundQuantities};
use crate::defaults::Literal::Str;
use crate::path::{at, is_empty, list, text};
use crate::pod_template::defaults::{
    AZURE_DISK_DEFAULTS, HOST_PATH_DEFAULTS, ISCSI_DEFAULTS, RBD_DEFAULTS, SCALE_IO_DEFAULTS,
};
use crate::pod_template::scheduling::NODE_SELECTOR_CHECKS;
use crate::pod_template::volume::{
    forbid_more, iscsi_name_errors, no_backsteps, AZURE_DISK_CHECKS, HOST_PATH_CHECKS, NFS_CHECKS,
    SCALE_IO_CHECKS,
};
use crate::pod_template::warnings::{deprecated_source, DEPRECATED_VOLUMES};
use crate::strategy::{Strategy, BASE};
use crate::volume_claim::{access_modes, CLASS_ANNOTATION, CLASS_ANNOTATION_WARNING};
use crate::warnings::node_labels::warn_expressions;
use crate::warnings::{annotation, Warnings};

pub(crate) const STRATEGY: Strategy = Strategy {
    returns_deleted_object: true,
    defaults: DEFAULTS,
    prepare_for_create,
    checks: CHECKS,
    warnings,
    validate_update,
    prepare_status,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Field("status.phase", Str("Pending")),
    Field("spec.persistentVolumeReclaimPolicy", Str("Retain")),
    Field("spec.volumeMode", Str("Filesystem")),
    IfPresent("spec", SOURCE_DEFAULTS),
    RoundQuantities("spec.capacity"),
];

/// Defaults of the source of a PersistentVolume.
pub(crate) const SOURCE_DEFAULTS: &[DefaultRule] = &[
    IfPresent("hostPath", HOST_PATH_DEFAULTS),
    IfPresent("iscsi", ISCSI_DEFAULTS),
    IfPresent("rbd", RBD_DEFAULTS),
    IfPresent("azureDisk", AZURE_DISK_DEFAULTS),
    IfPresent("scaleIO", SCALE_IO_DEFAULTS),
];

/// Sets the phase and its transition time.
fn prepare_for_create(volume: &mut Value) {
    if let Some(status) = volume.object_at_mut(&["status"]) {
        status.insert("phase", "Pending");
        status.insert("lastPhaseTransitionTime", Timestamp::now().to_rfc3339());
    }
}

const CHECKS: &[Check] = &[By(|volume, _, errors| {
    let nothing = Value::object();
    let spec = at(volume, "spec").unwrap_or(&nothing);
    validate(SPEC_CHECKS, spec, format_args!("spec."), errors);
    let has_options = volume.at(&["metadata", "annotations", MOUNT_OPTIONS]).is_some();
    if has_options && !MOUNTED_WITH_OPTIONS.iter().any(|source| at(spec, source).is_some()) {
        let why = "may not specify mount options for this volume type";
        errors.push(field::forbidden(format_args!("metadata.annotations.{MOUNT_OPTIONS}"), why));
    }
})];

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// Volume sources that support mount options (kubernetes `pkg/volume/validation`).
const MOUNTED_WITH_OPTIONS: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

const SPEC_CHECKS: &[Check] = &[
    Required("accessModes", ""),
    By(access_modes),
    By(capacity),
    OneOf("persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"]),
    By(node_affinity),
    By(sources),
    Text("storageClassName", names::dns1123_subdomain_errors),
    Enum("volumeMode", &["Block", "Filesystem"]),
    By(attributes_class),
];

/// Volume sources in upstream's order: field, field that errors report, checks.
const SOURCES: &[(&str, &str, &[Check])] = &[
    ("hostPath", "hostPath", HOST_PATH_CHECKS),
    ("gcePersistentDisk", "persistentDisk", &[Required("pdName", "")]),
    ("awsElasticBlockStore", "awsElasticBlockStore", &[Required("volumeID", "")]),
    ("glusterfs", "glusterfs", &[Required("endpoints", ""), Required("path", "")]),
    ("flocker", "flocker", &[]),
    ("nfs", "nfs", NFS_CHECKS),
    ("rbd", "rbd", &[Required("monitors", ""), Required("image", "")]),
    (
        "quobyte",
        "quobyte",
        &[
            Required("registry", "must be a host:port pair or multiple pairs separated by commas"),
            Required("volume", ""),
        ],
    ),
    ("cephfs", "cephfs", &[Required("monitors", "")]),
    (
        "iscsi",
        "iscsi",
        &[Required("targetPortal", ""), Check::RequiredText("iqn", iscsi_name_errors), Range("lun", 0, 255)],
    ),
    ("cinder", "cinder", &[Required("volumeID", "")]),
    ("fc", "fc", &[]),
    ("flexVolume", "flexVolume", &[Required("driver", "")]),
    ("azureFile", "azureFile", &[Required("secretName", ""), Required("shareName", "")]),
    ("vsphereVolume", "vsphereVolume", &[Required("volumePath", "")]),
    ("photonPersistentDisk", "photonPersistentDisk", &[Required("pdID", "")]),
    ("portworxVolume", "portworxVolume", &[Required("volumeID", "")]),
    ("azureDisk", "azureDisk", AZURE_DISK_CHECKS),
    ("scaleIO", "scaleIO", SCALE_IO_CHECKS),
    (
        "local",
        "local",
        &[Required("path", ""), By(|v, p, f| no_backsteps(text(v, "path"), format_args!("{p}path"), f))],
    ),
    ("storageos", "storageos", &[Check::RequiredText("volumeName", names::dns1123_label_errors)]),
    ("csi", "csi", CSI_CHECKS),
];

/// Whether a member of the spec is a volume source.
fn is_source(key: &str) -> bool {
    SOURCES.iter().any(|(known, ..)| *known == key)
}

const CSI_CHECKS: &[Check] = &[
    By(|csi, path, errors| csi_driver_name(text(csi, "driver"), format_args!("{path}driver"), errors)),
    Required("volumeHandle", ""),
    In("controllerPublishSecretRef", SECRET_CHECKS),
    In("controllerExpandSecretRef", SECRET_CHECKS),
    In("nodePublishSecretRef", SECRET_CHECKS),
    In("nodeExpandSecretRef", SECRET_CHECKS),
];

const SECRET_CHECKS: &[Check] = &[
    Check::RequiredText("name", names::dns1123_subdomain_errors),
    Check::RequiredText("namespace", names::dns1123_label_errors),
];

fn capacity(volume: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let here = format_args!("{path}capacity");
    let capacity = at(volume, "capacity").filter(|c| !is_empty(Some(c)));
    if capacity.is_none() {
        errors.push(field::required(here, ""));
    }
    if capacity.is_none_or(|c| c.get("storage").is_none() || c.as_object().is_some_and(|m| m.len() > 1)) {
        let shown = capacity.cloned().unwrap_or_default();
        errors.push(field::not_supported(here, shown, &["storage"]));
    }
    for (name, shown) in capacity.and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        let (here, shown) = (format_args!("{here}[{name}]"), shown.as_str().unwrap_or_default());
        let Ok(amount) = Quantity::parse(shown) else { continue };
        if amount.sign() < 0 {
            errors.push(field::invalid(here, amount.value(0), "must be a valid resource quantity"));
        }
        if amount.sign() <= 0 {
            errors.push(field::invalid(here, shown, "must be greater than zero"));
        }
    }
}

fn node_affinity(volume: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(affinity) = at(volume, "nodeAffinity") else { return };
    let here = format_args!("{path}nodeAffinity.required");
    match at(affinity, "required") {
        None => errors.push(field::required(here, "must specify required node constraints")),
        Some(required) => validate(NODE_SELECTOR_CHECKS, required, format_args!("{here}."), errors),
    }
}

fn sources(volume: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut named = 0;
    for (key, shown, checks) in SOURCES {
        let Some(source) = at(volume, key) else { continue };
        named += 1;
        if named > 1 {
            forbid_more(path, key, "may not specify more than 1 volume type", errors);
            continue;
        }
        validate(checks, source, format_args!("{path}{shown}."), errors);
        if *key == "local" && at(volume, "nodeAffinity").is_none() {
            let why = "Local volume requires node affinity";
            errors.push(field::required(format_args!("{path}nodeAffinity"), why));
        }
    }
    if named == 0 {
        errors.push(field::required(ParentPath(path), "must specify a volume type"));
    }
    let is_root = text(volume, "hostPath.path").trim_end_matches('/').is_empty();
    if at(volume, "hostPath.path").is_some_and(|p| !is_empty(Some(p)))
        && is_root
        && text(volume, "persistentVolumeReclaimPolicy") == "Recycle"
    {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(field::forbidden(format_args!("{path}persistentVolumeReclaimPolicy"), why));
    }
}

fn attributes_class(volume: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(class) = at(volume, "volumeAttributesClassName").and_then(Value::as_str) else { return };
    let here = format_args!("{path}volumeAttributesClassName");
    match class {
        "" => errors.push(field::required(here, "an empty string is disallowed")),
        class => check_text(here, class, names::dns1123_subdomain_errors, errors),
    }
    if at(volume, "csi").is_none() {
        let why = "has to be specified when using volumeAttributesClassName";
        errors.push(field::required(format_args!("{path}csi"), why));
    }
}

/// Source and volume mode are immutable, and so is the node affinity once set.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    let source = |volume: &Value| {
        let mut source = volume.get("spec").cloned().unwrap_or_default();
        if let Some(object) = source.as_object_mut() {
            object.retain(|key, _| is_source(key));
        }
        source
    };
    let (mut now, before) = (source(new), source(old));
    if at(&before, "csi").is_some() && at(&before, "csi.controllerExpandSecretRef").is_none() {
        take(&mut now, &before, &["csi", "controllerExpandSecretRef"]);
    }
    if !same(Some(&now), Some(&before)) {
        let why = "spec.persistentvolumesource is immutable after creation\n";
        errors.push(field::forbidden("spec.persistentvolumesource", why));
    }
    if at(new, "spec.volumeMode") != at(old, "spec.volumeMode") {
        let shown = at(new, "spec.volumeMode").cloned().unwrap_or_default();
        errors.push(field::invalid("volumeMode", shown, "field is immutable"));
    }
    let affinity = |volume| at(volume, "spec.nodeAffinity");
    if affinity(old).is_some() && !same(affinity(new), affinity(old)) {
        let why = "field is immutable, except for updating from beta label to GA";
        errors.push(field::invalid("nodeAffinity", affinity(new).cloned().unwrap_or_default(), why));
    }
    errors
}

/// Sets the phase and its transition time.
fn prepare_status(new: &mut Value, old: &Value) {
    const PHASE: &str = "status.phase";
    const SINCE: &str = "status.lastPhaseTransitionTime";
    let (now, before) = (at(new, SINCE).cloned(), at(old, SINCE).cloned());
    let since = match text(new, PHASE) == text(old, PHASE) {
        true if now.is_none() => before,
        false if now.is_none() || now == before => Some(Timestamp::now().to_rfc3339().into()),
        _ => return,
    };
    if let (Some(since), Some(status)) = (since, new.object_at_mut(&["status"])) {
        status.insert("lastPhaseTransitionTime", since);
    }
}

/// Deprecated sources that upstream warns about for PersistentVolumes, in its order.
const DEPRECATED_SOURCES: [&str; 6] =
    ["cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"];

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    const ANNOTATIONS: [(&str, &str); 2] = [
        (CLASS_ANNOTATION, CLASS_ANNOTATION_WARNING),
        (
            "volume.beta.kubernetes.io/mount-options",
            r#"deprecated since v1.31; use "mountOptions" attribute instead"#,
        ),
    ];
    for (key, why) in ANNOTATIONS.iter().filter(|(key, _)| annotation(new, key).is_some()) {
        found.add(format!("metadata.annotations[{key}]: {why}"));
    }
    if text(new, "spec.persistentVolumeReclaimPolicy") == "Recycle" {
        found.add("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.");
    }
    const TERMS: &str = "spec.nodeAffinity.required.nodeSelectorTerms";
    for (i, term) in list(new, TERMS).iter().enumerate() {
        warn_expressions(list(term, "matchExpressions"), &format!("{TERMS}[{i}]"), &mut found);
    }
    let is_there = |key: &str| at(new, &format!("spec.{key}")).is_some();
    let why = |key: &str| DEPRECATED_VOLUMES.into_iter().find(|(old, _)| *old == key);
    for (key, why) in DEPRECATED_SOURCES.into_iter().filter(|key| is_there(key)).filter_map(why) {
        found.add(deprecated_source(key, why, "spec"));
    }
    found.into_vec()
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Capacity", "spec.capacity.storage", "0"),
    Column::computed("Access Modes", &["spec.accessModes"], access_modes_cell),
    Column::text("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", ""),
    columns::PHASE,
    Column::computed("Claim", &["spec.claimRef.namespace", "spec.claimRef.name"], claim_cell),
    columns::STORAGE_CLASS,
    Column::text("VolumeAttributesClass", "spec.volumeAttributesClassName", "<unset>"),
    Column::text("Reason", "status.reason", ""),
    Column::AGE,
    Column::text("VolumeMode", "spec.volumeMode", "<unset>").wide(),
];

fn access_modes_cell(volume: &Value, _: Now) -> Cell<'_> {
    short_access_modes(list(volume, "spec.accessModes")).into()
}

fn claim_cell(volume: &Value, _: Now) -> Cell<'_> {
    match at(volume, "spec.claimRef") {
        Some(claim) => format!("{}/{}", text(claim, "namespace"), text(claim, "name")).into(),
        None => "".into(),
    }
}
