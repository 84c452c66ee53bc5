//! PersistentVolume (`core`).

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::time::Timestamp;
use plinth_codec::{names, Value};

use crate::checks::comparison::{same, take};
use crate::checks::immutable::immutable_as;
use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{
    self, Always, By, Entries, Enum, In, Is, OneOf, PositiveQuantity, Range, Required, Set, Text,
};
use crate::checks::{quantities, Part};
use crate::columns::{self, short_access_modes};
use crate::defaults::DefaultRule::{self, Field, IfPresent, RoundQuantities};
use crate::defaults::Literal::Str;
use crate::path::{at, list, text};
use crate::pod_template::defaults::{
    AZURE_DISK_DEFAULTS, HOST_PATH_DEFAULTS, ISCSI_DEFAULTS, RBD_DEFAULTS, SCALE_IO_DEFAULTS,
};
use crate::pod_template::file_paths::no_backsteps;
use crate::pod_template::scheduling::NODE_SELECTOR_CHECKS;
use crate::pod_template::volume::{
    first_source, forbid_more_sources, iscsi_name_errors, Source, AZURE_DISK_CHECKS, HOST_PATH_CHECKS,
    NFS_CHECKS, SCALE_IO_CHECKS,
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

const CHECKS: &[Check] = &[
    Always("spec", SPEC_CHECKS),
    By(|volume| {
        let has_options = volume.value().at(&["metadata", "annotations", MOUNT_OPTIONS]).is_some();
        if has_options && volume.field("spec").count(&MOUNTED_WITH_OPTIONS) == 0 {
            let why = "may not specify mount options for this volume type";
            volume.forbidden(format_args!("metadata.annotations.{MOUNT_OPTIONS}"), why);
        }
    }),
];

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
    In(
        "nodeAffinity",
        &[Set("required", "must specify required node constraints"), In("required", NODE_SELECTOR_CHECKS)],
    ),
    By(sources),
    Text("storageClassName", names::dns1123_subdomain_errors),
    Enum("volumeMode", &["Block", "Filesystem"]),
    By(attributes_class),
];

/// Volume sources in upstream's order: field, field that errors report, checks.
const SOURCES: &[Source] = &[
    Source("hostPath", "hostPath", HOST_PATH_CHECKS),
    Source("gcePersistentDisk", "persistentDisk", &[Required("pdName", "")]),
    Source("awsElasticBlockStore", "awsElasticBlockStore", &[Required("volumeID", "")]),
    Source("glusterfs", "glusterfs", &[Required("endpoints", ""), Required("path", "")]),
    Source("flocker", "flocker", &[]),
    Source("nfs", "nfs", NFS_CHECKS),
    Source("rbd", "rbd", &[Required("monitors", ""), Required("image", "")]),
    Source(
        "quobyte",
        "quobyte",
        &[
            Required("registry", "must be a host:port pair or multiple pairs separated by commas"),
            Required("volume", ""),
        ],
    ),
    Source("cephfs", "cephfs", &[Required("monitors", "")]),
    Source(
        "iscsi",
        "iscsi",
        &[Required("targetPortal", ""), Check::RequiredText("iqn", iscsi_name_errors), Range("lun", 0, 255)],
    ),
    Source("cinder", "cinder", &[Required("volumeID", "")]),
    Source("fc", "fc", &[]),
    Source("flexVolume", "flexVolume", &[Required("driver", "")]),
    Source("azureFile", "azureFile", &[Required("secretName", ""), Required("shareName", "")]),
    Source("vsphereVolume", "vsphereVolume", &[Required("volumePath", "")]),
    Source("photonPersistentDisk", "photonPersistentDisk", &[Required("pdID", "")]),
    Source("portworxVolume", "portworxVolume", &[Required("volumeID", "")]),
    Source("azureDisk", "azureDisk", AZURE_DISK_CHECKS),
    Source("scaleIO", "scaleIO", SCALE_IO_CHECKS),
    Source("local", "local", &[Required("path", ""), Is("path", no_backsteps)]),
    Source("storageos", "storageos", &[Check::RequiredText("volumeName", names::dns1123_label_errors)]),
    Source("csi", "csi", CSI_CHECKS),
];

/// Whether a member of the spec is a volume source.
fn is_source(key: &str) -> bool {
    SOURCES.iter().any(|source| source.0 == key)
}

const CSI_CHECKS: &[Check] = &[
    Is("driver", csi_driver_name),
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

fn capacity(volume: &Part<'_>) {
    volume.check(&[Required("capacity", "")]);
    let names: Vec<&str> = volume.members("capacity").map(|(name, _)| name).collect();
    if names != ["storage"] {
        let capacity = volume.at("capacity").filter(|_| !names.is_empty()).cloned();
        volume.not_supported("capacity", capacity.unwrap_or_default(), &["storage"]);
    }
    volume.check(&[Entries(
        "capacity",
        &[By(quantities::resource_quantity), PositiveQuantity("", "must be greater than zero")],
    )]);
}

fn sources(volume: &Part<'_>) {
    match first_source(volume, SOURCES) {
        None => volume.required("", "must specify a volume type"),
        Some("local") => volume.check(&[Set("nodeAffinity", "Local volume requires node affinity")]),
        Some(_) => {}
    }
    forbid_more_sources(volume, SOURCES);
    let host_path = volume.text("hostPath.path");
    if !host_path.is_empty()
        && host_path.trim_end_matches('/').is_empty()
        && volume.text("persistentVolumeReclaimPolicy") == "Recycle"
    {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        volume.forbidden("persistentVolumeReclaimPolicy", why);
    }
}

fn attributes_class(volume: &Part<'_>) {
    const KEY: &str = "volumeAttributesClassName";
    if volume.has(KEY) {
        volume.required_text(KEY, "an empty string is disallowed", names::dns1123_subdomain_errors);
        volume.check(&[Set("csi", "has to be specified when using volumeAttributesClassName")]);
    }
}

/// Source and volume mode are immutable, and so is the node affinity once set.
fn validate_update(new: &Part<'_>, old: &Value) {
    let source = |volume: &Value| {
        let mut source = volume.get("spec").cloned().unwrap_or_default();
        if let Some(object) = source.as_object_mut() {
            object.retain(|key, _| is_source(key));
        }
        source
    };
    let (mut now, before) = (source(new.value()), source(old));
    if at(&before, "csi").is_some() && at(&before, "csi.controllerExpandSecretRef").is_none() {
        take(&mut now, &before, &["csi", "controllerExpandSecretRef"]);
    }
    if !same(Some(&now), Some(&before)) {
        let why = "spec.persistentvolumesource is immutable after creation\n";
        new.forbidden("spec.persistentvolumesource", why);
    }
    immutable_as("spec.volumeMode", "volumeMode", new, old);
    const AFFINITY: &str = "spec.nodeAffinity";
    let before = at(old, AFFINITY);
    if before.is_some() && !same(new.at(AFFINITY), before) {
        let why = "field is immutable, except for updating from beta label to GA";
        new.invalid("nodeAffinity", new.shown(AFFINITY), why);
    }
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
