//! Of volumes, claims on them, and what makes them.

use plinth_codec::Value;

use super::{annotation, at, half_bytes, list, old_keys, old_label, old_labels_of_expressions, text, Found};

/// Sources of volumes that are deprecated, of pods and of PersistentVolumes.
pub(super) const OLD_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Those that upstream tells of for PersistentVolumes, in its order.
const OLD_PERSISTENT: [&str; 6] =
    ["cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"];

/// Of the deprecated source of a volume; upstream calls one of them as its own struct does.
pub(super) fn old_source(key: &str, why: &str, path: &str) -> String {
    let shown = if key == "storageos" { "storageOS" } else { key };
    format!("{path}.{shown}: {why}")
}

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const CLASS_WHY: &str = r#"deprecated since v1.8; use "storageClassName" attribute instead"#;

/// Of a PersistentVolume.
pub fn volume(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    const ANNOTATIONS: [(&str, &str); 2] = [
        (CLASS, CLASS_WHY),
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
        old_labels_of_expressions(list(term, "matchExpressions"), &format!("{TERMS}[{i}]"), &mut found);
    }
    let is_there = |key: &str| at(new, &format!("spec.{key}")).is_some();
    let why = |key: &str| OLD_VOLUMES.into_iter().find(|(old, _)| *old == key);
    for (key, why) in OLD_PERSISTENT.into_iter().filter(|key| is_there(key)).filter_map(why) {
        found.add(old_source(key, why, "spec"));
    }
    found.0
}

/// Of a PersistentVolumeClaim.
pub fn claim(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    if annotation(new, CLASS).is_some() {
        found.add(format!("metadata.annotations[{CLASS}]: {CLASS_WHY}"));
    }
    claim_spec(at(new, "spec"), "spec", &mut found);
    found.0
}

/// Of what a claim asks for.
pub(super) fn claim_spec(spec: Option<&Value>, path: &str, found: &mut Found) {
    for part in ["requests", "limits"] {
        let amounts = spec.and_then(|spec| spec.at(&["resources", part]));
        half_bytes(amounts, "storage", &format!("{path}.resources.{part}"), found);
    }
}

/// Of a StorageClass.
pub fn storage_class(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    for (i, topology) in list(new, "allowedTopologies").iter().enumerate() {
        for (j, expression) in list(topology, "matchLabelExpressions").iter().enumerate() {
            if let Some(why) = old_label(text(expression, "key")) {
                found.add(format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key: {why}"));
            }
        }
    }
    found.0
}

/// Of a CSIStorageCapacity.
pub fn capacity(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    old_labels_of_expressions(list(new, "nodeTopology.matchExpressions"), "nodeTopology", &mut found);
    for (key, why) in old_keys(at(new, "nodeTopology.matchLabels")) {
        found.add(format!("nodeTopology.matchLabels.{key}: {why}"));
    }
    found.0
}

/// Of a CSIDriver: tokens that it gets where they may end up in logs.
pub fn csi_driver(new: &Value, old: Option<&Value>) -> Vec<String> {
    const WHY: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
    let requests = list(new, "spec.tokenRequests");
    let changed = old.is_none_or(|old| list(old, "spec.tokenRequests") != requests);
    match changed && !requests.is_empty() && at(new, "spec.serviceAccountTokenInSecrets").is_none() {
        true => vec![WHY.to_owned()],
        false => Vec::new(),
    }
}
