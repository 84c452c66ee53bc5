//! Volumes, storage classes and what storage drivers say of themselves.

use std::collections::{HashMap, HashSet};

use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Map, Value};

use super::claims::access_modes;
use super::pod::volume::{
    driver_name, iscsi_name_errors, no_backsteps, AZURE_DISK, HOST_PATH, NFS, SCALE_IO,
};
use super::Check::{By, Enum, In, OneOf, Range, Required, Text};
use super::{at, forbid_more, int, is_empty, list, rule, scheduling, text, texts, validate, Check};
use plinth_api::api_error::Cause;
use plinth_api::field::{self, Itself, Place};

/// core/v1 PersistentVolume.
pub const PERSISTENT_VOLUME: &[Check] = &[By(|volume, _, errors| {
    let nothing = Value::object();
    let spec = at(volume, "spec").unwrap_or(&nothing);
    validate(VOLUME, spec, format_args!("spec."), errors);
    let has_options = volume.at(&["metadata", "annotations", MOUNT_OPTIONS]).is_some();
    if has_options && !MOUNTED_WITH_OPTIONS.iter().any(|source| at(spec, source).is_some()) {
        let why = "may not specify mount options for this volume type";
        errors.push(field::forbidden(format_args!("metadata.annotations.{MOUNT_OPTIONS}"), why));
    }
})];

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
/// Volumes that are mounted with options (kubernetes `pkg/volume/validation`).
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

const VOLUME: &[Check] = &[
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

/// Sources of volumes in upstream's order: field, field that is named in errors of its content, checks.
const SOURCES: &[(&str, &str, &[Check])] = &[
    ("hostPath", "hostPath", HOST_PATH),
    ("gcePersistentDisk", "persistentDisk", &[Required("pdName", "")]),
    ("awsElasticBlockStore", "awsElasticBlockStore", &[Required("volumeID", "")]),
    ("glusterfs", "glusterfs", &[Required("endpoints", ""), Required("path", "")]),
    ("flocker", "flocker", &[]),
    ("nfs", "nfs", NFS),
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
    ("azureDisk", "azureDisk", AZURE_DISK),
    ("scaleIO", "scaleIO", SCALE_IO),
    (
        "local",
        "local",
        &[Required("path", ""), By(|v, p, f| no_backsteps(text(v, "path"), format_args!("{p}path"), f))],
    ),
    ("storageos", "storageos", &[Check::RequiredText("volumeName", names::dns1123_label_errors)]),
    ("csi", "csi", CSI),
];

/// Whether a member of a volume's spec says where the volume is.
pub fn is_source(key: &str) -> bool {
    SOURCES.iter().any(|(known, ..)| *known == key)
}

const CSI: &[Check] = &[
    By(|csi, path, errors| driver_name(text(csi, "driver"), format_args!("{path}driver"), errors)),
    Required("volumeHandle", ""),
    In("controllerPublishSecretRef", SECRET),
    In("controllerExpandSecretRef", SECRET),
    In("nodePublishSecretRef", SECRET),
    In("nodeExpandSecretRef", SECRET),
];
const SECRET: &[Check] = &[
    Check::RequiredText("name", names::dns1123_subdomain_errors),
    Check::RequiredText("namespace", names::dns1123_label_errors),
];

fn capacity(volume: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
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

fn node_affinity(volume: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let Some(affinity) = at(volume, "nodeAffinity") else { return };
    let here = format_args!("{path}nodeAffinity.required");
    match at(affinity, "required") {
        None => errors.push(field::required(here, "must specify required node constraints")),
        Some(required) => validate(scheduling::NODE_SELECTOR, required, format_args!("{here}."), errors),
    }
}

fn sources(volume: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
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
        errors.push(field::required(Itself(path), "must specify a volume type"));
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

fn attributes_class(volume: &Value, path: Place<'_>, errors: &mut Vec<Cause>) {
    let Some(class) = at(volume, "volumeAttributesClassName").and_then(Value::as_str) else { return };
    let here = format_args!("{path}volumeAttributesClassName");
    match class {
        "" => errors.push(field::required(here, "an empty string is disallowed")),
        class => rule(here, class, names::dns1123_subdomain_errors, errors),
    }
    if at(volume, "csi").is_none() {
        let why = "has to be specified when using volumeAttributesClassName";
        errors.push(field::required(format_args!("{path}csi"), why));
    }
}

/// storage.k8s.io/v1 StorageClass.
pub const STORAGE_CLASS: &[Check] = &[
    By(|class, _, errors| provisioner(text(class, "provisioner"), format_args!("provisioner"), errors)),
    By(|class, _, errors| parameters(class, "parameters", true, errors)),
    OneOf("reclaimPolicy", &["Delete", "Retain"]),
    Check::Enum("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]),
    By(topologies),
];
/// storage.k8s.io/v1 VolumeAttributesClass.
pub const VOLUME_ATTRIBUTES_CLASS: &[Check] = &[
    By(|class, _, errors| provisioner(text(class, "driverName"), format_args!("driverName"), errors)),
    By(|class, _, errors| parameters(class, "parameters", false, errors)),
];

fn provisioner(name: &str, path: Place<'_>, errors: &mut Vec<Cause>) {
    match name {
        "" => errors.push(field::required(path, "")),
        name => rule(path, &name.to_lowercase(), names::qualified_name_errors, errors),
    }
}

fn parameters(class: &Value, path: &str, may_be_absent: bool, errors: &mut Vec<Cause>) {
    const MOST: usize = 512;
    const LARGEST: usize = 256 * 1024;
    let Some(given) = at(class, path).and_then(Value::as_object).filter(|m| !m.is_empty() || may_be_absent)
    else {
        if !may_be_absent {
            errors.push(field::required(path, "must contain at least one key/value pair"));
        }
        return;
    };
    if given.len() > MOST {
        let mut error = field::too_many(path, given.len(), MOST);
        error.message = format!("Too long: may not be more than {MOST} bytes");
        error.reason = "FieldValueTooLong";
        errors.push(error);
        return;
    }
    let mut size = 0;
    for (key, value) in given.iter() {
        if key.is_empty() {
            errors.push(field::invalid(path, key.clone(), "field can not be empty."));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > LARGEST {
        errors.push(field::too_long(path, LARGEST));
    }
}

fn topologies(class: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let all = list(class, "allowedTopologies");
    let mut seen: HashSet<Vec<(&str, Vec<&str>)>> = HashSet::new();
    for (i, term) in all.iter().enumerate() {
        let path = format_args!("allowedTopologies[{i}].matchLabelExpressions");
        let mut keys: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut keys_seen = HashSet::new();
        for (j, wanted) in list(term, "matchLabelExpressions").iter().enumerate() {
            let (key, mut values) = (text(wanted, "key"), texts(wanted, "values"));
            let here = format_args!("{path}[{j}]");
            if values.is_empty() {
                errors.push(field::required(format_args!("{here}.values"), ""));
            }
            let mut once = HashSet::new();
            for (k, value) in values.iter().enumerate().filter(|(_, value)| !once.insert(**value)) {
                errors.push(field::duplicate(format_args!("{here}.values[{k}]"), *value));
            }
            rule(format_args!("{here}.key"), key, names::qualified_name_errors, errors);
            if !keys_seen.insert(key) {
                errors.push(field::duplicate(format_args!("{here}.key"), key));
            }
            values.sort_unstable();
            values.dedup();
            keys.push((key, values));
        }
        keys.sort_unstable();
        // Upstream takes a term without expressions for a duplicate of nothing.
        if keys.is_empty() || !seen.insert(keys) {
            errors.push(field::duplicate(path, ""));
        }
    }
}

/// storage.k8s.io/v1 CSIDriver.
pub const CSI_DRIVER: &[Check] = &[
    By(|driver, _, errors| {
        const MODES: &[&str] = &["Persistent", "Ephemeral"];
        for mode in texts(driver, "spec.volumeLifecycleModes") {
            if !MODES.contains(&mode) {
                errors.push(field::not_supported("spec.volumeLifecycleModes", mode, MODES));
            }
        }
    }),
    Enum("spec.fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]),
    By(token_requests),
    By(|driver, _, errors| {
        const PATH: &str = "spec.nodeAllocatableUpdatePeriodSeconds";
        if let Some(seconds) = int(driver, PATH).filter(|seconds| *seconds < 10) {
            errors.push(field::invalid(PATH, seconds, "must be greater than or equal to 10 seconds"));
        }
    }),
];

fn token_requests(driver: &Value, _: Place<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, request) in list(driver, "spec.tokenRequests").iter().enumerate() {
        let path = format_args!("spec.tokenRequests[{i}]");
        let audience = text(request, "audience");
        if !seen.insert(audience) {
            errors.push(field::duplicate(format_args!("{path}.audience"), audience));
            continue;
        }
        let here = format_args!("{path}.expirationSeconds");
        match int(request, "expirationSeconds") {
            Some(seconds) if seconds < 600 => {
                errors.push(field::invalid(here, seconds, "may not specify a duration less than 10 minutes"));
            }
            Some(seconds) if seconds > 1 << 32 => {
                let why = "may not specify a duration larger than 2^32 seconds";
                errors.push(field::invalid(here, seconds, why));
            }
            _ => {}
        }
    }
}

/// storage.k8s.io/v1 CSINode.
pub const CSI_NODE: &[Check] = &[By(|node, _, errors| {
    let mut seen = HashSet::new();
    for (i, driver) in list(node, "spec.drivers").iter().enumerate() {
        let path = format_args!("spec.drivers[{i}]");
        let (name, id) = (text(driver, "name"), text(driver, "nodeID"));
        driver_name(name, format_args!("{path}.name"), errors);
        match id.len() {
            0 => errors.push(field::required(format_args!("{path}.nodeID"), "")),
            257.. => errors.push(field::invalid(
                format_args!("{path}.nodeID"),
                id,
                "must be 256 characters or less",
            )),
            _ => {}
        }
        validate(&[Check::AtLeast("allocatable.count", 0)], driver, format_args!("{path}."), errors);
        if !seen.insert(name) {
            errors.push(field::duplicate(format_args!("{path}.name"), name));
        }
        let mut keys = HashSet::new();
        for key in texts(driver, "topologyKeys") {
            // Upstream names the driver for each of its keys.
            if key.is_empty() {
                errors.push(field::required(path, ""));
            }
            if !keys.insert(key) {
                errors.push(field::duplicate(path, key));
            }
            rule(path, key, names::qualified_name_errors, errors);
        }
    }
})];

/// storage.k8s.io/v1 CSIStorageCapacity.
pub const CSI_STORAGE_CAPACITY: &[Check] = &[
    By(|capacity, _, errors| {
        rule(
            format_args!("storageClassName"),
            text(capacity, "storageClassName"),
            names::dns1123_subdomain_errors,
            errors,
        );
    }),
    Check::Selector("nodeTopology"),
    By(|capacity, _, errors| {
        let shown = text(capacity, "capacity");
        if Quantity::parse(shown).is_ok_and(|amount| amount.sign() < 0) {
            errors.push(field::invalid("capacity", shown, "must be greater than or equal to 0"));
        }
    }),
];

/// storage.k8s.io/v1 VolumeAttachment.
pub const VOLUME_ATTACHMENT: &[Check] = &[
    By(|attachment, _, errors| {
        driver_name(text(attachment, "spec.attacher"), format_args!("spec.attacher"), errors)
    }),
    By(|attachment, _, errors| {
        const PATH: &str = "spec.source";
        let (inline, name) = (
            at(attachment, "spec.source.inlineVolumeSpec"),
            at(attachment, "spec.source.persistentVolumeName"),
        );
        match (inline, name) {
            (None, None) => {
                let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.push(field::required(PATH, why));
            }
            (Some(_), Some(_)) => {
                let shown = at(attachment, PATH).cloned().unwrap_or_default();
                let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.push(field::invalid(PATH, shown, why));
            }
            (None, Some(name)) => {
                let (here, name) =
                    (format!("{PATH}.persistentVolumeName"), name.as_str().unwrap_or_default());
                rule(format_args!("{here}"), name, names::dns1123_subdomain_errors, errors);
                if name.is_empty() {
                    errors.push(field::required(here, "must specify non empty persistentVolumeName"));
                }
            }
            _ => {}
        }
    }),
    By(|attachment, _, errors| {
        let name = text(attachment, "spec.nodeName");
        rule(format_args!("spec.nodeName"), name, names::dns1123_subdomain_errors, errors);
    }),
];

/// What is to be attached where is said once.
pub fn attachment_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    super::update::immutable(&["spec"], new, old, &mut errors);
    errors
}

/// A driver can be taken off a node, and added; what it says of itself stays.
pub fn node_update(new: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.drivers";
    let mut errors = Vec::new();
    let named: HashMap<&str, &Value> = list(new, PATH).iter().map(|now| (text(now, "name"), now)).collect();
    for before in list(old, PATH) {
        let now = named.get(text(before, "name")).copied();
        let changed = now.is_some_and(|now| {
            text(now, "nodeID") != text(before, "nodeID")
                || texts(now, "topologyKeys") != texts(before, "topologyKeys")
        });
        if changed {
            let shown = now.cloned().unwrap_or_default();
            errors.push(field::invalid(PATH, shown, "field is immutable"));
        }
    }
    errors
}

/// How volumes of a driver are attached stays.
pub fn driver_update(new: &Value, old: &Value) -> Vec<Cause> {
    const ROWS: [(&str, &str); 2] = [
        // Upstream misspells the first.
        ("spec.attachRequired", "spec.attachedRequired"),
        ("spec.volumeLifecycleModes", "spec.volumeLifecycleModes"),
    ];
    let changed = ROWS.iter().filter(|(path, _)| at(new, path) != at(old, path));
    changed
        .map(|(path, shown)| {
            field::invalid(*shown, at(new, path).cloned().unwrap_or_default(), "field is immutable")
        })
        .collect()
}

/// What of a class of attributes stays.
pub fn attributes_class_update(new: &Value, old: &Value) -> Vec<Cause> {
    let changed = ["driverName", "parameters"].into_iter().filter(|key| at(new, key) != at(old, key));
    changed.map(|key| field::forbidden(key, &format!("updates to {key} are forbidden."))).collect()
}
